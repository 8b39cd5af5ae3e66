"""GEMM's epilogue on the simulated GPU: C's types, scales, bias, gates, residual, in the kernel and in the second pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as board
from simgpu.hardware.dtypes import dtype, numpy_dtype
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators import GemmProblem, TiledComputation, gated_columns
from simgpu.operators.gemm.problem import GATES, NARROW, OUTPUTS
from simgpu.operators.resources import RESERVED_SGPRS
from tests.asm.test_scalar_plans import MOST_SLACK, used
from tests.support.exhaustive import examples, left_out
from tests.support.gemm_case import TARGETS, TRANSPOSES, TYPES, gemm

CASES = [
    (target, name, out)
    for target in TARGETS
    for name in TYPES
    if name in board(target).dtypes()
    for out in OUTPUTS[dtype(name).accumulator]
    if out != dtype(name).accumulator and (out not in NARROW or out in board(target).dtypes())
]
SPLIT = 3000  # k for which few tiles share K


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "name", "out"), CASES)
def test_every_type_of_c_validates_on_every_target(target, name, out):
    """Tiles are cut by both edges, with strides aligned to one element; and inside, with wide stores."""
    narrow = {"scale_c": 2.5} if out in NARROW else {}
    gemm(70, 37, 53, target, name, beta=1.0, bias=True, pads=(1, 3, 2), alpha=0.25, dtype_c=out, **narrow).check()
    if name in ("f16", "i8", "f64"):  # one for each accumulator
        gemm(64, 64, 32, target, name, (False, True), guard=0, alpha=0.25, dtype_c=out, **narrow).check()


@settings(max_examples=examples(15), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 70), st.integers(1, 100) | st.sampled_from((64, SPLIT))),
    case=st.sampled_from(CASES),
    trans=st.sampled_from(TRANSPOSES),
    beta=st.sampled_from((0, 2)),
    pads=st.tuples(*[st.integers(0, 5)] * 3),
    batch=st.sampled_from((1, 1, 3)),
    bias=st.booleans(),
    activation=st.sampled_from(("none", "relu", "silu", *GATES)),
    residual=st.booleans(),
    scales=st.sampled_from(("none", "tensor", "row")),
)
def test_any_epilogue_validates(sizes, case, trans, beta, pads, batch, bias, activation, residual, scales):
    (m, n, k), (target, name, out) = sizes, case
    gated = activation in GATES
    more = {"dtype_c": out, "residual": residual and out not in NARROW, "scales": "none" if name == "f64" else scales}
    beta, alpha = 0 if gated else beta, 0.01 if name == "i8" else 0.25
    gemm(m, 2 * n if gated else n, k, target, name, trans, alpha, beta, pads, batch, bias, activation, **more).check()


@pytest.mark.covering(1)
@pytest.mark.parametrize("k", [40, SPLIT])
@pytest.mark.parametrize(("target", "name"), [("gfx908", "bf16"), ("gfx942", "fp8"), ("gfx950", "f16"), ("gfx950", "i8")])
@pytest.mark.parametrize("columns", [34, 192])
def test_gates_take_pairs_wherever_they_lie(target, name, columns, k):
    """A pair is in one lane, in neighbouring lanes, or in lanes apart, by the columns that a wave interleaves and B's transpose."""
    for trans in TRANSPOSES[: 2 if k < SPLIT else 1]:
        more = {"dtype_c": "bf16", "residual": True}
        result = gemm(50, columns, k, target, name, trans, 0.05, bias=True, pads=(0, 0, 1), activation="swiglu", **more)
        assert bool(result.kernel.following) == (result.kernel.plan.split_k > 1)
        result.check()


def test_a_gate_is_of_neighbouring_columns():
    gate, up = np.arange(6.0).reshape(2, 3), -np.arange(6.0).reshape(2, 3)
    pairs = gated_columns(gate, up)
    assert pairs.shape == (2, 6) and (pairs[:, ::2] == gate).all() and (pairs[:, 1::2] == up).all()


@pytest.mark.parametrize(("target", "name", "out"), [("gfx942", "fp8", "fp8"), ("gfx950", "bf8", "bf8"), ("gfx950", "f64", "fp8")])
@pytest.mark.parametrize("k", [1, SPLIT])
def test_what_is_too_large_saturates_and_nan_stays(target, name, out, k):
    kind, largest = numpy_dtype(out, target), float(ml_dtypes.finfo(numpy_dtype(out, target)).max)

    def edit(a, b, c):
        a[...], b[...] = 0, 0
        a[:, 0], b[0] = np.array([1, -1, 1, 0]), 200
        a[2, 0], a[3, 0] = np.nan, 0.5

    result = gemm(4, 5, k, target, name, edit=edit, dtype_c=out, scale_c=1e5)
    assert (result.got[0] == largest).all() and (result.got[1] == -largest).all() and np.isnan(result.got[2]).all()
    assert kind.itemsize == 1 and (result.got[3] == largest).all()
    result.check()


