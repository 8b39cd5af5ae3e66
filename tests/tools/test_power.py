"""Verdict: faulty results fail, faithful ones pass. The whole test is `python -m simgpu.tools.robustness.power`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simgpu.operators import (
    AttentionBackward,
    AttentionBackwardProblem,
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    UnfusedAttention,
    reference,
)
from simgpu.operators.error_model import Accumulation, TypicalError, gamma
from simgpu.tools.cases.operators import OPERATORS, workload
from simgpu.tools.robustness.power import FAULTS, KINDS, LENGTHS, TARGETS, _has, faithful, judge, main, problem, run_case
from simgpu.tools.shared.faithful import likeness
from simgpu.tools.shared.inputs import DISTRIBUTIONS, Inputs
from tests.support.exhaustive import examples

CASES = [(op, target, kind) for op in KINDS for target in TARGETS for kind in KINDS[op] if _has(target, kind)]
PAIRS = [(*case, LENGTHS[number % 5]) for number, case in enumerate(CASES)]


@pytest.mark.covering(1)
@pytest.mark.parametrize(("op", "target", "kind", "length"), PAIRS[::2], ids=lambda part: str(part))
def test_every_fault_fails(op: str, target: str, kind: str, length: int) -> None:
    """Each fault of a result on normal deviates, 4096 elements, gives FAIL; the result itself gives PASS."""
    _, asked, mistakes = judge(run_case(problem(op, target, kind, length), 3, "normal"))
    assert not mistakes and asked > 4


@pytest.mark.slow
def test_long_sums_keep_their_power() -> None:
    """At these lengths the bound without likeness passes half of the elements as zero, and nearly any attention."""
    for op, kind, length in (("gemm", "f16", 28672), ("attention", "f16", 8192)):
        subject = run_case(problem(op, "mi210", kind, length), 0, "normal")
        assert not judge(subject)[2]
        assert {"zeros", "too large", "one step dropped"} <= set(FAULTS)


def test_faithful_kernels_pass_on_every_distribution() -> None:
    """Random problems run on all distributions."""
    asked, number = 0, examples(8) * len(DISTRIBUTIONS)
    for title, count, mistakes in faithful(number, seed=11):
        assert not mistakes, title
        asked += count
    assert asked == number


def test_the_command_says_how_many_verdicts_were_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "softmax", "--target", "mi100", "--longest", "64"]) == 0
    assert capsys.readouterr().out.endswith(" verdicts, 0 wrong\n")


SPOILT = [
    TiledComputation(24, 20, 40, alpha=0.5, bias=True), TiledComputation(24, 20, 40, "mi300x", dtype="f16", activation="silu"),
    Conv2d(Conv2dProblem(1, 5, 9, 20, 3, 3, 3, padding=(1, 1))), Softmax(SoftmaxProblem(6, 100, "f16"), "mi300x"),
    FusedAttention(AttentionProblem(20, 40, 32)), UnfusedAttention(AttentionProblem(20, 40, 32, dtype="bf16"), "mi300x"),
]  # fmt: skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("tree", SPOILT, ids=lambda tree: tree.derivation.title)
def test_operands_that_are_not_finite_warn_of_nothing_and_hide_nothing(tree: Any, value: float) -> None:
    """With such a first element of the first operand, the float64 result passes and another finite element fails."""
    given = workload(tree, tree.descriptor.arch, 0).operands[0].view
    (row,) = [row for row in OPERATORS.values() if type(tree) is row.root]

    class Spoilt(Inputs):
        def fill(self, made: np.ndarray) -> None:
            super().fill(made)
            if made.shape == given.shape:
                made.flat[0] = value

    work = row.kernels.workload(tree, tree.descriptor.arch, Spoilt(np.random.default_rng(0)))
    result = work.operands[work.result]
    right = result.fill(work.want().astype(result.flat.dtype))
    finite = np.isfinite(right.view.astype(np.float64))
    assert not finite.all() and work.compare(right.flat, "result").passed
    if finite.any():
        wrong = np.where(finite & (np.cumsum(finite).reshape(finite.shape) == finite.sum()), 2, right.view)
        assert not work.compare(result.fill(wrong).flat, "result").passed


# -- the statistics ------------------------------------------------------------------------------


def typical(shape: tuple[int, ...], seed: int = 0, shared: float = 0.0, drift: float = 0.0) -> tuple[TypicalError, np.ndarray]:
    """Returns an expectation with elements of many sizes, and a result with exactly its errors."""
    rng = np.random.default_rng(seed)
    want = rng.standard_normal(shape)
    deviation = 1e-3 * (0.1 + rng.random(shape))
    own = TypicalError(want, deviation, np.full(shape, drift), np.full((*shape[:-1], 1), shared))
    return own, want * (1 + shared * rng.standard_normal((*shape[:-1], 1))) + deviation * rng.standard_normal(shape) + drift


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (1, 5000), (400, 7), (2, 3, 4, 64), (64, 64)])
@pytest.mark.parametrize("shared", [0.0, 0.01])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_errors_as_said_pass(shape: tuple[int, ...], shared: float, drift: float) -> None:
    for seed in range(20):
        own, got = typical(shape, seed, shared, drift)
        assert likeness(got, own).passed


def test_each_figure_sees_its_fault() -> None:
    own, got = typical((64, 64))
    spike, loud, longer, leaning = (got.copy() for _ in range(4))
    spike[5, 6] += 0.02
    loud[7] += 3 * (got[7] - own.expected[7])
    longer *= 1 + 2e-4
    leaning += 0.2 * own.deviation
    assert likeness(spike, own).element > 1 and likeness(spike, own).index == (5, 6)
    seen = likeness(loud, own)
    assert seen.row > 1 and seen.row_index == (7,)
    assert likeness(longer, own).scale > 1 >= likeness(longer, own).element
    assert likeness(leaning, own).offset > 1 >= likeness(leaning, own).element
    said = likeness(leaning, own).lines("C")
    assert "lean to one side" in said[-1] and len(said) == 2


def test_equal_elements_count_once() -> None:
    """A rounding that all elements share is one error, not 4096."""
    own = TypicalError(np.ones((64, 64)), np.full((64, 64), 1e-3), np.zeros((64, 64)), np.zeros((64, 1)))
    assert likeness(np.full((64, 64), 1 + 2e-3), own).passed
    assert not likeness(np.full((64, 64), 1 + 9e-3), own).passed


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16", "fp8"])
def test_the_variance_of_a_sum_is_the_one_that_emulation_shows(kind: str) -> None:
    """Sums in f32, rounded at every step, agree with `Accumulation.variance` within a factor of 2 in the mean."""
    rng, k = np.random.default_rng(4), 2048
    rule = Accumulation.of(kind, "gfx908" if kind != "fp8" else "gfx942")
    narrow = np.float32 if kind != "f64" else np.longdouble
    if kind == "f64" and np.finfo(np.longdouble).eps >= np.finfo(np.float64).eps:
        pytest.skip("this host has no wider float to judge float64 by")
    terms = rng.standard_normal((300, k)).astype(np.float64)
    total = np.zeros(300, np.float32 if kind != "f64" else np.float64)
    for first in range(0, k, rule.group):
        total = (total + terms[:, first : first + rule.group].sum(-1)).astype(total.dtype)
    exact = terms.astype(np.longdouble).sum(-1)
    error = (total.astype(narrow if kind == "f64" else np.float64) - exact).astype(np.float64)
    said = rule.variance(k, 0.0, exact.astype(np.float64), (terms**2).sum(-1))
    assert 0.5 < (error**2).mean() / said.mean() < 2


# -- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2**20, 2**24, 2**26, 2**31])
def test_gamma_is_positive_for_any_number_of_steps(steps: int) -> None:
    assert steps * 2.0**-24 <= gamma(steps, 2.0**-24) < float("inf")
    assert gamma(steps, 2.0**-22) > gamma(steps, 2.0**-24)


@pytest.mark.slow
def test_bounds_of_long_sums_are_no_less_than_of_short_ones() -> None:
    """When steps times the roundoff passed 1, the bounds were negative."""
    p = SoftmaxProblem(1, 3_000_000)
    x = np.zeros((1, p.n), np.float32)
    assert (reference.softmax_error_bound(p, x) >= reference.softmax(p, x) * 2.0**-24).all()
    q, keys = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 4_000_000, 1), np.float32)
    bound = reference.attention_error_bound(AttentionProblem(1, 4_000_000, 1), q, keys, keys)
    assert (bound > 2.0**-24).all() and np.isfinite(bound).all()
    tree = TiledComputation(1, 1, 8_000_000, dtype="bf16")
    work = workload(tree, "gfx908", 0)
    assert (work.bound() > 0).all() and np.isfinite(work.bound()).all()


def test_each_gradient_of_attention_has_its_bound() -> None:
    p = AttentionBackwardProblem(17, 33, 32, 2, dtype="f16", causal=True)
    work = workload(AttentionBackward(p, "mi300x"), "gfx942", 0)
    for want, bound in ((work.want, work.bound), *((each.want, each.bound) for each in work.beside)):
        assert bound().shape == want().shape and (bound() > 2.0**-12 * abs(want())).all() and np.isfinite(bound()).all()


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "float8_e4m3fnuz", "float8_e5m2", "int8", "float64"])
def test_inputs_are_finite_and_of_their_type(distribution: str, kind: str) -> None:
    import ml_dtypes

    wanted = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    x = Inputs(np.random.default_rng(0), distribution).array(wanted, (130, 40))
    assert x.dtype == wanted and x.shape == (130, 40) and np.isfinite(x.astype(np.float64)).all()
    assert len(np.unique(x.astype(np.float64))) > 1
