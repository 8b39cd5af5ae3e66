"""What the default run of the tests leaves to the exhaustive one: most examples of hypothesis, most rows of full products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ALL = 100  # examples of a test that names no number, in the exhaustive run
FEW = 12  # in the default run


def load_profile(expression: str) -> None:
    """Loads the profile of hypothesis for a run with this `-m`.

    The default run draws the same few examples each time, so that what they assemble and compile is in the caches. The exhaustive
    one draws others in every run. No test depends on how fast a loaded machine is: an example may take as long as it likes.
    """
    exhaustive = "exhaustive" in expression and expression != "not exhaustive"
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


def one_in(step: int, rows: Sequence[Any]) -> list[Any]:
    """Rows of a sweep through a table that one code handles: the default run takes each `step`th. A tuple is a row of arguments.

    >>> [getattr(row, "id", row) for row in one_in(2, ["a", "b", "c"])]
    ['a', None, 'c']
    """
    return [
        row if number % step == 0 else left_out(*row) if type(row) is tuple else left_out(row) for number, row in enumerate(rows)
    ]


def mark_rest(items: Iterable[pytest.Item]) -> None:
    """Marks as `exhaustive` the rows that the default run does not need.

    These are the rows of tests with `covering(strength)` that their covering array does not have, and those of products, which
    are tests with several `parametrize` marks: by default, each row of each mark is taken once. The arrays have none of the rows
    that are marked by hand.
    """
    groups: dict[str, list[Any]] = {}
    for item in items:
        if hasattr(item, "callspec") and not item.get_closest_marker("exhaustive"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in groups.values():
        marks = [tuple(arguments_of(mark)) for mark in group[0].iter_markers("parametrize")]
        if covered := group[0].get_closest_marker("covering"):
            kept = set(covering([_row(item.callspec) for item in group], covered.args[0]))
        elif len(marks) > 1:
            kept = set(covering([_rows_of_marks(item.callspec, marks) for item in group], 1))
        else:
            continue
        for number, item in enumerate(group):
            if number not in kept:
                item.add_marker(pytest.mark.exhaustive)


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
