"""Emits vector ALU instructions: modifiers, selects, DPP and masks around an instruction's body."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from llvmlite import ir

from simgpu.alu.salu import STATE_REGISTER, read_state, write_state
from simgpu.alu.valu_sources import SELECT, SourcePlaces, VectorSources
from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.constants import F16_SOURCES
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, both, const, isnan, negate, where
from simgpu.hardware.isa.spec import Param
from simgpu.hardware.isa.types import Type
from simgpu.machine.frame import Frame
from simgpu.machine.jit import host
from simgpu.machine.layout import LANES
from simgpu.machine.mode import Mode
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.sources import load_vector
from simgpu.machine.values import I16, I32, I64

_UNUSED_PAD, _UNUSED_SEXT = 0, 1
F16_LARGEST = 65504.0
SIGNS = 0x80008000  # sign bits of two f16
# States of parameters that are in no operand field.
NO_OPERAND = frozenset({*STATE_REGISTER, "scc", "modifier"})


def plan(inst: Instruction, plan: Plan, mode: Mode) -> SourcePlaces:
    sources: dict[str, OperandPlace] = {}
    position = 0
    for param in inst.spec.params:
        if param.type.state in NO_OPERAND:
            continue
        if param.name in ("vdst", "sdst"):
            register = inst.args[param.name]
            assert isinstance(register, Reg)
            sources[param.name] = plan.register(register, max(32, param.type.bits))
            continue
        name = param.name if param.name in inst.args else f"src{position}"
        if param.name not in inst.args:
            position += 1
        operand = inst.args[name]
        if param.type is t.mask and isinstance(operand, Reg) and operand.file != "s":
            raise UnsupportedInstruction(f"{inst.mnemonic}: a lane mask in vector registers")
        type_ = t.f16 if _has_half_constants(inst, name) else param.type
        sources[param.name] = plan.source(operand, type_, _operand_bits(inst, param.type))
    results: list[OperandPlace] = []
    sdst: OperandPlace | None = None
    for type_ in inst.spec.results:
        if type_ is t.mask:
            register = inst.args.get("sdst", Reg("s", isa.VCC, 2))
            if not isinstance(register, Reg):
                raise UnsupportedInstruction(f"{inst.mnemonic}: a lane mask written to a constant")
            sdst = plan.register(register, 64)
        elif type_.state in ("", "sgpr"):
            name = _result_field(inst, len(results))
            register = inst.args[name]
            if not isinstance(register, Reg) or (not type_.state and register.file == "s"):
                raise UnsupportedInstruction(f"{inst.mnemonic}: a vector result in no vector register")
            results.append(plan.register(register, _operand_bits(inst, type_)))
    plan.note(inst.form, inst.src_mods.neg, inst.src_mods.abs, inst.src_mods.sext, mode.key_for(inst.spec))
    plan.note(*(f"{name}={value}" for name, value in sorted(inst.mods.items())))
    return SourcePlaces(sources, results, sdst)


def _has_half_constants(inst: Instruction, source: str) -> bool:
    """True if an inline float in this source is an f16's, though the parameter is not."""
    # A mix source that op_sel_hi selects as f16: compilers widen by `x * 1.0 + 0` this way.
    if Flag.MIX in inst.spec.flags:
        return bool(inst.mods.get("op_sel_hi", 0) >> int(source[3:]) & 1)
    return (inst.mnemonic, inst.form, source) in F16_SOURCES


def _operand_bits(inst: Instruction, type_: Type) -> int:
    """Returns the width of an operand: a packed f32 instruction names pairs of registers."""
    pairs = Flag.PACKED in inst.spec.flags and type_.bits == 32
    return 64 if pairs else max(32, type_.bits)


def _result_field(inst: Instruction, number: int) -> str:
    if number == 0:
        return "vdst" if "vdst" in inst.args else "sdst"
    # A second vector result (v_swap_b32, v_permlane16_swap_b32) is written to the source.
    return "vdst1" if "vdst1" in inst.args else "src0"


def emit(frame: Frame, inst: Instruction, places: SourcePlaces, mode: Mode) -> None:
    """Emits the instruction, without the jump to the next one: straight code for all lanes or, if that is long, a loop over
    groups of lanes."""
    if not _lanes_are_apart(frame, inst):
        _emit_rows(frame, inst, places, mode)
        return
    frame.in_host_order = _gains_by_host_order(inst, places)
    if not frame.try_emit(lambda: _emit_rows(frame, inst, places, mode), most_rows() * LANES * 32):
        _emit_by_groups(frame, inst, places, mode)
    frame.in_host_order = False


