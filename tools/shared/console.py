"""Output of the verbs: tables and text on stdout, or one JSON document; progress on a terminal only."""

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

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.status import Status

PIPED_WIDTH = 200  # columns of a table outside a terminal, unless COLUMNS sets them
GAP = 3  # blanks between a table's columns
HEAD = 2  # lines of a table before its rows
INDENT = 4  # of a note below its row


def add_json_option(parser: ArgumentParser) -> None:
    """Adds --json, the same for every verb."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def show(*parts: RenderableType) -> None:
    """Prints text and tables on stdout. Outside a terminal, it prints plain text without trailing blanks, and breaks lines only
    if COLUMNS gives a width."""
    if sys.stdout.isatty():
        Console(highlight=False, markup=False).print(*parts, sep="\n")
        return
    columns = os.environ.get("COLUMNS", "")
    width = max(int(columns), 1) if columns.isdecimal() else None
    plain = Console(file=sys.stdout, highlight=False, markup=False, width=width or PIPED_WIDTH)
    with plain.capture() as captured:
        for part in parts:
            plain.print(part, soft_wrap=width is None and isinstance(part, (str, Text)))
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


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


class Sheet:
    """A table under its title, for any width: cells are never cut, and folded only if they cannot fit.

    If the whole table does not fit, each row's note goes below it, and further columns follow in another table, which repeats
    the first `left` ones.
    """

    def __init__(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int) -> None:
        self.title, self.columns, self.left = title, list(columns), left
        self.rows = [[cell if isinstance(cell, Text) else Text(number(cell)) for cell in row] for row in rows]
        self.widths = [
            max([cell_len(name), *(row[at].cell_len for row in self.rows)]) for at, name in enumerate(self.columns)
        ]  # fmt: skip

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(f"\n{self.title}", "bold")
        every = range(len(self.columns))
        blocks = [list(every)] if self._width(every) <= options.max_width else self._blocks(options.max_width)
        for number_of, block in enumerate(blocks):
            if number_of:
                yield Text()
            notes = self._note() if len(blocks[0]) < len(self.columns) and number_of == len(blocks) - 1 else None
            yield from self._table(block, notes, console, options)

    def _note(self) -> int | None:
        return self.columns.index("note") if "note" in self.columns else None

    def _width(self, block: Sequence[int]) -> int:
        return sum(self.widths[at] + GAP for at in block) - GAP

    def _blocks(self, width: int) -> list[list[int]]:
        """Returns the columns of each table, by number; the note's column is in none."""
        keys = list(range(min(self.left, len(self.columns))))
        blocks = [list(keys)]
        for at in range(len(keys), len(self.columns)):
            if at == self._note():
                continue
            if self._width([*blocks[-1], at]) > width and len(blocks[-1]) > len(keys):
                blocks.append(list(keys))
            blocks[-1].append(at)
        return blocks

    def _table(self, block: list[int], note: int | None, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for at in block:
            text = at < self.left or self.columns[at] in ("unit", "note")
            made.add_column(self.columns[at], justify="left" if text else "right", overflow="fold")
        for row in self.rows:
            made.add_row(*(row[at] for at in block))
        if note is None or self._width(block) > options.max_width:
            yield made
            return
        lines = console.render_lines(made, options, pad=False)  # one line a row, since the whole row fits
        for line in lines[:HEAD]:
            yield Segments([*line, Segment.line()])
        for row, line in zip(self.rows, lines[HEAD:], strict=True):
            yield Segments([*line, Segment.line()])
            if row[note].cell_len:
                yield Padding(row[note], (0, 0, 0, INDENT))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> Sheet:
    """Makes a plain table; the first `left` columns, "unit" and "note" are flush left, the others right."""
    return Sheet(title, columns, rows, left)


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
