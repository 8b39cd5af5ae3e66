"""Output of the verbs: tables and text on stdout, or one JSON document; progress on a terminal only."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 200  # columns of a table that no terminal limits


def add_json_option(parser: ArgumentParser) -> None:
    """Adds --json, the same for every verb."""
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of text")


def show(*parts: RenderableType) -> None:
    """Prints text and tables on stdout; where that is no terminal, as plain text without trailing blanks."""
    if sys.stdout.isatty():
        Console(highlight=False, markup=False).print(*parts, sep="\n")
        return
    plain = Console(file=sys.stdout, highlight=False, markup=False, width=PIPED_WIDTH, soft_wrap=False)
    with plain.capture() as captured:
        plain.print(*parts, sep="\n")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_json(document: Any) -> None:
    """Prints the document; what JSON lacks (NaN, infinities) becomes null."""
    print(json.dumps(_plain(document), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], left: int = 1) -> Group:
    """A plain table under its title; the first `left` columns, "unit" and "note" are flush left, the others right."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(columns):
        text = index < left or name in ("unit", "note")
        made.add_column(name, justify="left" if text else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(number(cell)) for cell in row))
    return Group(Text(f"\n{title}", "bold"), made)  # rich would wrap a title of the table's own to the table's width


def number(value: object) -> str:
    """A cell: integers with thousands separated, floats to four figures, "" for None."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return f"{int(value):,}"


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """Prints named figures, one a line, or one JSON document."""
    if as_json:
        print_json(figures)
        return
    for name, value in figures.items():
        print(f"{name:32} {value:,.4g}" if isinstance(value, float) else f"{name:32} {value}")


@contextmanager
def progress(message: str) -> Iterator[None]:
    """Shows a spinner on stderr while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(message):
        yield
