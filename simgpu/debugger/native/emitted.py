"""Compiles conditions: the part of a point's test that decides if a wave stops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.debugger.native.typed import BOOL, FLOAT, INT, Backend, TypedValue, result_kind
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.values import F32, F64, I1, I32, I64, where
from simgpu.machine.wave_frame import ROW32


class MachineCode(Backend):
    """Emits code that computes the values when a wave arrives."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.build = frame.build

    def _broadcast(self, a: TypedValue, b: TypedValue) -> tuple[Any, Any]:
        x, y = a.value, b.value
        if a.lanes and not b.lanes:
            y = y.splat(LANES)
        elif b.lanes and not a.lanes:
            x = x.splat(LANES)
        return x, y

    def constant(self, kind: str, value: float) -> TypedValue:
        type_ = {INT: I64, FLOAT: F64, BOOL: I1}[kind]
        return TypedValue(kind, False, self.frame.value(ir.Constant(type_, value if kind == FLOAT else int(value))))

    def scalar(self, number: int, count: int) -> TypedValue:
        offset = self.frame.scalar(number)
        if count == 2:
            low, high = self.frame.state(offset).zext(I64), self.frame.state(offset + 4).zext(I64)
            return TypedValue(INT, False, low | high << 32)
        return TypedValue(INT, False, self.frame.state(offset).zext(I64))

    def field(self, offset: int) -> TypedValue:
        return TypedValue(INT, False, self.frame.state(offset).zext(I64))

    def vector(self, file: str, number: int) -> TypedValue:
        row = self.frame.at(self.frame.wave, layout.vector_register(file, number)).load(ROW32, align=64)
        return TypedValue(INT, True, row.zext(I64))

    def lane(self, value: TypedValue, lane: int) -> TypedValue:
        return TypedValue(value.kind, False, value.value[lane])

    def cast(self, name: str, value: TypedValue) -> TypedValue:
        bits = value.value.trunc(I32)
        if name == "u32":
            return TypedValue(INT, value.lanes, bits.zext(I64))
        if name == "i32":
            return TypedValue(INT, value.lanes, bits.sext(I64))
        if name == "f16":
            return TypedValue(FLOAT, value.lanes, self._widen_half(bits))
        single = ir.VectorType(F32, LANES) if value.lanes else F32
        return TypedValue(FLOAT, value.lanes, (bits << 16 if name == "bf16" else bits).bitcast(single).fpext(F64))

    def _widen_half(self, bits: Any) -> Any:
        """Converts the low 16 bits from f16 to f64 by arithmetic: for some hosts LLVM would call a library."""
        exponent, fraction, sign = (bits >> 10) & 31, bits & 1023, (bits >> 15) & 1
        wide = ((exponent + 1008).zext(I64) << 52 | fraction.zext(I64) << 42)
        wide = where(exponent == 31, (fraction.zext(I64) << 42) | (0x7FF << 52), wide)
        double = ir.VectorType(F64, LANES) if bits.lanes else F64
        small = fraction.uitofp(F64) * 2.0**-24
        size = where(exponent == 0, small, wide.bitcast(double))
        return where(sign != 0, -size, size)

    def floating(self, value: TypedValue) -> TypedValue:
        return value if value.kind == FLOAT else TypedValue(FLOAT, value.lanes, value.value.sitofp(F64))

    def number(self, value: TypedValue) -> TypedValue:
        return TypedValue(INT, value.lanes, value.value.zext(I64)) if value.kind == BOOL else value

    def truth(self, value: TypedValue) -> TypedValue:
        return value if value.kind == BOOL else TypedValue(BOOL, value.lanes, value.value != 0)

    def absolute(self, value: TypedValue) -> TypedValue:
        held = value.value
        negative = held.ordered < 0.0 if value.kind == FLOAT else held.signed < 0
        return TypedValue(value.kind, value.lanes, where(negative, -held, held))

    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        x, y = self._broadcast(a, b)
        kind = result_kind(operator, a, b)
        if operator in "/%" and kind == INT:
            made = self._divide(operator, x, y)
        elif operator == "/":
            zero = y == 0.0
            made = where(zero, 0.0, x / where(zero, 1.0, y))
        elif operator in ("<<", ">>"):
            made = x << (y & 63) if operator == "<<" else x.ashr(y & 63)
        else:
            made = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "&": lambda: x & y, "|": lambda: x | y,
                    "^": lambda: x ^ y}[operator]()  # fmt: skip
        return TypedValue(kind, a.lanes or b.lanes, made)

    def _divide(self, operator: str, x: Any, y: Any) -> Any:
        """Divides as Python's // and % do, 0 for a zero divisor. -1 is a special case: INT64_MIN / -1 traps on some hosts."""
        zero, minus = y == 0, y == -1
        safe = where(zero | minus, 1, y)
        quotient, rest = self.build.sdiv(x, safe), self.build.srem(x, safe)
        down = (rest != 0) & ((rest.signed < 0) != (safe.signed < 0))
        if operator == "%":
            return where(zero, 0, where(minus, 0, where(down, rest + safe, rest)))
        return where(zero, 0, where(minus, -x, where(down, quotient - 1, quotient)))

    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        x, y = self._broadcast(a, b)
        compare = self.build.icmp_signed
        if a.kind == FLOAT:
            compare = self.build.fcmp_unordered if operator == "!=" else self.build.fcmp_ordered
        return TypedValue(BOOL, a.lanes or b.lanes, compare(operator, x, y))

    def over_lanes(self, name: str, value: TypedValue) -> TypedValue:
        bits = self.build.bitcast(value.value, I64)
        active = self.frame.exec_bits()
        return TypedValue(BOOL, False, (bits & active) != 0 if name == "any" else (bits & active) == active)
