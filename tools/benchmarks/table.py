"""Table of goals that `simgpu bench` prints: each row is measured in a new process.

A goal is a row of `benchmarks.goals`.
"""

from __future__ import annotations

import json
import shlex
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simgpu.tools.bench.profile import show_profile
from simgpu.tools.benchmarks.blas import threads_environment
from simgpu.tools.benchmarks.corpus import corpus_table
from simgpu.tools.benchmarks.goals import CORPUS, GOALS, NAMES, Goal, GoalValue
from simgpu.tools.benchmarks.host import host_document, host_lines
from simgpu.tools.page.page import Page
from simgpu.tools.shared.console import print_json, progress, show
from simgpu.tools.shared.errors import KernelFailed, UsageError
from simgpu.tools.shared.outputs import claim
from simgpu.tools.shared.processes import output_of

COLUMNS = ("row", "work", "goal", "measured", "over goal", "met", "note")
MEASURED = 12  # width of a measured value with its unit


def configure(parser: ArgumentParser) -> None:
    """Adds the table's options."""
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help=f"rows of the table: {', '.join(NAMES)}")
    parser.add_argument("--corpus", default=CORPUS, metavar="FOLDER", help=f"compilers' kernels (default: {CORPUS})")
    parser.add_argument("--aiter", default="", metavar="FOLDER", help="checkout of github.com/ROCm/aiter, for its row")
    parser.add_argument("--verbose", action="store_true", help="also the table of the whole corpus")


@dataclass(frozen=True)
class GoalRow:
    """A goal and its measurement."""

    goal: Goal
    measured: GoalValue | None  # None if it failed
    failure: str  # why it failed
    seconds: float  # of the measurement

    @property
    def fine(self) -> bool:
        return self.measured is not None and self.measured.right

    @property
    def excess_ratio(self) -> float | None:
        value = self.measured.value if self.measured else None
        return None if value is None else self.goal.excess_ratio(value)

    def cells(self) -> tuple[object, ...]:
        """Returns the cells of the table's row."""
        goal, measured, over = self.goal, self.measured, self.excess_ratio
        if measured is None or measured.value is None or over is None:
            return goal.name, goal.work, goal.text, "", "", "", self.failure or (measured.note if measured else "")
        met = "WRONG" if not measured.right else "yes" if over <= 1 else "no"
        return goal.name, goal.work, goal.text, f"{measured.value:.3g} {goal.unit}", f"{over:.2f}", met, measured.note

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        goal, measured, over = self.goal, self.measured, self.excess_ratio
        return {
            "name": goal.name, "work": goal.work, "limit": goal.limit, "unit": goal.unit, "at_least": goal.at_least,
            "measured": measured and measured.value, "over_goal": over, "met": over is not None and over <= 1,
            "right": self.fine, "note": self.failure or (measured.note if measured else ""),
            "detail": measured.detail if measured else {}, "seconds": self.seconds,
        }  # fmt: skip


def goals(options: Namespace) -> int:
    """Measures the chosen goals and prints the table."""
    unknown = [name for name in options.only if name not in NAMES]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such row; there are {', '.join(NAMES)}")
    threads = 2 if options.threads is None else options.threads
    if threads < 1:
        raise UsageError(f"--threads {threads}: at least one is needed")
    chosen = [goal for goal in GOALS if not options.only or goal.name in options.only]
    host = host_document(threads)
    if options.profile:
        return _profiles(options, chosen, host, threads)
    if options.html is not None:
        claim([options.html], options.force)
    rows = []
    if not options.json:
        show(*host_lines(host), "", "Goals; `over goal` of 1 or less meets one", "", row_line((*COLUMNS[:-1], ""), chosen))
    for number, goal in enumerate(chosen):
        with progress(f"{goal.work}, row {number + 1} of {len(chosen)}"):
            rows.append(_row(goal, options, threads))
        if not options.json:
            show(row_line(rows[-1].cells(), chosen))
    if options.html is not None:
        title = f"{sum(row.document()['met'] for row in rows)} of {len(rows)} goals met"
        tables = [[title, COLUMNS, [row.cells() for row in rows]]]
        Page("goals of speed", {"tables": tables}, shlex.join(["simgpu", *options.words]), host_lines(host)).save(
            options.html, options.force
        )
    if options.json:
        print_json({
            "host": host, "rows": [row.document() for row in rows], "met": sum(row.document()["met"] for row in rows),
            "seconds": sum(row.seconds for row in rows),
        })  # fmt: skip
    else:
        for row in rows:
            if options.verbose and row.goal.name == "corpus" and row.measured and row.measured.detail:
                show(corpus_table(row.measured.detail))
        met = sum(row.document()["met"] for row in rows)
        show("", *least_lines(rows), f"{met} of {len(rows)} met; {sum(row.seconds for row in rows):.0f} s")
    return 0 if all(row.fine for row in rows) else 1


def least_lines(rows: Sequence[GoalRow]) -> list[str]:
    """Returns the line that says how near to numpy this host could come; none without a row that tells."""
    least = {row.goal.name: row.measured.detail["least"] for row in rows if row.measured and "least" in row.measured.detail}
    if not least:
        return []
    return ["Best possible here, if loads, stores and branches cost nothing, x numpy: "
            + ", ".join(f"{name} {value:.3g}" for name, value in least.items())]  # fmt: skip


def row_line(cells: Sequence[object], goals: Sequence[Goal]) -> str:
    """Returns a line of the table, or two: a row is printed when it is measured, so only the goals are known before.

    >>> goal = GOALS[NAMES.index("hip")]
    >>> print(row_line(("hip", "launches", goal.text, "0.9 s", "0.90", "yes", "wall 0.9 s"), [goal]))
    hip  launches                                       <= 1 s  0.9 s         0.90       yes
        wall 0.9 s
    """
    texts = [str(cell) for cell in cells]
    widths = [max(len(title), *map(len, column)) for title, column in zip(COLUMNS, zip(*((g.name, g.work, g.text) for g in goals)))]
    line = "  ".join(text.ljust(width) for text, width in zip(texts, (*widths, MEASURED, len(COLUMNS[4]), len(COLUMNS[5]))))
    return line.rstrip() + (f"\n    {texts[-1]}" if texts[-1] else "")


def _child(goal: Goal, options: Namespace, threads: int, *more: str) -> Any:
    folders = ["--corpus", options.corpus, "--aiter", options.aiter]
    arguments = ["-m", "simgpu.tools.benchmarks.goals", goal.name, "--threads", str(threads), *folders, *more]
    return json.loads(output_of(arguments, threads_environment(threads)))


def _row(goal: Goal, options: Namespace, threads: int) -> GoalRow:
    began = time.perf_counter()
    measured, failure = None, ""
    try:
        measured = GoalValue(**_child(goal, options, threads))
    except KernelFailed as error:
        failure = str(error)
    return GoalRow(goal, measured, failure, time.perf_counter() - began)


def _profiles(options: Namespace, chosen: list[Goal], host: dict[str, Any], threads: int) -> int:
    """Prints a table by opcode for each row that is one kernel."""
    kernels = [goal for goal in chosen if goal.subject is not None]
    if not kernels:
        raise UsageError(f"--profile: {', '.join(options.only)} is no single kernel's row")
    found = {goal.name: _child(goal, options, threads, "--profile") for goal in kernels}
    if options.json:
        print_json({"host": host, "profiles": found})
        return 0
    show(*host_lines(host))
    for goal in kernels:
        show_profile(found[goal.name], goal.work)
    return 0
