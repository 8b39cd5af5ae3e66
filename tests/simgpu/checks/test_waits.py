"""Missing waits: each kind broken on purpose, and its silent repaired twin."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.timing_rules.waits import awaited_counters
from tests.support.checked import findings, line_of

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
ALL = ["gfx908", "gfx90a", "gfx942", "gfx950"]
DMA = [
    "s_mov_b32 s24, s4", "s_mov_b32 s25, s5", "s_movk_i32 s26, 0x4000", "s_mov_b32 s27, 0x27000",
    "s_mov_b32 m0, 0", "s_nop 0", "buffer_load_dword v60, s[24:27], 0 offen lds",
]  # fmt: skip
GLOBAL, LDS, SCALAR = "global_load_dword v1, v60, s[4:5]", "ds_read_b32 v1, v60", "s_load_dword s20, s[4:5], 0x0"

# Lines, the wait that is missing before the last one, and the line of the awaited operation.
BROKEN: dict[str, tuple[list[str], str, int]] = {
    "load, read": ([GLOBAL, "v_add_u32 v2, v1, v1"], "vmcnt(0)", 0),
    "load, overwritten": ([GLOBAL, "v_mov_b32 v1, v60"], "vmcnt(0)", 0),
    "load, stored": ([GLOBAL, "global_store_dword v60, v1, s[6:7]"], "vmcnt(0)", 0),
    "load, its address": ([GLOBAL, "global_load_dword v2, v1, s[4:5]"], "vmcnt(0)", 0),
    "second half": (["global_load_dwordx2 v[2:3], v60, s[4:5]", "v_mov_b32 v4, v3"], "vmcnt(0)", 0),
    "first of three": (
        [GLOBAL, "global_load_dword v2, v60, s[4:5]", "global_store_dword v60, v60, s[6:7]", "v_mov_b32 v3, v1"],
        "vmcnt(2)", 0,
    ),
    "weak count": (
        [GLOBAL, "global_load_dword v2, v60, s[4:5]", "s_waitcnt vmcnt(1)", "v_mov_b32 v3, v2"], "vmcnt(0)", 1,
    ),
    "the later of two": (
        [GLOBAL, "global_load_dword v2, v60, s[4:5]", "v_add_u32 v3, v1, v2"], "vmcnt(0)", 1,
    ),
    "wrong counter": ([GLOBAL, "s_waitcnt lgkmcnt(0)", "v_mov_b32 v3, v1"], "vmcnt(0)", 0),
    "buffer": ([*DMA[:4], "buffer_load_dword v1, v60, s[24:27], 0 offen", "v_mov_b32 v2, v1"], "vmcnt(0)", 4),
    "d16, other half": (
        ["global_load_short_d16_hi v1, v60, s[4:5]", "v_and_b32 v2, 0xffff, v1"], "vmcnt(0)", 0,
    ),
    "atomic with return": (
        ["v_mov_b32 v2, v60", "global_atomic_add v1, v60, v2, s[6:7] {glc}", "v_mov_b32 v3, v1"], "vmcnt(0)", 1,
    ),
    "LDS, read": ([LDS, "v_mov_b32 v2, v1"], "lgkmcnt(0)", 0),
    "LDS, in order": ([LDS, "ds_read_b32 v2, v60", "v_mov_b32 v3, v1"], "lgkmcnt(1)", 0),
    "LDS, overwritten": ([LDS, "v_mov_b32 v1, v60"], "lgkmcnt(0)", 0),
    "LDS, overwritten by a load": ([LDS, GLOBAL], "lgkmcnt(0)", 0),
    "LDS atomic": (["ds_add_rtn_u32 v1, v60, v60", "v_mov_b32 v2, v1"], "lgkmcnt(0)", 0),
    "permutation": (["ds_bpermute_b32 v1, v60, v60", "v_mov_b32 v2, v1"], "lgkmcnt(0)", 0),
    "scalar, read": ([SCALAR, "s_add_u32 s21, s20, s20"], "lgkmcnt(0)", 0),
    "scalar, VALU reads": ([SCALAR, "v_mov_b32 v2, s20"], "lgkmcnt(0)", 0),
    "scalar, overwritten": ([SCALAR, "s_mov_b32 s20, 0"], "lgkmcnt(0)", 0),
    "scalar, out of order": (
        [SCALAR, "s_load_dword s21, s[4:5], 0x4", "s_waitcnt lgkmcnt(1)", "s_mov_b32 s22, s20"], "lgkmcnt(0)", 0,
    ),
    "scalar, overwritten by another": ([SCALAR, "s_load_dword s20, s[4:5], 0x4"], "lgkmcnt(0)", 0),
    "scalar into VCC": (
        ["s_load_dwordx2 vcc, s[4:5], 0x0", "v_cndmask_b32 v1, v60, v60, vcc"], "lgkmcnt(0)", 0,
    ),
    "clock": (["s_memtime s[20:21]", "s_mov_b32 s22, s21"], "lgkmcnt(0)", 0),
    "LDS among scalar loads": (
        [LDS, SCALAR, "s_waitcnt lgkmcnt(1)", "v_mov_b32 v2, v1"], "lgkmcnt(0)", 0,
    ),
    "flat": (
        ["v_mov_b32 v4, s4", "v_mov_b32 v5, s5", "flat_load_dword v1, v[4:5]", "v_mov_b32 v2, v1"],
        "vmcnt(0) lgkmcnt(0)", 2,
    ),
    "flat, half waited for": (
        ["v_mov_b32 v4, s4", "v_mov_b32 v5, s5", "flat_load_dword v1, v[4:5]", "s_waitcnt vmcnt(0)",
         "v_mov_b32 v2, v1"], "lgkmcnt(0)", 2,
    ),
}  # fmt: skip


def lines_for(target: str, lines: list[str]) -> list[str]:
    modern = target in ("gfx942", "gfx950")
    return [line.replace("{glc}", "sc0" if modern else "glc") for line in lines]


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
@pytest.mark.parametrize("row", BROKEN)
def test_each_kind(row: str, target: str) -> None:
    broken, wait, other = BROKEN[row]
    broken = lines_for(target, broken)
    (finding,) = findings(target, broken, block=128)
    assert finding.kind == "missing-wait"
    assert finding.source == line_of(target, broken, len(broken) - 1)
    assert finding.other_source == line_of(target, broken, other)
    assert f"s_waitcnt {wait} is needed" in finding.message
    assert finding.count == 2  # two waves
    repaired = [*broken[:-1], f"s_waitcnt {wait}", broken[-1]]
    assert findings(target, repaired, block=128) == []


GOOD = {
    "loads in order to one register": [GLOBAL, GLOBAL, "s_waitcnt vmcnt(0)", "v_mov_b32 v2, v1"],
    "LDS loads in order to one register": [LDS, LDS, "s_waitcnt lgkmcnt(0)", "v_mov_b32 v2, v1"],
    "store data": ["global_store_dword v60, v1, s[6:7]", "v_mov_b32 v1, v60"],
    "LDS store data": ["ds_write_b32 v60, v1", "v_mov_b32 v1, v60", "s_waitcnt lgkmcnt(0)"],
    "address": ["v_mov_b32 v2, v60", "global_load_dword v1, v2, s[4:5]", "v_mov_b32 v2, 0"],
    "LDS past scalar loads": [LDS, "ds_read_b32 v2, v60", SCALAR, "s_waitcnt lgkmcnt(1)", "v_mov_b32 v3, v1"],
    "an atomic without return": ["ds_add_u32 v60, v1", "v_mov_b32 v1, v60", "s_waitcnt lgkmcnt(0)"],
    "never used": [GLOBAL, SCALAR, "ds_read_b32 v2, v60"],
    "no room for more loads and stores": [GLOBAL, *["global_store_dword v60, v60, s[6:7]"] * 63, "v_mov_b32 v2, v1"],
    "read by what there was no room for": [
        GLOBAL,
        *["global_store_dword v60, v60, s[6:7]"] * 62,
        "global_store_dword v60, v1, s[6:7]",
    ],
}


@pytest.mark.parametrize("row", GOOD)
def test_silence(row: str) -> None:
    assert findings("gfx90a", GOOD[row], block=128) == []


# v62: a work-item's own dword of LDS; v63: the same lane's dword in the other of two waves.
HALVES = ["v_and_b32 v62, 0x3ff, v0", "v_lshlrev_b32 v62, 2, v62", "v_xor_b32 v63, 0x100, v62"]
DONE = "s_waitcnt lgkmcnt(0)"
# One wave's operation in flight, the other wave's access after the barrier, and the sufficient lgkmcnt.
ACROSS = {
    "store, read": ("ds_write_b32 v62, v60", "ds_read_b32 v2, v63", "lgkmcnt(0)"),
    "store, overwritten": ("ds_write_b32 v62, v60", "ds_write_b32 v63, v60", "lgkmcnt(0)"),
    "read, overwritten": ("ds_read_b32 v1, v62", "ds_write_b32 v63, v60", "lgkmcnt(0)"),
    "read, overwritten by an atomic": ("ds_read_b32 v1, v62", "ds_add_u32 v63, v60", "lgkmcnt(0)"),
    "atomic, read": ("ds_add_u32 v62, v60", "ds_read_b32 v2, v63", "lgkmcnt(0)"),
    "two dwords": ("ds_write2_b32 v62, v60, v60 offset1:128", "ds_read_b32 v2, v63 offset:512", "lgkmcnt(0)"),
    "a byte of it": ("ds_write_b32 v62, v60", "ds_read_u8 v2, v63 offset:3", "lgkmcnt(0)"),
    "the first of two": ("ds_write_b32 v62, v60\nds_read_b32 v1, v62 offset:2048", "ds_read_b32 v2, v63", "lgkmcnt(1)"),
    "as many as there is room for": (
        "\n".join(["ds_write_b32 v62, v60", *["ds_read_b32 v1, v62 offset:2048"] * 14]),
        "ds_read_b32 v2, v63",
        "lgkmcnt(14)",
    ),
    "one among permutes": ("ds_write_b32 v62, v60\nds_bpermute_b32 v1, v60, v60", "ds_read_b32 v2, v63", "lgkmcnt(1)"),
}


@pytest.mark.parametrize("target", ["gfx908", "gfx950"])
@pytest.mark.parametrize("row", ACROSS)
def test_lds_in_flight_at_a_barrier(row: str, target: str) -> None:
    before, behind, wait = ACROSS[row]
    start = [*HALVES, *before.splitlines()]
    (finding,) = findings(target, [*start, "s_barrier", behind, DONE], block=128)
    assert (finding.kind, finding.count) == ("missing-wait", 2)
    assert finding.source == line_of(target, start, len(start) + 1)
    assert finding.other_source == line_of(target, start, len(HALVES))
    assert f"s_waitcnt {wait} is needed" in finding.message and "another wave's" in finding.message
    assert findings(target, [*start, f"s_waitcnt {wait}", "s_barrier", behind, DONE], block=128) == []


IN_FLIGHT = {
    "one wave": (["ds_write_b32 v62, v60", "s_barrier", "ds_read_b32 v2, v62", DONE], 64),
    "nobody touches it": (["ds_write_b32 v62, v60", "s_barrier", "ds_read_b32 v2, v62", DONE], 128),
    "both read": (["ds_read_b32 v1, v62", "s_barrier", "ds_read_b32 v2, v63", DONE], 128),
    "no room for more": (
        ["ds_write_b32 v62, v60", *["ds_read_b32 v1, v62 offset:2048"] * 15, "s_barrier", "ds_read_b32 v2, v63", DONE], 128,
    ),
    "both add": (["ds_add_u32 v62, v60", "s_barrier", "ds_add_u32 v63, v60", DONE], 128),
    "waited for before the next": (
        ["ds_read_b32 v1, v62", "s_barrier", "ds_write_b32 v62, v60 offset:512", DONE, "s_barrier", "ds_write_b32 v63, v60", DONE],
        128,
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", IN_FLIGHT)
def test_silence_about_lds_in_flight(row: str) -> None:
    lines, block = IN_FLIGHT[row]
    assert findings("gfx90a", [*HALVES, *lines], block=block) == []


def test_lds_in_flight_over_two_barriers() -> None:
    behind = ["ds_read_b32 v2, v63 offset:512", "s_barrier", "ds_write_b32 v63, v60", DONE]
    lines = [*HALVES, "ds_read_b32 v1, v62", "s_barrier", *behind]
    (finding,) = findings("gfx942", lines, block=128)
    assert "lgkmcnt(1)" in finding.message and finding.other_text == "ds_read_b32 v1, v62"
    lines[-3:-3] = ["s_waitcnt lgkmcnt(1)"]
    assert findings("gfx942", lines, block=128) == []


def test_ping_pong_reads_across_barriers() -> None:
    """Reads of one buffer are under way at a barrier; after it the waves overwrite the other one."""
    turn = [
        "ds_read_b32 v1, v63", "v_xor_b32 v62, 0x400, v62", "v_xor_b32 v63, 0x400, v63", "s_barrier", "ds_write_b32 v62, v60",
        "s_waitcnt lgkmcnt({left})", "s_barrier",
    ]  # fmt: skip
    lines = [*HALVES, "ds_write_b32 v62, v60", DONE, "s_barrier", "s_mov_b32 s30, 6", "loop:", *turn,
             "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop"]  # fmt: skip
    assert findings("gfx90a", [line.format(left=0) for line in lines], block=128) == []
    (finding,) = findings("gfx90a", [line.format(left=1) for line in lines], block=128)
    assert (finding.text, finding.other_text) == ("ds_read_b32 v1, v63", "ds_write_b32 v62, v60")
    # The same buffer instead of the other one: the read may see writes after the barrier.
    same = [line.format(left=0) for line in lines if "0x400" not in line]
    (finding,) = findings("gfx90a", same, block=128)
    assert (finding.text, finding.other_text) == ("ds_write_b32 v62, v60", "ds_read_b32 v1, v63")


def test_kernel_end_with_lds_dma_in_flight() -> None:
    jump = ["s_waitcnt vmcnt(1)", "s_endpgm"]
    (finding,) = findings("gfx90a", [*DMA, *jump])
    assert (finding.kind, finding.text) == ("missing-wait", "s_endpgm")
    assert finding.other_source == line_of("gfx90a", [*DMA, *jump], len(DMA) - 1)
    assert findings("gfx90a", [*DMA, "s_waitcnt vmcnt(0)", "s_endpgm"]) == []


READ_DMA = ["v_lshlrev_b32 v62, 2, v0", "ds_read_b32 v1, v62"]
LATER = "global_load_dword v2, v60, s[4:5]"


@pytest.mark.parametrize("target", TARGETS)
def test_lds_read_before_its_dma_was_waited_for(target: str) -> None:
    more = ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_endpgm"]
    (finding,) = findings(target, [*DMA, LATER, *READ_DMA, *more])
    assert finding.kind == "missing-wait"
    assert finding.other_source == line_of(target, DMA, len(DMA) - 1)
    assert finding.source == line_of(target, DMA, len(DMA) + 2)
    assert "vmcnt(1) is needed before it" in finding.message
    assert finding.needed == 1
    assert findings(target, [*DMA, LATER, "s_waitcnt vmcnt(1)", *READ_DMA, *more]) == []
    # Code may touch other LDS meanwhile, past the 64 loaded dwords.
    assert findings(target, [*DMA, *READ_DMA[:1], "ds_read_b32 v1, v62 offset:256", *more]) == []
    (finding,) = findings(target, [*DMA, *READ_DMA[:1], "ds_write_b8 v62, v1 offset:3", *more])
    assert "is overwritten before" in finding.message


def test_dma_of_another_wave() -> None:
    """Each wave loads its own 256 bytes and reads the other's."""
    load = [
        "v_readfirstlane_b32 s30, v0", "s_lshl_b32 s30, s30, 2", *DMA[:4], "s_mov_b32 m0, s30", "s_nop 4",
        "buffer_load_dword v60, s[24:27], 0 offen lds",
    ]  # fmt: skip
    read = ["s_xor_b32 s30, s30, 0x100", "v_and_b32 v62, 63, v0", "v_lshlrev_b32 v62, 2, v62",
            "v_add_u32 v62, s30, v62", "ds_read_b32 v1, v62", "s_waitcnt vmcnt(0) lgkmcnt(0)"]  # fmt: skip
    (finding,) = findings("gfx90a", [*load, "s_barrier", *read], block=128)
    assert "another wave's" in finding.message
    assert finding.count == 2
    assert findings("gfx90a", [*load, "s_waitcnt vmcnt(0)", "s_barrier", *read], block=128) == []


