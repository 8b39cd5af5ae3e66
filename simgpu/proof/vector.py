"""Vector instructions on terms: modifiers, selects, DPP and masks around an instruction's body, as `alu.valu` emits them."""

from __future__ import annotations

from typing import Any

import z3

from simgpu.alu.valu import NO_OPERAND
from simgpu.alu.valu_sources import SELECT
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.constants import F16_SOURCES
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, cast, isnan, where
from simgpu.hardware.isa.lane_smt import SmtOps, bits_of, choose, concat, every, fold, number, unwrap, wrap
from simgpu.hardware.isa.types import Type
from simgpu.machine.mode import Mode
from simgpu.proof.scalar import STATE_REGISTER, read_state
from simgpu.proof.state import SCC, WaveState
from simgpu.proof.terms import NotModelled

Term = Any


class VectorInstruction:
    """Vector instruction on the registers of a state."""

    def __init__(self, state: WaveState, inst: Instruction, ops: SmtOps) -> None:
        self.state, self.inst, self.ops = state, inst, ops
        self.mode = Mode.of_register(state.mode)
        self.flags = inst.spec.flags
        self.mods = inst.mods
        self.rows = inst.spec.kind == "wave"  # the body sees other lanes
        self.write = z3.BoolVal(True) if Flag.IGNORE_EXEC in self.flags else state.active
        if self.mode.indexed or self.mode.skips or self.mode.fp16_ovfl:
            raise NotModelled("VGPR indexing, VSKIP and FP16_OVFL")
        if self.mode.rounds(inst.spec):
            raise NotModelled("a rounding mode other than to nearest even")

    def run(self) -> None:
        """Runs the instruction."""
        if Flag.PACKED in self.flags:
            self._run_packed()
            return
        arguments, modifiers = self._arguments()
        spec = self.inst.spec
        assert spec.body is not None
        if self.inst.mnemonic == "v_readfirstlane_b32":
            self._read_first_lane()
            return
        returned = spec.body(*arguments, **modifiers)
        results = tuple(returned) if len(spec.results) > 1 else (returned,)
        registers = 0
        for type_, value in zip(spec.results, results, strict=True):
            if type_ is t.mask:
                self._write_mask(value.raw)
            elif type_.state in ("", "sgpr"):
                self._write_register(self._destination(registers), type_, value)
                registers += 1
            elif type_.state == SCC:
                self.state.registers[SCC, 0] = value.raw
            else:
                self.state.set_scalar(STATE_REGISTER[type_.state], value.raw)

    # -- sources -------------------------------------------------------------------------------

    def _arguments(self) -> tuple[list[Any], dict[str, int]]:
        values: list[Any] = []
        modifiers: dict[str, int] = {}
        position = fields = 0
        for param in self.inst.spec.params:
            if param.type.state == "modifier":
                modifiers.update(self._modifier(param.name))
            elif param.type.state == "vcc" and param.type.kind == "mask":
                values.append(Value(self.ops, t.u1, self._condition(self.state.scalar(isa.VCC, 64))))
            elif param.type.state in NO_OPERAND:
                values.append(Value(self.ops, param.type, read_state(self.state, param.type)))
            elif param.name in ("vdst", "sdst"):
                values.append(self._old(param.type, param.name))
            else:
                name = param.name if param.name in self.inst.args else f"src{fields}"
                fields += param.name not in self.inst.args
                mixed = Flag.MIX in self.flags
                values.append(self._mix_source(name, position) if mixed else self._value(param.type, name, position))
                position += 1
        return values, modifiers

    def _modifier(self, name: str) -> dict[str, int]:
        if name in ("ieee", "fp16_ovfl"):
            return {name: int(getattr(self.mode, name))}
        return {name: int(self.mods[name])} if name in self.mods else {}

    def _condition(self, mask: Term) -> Term:
        return self.state.lanes.assume(self.state.lanes.bit(mask), self.state.known_ids())

    def _raw(self, name: str, type_: Type, bits: int = 0) -> Term:
        half = (self.inst.mnemonic, self.inst.form, name) in F16_SOURCES
        if Flag.MIX in self.flags:
            half = bool(self.mods.get("op_sel_hi", 0) >> int(name[3:]) & 1)
        crossing = self.rows or Flag.IGNORE_EXEC in self.flags or (self.inst.form == "dpp" and name == "src0")
        return self.state.operand(self.inst.args[name], t.f16 if half else type_, bits, crossing)

    def _value(self, type_: Type, name: str, position: int) -> Any:
        if type_ is t.mask:
            operand = self.inst.args[name]
            if isinstance(operand, Reg) and operand.file != "s":
                raise NotModelled("a lane mask in vector registers")
            return Value(self.ops, t.u1, self._condition(self.state.operand(operand, type_, 64)))
        if type_.state == "sgpr":
            raw = self._raw(name, type_)
            if self.state.lanes.varies(raw):
                raise NotModelled("a vector register as a scalar operand")
            return Value(self.ops, type_, raw)
        raw = self._raw(name, type_)
        if type_.bits > 64:
            return wrap(self.ops, type_, raw)
        raw = self._select(raw, position)
        if type_.kind == "pair":
            if type_.bits == 32 and self.inst.spec.encoding == "vop3p":
                assert type_.element is not None
                return tuple(self._half(raw, type_.element, position, part) for part in (0, 1))
            return wrap(self.ops, type_, raw)
        high = bool(self.mods.get("op_sel", 0) >> position & 1) and self.inst.form == "e64"
        if type_.bits < 32:
            raw = bits_of(raw, 16 if high else 0, type_.bits)
        return self._flush(Value(self.ops, type_, self._apply_sign(raw, type_, position)))

    def _select(self, raw: Term, position: int) -> Term:
        """Applies DPP and SDWA."""
        if self.inst.form == "dpp" and position == 0:
            raw = self._permute(raw)
        if self.inst.form == "sdwa" and position < 2:
            shift, width = SELECT[self.mods.get(f"src{position}_sel", 6)]
            if width < 32:
                extend = z3.SignExt if self.inst.src_mods.sext >> position & 1 else z3.ZeroExt
                raw = fold(extend(32 - width, bits_of(raw, shift, width)))
        return raw

    def _permute(self, raw: Term) -> Term:
        lanes = self.state.lanes
        source, inside = source_lane(int(self.mods.get("dpp_ctrl", 0)), lanes.lane)
        valid = every(inside, lanes.at(self.state.active, source))
        rows, banks = int(self.mods.get("row_mask", 15)), int(self.mods.get("bank_mask", 15))
        if rows != 15 or banks != 15:
            row, bank = (fold(z3.LShR(lanes.lane, shift) & 3) for shift in (4, 2))
            for bits, number_ in ((rows, row), (banks, bank)):
                self.write = every(self.write, fold(z3.LShR(number(bits, 32), number_) & 1) == 1)
        if not self.mods.get("bound_ctrl"):
            self.write = every(self.write, valid)
        return choose(valid, lanes.at(raw, source), number(0, 32))

    def _apply_sign(self, raw: Term, type_: Type, position: int) -> Term:
        sign = 1 << (raw.size() - 1)
        if self.inst.src_mods.abs >> position & 1:
            raw = fold(raw & (sign - 1))
        return fold(raw ^ sign) if self.inst.src_mods.neg >> position & 1 else raw

    def _flush(self, value: Value, output: bool = False) -> Value:
        """Replaces denormals by zero of the same sign, if MODE says so."""
        type_ = value.type
        if type_.kind != "float" or not self.mode.flush(type_)[output]:
            return value
        smallest = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[type_.bits]
        zero = fold(value.raw & number(1 << (type_.bits - 1), type_.bits))
        return where(abs(value) < smallest, Value(self.ops, type_, zero), value)

    def _half(self, raw: Term, type_: Type, position: int, part: int) -> Value:
        """Returns element `part` of a packed source: op_sel selects the half, neg_lo and neg_hi negate."""
        high = self.mods.get("op_sel_hi" if part else "op_sel", 7 if part else 0) >> position & 1
        made = bits_of(raw, type_.bits if high else 0, type_.bits)
        if self.mods.get("neg_hi" if part else "neg_lo", 0) >> position & 1:
            made = fold(made ^ number(1 << (type_.bits - 1), type_.bits))
        return self._flush(Value(self.ops, type_, made))

    def _mix_source(self, name: str, position: int) -> Value:
        """Returns a v_mad_mix source: f32, or the f16 half that op_sel selects, widened."""
        raw = self._raw(name, t.f32)
        value = Value(self.ops, t.f32, raw)
        if self.mods.get("op_sel_hi", 0) >> position & 1:
            low = 16 * (self.mods.get("op_sel", 0) >> position & 1)
            value = cast(Value(self.ops, t.f16, bits_of(raw, low, 16)), t.f32)
        if self.mods.get("neg_hi", 0) >> position & 1:  # the abs bits of a mix instruction
            value = abs(value)
        return -value if self.mods.get("neg_lo", 0) >> position & 1 else value

    def _old(self, type_: Type, name: str) -> Any:
        register = self.inst.args[name]
        assert isinstance(register, Reg)
        raw = self.state.vector(register, max(32, type_.bits), self.rows)
        return wrap(self.ops, type_, bits_of(raw, 0, type_.bits))

    # -- results -------------------------------------------------------------------------------

    def _destination(self, number_: int) -> Reg:
        names = ("vdst", "sdst") if number_ == 0 else ("vdst1", "src0")
        name = names[0] if names[0] in self.inst.args else names[1]
        register = self.inst.args[name]
        if not isinstance(register, Reg):
            raise NotModelled(f"{self.inst.mnemonic} with a constant as its destination")
        return register

    def _write_register(self, register: Reg, type_: Type, value: Any) -> None:
        if type_.state == "sgpr":
            if self.state.lanes.varies(value.raw):
                raise NotModelled(f"{self.inst.mnemonic} of a value that differs between lanes")
            self.state.set_scalar(register.index, value.raw)
        elif isinstance(value, tuple):
            self._store(register, unwrap(type_, value))
        else:
            self._store(register, self._place(self._finish(value), register))

    def _finish(self, value: Value) -> Value:
        """Applies output denormals, omod and clamp."""
        if not value.type.is_float:
            return value
        value = self._flush(value, output=True)
        if self.ops.forgets:
            return Value(self.ops, value.type, self.ops.forgotten(value.raw))
        omod = self.mods.get("omod", 0)
        if omod and not self.mode.ieee and self.mode.flush(value.type)[1]:
            value = value * {1: 2.0, 2: 4.0, 3: 0.5}[omod]
        if not self.mods.get("clamp"):
            return value
        low = where(value > 0.0, value, 0.0)
        clamped = where(low < 1.0, low, 1.0)
        return clamped if self.mode.dx10_clamp else where(isnan(value), value, clamped)

    def _place(self, value: Value, register: Reg) -> Term:
        """Returns a result in its register: by dst_sel, or in the half that the instruction writes."""
        raw = choose(value.raw, number(1, 32), number(0, 32)) if z3.is_bool(value.raw) else value.raw
        width = raw.size()
        wide = concat(raw, number(0, 32 - width)) if width < 32 else raw
        if self.inst.form == "sdwa" and width <= 32:
            return self._sdwa(wide, register)
        high = Flag.WRITE_HIGH in self.flags or bool(self.mods.get("op_sel", 0) & 8)
        if width >= 32 or self.inst.form != "e64" or not (high or Flag.PRESERVE_HIGH in self.flags):
            return wide
        old, raw = self.state.vector(register), bits_of(wide, 0, 16)
        return concat(bits_of(old, 0, 16), raw) if high else concat(raw, bits_of(old, 16, 16))

    def _sdwa(self, raw: Term, register: Reg) -> Term:
        shift, width = SELECT[self.mods.get("dst_sel", 6)]
        if width == 32:
            return raw
        inside, unused = bits_of(raw, 0, width), self.mods.get("dst_unused", 0)
        above = 32 - width - shift
        old = self.state.vector(register)
        parts = [number(0, shift)] if shift else []
        parts.append(inside)
        if above:
            sign = bits_of(fold(z3.SignExt(above, inside)), width, above)
            parts.append(sign if unused == 1 else number(0, above))
        if unused == 2:
            parts = [*([bits_of(old, 0, shift)] if shift else []), inside, *([bits_of(old, 32 - above, above)] if above else [])]
        return concat(*parts)

    def _store(self, register: Reg, raw: Term) -> None:
        self.state.set_vector(register, raw, self.write)

    def _write_mask(self, condition: Term) -> None:
        register = self.inst.args.get("sdst", Reg("s", isa.VCC, 2))
        if not isinstance(register, Reg):
            raise NotModelled(f"{self.inst.mnemonic} with a constant as its destination")
        mask = self.ops.binary("and", t.u64, self.state.exec, self.state.lanes.mask(condition))
        self.state.set_scalar(register.index, mask)
        if Flag.CMPX in self.flags:
            self.state.set_scalar(isa.EXEC, mask)

    # -- other kinds ---------------------------------------------------------------------------

    def _run_packed(self) -> None:
        spec = self.inst.spec
        assert spec.body is not None
        operands = [p for p in spec.params if p.type.state not in NO_OPERAND]
        bits = 64 if operands[-1].type.bits == 32 else 0
        modifiers = {k: v for p in spec.params if p.type.state == "modifier" for k, v in self._modifier(p.name).items()}
        names = [("vdst" if p.name == "vdst" else p.name if p.name in self.inst.args else "") for p in operands]
        count = 0
        for at, name in enumerate(names):
            if not name:
                names[at] = f"src{count}"
            count += name != "vdst"
        rows = [self.state.operand(self.inst.args[name], p.type, bits) for name, p in zip(names, operands, strict=True)]
        halves = []
        for part in (0, 1):
            values: list[Value] = []
            position = 0
            for param, raw in zip(operands, rows, strict=True):
                if param.name == "vdst":
                    values.append(Value(self.ops, param.type, bits_of(raw, part * param.type.bits, param.type.bits)))
                else:
                    values.append(self._half(raw, param.type, position, part))
                    position += 1
            halves.append(self._finish(spec.body(*values, **modifiers)).raw)
        self._store(self._destination(0), concat(*halves))

    def _read_first_lane(self) -> None:
        """Reads the first active lane; a value that is the same in all active lanes needs no other lane."""
        source = self.inst.args["src0"]
        raw = self.state.operand(source, t.u32, 32, other_lanes=True)
        lanes, chosen = self.state.lanes, self.state.exec
        here = self.state.lanes.assume(raw, self.state.known_ids())
        if lanes.varies(here):
            here = lanes.at(raw, bits_of(self.ops.unary("cttz", t.u64, chosen) & 63, 0, 32))
        elif lanes.varies(raw):
            here = choose(lanes.empty(chosen), lanes.at(raw, number(0, 32)), here)
        self.state.set_scalar(self._destination(0).index, here)


