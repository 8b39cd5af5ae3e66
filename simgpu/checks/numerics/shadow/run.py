"""Processes all steps of a trace: computes the shadows of their results, and records which instruction made each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from simgpu.checks.numerics.shadow import evaluate, products, registers
from simgpu.checks.numerics.shadow.evaluate import FloatResult, Sources
from simgpu.checks.numerics.shadow.f64 import NoShadow
from simgpu.checks.numerics.shadow.products import Product
from simgpu.checks.numerics.shadow.registers import NOBODY, Dwords, Shadows
from simgpu.checks.numerics.shadow.steps import ShadowAccess, ShadowStep
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.types import f32
from simgpu.machine.layout import LANES
from simgpu.machine.mode import Mode

ELEMENTS = 1 << 12  # more than an instruction's results: at most 32 registers of 64 lanes


@dataclass(frozen=True)
class ShadowedInstruction:
    """Executed instruction whose results have shadows. A link is its index in `ShadowRun.made` times ELEMENTS, plus the element."""

    record: int
    wave: int
    results: list[FloatResult] | Product

    def error(self, element: int) -> float:
        return self._of("error", element)

    def local(self, element: int) -> float:
        return self._of("local", element)

    def shadow(self, element: int) -> float:
        return self._of("shadow", element)

    def _of(self, what: str, element: int) -> float:
        if isinstance(self.results, Product):
            return float(getattr(self.results, what).reshape(-1)[element])
        return float(getattr(self.results[element // LANES], what)[element % LANES])

    def operands(self, element: int) -> list[tuple[int, float]]:
        """Returns the makers of an element's operands, and the factors by which their errors came in."""
        if isinstance(self.results, Product):
            return self.results.operands(element)
        lane = element % LANES
        found = self.results[element // LANES].operands
        return [(int(link[lane]), float(factor[lane])) for link, factor in found if link[lane] != NOBODY]


@dataclass
class ShadowWave:
    """Shadows of a wave's registers."""

    file: Shadows = field(default_factory=registers.file)
    scalars: dict[int, Shadows] = field(default_factory=dict)


class ShadowRun:
    """Shadows of a workgroup. Each executed instruction with float results, or with roundings, adds entries to `made`."""

    def __init__(self, instructions: Mapping[int, Instruction], mode: Mode) -> None:
        self.instructions, self.mode = instructions, mode
        self.waves: dict[int, ShadowWave] = {}
        self.lds, self.memory = Dwords(), Dwords()
        self.made: list[ShadowedInstruction] = []

    def all(self, steps: Iterable[ShadowStep]) -> None:
        for step in steps:
            self.follow(step)

    def follow(self, step: ShadowStep) -> None:
        """Computes the shadows of one instruction's results."""
        inst = self.instructions[step.record]
        wave = self.waves.get(step.wave) or self.waves.setdefault(step.wave, ShadowWave())
        if inst.spec.memory is not None:
            self._memory(step, inst, wave)
        elif inst.spec.kind == "matrix":
            self._matrix(step, inst, wave)
        else:
            self._vector(step, inst, wave)

    def _vector(self, step: ShadowStep, inst: Instruction, wave: ShadowWave) -> None:
        sources = Sources(step, inst, wave.file, wave.scalars, self.mode)
        try:
            found = evaluate.results(sources) if any(row.result and row.type.is_float for row in step.rows) else []
        except NoShadow:
            found = []
        if found:
            links = (len(self.made) * ELEMENTS + np.arange(len(found) * LANES)).reshape(-1, LANES)
            self.made.append(ShadowedInstruction(step.record, step.wave, found))
            self._write(step, wave, lambda number, bits: _place(found, links, number, bits, len(step.written)))
            return
        candidates = [held for name in ("src0", "src1", "src2", "data0", "vdst") for held in sources.registers(name)]
        same_lane = inst.spec.kind == "lane"
        self._scalar_result(step, inst, wave, candidates)
        self._write(step, wave, lambda _, bits: self._move(step, candidates, bits, same_lane))

    def _move(self, step: ShadowStep, candidates: list[Shadows], bits: np.ndarray, same_lane: bool) -> Shadows:
        """Returns the shadows of moved bits (`evaluate.move_shadows`). Each rounding is added to `made`."""
        held, rounded = evaluate.move_shadows(candidates, bits, same_lane)
        for one in rounded:
            beside, link = held.whole, held.link
            if one.part:
                beside, link = held.half[:, one.part - 1], held.half_link[:, one.part - 1]
            with np.errstate(invalid="ignore"):
                error, local = np.abs(one.after - beside), np.abs(one.after - one.before)
            result = FloatResult(f32, bits, beside.copy(), error, local, ((link.copy(), np.ones(LANES)),))
            link[one.lanes] = (len(self.made) * ELEMENTS + np.arange(LANES))[one.lanes]
            self.made.append(ShadowedInstruction(step.record, step.wave, [result]))
        return held

    def _matrix(self, step: ShadowStep, inst: Instruction, wave: ShadowWave) -> None:
        try:
            found = products.product(step, inst, wave.file)
        except NoShadow:
            self._write(step, wave, lambda _, bits: _no_shadows(bits))
            return
        first = len(self.made) * ELEMENTS
        self.made.append(ShadowedInstruction(step.record, step.wave, found))
        for number, (register, bits) in enumerate(step.written):
            held = _no_shadows(bits)
            held.whole, held.link = found.shadow[number], first + number * LANES + np.arange(LANES)
            wave.file.put(register, held)

    def _write(self, step: ShadowStep, wave: ShadowWave, shadow: Callable[[int, np.ndarray], Shadows]) -> None:
        """Writes shadows to active lanes of the written registers. shadow: function of a register's position and its bits."""
        for number, (register, bits) in enumerate(step.written):
            held = wave.file.take(register).holding(bits)
            held.put(step.active, shadow(number, bits).take(step.active))
            wave.file.put(register, held)

    def _scalar_result(self, step: ShadowStep, inst: Instruction, wave: ShadowWave, candidates: list[Shadows]) -> None:
        """Copies a shadow to a scalar register, for v_readlane and v_readfirstlane."""
        reg = inst.args.get("sdst", inst.args.get("vdst"))
        row = next((row for row in step.rows if row.result and row.type.state == "sgpr"), None)
        if row is not None and isinstance(reg, Reg) and reg.file == "s" and row.bits.dtype == np.uint32:
            held, _ = evaluate.move_shadows(candidates, row.bits, same_lane=False)
            wave.scalars[reg.index] = held.take(slice(0, 1))

    # -- memory ------------------------------------------------------------------------------------

    def _memory(self, step: ShadowStep, inst: Instruction, wave: ShadowWave) -> None:
        memory = inst.spec.memory
        assert memory is not None
        if memory.op == "store":
            names = ["vdata"] if "vdata" in inst.args else ["data0", "data1"]
            registers_ = [r for name in names for r in _numbers(inst.args.get(name))]
            at = 0
            for access in step.accesses:
                count = max(1, access.size // 4)
                self._store(access, wave, registers_[at : at + count], memory.d16 == "hi")
                at += count
            return
        held = {register: _no_shadows(bits) for register, bits in step.written}
        if memory.op == "load" and not memory.format and not memory.lds and not memory.transpose:
            order, at = list(held), 0
            for access in step.accesses:
                count = max(1, access.size // 4)
                for number, register in enumerate(order[at : at + count]):
                    self._load(access, 4 * number, held[register], memory.d16 == "hi")
                at += count
        for register, bits in step.written:
            kept = wave.file.take(register).holding(bits)
            kept.put(step.active, held[register].take(step.active))
            wave.file.put(register, kept)

    def _store(self, access: ShadowAccess, wave: ShadowWave, registers_: list[int], high: bool) -> None:
        space, lanes = self.lds if access.lds else self.memory, access.lanes
        for number, register in enumerate(registers_):
            addresses = access.addresses[lanes] + 4 * number
            held = wave.file.take(register).take(lanes)
            if access.size >= 4:
                aligned = addresses % 4 == 0
                space.store(addresses[aligned] >> 2, held.take(aligned))
            elif access.size == 2:
                for side in (0, 1):  # in turn, because two lanes may store the halves of one dword
                    chosen = addresses >> 1 & 1 == side
                    _store_half(space, addresses[chosen] >> 2, side, held.take(chosen), int(high))

    def _load(self, access: ShadowAccess, offset: int, held: Shadows, high: bool) -> None:
        """Fills in the shadows of a loaded register. offset: bytes from the lanes' addresses to the register's. high: True if 16
        bits go to the high half."""
        space = self.lds if access.lds else self.memory
        lanes = np.flatnonzero(access.lanes)
        addresses = access.addresses[lanes] + offset
        if access.size >= 4:
            held.put(lanes, space.load(addresses >> 2, held.bits[lanes]))
        elif access.size == 2:
            which = int(high)
            part = held.bits[lanes] >> np.uint32(16 * which) & np.uint32(0xFFFF)
            upper = (addresses >> 1 & 1).astype(np.int64)
            found = space.load(addresses >> 2, part << (16 * upper).astype(np.uint32))
            held.half[lanes, which] = np.take_along_axis(found.half, upper[:, None], -1)[:, 0]
            held.half_link[lanes, which] = np.take_along_axis(found.half_link, upper[:, None], -1)[:, 0]


def _store_half(space: Dwords, dwords: np.ndarray, side: int, held: Shadows, which: int) -> None:
    """Stores the half `which` of `held` in the half `side` of dwords; the other half keeps its bits and shadows."""
    before = space.shadows_at(dwords)
    part = (held.bits >> np.uint32(16 * which) & np.uint32(0xFFFF)) << np.uint32(16 * side)
    merged = before.holding(before.bits & np.uint32(0xFFFF0000 >> 16 * side) | part)
    merged.half[:, side], merged.half_link[:, side] = held.half[:, which], held.half_link[:, which]
    space.store(dwords, merged)


def _numbers(operand: object) -> list[int]:
    """Returns the numbers of an operand's vector registers, a0 as 256."""
    if not isinstance(operand, Reg) or operand.file == "s":
        return []
    return [operand.index + number + 256 * (operand.file == "a") for number in range(operand.count)]


def _no_shadows(bits: np.ndarray) -> Shadows:
    held = Shadows.empty(LANES)
    held.bits = bits.copy()
    return held


def _place(found: list[FloatResult], links: np.ndarray, number: int, bits: np.ndarray, count: int) -> Shadows:
    """Returns the shadows of register `number` of `count` result registers, which holds one f32 or two 16-bit results."""
    held = _no_shadows(bits)
    for at, result in enumerate(found):
        if result.type.name == "f32" and at % count == number:
            held.whole, held.link = result.shadow.copy(), links[at]
        elif result.type.bits == 16 and at // 2 == number:
            part = result.bits & np.uint32(0xFFFF)
            low, high = (bits & 0xFFFF == part).all(), (bits >> 16 == part).all()
            side = at % 2 if len(found) > 1 else int(high and not low)
            held.half[:, side], held.half_link[:, side] = result.shadow, links[at]
    return held
