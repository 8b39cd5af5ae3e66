"""What the default run leaves out has no value, or pair of values, of its own; the command that runs all is documented."""

from __future__ import annotations

import tomllib
from itertools import combinations, product

import pytest
from hypothesis import settings

from tests.support.exhaustive import FEW, covering, examples
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


def test_the_command_that_runs_all_is_documented() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "-m 'not exhaustive'" in options["addopts"]
    assert 'python -m pytest -n 2 -m "exhaustive or not exhaustive"' in (ROOT / "CONTRIBUTING.md").read_text()
