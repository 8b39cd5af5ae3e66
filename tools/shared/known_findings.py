"""Options and messages for findings that are known: `--suppressions FILE`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping

from simgpu.engine.suppressions import Suppressions, read
from simgpu.hardware.errors import LaunchError
from simgpu.tools.shared.errors import UsageError


def add_suppressions_option(parser: ArgumentParser) -> None:
    """Adds --suppressions, the same for every verb that reports findings."""
    text = "known findings to leave out, in valgrind's form (`simgpu help findings`)"
    parser.add_argument("--suppressions", metavar="FILE", help=text)


def read_suppressions(path: str | None) -> Suppressions:
    """Reads the option's file; without one, no finding is known. Raises UsageError, with the line, and OSError."""
    try:
        return Suppressions() if path is None else read(path)
    except LaunchError as error:
        raise UsageError(str(error)) from None


def show_suppressed(used: Mapping[str, int]) -> None:
    """Prints on stderr how many findings each entry matched."""
    for name, count in used.items():
        print(f"suppressed {'once' if count == 1 else f'{count} times'}: {name}", file=sys.stderr)
