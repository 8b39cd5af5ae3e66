"""Rows that the default run leaves out have no value, or pair of values, of their own; the command that runs all is documented."""

from __future__ import annotations

import tomllib
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests.support.exhaustive import DEFAULT, FEW, PARTS, covering, examples, left_out, mark_rest, one_in, part_of
from tests.support.places import ROOT

SHAPES = [(2, 2), (4, 3, 2), (4, 8), (3, 3, 3, 3), (1, 5), (7,)]


def rows_of(sizes: tuple[int, ...]) -> list[dict[str, int]]:
    return [{f"p{i}": value for i, value in enumerate(values)} for values in product(*map(range, sizes))]


@pytest.mark.covering(2)
@pytest.mark.parametrize("strength", [1, 2])
@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_every_combination_is_kept(sizes: tuple[int, ...], strength: int) -> None:
    rows = rows_of(sizes)
    chosen = covering(rows, strength)

    def found(numbers: list[int]) -> set[tuple[tuple[str, int], ...]]:
        return {part for i in numbers for part in combinations(rows[i].items(), min(strength, len(sizes)))}

    assert found(chosen) == found(list(range(len(rows)))) and chosen == sorted(set(chosen))
    largest = sorted(sizes)[-strength:]
    assert len(chosen) <= 2 * max(sizes) * (largest[0] if strength == 2 else 1)


def test_rows_that_are_no_product_keep_what_they_have() -> None:
    rows = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}]
    assert covering(rows, 1) == [0, 2] and covering(rows, 2) == [0, 1, 2] and covering([], 2) == []


def test_examples_are_an_eighth_unless_all_are_asked(request: pytest.FixtureRequest) -> None:
    default = request.config.option.markexpr == "not exhaustive"
    if default:
        assert settings.default.max_examples == FEW and settings.default.derandomize
        assert [examples(n) for n in (1, 2, 6, 40, 1000)] == [1, 2, 2, 5, 120]
    assert settings.default.deadline is None


class Item:
    """A test of pytest: a row of a function, whose marks are given by name."""

    def __init__(self, function: str, row: int | None, *marks: str) -> None:
        self.nodeid = function if row is None else f"{function}[{row}]"
        self.marks = {name: getattr(pytest.mark, name) for name in marks}
        if row is not None:
            self.callspec = SimpleNamespace(params={"row": row})

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [pytest.mark.parametrize("row", []).mark] if name == "parametrize" and hasattr(self, "callspec") else []

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks[mark.name] = mark


def taken(part: int | None) -> set[str]:
    """Returns the names that a run of the part takes: sweeps of 2, 5 and 1 rows, slow and other tests."""
    items = [Item(f"rows{count}", row) for count in (2, 5, 1) for row in range(count)]
    items += [Item(f"slow{number}", None, "slow") for number in range(4)] + [Item("quick", None), Item("never", None, "exhaustive")]
    mark_rest(items, part)  # type: ignore[arg-type]
    return {item.nodeid for item in items if "exhaustive" not in item.marks}


def test_parts_have_a_row_of_each_sweep_and_together_all() -> None:
    parts = [taken(part) for part in range(PARTS)]
    assert set.union(*parts) == taken(None) and "never" not in taken(None)
    assert set.intersection(*parts) == {"rows1[0]", "quick"}
    for part in parts:
        assert {name[:5] for name in part} == {"rows2", "rows5", "rows1", "quick", *(name for name in part if "slow" in name)}
        assert 1 <= sum("slow" in name for name in part) <= 2 and 1 <= sum("rows5" in name for name in part) <= 2


def test_a_run_that_names_a_folder_takes_all() -> None:
    source = pytest.Config.ArgsSource
    named = SimpleNamespace(args_source=source.ARGS, option=SimpleNamespace(keyword="", markexpr=DEFAULT), rootpath=ROOT)
    assert part_of(named) is None  # type: ignore[arg-type]
    named.args_source = source.TESTPATHS
    assert part_of(named) in range(PARTS)  # type: ignore[arg-type]
    named.option.markexpr = "exhaustive or not exhaustive"
    assert part_of(named) is None  # type: ignore[arg-type]
    named.option.markexpr, named.option.keyword = DEFAULT, "softmax"
    assert part_of(named) is None  # type: ignore[arg-type]
    assert part_of(SimpleNamespace(workerinput={"part": 2})) == 2  # type: ignore[arg-type]


def test_one_in_counts_rows_that_are_not_left_out() -> None:
    rows = one_in(2, [(1, 2), (3, 4), left_out(5, 6), pytest.param(7, 8, id="named"), pytest.param(9, 10)])
    assert [bool(getattr(row, "marks", ())) for row in rows] == [False, True, True, False, True]
    assert [getattr(row, "values", row) for row in rows] == [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10)] and rows[3].id == "named"


def test_the_command_that_runs_all_is_documented() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "-m 'not exhaustive'" in options["addopts"]
    assert 'python -m pytest -n 2 -m "exhaustive or not exhaustive"' in (ROOT / "CONTRIBUTING.md").read_text()
