"""Compiled handlers of matrix instructions against the numpy arithmetic and the hardware-validated vectors."""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest

from simgpu.hardware.isa.instruction import Const, Operand, Reg
from simgpu.hardware.mfma import MatrixInstruction, find, instructions, multiply
from simgpu.hardware.mfma.instruction import BITS
from simgpu.matrix.one_mfma import (
    DTYPES,
    execute,
    from_registers,
    instruction_of,
    stored_shape,
    to_registers,
)
from tests.support.one_instruction import Wave
from tests.support.places import SHARED

VECTORS = SHARED / "oracles" / "mfma_numerics.json.gz"
TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
OF_ARCH = {"CDNA1": "gfx908", "CDNA2": "gfx90a", "CDNA3": "gfx942"}
ROWS = [row for target in TARGETS for row in instructions(target)]


def label(row: MatrixInstruction) -> str:
    return f"{row.target}-{row.mnemonic}"


def code_of(row: MatrixInstruction) -> tuple[object, ...]:
    """Rows that agree here get the same handler: compiling it for one target tests it for all."""
    chain = row.cd_type != "f32" or row.a_type == "f32"
    generation = "any" if chain else {"gfx950": "gfx942"}.get(row.target, row.target)
    return row.m, row.n, row.k, row.blocks, row.a_type, row.b_type, row.sparse, row.scaled, generation


DISTINCT = list({code_of(row): row for row in ROWS}.values())