def most_rows() -> int:
    """Returns the most 32-bit row operations of a handler that is straight code.

    A longer one is a loop over groups of lanes: LLVM takes half the time, and the code runs as fast. For shorter ones, the loop's
    own instructions cost time. Without AVX-512, a row fills 8 of 16 registers, so straight code for two sources spills.
    """
    return 72 if host().has_wide_masks else 12


def _lanes_are_apart(frame: Frame, inst: Instruction) -> bool:
    """True if no lane depends on another, and no check looks at whole rows."""
    spec = inst.spec
    scalars = any(type_.state for type_ in spec.results if type_ is not t.mask)
    return not (_are_rows_looked_at(frame) or scalars or spec.kind != "lane" or inst.form == "dpp")


def _are_rows_looked_at(frame: Frame) -> bool:
    return frame.dry or any(hooks.looks_at_rows() for hooks in frame.hooks)


def _gains_by_host_order(inst: Instruction, places: SourcePlaces) -> bool:
    """True if most rows that the instruction reads or writes are of 64-bit values, and no lane has to be known in between."""
    if host().vector_bits != 256:
        return False
    spec = inst.spec
    widths = [place.bits for place in (*places.sources.values(), *places.result) if place.kind == "row"]
    plain = all(type_ is t.mask or (not type_.element and 32 <= type_.bits <= 64) for type_ in spec.results)
    asks = any(param.type.kind == "mask" or param.type.element for param in spec.params)
    most = 2 * widths.count(64) > len(widths) and max(widths) == 64  # the others take one more instruction
    return most and plain and not asks and Flag.PACKED not in spec.flags and inst.form != "sdwa"


def _emit_rows(frame: Frame, inst: Instruction, places: SourcePlaces, mode: Mode) -> None:
    _set_scalars(frame, inst, places, VectorEmitter(frame, inst, places, mode).emit())


def _emit_by_groups(frame: Frame, inst: Instruction, places: SourcePlaces, mode: Mode) -> None:
    def group(*masks: Any) -> list[Any]:
        return [mask | new for mask, (_, new) in zip(masks, VectorEmitter(frame, inst, places, mode).emit(), strict=True)]

    kinds = [type_ for type_ in inst.spec.results if type_ is t.mask]
    masks = frame.by_groups(group, [ir.Constant(I64, 0)] * len(kinds))
    _set_scalars(frame, inst, places, zip(kinds, masks, strict=True))


def _set_scalars(frame: Frame, inst: Instruction, places: SourcePlaces, results: Iterable[tuple[Type, Any]]) -> None:
    """Writes the results that are not vectors, which come last."""
    for type_, raw in results:
        if type_ is t.mask:
            assert places.sdst is not None
            frame.store(raw, frame.operand(places.sdst.slot))
            if Flag.CMPX in inst.spec.flags:
                frame.set_state(frame.scalar(isa.EXEC), raw)
        else:
            write_state(frame, type_, raw)


