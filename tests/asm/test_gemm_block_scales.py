"""GEMM with scales of blocks of k on the simulated GPU: every tile side, edges, the split, the plan's resources."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu import asm
from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.waits import Label
from simgpu.hardware import target as board
from simgpu.hardware.errors import LaunchError, ResourceError
from simgpu.operators import ComputeVisitor, GemmProblem, TiledComputation
from simgpu.operators.gemm import reference
from simgpu.operators.gemm.limits import Tiling, scale_ahead
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.resources import RESERVED_SGPRS
from tests.asm.test_scalar_plans import MOST_SLACK, used
from tests.support.exhaustive import examples, left_out, one_in
from tests.support.gemm_case import TRANSPOSES, gemm

SCALED = ("gfx942", "gfx950")
# Each side has a case: rows that are not a power of two, two blocks of columns, two spans of k, and blocks that share
# K.
TILES = {
    "gfx942": ((96, 128, 128, 1), (224, 64, 64, 2), (64, 256, 64, 1), (32, 32, 128, 2)),
    "gfx950": ((160, 128, 128, 1), (64, 256, 128, 2), (96, 32, 128, 2)),
}


@settings(max_examples=examples(12), suppress_health_check=list(HealthCheck))
@given(
    sizes=st.tuples(st.integers(1, 150), st.integers(1, 150), st.integers(1, 300) | st.sampled_from((128, 256, 3000))),
    target=st.sampled_from(SCALED),
    name=st.sampled_from(("fp8", "bf8")),
    trans=st.sampled_from(TRANSPOSES),
    beta=st.sampled_from((0, 2)),
    pads=st.tuples(*[st.integers(0, 5)] * 3),
    batch=st.sampled_from((1, 1, 3)),
    bias=st.booleans(),
    out=st.sampled_from(("f32", "bf16", "fp8")),
)
def test_any_shape_validates(sizes, target, name, trans, beta, pads, batch, bias, out):
    gemm(*sizes, target, name, trans, 0.25, beta, pads, batch, bias, dtype_c=out, scales="block").check()


@pytest.mark.covering(1)
@pytest.mark.parametrize("trans", TRANSPOSES[1:3])
@pytest.mark.parametrize(("target", "tile"), one_in(4, [(target, tile) for target in SCALED for tile in TILES[target]]))
def test_every_side_of_a_tile_validates(target, tile, trans):
    rows, columns, k, split = tile
    tiling = Tiling(rows, columns, k, k, 2, 2, stages=2, blocks=1, split_k=split)
    gemm(rows + 37, columns + 77, 4 * k + 9, target, "fp8", trans, pads=(1, 3, 2), tiling=tiling, scales="block").check()


@pytest.mark.slow
@pytest.mark.parametrize("columns", [128, left_out(256)])
def test_operands_that_are_copied_leave_room_for_larger_tiles(columns):
    """Their staging is AccVGPRs. Staging of transposed operands would be ArchVGPRs, which the sums fill."""
    tiling = Tiling(32768 // columns, columns, 128, 128, 2, 2, stages=2, blocks=1)
    gemm(140, 270, 521, "gfx950", "fp8", (False, True), pads=(1, 3, 2), tiling=tiling, scales="block").check()
    with pytest.raises(ResourceError, match="ArchVGPR"):
        gemm(140, 270, 521, "gfx950", "fp8", (True, False), tiling=tiling, scales="block")


@pytest.mark.parametrize("target", SCALED)
@pytest.mark.parametrize("k", [70, 3000])
def test_checked_mode_finds_nothing(target, k):
    more = {"scales": "block", "dtype_c": "bf16", "residual": True, "activation": "swiglu"}
    result = gemm(70, 66, k, target, "fp8", (False, True), pads=(1, 2, 3), bias=True, batch=2, check=True, **more)
    assert bool(result.kernel.following) == (k == 3000)
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


@pytest.mark.parametrize("target", SCALED)
def test_each_block_has_its_own_scale(target):
    """A product of ones is the sum over blocks of k of their length times both scales, so that a wrong scale shows."""
    m, n, k = 40, 300, 400

    def ones(a, b, c):
        a[...], b[...] = 1, 1

    result = gemm(m, n, k, target, "fp8", edit=ones, scales="block")
    source = np.random.default_rng(m * 90001 + n * 301 + k)
    for shape in ((m, k), (k, n), (m, n)):  # `gemm` drew these before the scales
        source.uniform(-1, 1, shape)
    source.uniform(-1, 1, n)
    of_a, of_b = (source.uniform(0.25, 2, shape).astype("f4").astype(float) for shape in ((m, 4), (3, 4)))
    lengths = np.array([128, 128, 128, 16])
    want = np.einsum("mk,k,jk->mj", of_a, lengths, of_b)[:, np.arange(n) // 128]
    np.testing.assert_allclose(result.got, want, rtol=1e-6)


@pytest.mark.parametrize(("target", "split"), [left_out("gfx942", 1), ("gfx942", 2), ("gfx950", 1)])
def test_scales_of_further_blocks_follow_those_in_lds(target, split):
    """There are more blocks of k than LDS holds, and a part of k begins in the middle of a block."""
    ahead, tile_k = scale_ahead(board(target)), 64 if target == "gfx942" else 128
    k = (4 * ahead + 5) * 128 if split == 2 else (2 * ahead + 3) * 128 + 9
    assert split == 1 or k // tile_k // split % 2
    tiling = Tiling(64, 128, tile_k, tile_k, 2, 2, stages=2, blocks=1, split_k=split)
    result = gemm(40, 70, k, target, "fp8", (False, True), tiling=tiling, scales="block", check=True)
    result.check()
    assert not [str(finding) for run in result.runs for finding in run.findings]


def test_the_loop_of_the_largest_tile_has_scales_out_of_line():
    """A pass of the main loop loads only tiles. No scaled product waits for the loop's end, where nothing hides it."""
    kernel = asm.emit(TiledComputation(8192, 8192, 8192, "gfx942", dtype="fp8", trans_b=True, scales="block"))
    items = [item for item in kernel.items if isinstance(item, (Instr, Label))]
    top = next(n for n, item in enumerate(items) if isinstance(item, Label) and "whole_tile_0" in item.name)
    end = next(n for n in range(top, len(items)) if isinstance(items[n], Instr) and items[n].mnemonic == "s_cbranch_scc1")
    loop = [item.mnemonic for item in items[top:end] if isinstance(item, Instr)]
    plan = kernel.plan
    assert sum(name.startswith("buffer_load") for name in loop) == (plan.tile_m + plan.tile_n) * plan.tile_k // (256 * 16)
    last = max(n for n, name in enumerate(loop) if name.startswith("v_mfma"))
    assert loop[last:].count("v_fmac_f32") <= 2


