"""Rows and examples that the default run leaves to the exhaustive one: most examples of hypothesis, most rows of sweeps."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings

ALL = 100  # examples of a test that names no number, in the exhaustive run
FEW = 12  # in the default run
DEFAULT = "not exhaustive"  # the default run's `-m`, in pyproject.toml
PARTS = 3  # of sweeps: a run of the whole suite takes one


def load_profile(expression: str) -> None:
    """Loads the profile of hypothesis for a run with this `-m`.

    The default run draws the same few examples each time, so that what they assemble and compile is in the caches. The exhaustive
    one draws others in every run. No test depends on how fast a loaded machine is: an example may take as long as it likes.
    """
    exhaustive = "exhaustive" in expression and expression != DEFAULT
    settings.register_profile(
        "simgpu", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=not exhaustive,
        max_examples=ALL if exhaustive else FEW,
    )  # fmt: skip
    settings.load_profile("simgpu")


def examples(number: int) -> int:
    """`max_examples` for a test that has `number` examples in the exhaustive run: an eighth in the default one, at least 2."""
    return max(min(number, 2), -(-number * settings.default.max_examples // ALL))


def covering(rows: Sequence[dict[str, Hashable]], strength: int) -> list[int]:
    """Numbers of rows that together have every combination of `strength` values that all rows have (a covering array).

    Of rows that are as good, that with the values that others have least: types meet different shapes.

    >>> covering([{"a": a, "b": b} for a in range(3) for b in range(3)], 1)
    [0, 4, 8]
    """
    missing = [set(combinations(row.items(), min(strength, len(row)))) for row in rows]
    chosen: list[int] = []
    used: Counter[tuple[str, Hashable]] = Counter()
    while any(missing):
        most = max(map(len, missing))
        best = min((i for i in range(len(rows)) if len(missing[i]) == most), key=lambda i: sum(used[v] for v in rows[i].items()))
        found = missing[best]
        used.update(rows[best].items())
        chosen.append(best)
        missing = [left - found for left in missing]
    return sorted(chosen)


def left_out(*values: Any) -> Any:
    """A row that the default run leaves out.

    >>> left_out(1, 2).values
    (1, 2)
    """
    return pytest.param(*values, marks=pytest.mark.exhaustive)


def one_in(step: int, rows: Iterable[Any]) -> list[Any]:
    """Rows of a sweep through a table that one code handles: the default run takes each `step`th. A tuple is a row of arguments.

    Rows that are left out by hand are not counted.

    >>> [getattr(row, "id", row) for row in one_in(2, ["a", "b", left_out("c"), "d"])]
    ['a', None, None, 'd']
    """
    made: list[Any] = []
    number = 0
    for row in rows:
        given = row if isinstance(row, ParameterSet) else pytest.param(*row) if type(row) is tuple else pytest.param(row)
        if any(mark.name == "exhaustive" for mark in map(_mark, given.marks)):
            made.append(row)
            continue
        made.append(row if number % step == 0 else given._replace(marks=[*given.marks, pytest.mark.exhaustive]))
        number += 1
    return made


def _mark(one: pytest.Mark | pytest.MarkDecorator) -> pytest.Mark:
    return one if isinstance(one, pytest.Mark) else one.mark


def mark_rest(items: Iterable[pytest.Item], part: int | None) -> None:
    """Marks as `exhaustive` the rows that the default run does not need.

    These are the rows of tests with `covering(strength)` that their covering array does not have, and those of products, which
    are tests with several `parametrize` marks: by default, each row of each mark is taken once. The arrays have none of the rows
    that are marked by hand. Of what remains, a run of the whole suite takes a part: see `part_of`.
    """
    groups: dict[str, list[Any]] = {}
    for item in items:
        if not item.get_closest_marker("exhaustive"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    drawn: Counter[bool] = Counter()  # sweeps, and slow tests: each begins with another part, so that parts take as long
    for group in groups.values():
        kept, sweep = _kept(group), len(group) > 1
        if part is not None and (sweep or group[0].get_closest_marker("slow")):
            first = (part + drawn[sweep]) % (min(PARTS, len(kept)) if sweep else PARTS)
            kept = kept[first::PARTS]
            drawn[sweep] += 1
        for number in set(range(len(group))).difference(kept):
            group[number].add_marker(pytest.mark.exhaustive)


def _kept(group: Sequence[Any]) -> Sequence[int]:
    """Numbers of the rows that tests' marks choose."""
    if not hasattr(group[0], "callspec"):
        return range(len(group))
    marks = [tuple(arguments_of(mark)) for mark in group[0].iter_markers("parametrize")]
    if covered := group[0].get_closest_marker("covering"):
        return covering([_row(item.callspec) for item in group], covered.args[0])
    return covering([_rows_of_marks(item.callspec, marks) for item in group], 1) if len(marks) > 1 else range(len(group))


def part_of(config: pytest.Config) -> int | None:
    """Number of the part that a run of the whole suite takes of each sweep; None if the run names folders, files, tests or marks.

    A sweep is a test with several rows. A part has each third row of it, at least one. A slow test without rows
    (`@pytest.mark.slow`) is in one of the parts. The commit's name and the version of Python choose the part. So a run can be
    repeated, jobs of CI with three versions take all parts, and the next commits take others on this machine.
    """
    if hasattr(config, "workerinput"):
        return config.workerinput["part"]
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and config.option.markexpr == DEFAULT
    return (_commit(config.rootpath) + sys.version_info.minor) % PARTS if whole and not config.option.keyword else None


@functools.cache
def _commit(root: Path) -> int:
    """Returns the checked out commit's name as a number; 0 without Git, or outside a checkout."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(told.stdout, 16)


def arguments_of(mark: pytest.Mark) -> list[str]:
    """Names of the arguments that a `parametrize` mark gives.

    >>> arguments_of(pytest.mark.parametrize("a, b", [(1, 2)]).mark)
    ['a', 'b']
    """
    names = mark.args[0]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _rows_of_marks(callspec: Any, marks: Sequence[tuple[str, ...]]) -> dict[str, Hashable]:
    """A test's row of each of its `parametrize` marks."""
    row = _row(callspec)
    return {", ".join(names): tuple(row[name] for name in names) for names in marks}


def _row(callspec: Any) -> dict[str, Hashable]:
    """A test's arguments by name; those that have no hash, as text."""
    return {name: value if isinstance(value, Hashable) else repr(value) for name, value in callspec.params.items()}
