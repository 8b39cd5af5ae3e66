"""Operators on rows: kernels against float64 in checked mode at any length, the tree's levels, what a class may lack."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu import asm, operators
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators import (
    AddRmsNorm,
    LayerNorm,
    MxQuantise,
    Quantise,
    RmsNorm,
    Rope,
    RowMax,
    RowOperator,
    RowSum,
    RowTree,
    SiluMul,
    reference,
)
from simgpu.operators.expressions import Value, absolute, exp, maximum, select, sqrt
from simgpu.operators.levels import Level, TileLoop
from simgpu.operators.rows.cost import count_instructions, row_seconds
from simgpu.operators.rows.plan import with_waves
from simgpu.operators.rows.problem import RESULTS, TYPES
from simgpu.operators.traffic import block_counters
from simgpu.tools.cost.emitted import modelled_seconds
from tests.support.exhaustive import examples, one_in
from tests.support.operator_case import assert_right_for_all_inputs, assert_right_in_checked_mode


@dataclass(frozen=True)
class Softmax(RowOperator):
    """A maximum, then a sum that uses it."""

    name, maxima, sums, row_results = "softmax_as_data", ("m",), ("total",), ("largest",)

    def m(self, x: Value) -> Value:
        return x

    def total(self, x: Value, m: Value) -> Value:
        return exp(x - m)

    def y(self, x: Value, m: Value, total: Value) -> Value:
        return exp(x - m) / total

    def largest(self, m: Value) -> Value:
        return m

    def reference(self, x: Any) -> Any:  # type: ignore[override]
        e = np.exp(x - x.max(1, keepdims=True))
        return {"Y": e / e.sum(1, keepdims=True), "largest": x.max(1, keepdims=True)}


@dataclass(frozen=True)
class GatedQuantise(RowOperator):
    """Halves, reductions and values of groups in one kernel: silu(x0) * x1 quantised."""

    dtype_y: str = "i8"

    name, halves, maxima, row_results = "gated_quantise", True, ("peak",), ("scale",)

    def peak(self, x0: Value, x1: Value) -> Value:
        return absolute(x0 / (1 + exp(-x0)) * x1)

    def y(self, x0: Value, x1: Value, peak: Value, limit: Value) -> Value:
        return x0 / (1 + exp(-x0)) * x1 * (limit / maximum(peak, 1e-20))

    def scale(self, peak: Value, limit: Value) -> Value:
        return maximum(peak, 1e-20) / limit

    def reference(self, x: Any, limit: Any) -> Any:  # type: ignore[override]
        low, high = np.split(x, 2, 1)
        gated = low / (1 + np.exp(-low)) * high
        scale = np.maximum(np.abs(gated).max(1, keepdims=True), 1e-20) / limit
        return {"Y": gated / scale, "scale": scale}


@dataclass(frozen=True)
class Hinge(RowOperator):
    """Comparisons in two sums of one pass, and in a result."""

    name, sums = "hinge", ("above", "chosen")

    def above(self, x: Value) -> Value:
        return maximum(x, -1) + 2

    def chosen(self, x: Value) -> Value:
        return select(x - 0.5, x, 1)

    def y(self, x: Value, above: Value, chosen: Value) -> Value:
        return select(x, above, chosen) / (above + 1)

    def reference(self, x: Any) -> Any:  # type: ignore[override]
        above, chosen = ((np.maximum(x, -1) + 2).sum(1, keepdims=True), np.where(x > 0.5, x, 1).sum(1, keepdims=True))
        return np.where(x > 0, above, chosen) / (above + 1)


KINDS = (RmsNorm, AddRmsNorm, LayerNorm, Rope, Quantise, MxQuantise, SiluMul, RowSum, RowMax, Softmax, GatedQuantise, Hinge)
WHOLE = (RmsNorm, AddRmsNorm, LayerNorm)  # divide by the number of elements


def run(p: RowOperator, target: str, policy: str = "corrected", loops: tuple[TileLoop, ...] = ()) -> None:
    """Asserts that the kernel's results are within their bounds, that it writes nothing else, and that checked mode is silent."""
    tree = RowTree(p, target, policy)
    assert_right_in_checked_mode(tree.with_loops(Level.DEVICE, loops) if loops else tree, target)


