"""Tables for any width."""

from __future__ import annotations

import io
import re
import time
from contextlib import redirect_stdout
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import simgpu
from simgpu.engine.dispatch import Dispatch
from simgpu.tools.shared import launching
from simgpu.tools.shared.console import about_left, count_progress, progress, quiet, show, table
from simgpu.tools.shared.launching import HowFar, showing
from simgpu.tools.shared.sheet import GAP, Sheet
from tests.support.kernels import loaded_kernel

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


def test_long_names_come_once_with_numbers() -> None:
    rows = [("void fill<float>(float*)", 1, 2, "of the first"), ("two", 4, 5, "")]
    assert printed(table("T", ("kernel", "alpha", "beta", "note"), rows), 22) == [
        "", "T", "1  void", "   fill<float>(float*)", "2  two", "",
        "kernel   alpha   beta", "─────────────────────", "1            1      2", "    of the first", "2            4      5",
    ]  # fmt: skip


# -- progress ---------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal that keeps its output."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replaces stderr from here on; pytest sets its own after fixtures."""
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", made)
    return made


def test_progress_inside_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)

    def wait_for(text: str) -> None:
        """Waits until another thread has drawn what matches: at once, or late on a loaded machine."""
        until = time.monotonic() + 100
        while not re.search(text, terminal.getvalue()):
            assert time.monotonic() < until, text
            time.sleep(0.01)

    with progress("outer") as said:
        with progress("inner"):
            wait_for("inner")
        with count_progress(4, "cases") as done:
            done()
            done()
            wait_for(r"2 of 4 cases, about \d+ s left")
        said("outer again")
        wait_for("outer again")


@given(st.lists(st.text("ab \t\n:[]", max_size=20), max_size=3), st.booleans())
def test_text_for_a_pipe_is_as_rich_would_lay_it_out(parts: list[str], emoji: bool) -> None:
    written, laid_out = io.StringIO(), io.StringIO()
    parts += [":x: [b]"] * emoji
    with redirect_stdout(written):
        show(*parts)
    for part in parts:
        Console(file=laid_out, highlight=False, markup=False, emoji=False).print(part, soft_wrap=True)
    assert written.getvalue() == "".join(f"{line.rstrip()}\n" for line in laid_out.getvalue().splitlines())


def test_quiet_and_pipes_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with quiet(), progress("a"), count_progress(2, "cases") as done:
        done()
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stderr", pipe)
    with progress("b") as said:
        said("c")
    assert terminal.getvalue() == pipe.getvalue() == ""


def test_what_is_left_is_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    assert about_left(90.0, 0.25) == "about 30 s left"
    assert about_left(0.0, 0.2) == "about 7 min left"


def test_progress_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that another thread reads in two steps may come out too small."""
    monkeypatch.setattr(launching, "COUNTED_AFTER", 0.0)
    ended = iter([0, 3, 2, 5, 4, 9])

    class Launch:
        info, at_work = SimpleNamespace(title="k"), True

        @property
        def progress(self) -> tuple[int, int]:
            return next(ended), 9

    how = HowFar(Launch())  # type: ignore[arg-type]
    assert [int(how.__rich__().split()[2]) for _ in range(6)] == [0, 3, 3, 5, 5, 9]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_launch_says_how_many_workgroups_ended(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal_of(monkeypatch)
    monkeypatch.setattr(launching, "COUNTED_AFTER", 0.0)
    seen: list[Dispatch] = []
    told: list[str] = []

    class Told(HowFar):
        def __init__(self, launch: Dispatch) -> None:
            super().__init__(launch)
            seen.append(launch)
            told.append(self.__rich__())

        def __rich__(self) -> str:
            text = super().__rich__()
            told.append(text)
            return text

    monkeypatch.setattr(launching, "HowFar", Told)
    gpu = simgpu.Device("gfx90a", threads=threads)
    gpu.shown = showing
    kernel = loaded_kernel(gpu, "s_mov_b32 s4, 0x20000\nagain:\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 again\n")
    kernel.launch(grid=600)
    assert seen[0].progress == (600, 600)
    assert told[0] == f"compiling what {kernel.name} executes"
    counts = [int(text.split()[2]) for text in told if "of 600 workgroups" in text]
    assert counts == sorted(counts) and counts and counts[0] < 600
