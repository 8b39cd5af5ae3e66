"""Grouped GEMM on the simulated GPU: any number of rows in a group, none as well, more groups than lanes, every epilogue
operand.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as board
from simgpu.hardware.errors import LaunchError
from simgpu.operators import ComputeVisitor, GemmProblem, TiledComputation
from simgpu.operators.gemm.limits import Tiling
from simgpu.operators.resources import RESERVED_SGPRS
from tests.asm.test_scalar_plans import MOST_SLACK, used
from tests.support.devices import device
from tests.support.exhaustive import examples, left_out
from tests.support.gemm_case import gemm

CASES = [
    (target, name)
    for target, names in (("gfx908", ("f32", "bf16")), ("gfx90a", ("f64", "f16")), ("gfx942", ("fp8", "bf16", "i8")),
                          ("gfx950", ("fp8", "f16", "bf8")))
    for name in names
]  # fmt: skip
ROWS = ((5,), (0, 3, 0, 70, 0), (33, 0, 1, 64, 31, 0, 0, 90), (1, 0, 2) * 30)


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.just(0) | st.integers(0, 70), min_size=1, max_size=12).filter(any),
    n=st.integers(1, 70),
    k=st.integers(1, 150),
    case=st.sampled_from(CASES),
    trans_b=st.booleans(),
    beta=st.sampled_from((0, 2)),
    pads=st.tuples(*[st.integers(0, 5)] * 3),
    bias=st.booleans(),
    activation=st.sampled_from(("none", "relu", "swiglu")),
    residual=st.booleans(),
    scales=st.sampled_from(("none", "tensor", "row", "block")),
)
def test_any_groups_validate(rows, n, k, case, trans_b, beta, pads, bias, activation, residual, scales):
    target, name = case
    if name == "f64":
        activation, scales = "none", "none"
    if scales == "block" and name not in ("fp8", "bf8"):
        scales = "row"
    gated = activation == "swiglu"
    more = {"scales": scales, "residual": residual, "dtype_c": "bf16" if name != "f64" else ""}
    beta, alpha = 0 if gated else beta, 0.01 if name == "i8" else 0.25
    gemm(
        sum(rows), 2 * n if gated else n, k, target, name, (False, trans_b), alpha, beta, pads, 1, bias, activation,
        group_rows=tuple(rows), **more,
    ).check()  # fmt: skip


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "name"), CASES)
@pytest.mark.parametrize("rows", ROWS[1:], ids=len)
def test_groups_without_rows_and_more_than_a_wave_has_lanes(target, name, rows):
    gemm(sum(rows), 70, 90, target, name, (False, True), pads=(1, 3, 2), group_rows=rows).check()


@pytest.mark.parametrize("tile", [(96, 64), (128, 128)])
def test_tiles_of_any_rows_are_counted(tile):
    """If rows are not a power of two, the count uses a multiplication."""
    tiling = Tiling(*tile, 64, 32, 2, 2, stages=2, blocks=1)
    rows = (96, 95, 97, 0, 192, 1, 128, 129)
    gemm(sum(rows), 100, 70, "gfx942", "bf16", (False, True), tiling=tiling, group_rows=rows).check()


@pytest.mark.parametrize(
    ("target", "name", "scales"), [("gfx942", "fp8", "block"), ("gfx950", "bf16", "row"), left_out("gfx908", "f16", "tensor")]
)
def test_checked_mode_finds_nothing(target, name, scales):
    more = {"scales": scales, "dtype_c": "bf16", "residual": True, "group_rows": (*ROWS[1], 31)}
    result = gemm(104, 66, 70, target, name, (False, True), pads=(1, 2, 3), bias=True, check=True, **more)
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize("rows", [(0, 0, 0), (4, 0, 3)])
def test_rows_behind_the_last_groups_are_left_alone(rows):
    """Launches for 50 rows; the actual number is in memory."""
    tree = TiledComputation(50, 20, 30, "gfx942", dtype="f16", groups=3, trans_b=True)
    gpu, rng = device("gfx942"), np.random.default_rng(0)
    a, b, c = rng.uniform(-1, 1, (50, 30)).astype("f2"), rng.uniform(-1, 1, (3, 20, 30)).astype("f2"), np.full((50, 20), 7, "f4")
    buffers = [gpu.upload(array) for array in (a, b, c, np.array(rows, "i4"))]
    asm.launch(asm.emit(tree), gpu, *buffers)
    got = buffers[2].download("f4", (50, 20))
    for group, (end, count) in enumerate(zip(np.cumsum(rows), rows)):
        part = slice(end - count, end)
        np.testing.assert_allclose(got[part], a[part].astype("f8") @ b[group].T.astype("f8"), rtol=1e-3, atol=1e-5)
    assert (got[sum(rows) :] == 7).all()


def test_the_grid_holds_any_groups_and_no_more():
    """Compares with every way to distribute m rows over the groups."""

    def ways(m, groups):
        return [(first, *rest) for first in range(m + 1) for rest in ways(m - first, groups - 1)] if groups > 1 else [(m,)]

    for m, groups in ((1, 1), (33, 1), (70, 2), (40, 3), (2, 3)):
        plan = TiledComputation(m, 32, 32, "gfx908", groups=groups).plan
        most = max(sum(-(-rows // plan.tile_m) for rows in way) for way in ways(m, groups))
        assert plan.grid[1] == most and plan.workgroups == most * plan.grid[0]


@pytest.mark.parametrize(
    ("target", "name", "scales"), [
        left_out("gfx908", "f16", "row"), ("gfx942", "fp8", "block"),
        left_out("gfx950", "i8", "none"),
    ]
)
def test_sgprs_are_the_plans(target, name, scales):
    for m in (20, 4096):
        more = {"scales": scales, "dtype_c": "bf16", "residual": True, "bias": True}
        tree = TiledComputation(m, 4096, 128, target, dtype=name, groups=8, activation="geglu", **more)
        kernel, plan = asm.emit(tree), tree.plan.resources
        assert 0 <= plan.sgprs - RESERVED_SGPRS - used(kernel) < MOST_SLACK, plan.scalars
        assert tree.plan.split_k == 1 and not kernel.following


def test_the_tree_multiplies_group_by_group():
    tree, rng = TiledComputation(10, 6, 8, "gfx950", dtype="f16", groups=3, bias=True), np.random.default_rng(0)
    a, b, bias, rows = rng.normal(size=(10, 8)), rng.normal(size=(3, 8, 6)), rng.normal(size=(3, 6)), np.array([4, 0, 6])
    want = np.concatenate([a[:4] @ b[0] + bias[0], a[4:] @ b[2] + bias[2]])
    for level in ("device", "block", "atom"):
        got = ComputeVisitor(level).visit(tree, a, b, None, bias, None, None, None, rows)
        np.testing.assert_allclose(got, want, rtol=1e-12)
    with pytest.raises(LaunchError, match="sum to 9"):
        ComputeVisitor().visit(tree, a, b, None, bias, None, None, None, np.array([4, 0, 5]))
    with pytest.raises(LaunchError, match="none were given"):
        ComputeVisitor().visit(tree, a, b, None, bias)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"batch": 2}, "has no batch"), ({"trans_a": True}, "A is stored"), ({"groups": -1}, "groups"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words(wrong, said):
    with pytest.raises(LaunchError, match=said):
        GemmProblem(**{"m": 4, "n": 4, "k": 4, "groups": 2, **wrong})


def test_what_takes_a_second_kernel_is_refused():
    with pytest.raises(LaunchError, match="policy corrected"):
        TiledComputation(4, 4, 4, "gfx90a", "published", groups=2)
    with pytest.raises(LaunchError, match="use none or relu"):
        asm.emit(TiledComputation.of(GemmProblem(4, 4, 4, "f64", activation="gelu", groups=2), board("gfx90a")))