def rng_of(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


def moderate(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Raw bits of ordinary numbers, of either sign and of spread exponents."""
    if kind in ("i8", "i32") or BITS[kind] < 16:
        return rng.integers(0, 1 << BITS[kind], shape, dtype=np.uint64)
    spread = 2.0 ** rng.integers(-6, 4, shape)
    values = (rng.standard_normal(shape) * spread).astype(DTYPES[kind])
    return values.view(f"u{values.itemsize}").astype(np.uint64)


def special(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits, a third of them extremes: zeros, denormals, the largest, infinities, NaNs."""
    bits = BITS[kind]
    values = rng.integers(0, (1 << bits) - 1, shape, dtype=np.uint64, endpoint=True)
    sign, top = 1 << (bits - 1), (1 << bits) - 1
    exponent = {"f64": 0x7FF << 52, "f32": 0xFF << 23, "xf32": 0xFF << 23, "f16": 31 << 10, "bf16": 255 << 7}
    inf = exponent.get(kind, sign >> 1)
    extremes = np.array([0, sign, 1, sign | 1, inf - 1, inf, sign | inf, inf + 1, top, sign - 1], np.uint64)
    return np.where(rng.random(shape) < 1 / 3, rng.choice(extremes, shape), values)


def operands(row: MatrixInstruction, rng: np.random.Generator, fill) -> dict[str, np.ndarray]:
    """Random raw operands of all blocks, by operand name."""
    kinds = {"A": row.a_type, "B": row.b_type, "C": row.cd_type}
    made = {name: fill(rng, kind, (row.blocks, *stored_shape(row, name))) for name, kind in kinds.items()}
    if row.sparse:
        made["IDX"] = rng.integers(0, 16, (row.blocks, *stored_shape(row, "IDX")), dtype=np.uint64)
    for name in ("SCALE_A", "SCALE_B") if row.scaled else ():
        made[name] = rng.integers(120, 136, (row.blocks, *stored_shape(row, name)), dtype=np.uint64)
        if fill is special:
            made[name].flat[:2] = 0, 255
    return made


def expected(row: MatrixInstruction, made: dict[str, np.ndarray], **mods: object) -> np.ndarray:
    options = {"index": made.get("IDX"), "scale_a": made.get("SCALE_A"), "scale_b": made.get("SCALE_B")}
    return multiply(row, made["A"], made["B"], made["C"], **options, **mods)


def executed(row: MatrixInstruction, made: dict[str, np.ndarray], **mods: int) -> np.ndarray:
    registers = {
        name: to_registers(row, name, bits, abid=mods.get("abid", 0) if name == "IDX" else 0)
        for name, bits in made.items()
    }
    if row.scaled:
        mods["op_sel_hi"] = 0
    return from_registers(row, "D", execute(row, registers, mods))


def assert_same(row: MatrixInstruction, got: np.ndarray, wanted: np.ndarray, any_nan: bool = False) -> None:
    """Equal bits; any_nan: NaN payloads aside, of which the model says nothing."""
    kind = DTYPES[row.cd_type]
    wrong = got != wanted
    if any_nan and kind.kind == "f":
        wrong &= ~(np.isnan(got.view(kind)) & np.isnan(wanted.view(kind)))
    first = [f"D{list(at)}: {got[tuple(at)]:#x}, not {wanted[tuple(at)]:#x}" for at in np.argwhere(wrong)[:3]]
    assert not wrong.any(), (row.target, row.mnemonic, int(wrong.sum()), first)


@pytest.mark.parametrize("row", ROWS, ids=label)
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


@pytest.mark.parametrize("row", DISTINCT, ids=label)
def test_handlers_give_the_bits_of_the_arithmetic(row):
    """f8f6f4: fp8; other formats below."""
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


F8F6F4_FORMATS = [
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (2, 4)),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (4, 3)),
    ("v_mfma_f32_32x32x64_f8f6f4", (0, 1)),
]
MODIFIED = [
    ("v_mfma_f32_4x4x1f32", "gfx908", {"cbsz": 2, "abid": 1, "blgp": 1}),
    ("v_mfma_f32_4x4x1f32", "gfx908", {"cbsz": 4, "abid": 13, "blgp": 2}),
    ("v_mfma_f32_4x4x1_16b_f32", "gfx942", {"blgp": 3}),
    ("v_mfma_f32_16x16x1f32", "gfx90a", {"cbsz": 1, "abid": 1, "blgp": 7}),
    ("v_mfma_f32_16x16x4f32", "gfx90a", {"blgp": 5}),
    ("v_mfma_f32_32x32x1_2b_f32", "gfx942", {"cbsz": 1, "abid": 1}),
    ("v_mfma_f32_32x32x2f32", "gfx908", {"blgp": 6}),
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
        if row.sparse:  # the fields were put where abid looks for them
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
    """Products far beyond f32 and far below it, infinities of C among them."""
    row = find("v_mfma_scale_f32_16x16x128_f8f6f4", "gfx950").with_formats()
    rng = rng_of("scales")
    for fill in (moderate, special):
        made = operands(row, rng, fill)
        for name in ("SCALE_A", "SCALE_B"):
            made[name] = rng.choice(np.array([0, 1, 60, 120, 127, 180, 190, 254], np.uint64), made[name].shape)
        assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("ends", [(-52, -48), (-50, 10), (0, 0), (-6, 60), (57, 62)], ids=str)
@pytest.mark.parametrize("name, formats", F8F6F4_FORMATS[:2], ids=str)
def test_scales_at_the_ends_of_the_fast_path(name, formats, ends):
    """Blocks whose products are all 0 beside others, and C that nearly cancels, is tiny, huge or 0."""
    rng = rng_of(name, formats, ends)
    for fp8 in (False, True):
        row = find(name, "gfx950").with_formats(*((0, 0) if fp8 else formats))
        made = operands(row, rng, moderate)
        total = rng.integers(ends[0], ends[1] + 1, (1, row.m, row.k // 32))
        made["SCALE_A"] = (127 + total // 2).astype(np.uint64)
        made["SCALE_B"] = np.full_like(made["SCALE_B"], 127 + int(ends[1]) // 2)
        made["SCALE_B"][:, :, ::2] = 127 + int(ends[0]) - int(ends[0]) // 2
        made["A"].reshape(1, row.m, -1, 32)[:, ::3, ::2] = 0
        made["A"].reshape(1, row.m, -1, 32)[:, 5] = 0
        for kind in range(4):
            c = expected(row, made | {"C": np.zeros_like(made["C"])}).astype(np.uint64) ^ np.uint64(1 << 31)
            if kind == 1:
                c = rng.integers(0, 1 << 32, c.shape, dtype=np.uint64)
            elif kind:
                c = (c & np.uint64(1 << 31)) | np.uint64({2: 20 << 23, 3: 0}[kind])
            made["C"] = c
            assert_same(row, executed(row, made, **({} if fp8 else {"cbsz": formats[0], "blgp": formats[1]})), expected(row, made))


@pytest.mark.parametrize("least", [-102, -90, -89, -88, -87, -70])
def test_bf16_of_cdna2_at_the_exponents_where_results_may_be_denormal(least):
    """Products down to 2^least; C such that it nearly cancels sums, or is denormal itself."""
    row = find("v_mfma_f32_32x32x8bf16_1k", "gfx90a")
    rng = rng_of("flush", least)
    made = operands(row, rng, moderate)
    for name, low in (("A", least // 2), ("B", least - least // 2)):
        exponent = rng.integers(low, low + 3, made[name].shape) + 127
        made[name] = made[name] & np.uint64(0x807F) | exponent.astype(np.uint64) << np.uint64(7)
    zero = made | {"C": np.zeros_like(made["C"])}
    made["C"] = expected(row, zero).astype(np.uint64) ^ np.uint64(1 << 31)
    nudge = rng.integers(-2, 3, made["C"].shape)
    made["C"] = (made["C"].astype(np.int64) + nudge).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    made["C"][..., ::5] = rng.integers(0, 1 << 23, made["C"][..., ::5].shape, dtype=np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


EDGES = [
    ("v_mfma_f32_16x16x16_bf16", (-40, 46)),
    ("v_mfma_f32_16x16x8_xf32", (-40, 46)),
    ("v_mfma_f32_16x16x16_f16", (-14, 15)),
    ("v_mfma_f32_16x16x32_fp8_bf8", (-7, 7)),
]


@pytest.mark.parametrize("name, edge", EDGES, ids=str)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ends", [False, True])
def test_sums_at_the_ends_of_the_range_of_the_fast_path(name, edge, seed, ends):
    """Exponents at and past the bounds, zeros among them; C the sum's negative or zero; where it
    leaves the fast path, tiny, huge, infinite."""
    row = find(name, "gfx942")
    rng = rng_of(name, seed)
    made = operands(row, rng, moderate)
    for operand, kind in (("A", row.a_type), ("B", row.b_type)):
        if kind in ("bf16", "xf32"):
            fraction = 7 if kind == "bf16" else 23
            span = (edge[0], edge[0] + 3) if seed == 0 else (edge[1] - 3, edge[1]) if seed == 1 else (-5, 5)
            exponent = rng.integers(span[0], span[1] + 1, made[operand].shape) + 127
            if seed == 2:
                exponent.flat[0] += {"A": edge[0] - 6, "B": edge[1] + 6}[operand]
            keep = np.uint64((1 << (BITS[kind] - 1)) | (1 << fraction) - 1)
            made[operand] = made[operand] & keep | exponent.astype(np.uint64) << np.uint64(fraction)
        made[operand] = np.where(rng.random(made[operand].shape) < 0.2, 0, made[operand]).astype(np.uint64)
    made["A"][:, 3] = 0  # a row of D without a product
    cancelling = expected(row, made | {"C": np.zeros_like(made["C"])}).astype(np.uint64) ^ np.uint64(1 << 31)
    made["C"] = np.where(np.isnan(cancelling.astype(np.uint32).view(np.float32)), 0, cancelling).astype(np.uint64)
    if not ends:
        tiny = made["C"] & np.uint64(0x7FFFFFFF) < 50 << 23
        made["C"][tiny | (rng.random(tiny.shape) < 0.5)] = 0
        assert_same(row, executed(row, made), expected(row, made))
        return
    bounds = [0, 1 << 31, 1, (47 << 23) - 1, 47 << 23, (1 << 31) | (46 << 23), (1 << 31) | (48 << 23) | 5]
    for at, bits in enumerate([*bounds, 0x7F7FFFFF]):
        made["C"][..., at::16] = np.where(rng.random(made["C"][..., at::16].shape) < 0.5, bits, made["C"][..., at::16])
    made["C"][:, 3] = rng.integers(0, 1 << 23, made["C"][:, 3].shape)
    assert_same(row, executed(row, made), expected(row, made))
    made["C"][0, 5, 7], made["C"][0, 6, 1] = 0x7F800000, 0xFFC00000
    assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("large", [40, 46, 47, 60, 87])
@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x8_xf32"])
def test_zero_times_a_large_number_is_no_product(name, large):
    """Beside products that are small: their exponents are the largest."""
    row = find(name, "gfx942")
    rng = rng_of(name, "zeros", large)
    made = operands(row, rng, moderate)
    fraction = 7 if row.a_type == "bf16" else 23
    keep = np.uint64((1 << (BITS[row.a_type] - 1)) | (1 << fraction) - 1)
    for operand in "AB":
        exponent = rng.integers(-40, -38, made[operand].shape) + 127
        made[operand] = made[operand] & keep | exponent.astype(np.uint64) << np.uint64(fraction)
    made["A"][..., 1] = 0
    made["B"][:, 1] = np.uint64((127 + large) << fraction)
    made["C"][:] = 0
    assert_same(row, executed(row, made), expected(row, made))


SUMS = ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_16x16x8_xf32", "v_mfma_f32_16x16x32_fp8_fp8"]


@pytest.mark.parametrize("name", SUMS)
def test_a_small_c_beside_products_that_cancel(name):
    """Products 1 and −1, and C of ±2^(i − 33): what is cut off, toward −∞, is all that there is; FP8 leaves it out altogether."""
    row = find(name, "gfx942")
    rng = rng_of("small", name)
    made = {operand: np.zeros_like(values) for operand, values in operands(row, rng, moderate).items()}
    for operand, kind, places in (("A", row.a_type, [(..., 0), (..., 2)]), ("B", row.b_type, [np.s_[:, 0], np.s_[:, 2]])):
        ones = np.array([1, -1 if operand == "B" else 1], DTYPES[kind])
        for place, one in zip(places, ones.view(f"u{ones.itemsize}"), strict=True):
            made[operand][place] = one
    shape = made["C"].shape
    mantissa = rng.choice([1, 1 + 2.0**-23, 1.5, 2 - 2.0**-23], shape) * rng.choice([1, -1], shape)
    made["C"] = (mantissa * 2.0 ** (np.arange(16) - 33)[:, None]).astype(np.float32).view(np.uint32).astype(np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("step, least", [(1, -8), (1, -36), (3, -20)])
def test_c_at_every_distance_from_the_products(name, step, least):
    """Row i of D adds C of 2^(step·i + least) times the products; few bits of each are set, so that sums are often ties."""
    row = find(name, "gfx942")
    rng = rng_of(name, step, least)
    made = operands(row, rng, moderate)
    for operand, kind in (("A", row.a_type), ("B", row.b_type)):
        shape = made[operand].shape
        values = rng.choice([0.0, 1.0, -1.0, 1.5, 2.0**-6, -(2.0**-7), 1.875], shape).astype(DTYPES[kind])
        made[operand] = values.view(f"u{values.itemsize}").astype(np.uint64)
    shape = made["C"].shape
    apart = 2.0 ** (step * np.arange(16) + least)
    last = rng.choice([0, 1, 1 << 22, (1 << 23) - 1, 3 << 21, 2], shape)
    mantissa = rng.choice([1.0, -1.0], shape) * (1 + last / (1 << 23))
    made["C"] = (mantissa * apart[:, None]).astype(np.float32).view(np.uint32).astype(np.uint64)
    assert_same(row, executed(row, made), expected(row, made))


@pytest.mark.parametrize("neg", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"])
def test_f64_neg(name, neg):
    row = find(name, "gfx942")
    made = operands(row, rng_of(name, neg), moderate)
    made["C"][..., ::3] = 0  # −0 and +0 differ
    signs = tuple(neg >> i & 1 for i in range(3))
    assert_same(row, executed(row, made, neg=neg), expected(row, made, neg=signs))


def test_i8_saturates_with_clamp():
    row = find("v_mfma_i32_4x4x4i8", "gfx908")
    made = operands(row, rng_of("clamp"), special)
    made["C"][::2] = 0x7FFFFFFF
    made["C"][1::2] = 0x80000000
    wrapped, clamped = expected(row, made), expected(row, made, clamp=True)
    assert (wrapped != clamped).any()
    assert_same(row, executed(row, made, clamp=1), clamped)


PLACING = [
    ("v_mfma_f32_16x16x4f32", "gfx908"),
    ("v_mfma_f32_4x4x1_16b_f32", "gfx942"),
    ("v_mfma_f32_32x32x1_2b_f32", "gfx942"),
    ("v_mfma_f32_16x16x4f16", "gfx90a"),
    ("v_mfma_f32_32x32x8_f16", "gfx942"),
    ("v_mfma_f32_16x16x32_fp8_bf8", "gfx942"),
    ("v_mfma_i32_16x16x32_i8", "gfx942"),
    ("v_mfma_f64_16x16x4_f64", "gfx942"),
    ("v_mfma_f64_4x4x4f64", "gfx90a"),
]


def run_placed(
    row: MatrixInstruction, made: dict[str, np.ndarray], at: dict[str, Reg], c: Operand | None = None
) -> np.ndarray:
    """D where the operands lie at these registers; c: what stands for C instead."""
    wave = Wave()
    for name in [n for n in ("A", "B", "C") if n != "C" or c is None]:
        reg = at[name]
        file = wave.a if reg.file == "a" else wave.v
        file[reg.index : reg.index + reg.count] = to_registers(row, name, made[name])
    args = {"vdst": at["D"], "src0": at["A"], "src1": at["B"], "src2": c or at["C"]}
    wave.run(instruction_of(row, args, {}))
    file, d = (wave.a if at["D"].file == "a" else wave.v), at["D"]
    return from_registers(row, "D", file[d.index : d.index + d.count])


@pytest.mark.parametrize("name, target", PLACING)
def test_d_may_lie_on_its_sources(name, target):
    """D on A, on B, on C, on all of them shifted by a register pair; results are those of disjoint operands.

    gfx908's sources are AccVGPRs as C and D are. A and B that coincide are one array read twice.
    """
    row = find(name, target)
    made = operands(row, rng_of("alias", name), moderate)
    counts = {op: row.registers(op) for op in "ABCD"}
    for d, a, b, c in ((40, 40, 80, 120), (40, 80, 40, 120), (40, 80, 100, 40), (40, 38, 80, 120), (40, 80, 100, 42)):
        first = {"D": d, "A": a, "B": b, "C": c}
        at = {op: Reg("a", first[op], counts[op]) for op in first}
        assert_same(row, run_placed(row, made, at), expected(row, made))


@pytest.mark.parametrize("on", ["A", "B"])
@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x16_f16", "v_mfma_f32_32x32x8_bf16", "v_mfma_f32_16x16x32_fp8_bf8"])
def test_d_on_an_operand_where_c_leaves_the_fast_path_midway(name, on):
    """An infinity in the last row of C: the general path goes on there, with A and B as they were."""
    row = find(name, "gfx942")
    made = operands(row, rng_of("midway", name), moderate)
    made["C"][:, -1, :] = 0x7F800000
    first = {"A": 40, "B": 60, "C": 80}
    first["D"] = first[on]
    at = {op: Reg("v", first[op], row.registers(op)) for op in first}
    assert_same(row, run_placed(row, made, at), expected(row, made))


@pytest.mark.parametrize("name, target", PLACING)
@pytest.mark.parametrize("code, value", [(128, 0), (129, 1), (193, -1), (242, 1.0), (245, -2.0)])
def test_c_may_be_an_inline_constant(name, target, code, value):
    row = find(name, target)
    made = operands(row, rng_of("constant", name), moderate)
    kind = DTYPES[row.cd_type]
    if isinstance(value, float) and kind.kind == "i":
        bits = np.float32(value).view(np.uint32)  # a float constant is its f32 bits
    elif isinstance(value, float):
        bits = np.array(value, kind).view(f"u{kind.itemsize}")
    else:
        bits = np.array(value, f"i{kind.itemsize}").view(f"u{kind.itemsize}")
    made["C"] = np.full((row.blocks, row.m, row.n), bits, np.uint64)
    first = {"D": 40, "A": 80, "B": 100}
    at = {op: Reg("a", first[op], row.registers(op)) for op in first}
    assert_same(row, run_placed(row, made, at, Const(code)), expected(row, made))


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


def test_exec_does_not_matter():
    """Matrix instructions ignore EXEC (ISA guides)."""
    row = find("v_mfma_f32_16x16x4f32", "gfx90a")
    made = operands(row, rng_of("exec"), moderate)
    at = {op: Reg("v", first, row.registers(op)) for op, first in {"A": 0, "B": 2, "C": 4, "D": 8}.items()}
    wave = Wave()
    wave.s[126:128] = 0
    for name in "ABC":
        wave.v[at[name].index : at[name].index + at[name].count] = to_registers(row, name, made[name])
    wave.run(instruction_of(row, {"vdst": at["D"], "src0": at["A"], "src1": at["B"], "src2": at["C"]}, {}))
    assert_same(row, from_registers(row, "D", wave.v[8:12]), expected(row, made))