def test_only_the_path_that_was_taken() -> None:
    """A wait is in one branch only: the other branch is found, as often as it was taken."""
    lines = [
        "s_mov_b32 s30, 5", "loop:", GLOBAL, "s_and_b32 s31, s30, 1", "s_cmp_eq_u32 s31, 0",
        "s_cbranch_scc1 skip", "s_waitcnt vmcnt(0)", "skip:", "v_mov_b32 v2, v1", "s_sub_u32 s30, s30, 1",
        "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop",
    ]  # fmt: skip
    (finding,) = findings("gfx90a", lines)
    assert (finding.count, finding.place) == (2, "v1")
    always = [line if "cbranch_scc1 skip" not in line else "s_nop 0" for line in lines]
    assert findings("gfx90a", always) == []


def test_a_loop_carries_its_loads_around() -> None:
    """Loads of the next turn are in flight and awaited by count, as in software pipelines."""
    turn = [
        "global_load_dword v2, v60, s[4:5]", "global_load_dword v3, v60, s[4:5]", "s_waitcnt vmcnt({})",
        "v_mov_b32 v4, v1", "v_mov_b32 v1, 0", "global_load_dword v1, v60, s[4:5]", "s_waitcnt vmcnt(1)",
        "v_add_u32 v4, v2, v3",
    ]  # fmt: skip
    around = [GLOBAL, "s_mov_b32 s30, 9", "loop:", *turn, "s_sub_u32 s30, s30, 1", "s_cmp_lg_u32 s30, 0",
              "s_cbranch_scc1 loop"]  # fmt: skip
    right = [line.format(2) for line in around]
    assert findings("gfx942", right) == []
    (finding,) = findings("gfx942", [line.format(3) for line in around])
    # The load before the loop and the load in it are two; a single wait serves both.
    assert (finding.pairs, finding.count, finding.text) == (2, 8, "v_mov_b32_e32 v4, v1")
    (other,) = finding.places
    assert (other.pc, other.count) == (finding.pc, 1)
    assert finding.other_pc != other.other_pc and finding.other_text == other.other_text == "global_load_dword v1, v60, s[4:5]"


