"""Plans of the paper's numbers, under "published" and "corrected"."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simgpu import hardware
from simgpu.hardware.errors import LaunchError
from simgpu.operators import (
    AttentionProblem,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
    derive_tiles,
)

GPU_A, GPU_B = hardware.target("gpu_a"), hardware.target("gpu_b")


def test_derivation_example() -> None:
    plan = TiledComputation(4096, 4096, 4096, target=GPU_A, policy="published").plan
    assert (plan.tile_m, plan.tile_n, plan.tile_k) == (128, 128, 32)
    assert (plan.warp_m, plan.warp_n, plan.warp_k) == (32, 32, 8)
    assert (plan.waves, plan.stages, plan.resources.lds_bytes) == (16, 1, 32 * 1024)
    assert f"{plan.blocks_per_cu:.1f}" == "8.5"
    assert plan.resources.acc_vgprs == 32 * 32 // 64 == 16


def test_e5_half_of_lds_is_used() -> None:
    row = next(c for c in TiledComputation(4096, 4096, 4096, GPU_A, "published").plan.constraints if c.name == "LDS")
    assert (row.limit, row.use, row.slack) == (65536, 32768, 32768)


def test_e8_sixteen_waves_leave_64_registers_of_each_file() -> None:
    plan = TiledComputation(4096, 4096, 4096, GPU_A, "published").plan
    limits = {c.name: c.limit for c in plan.constraints}
    assert (limits["ArchVGPR"], limits["AccVGPR"]) == (64, 64)


def test_e1_e2_peaks() -> None:
    assert GPU_A.peak_tflops_f32 == 11.5 and GPU_B.peak_tflops_f32 == 383.0
    mi100 = hardware.target("mi100")
    assert mi100.peak_tflops_f32 == 23.1 and mi100.matrix_tflops("f32") == pytest.approx(46.1, abs=0.05)
    assert 12.3 / mi100.matrix_tflops("f32") == pytest.approx(0.267, abs=1e-3)
    assert hardware.target("mi300x").matrix_tflops("f32") == pytest.approx(163.4, abs=0.05)


@pytest.mark.parametrize(("d", "tile_kv", "tile_q", "vgprs", "fits"), [
    (64, 128, 48, 214, True), (64, 128, 64, 280, False), (128, 64, 32, 180, True), (128, 64, 48, 262, False),
])
def test_table_2(d: int, tile_kv: int, tile_q: int, vgprs: int, fits: bool) -> None:
    tiles = derive_tiles(GPU_A, L=16384, d=d, policy="published")
    assert tiles.tile_KV == tile_kv
    assert tiles.vgprs_at(tile_q) == vgprs
    assert (tile_q <= tiles.tile_Q_max) is fits is (vgprs <= 256)


def test_tiles_a_and_b() -> None:
    a, b = (derive_tiles(gpu, L=16384, d=128, policy="published") for gpu in (GPU_A, GPU_B))
    assert (a.tile_Q, a.tile_KV) == (b.tile_Q, b.tile_KV) == (32, 64)
    assert a.feasible and b.feasible
    assert round(a.occupancy, 2) == 4.27 and round(b.occupancy, 2) == 1.68  # E11: the paper prints 0.27 and 1.69
    assert a.occupancy - 4 == pytest.approx(0.27, abs=0.005)
    assert a.eta == pytest.approx(512 / 600)


@pytest.mark.parametrize("d", [16, 64, 128])
@pytest.mark.parametrize("gpu", [GPU_A, GPU_B])
@pytest.mark.parametrize("length", [1, 500, 1919, 1920, 3808, 3809, 4096, 8192, 10**5])
def test_published_q_tiles_shrink_only_while_cus_are_idle(gpu: hardware.HardwareDescriptor, length: int, d: int) -> None:
    """Compares the paper's rule of occupancy with trial; no length in its tables is short enough for it."""
    plan, alone = (derive_tiles(each, L=length, d=d, policy="published") for each in (gpu, replace(gpu, num_cus=1)))
    enough = [queries for queries in range(16, alone.tile_Q + 1, 16) if -(-length // queries) >= gpu.num_cus]
    assert plan.tile_Q == max(enough, default=16) and plan.tile_KV == alone.tile_KV
    assert (plan.tile_Q < alone.tile_Q) <= (plan.binding.name == "occupancy")
    if d == 128 and gpu is GPU_A:
        assert (plan.tile_Q == 32) == (length >= 3809)


def test_e16_lds_of_every_resident_array() -> None:
    """LDS has none of Q, K, V, E: only four waves' partial O, 16 queries by 64 columns (4 words of padding a row), and two
    statistics a query."""
    corrected = derive_tiles(GPU_A, L=16384, d=128)
    assert next(c for c in corrected.constraints if c.name == "LDS").use == 4 * 16 * (64 + 4) * 4 + 4 * 2 * 32 * 4


def test_e25_keys_are_split_over_idle_cus() -> None:
    tiles = derive_tiles(GPU_A, L=1024, d=128)
    assert tiles.split_kv == 3 and tiles.tiles <= 120


@pytest.mark.parametrize("policy", ["published", "corrected"])
def test_what_follows_from_borrowed_figures_says_so(policy: str) -> None:
    for name, assumed in (("gpu_b", True), ("mi300x", False)):
        gpu = hardware.target(name)
        for plan in (TiledComputation(999, 999, 999, gpu, policy).derivation, derive_tiles(gpu, L=999, d=64, policy=policy)):
            notes = {row.name: row.note for row in plan.constraints}
            assert ("assumed: clock, L2 and AccVGPRs are MI100's" in notes["operand bandwidth"]) is assumed


def test_e1_no_tile_follows_from_the_quoted_peak() -> None:
    for gpu in (GPU_A, hardware.target("mi300x")):
        other = replace(gpu, peak_tflops_f32=100 * gpu.peak_tflops_f32)
        for policy in ("published", "corrected"):
            trees = (
                TiledComputation(500, 4096, 999, gpu, policy), Conv2d(Conv2dProblem(1, 3, 50, 50, 64, 3, 3), gpu, policy),
                Softmax(SoftmaxProblem(4, 10**6), gpu, policy), FusedAttention(AttentionProblem(999, 5000, 64), gpu, policy),
            )  # fmt: skip
            for tree in trees:
                assert tree.on(other).derivation.sizes == tree.derivation.sizes
    plans = [Softmax(SoftmaxProblem(4, 99), gpu).derivation for gpu in (GPU_A, replace(GPU_A, peak_tflops_f32=0.1))]
    rows = [next(row for row in plan.constraints if row.name == "HBM bandwidth") for plan in plans]
    memory, flops = 1e6 * 4 * 99 * 8 / 1.2e12, 5 * 4 * 99
    assert [(row.use, row.limit) for row in rows] == [pytest.approx(pair) for pair in ((memory, memory), (memory, flops / 0.1e6))]


@pytest.mark.parametrize("policy", ["published", "corrected"])
def test_head_dimension_that_cannot_fit(policy: str) -> None:
    tiles = derive_tiles(GPU_A, L=4096, d=4096, policy=policy)
    name = "LDS" if policy == "published" else "ArchVGPR"
    assert not tiles.feasible and tiles.binding.name in (name, "VGPR") and "fits" in tiles.remedy
    largest = int(tiles.remedy.split("d <= ")[1].split()[0])
    rows = [
        next(c for c in derive_tiles(GPU_A, L=4096, d=d, policy=policy).constraints if c.name == name)
        for d in (largest, largest + 16)
    ]
    assert rows[0].satisfied and not rows[1].satisfied


@pytest.mark.parametrize(
    ("bad", "message"), [(dict(L=0), "L = 0"), (dict(d=0), "d = 0"), (dict(policy="x"), "policy")]
)
def test_bad_attention_input(bad: dict[str, object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        derive_tiles(GPU_A, **{**dict(L=16, d=16), **bad})  # type: ignore[arg-type]