@pytest.mark.parametrize("target", TARGETS)
def test_f16_overflows_to_infinity_and_bf16_keeps_any_nan(target):
    def edit(a, b, c):
        a[...], b[...] = 0, 1
        a[:, 0] = np.array([65519, 65520, -1e5, 70000, np.nan, 0], "f4")
        a.view("u4")[5, 0] = 0x7FFFFFFF  # a NaN whose payload a carry would spill

    for out, large in (("f16", np.inf), ("bf16", 65536.0)):
        result = gemm(6, 4, 1, target, "f32", edit=edit, dtype_c=out, guard=0)
        got = result.got[:, 0]
        assert np.isnan(got[4:]).all() and got[1] == large and (got[0] == (65504 if out == "f16" else 65536))
        result.check()


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "name"), [("gfx908", "f16"), ("gfx942", "fp8"), ("gfx950", "bf16"), ("gfx90a", "f64")])
@pytest.mark.parametrize("k", [70, SPLIT])
def test_checked_mode_finds_nothing(target, name, k):
    more = {"scales": "row"} if name != "f64" else {}
    more |= {"dtype_c": "bf16", "residual": True}
    result = gemm(70, 66, k, target, name, pads=(1, 2, 3), bias=True, activation="geglu", batch=2, check=True, **more)
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize(("target", "name", "out"), [
    ("gfx908", "f16", "bf16"), left_out("gfx942", "fp8", "fp8"), left_out("gfx950", "i8", "bf16"),
])  # fmt: skip
def test_sgprs_are_the_plans(target, name, out):
    """Tests the epilogue that needs the most, with the largest tiles."""
    residual = {"residual": True} if out == "bf16" else {"scale_c": 2.0}
    tree = TiledComputation(
        8192, 8192, 128, target, dtype=name, bias=True, activation="geglu", dtype_c=out, scales="row", **residual
    )
    kernel, plan = asm.emit(tree), tree.plan.resources
    assert 0 <= plan.sgprs - RESERVED_SGPRS - used(kernel) < MOST_SLACK, plan.scalars


@pytest.mark.parametrize(("wrong", "said"), [
    ({"dtype_c": "i8"}, "f32, f16, bf16, fp8, bf8"), ({"scale_c": 2.0}, "only fp8 and bf8 take a scale"),
    ({"dtype_c": "fp8", "residual": True}, "too narrow"), ({"activation": "swiglu", "n": 5}, "even n"),
    ({"activation": "swiglu", "beta": 1.0}, "as residual"), ({"dtype": "f64", "scales": "row"}, "epilogue is in f64"),
    ({"dtype": "i8", "scales": "row"}, "epilogue is in i32"), ({"scales": "all"}, "none, tensor, row"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words(wrong, said):
    with pytest.raises(LaunchError, match=said):
        GemmProblem(**{"m": 4, "n": 4, "k": 4, **wrong})


def test_targets_without_8_bit_floats_refuse_them():
    for target in ("gfx908", "gfx90a"):
        with pytest.raises(TargetError, match="no instruction that rounds to fp8"):
            TiledComputation(4, 4, 4, target, dtype_c="fp8")


def test_a_gate_of_integers_is_refused():
    with pytest.raises(LaunchError, match="let C be f32"):
        asm.emit(TiledComputation(4, 4, 4, dtype="i8", activation="reglu"))


@pytest.mark.parametrize("missing", ["bias", "residual", "scale_a"])
def test_what_the_epilogue_reads_must_be_given(missing):
    from simgpu.operators import ComputeVisitor

    tree = TiledComputation(4, 5, 6, bias=True, residual=True, scales="row")
    more = {"bias": np.zeros(5), "residual": np.zeros((4, 5)), "scale_a": np.ones(4), "scale_b": np.ones(5)}
    a, b = np.ones((4, 6)), np.ones((6, 5))
    assert (ComputeVisitor("block").visit(tree, a, b, None, *more.values()) == 6).all()
    with pytest.raises(LaunchError, match="none was given"):
        ComputeVisitor().visit(tree, a, b, None, *(None if name == missing else x for name, x in more.items()))
