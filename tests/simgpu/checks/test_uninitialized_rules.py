"""Undefined bits of an instruction's results, against its own handler run with many fillings.

If some filling of the sources' undefined bits changes a result bit, that bit must be undefined. For instructions that move,
mask or compare, no other bit may be.
"""

from __future__ import annotations

import ctypes
import io
import zlib
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from llvmlite import ir

from simgpu.asm.builder import toolchain
from simgpu.checks.uninitialized import shadow_layout, smearing
from simgpu.checks.uninitialized.check import Uninitialized
from simgpu.checks.uninitialized.instrument import DryFrame, instrument
from simgpu.engine.lowering.handlers import emitter_of, handler_of
from simgpu.hardware.errors import ToolchainError
from simgpu.hardware.isa import decode
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.jit import compiler
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from tests.support.one_instruction import Wave, _return

TARGET = "gfx90a"
ROWS, SCALARS = 8, 24
# Exact: only bits that a filling can change may be undefined.
EXACT = """
v_mov_b32 v0, v1
v_not_b32 v0, v1
v_and_b32 v0, v1, v2
v_or_b32 v0, v1, v2
v_xor_b32 v0, v1, v2
v_and_b32 v0, 0xf0f0, v1
v_or_b32 v0, 0xf0f0, v1
v_bfi_b32 v0, s3, v1, v2
v_and_or_b32 v0, v1, v2, v3
v_or3_b32 v0, v1, v2, v3
v_lshlrev_b32 v0, 5, v1
v_lshrrev_b32 v0, 5, v1
v_ashrrev_i32 v0, 5, v1
v_lshl_or_b32 v0, v1, 16, v2
v_lshlrev_b64 v[4:5], 36, v[0:1]
v_bfe_u32 v0, v1, 7, 9
v_bfe_i32 v0, v1, 7, 9
v_bfrev_b32 v0, v1
v_alignbit_b32 v0, v1, v2, 11
v_alignbyte_b32 v0, v1, v2, 3
v_perm_b32 v0, v1, v2, s2
v_cndmask_b32 v0, v1, v2, s[22:23]
v_mov_b32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_2
v_mov_b32_sdwa v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PAD src0_sel:WORD_1
v_mov_b32_sdwa v0, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1
v_and_b32_sdwa v0, v1, v2 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:WORD_1 src1_sel:WORD_0
v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,3] row_mask:0xf bank_mask:0xf
v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xa bank_mask:0x7 bound_ctrl:0
v_mov_b32_dpp v0, v1 row_bcast:15 row_mask:0xf bank_mask:0xf
v_pk_lshlrev_b16 v0, 3, v1 op_sel_hi:[0,1]
v_pk_lshlrev_b16 v0, 3, v1 op_sel:[0,1] op_sel_hi:[0,0]
v_pack_b32_f16 v0, v1, v2 op_sel:[1,0]
v_readlane_b32 s5, v1, 9
v_readfirstlane_b32 s5, v1
v_writelane_b32 v1, s4, 17
v_swap_b32 v1, v2
v_accvgpr_write_b32 a1, v1
v_accvgpr_read_b32 v0, a2
ds_bpermute_b32 v0, v7, v1
ds_permute_b32 v0, v7, v1
ds_swizzle_b32 v0, v1 offset:0x8055
v_cmp_lt_u32 vcc, v1, v2
v_cmp_ge_i32 vcc, v1, v2
s_mov_b32 s5, s6
s_mov_b64 vcc, s[6:7]
s_and_b32 s5, s6, 0xff
s_or_b32 s5, s6, 0xff
s_andn2_b64 s[4:5], s[6:7], s[8:9]
s_lshl_b32 s5, s6, 12
s_lshr_b64 s[4:5], s[6:7], 12
s_ashr_i32 s5, s6, 3
s_brev_b32 s5, s6
s_bfe_u32 s5, s6, 0x80004
s_pack_lh_b32_b16 s5, s6, s7
s_bitset1_b32 s5, 7
s_cselect_b32 s5, s20, s20
s_cmp_lt_i32 s6, s7
s_bitcmp1_b32 s6, 4
s_andn2_wrexec_b64 s[4:5], s[6:7]
""".strip().splitlines()
# Sound, but stricter than necessary.
SOUND = """
v_bfi_b32 v0, v3, v1, v2
v_cmp_eq_u32 vcc, v1, v4
v_cmp_ne_u32 s[6:7], v1, v4
v_add_u32 v0, v1, v2
v_sub_u32 v0, v1, v2
v_mul_lo_u32 v0, v1, v2
v_mad_u64_u32 v[4:5], vcc, v1, v2, v[2:3]
v_add_co_u32 v0, vcc, v1, v2
v_addc_co_u32 v0, vcc, v1, v2, vcc
v_lshlrev_b32 v0, v1, v2
v_min_u32 v0, v1, v2
v_max_i32 v0, v1, v2
v_med3_i32 v0, v1, v2, v3
v_add_f32 v0, v1, v2
v_fma_f32 v0, v1, -v2, |v3|
v_fma_f64 v[4:5], v[0:1], v[2:3], v[2:3]
v_pk_add_f16 v0, v1, v2
v_pk_mul_lo_u16 v0, v1, v2
v_fma_mix_f32 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[1,0,0]
v_cvt_f32_ubyte2 v0, v1
v_cvt_f16_f32 v0, v1
v_cvt_u32_f32 v0, v1
v_add_f16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0
v_mad_u16 v0, v1, v2, v3 op_sel:[0,1,0,1]
v_cmp_lt_f32 vcc, v1, v2
v_cmp_class_f32 vcc, v1, v2
v_cmpx_lt_u32 vcc, v1, v2
v_bcnt_u32_b32 v0, v1, v2
v_mbcnt_lo_u32_b32 v0, v1, v2
v_ffbh_u32 v0, v1
v_sad_u8 v0, v1, v2, v3
v_dot4_i32_i8 v0, v1, v2, v3
v_exp_f32 v0, v1
v_readlane_b32 s5, v1, s6
v_writelane_b32 v1, 5, s6
ds_bpermute_b32 v0, v3, v1
v_div_scale_f32 v0, vcc, v1, v2, v1
v_cndmask_b32 v0, v1, v2, s[6:7]
s_add_u32 s5, s6, s7
s_addc_u32 s5, s6, s7
s_mul_i32 s5, s6, s7
s_bcnt1_i32_b64 s5, s[6:7]
s_ff1_i32_b32 s5, s6
s_cselect_b32 s5, s6, s7
s_min_i32 s5, s6, s7
s_abs_i32 s5, s6
s_lshl_b32 s5, s6, s7
s_and_saveexec_b64 s[4:5], s[6:7]
s_cmp_gt_u32 s6, s7
s_cmov_b32 s5, s6
""".strip().splitlines()


