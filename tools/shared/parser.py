"""The command line's parser."""

from __future__ import annotations

import argparse
from typing import NoReturn

from simgpu.tools.shared.errors import UsageError


class Parser(argparse.ArgumentParser):
    """Reports a bad command line as UsageError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")
