"""Tables for whatever width there is."""

from __future__ import annotations

import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from simgpu.tools.shared.console import GAP, Sheet, table

WORDS = st.text("abcdefg", min_size=1, max_size=9)
NOTES = st.lists(WORDS, max_size=9).map(" ".join)


def printed(sheet: Sheet, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False, markup=False).print(sheet)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@given(
    st.lists(st.tuples(WORDS, WORDS, st.integers(0, 10**9), WORDS, NOTES), min_size=1, max_size=6),
    st.integers(30, 130),
)
def test_every_cell_is_whole_at_every_width(rows: list[tuple[str, str, int, str, str]], width: int) -> None:
    """A note may be wrapped at blanks, nothing else is; no line is longer than the width; every table begins with the key."""
    columns = ("key", "first", "count", "unit", "note")
    lines = printed(table("Title", columns, rows), width)
    assert max(map(len, lines)) <= width and lines[1] == "Title"
    words = " ".join(lines).split()
    for key, first, count, unit, note in rows:
        assert {key, first, f"{count:,}", unit, *note.split()} <= set(words)
    heads = [line for before, line in pairwise(["", *lines]) if line and not before and line != "Title"]
    assert all(line.startswith("key") for line in [*heads, lines[2]])
    shown = [columns, *((key, first, f"{count:,}", unit, note) for key, first, count, unit, note in rows)]
    if sum(max(map(len, column)) + GAP for column in zip(*shown, strict=True)) - GAP <= width:
        assert len(lines) == 4 + len(rows), "one table, a line a row"


def test_columns_that_do_not_fit_follow() -> None:
    rows = [("one", 1, 2, 3, "of the first"), ("two", 4, 5, 6, "")]
    assert printed(table("T", ("name", "alpha", "beta", "gamma", "note"), rows), 22) == [
        "", "T",
        "name   alpha   beta", "───────────────────", "one        1      2", "two        4      5", "",
        "name   gamma", "────────────", "one        3", "    of the first", "two        6",
    ]  # fmt: skip