def test_the_tree_and_the_reference_multiply_alike():
    problem = GemmProblem(5, 140, 200, "fp8", scales="block")
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (5, 200)), rng.uniform(-1, 1, (200, 140))
    scales = {name: rng.uniform(0.5, 2, shape) for name, shape in zip(("scale_a", "scale_b"), problem.scale_shapes)}
    want = sum(
        scales["scale_a"][:, kb, None] * np.repeat(scales["scale_b"][:, kb], 128)[:140] * (a[:, part] @ b[part])
        for kb, part in enumerate((slice(0, 128), slice(128, 200)))
    )
    np.testing.assert_allclose(reference.gemm(problem, a, b, **scales), want, rtol=1e-12, atol=1e-13)
    for level in ("device", "block"):
        tree = TiledComputation.of(problem, board("gfx950"))
        got = ComputeVisitor(level).visit(tree, a, b, None, None, None, *scales.values())
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("target", one_in(2, SCALED))
def test_registers_are_the_plans(target):
    for sizes in ((4096, 4096, 256), (100, 100, 30000)):
        for trans in TRANSPOSES[1:3]:
            more = {"bias": True, "activation": "swiglu", "dtype_c": "bf16", "residual": True}
            tree = TiledComputation(*sizes, target, "corrected", "fp8", *trans, scales="block", **more)
            kernel, plan = asm.emit(tree), tree.plan.resources
            assert 0 <= plan.sgprs - RESERVED_SGPRS - used(kernel) < MOST_SLACK, (sizes, trans, plan.scalars)
            assert kernel.resources.vgprs == plan.arch_vgprs <= 256 and kernel.resources.agprs == plan.acc_vgprs


@pytest.mark.slow
def test_products_are_added_before_their_registers_are_taken_again():
    """In the largest tiles of both targets, a pool register is read once between two products, checked by instruction."""
    for target in SCALED:
        kernel = asm.emit(TiledComputation(4096, 4096, 1024, target, dtype="fp8", trans_b=True, scales="block"))
        fresh: dict[int, bool] = {}
        for item in kernel.items:
            if not isinstance(item, Instr):
                continue
            if item.mnemonic.startswith("v_mfma") and item.operands[-1] == 0:
                registers = range(item.operands[0].index, item.operands[0].index + item.operands[0].count)
                assert not any(fresh.get(register) for register in registers), item.text()
                fresh |= dict.fromkeys(registers, True)
            elif item.mnemonic == "v_fmac_f32" and item.operands[1].index in fresh:
                assert fresh[item.operands[1].index], item.text()
                fresh[item.operands[1].index] = False
        assert len(fresh) == 16 and not any(fresh.values())


@pytest.mark.parametrize(("wrong", "said"), [
    ({"dtype": "f16"}, "use row or tensor"), ({"dtype": "f64"}, "epilogue is in f64"), ({"scales": "blocks"}, "row, block"),
])  # fmt: skip
def test_what_cannot_be_is_refused_in_words(wrong, said):
    with pytest.raises(LaunchError, match=said):
        GemmProblem(**{"m": 4, "n": 4, "k": 4, "scales": "block", **wrong})


@pytest.mark.parametrize(("columns", "k", "at_once"), [(96, 64, 64), (64, 128, 64), (64, 256, 256)])
def test_tiles_that_a_block_does_not_fit_are_refused(columns, k, at_once):
    tree = TiledComputation(64, 96, 256, "gfx942", dtype="fp8", scales="block")
    tree.derivation = with_tiling(tree.problem, tree.descriptor, "corrected", Tiling(64, columns, k, at_once, 2, 2, 1, 1))
    with pytest.raises(ResourceError, match="power of two"):
        asm.emit(tree)


def test_the_papers_tiles_have_no_block_scales():
    with pytest.raises(LaunchError, match="use policy corrected"):
        TiledComputation(4, 4, 4, "gfx942", "published", "fp8", scales="block")
