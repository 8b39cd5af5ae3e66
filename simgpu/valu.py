"""Vector ALU instructions: modifiers, selects, DPP and masks around a body, written once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from hardware.errors import UnsupportedInstruction
from hardware.isa import instruction as isa
from hardware.isa import types as t
from hardware.isa.instruction import Instruction, Reg
from hardware.isa.lane import Value, cast, isnan, where
from hardware.isa.types import Type
from simgpu.dpp import permuted
from simgpu.frame import ROW32, Frame
from simgpu.lane_llvm import I16, I32, I64, element
from simgpu.layout import LANES
from simgpu.mode import Mode
from simgpu.operands import Place, Plan, load_scalar, load_vector
from simgpu.rounding import ops_for
from simgpu.salu import STATE_REGISTER, read_state, write_state

# SDWA selects (ISA guides, SDWA): BYTE_0..3, WORD_0, WORD_1, DWORD.
_SELECT = {0: (0, 8), 1: (8, 8), 2: (16, 8), 3: (24, 8), 4: (0, 16), 5: (16, 16), 6: (0, 32)}
_UNUSED_PAD, _UNUSED_SEXT = 0, 1
# States of parameters that no operand field holds.
NO_OPERAND = frozenset({*STATE_REGISTER, "scc", "modifier"})


@dataclass
class Places:
    """Where a vector instruction's operands lie."""

    sources: dict[str, Place]
    result: list[Place]
    sdst: Place | None

    def roles(self) -> list[tuple[Place, int]]:
        """Vector operands with their bits of s_set_gpr_idx_on: src0, src1, src2, vdst."""
        read = [place for name, place in self.sources.items() if name not in ("vdst", "sdst")]
        written = [self.sources[name] for name in ("vdst",) if name in self.sources]
        return [*((place, bit) for bit, place in enumerate(read[:3])), *((p, 3) for p in (*written, *self.result))]


def plan(inst: Instruction, plan: Plan, mode: Mode) -> Places:
    sources: dict[str, Place] = {}
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
        sources[param.name] = plan.source(inst.args[name], param.type, _operand_bits(inst, param.type))
    results: list[Place] = []
    sdst: Place | None = None
    for type_ in inst.spec.results:
        if type_ is t.mask:
            register = inst.args.get("sdst", Reg("s", isa.VCC, 2))
            assert isinstance(register, Reg)
            sdst = plan.register(register, 64)
        elif type_.state in ("", "sgpr"):
            name = _result_field(inst, len(results))
            register = inst.args[name]
            assert isinstance(register, Reg)
            results.append(plan.register(register, _operand_bits(inst, type_)))
    plan.note(inst.form, inst.src_mods.neg, inst.src_mods.abs, inst.src_mods.sext, mode.key_for(inst.spec))
    plan.note(*(f"{name}={value}" for name, value in sorted(inst.mods.items())))
    return Places(sources, results, sdst)


def _operand_bits(inst: Instruction, type_: Type) -> int:
    """Width of an operand: a packed f32 instruction names pairs of registers."""
    pairs = "packed" in inst.spec.flags and type_.bits == 32
    return 64 if pairs else max(32, type_.bits)


def _result_field(inst: Instruction, number: int) -> str:
    if number == 0:
        return "vdst" if "vdst" in inst.args else "sdst"
    # A second vector result (v_swap_b32, v_permlane16_swap_b32) goes back to the source.
    return "vdst1" if "vdst1" in inst.args else "src0"


