"""SGPRs: the closed-form plan of every operator against its kernels' use and the code object, and a plan that runs out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.kernel import SGPR_LIMIT, KernelBuilder
from simgpu.asm.gemm.tile_order import NAMES
from simgpu.hardware import target as find_target
from simgpu.hardware.errors import ResourceError
from simgpu.operators import (
    AttentionProblem,
    Band,
    ColumnProblem,
    Columns,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    LayerNorm,
    Quantise,
    RmsNorm,
    Rope,
    RowTree,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    Transpose,
    TransposeProblem,
)
from simgpu.operators.gemm.limits import ORDER_WORDS
from simgpu.operators.resources import RESERVED_SGPRS
from simgpu.tools.tables.kernel_use import linked_use
from simgpu.tools.tables.read_back import read_back
from tests.support.exhaustive import examples

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
DTYPES = ("f32", "f16", "bf16")
MOST_SLACK = 8  # most registers that a plan may have left over; SGPRs are granted in sixteens


def used(kernel):
    """Returns the SGPRs up to the highest that an instruction names."""
    instructions = (item for item in kernel.items if isinstance(item, Instr))
    return 1 + max(r.index + r.count - 1 for i in instructions for r in i.registers() if r.file == "s" and r.index < SGPR_LIMIT)


def assert_planned(tree):
    kernel = asm.emit(tree)
    for step in (step for step in kernel.steps if step.plan is not None):
        plan = step.plan.resources
        assert 0 <= plan.sgprs - RESERVED_SGPRS - used(step) < MOST_SLACK, (step.name, used(step), plan.scalars)
    rows = read_back(kernel, linked_use(kernel))
    assert all(row.equal for row in rows), rows
    assert all(
        row.taken == kernel.plan.resources.sgprs and "launch state 4 + " in row.ranges for row in rows if row.resource == "SGPR"
    )


@pytest.mark.parametrize("dtype_y", ["bf16", "f32"])
@pytest.mark.parametrize(("kind", "n", "more"), [(RmsNorm, 70, {}), (RmsNorm, 300001, {}), (LayerNorm, 8001, {}), (Rope, 1024, {}),
                                                 (Rope, 8002, {"heads": 2}), (Quantise, 70, {}), (Quantise, 4001, {"group": 32})])
def test_rows(kind, n, more, dtype_y):
    assert_planned(RowTree(kind(64, n, "bf16", "i8" if kind is Quantise else dtype_y, **more), "gfx942"))


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8"])
@pytest.mark.parametrize(("m", "n"), [(70, 133), (3, 5000), (300, 300)])
def test_transpose(dtype, m, n):
    assert_planned(Transpose(TransposeProblem(m, n, dtype), "gfx942"))


@pytest.mark.parametrize(("m", "n", "dtype"), [(70, 133, "f16"), (3000, 50, "f32")])
def test_columns(m, n, dtype):
    assert_planned(Columns(ColumnProblem(m, n, dtype), "gfx942"))


SIZES = ((20, 30, 40), (150, 260, 200), (40, 40, 30000))
EXTRAS = ((1, False, "none"), (2, True, "relu"), (2, True, "gelu"))


@pytest.mark.covering(1)
@pytest.mark.parametrize("extras", EXTRAS)
@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize(
    "dtype, target",
    [("f32", "gfx908"), ("f16", "gfx942"), ("bf16", "gfx908"), ("f64", "gfx90a"), ("i8", "gfx942"), ("fp8", "gfx950")],
)
def test_gemm(dtype, target, trans_b, sizes, trans_a, extras):
    batch, bias, activation = extras
    activation = "relu" if activation == "gelu" and dtype in ("f64", "i8") else activation
    tree = TiledComputation(
        *sizes, target, dtype=dtype, trans_a=trans_a, trans_b=trans_b, batch=batch, bias=bias, activation=activation
    )
    assert_planned(tree)
    assert tree.plan.resources.sgprs < SGPR_LIMIT


def test_the_order_has_as_many_arguments_as_the_plan_says():
    assert len(NAMES) == ORDER_WORDS


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(((500, 100), (5, 5000), (1, 300000))), st.sampled_from(DTYPES), st.sampled_from(TARGETS), st.booleans(),
    st.sampled_from((None, Band(50, -50, 1))),
)  # fmt: skip
def test_softmax(shape, dtype, target, mask, band):
    assert_planned(Softmax(SoftmaxProblem(*shape, dtype, mask=mask, band=band), target))


@settings(max_examples=examples(6), suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from((32, 144)), st.sampled_from((1, 64)), st.sampled_from(DTYPES), st.sampled_from(TARGETS), st.booleans(),
    st.sampled_from((("corrected", "mfma"), ("published", "mfma"), ("published", "fma"))),
)  # fmt: skip
def test_attention(d, heads, dtype, target, masks, kernel):
    problem = AttentionProblem(3000, 3000, d, heads, causal=masks, window=9 if masks else None, dtype=dtype)
    assert_planned(FusedAttention(problem, target, *kernel))


@pytest.mark.parametrize(("target", "dtype"), [("gfx908", "f32"), ("gfx950", "bf16")])
def test_conv2d(target, dtype):
    assert_planned(Conv2d(Conv2dProblem(1, 3, 30, 30, 64, 7, 7, stride=(2, 2), dtype=dtype), target))


def test_a_plan_that_runs_out():
    """With one named SGPR fewer than the kernel needs there is no kernel, and the message names the purpose."""
    tree = FusedAttention(AttentionProblem(3000, 3000, 32, 64), "gfx908")
    plan = tree.plan.resources
    scalars = tuple(replace(r, count=r.count - (r.name == "temporaries")) for r in plan.scalars)
    for given_, works in ((plan.scalars, True), (scalars, False)):
        k = KernelBuilder("k", "gfx908", 64, plan=replace(plan, scalars=given_))
        need = plan.sgprs - RESERVED_SGPRS - 4  # besides the launch state
        if works:
            for n in range(need):
                k.s.alloc(f"s{n}")
        else:
            with pytest.raises(ResourceError, match=f"no 1 consecutive registers left for s{need - 1}"):
                for n in range(need):
                    k.s.alloc(f"s{n}")


def test_sgprs_are_granted_by_sixteen():
    """A SIMD has 800 (facts, gfx9): up to 80 SGPRs allow ten waves, 81 at most eight."""
    d = find_target("gfx908")
    assert (d.sgpr_granule, d.waves_from_sgprs(80), d.waves_from_sgprs(81)) == (16, 10, 8)
