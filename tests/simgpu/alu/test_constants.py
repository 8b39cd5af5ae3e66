"""Values of inline constants, in every source of every instruction that accepts one, and scalar sources of AccVGPR moves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from simgpu.engine.lowering.handlers import emitter_of
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import TARGETS, Const, Instruction, decode, text
from simgpu.hardware.isa.code.formats import operand_types
from simgpu.machine.mode import Mode
from simgpu.machine.operands import Plan
from tests.support.clang import assemble
from tests.support.constant_operands import constant_operands
from tests.support.exhaustive import one_in
from tests.support.one_instruction import Wave

# Inline floats, and their bits as f16, bf16, f32 and f64, by IEEE 754 (ml_dtypes for bf16); 1/(2 pi) from LLVM.
VALUES = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
INVERSE_TWO_PI = (0x3118, 0x3E22, 0x3E22F983, 0x3FC45F306DC9C882)
# LLVM's print of the constant; 1/(2 pi) is longer in f64, and for 16-bit integers LLVM prints the f16 bits.
NAMES = {code: str(value) for code, value in VALUES.items()} | {248: "0.15915494"}
LONG_NAME = "0.15915494309189532"
# Cases for which LLVM's assembler is no evidence: SDWA operands have no packed and no bf16 type there, and mix sources are f16 or
# f32 by op_sel_hi.
NO_EVIDENCE = re.compile(r"v_pk_fmac_f16_sdwa|v_cvt_f32_bf16_sdwa|v_(mad|fma)_mix")


def patterns(code: int) -> tuple[int, ...]:
    """Returns the float's bits as f16, bf16, f32, f64."""
    if code == 248:
        return INVERSE_TWO_PI
    value = VALUES[code]
    f16, f32, f64 = np.float16(value), np.float32(value), np.float64(value)
    return int(f16.view(np.uint16)), int(f32.view(np.uint32)) >> 16, int(f32.view(np.uint32)), int(f64.view(np.uint64))


def read_as(inst: Instruction) -> int:
    """Returns the bits that the instruction's handler finds for its constant."""
    plan = Plan(inst)
    emitter_of(inst, plan, Mode())
    places = [place for place in plan.places if place.kind == "imm"]
    assert len(places) == 1, text(inst)
    place = places[0]
    low = plan.slots[place.slot - 2]
    return low | plan.slots[place.slot - 1] << 32 if place.bits == 64 else low


def executed(target: str, code: int) -> list[tuple[Instruction, str, int]]:
    """Returns (instruction, name of the constant's source, its bits): vector and scalar arithmetic, moves and matrix
    instructions."""
    found = []
    refused = set()
    for inst, name in constant_operands(target, code):
        if inst.spec.kind == "control":
            continue
        try:
            found.append((inst, name, read_as(inst)))
        except UnsupportedInstruction:  # a lane mask in VGPRs; sparse indices or a swap without a register
            refused.add((inst.spec, name))
    lost = refused - {(inst.spec, name) for inst, name, _ in found}
    unexpected = [(spec.mnemonic, name) for spec, name in lost if not spec.flags & {"sparse", "swap"}]
    assert not unexpected
    return found


def source_type(inst: Instruction, name: str) -> Any:
    return operand_types(inst.spec).sources[int(name[3:])] if inst.spec.kind != "matrix" else None


@pytest.mark.parametrize("code", one_in(3, [*VALUES, 248]))
@pytest.mark.parametrize("target", TARGETS)
def test_inline_floats_are_the_bits_that_llvm_takes_them_for(target: str, code: int) -> None:
    """LLVM's assembler replaces a number by an inline constant if both have the same bits."""
    spelled = sorted(set(patterns(code)))
    token = re.compile(rf"(?<![\w.-])({re.escape(LONG_NAME)}|{re.escape(NAMES[code])}|0x{patterns(code)[0]:x})(?![\w.])")
    cases = [case for case in executed(target, code) if not NO_EVIDENCE.match(text(case[0]))]
    lines = []
    for inst, _, _ in cases:
        shown = text(inst)
        (name,) = token.findall(shown)
        plain = NAMES[code] if name.startswith("0x") else name
        lines += [token.sub(number, shown) for number in (plain, *map(hex, spelled))]
    taken = assemble(lines, target)
    step, seen, wrong = 1 + len(spelled), 0, []
    for i, (inst, source, bits) in enumerate(cases):
        plain_line, *others = taken[step * i : step * (i + 1)]
        if plain_line is None or "/*" in plain_line.text:  # two scalars, or a constant where LLVM wants a register
            continue
        seen += 1
        same = {number for number, other in zip(spelled, others, strict=True) if other and other.code == plain_line.code}
        if bits >> 32:  # for an f64, a number of 32 bits is the high half
            same.discard(bits >> 32)
        if not same:  # a 16-bit integer: LLVM takes no number of more bits, and f32 bits cannot be written
            same = {patterns(code)[2]}
        if same != {bits}:
            wrong.append((text(inst), source, hex(bits), [hex(number) for number in same]))
    assert not wrong, f"{len(wrong)} of {seen}, first: {wrong[:4]}"
    assert seen > 1800


