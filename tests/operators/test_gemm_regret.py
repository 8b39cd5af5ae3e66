"""The closed form against exhaustive search: 200 listed shapes and 200 drawn ones, mean and worst; the search is checked too."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu import hardware
from simgpu.operators import GemmProblem, plan_gemm
from simgpu.tools.verbs.regret import SHAPES, drawn, fits, rank, seconds, shapes, summarise
from tests.support.places import ROOT

MEAN, WORST = 1.05, 1.30
# One row of each kind of chip and rate; the other boards and types repeat one of these rates or have a slower unit.
ROWS = [
    ("mi100", "f32"), ("mi100", "f16"), ("mi210", "f64"), ("mi250x", "i8"), ("mi300a", "xf32"), ("mi300x", "fp8"),
    ("mi355x", "bf16"), ("mi355x", "fp8"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "dtype"), ROWS)
def test_regret_of_200_listed_shapes(target: str, dtype: str) -> None:
    rows = [rank(hardware.target(target), dtype, kind, shape) for kind, shape in shapes()]
    _, count, mean, worst, above = summarise("all", rows)
    assert count == SHAPES
    assert mean <= MEAN and worst <= WORST and above == 0
    assert all(row.regret >= 1 - 1e-9 for row in rows), "the search covers the closed form's tiles"


# Out of sample: the shapes above WORST, of 200 for each of 52 boards and types (docs/regret.md).
MISSES = {("mi100", "f32"): {(204, 136, 9534): 1.312}, ("mi100", "f16"): {(4107, 1429, 1453): 1.32}}


@pytest.mark.parametrize(("target", "dtype"), ROWS)
def test_regret_of_drawn_shapes(target: str, dtype: str) -> None:
    """Shapes that the formulas were not written against."""
    rows = [rank(hardware.target(target), dtype, kind, shape) for kind, shape in drawn(3)]
    known = MISSES.get((target, dtype), {})
    assert summarise("all", rows)[2] <= MEAN
    assert {row.shape for row in rows if row.regret > WORST} == set(known)
    assert all(row.regret <= known.get(row.shape, WORST) for row in rows)


def test_a_worse_formula_would_fail() -> None:
    """The published tiles miss the bounds by far, so the bounds say something."""
    regrets = []
    for _, shape in shapes():
        corrected = plan_gemm(GemmProblem(*shape), hardware.target("mi100"))
        plan = plan_gemm(GemmProblem(*shape), hardware.target("mi100"), "published")
        best = rank(hardware.target("mi100"), "f32", "", shape).least
        regrets.append(float(seconds(corrected, *(np.array(x) for x in (plan.tile_m, plan.tile_n, plan.tile_k, 1)))) / best)
    assert np.exp(np.log(regrets).mean()) > 1.5 and max(regrets) > 3


def test_t_is_the_plan_s_own_figures() -> None:
    """T's compute term from the plan's eta and fill, for a compute-bound shape."""
    problem, d = GemmProblem(4096, 4096, 4096), hardware.target("mi100")
    plan = plan_gemm(problem, d)
    t = float(seconds(plan, *(np.array(x) for x in (plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k))))
    assert t == pytest.approx(problem.flops / (d.matrix_tflops("f32") * 1e12 * plan.eta * plan.fill))
    assert bool(fits(plan, plan.tile_m, plan.tile_n, plan.tile_k)) and not bool(fits(plan, 512, 512, 32))


def test_the_page_says_what_is_computed() -> None:
    page = (ROOT / "docs" / "regret.md").read_text()
    figures = []
    for source in (shapes(), drawn(3)):
        rows = [rank(hardware.target("mi300x"), "fp8", kind, shape) for kind, shape in source]
        figures += [f"{value:.3f}" for value in summarise("all", rows)[2:4]]
    assert f"| mi300x | fp8 | {' | '.join(figures)} | 0 |" in page