@st.composite
def problems(draw: st.DrawFn, longest: float = 12.0) -> tuple[RowOperator, str]:
    """Draws a form, a board, types, lengths around every edge, strides and groups."""
    kind, target = draw(st.sampled_from(KINDS)), draw(st.sampled_from(("mi100", "mi210", "mi300x", "mi355x")))
    n = max(1, int(2 ** draw(st.floats(0, longest))) + draw(st.integers(-1, 1)))
    rows, more = draw(st.integers(1, max(1, min(70, 30000 // n)))), {}
    known = [name for name in RESULTS if target in ("mi300x", "mi355x") or name not in ("fp8", "bf8")]
    if kind.results:
        more["dtype_y"] = draw(st.sampled_from(known[3:] if kind in (Quantise, MxQuantise, GatedQuantise) else known))
    if (kind.sums or kind.maxima) and draw(st.booleans()):
        more["group"] = 1 << draw(st.integers(3, 7))
        n = max(1, n // more["group"]) * more["group"] if kind in WHOLE else n
    if kind is Rope:
        more["heads"] = draw(st.integers(1, 5))
        rows *= more["heads"]
    n *= 1 + kind.halves
    if draw(st.booleans()):
        more |= {"ldx": n + draw(st.integers(0, 9)), "ldy": n + draw(st.integers(0, 9))}
    return kind(rows, n, draw(st.sampled_from(TYPES)), **more), target


@given(problems())
@settings(max_examples=examples(20))
def test_any_row_is_right_in_checked_mode(case: tuple[RowOperator, str]) -> None:
    run(*case)


@given(problems(15.5), st.sampled_from(("corrected", "published")))
@pytest.mark.exhaustive
@settings(max_examples=examples(20))
def test_longer_rows_in_both_policies(case: tuple[RowOperator, str], policy: str) -> None:
    run(*case, policy)


HELD = [
    (RmsNorm(9, 5, "f16"), "mi100", dict(lanes_row=2, waves_row=1)),
    (RmsNorm(3, 4095, "f16"), "mi300x", dict(waves_row=4, loads=2)),
    (LayerNorm(1500, 777, "bf16"), "mi355x", dict(waves_row=1, loads=2)),
    (Rope(60, 64, "bf16", heads=12), "mi210", dict(lanes_row=4)),
    (SiluMul(2, 6001 * 2, "f16"), "mi300x", dict(waves_row=4, loads=3)),
    (Quantise(3, 2051, "f32", group=128), "mi100", dict(chunk=4)),
    (RowSum(200, 70001, "f32"), "mi100", dict(waves_row=8)),
    (Softmax(2, 150001, "f16"), "mi210", dict(reads=3)), (Hinge(3, 1003), "mi300x", {}),
]
SPLIT = [
    (LayerNorm(1, 100003, "f16"), "mi300x", 2), (RowSum(3, 70001), "mi355x", 2), (AddRmsNorm(2, 98305, "bf16"), "mi100", 2),
    (Quantise(1, 90001, "f16"), "mi210", 2), (LayerNorm(4, 50279, "bf16"), "mi210", 2),
]


@pytest.mark.parametrize(("problem", "target", "sizes"), one_in(2, HELD), ids=lambda value: getattr(value, "name", None))
def test_every_way_to_hold_a_row(problem: RowOperator, target: str, sizes: dict[str, int]) -> None:
    assert sizes.items() <= RowTree(problem, target).plan.sizes.items()
    run(problem, target)


@pytest.mark.parametrize(("problem", "target", "kernels"), SPLIT, ids=lambda value: getattr(value, "name", None))
def test_few_long_rows_are_shared_by_blocks(problem: RowOperator, target: str, kernels: int) -> None:
    """A kernel for each pass, and one for the results. Values of rows are stored once."""
    tree = RowTree(problem, target)
    assert tree.plan.split and len(list(asm.emit(tree).steps)) == kernels
    run(problem, target)
    assert not RowTree(replace(problem, rows=1000), target).plan.split, "many rows fill the CUs"


def test_rows_that_leave_cus_idle_are_shared_by_blocks() -> None:
    """128 rows take two rounds of 120 CUs, or half of 256 CUs. With one block a CU, more blocks a row are no gain."""
    for target, dtype, parts in (("mi100", "f32", 3), ("mi210", "bf16", 2), ("mi300x", "f16", 2), ("mi355x", "f16", 2)):
        assert RowTree(RmsNorm(128, 128256, dtype), target).plan.parts == parts
    assert RowTree(LayerNorm(7, 125126, "f16"), "mi250x").plan.parts == 14, "98 of 110 CUs"
    assert RowTree(RmsNorm(16, 44695, "f16"), "mi300x").plan.resident, "a second launch takes longer"


@pytest.mark.parametrize("where", ["everywhere", "first columns", "first element", "last element", "constant"])
def test_a_streamed_norm_reads_twice_and_cancels_nothing(where: str) -> None:
    """Rows whose mean is far from 0, or from the mean of their first columns: as right as one that is kept in registers."""
    n = 20000
    x = np.random.default_rng(0).standard_normal((2, n))
    far = {"everywhere": slice(n), "first columns": slice(256), "first element": slice(1), "last element": slice(n - 1, n)}
    x[:, far.get(where, slice(0))] += 1e4
    x = (np.full((2, n), 0.1) if where == "constant" else x).astype(np.float32)
    p, gpu, errors = LayerNorm(2, n), simgpu.Device("mi300x", check=True), []
    gamma, beta = np.ones(n, np.float32), np.zeros(n, np.float32)
    want = reference.rows(p, x, gpu.arch, gamma=gamma, beta=beta)["Y"]
    for policy, reads in (("corrected", 1), ("published", 2)):
        tree, y = RowTree(p, "mi300x", policy), gpu.empty((2, n), np.float32)
        assert tree.plan.reads == reads
        (run,) = asm.launch(asm.emit(tree), gpu, *map(gpu.upload, (x, gamma, beta)), y)
        assert not run.findings
        errors.append(np.abs(y.download() - want).max())
    assert np.all(errors[1] <= reference.rows_error_bound(p, x, gpu.arch, True, gamma=gamma, beta=beta)["Y"])
    assert errors[1] < (100 if where == "first columns" else 5) * max(errors[0], 1e-6)  # 1/f = 78 of the columns have the pivot


def test_only_a_mean_and_squares_around_it_have_a_pivot() -> None:
    for kind in KINDS:
        program = kind(4, 64).program("gfx942")
        assert (program.streamed is not program) == (kind is LayerNorm)
        assert program.streamed.streamed is program.streamed


@pytest.mark.parametrize(("problem", "target"), [
    (Quantise(2, 16384, "f16"), "mi300x"), (Quantise(2, 16384, "bf16", dtype_y="fp8"), "mi355x"), (RmsNorm(2, 16384), "mi100"),
    (RmsNorm(2, 16384, "bf16"), "mi210"), (RmsNorm(2, 16384, "bf16"), "mi355x"), (LayerNorm(2, 16384, "f16"), "mi300x"),
])  # fmt: skip
def test_the_cost_counts_a_kernels_vector_instructions(problem: RowOperator, target: str) -> None:
    """Those of each element; sums over lanes and addresses are at most 40 more."""
    tree = RowTree(problem, target)
    plan = with_waves(tree.plan, 8)
    tree.derivation = plan
    found = sum(line.strip().startswith("v_") for line in asm.emit(tree).text.splitlines())
    counted = count_instructions(plan) * plan.chunk * plan.loads
    assert counted < found < 1.06 * counted + 40


@pytest.mark.parametrize(("problem", "target"), [
    pytest.param(RmsNorm(128, 262144, "f16"), "mi355x", marks=pytest.mark.xfail(reason="58 us, and 38 in the model", strict=True)),
    (Quantise(128, 262144, "f16"), "mi355x"), (RmsNorm(128, 128256), "mi100"), (RmsNorm(15, 63752, "f16"), "mi300x"),
    (LayerNorm(4, 50278, "bf16"), "mi210"),
], ids=lambda value: getattr(value, "name", None))  # fmt: skip
def test_the_cost_of_long_rows_is_near_the_model_of_time(problem: RowOperator, target: str) -> None:
    """A step waits for memory and then for its bytes: streamed rows, and rows in the registers of eight waves, with one block."""
    tree = RowTree(problem, target)
    kept = with_waves(tree.plan, 8)
    tree.derivation = kept if kept.feasible else with_waves(tree.plan, 0)
    assert 0.85 < row_seconds(tree.derivation)["total"] / modelled_seconds(tree) < 1.15


def test_loads_in_flight() -> None:
    """Many short rows: a wave has several loads in flight, and the last one's rows end where X does."""
    tree = RowTree(RmsNorm(1301, 11, "f16"), "mi210")
    rows, part = tree.loops
    run(tree.problem, "mi210", loops=(replace(rows, tile=4 * rows.tile), part))
    tree = RowTree(AddRmsNorm(37, 4095, "f16"), "mi300x")
    rows, part = tree.loops
    run(tree.problem, "mi300x", loops=(replace(rows, tile=4 * rows.tile), part))
    assert RowTree(LayerNorm(16384, 4096, "f16"), "mi300x").plan.in_flight > 1, "gamma and beta are loaded once for some rows"
    for rows, count in ((608, 1), (609, 4), (1216, 4), (1217, 1)):
        plan = RowTree(LayerNorm(rows, 16384, "f16"), "mi300x").plan
        assert plan.in_flight == count, "a CU holds two rows, or one block with four: one round instead of two"
    crowded = RowTree(RmsNorm(1 << 24, 1, "f16"), "mi210").plan
    assert crowded.in_flight > 1


def test_mx_scales_and_elements_are_those_of_microscale() -> None:
    """Against the conversion that MX GEMMs' operands come from."""
    p = MxQuantise(40, 256)
    x = np.random.default_rng(0).standard_normal((40, 256)).astype(np.float32)
    gpu = simgpu.Device("mi355x")
    y, scale = gpu.empty((40, 256), np.uint8), gpu.empty((40, 8), np.uint8)
    asm.launch(asm.emit(RowTree(p, "mi355x")), gpu, gpu.upload(x), y, scale)
    elements, scales = operators.microscale(x, "fp8", 40)
    assert np.array_equal(y.download(), elements.view(np.uint8))
    assert np.array_equal(scale.download(), scales.view(np.uint8).T)


@given(st.data())
@settings(max_examples=examples(10))
def test_every_level_computes_the_same_and_counts_as_in_closed_form(data: st.DataObject) -> None:
    p, target = data.draw(problems())
    tree = RowTree(p, target, data.draw(st.sampled_from(("corrected", "published"))))
    arrays = {name: np.random.default_rng(0).uniform(-1, 1, shape) for name, shape in p.read.items()}
    arrays = {name: array.astype(numpy_dtype(p.dtype)).astype(float) for name, array in arrays.items()}
    x, arch = arrays.pop("X"), tree.descriptor.arch
    want = reference.rows(p, x, arch, **arrays)
    bound = reference.rows_error_bound(p, x, arch, not tree.plan.resident, **arrays)
    for level in ("device", "block", "warp", "atom"):
        for accumulate in ("f64", "problem"):
            visitor = operators.ComputeVisitor(level, accumulate)
            found = visitor.visit(tree, x, **arrays)
            for got, name in zip(found if isinstance(found, tuple) else (found,), want, strict=True):
                assert np.all(np.abs(got - want[name]) <= bound[name])
    assert visitor.counters == block_counters(tree)


@pytest.mark.parametrize("problem", [RmsNorm(17, 70, "bf16"), Quantise(17, 70, "f16"), LayerNorm(9, 40)], ids=lambda p: p.name)
def test_every_distribution_of_inputs_is_within_the_bound(problem: RowOperator) -> None:
    """Large, tiny and subnormal elements, ties, one-hot rows."""
    assert_right_for_all_inputs(RowTree(problem, "mi300x"))


def test_a_broken_expression_is_wrong() -> None:
    """Forgets the mean's divisor. It is found, as the definition is separate from the expressions."""

    @dataclass(frozen=True)
    class Broken(RmsNorm):
        def y(self, x: Value, squares: Value, gamma: Value) -> Value:  # type: ignore[override]
            return x / sqrt(squares + self.eps) * gamma

    with pytest.raises(AssertionError, match="Broken"):
        run(Broken(3, 40), "mi100")


def test_a_kernel_serves_any_rows_and_strides() -> None:
    plan = RowTree(RmsNorm(40, 130), "mi300x")
    texts = {asm.emit(RowTree(RmsNorm(rows, 130, ldx=ldx, ldy=ldy), "mi300x")).text
             for rows, ldx, ldy in ((40, 130, 130), (41, 133, 130), (40, 130, 150))}  # fmt: skip
    assert len(texts) == 1 and plan.plan.feasible


def made(**members: Any) -> RowOperator:
    base = {"name": "mine", "reference": lambda self, x: x, "y": lambda self, x: x}
    return type("Mine", (RowOperator,), base | members)(8, 8)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"name": "my op"}, "Mine.name is 'my op'"),
        ({"reference": RowOperator.reference}, "Mine has no reference"),
        ({"sums": "s"}, "give a tuple of names"),
        ({"sums": ("s",)}, "Mine.s is no method"),
        ({"sums": ("s", "s"), "s": lambda self, x: x}, "'s' cannot name"),
        ({"vectors": ("X",)}, "'X' cannot name"),
        ({"sums": ("s", "t"), "s": lambda self, t: t, "t": lambda self, s: s}, "use each other"),
        ({"y": lambda self, x, gamma: x}, "y uses gamma: there are x"),
        ({"y": lambda self, x: 3}, "return an expression"),
        ({"row_results": ("r",), "r": lambda self, x: x}, "r uses x"),
        ({"results": ("y", "z")}, "writes 1 to 1 results"),
        ({"halves": True, "matrices": ("r",)}, "halves and matrices"),
    ],
)
def test_what_a_class_lacks_is_said(members: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=said):
        made(**members)


def test_what_cannot_be() -> None:
    for make, said in (
        (lambda: Quantise(8, 8, dtype_y="f16"), "give a type of 8 bits"),
        (lambda: RmsNorm(8, 8, "f64"), "use f32, f16, bf16"), (lambda: RmsNorm(8, 8, dtype_y="i32"), "dtype_y = i32"),
        (lambda: RmsNorm(8, 8, eps=-1.0), "eps = -1.0"),
        (lambda: Rope(8, 7), "give an even n"), (lambda: RmsNorm(8, 8, ldx=7), "shorter than a row"),
        (lambda: Quantise(8, 96, group=48), "give a power of two"), (lambda: Rope(8, 8, heads=3), "no multiple of 3"),
        (lambda: RmsNorm(8, 100, group=32), "uses count: .*give an n that is a multiple of 32"),
        (lambda: Rope(8, 64, group=8), "leave the group out"),
        (lambda: RowTree(RmsNorm(8, 8, ldx=1 << 29)), "ldx < 536870912"),
        (lambda: RowTree(Quantise(8, 2049, "f32", group=1024)), "a wave loads 256 elements"),
        (lambda: reference.rows(RmsNorm(2, 2), np.ones((2, 2))), "reads gamma"),
        (lambda: reference.rows(made(reference=lambda self, x: x.sum()), np.ones((8, 8))), "returns Y"),
    ):
        with pytest.raises(LaunchError, match=said):
            make()
    with pytest.raises(TargetError, match="no instruction that rounds to fp8"):
        RowTree(Quantise(8, 8, dtype_y="fp8"), "mi210")
