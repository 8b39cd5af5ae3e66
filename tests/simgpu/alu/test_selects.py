"""SDWA selects, DPP controls and VOP3 op_sel against models in Python integers and numpy."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.errors import SimError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Const, Instruction, Modifiers, Reg
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.machine.mode import Mode
from tests.support.one_instruction import Wave
from tests.support.sweeps import swept

SPECS: dict[str, Spec] = {spec.mnemonic: spec for spec in REGISTRY.specs}
u16, u32 = np.uint16, np.uint32
BYTE_0, BYTE_1, BYTE_2, BYTE_3, WORD_0, WORD_1, DWORD = range(7)
PAD, SEXT, PRESERVE = range(3)
OPERANDS = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 2)}


def rows(seed: int) -> Wave:
    wave = Wave()
    rng = np.random.default_rng(seed)
    wave.v[:4] = rng.integers(0, 2**32, (4, 64), dtype=np.uint64).astype(u32)
    return wave


# -- SDWA ------------------------------------------------------------------------------------------


def selected(value: int, select: int, sign: bool) -> int:
    """Returns a source's 32 bits after its select."""
    if select == DWORD:
        return value
    width = 8 if select < WORD_0 else 16
    field = value >> (8 * select if width == 8 else 16 * (select - WORD_0)) & (1 << width) - 1
    if sign and field >> (width - 1):
        field |= ~((1 << width) - 1) & 0xFFFFFFFF
    return field


def deposited(result: int, old: int, select: int, unused: int) -> int:
    """Returns the destination register after a result of 32 bits."""
    if select == DWORD:
        return result
    width = 8 if select < WORD_0 else 16
    at = 8 * select if width == 8 else 16 * (select - WORD_0)
    field = (result & (1 << width) - 1) << at
    outside = ~(((1 << width) - 1) << at) & 0xFFFFFFFF
    if unused == PRESERVE:
        return field | old & outside
    if unused == SEXT and field >> (at + width - 1):
        field |= ~((1 << (at + width)) - 1) & 0xFFFFFFFF
    return field