class VectorEmitter(VectorSources):
    """Emits one vector instruction's body into a frame."""

    # -- results -------------------------------------------------------------------------------

    def finish(self, value: Value) -> Value:
        """Applies output denormals, omod and clamp to a result."""
        type_ = value.type
        if type_.is_float:
            if type_.kind == "float" and self.mode.flush(type_)[1]:
                value = Value(self.ops, type_, self._flush(value.raw, type_))
            omod = self.mods.get("omod", 0)
            # The output modifier is ignored if IEEE mode or output denormals are on.
            if omod and not self.mode.ieee and self.mode.flush(type_)[1]:
                value = value * {1: 2.0, 2: 4.0, 3: 0.5}[omod]
            if self.mods.get("clamp"):
                value = self._clamp(value)
        return value

    def _clamp(self, value: Value) -> Value:
        low = where(value > 0.0, value, 0.0)
        clamped = where(low < 1.0, low, 1.0)
        if self.mode.dx10_clamp:
            return clamped
        return where(isnan(value), value, clamped)

    def store(self, place: OperandPlace, value: Value) -> None:
        """Writes a result, under EXEC, dst_sel and the rule for the high half."""
        raw = self.frame.value(self.ops._vector(value.raw))
        integer = ir.IntType(value.type.bits if value.type.bits > 1 else 32)
        if value.type.bits == 1:
            raw = raw.zext(I32)
        elif raw.type.element != integer:
            raw = raw.bitcast(self.ops.shape(integer))
        pointer = self.frame.operand(place.slot)
        width = raw.type.element.width
        if width < 32:
            raw = self._place(raw, value.type, pointer)
        elif self.inst.form == "sdwa" and width == 32:
            raw = self._sdwa(raw, pointer)
        if width > 64:
            raise UnsupportedInstruction(f"{self.inst.mnemonic}: a {width}-bit result")
        for number, row in enumerate(self.frame.rows_of(raw)):
            self.write_row(pointer, number, row)

    def _place(self, raw: Any, type_: Type, pointer: Any) -> Any:
        """Returns a 16-bit result in its 32-bit register."""
        wide = raw.zext(I32)
        if self.inst.form == "sdwa":
            return self._sdwa(wide, pointer)
        flags = self.inst.spec.flags
        high = Flag.WRITE_HIGH in flags or bool(self.mods.get("op_sel", 0) & 8)
        if self.inst.form != "e64" or not (high or Flag.PRESERVE_HIGH in flags):
            return wide
        old = self.frame.row(pointer)
        if high:
            return old & 0xFFFF | wide << 16
        return old & 0xFFFF0000 | wide

    def _sdwa(self, raw: Any, pointer: Any) -> Any:
        shift, width = SELECT[self.mods.get("dst_sel", 6)]
        if width == 32:
            return raw
        field = ((1 << width) - 1) << shift
        inside = raw << shift & field
        unused = self.mods.get("dst_unused", _UNUSED_PAD)
        if unused == _UNUSED_PAD:
            return inside
        if unused == _UNUSED_SEXT:
            return (raw << 32 - width).ashr(32 - width) << shift
        return inside | self.frame.row(pointer) & (0xFFFFFFFF & ~field)

    # -- the whole instruction -----------------------------------------------------------------

    def emit(self) -> list[tuple[Type, Any]]:
        """Emits the instruction except the writes of scalar results; returns these, with their types."""
        return self._emit_packed() if Flag.PACKED in self.inst.spec.flags else self._emit_plain()

    def _arguments(self) -> tuple[list[Any], dict[str, int]]:
        """Returns positional values and, by name, the modifiers that the body takes."""
        values: list[Any] = []
        modifiers: dict[str, int] = {}
        position = 0
        for param in self.inst.spec.params:
            if param.type.state == "modifier":
                modifiers.update(self._modifier(param.name))
            elif param.type.state == "vcc" and param.type.kind == "mask":
                values.append(Value(self.ops, t.u1, self.frame.lanes(read_state(self.frame, t.VCC))))
            elif param.type.state in NO_OPERAND:
                values.append(Value(self.ops, param.type, read_state(self.frame, param.type)))
            elif param.name in ("vdst", "sdst"):
                values.append(self._old(param.type, param.name))
            else:
                if Flag.MIX in self.inst.spec.flags:
                    values.append(self._mixed_source(param.name, position))
                else:
                    values.append(self.value(param.type, param.name, position))
                position += 1
        return values, modifiers

    def _modifier(self, name: str) -> dict[str, int]:
        if name in ("ieee", "fp16_ovfl"):
            return {name: int(getattr(self.mode, name))}
        return {name: int(self.mods[name])} if name in self.mods else {}

    def _emit_plain(self) -> list[tuple[Type, Any]]:
        arguments, modifiers = self._arguments()
        return self._write(self._evaluate(arguments, modifiers))

    def _evaluate(self, arguments: list[Any], modifiers: dict[str, int]) -> tuple[Any, ...]:
        spec = self.inst.spec
        assert spec.body is not None
        returned = spec.body(*arguments, **modifiers)
        results = tuple(returned) if len(spec.results) > 1 else (returned,)
        for check in self.frame.hooks:
            check.on_result(self.frame, self.mode, arguments, results)
        if self.mode.fp16_ovfl and not self.mode.ring and Flag.TRANS not in spec.flags:
            return tuple(self._without_overflow(result, arguments) for result in results)
        return results

    def _without_overflow(self, result: Any, arguments: list[Any]) -> Any:
        """Applies FP16_OVFL: an f16 result that is infinite though no source was becomes the largest number."""
        if not isinstance(result, Value) or result.type is not t.f16:
            return result
        overflown = abs(result) > F16_LARGEST
        for source in arguments:
            if isinstance(source, Value) and source.type.kind == "float":
                overflown = both(overflown, negate(abs(source) == float("inf")))
        largest = const(result, F16_LARGEST)
        return where(overflown, where(result > 0.0, largest, -largest), result)

    def _emit_packed(self) -> list[tuple[Type, Any]]:
        spec = self.inst.spec
        operands = [p for p in spec.params if p.type.state not in NO_OPERAND]
        rows = {p.name: load_vector(self.frame, self.places.sources[p.name]) for p in operands}
        modifiers: dict[str, int] = {}
        for param in spec.params:
            if param.type.state == "modifier":
                modifiers.update(self._modifier(param.name))
        if self._are_halves_apart(operands):
            self._emit_halves(operands, rows, modifiers)
            return []
        halves = []
        for part in (0, 1):
            values: list[Any] = []
            position = 0
            for param in operands:
                if param.name == "vdst":
                    raw = rows["vdst"] >> part * param.type.bits
                    values.append(Value(self.ops, param.type, self._narrow(raw, param.type.bits, False)))
                else:
                    values.append(self.half(rows[param.name], param.type, position, part, True))
                    position += 1
            halves.append(self.finish(self._evaluate(values, modifiers)[0]))
        self._store_elements(self.places.result[0], tuple(halves))
        return []

    def _are_halves_apart(self, operands: list[Param]) -> bool:
        """True if low halves of registers meet low ones, and high ones high ones, and no check looks at whole rows."""
        mods, sources = self.mods, (1 << len(operands)) - 1
        halves = all(type_.bits == 16 for type_ in (*(param.type for param in operands), *self.inst.spec.results))
        straight = not mods.get("op_sel", 0) & sources and mods.get("op_sel_hi", sources) & sources == sources
        signs_alike = mods.get("neg_lo", 0) == mods.get("neg_hi", 0)
        return halves and straight and signs_alike and not _are_rows_looked_at(self.frame)

    def _emit_halves(self, operands: list[Param], rows: Mapping[str, Any], modifiers: dict[str, int]) -> None:
        """Emits a packed instruction as one on twice as many lanes of 16 bits."""
        values = []
        words = [self.ops._vector(rows[param.name]) for param in operands]
        self.ops = copy.copy(self.ops)
        self.ops.lanes *= 2
        for position, (param, word) in enumerate(zip(operands, words, strict=True)):
            negated = param.name != "vdst" and self.mods.get("neg_lo", 0) >> position & 1
            raw = (word ^ SIGNS if negated else word).bitcast(self.ops.shape(I16))
            flushed = param.type.kind == "float" and self.mode.flush(param.type)[0] and param.name != "vdst"
            values.append(Value(self.ops, param.type, self._flush(raw, param.type) if flushed else raw))
        result = self.frame.value(self.finish(self._evaluate(values, modifiers)[0]).raw)
        self.write_row(self.frame.operand(self.places.result[0].slot), 0, result.bitcast(words[0].type))

    def _write(self, outputs: tuple[Any, ...]) -> list[tuple[Type, Any]]:
        places = iter(self.places.result)
        later = []
        for type_, value in zip(self.inst.spec.results, outputs, strict=True):
            if type_ is t.mask:
                later.append((type_, self.frame.mask(self.frame.value(self.ops._vector(value.raw))) & self.exec))
            elif type_.state == "sgpr":
                place = next(places)
                raw = self.frame.value(value.raw)
                self.frame.store(raw[0] if raw.lanes else raw, self.frame.operand(place.slot))
            elif type_.state:
                later.append((type_, value.raw))
            elif isinstance(value, tuple):
                self._store_elements(next(places), value)
            else:
                self.store(next(places), self.finish(value))
        return later

    def _store_elements(self, place: OperandPlace, values: tuple[Value, ...]) -> None:
        """Stores a result given as its elements, lowest first."""
        width = values[0].type.bits
        shape = self.ops.shape(ir.IntType(width))
        raws = [self.frame.build.bitcast(self.ops._vector(v.raw), shape) for v in values]
        if width == 16:
            raws = [low.zext(I32) | high.zext(I32) << 16 for low, high in zip(raws[::2], raws[1::2], strict=True)]
        pointer = self.frame.operand(place.slot)
        for number, raw in enumerate(raws):
            self.write_row(pointer, number, raw)
