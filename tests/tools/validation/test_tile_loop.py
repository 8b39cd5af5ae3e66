"""Loop that a Tensile kernel's name describes."""

from __future__ import annotations

import pytest

from simgpu import hardware
from simgpu.hardware.timing_rules.issue import Issue, Kind
from simgpu.tools.validation import tensile
from simgpu.tools.validation.rows import Measurement
from simgpu.tools.validation.tile_kernel import at_its_clock, tuned_time
from simgpu.tools.validation.tile_loop import TileKernel, epilogue_issues, prologue_issues, step

MI100, MI250X, MI300X = (hardware.target(name) for name in ("mi100", "mi250x", "mi300x"))
TAIL = "GRVW8_LRVW4_PGR1_PLR1_SRVW4_TT2_64_WG64_4_1_WGM8"


def kernel(name: str, chip: hardware.HardwareDescriptor = MI100) -> TileKernel:
    row = Measurement(f"Tensile {name}", "", chip.arch, "", "M=1 N=1 batch=1 K=1", "", "", 1.0, "", "")
    return tensile.kernel_of(row, chip)


def half(sides: str = "Alik_Bljk", rest: str = TAIL) -> TileKernel:
    return kernel(f"Cijk_{sides}_HHS_BH_MT128x128x32_MI32x32x8x1_SE_1LDSB0_{rest}")


def of(kind: Kind, issues: list[Issue], store: bool = False) -> list[int]:
    return [at for at, issue in enumerate(issues) if issue.kind is kind and issue.store is store]


@pytest.mark.parametrize("rest", [TAIL, TAIL.replace("PGR1", "PGR2"), TAIL + "_GRPM0p30"])
@pytest.mark.parametrize("sides", ["Alik_Bljk", "Ailk_Bljk", "Ailk_Bjlk", "Alik_Bjlk"])
def test_a_step_loads_stores_and_reads_a_tile(sides: str, rest: str) -> None:
    tile = half(sides, rest)
    issues = step(tile)
    assert len(of(Kind.MATRIX, issues)) == tile.atoms == 128 * 128 * 32 // (32 * 32 * 8) // 4
    assert len(of(Kind.VMEM, issues)) == len(of(Kind.LDS, issues, store=True)) == sum(tile.loads())
    assert sum(64 * issues[at].lane_bytes for at in of(Kind.LDS, issues)) == (tile.wave_m + tile.wave_n) * 32 * 2


def test_each_store_to_lds_waits_for_its_load() -> None:
    issues = step(half())
    loads, stores = of(Kind.VMEM, issues), of(Kind.LDS, issues, store=True)
    assert max(loads) < min(stores)
    assert [issues[at - 1].vm for at in stores] == list(reversed(range(len(loads))))


def test_two_tiles_ahead_load_a_register_once_it_is_stored() -> None:
    tile = half(rest=TAIL.replace("PGR1", "PGR2"))
    issues = step(tile)
    assert [at + 1 for at in of(Kind.LDS, issues, store=True)] == of(Kind.VMEM, issues)
    assert len(of(Kind.VMEM, prologue_issues(tile))) == 2 * sum(tile.loads())


def test_one_tile_in_lds_is_read_whole_before_the_next_is_stored() -> None:
    issues = step(kernel(f"Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SE_1LDSB1_{TAIL}"))
    barriers = of(Kind.BARRIER, issues)
    stores, reads = of(Kind.LDS, issues, store=True), of(Kind.LDS, issues)
    assert len(barriers) == 2 and all(barriers[0] < at < barriers[1] for at in stores)
    assert not any(barriers[0] < at < barriers[1] for at in reads)


@pytest.mark.parametrize(
    "sides, widths", [("Alik_Bljk", (8, 8)), ("Ailk_Bljk", (2, 8)), ("Ailk_Bjlk", (2, 2)), ("Alik_Bjlk", (8, 2))]
)  # fmt: skip
def test_where_k_does_not_lie_side_by_side_an_element_is_read_at_a_time(sides: str, widths: tuple[int, int]) -> None:
    tile = half(sides)
    assert (tile.read_a, tile.read_b) == widths
    assert (tile.packs > 0) == (2 in widths)
    if 2 in widths:
        slow, fast = (at_its_clock(one, MI100, 4096, 4096, 4096)[0].cycles for one in (tile, half()))
        assert slow > fast


def test_waves_that_no_name_tells_divide_a_tile_so_that_they_read_least() -> None:
    tile = kernel("Cijk_Ailk_Bjlk_SB_MT128x128x16_MI32x32x2x1_SN_WGM8")
    assert (tile.wave_m, tile.wave_n) == (64, 64)
    assert (half().wave_m, half().wave_n) == (64, 64)
    assert kernel("Cijk_Ailk_Bjlk_SB_MT128x64x16_MI32x32x2x1_SN_TT1_64_WG128_2_1").wave_m == 32


@pytest.mark.parametrize("said, each", [("SRVW4", 4), ("SRVW0_SS1_SVW2", 2), ("SRVW0_SS1_SVW1", 1)])
def test_results_are_stored_as_many_at_a_time_as_the_name_says(said: str, each: int) -> None:
    tile = half(rest=TAIL.replace("SRVW4", said))
    stores = of(Kind.VMEM, epilogue_issues(tile), store=True)
    assert len(stores) == tile.results // each


def test_what_a_name_leaves_out_is_as_most_of_its_library_have_it() -> None:
    """DGEMM of gfx90a has one tile in LDS, two on their way (458 of 478 and 576 of 585 kernels without that setting in their
    name)."""
    tile = kernel("Cijk_Ailk_Bjlk_DB_MT128x128x16_MI16x16x4x1_SN_WGM8", MI250X)
    assert (tile.stages, tile.ahead, tile.stored) == (1, 2, 2)
    tile = kernel("Cijk_Ailk_Bjlk_DB_MT128x128x16_MI16x16x4x1_SN_1LDSB0_PGR1_SVW1_WGM8", MI250X)
    assert (tile.stages, tile.ahead, tile.stored) == (2, 1, 1)


@pytest.mark.slow
def test_tuning_splits_a_long_k_where_tiles_are_few() -> None:
    tile = kernel("Cijk_Ailk_Bljk_BBS_BH_MT256x256x64_MI16x16x16x1_SN_WGM8", MI300X)
    alone, few = at_its_clock(tile, MI300X, 1024, 2048, 32768)[0].cycles, tuned_time(tile, MI300X, 1024, 2048, 32768).cycles
    assert few < 0.6 * alone
    many = at_its_clock(tile, MI300X, 8192, 16384, 2048)[0].cycles
    assert tuned_time(tile, MI300X, 8192, 16384, 2048).cycles == many
