"""Widths of address sums, with operands around the wrap: plain, with some lanes, and checked.

Each row names a place twice: as the tested instruction does, and by operands whose sum cannot wrap.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.errors import MemoryFault
from tests.support.engine_kernel import Executed, execute

u32 = np.uint32
LDS = 8192
ALL = ("gfx908", "gfx90a", "gfx942", "gfx950")
PRIVATE = {"enable_private_segment": 1, "private_segment_fixed_size": 64}
# EXEC for the instruction: all lanes (whole-wave paths), or not.
MASKS = (-1, -9)


def image() -> np.ndarray:
    return np.random.default_rng(7).integers(0, 256, LDS, dtype=np.uint8)


def run(target: str, lines: list[str], mask: int, dump: list[str], check: bool, **options: Any) -> Executed:
    """Runs the lines with the input in LDS and at s[4:5]; copies LDS back there. v0: lane, v60: 4·lane."""
    fill = ["v_lshlrev_b32 v50, 4, v0", "s_movk_i32 s16, 0", "fill:", "v_add_u32 v51, s16, v50",
            "global_load_dwordx4 v[52:55], v51, s[4:5]", "s_waitcnt vmcnt(0)", "ds_write_b128 v51, v[52:55]",
            "s_add_u32 s16, s16, 0x400", f"s_cmp_lt_u32 s16, {LDS}", "s_cbranch_scc1 fill", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    drain = ["s_movk_i32 s16, 0", "s_waitcnt vmcnt(0) lgkmcnt(0)", "drain:", "v_add_u32 v51, s16, v50",
             "ds_read_b128 v[52:55], v51", "s_waitcnt lgkmcnt(0)", "global_store_dwordx4 v51, v[52:55], s[4:5]",
             "s_add_u32 s16, s16, 0x400", f"s_cmp_lt_u32 s16, {LDS}", "s_cbranch_scc1 drain"]  # fmt: skip
    clear = [f"v_mov_b32 v{register}, 7" for register in range(2, 10)]
    under_test = [f"s_mov_b64 exec, {mask}", *lines, "s_waitcnt vmcnt(0) lgkmcnt(0)"]
    return execute(
        target, "\n".join([*fill, *clear, *under_test, "s_mov_b64 exec, -1", *drain]), dump, image(),
        check=check, group_segment_fixed_size=LDS, **options,
    )  # fmt: skip


DUMP = [f"v{register}" for register in range(2, 8)]


def same(target: str, wrapped: list[str], plain: list[str], mask: int, check: bool, **options: Any) -> None:
    got, want = (run(target, lines, mask, DUMP, check, **options) for lines in (wrapped, plain))
    assert not got.run.findings, got.run.findings[0]
    for register in DUMP:
        np.testing.assert_array_equal(got[register], want[register], err_msg=register)
    np.testing.assert_array_equal(got.memory, want.memory)
    assert any((want[register] != 7).any() for register in DUMP) or (want.memory != image()).any()


@dataclass(frozen=True)
class Sum:
    """A line with {offset}, once with an offset that wraps and once with a plain one."""

    line: str  # with {offset}
    offset: str  # offset of the sum that wraps
    wrapped: int  # bytes from the plain sum's base down to this one's
    plain: str = ""  # offset of the plain sum
    step: int = 4  # bytes from lane to lane
    targets: tuple[str, ...] = ALL
    base: int = 0  # lane 0's; 0: half of the lanes are below 0


# -- LDS: 32 bits, modulo 2^32 (LLVM, hasUsableDSOffset) -------------------------------------------

LOADS = [
    Sum(f"ds_read_{kind} {data}, v1 {{offset}}", "offset:4416", 4416, step=step)
    for kind, data, step in (
        ("b32", "v2", 4), ("b64", "v[2:3]", 8), ("b96", "v[2:4]", 12), ("b128", "v[2:5]", 16), ("u8", "v2", 1), ("i16", "v2", 2),
        ("u8_d16_hi", "v2", 1), ("u16_d16", "v2", 2),
    )
]  # fmt: skip
LDS_SUMS = [
    *LOADS,
    Sum("ds_read2_b32 v[2:3], v1 {offset}", "offset0:200 offset1:255", 800, "offset0:0 offset1:55"),
    Sum("ds_read2_b64 v[2:5], v1 {offset}", "offset0:255 offset1:200", 1600, "offset0:55 offset1:0", 8),
    Sum("ds_read2st64_b32 v[2:3], v1 {offset}", "offset0:31 offset1:16", 4096, "offset0:15 offset1:0"),
    Sum("ds_read2st64_b64 v[2:5], v1 {offset}", "offset0:9 offset1:8", 4096, "offset0:1 offset1:0", 8),
    Sum("ds_write_b32 v1, v60 {offset}", "offset:65535", 65535, base=-65535),
    Sum("ds_write_b128 v1, v[50:53] {offset}", "offset:4416", 4416, step=16),
    Sum("ds_write_b96 v1, v[50:52] {offset}", "offset:4416", 4416, step=12),
    Sum("ds_write_b8 v1, v60 {offset}", "offset:300", 300, step=1),
    Sum("ds_write_b16_d16_hi v1, v50 {offset}", "offset:300", 300, step=2),
    Sum("ds_write2_b32 v1, v60, v0 {offset}", "offset0:130 offset1:200", 400, "offset0:30 offset1:100"),
    Sum("ds_write2st64_b64 v1, v[50:51], v[52:53] {offset}", "offset0:3 offset1:2", 1024, "offset0:1 offset1:0", 8),
    Sum("ds_add_rtn_u32 v2, v1, v0 {offset}", "offset:1024", 1024),
    Sum("ds_cmpst_rtn_b64 v[2:3], v1, v[50:51], v[52:53] {offset}", "offset:1024", 1024, step=8),
    Sum("ds_wrxchg2_rtn_b32 v[2:3], v1, v0, v60 {offset}", "offset0:255 offset1:129", 512, "offset0:127 offset1:1"),
    Sum("ds_read_b64_tr_b16 v[2:3], v1 {offset}", "offset:4416", 4416, step=8, targets=("gfx950",)),
]


@pytest.mark.covering(1)
@pytest.mark.parametrize("sum_", LDS_SUMS, ids=lambda row: row.line.split()[0])
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_lds(sum_: Sum, check: bool) -> None:
    """Lanes of the lower half have a negative base, the others do not."""
    for target, mask in itertools.product(sum_.targets[-1 if check else 0 :], MASKS):
        base = sum_.base or -32 * sum_.step
        wrapped, plain = (
            [f"v_mul_u32_u24 v1, {sum_.step}, v0", f"v_add_u32 v1, {begin & 0xFFFFFFFF:#x}, v1", sum_.line.format(offset=offset)]
            for begin, offset in ((base, sum_.offset), (base + sum_.wrapped, sum_.plain))
        )
        same(target, wrapped, plain, mask, check)


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_lds_beyond_the_block_after_the_wrap(check: bool) -> None:
    """0xFFFFFFFC + 4 is place 0; 0xFFFFFFFC itself, or a sum at the block's end, is outside."""
    at = "v_mov_b32 v1, 0xfffffffc\n"
    assert (execute("gfx950", at + "ds_write_b32 v1, v0 offset:4\nds_read_b32 v2, v1 offset:4", ["v2"], check=check,
                    group_segment_fixed_size=16)["v2"] == 63).all()  # fmt: skip
    for line in ("b32 v1, v2", "b64 v1, v[2:3]", "b128 v1, v[2:5] offset:1276", "b32 v1, v2 offset:1284"):
        with pytest.raises(MemoryFault, match="LDS offset"):
            execute("gfx950", f"{at}ds_write_{line}", group_segment_fixed_size=16, check=check)


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
def test_addtid(target: str) -> None:
    """M0[15:0] + offset + 4·lane."""
    low = ["s_mov_b32 m0, 0xabcd0040", "ds_read_addtid_b32 v2 offset:64"]
    same(target, low, ["v_add_u32 v1, 0x80, v60", "ds_read_b32 v2, v1"], -1, False)