def decoded(text: str) -> Instruction:
    try:
        code = toolchain.assemble(f"{text}\n", TARGET)
    except ToolchainError as error:
        if "found:" in str(error):
            pytest.skip(str(error))
        raise
    section = ELFFile(io.BytesIO(code)).get_section_by_name(".text")
    return decode(section.data(), 0, TARGET)


class ShadowedWave(Wave):
    """A wave with its shadow block."""

    def __init__(self) -> None:
        super().__init__(layout.WAVE_BYTES + shadow_layout.SHADOW_BYTES)
        delta = shadow_layout.DELTA
        self.undefined_s = self.raw[delta : delta + 512].view(np.uint32)
        self.undefined_v = self._rows(delta + layout.VGPR)
        self.undefined_a = self._rows(delta + layout.AGPR)
        self.flags = self.raw[shadow_layout.FLAGS : shadow_layout.FLAGS + shadow_layout.REGISTERS]

    def state(self) -> np.ndarray:
        """Returns registers and SCC as an array of dwords."""
        rows = self.v[:ROWS].reshape(-1), self.a[:4].reshape(-1)
        last = np.array([self.scc], np.uint32)
        return np.concatenate([*rows, self.s[:SCALARS], self.s[106:108], self.s[126:128], last])

    def undefined(self) -> np.ndarray:
        """Returns the undefined bits in the same order, as the flags say."""
        rows = []
        for number in [*range(ROWS), *range(256, 260)]:
            row = (self.undefined_v if number < 256 else self.undefined_a)[number % 256]
            defined = self.flags[number] == shadow_layout.DEFINED
            whole = self.flags[number] == shadow_layout.UNDEFINED
            rows.append(np.zeros(64, np.uint32) if defined else np.full(64, 0xFFFFFFFF, np.uint32) if whole else row)
        scc = self.raw[shadow_layout.DELTA + layout.SCC :][:4].view(np.uint32)
        scalars = self.undefined_s
        return np.concatenate([*rows, scalars[:SCALARS], scalars[106:108], scalars[126:128], scc])

    def fill(self, values: np.ndarray) -> None:
        rows, accumulators = 64 * ROWS, 64 * 4
        self.v[:ROWS] = values[:rows].reshape(ROWS, 64)
        self.a[:4] = values[rows : rows + accumulators].reshape(4, 64)
        rest = values[rows + accumulators :]
        self.s[:SCALARS], self.s[106:108], self.s[126:128] = rest[:SCALARS], rest[SCALARS : SCALARS + 2], rest[-3:-1]
        self.scc = int(rest[-1])


