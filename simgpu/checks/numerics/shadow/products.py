"""Computes the shadow of a matrix instruction, C + A·B in f64, and the parts of each element's error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from simgpu.checks.numerics.shadow.f64 import NoShadow
from simgpu.checks.numerics.shadow.registers import NOBODY, Shadows
from simgpu.checks.numerics.shadow.steps import ShadowStep
from simgpu.hardware.isa.constants import inline_bits
from simgpu.hardware.isa.instruction import Const, Instruction, Reg
from simgpu.hardware.isa.types import f32
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.hardware.mfma.numbers import to_f32
from simgpu.machine.layout import LANES
from simgpu.matrix.fma_tile import selections
from simgpu.matrix.instruction import row_of

PLAIN = ("f32", "xf32", "f16", "bf16", "fp8", "bf8", "fp8_fnuz", "bf8_fnuz")


@dataclass(frozen=True)
class Factors:
    """A or B of all blocks, (blocks, m, k) or (blocks, k, n); see `evaluate.FloatOperand`."""

    actual: np.ndarray
    shadow: np.ndarray
    link: np.ndarray


@dataclass(frozen=True)
class Product:
    """D by register and lane, (registers, 64); see `evaluate.FloatResult`."""

    shadow: np.ndarray
    error: np.ndarray
    local: np.ndarray
    link: np.ndarray  # makers of C
    a: Factors
    b: Factors
    place: np.ndarray  # (registers, 64, 3): block, row and column

    def operands(self, element: int) -> list[tuple[int, float]]:
        """Returns the makers of an element's operands, and the factors of their errors."""
        block, i, j = (int(number) for number in self.place.reshape(-1, 3)[element])
        found = [(int(self.link.reshape(-1)[element]), 1.0)]
        found += zip(self.a.link[block, i].tolist(), np.abs(self.b.actual[block, :, j]).tolist(), strict=True)
        found += zip(self.b.link[block, :, j].tolist(), np.abs(self.a.actual[block, i]).tolist(), strict=True)
        return [(link, factor) for link, factor in found if link != NOBODY]


@cache
def _places(row: MatrixInstruction) -> np.ndarray:
    """Returns block, row and column of each place of D: (registers, 64, 3)."""
    owners = row.map("D")
    found = np.zeros((row.registers("D"), LANES, 3), np.int64)
    for at in np.ndindex(owners.shape[:3]):
        register, lane, _ = owners[at]
        found[register, lane] = at
    return found


def product(step: ShadowStep, inst: Instruction, file: Shadows) -> Product:
    """Returns D's shadow. Raises NoShadow for types without shadows."""
    row = row_of(inst)
    mods = selections(inst)
    if row.sparse or row.scaled or row.cd_type != "f32":
        raise NoShadow(row.mnemonic)
    formats = row.with_formats(mods["cbsz"], mods["blgp"])
    if formats.a_type not in PLAIN or formats.b_type not in PLAIN:
        raise NoShadow(row.mnemonic)
    a = _factors(row, inst, "A", "src0", formats.a_type, file, mods)
    b = _factors(row, inst, "B", "src1", formats.b_type, file, mods)
    place = _places(row)
    c, c_shadow, link = _accumulator(inst, file, place.shape[:2])
    block, i, j = (place[..., axis] for axis in range(3))
    with np.errstate(all="ignore"):
        exact = c + np.matmul(a.actual, b.actual)[block, i, j]
        shadow = c_shadow + np.matmul(a.shadow, b.shadow)[block, i, j]
        actual = np.stack([bits.view(np.float32).astype(np.float64) for _, bits in step.written])
        return Product(shadow, np.abs(actual - shadow), np.abs(actual - exact), link, a, b, place)


def _factors(
    row: MatrixInstruction, inst: Instruction, operand: str, name: str, kind: str, file: Shadows, mods: dict[str, int]
) -> Factors:
    reg = inst.args[name]
    assert isinstance(reg, Reg)
    maps = row.map(operand, **({"cbsz": mods["cbsz"], "abid": mods["abid"]} if operand == "A" else {"blgp": mods["blgp"]}))
    register, lane, low = (maps[..., axis] for axis in range(3))
    first = reg.index + 256 * (reg.file == "a")
    held = file.take((first + register, lane))
    actual = _numbers(kind, held.bits, low)
    shadow, link = held.whole, held.link
    if kind in ("f16", "bf16"):
        high = low // 16
        shadow = np.take_along_axis(held.half, high[..., None], -1)[..., 0]
        link = np.take_along_axis(held.half_link, high[..., None], -1)[..., 0]
    elif kind not in ("f32", "xf32"):  # 8 bits: the conversion's result counts as exact
        link = np.full(link.shape, NOBODY)
    known = (link != NOBODY) & np.isfinite(shadow)
    return Factors(actual, np.where(known, shadow, actual), np.where(known, link, NOBODY))


def _numbers(kind: str, bits: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Returns the elements that begin at bit `low` of dwords, as f64. kind: their type, as the matrix table names it."""
    if kind in ("f32", "xf32"):
        return bits.view(np.float32).astype(np.float64)
    part = bits >> low.astype(np.uint32)
    return to_f32(part & np.uint32(0xFFFF if kind in ("f16", "bf16") else 0xFF), kind).astype(np.float64)


def _accumulator(inst: Instruction, file: Shadows, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns C, its shadow and its makers, by register and lane. shape: (registers, 64)."""
    source = inst.args["src2"]
    if not isinstance(source, Reg):
        assert isinstance(source, Const)
        value = np.full(shape, _constant(source))
        return value, value, np.full(shape, NOBODY)
    first = source.index + 256 * (source.file == "a")
    held = file.take(slice(first, first + shape[0]))
    actual = held.bits.view(np.float32).astype(np.float64)
    known = (held.link != NOBODY) & np.isfinite(held.whole)
    return actual, np.where(known, held.whole, actual), np.where(known, held.link, NOBODY)


def _constant(source: Const) -> float:
    return float(np.array([inline_bits(source.code, f32, 32)], np.uint32).view(np.float32)[0])
