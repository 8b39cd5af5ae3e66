"""Decoder: undefined and cut code, operands by name, tables without clashes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware import mfma
from simgpu.hardware.errors import DecodeError, TargetError
from simgpu.hardware.isa import REGISTRY, TARGETS, Const, Imm, Literal, Off, Reg, decode, decode_all, table, text
from tests.support.exhaustive import examples

targets = pytest.mark.parametrize("target", TARGETS)


@targets
def test_every_opcode_is_in_the_table(target: str) -> None:
    found = {id(spec) for spec, _ in table(target).values()}
    assert found == {id(spec) for spec in REGISTRY.specs if target in spec.opcodes}


@targets
def test_every_matrix_row_decodes(target: str) -> None:
    for row in mfma.instructions(target):
        word = 0x1A7 << 23 | row.opcode << 16 | (0x100 | 0x110 << 9 | 0x120 << 18) << 32
        code = word.to_bytes(8, "little")
        if row.scaled:
            load = 0x1A7 << 23 | 44 << 16 | (0x130 | 0x131 << 9) << 32
            code = load.to_bytes(8, "little") + code
        instruction = decode(code, 0, target)
        assert instruction.mnemonic == row.mnemonic
        assert instruction.size == len(code)
        destination = instruction.args["vdst"]
        assert isinstance(destination, Reg)
        assert destination.count == row.registers("D")
        assert destination.file == ("a" if target == "gfx908" else "v")


@targets
@settings(max_examples=examples(400))
@given(code=st.binary(max_size=16))
def test_any_bytes_decode_or_raise_decode_error(target: str, code: bytes) -> None:
    try:
        instruction = decode(code, 0, target)
    except DecodeError as error:
        assert "0x0" in str(error)
        assert code[:4].hex() in str(error) or not code
        return
    assert 4 <= instruction.size <= len(code)
    assert text(instruction).split()[0].startswith(instruction.mnemonic)


@targets
@settings(max_examples=examples(300))
@given(entry=st.integers(0, 10**6), word=st.integers(0, (1 << 64) - 1))
def test_operand_bits_of_every_opcode(target: str, entry: int, word: int) -> None:
    """Random operand fields under a defined opcode never fail in another way."""
    encodings = {
        "vop1": (0x7E << 24, 9), "vop2": (0, 25), "vopc": (0x7C << 24, 17), "sop1": (0xBE8 << 20, 8),
        "sop2": (1 << 31, 23), "sopk": (0xB << 28, 23), "sopc": (0xBF << 24, 16),
        "sopp": (0xBF8 << 20, 16), "smem": (0xC0 << 24, 18), "vop3": (0xD0 << 24, 16),
        "vop3p": (0xD38 << 20, 16), "scaled": (0xD38 << 20, 16), "ds": (0xD8 << 24, 17),
        "flat": (0xDC << 24, 18), "scratch": (0xDC << 24 | 1 << 14, 18),
        "global": (0xDC << 24 | 2 << 14, 18), "mubuf": (0xE0 << 24, 18), "mtbuf": (0xE8 << 24, 15),
    }  # fmt: skip
    keys = sorted(table(target))
    encoding, opcode = keys[entry % len(keys)]
    base, shift = encodings[encoding]
    fixed = base | opcode << shift
    free = {"vop1": 0x1FE01FF, "vop2": 0x1FFFFFF, "vopc": 0x1FFFF, "sop1": 0x7F00FF, "sop2": 0x7FFFFF}
    free |= {"sopk": 0x7FFFFF, "sopc": 0xFFFF, "sopp": 0xFFFF, "smem": 0x3FFFF, "mtbuf": 0x3807FFF}
    free |= {"vop3": 0xFFFF, "vop3p": 0xFFFF, "scaled": 0xFFFF, "ds": 0x201FFFF, "mubuf": 0x3FFFF}
    low = fixed | word & free.get(encoding, 0x2033FFF)
    code = (low | word >> 32 << 32).to_bytes(8, "little") + bytes(8)
    try:
        instruction = decode(code, 0, target)
    except DecodeError:
        return
    assert instruction.spec in {spec for (_, op), (spec, _) in table(target).items() if op == opcode}
    assert text(instruction)


def test_error_says_target_offset_and_bytes() -> None:
    code = bytes.fromhex("000081bfffffffffffffffff")
    with pytest.raises(DecodeError, match=r"gfx942.*offset 0x4.*ffffffff"):
        decode_all(code, "gfx942")


@pytest.mark.parametrize("code", ["", "0000", "ff0080be", "ff0080be123456", "000000d1", "f9000000"])
def test_code_that_ends_within_an_instruction(code: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(code), 0, "gfx90a")


def test_unknown_target() -> None:
    with pytest.raises(TargetError, match="gfx900"):
        decode(bytes(4), 0, "gfx900")


def test_offset_and_memoryview() -> None:
    code = bytes.fromhex("00000000000081bf")
    instruction = decode(memoryview(code), 4, "gfx950")
    assert (instruction.mnemonic, instruction.offset, instruction.size) == ("s_endpgm", 4, 4)


# Target, code, form, operands, modifiers.
OPERANDS = [
    ("gfx90a", "ff0080be78563412", "e32", {"sdst": Reg("s", 0), "src0": Literal(0x12345678)}, {}),
    ("gfx90a", "10008cbf", "e32", {"simm16": Imm(16)}, {}),
    (
        "gfx942",
        "014002c0fcff1f08",
        "e32",
        {"sdst": Reg("s", 0), "sbase": Reg("s", 2, 2), "soffset": Reg("s", 4)},
        {"offset": -4},
    ),
    (
        "gfx942",
        "be499edc00005000",
        "e32",
        {"vaddr": Off(), "saddr": Reg("s", 80)},
        {"offset": 2494, "nt": True},
    ),
    (
        "gfx90a",
        "008068dc6bdaa800",
        "e32",
        {"vaddr": Reg("v", 107), "vdata": Reg("a", 218), "saddr": Reg("s", 40, 2)},
        {},
    ),
    (
        "gfx942",
        "dbf744e8d4ac1541",
        "e32",
        {
            "vdata": Reg("v", 172),
            "vaddr": Reg("v", 212, 2),
            "srsrc": Reg("s", 84, 4),
            "soffset": Reg("s", 65),
        },
        {"format": 8, "idxen": True, "offen": True, "offset": 2011, "sc0": True},
    ),
    (
        "gfx908",
        "9e009ed844000000",
        "e32",
        {"addr": Reg("v", 68), "data0": Reg("v", 0, 2), "data1": Reg("v", 0, 2)},
        {"offset0": 158},
    ),
    (
        "gfx950",
        "fa60a07810c010e0",
        "dpp",
        {"vdst": Reg("v", 80), "src0": Reg("v", 16), "src1": Reg("v", 48)},
        {"dpp_ctrl": 0xC0, "row_mask": 14, "bank_mask": 0},
    ),
    (
        "gfx908",
        "401960485815f9d7",
        "e32",
        {"vdst": Reg("v", 48), "src0": Reg("v", 64), "k": Literal(0xD7F91558), "src1": Reg("v", 12)},
        {},
    ),
    (
        "gfx90a",
        "b000d2d31001831c",
        "e64",
        {
            "vdst": Reg("v", 176, 4),
            "src0": Reg("a", 16),
            "src1": Reg("a", 128),
            "src2": Reg("v", 32, 4),
        },
        {},
    ),
    (
        "gfx908",
        "80b3a1d340010355",
        "e64",
        {"vdst": Reg("v", 128), "src0": Reg("v", 64), "src1": Reg("v", 128), "src2": Reg("v", 64)},
        {"clamp": True, "op_sel": 6, "op_sel_hi": 2, "neg_lo": 2, "neg_hi": 3},
    ),
    (
        "gfx942",
        "108619d1a4200300",
        "e64",
        {
            "vdst": Reg("v", 16),
            "sdst": Reg("s", 6, 2),
            "src0": Const(164),
            "src1": Reg("v", 144),
        },
        {"clamp": True},
    ),
]


@pytest.mark.parametrize(("target", "code", "form", "args", "mods"), OPERANDS)
def test_operands(target: str, code: str, form: str, args: dict, mods: dict) -> None:
    instruction = decode(bytes.fromhex(code), 0, target)
    assert instruction.form == form
    assert dict(instruction.args) == args
    assert list(instruction.args) == list(args)
    assert dict(instruction.mods) == mods


def test_implied_carry_is_an_operand() -> None:
    instruction = decode(bytes.fromhex("fa0cd139ac3409ee"), 0, "gfx942")
    vcc = Reg("s", 106, 2)
    assert instruction.mnemonic == "v_addc_co_u32"
    assert (instruction.args["sdst"], instruction.args["src2"]) == (vcc, vcc)


def test_source_modifiers() -> None:
    dpp = decode(bytes.fromhex("fa8ced76c53839dc"), 0, "gfx950")
    assert (dpp.src_mods.neg, dpp.src_mods.abs) == (1, 1)
    sdwa = decode(bytes.fromhex("f972767f430e0d00"), 0, "gfx90a")
    assert sdwa.src_mods.sext == 1
    assert sdwa.mods == {"dst_sel": 6, "dst_unused": 1, "src0_sel": 5}
