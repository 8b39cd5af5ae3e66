"""The paper's numbers, each reproduced under "published" or refuted with its erratum."""

from __future__ import annotations

from math import isqrt

import pytest

import hardware
from hardware.errors import LaunchError
from operators import TiledComputation, derive_tiles

GPU_A, GPU_B = hardware.target("gpu_a"), hardware.target("gpu_b")


def test_derivation_example() -> None:
    plan = TiledComputation(4096, 4096, 4096, target=GPU_A, policy="published").plan
    assert (plan.tile_m, plan.tile_n, plan.tile_k) == (128, 128, 32)
    assert (plan.warp_m, plan.warp_n, plan.warp_k) == (32, 32, 8)
    assert (plan.waves, plan.stages, plan.resources.lds_bytes) == (16, 1, 32 * 1024)
    assert f"{plan.blocks_per_cu:.1f}" == "8.5"
    assert plan.resources.acc_vgprs == 32 * 32 // 64 == 16


def test_e4_printed_formula_gives_90() -> None:
    assert isqrt(64 * 1024 // 2 // 4) == 90
    assert isqrt(64 * 1024 // 4) == 128


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


@pytest.mark.parametrize("policy", ["published", "corrected"])
def test_tiles_a_and_b(policy: str) -> None:
    a, b = (derive_tiles(gpu, L=16384, d=128, policy=policy) for gpu in (GPU_A, GPU_B))
    assert (a.tile_Q, a.tile_KV) == (b.tile_Q, b.tile_KV) == (32, 64)
    assert a.feasible and b.feasible
    assert round(a.occupancy, 2) == 4.27 and round(b.occupancy, 2) == 1.68  # E11: the paper prints 0.27 and 1.69
    assert a.occupancy - 4 == pytest.approx(0.27, abs=0.005)
    assert a.eta == pytest.approx(512 / 600)


def test_e16_lds_of_every_resident_array() -> None:
    corrected = derive_tiles(GPU_A, L=16384, d=128)
    assert next(c for c in corrected.constraints if c.name == "LDS").use == 2 * 64 * 128 * 4


def test_e25_keys_are_split_over_idle_cus() -> None:
    tiles = derive_tiles(GPU_A, L=1024, d=128)
    assert tiles.split_kv == 3 and tiles.tiles <= 120


@pytest.mark.parametrize("policy", ["published", "corrected"])
def test_head_dimension_that_cannot_fit(policy: str) -> None:
    tiles = derive_tiles(GPU_A, L=4096, d=4096, policy=policy)
    assert not tiles.feasible and tiles.binding.name in ("LDS", "VGPR") and "fits" in tiles.remedy
    largest = int(tiles.remedy.split("d <= ")[1].split()[0])
    lds = [next(c for c in derive_tiles(GPU_A, L=4096, d=d, policy=policy).constraints if c.name == "LDS") for d in (largest, largest + 16)]
    assert lds[0].satisfied and not lds[1].satisfied


@pytest.mark.parametrize(("bad", "message"), [(dict(L=0), "L = 0"), (dict(d=24), "pad the head dimension to 32"), (dict(policy="x"), "policy")])
def test_bad_attention_input(bad: dict[str, object], message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        derive_tiles(GPU_A, **{**dict(L=16, d=16), **bad})  # type: ignore[arg-type]
