"""A table that fits any width."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

GAP = 3  # blanks between a table's columns
HEAD = 2  # lines of a table before its rows
INDENT = 4  # of a note below its row


class Items:
    """A line of items with commas between them. If it is too long, it is broken between items only.

    >>> Console(width=20).print(Items(["tile_m 256", "tile_n 128", "stages 2"]))
    tile_m 256,
    tile_n 128, stages 2
    """

    def __init__(self, items: Iterable[str]) -> None:
        self.items = list(items)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = ""
        for number, item in enumerate(self.items):
            part = item + ("," if number < len(self.items) - 1 else "")
            if line and cell_len(f"{line} {part}") > options.max_width:
                yield Text(line)
                line = part
            else:
                line = f"{line} {part}".strip()
        yield Text(line)


class Sheet:
    """A table under its title, for any width: cells are never cut, and folded only if they cannot fit.

    If the whole table does not fit, the notes of the first `noted` rows go below them, the others are left out, and further
    columns follow in another table, which repeats the first `left` ones. A first column of long names, such as those of C++, comes
    once, before the tables, which have the names' numbers.
    """

    def __init__(
        self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str | Text]], left: int, noted: int | None = None
    ) -> None:
        self.title, self.columns, self.left, self.noted = title, list(columns), left, noted
        self.rows = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
        self.widths = [
            max([cell_len(name), *(row[at].cell_len for row in self.rows)]) for at, name in enumerate(self.columns)
        ]  # fmt: skip

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(f"\n{self.title}", "bold")
        every = range(len(self.columns))
        fits = self._width(every) <= options.max_width
        if not fits and self._has_long_names(options.max_width):
            yield from self._by_number()
            return
        blocks = [list(every)] if fits else self._blocks(options.max_width)
        for number_of, block in enumerate(blocks):
            if number_of:
                yield Text()
            notes = self._note() if len(blocks[0]) < len(self.columns) and number_of == len(blocks) - 1 else None
            yield from self._table(block, notes, console, options)

    def _has_long_names(self, width: int) -> bool:
        return self.left == 1 and self.widths[0] > max(width // 2, cell_len(self.columns[0]))

    def _by_number(self) -> Iterator[RenderableType]:
        """Yields the names of the rows, each with its number, and the table of the numbers."""
        names = Table.grid(padding=(0, 2, 0, 0))
        names.add_column(justify="right")
        names.add_column(overflow="fold")
        for number, row in enumerate(self.rows, 1):
            names.add_row(str(number), row[0])
        yield names
        yield Text()
        yield Sheet("", self.columns, ([Text(str(number)), *row[1:]] for number, row in enumerate(self.rows, 1)), 1, self.noted)

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
        hidden = 0
        for number, (row, line) in enumerate(zip(self.rows, lines[HEAD:], strict=True)):
            yield Segments([*line, Segment.line()])
            if not row[note].cell_len:
                continue
            if self.noted is None or number < self.noted:
                yield Padding(row[note], (0, 0, 0, INDENT))
            else:
                hidden += 1
        if hidden:
            yield Text(f"{hidden} rows have notes: in a wider window, in a file, or with --html", "dim")