# -- flat: the register's high half selects the space; in LDS and private memory 32 bits ------------


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("target", ALL)
def test_flat_in_lds(target: str, check: bool) -> None:
    """LLVM, SelectFlatOffsetImpl: the hardware decides by the high bits of vaddr, ignoring the offset."""
    aperture = ["s_mov_b64 s[30:31], src_shared_base", "v_mov_b32 v11, s31"]
    for mask, line in itertools.product(MASKS, ("flat_load_dwordx2 v[2:3], v[10:11]", "flat_store_dword v[10:11], v60",
                                                "flat_atomic_add v[10:11], v60")):  # fmt: skip
        wrapped = [*aperture, "v_lshlrev_b32 v10, 3, v0", "v_add_u32 v10, 0xffffff00, v10", line + " offset:1024"]
        plain = [*aperture, "v_lshlrev_b32 v10, 3, v0", "v_add_u32 v10, 768, v10", line]
        same(target, wrapped, plain, mask, check)


def test_flat_in_private_memory() -> None:
    aperture = ["s_mov_b64 s[30:31], src_private_base", "v_mov_b32 v11, s31", "scratch_store_dword off, v0, off offset:8"]
    wrapped = [*aperture, "v_mov_b32 v10, -8", "s_waitcnt vmcnt(0)", "flat_load_dword v2, v[10:11] offset:16"]
    same("gfx942", wrapped, ["v_mov_b32 v2, v0"], -1, False, **PRIVATE)


