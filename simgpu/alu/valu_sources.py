"""Loads the sources of vector instructions: registers and constants to typed rows, with all modifiers applied.

DPP and SDWA select first, then op_sel selects a half, abs and neg change signs, and MODE flushes denormals (ISA guides, "VOP
encodings").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.alu.dpp import permute
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, cast
from simgpu.hardware.isa.types import Type
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import element
from simgpu.machine.mode import Mode
from simgpu.machine.operands import OperandPlace
from simgpu.machine.rounding import ops_for
from simgpu.machine.sources import load_scalar, load_vector
from simgpu.machine.values import I32

# SDWA selects (ISA guides, SDWA): BYTE_0..3, WORD_0, WORD_1, DWORD.
SELECT = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), 6: (0, 32)}


@dataclass
class SourcePlaces:
    """Places of a vector instruction's operands."""

    sources: dict[str, OperandPlace]  # by parameter name
    result: list[OperandPlace]  # register results in order
    sdst: OperandPlace | None  # destination of a lane mask

    def roles(self) -> list[tuple[OperandPlace, int]]:
        """Returns (place, bit of M0[15:12]) of the operands that s_set_gpr_idx_on may index: src0, src1, src2, vdst."""
        read = [place for name, place in self.sources.items() if name not in ("vdst", "sdst")]
        written = [self.sources[name] for name in ("vdst",) if name in self.sources]
        return [*((place, bit) for bit, place in enumerate(read[:3])), *((p, 3) for p in (*written, *self.result))]


