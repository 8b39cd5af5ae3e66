"""Arithmetic under a rounding mode other than to nearest even.

The host's rounding mode is set before each operation that rounds and reset after it; LLVM's constrained intrinsics keep the
operation in between. f16 results are rounded to f32 first, in the same direction, which does not change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.ring.ops import RingOps
from simgpu.hardware.isa.types import Type
from simgpu.machine import intrinsics
from simgpu.machine.frame import Frame
from simgpu.machine.host import host
from simgpu.machine.lane_ops import LLVMOps, element
from simgpu.machine.mode import DOWN, NEAREST, TO_ZERO, UP, Mode
from simgpu.machine.values import F32, F64, I16, I32, IrValue, join_vectors

# llvm.set.rounding's numbers (C's FLT_ROUNDS): 0 to zero, 1 nearest even, 2 up, 3 down.
_FLT_ROUNDS = {NEAREST: 1, UP: 2, DOWN: 3, TO_ZERO: 0}
_CONSTRAINED = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


class RoundedOps(LLVMOps):
    """`LLVMOps` whose rounding operations follow MODE."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, mode: Mode, fix_nan: bool = True) -> None:
        super().__init__(builder, lanes, fix_nan)
        self.mode = mode
        self._way = NEAREST

    # -- which rounding ------------------------------------------------------------------------

    def _float_binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        self._way = self.mode.rounding(type_)
        return super()._float_binary(op, type_, a, b)

    def _float_unary(self, op: str, type_: Type, a: Any) -> Any:
        self._way = self.mode.rounding(type_)
        return super()._float_unary(op, type_, a)

    def fma(self, type_: Type, a: Any, b: Any, c: Any) -> Any:
        self._way = self.mode.rounding(type_)
        if element(type_) in (F32, F64) or not self._way:
            return super().fma(type_, a, b, c)
        # Exact in f64 up to its last bit: rounded in one direction there, and in the same direction to f16.
        a, b, c = self._vector(a), self._vector(b), self._vector(c)
        x, y, z = (self._fext(self._widen(type_, v)) for v in (a, b, c))
        wide = self.intrinsic("fma", F64, [x, y, z])
        return self._settle(type_, self._narrow_f64(type_, wide), (a, b, c), wide)

    def convert(self, source: Type, target: Type, a: Any) -> Any:
        self._way = self.mode.rounding(target) if target.is_float else NEAREST
        return super().convert(source, target, a)

    # -- the operations ------------------------------------------------------------------------

    def _call_constrained(self, name: str, result: ir.Type, args: list[Any]) -> Any:
        """Calls llvm.experimental.constrained.<name> under the current rounding mode."""
        self._set(self._way)
        value = self._strict(name, result, args)
        self._set(NEAREST)
        return value

    def _strict(self, name: str, result: ir.Type, args: list[Any]) -> Any:
        words = [intrinsics.type_name(result)] + ([intrinsics.type_name(args[0].type)] if args[0].type != result else [])
        full = f"llvm.experimental.constrained.{name}.{'.'.join(words)}"
        notes = [ir.MetaDataString(self.builder.module, text) for text in ("round.dynamic", "fpexcept.ignore")]
        return intrinsics.call(self.builder, full, result, [*args, *notes])

    def _set(self, way: int) -> None:
        rounding = ir.Constant(I32, _FLT_ROUNDS[way])
        intrinsics.call(self.builder, "llvm.set.rounding", ir.VoidType(), [rounding])

    def _arith(self, op: str, a: Any, b: Any) -> Any:
        return self._call_constrained(_CONSTRAINED[op], a.type, [a, b])

    def intrinsic(self, name: str, scalar: ir.Type, args: list[Any], *extra: Any) -> Any:
        if name in ("fma", "sqrt"):
            return self._call_constrained(name, args[0].type, args)
        return super().intrinsic(name, scalar, args, *extra)

    def _fptrunc(self, a: Any, scalar: ir.Type) -> Any:
        if self.lanes == 1 or scalar != ir.HalfType():
            return self._call_constrained("fptrunc", self.shape(scalar), [a])
        # LLVM 22 aborts on vectors longer than one F16C instruction converts.
        piece, pieces = ir.VectorType(scalar, 8), []
        self._set(self._way)
        for first in range(0, self.lanes, 8):
            part = IrValue(self.builder, a).shuffle(range(first, first + 8), a)
            pieces.append(self._strict("fptrunc", piece, [part]))
        self._set(NEAREST)
        return join_vectors(pieces, self.lanes)[0]

    def _from_integer(self, source: Type, target: Type, a: Any) -> Any:
        name = "sitofp" if source.kind == "signed" else "uitofp"
        scalar = element(target)
        if scalar in (F32, F64):
            return self._call_constrained(name, self.shape(scalar), [a])
        return self._narrow_f64(target, self._call_constrained(name, self.shape(F64), [a]))

    def _narrow_f64(self, type_: Type, a: Any) -> Any:
        if not self._way:
            return super()._narrow_f64(type_, a)
        return self._narrow(type_, self._fptrunc(a, F32))

    def _narrow(self, type_: Type, a: Any) -> Any:
        """Rounds an f32 value to f16 bits: to nearest even, then one step back if that went too far."""
        way = self._way
        if type_.kind == "bfloat" or not way or host().converts_half:
            return super()._narrow(type_, a)
        self._way = NEAREST
        near = super()._narrow(type_, a)
        self._way = way
        back = self._widen_half(near)
        above, below = back.ordered > a, back.ordered < a
        negative = self.builder.bitcast(a, self.shape(I32)).signed < 0
        positive = ~negative
        # Shrink the magnitude if rounding went past the mode's side; grow it if rounding fell short.
        far_up, far_down = above & positive, below & negative
        shrink = {TO_ZERO: far_up | far_down, DOWN: far_up, UP: far_down}[way]
        near_up, near_down = below & positive, above & negative
        grow = {TO_ZERO: near_up & near_down, DOWN: near_down, UP: near_up}[way]
        step = grow.zext(I16) - shrink.zext(I16)
        return (near & 0x7FFF) + step & 0x7FFF | near & 0x8000


class RingLanes(RingOps, LLVMOps):
    """`LLVMOps` whose floats are elements of a ring."""

    functions: Mapping[str, Callable[..., Any]] = {**LLVMOps.functions, **RingOps.functions}

    @property
    def plain(self) -> LLVMOps:  # type: ignore[override]
        return LLVMOps(self.builder, self.lanes, self.fix_nan)


def ops_of(frame: Frame) -> LLVMOps:
    """Returns the operations of an atomic's body: to nearest even, on a single lane."""
    return RingLanes(frame.build, 1) if frame.ring else LLVMOps(frame.build, 1)


def ops_for(builder: ir.IRBuilder, lanes: int, mode: Mode, rounds: bool, fix_nan: bool) -> LLVMOps:
    """Returns the operations for an instruction under this mode."""
    if mode.ring:
        return RingLanes(builder, lanes)
    if rounds:
        return RoundedOps(builder, lanes, mode, fix_nan)
    return LLVMOps(builder, lanes, fix_nan)