def source_lane(control: int, lane: Term) -> tuple[Term, Term]:
    """Returns the lane that a lane's DPP source is in, and the condition that there is one (`alu.dpp.source_lanes`)."""
    row, at, amount = fold(lane & 48), fold(lane & 15), control & 15
    always = z3.BoolVal(True)
    if control <= 0xFF:  # quad_perm
        return fold(lane & 60) | fold(z3.LShR(number(control, 32), fold((lane & 3) << 1)) & 3), always
    if 0x101 <= control <= 0x10F:
        return fold(lane + amount), fold(z3.ULT(at, 16 - amount))
    if 0x111 <= control <= 0x11F:
        return fold(lane - amount), fold(z3.UGE(at, amount))
    if 0x121 <= control <= 0x12F:
        return row | fold((at - amount) & 15), always
    if 0x150 <= control <= 0x15F:
        return row | amount, always
    ways = {
        0x130: (lane + 1, z3.ULT(lane, 63)), 0x134: ((lane + 1) & 63, always),
        0x138: (lane - 1, z3.UGT(lane, 0)), 0x13C: ((lane - 1) & 63, always),
        0x140: (row | 15 - at, always), 0x141: (lane ^ 7, always),
        0x142: (row - 1, row != 0), 0x143: (number(31, 32), z3.UGE(lane, 32)),
    }  # fmt: skip
    if control not in ways:
        raise NotModelled(f"dpp_ctrl {control:#x}")
    return ways[control]


