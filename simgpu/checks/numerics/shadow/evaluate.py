"""Computes the shadow of a vector instruction's results, and each operand's part of their error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.numerics.shadow import f64
from simgpu.checks.numerics.shadow.f64 import NoShadow
from simgpu.checks.numerics.shadow.registers import NOBODY, Shadows
from simgpu.checks.numerics.shadow.steps import LaneRow, ShadowStep
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.types import Type, bf16, f16, f32
from simgpu.machine.layout import LANES
from simgpu.machine.mode import Mode

OMOD = {1: 2.0, 2: 4.0, 3: 0.5}
NEAR = 2.0**-7  # relative distance within which an integer operation on a float is taken for its rounding to bf16


@dataclass(frozen=True)
class FloatOperand:
    """A float operand of an instruction's body: f64 and i64 arrays of 64 lanes."""

    actual: np.ndarray  # its value
    shadow: np.ndarray  # its f64 shadow
    link: np.ndarray  # its maker, see `run.ShadowedInstruction`

    @property
    def error(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.abs(self.actual - self.shadow)


@dataclass(frozen=True)
class FloatResult:
    """A float result: arrays of 64 lanes."""

    type: Type
    bits: np.ndarray
    shadow: np.ndarray  # result on the operands' shadows
    error: np.ndarray  # distance of the value from the shadow
    local: np.ndarray  # part of the error that this instruction made
    operands: tuple[tuple[np.ndarray, np.ndarray], ...]  # makers of the operands, and the factors by which their errors came in


def numbers(type_: Type, bits: np.ndarray) -> np.ndarray:
    """Returns the floats with these bits, as f64. type_: f16, bf16, f32 or f64."""
    with np.errstate(invalid="ignore"):  # for signalling NaNs
        if type_.name == "f64":
            return bits.view(np.float64)
        if type_.name == "f32":
            return bits.view(np.float32).astype(np.float64)
        if type_.name == "bf16":
            return (bits << np.uint32(16)).view(np.float32).astype(np.float64)
        return (bits & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)


class Sources:
    """Shadows of an instruction's source registers. mode: the kernel's, which decides if output modifiers have an effect."""

    def __init__(self, step: ShadowStep, inst: Instruction, file: Shadows, scalars: dict[int, Shadows], mode: Mode) -> None:
        self.step, self.inst, self.file, self.scalars, self.mode = step, inst, file, scalars, mode

    def registers(self, name: str) -> list[Shadows]:
        """Returns the shadows of an operand's registers as the instruction's 64 lanes read them."""
        reg = self.inst.args.get(name)
        if not isinstance(reg, Reg):
            return []
        if reg.file == "s":
            held = [self.scalars.get(reg.index + number) for number in range(reg.count)]
            return [one.take(np.zeros(LANES, np.int64)) for one in held if one is not None]
        first = reg.index + 256 * (reg.file == "a")
        found = [self.file.take(first + number) for number in range(reg.count)]
        if name == "src0" and self.step.source is not None:
            found = [one.take(self.step.source) for one in found]
        return found

    def operand(self, name: str, row: LaneRow) -> FloatOperand:
        """Returns a float operand with its shadow. Its value may be the register's, the negated or the absolute one."""
        actual = numbers(row.type, row.bits)
        shadow, link = actual.copy(), np.full(LANES, NOBODY, np.int64)
        mixes = Flag.MIX in self.inst.spec.flags
        for held in self.registers(name):
            candidates = []
            if row.type.name == "f32":
                candidates.append((numbers(row.type, held.bits), held.whole, held.link))
            if row.type.bits == 16 or mixes:
                for high in (0, 1):
                    bits = held.bits >> np.uint32(16 * high) & np.uint32(0xFFFF)
                    kind = row.type if row.type.bits == 16 else f16
                    candidates.append((numbers(kind, bits), held.half[:, high], held.half_link[:, high]))
            for value, beside, made in candidates:
                fits = (link == NOBODY) & (made != NOBODY) & (np.abs(value) == np.abs(actual)) & np.isfinite(beside)
                sign = np.where(np.signbit(value) == np.signbit(actual), 1.0, -1.0)
                shadow, link = np.where(fits, sign * beside, shadow), np.where(fits, made, link)
        return FloatOperand(actual, shadow, link)


def calls(rows: Sequence[LaneRow]) -> list[tuple[list[LaneRow], list[LaneRow]]]:
    """Returns operands and results of each run of the body: one, or one for each half of packed operands."""
    found: list[tuple[list[LaneRow], list[LaneRow]]] = []
    for number, row in enumerate(rows):
        if not row.result and (number == 0 or rows[number - 1].result):
            found.append(([], []))
        found[-1][row.result].append(row)
    return found


def results(sources: Sources) -> list[FloatResult]:
    """Returns all float results of a vector instruction, in order. Raises NoShadow if f64 cannot follow it."""
    inst, spec = sources.inst, sources.inst.spec
    packed = Flag.PACKED in spec.flags
    found = []
    for given, made in calls(sources.step.rows):
        names = _names(inst, packed)
        if len(names) != len(given):
            raise NoShadow("operands")
        pairs = zip(names, given, strict=True)
        floats = {at: sources.operand(name, row) for at, (name, row) in enumerate(pairs) if row.type.is_float}
        plain = [row.bits if row.type.kind != "mask" else row.bits.astype(bool) for row in given]
        found += _of_call(inst, sources.mode, packed, plain, floats, [row for row in made if row.type.is_float])
    return found


def _names(inst: Instruction, packed: bool) -> list[str]:
    """Returns the operand's name for each element that a body takes, "" for machine state."""
    found, position = [], 0
    for param in inst.spec.params:
        if param.type.state == "modifier":
            continue
        count = 1 if packed else len(f64.elements(param.type))
        if param.type.state not in ("", "sgpr"):
            found += [""] * count
        elif param.name in inst.args:
            found += [param.name] * count
        else:
            found += [f"src{position}"] * count
        if param.type.state in ("", "sgpr") and param.name not in ("vdst", "sdst"):
            position += param.name not in inst.args
    return found


def _of_call(
    inst: Instruction, mode: Mode, packed: bool, plain: list[np.ndarray], floats: dict[int, FloatOperand], made: list[LaneRow]
) -> list[FloatResult]:
    kinds = [row.type for row in made]
    modifiers = {name: int(value) for name, value in inst.mods.items() if isinstance(value, int)} | {"ieee": 1}

    def run(chosen: dict[int, np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            values = f64.evaluate(inst.spec, [chosen.get(at, bits) for at, bits in enumerate(plain)], packed, modifiers)
        return [_finish(inst, mode, kind, value) for kind, value in zip(kinds, values, strict=False)]

    shadow = run({at: one.shadow for at, one in floats.items()})
    exact = run({at: one.actual for at, one in floats.items()})
    without: list[tuple[FloatOperand, list[np.ndarray]]] = []
    for at, one in floats.items():
        if (one.error > 0).any():
            without.append((one, run({other: two.actual if other == at else two.shadow for other, two in floats.items()})))
    found = []
    with np.errstate(all="ignore"):
        for number, row in enumerate(made):
            actual = _finish(inst, mode, row.type, numbers(row.type, row.bits))
            parts = tuple((one.link, np.nan_to_num(np.abs(shadow[number] - other[number]) / one.error)) for one, other in without)
            error, local = np.abs(actual - shadow[number]), np.abs(actual - exact[number])
            found.append(FloatResult(row.type, row.bits, shadow[number], error, local, parts))
    return found


def _finish(inst: Instruction, mode: Mode, kind: Type, value: np.ndarray) -> np.ndarray:
    """Applies omod, which is ignored in IEEE mode and with output denormals on, then clamp."""
    if not mode.ieee and mode.flush(kind)[1]:
        value = value * OMOD.get(int(inst.mods.get("omod", 0)), 1.0)
    return np.clip(value, 0.0, 1.0) if inst.mods.get("clamp") else value


@dataclass(frozen=True)
class RoundedPart:
    """Rounding of a float by an integer operation."""

    part: int  # 0 for the whole register, 1 for the low and 2 for the high half
    lanes: np.ndarray  # bool (64,): the rounded lanes
    before: np.ndarray  # f64 (64,): the float
    after: np.ndarray  # f64 (64,): the rounded one


def move_shadows(candidates: Sequence[Shadows], bits: np.ndarray, same_lane: bool) -> tuple[Shadows, list[RoundedPart]]:
    """Returns the shadows of an integer result whose bits are a source's float, or one rounded to bf16 or better.

    Also returns the roundings.

    candidates: shadows of the sources. same_lane: False if a lane's bits may come from another lane.
    """
    found = Shadows.empty(LANES)
    found.bits = bits.copy()
    rounded = []
    for held in candidates:
        if not same_lane:
            order = np.argsort(held.bits, kind="stable")
            place = np.minimum(np.searchsorted(held.bits[order], bits), LANES - 1)
            held = held.take(order[place])
        before, after = numbers(f32, held.bits), numbers(f32, bits)
        fits = (held.link != NOBODY) & (found.link == NOBODY) & _is_near(after, before)
        found.whole, found.link = np.where(fits, held.whole, found.whole), np.where(fits, held.link, found.link)
        rounded.append(RoundedPart(0, fits & (after != before), before, after))
        for high in (0, 1):
            part = bits >> np.uint32(16 * high) & np.uint32(0xFFFF)
            after = numbers(bf16, part)
            halves = held.bits & np.uint32(0xFFFF), held.bits >> np.uint32(16)
            options = [(part == half, held.half[:, h], held.half_link[:, h]) for h, half in enumerate(halves)]
            options.append((_is_near(after, before), held.whole, held.link))
            for test, beside, made in options:
                fits = test & (made != NOBODY) & (found.half_link[:, high] == NOBODY)
                found.half[:, high] = np.where(fits, beside, found.half[:, high])
                found.half_link[:, high] = np.where(fits, made, found.half_link[:, high])
            rounded.append(RoundedPart(1 + high, fits & (after != before), before, after))
    return found, [one for one in rounded if one.lanes.any()]


def _is_near(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    """True in lanes where `value` may be `other` rounded to bf16 or better."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(value - other) <= NEAR * np.abs(other))