class VectorSources:
    """Loads the operands of one vector instruction in a frame, for a MODE."""

    def __init__(self, frame: Frame, inst: Instruction, places: SourcePlaces, mode: Mode) -> None:
        self.frame = frame
        self.inst = inst
        self.places = places
        self.mode = mode
        self.mods: Mapping[str, Any] = inst.mods
        flags = inst.spec.flags
        self.writes_all = Flag.IGNORE_EXEC in flags
        self.enabled: Any = None  # <64 x i1> of DPP's lanes that are written; None: all
        self.ops = ops_for(frame.build, frame.together, mode, mode.rounds(inst.spec), Flag.TRANS not in flags)
        self.ops.first = frame.first
        self.exec = frame.exec_bits()

    def write_row(self, pointer: Any, part: int, row: Any) -> None:
        """Stores a row in the lanes that the instruction writes."""
        if self.writes_all:
            self.frame.write_row(pointer, part, row, None)
        elif self.enabled is None:
            self.frame.write_active(pointer, part, row, self.exec)
        else:
            self.frame.write_row(pointer, part, row, self.frame.lanes(self.exec) & self.enabled)

    def raw_source(self, name: str, position: int) -> Any:
        """Returns the operand's bits after DPP and SDWA selection: rows, or a scalar to spread."""
        raw = load_vector(self.frame, self.places.sources[name])
        if self.inst.form == "dpp" and position == 0:
            raw, self.enabled = permute(self.frame, raw, self.mods, self.exec)
        if self.inst.form == "sdwa" and position < 2:
            select = self.mods.get(f"src{position}_sel", 6)
            raw = self._select(raw, select, bool(self.inst.src_mods.sext >> position & 1))
        return raw

    def _select(self, raw: Any, select: int, sign: bool) -> Any:
        shift, width = SELECT[select]
        if width == 32:
            return raw
        up = self.ops._vector(raw) << 32 - width - shift
        return up.ashr(32 - width) if sign else up >> 32 - width

    def typed_operand(self, raw: Any, type_: Type, position: int) -> Any:
        """Returns operand bits as a value of `type_`, with op_sel and the sign modifiers applied."""
        high = bool(self.mods.get("op_sel", 0) >> position & 1) and self.inst.form == "e64"
        if type_.bits < 32:
            raw = self._narrow(raw, type_.bits, high)
        raw = self._apply_sign(raw, type_, position)
        wanted = element(type_)
        current = raw.type.element if isinstance(raw.type, ir.VectorType) else raw.type
        if current != wanted:
            raw = raw.bitcast(ir.VectorType(wanted, raw.lanes) if raw.lanes else wanted)
        if type_.kind == "float" and self.mode.flush(type_)[0]:
            raw = self._flush(raw, type_)
        return raw

    def _narrow(self, raw: Any, bits: int, high: bool) -> Any:
        return (raw >> 16 if high else raw).trunc(ir.IntType(bits))

    def _apply_sign(self, raw: Any, type_: Type, position: int) -> Any:
        negate = self.inst.src_mods.neg >> position & 1
        absolute = self.inst.src_mods.abs >> position & 1
        if not (negate or absolute) or type_.kind == "mask":
            return raw
        scalar = raw.type.element if raw.lanes else raw.type
        sign = 1 << (scalar.width - 1)
        if absolute:
            raw = raw & sign - 1
        return raw ^ sign if negate else raw

    def _flush(self, raw: Any, type_: Type) -> Any:
        """Replaces denormals by zero of the same sign. Elements of a ring are not denormal."""
        if self.mode.ring:
            return raw
        smallest = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[type_.bits]
        value = Value(self.ops, type_, self.ops._vector(raw))
        tiny = abs(value) < smallest
        for check in self.frame.hooks:
            check.on_flush(self.frame, value, tiny.raw)
        bits = self.frame.build.bitcast(value.raw, self.ops.shape(ir.IntType(type_.bits)))
        zero = bits & 1 << (type_.bits - 1)
        return self.frame.build.select(tiny.raw, zero.bitcast(value.raw.type), value.raw)

    def value(self, param_type: Type, name: str, position: int) -> Any:
        """Returns a parameter as the body takes it: a Value, or a pair of them."""
        if param_type is t.mask:
            bits = load_scalar(self.frame, self.places.sources[name])
            return Value(self.ops, t.u1, self.frame.lanes(bits))
        if param_type.state == "sgpr":
            return Value(self.ops, param_type, load_scalar(self.frame, self.places.sources[name]))
        if param_type.bits > 64:
            return self._elements(name, param_type)
        raw = self.raw_source(name, position)
        if param_type.kind == "pair":
            return self._pair(raw, param_type, position)
        return Value(self.ops, param_type, self.typed_operand(raw, param_type, position))

    def half(self, raw: Any, type_: Type, position: int, part: int, default_high: bool) -> Any:
        """Returns element `part` (0 or 1) of a packed source: op_sel selects the half, neg_lo/hi negate."""
        field = "op_sel_hi" if part else "op_sel"
        default = 7 if part and default_high else 0
        high = bool(self.mods.get(field, default) >> position & 1)
        negate = bool(self.mods.get("neg_hi" if part else "neg_lo", 0) >> position & 1)
        raw = self.ops._vector(raw)
        width = type_.bits
        if width == 32:  # registers, which LLVM recovers from the result of `read_wide`
            words = raw.bitcast(ir.VectorType(I32, 2 * raw.lanes))
            raw = words.shuffle(range(int(high), words.lanes, 2))
        else:
            raw = (raw >> width if high else raw).trunc(ir.IntType(width))
        if negate:
            raw = raw ^ 1 << (width - 1)
        value = raw.bitcast(self.ops.shape(element(type_)))
        if type_.kind == "float" and self.mode.flush(type_)[0]:
            value = self._flush(value, type_)
        return Value(self.ops, type_, value)

    def _pair(self, raw: Any, type_: Type, position: int) -> tuple[Any, ...]:
        assert type_.element is not None
        if type_.bits == 32 and type_.element.bits == 16 and self.inst.spec.encoding == "vop3p":
            return (
                self.half(raw, type_.element, position, 0, True),
                self.half(raw, type_.element, position, 1, True),
            )
        return self._split([raw], type_)

    def _elements(self, name: str, type_: Type) -> tuple[Any, ...]:
        """Returns an operand of more than 64 bits as its elements."""
        pointer = self.frame.operand(self.places.sources[name].slot)
        return self._split([self.frame.row(pointer, part) for part in range(type_.bits // 32)], type_)

    def _split(self, words: list[Any], type_: Type) -> tuple[Any, ...]:
        """Splits the words of a pair type into its elements, lowest first."""
        assert type_.element is not None
        bits = type_.element.bits
        values = []
        for word in words:
            whole = self.ops._vector(word)
            for shift in range(0, whole.type.element.width, bits):
                raw = (whole >> shift if shift else whole).trunc(ir.IntType(bits))
                values.append(Value(self.ops, type_.element, raw.bitcast(self.ops.shape(element(type_.element)))))
        return tuple(values)

    def _old(self, type_: Type, name: str) -> Any:
        """Returns the destination's previous value as a parameter."""
        if type_.bits > 64:
            return self._elements(name, type_)
        raw = load_vector(self.frame, self.places.sources[name])
        if type_.kind == "pair":
            return self._split([raw], type_)
        if type_.bits < 32:
            raw = self._narrow(raw, type_.bits, False)
        return Value(self.ops, type_, raw.bitcast(self.ops.shape(element(type_))))

    def _mixed_source(self, name: str, position: int) -> Value:
        """Returns a v_mad_mix source: f32, or the f16 half that op_sel selects, widened."""
        raw = load_vector(self.frame, self.places.sources[name])
        half = self.mods.get("op_sel_hi", 0) >> position & 1
        if half:
            high = bool(self.mods.get("op_sel", 0) >> position & 1)
            narrow = self._narrow(self.ops._vector(raw), 16, high)
            value = cast(Value(self.ops, t.f16, narrow), t.f32)
        else:
            row = self.ops._vector(raw).bitcast(self.ops.shape(element(t.f32)))
            value = Value(self.ops, t.f32, row)
        if self.mods.get("neg_hi", 0) >> position & 1:  # the abs bits of a mix instruction
            value = abs(value)
        if self.mods.get("neg_lo", 0) >> position & 1:
            value = -value
        return value
