"""The command line's parser."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import NoReturn

from simgpu.tools.shared.errors import UsageError, did_you_mean

_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: .*?(--?[a-z][\w-]*)")


class Parser(argparse.ArgumentParser):
    """Reports a bad command line as UsageError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        near = ""
        if choice := _CHOICE.search(message):
            near = did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
        elif unknown := _UNKNOWN.search(message):
            near = did_you_mean(unknown[1], self.options())
        raise UsageError(f"{message}{near}; see `{self.prog} --help`")

    def options(self) -> Iterator[str]:
        """The options of this parser and of its verbs'."""
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser.options()