# -- global and scalar memory: 64 bits -------------------------------------------------------------

FAR = [  # s[8:9] = the input less 0xFFFFFF00
    "s_sub_u32 s8, s4, 0xffffff00", "s_subb_u32 s9, s5, 0",
]  # fmt: skip
HALF = ["v_add_co_u32 v10, vcc, s4, v60", "v_mov_b32 v11, s5", "v_addc_co_u32 v11, vcc, 0, v11, vcc"]
GLOBAL_SUMS: list[tuple[list[str], list[str]]] = [
    # A 32-bit vaddr is unsigned, the offset signed.
    ([*FAR, "v_add_u32 v1, 0xffffff00, v60", "global_load_dword v2, v1, s[8:9]"], ["global_load_dword v2, v60, s[4:5]"]),
    ([*FAR, "v_mov_b32 v1, 0xfffffffc", "global_load_dword v2, v1, s[8:9] offset:4"],
     ["v_mov_b32 v1, 0", "global_load_dword v2, v1, s[4:5] offset:256"]),
    ([*FAR, "v_add_u32 v1, 0xffffff00, v60", "global_store_dwordx2 v1, v[50:51], s[8:9] offset:512"],
     ["global_store_dwordx2 v60, v[50:51], s[4:5] offset:512"]),
    (["v_mov_b32 v1, 0x1000", "global_load_dword v2, v1, s[4:5] offset:-4096"],
     ["v_mov_b32 v1, 0", "global_load_dword v2, v1, s[4:5]"]),
    ([*HALF, "v_add_co_u32 v10, vcc, 0x800, v10", "v_addc_co_u32 v11, vcc, 0, v11, vcc",
      "global_load_dwordx4 v[2:5], v[10:11], off offset:-2048"], ["global_load_dwordx4 v[2:5], v60, s[4:5]"]),
    ([*HALF, "flat_load_dword v2, v[10:11] offset:4000"], ["v_add_u32 v1, 4000, v60", "global_load_dword v2, v1, s[4:5]"]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(GLOBAL_SUMS)))
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_global(number: int, check: bool) -> None:
    wrapped, plain = GLOBAL_SUMS[number]
    for target, mask in itertools.product(ALL if not check else ("gfx90a",), MASKS):
        back = ["global_load_dword v3, v60, s[4:5] offset:512"] if "store" in wrapped[-1] else []
        same(target, [*wrapped, "s_waitcnt vmcnt(0)", *back], [*plain, "s_waitcnt vmcnt(0)", *back], mask, check)


