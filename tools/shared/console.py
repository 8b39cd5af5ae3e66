"""Output of the verbs: tables and text on stdout, or one JSON document; progress on a terminal only.

rich is imported for a terminal, for tables and for a width: it takes 50 ms.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.status import Status

    from simgpu.tools.shared.sheet import Sheet

PIPED_WIDTH = 200  # columns of a table outside a terminal, unless COLUMNS sets them


def add_json_option(parser: ArgumentParser) -> None:
    """Adds --json, the same for every verb."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def show(*parts: RenderableType) -> None:
    """Prints text and tables on stdout. Outside a terminal, it prints plain text without trailing blanks, and breaks lines only
    if COLUMNS gives a width."""
    columns = os.environ.get("COLUMNS", "")
    width = max(int(columns), 1) if columns.isdecimal() else None
    to_terminal = sys.stdout.isatty()
    if not to_terminal and width is None and all(isinstance(part, str) for part in parts):
        _write_lines("".join(f"{part}\n" for part in parts))
        return
    from rich.console import Console
    from rich.text import Text

    if to_terminal:
        Console(highlight=False, markup=False, emoji=False).print(*parts, sep="\n")
        return
    plain = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width or PIPED_WIDTH)
    with plain.capture() as captured:
        for part in parts:
            plain.print(part, soft_wrap=width is None and isinstance(part, (str, Text)))
    _write_lines(captured.get())


def _write_lines(text: str) -> None:
    """Prints text without trailing blanks. Tabs become blanks, as in rich's output."""
    sys.stdout.write("".join(f"{line.expandtabs().rstrip()}\n" for line in text.splitlines()))


def print_json(document: Any) -> None:
    """Prints the document; values that JSON lacks (NaN, infinities) become null."""
    print(_json_text(document))


def print_json_entries(document: dict[str, Any], name: str, entries: Iterable[Any]) -> None:
    """Prints the document with a last value, the list of entries, of which it holds one at a time."""
    begun = f"{_json_text(document).removesuffix(chr(10) + '}')},\n  {json.dumps(name)}: ["
    for entry in entries:
        print(begun + "\n" + textwrap.indent(_json_text(entry), "    "), end="")
        begun = ","
    print("\n  ]\n}" if begun == "," else begun + "]\n}")


def _json_text(document: Any) -> str:
    return json.dumps(plain(document), indent=2, allow_nan=False)


def plain(value: Any) -> Any:
    """Converts a value for JSON: NaN and infinities become null, bytes hexadecimal, other objects their text."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1, noted: int | None = None
) -> Sheet:
    """Makes a plain table; the first `left` columns, "unit" and "note" are flush left, the others right.

    noted: rows that keep their notes in a narrow window, the first ones (default: all).
    """
    from simgpu.tools.shared.sheet import Sheet, Text

    cells = ([cell if isinstance(cell, Text) else number(cell) for cell in row] for row in rows)
    return Sheet(title, columns, cells, left, noted)


def number(value: object) -> str:
    """Formats a cell: whole numbers, and from 1,000 on all, with thousands separated; other floats to four figures; "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, float) and not value.is_integer() and not 1000 <= abs(value) < 1e15:
        return f"{value:.4g}"
    return f"{value:,.0f}"


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """Prints named figures, one per line, or one JSON document."""
    if as_json:
        print_json(figures)
        return
    for name, value in figures.items():
        print(f"{name:32} {value:,.4g}" if isinstance(value, float) else f"{name:32} {value}")


# The status on stderr, to which an inner progress writes; None: nothing yet; False: show nothing.
_SHOWN: ContextVar[Status | bool | None] = ContextVar("shown progress", default=None)


@contextmanager
def progress(message: str | RenderableType) -> Iterator[Callable[[RenderableType], None]]:
    """Shows a spinner on stderr while the block runs, if stderr is a terminal; yields a function that changes its message.

    An inner progress replaces the outer one until its block ends. A message that is not text is rendered again as time passes.
    """
    outer = _SHOWN.get()
    if isinstance(outer, bool) or not sys.stderr.isatty():
        yield lambda message: None
    elif outer is not None:
        before = outer.status
        outer.update(message)
        try:
            yield outer.update
        finally:
            outer.update(before)
    else:
        from rich.console import Console

        with Console(stderr=True).status(message) as status:
            token = _SHOWN.set(status)
            try:
                yield status.update
            finally:
                _SHOWN.reset(token)


@contextmanager
def quiet() -> Iterator[None]:
    """Shows no progress while the block runs."""
    token = _SHOWN.set(False)
    try:
        yield
    finally:
        _SHOWN.reset(token)


@contextmanager
def count_progress(total: int, noun: str) -> Iterator[Callable[[], None]]:
    """Shows how many of `total` are done and an estimate of the time left; yields a function to call after each one."""
    begun, done = time.perf_counter(), 0
    with progress(f"0 of {total:,} {noun}") as said:

        def step() -> None:
            nonlocal done
            done += 1
            said(f"{done:,} of {total:,} {noun}, {about_left(begun, done / total)}")

        yield step


def about_left(begun: float, share: float) -> str:
    """Estimates the time left, when `share` of the work is done since `begun` (perf_counter): "about 12 s left"."""
    left = (time.perf_counter() - begun) * (1 - share) / share
    return f"about {left:.0f} s left" if left < 100 else f"about {left / 60:.0f} min left"
