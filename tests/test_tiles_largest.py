"""No tile is smaller than its limits say: brute-force accounting of the tile and of the next larger one in every dimension."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import hardware
from operators import GemmPlan, GemmProblem, SoftmaxProblem, plan_gemm, plan_softmax

HARD = {"LDS", "ArchVGPR", "AccVGPR", "VGPR file"}
CASES = [(t, k) for t in hardware.targets() for k in hardware.target(t).dtypes()]
size = st.one_of(st.integers(1, 300), st.integers(1000, 20000))


def broken(plan: GemmPlan, tile_m: int, tile_n: int) -> set[str]:
    """Limits that a tile breaks with the plan's waves, K span, stages and two blocks a CU, every register counted one by one."""
    d, e = plan.descriptor, plan.problem.element.bytes
    blocks = plan.tiling.blocks
    kv = plan.warp_k
    lds = -(-plan.stages * (tile_m + tile_n) * kv * e // d.lds_granule) * d.lds_granule
    lane_words = sum(rows // 2 * kv * e // 256 + rows * kv * e // 1024 for rows in (tile_m, tile_n))
    addresses = 16 + sum(2 * (rows // (2 * plan.atom.m)) for rows in (tile_m, tile_n))
    arch = lane_words + addresses + 16
    acc = tile_m * tile_n // 4 // 64 * (2 if plan.problem.dtype_c == "f64" else 1)
    rows = {"LDS": blocks * lds > d.lds_bytes}
    if d.unified_vgprs:
        rows["VGPR file"] = blocks * (-(-arch // 4) * 4 + acc) > 512
    else:
        rows |= {"ArchVGPR": blocks * arch > d.vgpr_per_thread, "AccVGPR": blocks * acc > d.agpr_per_thread}
    return {name for name, yes in rows.items() if yes}


@given(st.sampled_from(CASES), size, size, size, st.sampled_from([1.0, 0.5, 0.75, 1.5, 2.0]))
@settings(max_examples=300, deadline=None)
def test_gemm(where: tuple[str, str], m: int, n: int, k: int, scale: float) -> None:
    """Where a hard limit binds, the tile fits and grows in neither dimension by one step of two waves' atoms."""
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
    names = {plan_gemm(GemmProblem(8192, 8192, 8192, k), hardware.target(t)).binding.name for t, k in CASES}
    assert {"LDS", "VGPR file"} <= names


FLOATS = [(t, k) for t, k in CASES if k in ("f32", "f16", "bf16", "f64")]


@given(st.sampled_from(FLOATS), st.integers(1, 5000), st.integers(1, 200000))
@settings(max_examples=200, deadline=None)
def test_softmax_streams_only_what_cannot_stay(where: tuple[str, str], rows: int, n: int) -> None:
    d = hardware.target(where[0])
    plan = plan_softmax(SoftmaxProblem(rows, n, where[1]), d)
    assert plan.feasible
    if not plan.resident:
        others = plan.resources.arch_vgprs - next(r.count for r in plan.resources.registers if r.name == "row")
        assert -(-n // 64) + others > d.vgpr_budget(2)[0]