def f32_sum(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        return int((np.array(a, u32).view("f4") + np.array(b, u32).view("f4")).view(u32))


def f16_product(a: int, b: int) -> int:
    with np.errstate(all="ignore"):
        return int((np.array(a & 0xFFFF, u16).view("f2") * np.array(b & 0xFFFF, u16).view("f2")).view(u16))


def i16_max(a: int, b: int) -> int:
    signed = [(x & 0xFFFF) - ((x & 0x8000) << 1) for x in (a, b)]
    return max(signed) & 0xFFFF


BINARY: dict[str, Callable[[int, int], int]] = {
    "v_add_u32": lambda a, b: a + b & 0xFFFFFFFF,
    "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) & 0xFFFFFFFF,
    "v_lshlrev_b32": lambda a, b: b << (a & 31) & 0xFFFFFFFF,
    "v_max_i16": i16_max,
    "v_add_f32": f32_sum,
    "v_mul_f16": f16_product,
}


def nan(bits: int, name: str) -> bool:
    if name.endswith("f32"):
        return bits & 0x7FFFFFFF > 0x7F800000
    return name.endswith("f16") and bits & 0x7FFF > 0x7C00


@pytest.mark.parametrize("name", list(BINARY))
def test_sdwa_sources(name: str) -> None:
    wave = rows(len(name))
    a, b = wave.v[1].copy(), wave.v[2].copy()
    integer = not name.endswith(("f16", "f32"))
    for sel0, sel1 in [*((i, (i + 3) % 7) for i in range(7)), *((i, (5 * i + 1) % 7) for i in range(7))]:
        sext = (sel0 + 2 * sel1) % 4 if integer else 0
        mods = {"src0_sel": sel0, "src1_sel": sel1, "dst_sel": DWORD}
        wave.run(Instruction(SPECS[name], "gfx90a", "sdwa", OPERANDS, mods, Modifiers(sext=sext), 8))
        for lane in range(64):
            x = selected(int(a[lane]), sel0, bool(sext & 1))
            y = selected(int(b[lane]), sel1, bool(sext & 2))
            want, got = BINARY[name](x, y), int(wave.v[0, lane])
            assert got == want or (nan(got, name) and nan(want, name)), (sel0, sel1, lane)


@pytest.mark.parametrize("name", ["v_add_u32", "v_max_i16", "v_add_f32"])
def test_sdwa_destinations(name: str) -> None:
    for select, unused in itertools.product(range(7), (PAD, SEXT, PRESERVE)):
        wave = rows(select * 3 + unused)
        wave.v[1:3] &= u32(0x3FFFFFFF)
        wave.s[126:128] = 0xF0F0FFFF, 0x12345678
        before = wave.v.copy()
        mods = {"src0_sel": DWORD, "src1_sel": DWORD, "dst_sel": select, "dst_unused": unused}
        wave.run(Instruction(SPECS[name], "gfx908", "sdwa", OPERANDS, mods, size=8))
        for lane in range(64):
            old = int(before[0, lane])
            result = BINARY[name](int(before[1, lane]), int(before[2, lane]))
            active = int(wave.s[126 + lane // 32]) >> lane % 32 & 1
            want = deposited(result, old, select, unused) if active else old
            assert int(wave.v[0, lane]) == want, (select, unused, lane)


def test_sdwa_sign_modifiers_and_comparisons() -> None:
    """Modifiers neg and abs act on the selected word; a comparison writes its lane mask."""
    wave = rows(1)
    a = wave.v[1].copy()
    mods = {"src0_sel": WORD_1, "src1_sel": DWORD, "dst_sel": DWORD}
    wave.v[2] = 0x8000
    args = Modifiers(neg=1, abs=1)
    wave.run(Instruction(SPECS["v_add_f16"], "gfx90a", "sdwa", OPERANDS, mods, args, 8))
    halves = (-np.abs((a >> u32(16)).astype(u16).view("f2"))).view(u16)
    got = wave.v[0].astype(u16)
    ok = (got == halves) | np.isnan(halves.view("f2"))
    assert ok.all()
    wave.v[2] = 0x42
    mods = {"src0_sel": BYTE_2, "src1_sel": BYTE_0}
    operands = {"sdst": Reg("s", 30, 2), "src0": Reg("v", 1), "src1": Reg("v", 2)}
    wave.run(Instruction(SPECS["v_cmp_lt_u32"], "gfx90a", "sdwa", operands, mods, size=8))
    lanes = np.unpackbits(wave.s[30:32].view(np.uint8), bitorder="little").astype(bool)
    np.testing.assert_array_equal(lanes, (a >> u32(16) & u32(0xFF)) < 0x42)


# -- DPP -------------------------------------------------------------------------------------------


def moves() -> dict[int, list[int | None]]:
    """Returns for each control the lane that each lane reads, None outside."""
    lanes = list(range(64))
    table: dict[int, list[int | None]] = {}
    for pattern in (0b11100100, 0b00011011, 0b00000000, 0b10110001, 0b11111111, 0b01001110):
        quad = [pattern >> 2 * i & 3 for i in range(4)]
        table[pattern] = [i // 4 * 4 + quad[i % 4] for i in lanes]
    rows_of = [[lanes[16 * r + c] for c in range(16)] for r in range(4)]
    for n in range(1, 16):
        table[0x100 + n] = [x for row in rows_of for x in [*row[n:], *[None] * n]]
        table[0x110 + n] = [x for row in rows_of for x in [*[None] * n, *row[:-n]]]
        table[0x120 + n] = [x for row in rows_of for x in [*row[-n:], *row[:-n]]]
    table[0x130] = [*lanes[1:], None]
    table[0x134] = [*lanes[1:], 0]
    table[0x138] = [None, *lanes[:-1]]
    table[0x13C] = [63, *lanes[:-1]]
    table[0x140] = [x for row in rows_of for x in reversed(row)]
    table[0x141] = [x for i in range(0, 64, 8) for x in reversed(lanes[i : i + 8])]
    table[0x142] = [None] * 16 + [15] * 16 + [31] * 16 + [47] * 16
    table[0x143] = [None] * 32 + [31] * 32
    for n in range(16):
        table[0x150 + n] = [16 * (i // 16) + n for i in lanes]
    return table


MOVES = moves()


@swept("control", list(MOVES), ids=hex, parts=3)
def test_dpp_controls(control: int) -> None:
    rng = np.random.default_rng(control)
    for name in ("v_mov_b32", ("v_add_f32", "v_max_i16")[control % 2]):
        for bound in (False, True) if name == "v_mov_b32" else (bool(control & 2),):
            wave = rows(control + bound)
            row_mask, bank_mask = (15, 15) if rng.random() < 0.4 else (int(rng.integers(16)), int(rng.integers(16)))
            if rng.random() < 0.7:
                wave.s[126:128] = rng.integers(0, 2**32, 2, dtype=np.uint64).astype(u32)
            before, lane_bits = wave.v.copy(), int(wave.s[126]) | int(wave.s[127]) << 32
            mods: dict[str, Any] = {"dpp_ctrl": control, "row_mask": row_mask, "bank_mask": bank_mask}
            if bound:
                mods["bound_ctrl"] = True
            count = len(SPECS[name].params)
            args = {k: r for k, r in OPERANDS.items() if k != "src1" or count > 1}
            wave.run(Instruction(SPECS[name], "gfx90a", "dpp", args, mods, size=8))
            for lane, source in enumerate(MOVES[control]):
                valid = source is not None and lane_bits >> source & 1
                written = lane_bits >> lane & 1 and row_mask >> lane // 16 & 1 and bank_mask >> lane // 4 % 4 & 1
                want = int(before[0, lane])
                if written and (valid or bound):
                    x = int(before[1, source]) if valid and source is not None else 0
                    y = int(before[2, lane])
                    want = x if count == 1 else BINARY[name](x, y)
                got = int(wave.v[0, lane])
                assert got == want or (nan(got, name) and nan(want, name)), (name, bound, lane)


def test_undefined_dpp_control_is_refused() -> None:
    with pytest.raises(SimError, match="dpp_ctrl"):
        args = {"vdst": Reg("v", 0), "src0": Reg("v", 1)}
        Wave().run(Instruction(SPECS["v_mov_b32"], "gfx908", "dpp", args, {"dpp_ctrl": 0x100}, size=8))


# -- op_sel ----------------------------------------------------------------------------------------


def halves(value: int, high: int) -> int:
    return value >> 16 * high & 0xFFFF


def f16_fma(a: int, b: int, c: int) -> int:
    x, y, z = (np.float64(np.array(v, u16).view("f2")) for v in (a, b, c))
    return int(np.array(x * y + z).astype("f2").view(u16))


TERNARY: dict[str, Callable[[int, int, int], int]] = {
    "v_mad_u16": lambda a, b, c: a * b + c & 0xFFFF,
    "v_fma_f16": f16_fma,
    "v_max3_i16": lambda a, b, c: max(x - ((x & 0x8000) << 1) for x in (a, b, c)) & 0xFFFF,
}


@pytest.mark.parametrize("name", list(TERNARY))
@pytest.mark.parametrize("op_sel", range(16))
def test_op_sel_picks_halves_and_keeps_the_other(name: str, op_sel: int) -> None:
    wave = rows(op_sel)
    wave.v[1:4] &= u32(0x3BFF3BFF)
    before = wave.v.copy()
    args = {**OPERANDS, "src2": Reg("v", 3)}
    wave.run(Instruction(SPECS[name], "gfx90a", "e64", args, {"op_sel": op_sel}, size=8))
    for lane in range(64):
        sources = [halves(int(before[1 + i, lane]), op_sel >> i & 1) for i in range(3)]
        result, old = TERNARY[name](*sources), int(before[0, lane])
        want = result << 16 | old & 0xFFFF if op_sel & 8 else old & 0xFFFF0000 | result
        assert int(wave.v[0, lane]) == want


@pytest.mark.parametrize("op_sel", range(4))
def test_op_sel_of_a_pack(op_sel: int) -> None:
    wave = rows(op_sel)
    wave.v[1:3] &= u32(0x7BFF7BFF)
    a, b = wave.v[1].copy(), wave.v[2].copy()
    wave.run(Instruction(SPECS["v_pack_b32_f16"], "gfx908", "e64", OPERANDS, {"op_sel": op_sel}, size=8))
    low, high = (np.where(op_sel >> i & 1, r >> u32(16), r & u32(0xFFFF)) for i, r in enumerate((a, b)))
    np.testing.assert_array_equal(wave.v[0], low | high << u32(16))


# -- wide results and masks ------------------------------------------------------------------------


def test_results_of_four_registers() -> None:
    wave = rows(3)
    wave.v[10:12] = wave.v[1:3]
    wave.v[20:24] = 5
    args = {"vdst": Reg("v", 30, 4), "src0": Reg("v", 10, 2), "src1": Reg("v", 3), "src2": Reg("v", 20, 4)}
    wave.run(Instruction(SPECS["v_mqsad_u32_u8"], "gfx90a", "e64", args, size=8))
    for lane in range(64):
        eight = int(wave.v[10, lane]) | int(wave.v[11, lane]) << 32
        reference = [int(wave.v[3, lane]) >> 8 * k & 255 for k in range(4)]
        for i in range(4):
            window = [eight >> 8 * (i + k) & 255 for k in range(4)]
            want = 5 + sum(abs(w - r) for w, r in zip(window, reference, strict=True) if r)
            assert int(wave.v[30 + i, lane]) == want


def test_lane_masks_are_scalar() -> None:
    in_vgprs = {**OPERANDS, "src2": Reg("v", 4, 2)}
    with pytest.raises(UnsupportedInstruction, match=r"v_cndmask_b32.*lane mask"):
        Wave().run(Instruction(SPECS["v_cndmask_b32"], "gfx90a", "e64", in_vgprs, size=8))
    to_constant = {"sdst": Const(125), "src0": Reg("v", 1), "src1": Reg("v", 2)}
    with pytest.raises(UnsupportedInstruction, match=r"v_cmp_lt_u32.*lane mask"):
        Wave().run(Instruction(SPECS["v_cmp_lt_u32"], "gfx90a", "e64", to_constant, size=8))


def test_handlers_without_floats_do_not_depend_on_mode() -> None:
    """A changed MODE then compiles only the handlers that depend on it."""
    other = Mode(round32=3, flush32=(True, True))
    assert Mode().key_for(SPECS["v_add_u32"]) == other.key_for(SPECS["v_add_u32"]) == ""
    assert Mode().key_for(SPECS["v_add_f32"]) != other.key_for(SPECS["v_add_f32"])