SCALAR_SUMS: list[tuple[str, list[str], int]] = [
    # target, lines that load s20, byte of the input: SBASE + signed 21 bits + unsigned register, each without its low two bits.
    ("gfx942", [*FAR, "s_mov_b32 s10, 0xffffff00", "s_load_dword s20, s[8:9], s10"], 0),
    ("gfx942", [*FAR, "s_mov_b32 s10, 0xffffff00", "s_load_dword s20, s[8:9], s10 offset:0x40"], 0x40),
    ("gfx908", [*FAR, "s_mov_b32 s10, 0xffffff04", "s_load_dword s20, s[8:9], s10"], 4),
    ("gfx90a", ["s_add_u32 s8, s4, 0x1000", "s_addc_u32 s9, s5, 0", "s_load_dword s20, s[8:9], -0x1000"], 0),
    ("gfx950", ["s_sub_u32 s8, s4, 0xffff0", "s_subb_u32 s9, s5, 0", "s_load_dword s20, s[8:9], 0xffff0"], 0),
    ("gfx942", ["s_add_u32 s8, s4, 2", "s_addc_u32 s9, s5, 0", "s_mov_b32 s10, 6", "s_load_dword s20, s[8:9], s10 offset:0x7"], 8),
    ("gfx908", ["s_movk_i32 s10, 3", "s_scratch_load_dword s20, s[4:5], s10"], 192),
    ("gfx90a", ["s_and_b32 s9, s5, 0xffff", "s_add_u32 s8, s4, 3", "s_movk_i32 s10, 64", "s_mov_b32 s11, 0",
                "s_buffer_load_dword s20, s[8:11], 0x3d"], 0x3C),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SCALAR_SUMS)))
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_scalar(number: int, check: bool) -> None:
    target, lines, at = SCALAR_SUMS[number]
    got = execute(target, "\n".join([*lines, "s_waitcnt lgkmcnt(0)"]), ["s20"], image(), check=check)
    assert int(got["s20"][0]) == image()[at : at + 4].view(u32)[0]
    crooked = any(text in " ".join(lines) for text in (" 2,", "s4, 2", "offset:0x7"))
    assert [f.kind for f in got.run.findings] == ["misaligned"] * (check and crooked)


def test_scalar_buffer_past_its_records() -> None:
    """num_records counts against the whole offset, which does not wrap."""
    lines = ["s_and_b32 s9, s5, 0xffff", "s_mov_b32 s8, s4", "s_movk_i32 s10, 64", "s_mov_b32 s11, 0", "s_mov_b32 s12, 0xfffffffc",
             "s_buffer_load_dword s20, s[8:11], s12 offset:0x8", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    assert int(execute("gfx942", "\n".join(lines), ["s20"], image())["s20"][0]) == 0


# -- private memory: registers are unsigned, the sum does not wrap ---------------------------------


@pytest.mark.parametrize("lines, fits", [
    ("v_mov_b32 v1, 16\nscratch_load_dword v2, v1, off offset:-16", True),
    ("s_movk_i32 s8, 48\nscratch_load_dword v2, off, s8 offset:-48", True),
    ("v_mov_b32 v1, -16\nscratch_load_dword v2, v1, off offset:16", False),
    ("s_movk_i32 s8, -16\nscratch_load_dword v2, off, s8 offset:16", False),
    ("s_movk_i32 s8, -16\nv_mov_b32 v1, 16\nscratch_load_dword v2, v1, s8", False),
    ("v_mov_b32 v1, 4\nscratch_load_dword v2, v1, off offset:-8", False),
])  # fmt: skip
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_private(lines: str, fits: bool, check: bool) -> None:
    """CDNA guides, "Scratch": a 32-bit unsigned byte offset; LLVM, isFlatScratchBaseLegal."""
    whole = "scratch_store_dword off, v0, off\ns_waitcnt vmcnt(0)\n" + lines
    if fits:
        np.testing.assert_array_equal(execute("gfx942", whole, ["v2"], check=check, **PRIVATE)["v2"], np.arange(64))
        return
    with pytest.raises(MemoryFault, match="private offset"):
        execute("gfx942", whole, check=check, **PRIVATE)


# -- loads to LDS: LDS needs only part of M0 -------------------------------------------------------


@pytest.mark.parametrize("target, m0", [("gfx908", 0xFFFF0040), ("gfx942", 0x10043), ("gfx950", 0xFFFC0042), ("gfx950", 0x40)])
@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_loads_to_lds(target: str, m0: int, check: bool) -> None:
    line = "global_load_dword v60, s[4:5] offset:16 lds" if target == "gfx908" else "global_load_lds_dword v60, s[4:5] offset:16"
    place = ["s_waitcnt vmcnt(0)", "ds_read_b32 v2, v60 offset:80"]
    want = ["global_load_dword v2, v60, s[4:5] offset:16", "s_waitcnt vmcnt(0)", "ds_write_b32 v60, v2 offset:80"]
    same(target, [f"s_mov_b32 m0, {m0:#x}", "s_nop 0", line, *place], want, -1, check)