def test_findings_of_both_entries_are_one_pair_each() -> None:
    """A loop's first load is another instruction than the later ones; they lack the same wait."""
    lines = [GLOBAL, "s_mov_b32 s30, 4", "loop:", "v_mov_b32 v2, v1", GLOBAL, "s_sub_u32 s30, s30, 1",
             "s_cmp_lg_u32 s30, 0", "s_cbranch_scc1 loop"]  # fmt: skip
    (finding,) = findings("gfx90a", lines)
    (other,) = finding.places
    assert (finding.count, other.count, finding.pairs) == (3, 1, 2)
    assert finding.pc == other.pc


@pytest.mark.parametrize(
    ("first", "younger", "room"),
    [(GLOBAL, ["global_store_dword v60, v60, s[6:7]"] * 62, "vmcnt(62)"), (LDS, ["ds_write_b32 v61, v60"] * 14, "lgkmcnt(14)")],
)
def test_as_many_operations_as_a_counter_holds(first: str, younger: list[str], room: str) -> None:
    """With another operation the first is complete: a full counter makes the hardware hold the operation back."""
    (finding,) = findings("gfx90a", [first, *younger, "v_mov_b32 v2, v1"])
    assert room in finding.message
    assert findings("gfx90a", [first, *younger, f"s_waitcnt {room}", "v_mov_b32 v2, v1"]) == []
    assert findings("gfx90a", [first, *younger, younger[0], "v_mov_b32 v2, v1"]) == []


def test_all_workgroups_count() -> None:
    (finding,) = findings("gfx90a", [LDS, "v_mov_b32 v2, v1"], block=192, grid=7)
    assert finding.count == 21


def test_what_waitcnt_says() -> None:
    assert awaited_counters(0x0F70) == {"vmcnt": 0}
    assert awaited_counters(0xCF7F) == {}
    assert awaited_counters(0xC07F) == {"lgkmcnt": 0}
    assert awaited_counters(0x8F71) == {"vmcnt": 33}
    assert np.all([awaited_counters(0)[name] == 0 for name in ("vmcnt", "expcnt", "lgkmcnt")])
