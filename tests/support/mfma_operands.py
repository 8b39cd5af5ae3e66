"""Raw operands of matrix instructions, the arithmetic's result for them, and the compiled handler's."""

from __future__ import annotations

import zlib

import numpy as np

from simgpu.hardware.mfma import MatrixInstruction, multiply
from simgpu.hardware.mfma.instruction import BITS
from simgpu.matrix.one_mfma import DTYPES, execute, from_registers, stored_shape, to_registers

# (instruction, (format of A, format of B)), codes of cbsz and blgp
F8F6F4_FORMATS = [
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (2, 4)),
    ("v_mfma_scale_f32_16x16x128_f8f6f4", (4, 3)),
    ("v_mfma_f32_32x32x64_f8f6f4", (0, 1)),
]


def rng_of(*what: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(what).encode()))


def moderate(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws raw bits of ordinary numbers, of either sign and of spread exponents."""
    if kind in ("i8", "i32") or BITS[kind] < 16:
        return rng.integers(0, 1 << BITS[kind], shape, dtype=np.uint64)
    spread = 2.0 ** rng.integers(-6, 4, shape)
    values = (rng.standard_normal(shape) * spread).astype(DTYPES[kind])
    return values.view(f"u{values.itemsize}").astype(np.uint64)


def special(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draws any bits, a third of them extremes: zeros, denormals, the largest, infinities, NaNs."""
    bits = BITS[kind]
    values = rng.integers(0, (1 << bits) - 1, shape, dtype=np.uint64, endpoint=True)
    sign, top = 1 << (bits - 1), (1 << bits) - 1
    exponent = {"f64": 0x7FF << 52, "f32": 0xFF << 23, "xf32": 0xFF << 23, "f16": 31 << 10, "bf16": 255 << 7}
    inf = exponent.get(kind, sign >> 1)
    extremes = np.array([0, sign, 1, sign | 1, inf - 1, inf, sign | inf, inf + 1, top, sign - 1], np.uint64)
    return np.where(rng.random(shape) < 1 / 3, rng.choice(extremes, shape), values)


def operands(row: MatrixInstruction, rng: np.random.Generator, fill) -> dict[str, np.ndarray]:
    """Draws raw operands of all blocks, by operand name."""
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
    """Asserts equal bits; any_nan: NaN payloads may differ, since the model does not define them."""
    kind = DTYPES[row.cd_type]
    wrong = got != wanted
    if any_nan and kind.kind == "f":
        wrong &= ~(np.isnan(got.view(kind)) & np.isnan(wanted.view(kind)))
    first = [f"D{list(at)}: {got[tuple(at)]:#x}, not {wanted[tuple(at)]:#x}" for at in np.argwhere(wrong)[:3]]
    assert not wrong.any(), (row.target, row.mnemonic, int(wrong.sum()), first)
