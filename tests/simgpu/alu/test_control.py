"""Machine state: hardware registers, registers by M0, clocks, traps, and instructions that are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.hardware.errors import DecodeError, SimError, UnsupportedInstruction
from simgpu.hardware.isa import decode
from tests.support.engine_kernel import execute

u32 = np.uint32
LANES = np.arange(64, dtype=u32)


def test_hardware_registers() -> None:
    lines = """
    s_cmp_eq_u32 s4, s4
    s_mov_b64 vcc, 0
    s_getreg_b32 s20, hwreg(HW_REG_STATUS)
    s_cmp_lg_u32 s4, s4
    s_getreg_b32 s21, hwreg(HW_REG_STATUS, 0, 1)
    s_getreg_b32 s22, hwreg(HW_REG_LDS_ALLOC, 12, 9)
    s_getreg_b32 s23, hwreg(HW_REG_SH_MEM_BASES, 16, 16)
    s_mov_b64 s[24:25], src_shared_base
    s_getreg_b32 s26, hwreg(HW_REG_HW_ID, 4, 2)
    s_setreg_imm32_b32 hwreg(HW_REG_HW_ID), 1
    s_getreg_b32 s27, hwreg(HW_REG_SH_MEM_BASES, 0, 16)
    s_mov_b64 s[28:29], src_private_base
    """
    names = [f"s{n}" for n in (20, 21, 22, 23, 25, 26, 27, 29)]
    got = execute("gfx90a", lines, names, block=256, group_segment_fixed_size=2048)
    status = {int(x) for x in got["s20"]}
    assert status == {1 | 1 << 10 | 1 << 11 | 1 << 16}  # SCC, VCCZ, in a workgroup, valid
    assert {int(x) for x in got["s21"]} == {0}
    assert {int(x) for x in got["s22"]} == {4}  # granules of 512 bytes
    assert (got["s23"][0] << u32(16), got["s27"][0] << u32(16)) == (got["s25"][0], got["s29"][0])
    assert sorted({int(x) for x in got["s26"]}) == [0, 1, 2, 3]  # four waves on four SIMDs


def test_scalar_registers_by_m0() -> None:
    lines = """
    s_mov_b32 s20, 100
    s_mov_b32 s21, 101
    s_mov_b32 s22, 102
    s_mov_b32 s23, 103
    s_mov_b32 m0, 2
    s_movrels_b32 s30, s20
    s_movrels_b64 s[32:33], s[20:21]
    s_movreld_b32 s34, s21
    s_movreld_b64 s[38:39], s[22:23]
    s_movreld_b32 s42, 7
    """
    names = [f"s{n}" for n in (30, 32, 33, 36, 40, 41, 44)]
    got = execute("gfx908", lines, names)
    assert [int(got[n][0]) for n in names] == [102, 102, 103, 101, 102, 103, 7]


@pytest.mark.parametrize("m0", [82, 0x7FFFFFFF, 0xFFFFFFFF])
def test_registers_past_the_file_are_reported(m0: int) -> None:
    with pytest.raises(DecodeError, match=r"s_movrels_b32.*M0"):
        execute("gfx908", f"s_mov_b32 m0, {m0:#x}\ns_movrels_b32 s30, s20")


def test_vector_registers_by_index() -> None:
    """s_set_gpr_idx_on moves the operands that it names, in VALU instructions only."""
    lines = """
    v_add_u32 v10, 10, v0
    v_add_u32 v11, 11, v0
    v_add_u32 v12, 12, v0
    v_add_u32 v13, 13, v0
    v_mov_b32 v20, 20
    v_mov_b32 v21, 21
    v_mov_b32 v22, 22
    s_mov_b32 s20, 2
    s_mov_b32 s24, 1
    s_set_gpr_idx_on s20, gpr_idx(SRC0)
    v_mov_b32 v1, v10
    v_add_u32 v2, v10, v20
    v_add_u32 v3, s20, v20
    global_load_dword v30, v60, s[4:5]
    s_set_gpr_idx_mode gpr_idx(SRC1, DST)
    v_sub_u32 v4, v10, v20
    s_set_gpr_idx_idx s24
    v_sub_u32 v6, v10, v20
    v_mac_f32 v40, v20, v10
    s_set_gpr_idx_off
    v_mov_b32 v5, v10
    s_mov_b32 s30, m0
    """
    names = ["v1", "v2", "v3", "v6", "v7", "v5", "v30", "s30"]
    data = np.arange(64, dtype=u32) * u32(3)
    got = execute("gfx908", lines, names, data)
    np.testing.assert_array_equal(got["v1"], LANES + 12)
    np.testing.assert_array_equal(got["v2"], LANES + 32)
    np.testing.assert_array_equal(got["v3"], np.full(64, 22, u32))
    np.testing.assert_array_equal(got["v6"], LANES + 10 - u32(22))
    np.testing.assert_array_equal(got["v7"], LANES + 10 - u32(21))
    np.testing.assert_array_equal(got["v5"], LANES + 10)
    np.testing.assert_array_equal(got["v30"], data)
    assert int(got["s30"][0]) == 1 | 0b1010 << 12


def test_accumulation_registers_by_index() -> None:
    """AccVGPRs move as VGPRs do: a kernel that stores its sums in a loop reads them so."""
    lines = """
    v_add_u32 v10, 10, v0
    v_accvgpr_write_b32 a2, v10
    v_accvgpr_write_b32 a5, v10
    s_mov_b32 s20, 3
    v_mov_b32 v11, 11
    s_set_gpr_idx_on s20, gpr_idx(SRC0,DST)
    v_accvgpr_read_b32 v1, a2
    v_accvgpr_write_b32 a3, v8
    s_set_gpr_idx_off
    v_accvgpr_read_b32 v5, a6
    """
    got = execute("gfx950", lines, ["v4", "v5"])
    np.testing.assert_array_equal(got["v4"], LANES + 10)
    np.testing.assert_array_equal(got["v5"], np.full(64, 11, u32))


@pytest.mark.parametrize("moved", ["v_mov_b32 v1, v10", "v_accvgpr_read_b32 v1, a10"])
def test_vector_index_past_the_file_is_reported(moved: str) -> None:
    lines = f"s_movk_i32 s20, 0xff\ns_set_gpr_idx_on s20, gpr_idx(SRC0)\n{moved}"
    with pytest.raises(DecodeError, match=moved.split()[0]):
        execute("gfx908", lines)


def test_clocks_advance() -> None:
    lines = """
    s_memtime s[20:21]
    s_mov_b32 s30, 1000
    again:
    s_sub_u32 s30, s30, 1
    s_cmp_lg_u32 s30, 0
    s_cbranch_scc1 again
    s_memtime s[22:23]
    s_sleep 1
    s_memtime s[24:25]
    s_memrealtime s[26:27]
    """
    names = [f"s{n}" for n in (20, 22, 24, 26)]
    got = execute("gfx942", lines, names)
    first, second, third, real = (int(got[n][0]) for n in names)
    assert 4 * 3002 <= second - first <= 4 * 3006  # four cycles an instruction dword
    assert third > second
    assert 0 < real < third


def test_a_wait_by_the_clock_ends() -> None:
    lines = """
    s_memtime s[20:21]
    s_waitcnt lgkmcnt(0)
    again:
    s_memtime s[22:23]
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s24, s22, s20
    s_cmp_lt_u32 s24, 0x4000
    s_cbranch_scc1 again
    """
    execute("gfx90a", lines, block=256)


def test_what_takes_only_time() -> None:
    lines = """
    s_nop 3
    s_setprio 1
    s_sethalt 0
    s_icache_inv
    s_dcache_inv
    s_dcache_wb
    s_incperflevel 1
    s_decperflevel 1
    s_ttracedata
    s_wakeup
    s_sendmsg sendmsg(MSG_INTERRUPT)
    s_cbranch_cdbgsys away
    s_cbranch_cdbguser away
    s_cbranch_cdbgsys_and_user away
    s_cbranch_cdbgsys_or_user away
    buffer_wbinvl1
    buffer_wbinvl1_vol
    s_mov_b32 s20, 5
    s_branch on
    away:
    s_mov_b32 s20, 6
    on:
    """
    assert int(execute("gfx908", lines, ["s20"])["s20"][0]) == 5


@pytest.mark.parametrize("end", ["s_endpgm", "s_endpgm_saved"])
def test_ends(end: str) -> None:
    got = execute("gfx90a", f"v_mov_b32 v1, 7\n{end}\n", ["v1"])
    assert not got["v1"].any()  # nothing after it ran


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_vector_instructions_are_skipped(target: str) -> None:
    """Skipping follows the bit of the first operand that the second names, until the next s_setvskip. AITER's experts skip
    stores so."""
    lines = """
    v_mov_b32 v1, 1
    v_mov_b32 v2, 2
    v_mov_b32 v3, 3
    s_mov_b32 s20, 4
    s_mov_b32 s21, 0
    s_setvskip s20, 34
    v_mov_b32 v1, 30
    v_readfirstlane_b32 s20, v1
    ds_write_b32 v1, v2
    global_store_dword v1, v2, s[20:21]
    s_mov_b32 s21, 7
    s_getreg_b32 s22, hwreg(HW_REG_MODE, 28, 1)
    s_setvskip 0, 0
    v_add_u32 v2, 1, v2
    s_setvskip s20, 1
    v_add_u32 v3, 1, v3
    s_getreg_b32 s23, hwreg(HW_REG_MODE, 28, 1)
    """
    got = execute(target, lines, ["v1", "v2", "v3", "s20", "s21", "s22", "s23"])
    assert [int(got[name][0]) for name in ("v1", "v2", "v3", "s20", "s21", "s22", "s23")] == [1, 3, 4, 4, 7, 1, 0]


def test_trap_is_reported() -> None:
    with pytest.raises(SimError, match=r"s_trap 2.*trapped"):
        execute("gfx90a", "s_trap 2")


@pytest.mark.parametrize(
    "line",
    [
        "s_cbranch_i_fork s[20:21], 0", "s_cbranch_g_fork s[20:21], s[22:23]",
        "s_cbranch_join s20", "s_rfe_b64 s[20:21]", "s_rfe_restore_b64 s[20:21], s22",
        "v_interp_p2_f16 v1, v2, attr0.x, v3",
        "exp mrt0 v0, v0, v0, v0 done", "s_endpgm_ordered_ps_done",
    ],
)  # fmt: skip
def test_refused_by_name(line: str) -> None:
    with pytest.raises(UnsupportedInstruction, match=line.split()[0]):
        execute("gfx908", line)


@pytest.mark.parametrize(
    ("word", "name"), [(0xC4000001, "exp"), (0xF0000000, "image"), (0xD4000000, "v_interp")]
)
def test_graphics_encodings_have_names(word: int, name: str) -> None:
    code = word.to_bytes(4, "little") + bytes(4)
    for target in ("gfx908", "gfx942"):
        with pytest.raises(DecodeError, match=name):
            decode(code, 0, target)
        with pytest.raises(UnsupportedInstruction, match=name):
            execute(target, f".long {word:#x}\n.long 0")


def test_what_is_not_executed_is_not_refused() -> None:
    lines = "s_branch on\nexp mrt0 v0, v0, v0, v0 done\ns_cbranch_join s0\non:\nv_mov_b32 v1, 3"
    got = execute("gfx908", lines, ["v1"])
    assert set(got["v1"].tolist()) == {3}


CONDITIONS = {
    "scc0": ("s_cmp_eq_u32 s4, s4", "s_cmp_lg_u32 s4, s4"), "scc1": ("s_cmp_lg_u32 s4, s4", "s_cmp_eq_u32 s4, s4"),
    "vccz": ("s_mov_b64 vcc, 1", "s_mov_b64 vcc, 0"), "vccnz": ("s_mov_b64 vcc, 0", "s_bitset1_b64 vcc, 63"),
    "execz": ("s_mov_b64 exec, 1", "s_mov_b64 exec, 0"), "execnz": ("s_mov_b64 exec, 0", "s_bitset1_b64 exec, 63"),
}  # fmt: skip


def test_conditional_branches() -> None:
    """Each branch falls through in its first state and is taken in its second."""
    lines = ["s_mov_b32 s40, 0", "s_mov_b64 vcc, 0"]
    taken = 0
    for number, (name, states) in enumerate(CONDITIONS.items()):
        for turn, state in enumerate(states):
            bit = 2 * number + turn
            lines += [state, f"s_cbranch_{name} over{bit}", f"s_bitset1_b32 s40, {bit}", f"over{bit}:"]
            taken |= turn << bit
        lines.append("s_mov_b64 exec, -1")
    got = execute("gfx90a", "\n".join(lines), ["s40"])
    assert int(got["s40"][0]) == 0xFFF & ~taken


def test_calls_return() -> None:
    lines = """
    s_getpc_b64 s[20:21]
    here:
    s_add_u32 s20, s20, callee-here
    s_addc_u32 s21, s21, 0
    s_mov_b32 s40, 0
    s_swappc_b64 s[30:31], s[20:21]
    s_call_b64 s[30:31], callee
    s_branch out
    callee:
    s_add_u32 s40, s40, 1
    s_setpc_b64 s[30:31]
    out:
    """
    assert int(execute("gfx942", lines, ["s40"])["s40"][0]) == 2
