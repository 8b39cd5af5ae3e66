"""Effects of GFX12's instructions: the printed registers are those read or written, and the high bits extend the right ones."""

from __future__ import annotations

import random
import re

import pytest

from simgpu.hardware.isa import decode, text
from simgpu.hardware.isa.gfx12.rows import rows
from simgpu.hardware.timing_rules.gfx12 import effect_of
from tests.hardware.isa.gfx12.test_text import ALONE, TARGET, instruction_of
from tests.support.clang import assemble

PRINTED = re.compile(r"\b(v|s|ttmp)(?:(\d+)|\[(\d+):(\d+)\])")
TTMP = 108
HIGH_WORDS = {"vcc_hi": 107, "vcc": 107, "exec_hi": 127, "exec": 127}  # numbers of the words that wave32 uses as plain SGPRs


def printed(line: str) -> set[tuple[str, int]]:
    """Returns the registers that a line shows, in names of effects."""
    operands = line.partition(" ")[2].split(" offset:")[0]
    found = {("s", HIGH_WORDS[name]) for name in re.findall(r"\w+", operands) if name in HIGH_WORDS}
    for file, one, first, last in PRINTED.findall(operands):
        start, name = (TTMP, "s") if file == "ttmp" else (0, file)
        found |= {(name, start + number) for number in range(int(one or first), int(one or last) + 1)}
    return found


def test_printed_registers_are_read_or_written() -> None:
    rng = random.Random(3)
    for (encoding, opcode), spec in rows().items():
        inst = None if encoding.startswith("vopd") or spec.mnemonic in ALONE else instruction_of(encoding, opcode, rng)
        if inst is None or "hwreg" in text(inst) or any(field.half for field in spec.operands):
            continue
        effect = effect_of(inst)
        registers = {one for one in effect.registers if isinstance(one, tuple)}
        assert registers == printed(text(inst)), text(inst)
        assert effect.pending <= effect.access.writes


# Line, registers read, registers written; states by name. The last column is the byte of s_set_vgpr_msb.
EFFECTS = [
    ("v_fma_f32 v0, v1, v2, v3", "v257 v514 v771", "v0", 0x39),
    ("v_fma_f32 v0, v1, v2, v3", "v1 v2 v3", "v768", 0xC0),
    ("v_fmac_f32 v0, v1, v2", "v1 v2 v256", "v256", 0x40),
    ("v_fmamk_f32 v0, v1, 0x11, v2", "v1 v258", "v0", 0x10),
    ("v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v4", "v257 v2 v260", "v0 v3", 0x01),
    ("ds_store_2addr_b32 v0, v1, v2", "v256 v257 v258", "", 0x15),
    ("ds_load_b64 v[2:3], v0", "v0", "v258 v259", 0x40),
    ("global_store_b32 v0, v1, s[2:3]", "v256 v257 s2 s3", "", 0x05),
    ("global_load_b32 v0, v1, s[2:3]", "v257 s2 s3", "v256", 0x41),
    ("global_load_async_to_lds_b32 v0, v1, s[2:3]", "v256 v1 s2 s3", "", 0x40),
    ("buffer_store_b32 v0, v1, s[4:7], null offen", "v256 v1 s4 s5 s6 s7", "", 0x40),
    ("buffer_load_b32 v0, v1, s[4:7], s8 offen", "v1 s4 s5 s6 s7 s8", "v256", 0x40),
    ("v_swap_b32 v0, v1", "v0 v1", "v0 v1", 0),
    ("v_cmp_lt_f32 vcc_lo, v0, v1", "v0 v1", "vcc", 0),
    ("v_cndmask_b32_e32 v0, v1, v2, vcc_lo", "v1 v2 vcc", "v0", 0),
    ("v_add_co_ci_u32_e32 v0, vcc_lo, v1, v2, vcc_lo", "v1 v2 vcc", "v0 vcc", 0),
    ("v_cmpx_lt_f32 v0, v1", "v0 v1", "exec", 0),
    ("v_readfirstlane_b32 s0, v1", "v257", "s0", 0x01),
    ("s_and_saveexec_b32 s0, s1", "s1 exec", "s0 exec scc", 0),
    ("s_add_co_ci_u32 s0, s1, s2", "s1 s2 scc", "s0 scc", 0),
    ("s_add_nc_u64 s[0:1], s[2:3], s[4:5]", "s2 s3 s4 s5", "s0 s1", 0),
    ("s_cmp_lt_f32 s0, s1", "s0 s1", "scc", 0),
    ("s_cbranch_vccnz 4", "vcc", "", 0),
    ("s_mov_b32 m0, s1", "s1", "m0", 0),
    ("s_mov_b32 null, s105", "s105", "", 0),
    ("v_wmma_f32_16x16x4_f32 v[0:7], v[8:9], v[10:11], 0", "v8 v9 v10 v11", "v0 v1 v2 v3 v4 v5 v6 v7", 0),
]


@pytest.mark.parametrize(("line", "reads", "writes", "high"), EFFECTS)
def test_effects(line: str, reads: str, writes: str, high: int) -> None:
    (one,) = assemble([line], TARGET)
    assert one is not None
    access = effect_of(decode(one.code, 0, TARGET), high).access

    def names(registers: frozenset[tuple[str, int] | str]) -> set[str]:
        return {name if isinstance(name, str) else f"{name[0]}{name[1]}" for name in registers}

    assert names(access.read()) == set(reads.split())
    assert names(access.writes) == set(writes.split())


def test_unknown_high_bits_leave_no_vectors() -> None:
    (one,) = assemble(["v_add_f32 v0, s1, v2"], TARGET)
    assert one is not None
    assert effect_of(decode(one.code, 0, TARGET), None).registers == {("s", 1)}


@pytest.mark.parametrize(
    ("line", "counters", "lds"),
    [
        ("global_load_b32 v0, v1, s[2:3]", ("loadcnt",), ""),
        ("global_store_b32 v0, v1, s[2:3]", ("storecnt",), ""),
        ("global_atomic_add_u32 v0, v1, s[2:3]", ("storecnt",), ""),
        ("global_atomic_add_u32 v0, v1, v2, s[2:3] th:TH_ATOMIC_RETURN", ("loadcnt",), ""),
        ("flat_load_b32 v0, v[2:3]", ("loadcnt", "dscnt"), ""),
        ("ds_load_b32 v0, v1", ("dscnt",), "read"),
        ("ds_add_u32 v0, v1", ("dscnt",), "write"),
        ("s_load_b32 s0, s[2:3], 0", ("kmcnt",), ""),
        ("s_sendmsg_rtn_b32 s0, sendmsg(MSG_RTN_GET_DOORBELL)", ("kmcnt",), ""),
        ("global_load_async_to_lds_b128 v0, v[2:3], off", ("asynccnt",), "write"),
        ("global_store_async_from_lds_b128 v[2:3], v0, off", ("asynccnt",), "read"),
        ("tensor_load_to_lds s[0:3], s[4:11]", ("tensorcnt",), "write"),
        ("tensor_store_from_lds s[0:3], s[4:11]", ("tensorcnt",), "read"),
    ],
)
def test_counters(line: str, counters: tuple[str, ...], lds: str) -> None:
    (one,) = assemble([line], TARGET)
    assert one is not None
    effect = effect_of(decode(one.code, 0, TARGET))
    assert effect.queue is not None and effect.queue.counters == counters
    assert effect.lds == lds