def prepared(inst: Instruction, address: int, slots: list[int]) -> Any:
    """Returns a call of a handler with a record of its own."""
    records = aligned_bytes(layout.RECORD * (1 + inst.size // 4)).view(np.uint32).reshape(-1, 16)
    records[0, 2 : 2 + len(slots)] = slots
    records[-1, :2].view(np.uint64)[0] = compiler().address("return", _return)
    call: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
    return lambda wave: (call(wave.raw.ctypes.data, records.ctypes.data), records)


def shadow_of(inst: Instruction) -> Any:
    plan = Plan(inst)
    emitter = emitter_of(inst, plan, Mode())

    def build(module: ir.Module, name: str) -> None:
        frame = DryFrame(module, name)
        emitter(frame)
        if not frame.build.block.is_terminated:
            frame.build.ret_void()
        instrument(frame)

    return prepared(inst, compiler().address("|".join(("shadow", inst.mnemonic, *plan.parts)), build), plan.slots)


def sparse(rng: np.random.Generator, count: int) -> np.ndarray:
    """Draws undefined bits: none, a few, or all of a dword."""
    bits = rng.integers(0, 2**32, (3, count), dtype=np.uint64).astype(np.uint32)
    few = bits[0] & bits[1] & bits[2]
    kind = rng.integers(0, 8, count)
    return np.where(kind < 3, 0, np.where(kind < 7, few, 0xFFFFFFFF)).astype(np.uint32)


def changed(text: str, fillings: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the state's bits that fillings changed, and those that the shadow calls undefined."""
    inst = decoded(text)
    rng = np.random.default_rng(zlib.crc32(text.encode()))
    wave = ShadowedWave()
    values = rng.integers(0, 2**32, wave.state().size, dtype=np.uint64).astype(np.uint32)
    values[64:128] = np.where(rng.integers(0, 2, 64), values[128:192], values[64:128])  # equal v1 and v2 here and there
    values[64 * 4 : 64 * 5] = values[64:128] ^ np.left_shift(1, rng.integers(0, 32, 64)).astype(np.uint32)  # v4: v1 but a bit
    values[-1] &= 1
    undefined = sparse(rng, values.size)
    undefined[: 64 * ROWS].reshape(ROWS, 64)[:, 5] = 0xFFFFFFFF
    undefined[: 64 * ROWS].reshape(ROWS, 64)[:, 6] = 0
    undefined[64 * 7 : 64 * 8] = 0  # v7 is an index
    undefined[64 * 4 : 64 * 5] = values[64:128] ^ values[64 * 4 : 64 * 5]
    undefined[-1] &= 1
    at = 64 * ROWS + 64 * 4
    undefined[at + 2 : at + 4] = 0  # s2, s3
    undefined[at + 22 : at + 24] = undefined[-3:-1] = 0  # s[22:23] and EXEC
    values[at + 2] = 0x070C0D01  # a selector of v_perm_b32
    wave.fill(values)
    wave.flags[:] = shadow_layout.MIXED
    wave.undefined_v[:ROWS] = undefined[: 64 * ROWS].reshape(ROWS, 64)
    wave.undefined_a[:4] = undefined[64 * ROWS : at].reshape(4, 64)
    wave.undefined_s[:SCALARS] = undefined[at : at + SCALARS]
    wave.undefined_s[106:108] = undefined[at + SCALARS : at + SCALARS + 2]
    wave.raw[shadow_layout.DELTA + layout.SCC] = undefined[-1]
    shadow_of(inst)(wave)
    assert (wave.state() == values).all(), "a shadow changes nothing but shadows"
    address, slots = handler_of(inst, Mode(), compiler())
    run = prepared(inst, address, slots)
    union, first, plain = np.zeros(values.size, np.uint32), None, ShadowedWave()
    for _ in range(fillings):
        noise = rng.integers(0, 2**32, values.size, dtype=np.uint64).astype(np.uint32)
        plain.fill((values & ~undefined) | (noise & undefined))
        run(plain)
        now = plain.state()
        first = now if first is None else first
        union |= now ^ first
    return union, wave.undefined()


@pytest.mark.parametrize("text", EXACT)
def test_exact(text: str) -> None:
    seen, undefined = changed(text, 150)
    if text.startswith("s_") and "cmp" not in text:
        undefined[-1] &= seen[-1]  # SCC: perhaps no filling makes the result 0
    assert not (seen & ~undefined).any(), "a bit that depends on undefined ones counts as defined"
    assert not (undefined & ~seen).any(), "a bit that nothing undefined reaches counts as undefined"


@pytest.mark.parametrize("text", SOUND)
def test_sound(text: str) -> None:
    seen, undefined = changed(text, 40)
    assert not (seen & ~undefined).any()
    assert seen.any()


SEQUENCE = """
v_mov_b32 v0, v1
v_mov_b32 v2, 1.0
v_mov_b32 v3, s4
v_add_f32 v1, v2, v3
v_fma_f32 v4, v1, v2, v4
v_fma_f64 v[4:5], v[0:1], v[2:3], v[4:5]
v_sub_f32 v3, v1, -v2
v_mul_f32 v6, |v1|, v3
v_add_f64 v[2:3], -v[0:1], s[4:5]
v_floor_f64 v[6:7], v[4:5]
v_and_b32 v5, 0xff, v4
v_xor_b32 v6, v5, v1
v_lshl_or_b32 v7, v6, 8, v5
v_mov_b32 v6, 0
v_cmp_lt_u32 vcc, v5, v6
v_cndmask_b32 v3, v4, v5, vcc
v_mul_f32 v2, v2, v6
v_mov_b32_dpp v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf
v_mov_b32_sdwa v4, v6 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0
v_readlane_b32 s4, v3, 11
v_writelane_b32 v0, s4, 12
v_mad_u32_u24 v7, v7, v1, v2
v_accvgpr_write_b32 a0, v5
v_accvgpr_read_b32 v2, a0
s_and_b32 s4, s4, 0xffff
s_add_u32 s5, s4, s6
""".strip().splitlines()


@pytest.mark.parametrize("seed", range(8))
def test_the_quick_ways_give_the_same(seed: int) -> None:
    """Checked handlers, which skip needless shadows, agree with every shadow in full."""
    rng = np.random.default_rng(seed)
    quick, slow = ShadowedWave(), ShadowedWave()
    values = rng.integers(0, 2**32, quick.state().size, dtype=np.uint64).astype(np.uint32)
    values[-1] &= 1
    for wave in (quick, slow):
        wave.fill(values)
    kinds = rng.choice([shadow_layout.DEFINED, shadow_layout.MIXED, shadow_layout.UNDEFINED], ROWS)
    for number, kind in enumerate(kinds):
        row = np.where(rng.random(64) < 0.8, 0, sparse(rng, 64)) if kind == shadow_layout.MIXED else 0
        slow.undefined_v[number] = 0xFFFFFFFF if kind == shadow_layout.UNDEFINED else row
        slow.flags[number] = shadow_layout.MIXED
        quick.undefined_v[number], quick.flags[number] = row, kind
    shadows = sparse(rng, SCALARS)
    quick.undefined_s[:SCALARS] = slow.undefined_s[:SCALARS] = shadows
    for text in rng.choice(SEQUENCE, 60):
        inst = decoded(str(text))
        lanes = (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF, 0xF0, 1 << 63, 0)[rng.integers(5)]
        for wave in (quick, slow):
            wave.s[126:128] = np.array([lanes], np.uint64).view(np.uint32)
        address, slots = handler_of(inst, Mode(), compiler(), (Uninitialized(),))
        prepared(inst, address, slots)(quick)
        shadow_of(inst)(slow)
        address, slots = handler_of(inst, Mode(), compiler())
        prepared(inst, address, slots)(slow)
        assert (quick.state() == slow.state()).all(), text
        assert (quick.undefined() == slow.undefined()).all(), text
        for number in np.flatnonzero(quick.flags[:ROWS] == shadow_layout.DEFINED):
            assert not quick.undefined_v[number].any(), text


# An instruction, and the registers that it reads: vector ones, then scalar ones.
SMEARED = {
    "v_rcp_f32 v4, v1": ((1,), ()), "v_rsq_f64 v[4:5], v[0:1]": ((0, 1), ()), "v_exp_f32 v4, s4": ((), (4,)),
    "v_ldexp_f64 v[4:5], v[0:1], v2": ((0, 1, 2), ()), "v_trig_preop_f64 v[4:5], v[0:1], s4": ((0, 1), (4,)),
    "v_div_fixup_f32 v4, v1, v2, v3": ((1, 2, 3), ()), "v_fmac_f32 v4, v1, v2": ((1, 2, 4), ()),
}  # fmt: skip


@pytest.mark.parametrize("text", SMEARED)
def test_an_undefined_bit_makes_a_float_undefined(text: str) -> None:
    """A result is wholly undefined in active lanes with an undefined bit in a source, and wholly defined in the others."""
    inst, (rows, scalars) = decoded(text), SMEARED[text]
    assert smearing.smears(inst)
    address, slots = handler_of(inst, Mode(), compiler(), (Uninitialized(),))
    results, active = range(4, 6 if "f64" in text else 5), np.arange(64) % 5 != 0
    for scalar in (0, 1 << 20):
        wave, rng = ShadowedWave(), np.random.default_rng(1)
        wave.undefined_v[:ROWS] = np.where(rng.random((ROWS, 64)) < 0.7, 0, sparse(rng, 64 * ROWS).reshape(ROWS, 64))
        wave.flags[:] = shadow_layout.MIXED
        wave.flags[2] = shadow_layout.UNDEFINED
        wave.undefined_s[4] = scalar
        wave.s[126:128] = np.packbits(active, bitorder="little").view(np.uint32)
        before = wave.undefined()[: 64 * ROWS].reshape(ROWS, 64)
        prepared(inst, address, slots)(wave)
        after = wave.undefined()[: 64 * ROWS].reshape(ROWS, 64)
        unknown = np.any(before[list(rows)], 0) | bool(scalars and scalar)
        for number in range(ROWS):
            want = np.where(active, np.where(unknown, 0xFFFFFFFF, 0), before[number]) if number in results else before[number]
            np.testing.assert_array_equal(after[number], want)