class VectorEmitter:
    """Emits one vector instruction's body into a frame."""

    def __init__(self, frame: Frame, inst: Instruction, places: Places, mode: Mode) -> None:
        self.frame = frame
        self.inst = inst
        self.places = places
        self.mode = mode
        self.mods: Mapping[str, Any] = inst.mods
        flags = inst.spec.flags
        self.ops = ops_for(frame.build, LANES, mode, mode.rounds(inst.spec), "trans" not in flags)
        self.exec = frame.exec_bits()
        self.write_mask: Any = None if "ignore_exec" in flags else frame.lanes(self.exec)

    # -- sources -------------------------------------------------------------------------------

    def raw_source(self, name: str, position: int) -> Any:
        """The operand's bits after DPP and SDWA selection: rows, or a scalar to spread."""
        raw = load_vector(self.frame, self.places.sources[name])
        if self.inst.form == "dpp" and position == 0:
            raw, writes = permuted(self.frame, raw, self.mods, self.exec)
            self.write_mask = self.frame.build.and_(self.write_mask, writes)
        if self.inst.form == "sdwa" and position < 2:
            select = self.mods.get(f"src{position}_sel", 6)
            raw = self._selected(raw, select, bool(self.inst.src_mods.sext >> position & 1))
        return raw

    def _selected(self, raw: Any, select: int, sign: bool) -> Any:
        shift, width = _SELECT[select]
        if width == 32:
            return raw
        build = self.frame.build
        raw = self.ops._vector(raw)
        up = build.shl(raw, self.ops.constant(I32, 32 - width - shift))
        move = build.ashr if sign else build.lshr
        return move(up, self.ops.constant(I32, 32 - width))

    def typed(self, raw: Any, type_: Type, position: int) -> Any:
        """Operand bits as a value of `type_`, with op_sel and the sign modifiers applied."""
        build = self.frame.build
        high = bool(self.mods.get("op_sel", 0) >> position & 1) and self.inst.form == "e64"
        if type_.bits < 32:
            raw = self._narrowed(raw, type_.bits, high)
        raw = self._signed(raw, type_, position)
        wanted = element(type_)
        current = raw.type.element if isinstance(raw.type, ir.VectorType) else raw.type
        if current != wanted:
            shape = ir.VectorType(wanted, LANES) if isinstance(raw.type, ir.VectorType) else wanted
            raw = build.bitcast(raw, shape)
        if type_.kind == "float" and self.mode.flush(type_)[0]:
            raw = self._flushed(raw, type_)
        return raw

    def _narrowed(self, raw: Any, bits: int, high: bool) -> Any:
        build = self.frame.build
        vector = isinstance(raw.type, ir.VectorType)
        if high:
            amount: Any = ir.Constant(I32, 16)
            raw = build.lshr(raw, self.ops.constant(I32, 16) if vector else amount)
        narrow = ir.IntType(bits)
        return build.trunc(raw, ir.VectorType(narrow, LANES) if vector else narrow)

    def _signed(self, raw: Any, type_: Type, position: int) -> Any:
        negate = self.inst.src_mods.neg >> position & 1
        absolute = self.inst.src_mods.abs >> position & 1
        if not (negate or absolute) or type_.kind == "mask":
            return raw
        build = self.frame.build
        scalar = raw.type.element if isinstance(raw.type, ir.VectorType) else raw.type
        sign = 1 << (scalar.width - 1)

        def constant(value: int) -> Any:
            if isinstance(raw.type, ir.VectorType):
                return self.ops.constant(scalar, value)
            return ir.Constant(scalar, value)

        if absolute:
            raw = build.and_(raw, constant(sign - 1))
        if negate:
            raw = build.xor(raw, constant(sign))
        return raw

    def _flushed(self, raw: Any, type_: Type) -> Any:
        """Denormals to zero of the same sign."""
        smallest = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[type_.bits]
        value = Value(self.ops, type_, self.ops._vector(raw))
        tiny = abs(value) < smallest
        build = self.frame.build
        integer = ir.IntType(type_.bits)
        bits = build.bitcast(value.raw, self.ops.shape(integer))
        zero = build.and_(bits, self.ops.constant(integer, 1 << (type_.bits - 1)))
        return build.select(tiny.raw, build.bitcast(zero, value.raw.type), value.raw)

    def value(self, param_type: Type, name: str, position: int) -> Any:
        """A parameter as the body wants it: a Value, or a pair of them."""
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
        return Value(self.ops, param_type, self.typed(raw, param_type, position))

    def half(self, raw: Any, type_: Type, position: int, part: int, default_high: bool) -> Any:
        """Element `part` (0 or 1) of a packed source: op_sel picks the half, neg_lo/hi negate."""
        field = "op_sel_hi" if part else "op_sel"
        default = 7 if part and default_high else 0
        high = bool(self.mods.get(field, default) >> position & 1)
        negate = bool(self.mods.get("neg_hi" if part else "neg_lo", 0) >> position & 1)
        build = self.frame.build
        raw = self.ops._vector(raw)
        width = type_.bits
        if high:
            amount = ir.Constant(raw.type, [width] * LANES)
            raw = build.lshr(raw, amount)
        raw = build.trunc(raw, self.ops.shape(ir.IntType(width))) if raw.type.element.width != width else raw
        if negate:
            raw = build.xor(raw, self.ops.constant(ir.IntType(width), 1 << (width - 1)))
        value = build.bitcast(raw, self.ops.shape(element(type_)))
        if type_.kind == "float" and self.mode.flush(type_)[0]:
            value = self._flushed(value, type_)
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
        """An operand of more than 64 bits, as its elements."""
        pointer = self.frame.operand(self.places.sources[name].slot)
        return self._split([self.frame.row(pointer, part) for part in range(type_.bits // 32)], type_)

    def _split(self, words: list[Any], type_: Type) -> tuple[Any, ...]:
        """Elements of a pair type from the words that hold them, lowest first."""
        assert type_.element is not None
        build, bits = self.frame.build, type_.element.bits
        narrow = self.ops.shape(ir.IntType(bits))
        values = []
        for word in words:
            whole = self.ops._vector(word)
            for shift in range(0, whole.type.element.width, bits):
                raw = whole
                if shift:
                    raw = build.lshr(raw, self.ops.constant(whole.type.element, shift))
                if whole.type.element.width != bits:
                    raw = build.trunc(raw, narrow)
                shaped = build.bitcast(raw, self.ops.shape(element(type_.element)))
                values.append(Value(self.ops, type_.element, shaped))
        return tuple(values)

    # -- results -------------------------------------------------------------------------------

    def finished(self, value: Value) -> Value:
        """Output denormals, omod and clamp of a result."""
        type_ = value.type
        if type_.is_float:
            if type_.kind == "float" and self.mode.flush(type_)[1]:
                value = Value(self.ops, type_, self._flushed(value.raw, type_))
            omod = self.mods.get("omod", 0)
            # The output modifier is ignored where IEEE mode or output denormals are on.
            if omod and not self.mode.ieee and self.mode.flush(type_)[1]:
                value = value * {1: 2.0, 2: 4.0, 3: 0.5}[omod]
            if self.mods.get("clamp"):
                value = self._clamped(value)
        return value

    def _clamped(self, value: Value) -> Value:
        low = where(value > 0.0, value, 0.0)
        clamped = where(low < 1.0, low, 1.0)
        if self.mode.dx10_clamp:
            return clamped
        return where(isnan(value), value, clamped)

    def store(self, place: Place, value: Value) -> None:
        """Write a result, honouring EXEC, dst_sel and the rule for the high half."""
        build = self.frame.build
        raw = self.ops._vector(value.raw)
        integer = ir.IntType(value.type.bits if value.type.bits > 1 else 32)
        if value.type.bits == 1:
            raw = build.zext(raw, ROW32)
        elif raw.type.element != integer:
            raw = build.bitcast(raw, self.ops.shape(integer))
        pointer = self.frame.operand(place.slot)
        width = raw.type.element.width
        if width < 32:
            raw = self._placed(raw, value.type, pointer)
        elif self.inst.form == "sdwa" and width == 32:
            raw = self._sdwa(raw, pointer)
        if width > 64:
            raise UnsupportedInstruction(f"{self.inst.mnemonic}: a {width}-bit result")
        self.frame.write_wide(pointer, raw, self.write_mask)

    def _placed(self, raw: Any, type_: Type, pointer: Any) -> Any:
        """A 16-bit result in its 32-bit register."""
        build = self.frame.build
        wide = build.zext(raw, ROW32)
        if self.inst.form == "sdwa":
            return self._sdwa(wide, pointer)
        flags = self.inst.spec.flags
        high = "write_high" in flags or bool(self.mods.get("op_sel", 0) & 8)
        if not flags & {"preserve_high", "write_high"} or self.inst.form != "e64":
            return wide
        old = self.frame.row(pointer)
        if high:
            kept = build.and_(old, self.ops.constant(I32, 0xFFFF))
            return build.or_(kept, build.shl(wide, self.ops.constant(I32, 16)))
        return build.or_(build.and_(old, self.ops.constant(I32, 0xFFFF0000)), wide)

    def _sdwa(self, raw: Any, pointer: Any) -> Any:
        shift, width = _SELECT[self.mods.get("dst_sel", 6)]
        if width == 32:
            return raw
        build, ops = self.frame.build, self.ops
        field = ((1 << width) - 1) << shift
        moved = build.shl(raw, ops.constant(I32, shift))
        inside = build.and_(moved, ops.constant(I32, field))
        unused = self.mods.get("dst_unused", _UNUSED_PAD)
        if unused == _UNUSED_PAD:
            return inside
        if unused == _UNUSED_SEXT:
            up = build.shl(raw, ops.constant(I32, 32 - width))
            signed = build.ashr(up, ops.constant(I32, 32 - width))
            extended = build.shl(signed, ops.constant(I32, shift))
            return extended
        kept = build.and_(self.frame.row(pointer), ops.constant(I32, 0xFFFFFFFF & ~field))
        return build.or_(inside, kept)

    # -- the whole instruction -----------------------------------------------------------------

    def emit(self) -> None:
        flags = self.inst.spec.flags
        if "packed" in flags:
            self._emit_packed()
        else:
            self._emit_plain()

    def _arguments(self) -> tuple[list[Any], dict[str, int]]:
        """Positional values and, by name, the modifiers that the body wants to know."""
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
                if "mix" in self.inst.spec.flags:
                    values.append(self._mixed(param.name, position))
                else:
                    values.append(self.value(param.type, param.name, position))
                position += 1
        return values, modifiers

    def _modifier(self, name: str) -> dict[str, int]:
        if name in ("ieee", "fp16_ovfl"):
            return {name: int(getattr(self.mode, name))}
        return {name: int(self.mods[name])} if name in self.mods else {}

    def _old(self, type_: Type, name: str) -> Any:
        """The destination's previous value as a parameter."""
        if type_.bits > 64:
            return self._elements(name, type_)
        raw = load_vector(self.frame, self.places.sources[name])
        if type_.kind == "pair":
            return self._split([raw], type_)
        if type_.bits < 32:
            raw = self._narrowed(raw, type_.bits, False)
        return Value(self.ops, type_, self.frame.build.bitcast(raw, self.ops.shape(element(type_))))

    def _mixed(self, name: str, position: int) -> Value:
        """A v_mad_mix source: f32, or the f16 half that op_sel names, widened."""
        raw = load_vector(self.frame, self.places.sources[name])
        half = self.mods.get("op_sel_hi", 0) >> position & 1
        if half:
            high = bool(self.mods.get("op_sel", 0) >> position & 1)
            narrow = self._narrowed(self.ops._vector(raw), 16, high)
            value = cast(Value(self.ops, t.f16, narrow), t.f32)
        else:
            row = self.frame.build.bitcast(self.ops._vector(raw), self.ops.shape(element(t.f32)))
            value = Value(self.ops, t.f32, row)
        if self.mods.get("neg_hi", 0) >> position & 1:  # the abs bits of a mix instruction
            value = abs(value)
        if self.mods.get("neg_lo", 0) >> position & 1:
            value = -value
        return value

    def _emit_plain(self) -> None:
        arguments, modifiers = self._arguments()
        self._write(self._evaluated(arguments, modifiers))

    def _evaluated(self, arguments: list[Any], modifiers: dict[str, int]) -> tuple[Any, ...]:
        spec = self.inst.spec
        assert spec.body is not None
        returned = spec.body(*arguments, **modifiers)
        return tuple(returned) if len(spec.results) > 1 else (returned,)

    def _emit_packed(self) -> None:
        spec = self.inst.spec
        operands = [p for p in spec.params if p.type.state not in NO_OPERAND]
        rows = {p.name: load_vector(self.frame, self.places.sources[p.name]) for p in operands}
        modifiers: dict[str, int] = {}
        for param in spec.params:
            if param.type.state == "modifier":
                modifiers.update(self._modifier(param.name))
        halves = []
        for part in (0, 1):
            values: list[Any] = []
            position = 0
            for param in operands:
                if param.name == "vdst":
                    shift = part * param.type.bits
                    raw = self.frame.build.lshr(rows["vdst"], self.ops.constant(I32, shift))
                    values.append(Value(self.ops, param.type, self._narrowed(raw, param.type.bits, False)))
                else:
                    values.append(self.half(rows[param.name], param.type, position, part, True))
                    position += 1
            halves.append(self.finished(self._evaluated(values, modifiers)[0]))
        self._store_elements(self.places.result[0], tuple(halves))

    def _write(self, outputs: tuple[Any, ...]) -> None:
        build = self.frame.build
        places = iter(self.places.result)
        later = []
        for type_, value in zip(self.inst.spec.results, outputs, strict=True):
            if type_ is t.mask:
                condition = value.raw
                if not isinstance(condition.type, ir.VectorType):
                    condition = self.ops._vector(condition)
                active = build.and_(condition, self.frame.lanes(self.exec))
                later.append((type_, build.bitcast(active, I64)))
            elif type_.state == "sgpr":
                place = next(places)
                raw = value.raw
                if isinstance(raw.type, ir.VectorType):
                    raw = build.extract_element(raw, ir.Constant(I32, 0))
                self.frame.store(raw, self.frame.operand(place.slot))
            elif type_.state:
                later.append((type_, value.raw))
            elif isinstance(value, tuple):
                self._store_elements(next(places), value)
            else:
                self.store(next(places), self.finished(value))
        for type_, raw in later:
            if type_ is t.mask:
                assert self.places.sdst is not None
                self.frame.store(raw, self.frame.operand(self.places.sdst.slot))
                if "cmpx" in self.inst.spec.flags:
                    self.frame.set_state(self.frame.scalar(isa.EXEC), raw)
            else:
                write_state(self.frame, type_, raw)

    def _store_elements(self, place: Place, values: tuple[Value, ...]) -> None:
        """A result given as its elements, lowest first."""
        build, ops = self.frame.build, self.ops
        width = values[0].type.bits
        raws = [build.bitcast(ops._vector(v.raw), ops.shape(ir.IntType(width))) for v in values]
        if width == 16:
            pairs = zip(raws[::2], raws[1::2], strict=True)
            half = ops.constant(I32, 16)
            raws = [build.or_(build.zext(a, ROW32), build.shl(build.zext(b, ROW32), half)) for a, b in pairs]
        pointer = self.frame.operand(place.slot)
        for number, raw in enumerate(raws):
            self.frame.write_row(pointer, number, raw, self.write_mask)