@pytest.mark.covering(1)
@pytest.mark.parametrize("value", [0, 1, 37, 64, -1, -2, -16])
@pytest.mark.parametrize("target", TARGETS)
def test_inline_integers_are_sign_extended(target: str, value: int) -> None:
    for inst, _, bits in executed(target, 128 + value if value >= 0 else 192 - value):
        wide = bits >> 32 or value >= 0
        assert bits in (value & 0xFFFFFFFF, value & 0xFFFFFFFFFFFFFFFF), text(inst)
        type_ = source_type(inst, "src0")
        if type_ is not None and inst.spec.encoding == "sop2" and type_.bits == 64 and text(inst).endswith("s[40:41]"):
            assert wide, text(inst)


def run(line: str, target: str, rows: dict[int, int], result: int) -> int:
    """Lane 0 of v[result] after one instruction, given vector registers."""
    (assembled,) = assemble([line], target)
    assert assembled, line
    wave = Wave()
    for register, value in rows.items():
        wave.v[register] = value
    wave.run(decode(assembled.code, 0, target))
    return int(wave.v[result][0])


# Line, v1 (and v3), the result in v2. Packed integers see f32 bits, packed floats their own format in the low half.
LINES = [
    ("v_pk_add_u16 v2, v1, 2.0", 0x00030005, 0x40030005),
    ("v_pk_add_u16 v2, v1, 2.0 op_sel_hi:[1,0]", 0x00030005, 0x00030005),
    ("v_pk_add_i16 v2, v1, 0.15915494", 0x00010001, 0x3E23F984),
    ("v_pk_sub_i16 v2, v1, -1", 0x00030005, 0x00040006),
    ("v_pk_lshlrev_b16 v2, v1, 1.0", 0x00010001, 0x7F000000),
    ("v_pk_max_u16 v2, v1, -4.0", 0x00010001, 0xC0800001),
    ("v_pk_mad_u16 v2, v1, 0.5, v1", 0x00020003, 0x7E020003),
    ("v_dot2_i32_i16 v2, v1, 1.0, 5", 0x00030007, 5 + 3 * 0x3F80),
    ("v_dot2_u32_u16 v2, v1, -2.0, 1", 0x00020001, 1 + 2 * 0xC000),
    ("v_pk_add_f16 v2, v1, 1.0", 0x3C003C00, 0x3C004000),
    ("v_pk_add_f16 v2, v1, 1.0 op_sel_hi:[1,0]", 0x3C003C00, 0x40004000),
    ("v_add_u16 v2, 1.0, v1", 0x00030005, 0x00000005),
    ("v_add_u16 v2, 0.15915494, v1", 0x00030005, 0x0000F988),
    ("v_mad_u16 v2, v1, 4.0, v1", 0x00030005, 0x00000005),
    ("v_mul_f16 v2, 4.0, v1", 0x00003C00, 0x00004400),
    ("v_lshlrev_b32 v2, v1, 1.0", 1, 0x7F000000),
]


@pytest.mark.parametrize(("line", "given", "wanted"), LINES)
@pytest.mark.parametrize("target", TARGETS)
def test_constants_in_arithmetic(target: str, line: str, given: int, wanted: int) -> None:
    assert run(line, target, {1: given}, 2) == wanted


def test_bf16_constants() -> None:
    """In gfx950's bf16: 3 times 0.5 by the low half and 3 times 0 by the high one, plus 1."""
    assert run("v_dot2_f32_bf16 v2, v1, 0.5, 1.0", "gfx950", {1: 0x40404040}, 2) == int(np.float32(2.5).view(np.uint32))
    assert run("v_cvt_f32_bf16 v2, -4.0", "gfx950", {}, 2) == 0xC0800000


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_packed_f32_constants(target: str) -> None:
    """Constants are splat by op_sel_hi, as LLVM writes it."""
    (assembled,) = assemble(["v_pk_fma_f32 v[2:3], v[4:5], 2.0, 1.0 op_sel_hi:[1,0,0]"], target)
    assert assembled
    wave = Wave()
    wave.v[4], wave.v[5] = (np.float32(x).view(np.uint32) for x in (3.0, 5.0))
    wave.run(decode(assembled.code, 0, target))
    assert [float(wave.v[i].view(np.float32)[0]) for i in (2, 3)] == [7.0, 11.0]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("s7", 0xDEADBEEF), ("vcc_hi", 0x12345678), ("m0", 77), ("exec_lo", 0xFFFFFFFE), ("src_scc", 1), ("-16", 0xFFFFFFF0),
        ("4.0", 0x40800000),
    ],
)  # fmt: skip
def test_accumulator_from_scalars(target: str, source: str, wanted: int) -> None:
    """Every active lane gets the scalar; an inactive one keeps its value."""
    (assembled,) = assemble([f"v_accvgpr_write_b32 a9, {source}"], target)
    assert assembled
    wave = Wave()
    wave.a[9] = 55
    wave.s[7], wave.s[107], wave.s[124], wave.s[126] = 0xDEADBEEF, 0x12345678, 77, 0xFFFFFFFE
    wave.scc = 1
    wave.run(decode(assembled.code, 0, target))
    assert list(wave.a[9]) == [55] + [wanted] * 63


def test_the_constant_is_in_one_source() -> None:
    """Operands are generated, and each names its constant's source."""
    found = {(inst.mnemonic, inst.form, name) for inst, name in constant_operands("gfx942", 244)}
    assert {("v_pk_add_u16", "e64", "src1"), ("v_add_f16", "sdwa", "src0"), ("s_and_b64", "e32", "src1")} <= found
    assert all(inst.args[name] == Const(244) for inst, name in constant_operands("gfx942", 244))
