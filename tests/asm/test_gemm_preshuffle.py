"""GEMM with a preshuffled B on the simulated GPU: every type, edges of every dimension, with scales, groups and a batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.hardware import target as board
from simgpu.hardware.dtypes import numpy_dtype, pack
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.timing_rules import lds_banks
from simgpu.operators import ComputeVisitor, GemmProblem, TiledComputation, preshuffle, reference
from simgpu.operators.gemm.layout import TileLayouts
from simgpu.operators.gemm.limits import Tiling
from simgpu.tools.cases.operators import workload
from tests.asm.test_scalar_plans import assert_planned
from tests.operators.test_gemm_layout import accesses
from tests.support.devices import device
from tests.support.exhaustive import examples, left_out
from tests.support.gemm_case import TARGETS, TYPES, gemm

KINDS = [(target, name) for target in TARGETS for name in TYPES if name in board(target).dtypes()]
WIDE_GUARD = 64  # elements before B, which is then on a 64-byte boundary: wide loads


def piece_of(kind: str) -> int:
    """Returns k of 16 bytes, the piece of each row in a panel."""
    return 16 // numpy_dtype(kind).itemsize


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(KINDS),
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 18), st.integers(1, 40) | st.sampled_from((8, 16, 200))),
    guard=st.sampled_from((WIDE_GUARD, 41)),
    batch=st.sampled_from((1, 1, 3)),
    trans_a=st.booleans(),
    bias=st.booleans(),
)
def test_any_shape_validates(kind, sizes, guard, batch, trans_a, bias):
    m, panels, pieces = sizes
    result = gemm(m, 16 * panels, piece_of(kind[1]) * pieces, *kind, (trans_a, True), guard=guard, batch=batch, bias=bias,
                  preshuffle_b=True)  # fmt: skip
    result.check()
    assert not sum(run.counters.get("lds_bank_conflicts", 0) for run in result.runs)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("name", "k"), [("bf16", 32), ("bf16", 64), ("fp8", 64), ("fp8", 128)])
@pytest.mark.parametrize("columns", [32, 64, 96, left_out(128), 160, left_out(256)])
def test_every_side_of_a_tile_validates(name, k, columns):
    """Takes one, two and four atoms whose columns alternate, and LDS rows of 64 and of 128 bytes."""
    target = "gfx950" if k * numpy_dtype(name).itemsize == 128 else "gfx942"
    tiling = Tiling(64, columns, k, k, 2, 2, stages=2, blocks=1)
    gemm(70, columns + 48, 3 * k + 16, target, name, (False, True), guard=WIDE_GUARD, tiling=tiling, preshuffle_b=True).check()


def test_checked_mode_finds_nothing():
    for target, name, more in (("gfx950", "bf16", {}), ("gfx942", "fp8", {"scales": "block"}), ("gfx908", "i8", {})):
        result = gemm(70, 208, 336, target, name, (False, True), guard=WIDE_GUARD, check=True, preshuffle_b=True, **more)
        result.check()
        assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize("scales", ["none", "row", "block"])
def test_groups_have_their_own_b(scales):
    gemm(90, 80, 160, "gfx942", "fp8", (False, True), group_rows=(0, 41, 1, 48), guard=WIDE_GUARD, dtype_c="bf16", scales=scales,
         preshuffle_b=True).check()  # fmt: skip


@pytest.mark.parametrize("kinds", [("fp8", "fp8"), ("fp4", "fp4"), ("fp6", "fp4")])
@pytest.mark.parametrize("sizes", [(70, 208, 416), (40, 48, 4128)])
def test_mx_formats_validate(kinds, sizes):
    tree = TiledComputation(*sizes, "gfx950", dtype=kinds[0], dtype_b=kinds[1], trans_b=True, scales="mx", preshuffle_b=True)
    work, kernel, gpu = workload(tree, "gfx950", seed=0), asm.emit(tree), device("gfx950")
    buffers = [gpu.upload(array) for array in work.arrays]
    asm.launch(kernel, gpu, *buffers)
    after = buffers[2].download(work.arrays[2].dtype, work.arrays[2].shape)
    for buffer in buffers:
        gpu.free(buffer)
    assert work.compare(after, "C").passed


@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (300, 512, 400), (16, 7168, 2048)])
@pytest.mark.parametrize(("target", "name"), KINDS)
def test_planned_tiles_have_no_bank_conflicts(target, name, sizes):
    layout = TileLayouts.of(TiledComputation(*sizes, target, dtype=name, trans_b=True, preshuffle_b=True).first()).b
    assert sum(lds_banks.conflicts(target, *access) for access in accesses(layout)) == 0, layout


@pytest.mark.parametrize(("target", "name"), [
    ("gfx908", "f16"), left_out("gfx90a", "f64"), left_out("gfx942", "bf16"), ("gfx950", "fp8"),
])  # fmt: skip
def test_registers_and_lds_are_the_plans(target, name):
    """Includes the largest tile: a kernel that needs more than the plan grants is refused."""
    asm.emit(TiledComputation(4096, 4096, 4096, target, dtype=name, trans_b=True, preshuffle_b=True))
    for sizes in ((300, 512, 400), (100, 112, 30000)):
        assert_planned(TiledComputation(*sizes, target, dtype=name, trans_b=True, preshuffle_b=True, bias=True))


@pytest.mark.parametrize("name", ["fp4", "fp8", "bf16", "f64"])
def test_panels_hold_16_bytes_of_16_rows_in_turn(name):
    """Byte x of piece c of row r of panel p is at ((p * pieces + c) * 16 + r) * 16 + x."""
    n, k = 48, 128
    values = np.random.default_rng(0).integers(-3, 4, (2, n, k)).astype(numpy_dtype(name))
    before, after = (pack(x, name).reshape(2, -1) for x in (values, preshuffle(values, name)))
    pieces = before.shape[1] // n // 16
    product, p, r, c, x = np.indices((2, n // 16, 16, pieces, 16))
    moved = after[product, ((p * pieces + c) * 16 + r) * 16 + x]
    assert (moved == before.reshape(moved.shape)).all()


def test_the_tree_and_the_reference_multiply_alike():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (5, 48)), rng.uniform(-1, 1, (32, 48))
    problem = GemmProblem(5, 32, 48, "f64", trans_b=True, preshuffle_b=True)
    np.testing.assert_allclose(reference.gemm(problem, a, preshuffle(b, "f64")), a @ b.T, rtol=1e-13)
    tree = TiledComputation.of(problem, board("gfx90a"))
    np.testing.assert_allclose(ComputeVisitor("block").visit(tree, a, preshuffle(b, "f64")), a @ b.T, rtol=1e-12)


@pytest.mark.parametrize(("wrong", "said"), [
    ({"trans_b": False}, "set trans_b, too"), ({"n": 40}, "16 rows of 8 elements"), ({"k": 60}, "pad both to multiples"),
    ({"ldb": 72}, "leave ldb out, it is k = 64"), ({"dtype": "fp6", "scales": "mx"}, "no whole number of fp6"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words(wrong, said):
    with pytest.raises(LaunchError, match=said):
        GemmProblem(**{"m": 4, "n": 32, "k": 64, "dtype": "bf16", "trans_b": True, "preshuffle_b": True, **wrong})
    with pytest.raises(LaunchError, match="panels have 16 rows of 4 elements"):
        preshuffle(np.zeros((15, 64), np.float32), "f32")
    with pytest.raises(LaunchError, match="no whole number of fp6"):
        preshuffle(np.zeros((16, 21), np.uint8), "fp6")
