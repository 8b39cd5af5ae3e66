"""No tile is smaller than its limits allow: brute-force accounting of the tile and of the next larger one in every dimension."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simgpu import hardware
from simgpu.operators import Conv2dPlan, Conv2dProblem, GemmPlan, GemmProblem, SoftmaxProblem, plan_conv2d, plan_gemm, plan_softmax
from simgpu.operators.softmax.plan import kept_and_shared
from tests.support.exhaustive import examples

HARD = {"LDS", "ArchVGPR", "AccVGPR", "VGPR file"}
CASES = [(t, k) for t in hardware.targets() for k in hardware.target(t).dtypes()]
size = st.one_of(st.integers(1, 300), st.integers(1000, 20000))


def broken(plan: GemmPlan, tile_m: int, tile_n: int) -> set[str]:
    """Returns the limits that a tile breaks with the plan's waves, K step, stages and blocks a CU. Counts registers one by one."""
    d, e = plan.descriptor, plan.problem.element.bytes
    blocks = plan.tiling.blocks
    kv = plan.warp_k
    lds = -(-plan.stages * (tile_m + tile_n) * plan.tile_k * e // d.lds_granule) * d.lds_granule
    lane_words = sum(rows // 2 * kv * e // 256 + rows * plan.tile_k * e // 1024 for rows in (tile_m, tile_n))
    addresses = 16 + sum(2 * (rows // (2 * plan.atom.m)) for rows in (tile_m, tile_n))
    arch = lane_words + addresses + 16
    acc = tile_m * tile_n // 4 // 64 * (2 if plan.problem.dtype_c == "f64" else 1)
    rows = {"LDS": blocks * lds > d.lds_bytes}
    if d.unified_vgprs:
        rows["VGPR file"] = blocks * -(-(-(-arch // 4) * 4 + acc) // 8) * 8 > 512  # granule 8
        rows |= {"ArchVGPR": arch > 256, "AccVGPR": acc > 256}
    else:
        rows |= {name: blocks * -(-count // 4) * 4 > 256 for name, count in (("ArchVGPR", arch), ("AccVGPR", acc))}  # granule 4
    return {name for name, yes in rows.items() if yes}


@given(st.sampled_from(CASES), size, size, size, st.sampled_from([1.0, 0.5, 0.75, 1.5, 2.0]))
@example(("mi355x", "bf8"), 193, 7009, 1, 1.5)  # seven blocks a CU: the shared file stops it
@settings(max_examples=examples(300))
def test_gemm(where: tuple[str, str], m: int, n: int, k: int, scale: float) -> None:
    """If a hard limit binds, the tile fits and grows in neither dimension by one step of two waves' atoms."""
    board = hardware.target(where[0])
    d = replace(board, lds_bytes=int(board.lds_bytes * scale) // 512 * 512)
    plan = plan_gemm(GemmProblem(m, n, k, where[1]), d)
    assert plan.feasible and not broken(plan, plan.tile_m, plan.tile_n)
    step = 2 * plan.atom.m
    larger = [broken(plan, plan.tile_m + step, plan.tile_n), broken(plan, plan.tile_m, plan.tile_n + step)]
    if plan.binding.name in HARD:
        assert all(larger) and plan.binding.name in set().union(*larger)
    else:
        assert not all(larger), "a tile that its limits stop says so"


def test_every_kind_of_limit_binds_somewhere() -> None:
    names = {plan_gemm(GemmProblem(4096, 4096, 4096, k), hardware.target(t)).binding.name for t, k in CASES}
    assert {"LDS", "VGPR file"} <= names


FLOATS = [(t, k) for t, k in CASES if k in ("f32", "f16", "bf16", "f64")]


@given(st.sampled_from(FLOATS), st.integers(1, 5000), st.integers(1, 200000))
@settings(max_examples=examples(200))
def test_softmax_streams_only_what_cannot_stay(where: tuple[str, str], rows: int, n: int) -> None:
    d = hardware.target(where[0])
    plan = plan_softmax(SoftmaxProblem(rows, n, where[1]), d)
    assert plan.feasible
    if not plan.resident:
        others = plan.resources.arch_vgprs - next(r.count for r in plan.resources.registers if r.name == "row")
        kept, shared = kept_and_shared(plan.problem, d, plan.split_n)
        row = plan.problem.element.registers * -(-n // 64)
        assert row + others > d.vgpr_budget(2)[0] or shared < kept


def conv_broken(plan: Conv2dPlan, oh: int, oc: int) -> set[str]:
    """Returns the limits that oh rows and oc channels break with the plan's columns, input channels, waves and blocks a CU."""
    d, p, atom, e = plan.descriptor, plan.tiled_problem, plan.atom, plan.problem.element.bytes
    (sh, sw), (dh, dw) = p.stride, p.dilation
    rows = {y * sh + i * dh for y in range(oh) for i in range(p.kh)}
    cols = {x * sw + j * dw for x in range(plan.tile_ow) for j in range(p.kw)}
    groups, waves = 64 // atom.m, plan.waves_p * plan.waves_oc
    slots, each = (max(rows) + 1) * -(-(max(cols) + 1) // sw) * sw, plan.tile_ic * e // groups
    chunk, reads = min(each, 16), max(1, each // 16)
    # Planes of 16-byte chunks are whole lines apart, of smaller ones half a line more. Reads of 8 bytes on 32 banks
    # need neither.
    line = d.lds_banks * 4 if chunk > 4 else 128
    while (chunk, d.lds_banks) != (8, 32) and slots * chunk % line != (0 if chunk >= 16 else line // 2):
        slots += 1
    lds = plan.tile_ic * e * (slots + 2 * oc) + (2 * reads * 64 if reads > 1 else 0)  # parts of W are half a line apart
    held = -(-slots // (64 * waves))
    arch = (oh * plan.tile_ow // plan.waves_p // atom.m + oc // plan.waves_oc // atom.n) * -(-each // 4)
    arch += -(-oc * plan.tile_ic * e // (256 * waves)) + max(1, min(held, 32 // plan.tile_ic)) * plan.tile_ic
    arch += held * plan.factor**2 + 8
    acc = oh * plan.tile_ow * oc // waves // 64 * (2 if plan.problem.dtype_c == "f64" else 1)
    blocks = plan.blocks_wanted
    per_simd = -(-blocks * waves // 4)
    broken = {"LDS": blocks * -(-lds // d.lds_granule) * d.lds_granule > d.lds_bytes}
    if d.unified_vgprs:
        broken |= {"ArchVGPR": arch > 256, "VGPR file": per_simd * (-(-arch // 4) * 4 + acc) > 512}
    else:
        broken |= {"ArchVGPR": per_simd * arch > 256, "AccVGPR": per_simd * acc > 256}
    return {name for name, yes in broken.items() if yes}


@pytest.mark.slow
@given(
    st.sampled_from(CASES), st.sampled_from([1.0, 0.5, 0.75, 1.5, 2.0]), st.sampled_from([1, 4, 32]),
    st.sampled_from([1, 3, 16, 64, 200]), st.integers(7, 60), st.sampled_from([8, 64, 100, 256, 512]), st.integers(1, 7),
    st.integers(1, 7), st.integers(1, 3), st.integers(1, 3),
)  # fmt: skip
@example(("mi100", "i8"), 1.0, 32, 16, 7, 512, 5, 2, 1, 1)  # LDS stops the channels, ArchVGPRs the rows
@example(("mi350x", "bf8"), 0.75, 4, 1, 28, 256, 1, 4, 1, 1)  # the shared file stops the rows
@example(("mi300x", "xf32"), 0.5, 4, 16, 42, 64, 2, 6, 1, 1)  # a row more than on the border
@settings(max_examples=examples(150))
def test_conv2d(
    where: tuple[str, str], scale: float, n: int, ic: int, size: int, oc: int, kh: int, kw: int, stride: int, dilation: int
) -> None:
    """If LDS binds, the tile fits, and neither more rows (towards the GEMM's) nor the GEMM's tile do.

    Else it is the GEMM's tile.
    """
    board = hardware.target(where[0])
    d = replace(board, lds_bytes=int(board.lds_bytes * scale) // 512 * 512)
    padding = (kh * dilation, kw * dilation)
    problem = Conv2dProblem(n, ic, size, size, oc, kh, kw, (stride, stride), padding, (dilation, dilation), dtype=where[1])
    plan = plan_conv2d(problem, d)
    pixels, channels = plan.gemm_tile
    assert plan.feasible == (not conv_broken(plan, plan.tile_oh, plan.tile_oc))
    whole = (plan.pixels, plan.tile_oc) == (pixels, channels)
    if not plan.feasible or plan.binding.name != "LDS":
        step, high = -(-plan.waves_p * plan.atom.m // plan.tile_ow), plan.tiled_problem.oh
        padded = [-(-high // rows) * rows for rows in range(step, plan.tile_oh + 1, step)]
        even = plan.binding.name == "problem size" and padded[-1] == min(padded)
        assert not plan.feasible or whole or plan.binding.name in HARD or even, "rows that pad least are no power of two either"
        return
    assert not whole
    if plan.pixels < pixels:
        assert "LDS" in conv_broken(plan, min(2 * plan.tile_oh, pixels // plan.tile_ow), plan.tile_oc)
    assert "LDS" in conv_broken(plan, pixels // plan.tile_ow, channels)


def test_conv2d_is_bound_by_lds_and_by_the_gemm() -> None:
    for size, dilation, target, dtype, binding in ((7, 3, "mi100", "f32", "LDS"), (1, 1, "mi355x", "f16", "GEMM tile")):
        pad = (size * dilation, size * dilation)
        problem = Conv2dProblem(8, 256, 224, 224, 512, size, size, padding=pad, dilation=(dilation, dilation), dtype=dtype)
        assert plan_conv2d(problem, hardware.target(target)).binding.name == binding
