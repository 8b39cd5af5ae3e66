"""Compiled handlers of matrix instructions against the numpy arithmetic and the hardware-validated vectors."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from simgpu.hardware.mfma import MatrixInstruction, find, instructions
from simgpu.hardware.mfma.instruction import BITS
from simgpu.matrix.one_mfma import execute, from_registers, to_registers
from tests.support.mfma_operands import F8F6F4_FORMATS, assert_same, executed, expected, moderate, operands, rng_of, special
from tests.support.places import SHARED
from tests.support.sweeps import swept

VECTORS = SHARED / "oracles" / "mfma_numerics.json.gz"
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
OF_ARCH = {"CDNA1": "gfx908", "CDNA2": "gfx90a", "CDNA3": "gfx942"}
ROWS = [row for target in TARGETS for row in instructions(target)]


def label(row: MatrixInstruction) -> str:
    return f"{row.target}-{row.mnemonic}"


def code_of(row: MatrixInstruction) -> tuple[object, ...]:
    """Returns a key: rows with the same key get the same handler, so compiling it for one target tests it for all."""
    chain = row.cd_type != "f32" or row.a_type == "f32"
    generation = "any" if chain else {"gfx950": "gfx942"}.get(row.target, row.target)
    return row.m, row.n, row.k, row.blocks, row.a_type, row.b_type, row.sparse, row.scaled, generation


DISTINCT = list({code_of(row): row for row in ROWS}.values())


@swept("row", ROWS, ids=label)
def test_registers_hold_what_the_owners_say(row):
    rng = rng_of("owners", row.mnemonic)
    row = row.with_formats(int(rng.integers(5)), int(rng.integers(5)))
    made = operands(row, rng, special)
    for name, bits in made.items():
        registers = to_registers(row, name, bits)
        assert (from_registers(row, name, registers) == bits).all()
        for _ in range(8):
            block, i, j = (int(rng.integers(extent)) for extent in bits.shape)
            group = {"IDX": 4, "SCALE_A": 32, "SCALE_B": 32}.get(name, 1)
            place = (i * group, j) if name == "SCALE_B" else (i, j * group)
            extra = 0
            if name == "A" and row.sparse:
                place, extra = (i, j // 2 * 4), j % 2 * BITS[row.a_type]
            register, lane, low = row.owner(name, *place, block)
            words = [int(word) for word in registers[register : register + 2, lane]] + [0]
            width = BITS[row.a_type] if name == "A" and row.sparse else row.width(name)
            assert (words[0] | words[1] << 32) >> (low + extra) & ((1 << width) - 1) == int(bits[block, i, j])


@swept("row", DISTINCT, ids=label, parts=3)
def test_handlers_give_the_bits_of_the_arithmetic(row):
    """f8f6f4 uses fp8 here; tests below use other formats."""
    row = row.with_formats()
    for fill in (moderate, special):
        made = operands(row, rng_of(row.mnemonic, fill.__name__), fill)
        assert_same(row, executed(row, made), expected(row, made))


def test_handlers_give_the_bits_of_the_hardware_validated_model():
    if not VECTORS.exists():
        pytest.skip(f"{VECTORS} is absent")
    seen = 0
    for entry in json.loads(gzip.decompress(VECTORS.read_bytes())):
        row = find(entry["mfma"], OF_ARCH[entry["arch"]])
        shapes = {"A": (entry["m"], entry["k"]), "B": (entry["k"], entry["n"])}
        shapes |= {"C": (entry["m"], entry["n"]), "D": (entry["m"], entry["n"])}
        widths = {"A": BITS[row.a_type], "B": BITS[row.b_type], "C": BITS[row.cd_type], "D": BITS[row.cd_type]}
        cases = entry["cases"]
        for start in range(0, len(cases), row.blocks):  # a case in each block
            chosen = (cases * 2)[start : start + row.blocks]
            stacked = {
                name: np.stack([
                    np.frombuffer(bytes.fromhex(case[name]), f"<u{widths[name] // 8}").reshape(shape)
                    for case in chosen
                ]).astype(np.uint64)
                for name, shape in shapes.items()
            }  # fmt: skip
            wanted = stacked.pop("D").astype(f"u{BITS[row.cd_type] // 8}")
            if len(chosen) < row.blocks:
                pytest.fail(f"{entry['mfma']}: too few cases to fill {row.blocks} blocks")
            assert_same(row, executed(row, stacked), wanted, any_nan=True)
            seen += len(chosen)
    assert seen >= 640


MODIFIED = [
    ("v_mfma_f32_4x4x1f32", "gfx908", {"cbsz": 2, "abid": 1, "blgp": 1}),
    ("v_mfma_f32_4x4x1f32", "gfx908", {"cbsz": 4, "abid": 13, "blgp": 2}),
    ("v_mfma_f32_4x4x1_16b_f32", "gfx942", {"blgp": 3}),
    ("v_mfma_f32_16x16x1f32", "gfx90a", {"cbsz": 1, "abid": 1, "blgp": 7}),
    ("v_mfma_f32_16x16x4f32", "gfx90a", {"blgp": 5}),
    ("v_mfma_f32_32x32x1_2b_f32", "gfx942", {"cbsz": 1, "abid": 1}),
    ("v_mfma_f32_32x32x2f32", "gfx908", {"blgp": 6}),
    # Rotated by 16 lanes, elements of both halves of k are in one half of the register.
    ("v_mfma_f32_32x32x2f32", "gfx908", {"blgp": 3}),
    ("v_mfma_f32_32x32x2_f32", "gfx942", {"blgp": 3}),
    ("v_mfma_f32_32x32x8f16", "gfx90a", {"blgp": 3}),
    ("v_mfma_f32_32x32x4bf16", "gfx908", {"blgp": 3}),
    ("v_mfma_f32_32x32x8bf16_1k", "gfx90a", {"blgp": 3}),
    ("v_mfma_i32_32x32x8i8", "gfx908", {"blgp": 3}),
    ("v_mfma_f32_4x4x4f16", "gfx908", {"cbsz": 3, "abid": 5, "blgp": 4}),
    ("v_mfma_f32_16x16x4f16", "gfx90a", {"cbsz": 2, "abid": 3, "blgp": 5}),
    ("v_mfma_f32_16x16x8bf16", "gfx908", {"blgp": 3}),
    ("v_mfma_f32_4x4x4bf16_1k", "gfx90a", {"cbsz": 1, "abid": 1, "blgp": 6}),
    ("v_mfma_f32_32x32x4_2b_f16", "gfx942", {"cbsz": 1, "abid": 0, "blgp": 2}),
    ("v_mfma_f32_4x4x4_16b_bf16", "gfx942", {"cbsz": 4, "abid": 15, "blgp": 7}),
    ("v_mfma_i32_4x4x4i8", "gfx908", {"cbsz": 2, "abid": 2, "blgp": 1}),
    ("v_mfma_i32_16x16x4_4b_i8", "gfx942", {"cbsz": 1, "abid": 1, "blgp": 3}),
    ("v_mfma_i32_16x16x16i8", "gfx90a", {"blgp": 7}),
    ("v_smfmac_f32_16x16x32_f16", "gfx942", {"abid": 1}),
    ("v_smfmac_f32_32x32x16_bf16", "gfx942", {"abid": 3}),
    ("v_smfmac_i32_16x16x64_i8", "gfx942", {"abid": 1}),
]


@pytest.mark.parametrize("name, target, mods", MODIFIED, ids=str)
def test_modifiers(name, target, mods):
    row = find(name, target)
    for fill in (moderate, special):
        made = operands(row, rng_of(name, str(mods)), fill)
        got = executed(row, made, **mods)
        if row.sparse:  # the fields are at abid's place
            assert_same(row, got, expected(row, made))
        else:
            assert_same(row, got, expected(row, made, **mods))


def test_smfmac_with_cbsz_uses_the_first_index_set():
    row = find("v_smfmac_f32_16x16x32_f16", "gfx942")
    made = operands(row, rng_of("cbsz"), moderate)
    registers = {name: to_registers(row, name, bits) for name, bits in made.items()}
    got = execute(row, registers, {"cbsz": 1, "abid": 2})
    assert_same(row, from_registers(row, "D", got), expected(row, made))


@pytest.mark.parametrize("name, formats", F8F6F4_FORMATS, ids=str)
def test_f8f6f4_formats(name, formats):
    cbsz, blgp = formats
    row = find(name, "gfx950").with_formats(cbsz, blgp)
    for fill in (moderate, special):
        made = operands(row, rng_of(name, formats), fill)
        assert_same(row, executed(row, made, cbsz=cbsz, blgp=blgp), expected(row, made))


def test_scales_of_any_size():
    """Products far above f32's range and far below it, with infinities in C."""
    row = find("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950").with_formats()
    rng = rng_of("scales")
    for fill in (moderate, special):
        made = operands(row, rng, fill)
        for name in ("SCALE_A", "SCALE_B"):
            made[name] = rng.choice(np.array([0, 1, 60, 120, 127, 180, 190, 254], np.uint64), made[name].shape)
        assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("neg", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"])
def test_f64_neg(name, neg):
    row = find(name, "gfx942")
    made = operands(row, rng_of(name, neg), moderate)
    made["C"][..., ::3] = 0  # −0 and +0 differ
    signs = tuple(neg >> i & 1 for i in range(3))
    assert_same(row, executed(row, made, neg=neg), expected(row, made, neg=signs))


@pytest.mark.parametrize("row", [row for row in DISTINCT if row.a_type == "i8" and not row.sparse], ids=label)
@pytest.mark.parametrize("clamp", [0, 1])
def test_i8_of_extremes(row, clamp):
    """Products of the least and the greatest bytes, on a C near both ends of its range."""
    rng = rng_of("extremes", row.mnemonic)
    made = operands(row, rng, moderate)
    for name in "AB":
        made[name] = rng.choice(np.array([0x80, 0x7F, 0xFF, 0], np.uint64), made[name].shape, p=[0.6, 0.2, 0.1, 0.1])
    made["C"] = rng.choice(np.array([0, 0x7FFFFFFF, 0x80000000, 0xFFF00000], np.uint64), made["C"].shape)
    assert_same(row, executed(row, made, clamp=clamp), expected(row, made, clamp=bool(clamp)))


def test_i8_saturates_with_clamp():
    row = find("v_mfma_i32_4x4x4i8", "gfx908")
    made = operands(row, rng_of("clamp"), special)
    made["C"][::2] = 0x7FFFFFFF
    made["C"][1::2] = 0x80000000
    wrapped, clamped = expected(row, made), expected(row, made, clamp=True)
    assert (wrapped != clamped).any()
    assert_same(row, executed(row, made, clamp=1), clamped)


@pytest.mark.parametrize("select", [(0, 0), (1, 2), (3, 1)])
def test_scales_come_from_the_byte_that_op_sel_names(select):
    row = find("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950").with_formats(4, 4)
    made = operands(row, rng_of("op_sel", select), moderate)
    registers = {name: to_registers(row, name, bits) for name, bits in made.items()}
    for name, byte in zip(("SCALE_A", "SCALE_B"), select, strict=True):
        others = np.uint32(0x8D7C5AFE & ~(0xFF << 8 * byte))
        registers[name] = registers[name] << np.uint32(8 * byte) | others
    mods = {
        "cbsz": 4, "blgp": 4,
        "op_sel": sum((byte & 1) << i for i, byte in enumerate(select)),
        "op_sel_hi": sum((byte >> 1) << i for i, byte in enumerate(select)),
    }  # fmt: skip
    assert_same(row, from_registers(row, "D", execute(row, registers, mods)), expected(row, made))
