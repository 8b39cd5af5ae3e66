"""Operations of instruction bodies on LLVM IR: a body that is called with these values emits code.

For vector instructions they work on rows of 64 lanes (`<64 x T>`), for SALU on single values. A `splat` value may stay scalar
until a vector needs it. f16 and bf16 values are i16 bit patterns. Their operations are computed in f32 and then rounded to the
type: because 24 >= 2·11+2 bits, +, -, · and sqrt are rounded correctly. An f16 fma is computed in f32, and again in f64 if its
result may be a tie or a denormal number; a bf16 fma is computed in f64.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.lane import Number
from simgpu.hardware.isa.types import Type
from simgpu.machine import intrinsics
from simgpu.machine.byte_shuffles import selected_bytes
from simgpu.machine.host import host
from simgpu.machine.intrinsics import fabs
from simgpu.machine.layout import GROUP, LANES
from simgpu.machine.values import F32, F64, I1, I16, I32, I64, IrValue, constant, plain, undefined_value, where

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
DEFAULT_NAN = {16: 0x7E00, 32: 0x7FC00000, 64: 0x7FF8000000000000}
QUIET_BIT = {16: 0x0200, 32: 0x00400000, 64: 0x0008000000000000}


def element(type_: Type) -> ir.Type:
    """Returns the LLVM type of one lane's value."""
    if type_.kind == "mask" and type_.bits != 64:
        return I1
    if type_.name == "mask":
        return I1
    if type_.kind == "float" and type_.bits == 32:
        return F32
    if type_.kind == "float" and type_.bits == 64:
        return F64
    return ir.IntType(type_.bits)


class LLVMOps:
    """`simgpu.hardware.isa.lane.Ops` that emits IR at `builder`.

    lanes: 64 for vector instructions, 1 for scalar ones; fix_nan: True if float results follow AMD's NaN payload rule (off
    inside approximations, whose bodies select NaNs themselves).
    """

    functions: Mapping[str, Callable[..., Any]] = {"selected_bytes": selected_bytes}
    first: IrValue | None = None  # i64: number of the first lane, if that is not 0

    def __init__(self, builder: ir.IRBuilder, lanes: int, fix_nan: bool = True) -> None:
        self.builder = builder
        self.lanes = lanes
        self.fix_nan = fix_nan

    # -- types ---------------------------------------------------------------------------------

    def shape(self, scalar: ir.Type) -> ir.Type:
        return ir.VectorType(scalar, self.lanes) if self.lanes > 1 else scalar

    def constant(self, scalar: ir.Type, value: Number) -> ir.Constant:
        return constant(self.shape(scalar), value)

    def intrinsic(self, name: str, scalar: ir.Type, args: list[Any], *extra: Any) -> Any:
        """Calls llvm.<name>.<type> on whole values."""
        shaped = self.shape(scalar)
        kind = {F32: "f32", F64: "f64"}.get(scalar) or f"i{scalar.width}"
        suffix = f"v{self.lanes}{kind}" if self.lanes > 1 else kind
        operands = list(args) + list(extra)
        return intrinsics.call(self.builder, f"llvm.{name}.{suffix}", shaped, operands)

    def _vector(self, value: Any) -> Any:
        """Spreads `value` over all lanes if it is still a scalar and this engine is not."""
        if self.lanes == 1 or isinstance(value.type, ir.VectorType):
            return value
        return IrValue(self.builder, value).splat(self.lanes)

    # -- protocol ------------------------------------------------------------------------------

    def const(self, type_: Type, value: Number) -> Any:
        scalar = element(type_)
        if type_.is_float and scalar not in (F32, F64):
            return self.constant(scalar, _half_bits(type_, value))
        if scalar in (F32, F64):
            return self.constant(scalar, float(value))
        return self.constant(scalar, int(value) & ((1 << scalar.width) - 1))

    def binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        a, b = self._vector(a), self._vector(b)
        if type_.is_float:
            return self._float_binary(op, type_, a, b)
        return self._int_binary(op, type_, a, b)

    def _int_binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        build = self.builder
        if op in ("shl", "lshr", "ashr"):
            count = IrValue(build, b) & type_.bits - 1
            return {"shl": build.shl, "lshr": build.lshr, "ashr": build.ashr}[op](a, count)
        signed = type_.kind == "signed"
        if op in ("min", "max"):
            return self.intrinsic(("s" if signed else "u") + op, element(type_), [a, b])
        if op == "mul_hi":
            wide = self.shape(ir.IntType(2 * type_.bits))
            extend = build.sext if signed else build.zext
            product = extend(a, wide) * extend(b, wide)
            return (product >> type_.bits).trunc(element(type_))
        if op == "udiv":
            empty = IrValue(build, b) == 0
            return where(empty, 0, build.udiv(a, where(empty, 1, b)))
        name = {"add": "add", "sub": "sub", "mul": "mul", "and": "and_", "or": "or_", "xor": "xor"}
        return getattr(build, name[op])(a, b)

    def _float_binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        build = self.builder
        if op in ("min", "max"):
            less = self.compare("lt" if op == "min" else "gt", type_, a, b)
            return build.select(less, a, b)
        if element(type_) not in (F32, F64):
            wide = self._arith(op, self._widen(type_, a), self._widen(type_, b))
            return self._settle(type_, self._narrow(type_, wide), (a, b), wide)
        return self._settle(type_, self._arith(op, a, b), (a, b))

    def _arith(self, op: str, a: Any, b: Any) -> Any:
        build = self.builder
        return {"add": build.fadd, "sub": build.fsub, "mul": build.fmul, "div": build.fdiv}[op](a, b)

    def unary(self, op: str, type_: Type, a: Any) -> Any:
        build, scalar = self.builder, element(type_)
        a = self._vector(a)
        if type_.is_float:
            return self._float_unary(op, type_, a)
        if op == "not":
            return build.not_(a)
        if op == "neg":
            return build.neg(a)
        if op == "abs":
            return where(IrValue(build, a).signed < 0, build.neg(a), a)
        if op in ("ctlz", "cttz"):
            return self.intrinsic(op, scalar, [a], ir.Constant(I1, 0))
        return self.intrinsic(op, scalar, [a])

    def _float_unary(self, op: str, type_: Type, a: Any) -> Any:
        scalar, build = element(type_), self.builder
        if op in ("neg", "abs", "quiet"):
            integer = ir.IntType(type_.bits)
            raw = build.bitcast(a, self.shape(integer))
            sign = 1 << (type_.bits - 1)
            if op == "neg":
                raw = raw ^ sign
            elif op == "abs":
                raw = raw & sign - 1
            else:
                quieted = raw | _quiet_bit(type_)
                raw = where(self.compare("uno", type_, a, a), quieted, raw)
            return raw.bitcast(self.shape(scalar))
        if scalar in (F32, F64):
            return self._settle(type_, self.intrinsic(op, scalar, [a]), (a,), always=op == "sqrt")
        wide = self.intrinsic(op, F32, [self._widen(type_, a)])
        return self._settle(type_, self._narrow(type_, wide), (a,), wide, op == "sqrt")

    def compare(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        build = self.builder
        a, b = self._vector(a), self._vector(b)
        if type_.is_float:
            if element(type_) not in (F32, F64):
                a, b = self._widen(type_, a), self._widen(type_, b)
            if op == "uno":
                return build.fcmp_unordered("uno", a, b)
            return build.fcmp_ordered(_COMPARE[op], a, b)
        if type_.kind == "signed":
            return build.icmp_signed(_COMPARE[op], a, b)
        return build.icmp_unsigned(_COMPARE[op], a, b)

    def where(self, type_: Type, condition: Any, a: Any, b: Any) -> Any:
        if isinstance(condition.type, ir.VectorType) or self.lanes == 1:
            a, b = self._vector(a), self._vector(b)
        return self.builder.select(condition, a, b)

    def unlikely(self, type_: Type, condition: Any, usual: Any, special: Callable[[], Any]) -> Any:
        """Computes the special value in a branch that is taken if the condition holds in any lane."""
        usual = self._vector(usual)
        if not isinstance(condition.type, ir.VectorType):
            return self._branch(condition, usual, lambda: self._vector(special()))
        some = self.builder.bitcast(condition, ir.IntType(self.lanes)) != 0
        return self._branch(some, usual, lambda: self.builder.select(condition, self._vector(special()), usual))

    def _branch(self, condition: Any, usual: Any, special: Callable[[], Any]) -> Any:
        """Computes the special value if the condition, i1, holds, which is rare."""
        build = self.builder
        start = build.block
        with build.if_then(condition, likely=False):
            fixed, slow = special(), build.block
        merged = build.phi(usual.type)
        merged.add_incoming(usual, start)
        merged.add_incoming(fixed, slow)
        return merged

    def fma(self, type_: Type, a: Any, b: Any, c: Any) -> Any:
        a, b, c = self._vector(a), self._vector(b), self._vector(c)
        scalar = element(type_)
        if scalar in (F32, F64):
            return self._settle(type_, self.intrinsic("fma", scalar, [a, b, c]), (a, b, c))
        wide = [self._widen(type_, x) for x in (a, b, c)]
        if type_.kind == "bfloat":
            return self._settle(type_, self._exact_fma(type_, wide), (a, b, c))
        # Rounding to f32 first is correct, except if the result may be a tie or a denormal number of f16.
        single = self.intrinsic("fma", F32, wide)
        raw = single.bitcast(self.shape(I32))
        small = ((raw & 0x7FFFFFFF) - 1).unsigned < (127 - 14 << 23) - 1
        doubtful = ((raw & 0x1FFF) == 0x1000) | small
        narrowed = self.unlikely(type_, doubtful, self._narrow(type_, single), lambda: self._exact_fma(type_, wide))
        return self._settle(type_, narrowed, (a, b, c), single)

    def _exact_fma(self, type_: Type, wide: list[Any]) -> Any:
        return self._narrow_f64(type_, self.intrinsic("fma", F64, [self._fext(x) for x in wide]))

    def convert(self, source: Type, target: Type, a: Any) -> Any:
        build = self.builder
        if source.kind == "mask" and source.bits == 1:
            return build.zext(a, self._shape_like(a, element(target)))
        if source.is_float and target.is_float:
            return self._float_convert(source, target, self._vector(a))
        if source.is_float:
            return self._to_integer(source, target, self._vector(a))
        if target.is_float:
            return self._from_integer(source, target, self._vector(a))
        shaped = self._shape_like(a, element(target))
        if target.bits < source.bits:
            return build.trunc(a, shaped)
        if target.bits == source.bits:
            return a
        return build.sext(a, shaped) if source.kind == "signed" else build.zext(a, shaped)

    def _shape_like(self, a: Any, scalar: ir.Type) -> ir.Type:
        return ir.VectorType(scalar, a.type.count) if isinstance(a.type, ir.VectorType) else scalar

    def bitcast(self, source: Type, target: Type, a: Any) -> Any:
        wanted = self._shape_like(a, element(target))
        return a if a.type == wanted else self.builder.bitcast(a, wanted)

    def lane_id(self) -> Any:
        numbers = IrValue(self.builder, ir.Constant(ir.VectorType(I32, self.lanes), list(range(self.lanes))))
        return numbers if self.first is None else numbers + self.first.trunc(I32)

    # -- whole rows ----------------------------------------------------------------------------

    def read_lane(self, type_: Type, row: Any, lane: Any) -> Any:
        value = self.builder.extract_element(self._vector(row), self._index(lane))
        return value if value.type == I32 else self.builder.bitcast(value, I32)

    def _index(self, lane: Any) -> Any:
        """Returns a scalar lane number mod 64, as i32."""
        scalar = self._first(lane)
        if scalar.type.width > 32:
            scalar = self.builder.trunc(scalar, I32)
        return IrValue(self.builder, scalar) & LANES - 1

    def _first(self, value: Any) -> Any:
        """Returns the scalar of a value that may have been spread over the lanes."""
        if isinstance(value.type, ir.VectorType):
            return self.builder.extract_element(value, ir.Constant(I32, 0))
        return value

    def write_lane(self, type_: Type, row: Any, lane: Any, value: Any) -> Any:
        value = self._first(value)
        if value.type != element(type_):
            value = self.builder.bitcast(value, element(type_))
        return self.builder.insert_element(self._vector(row), value, self._index(lane))

    def gather(self, type_: Type, row: Any, lanes: Any) -> Any:
        row, lanes = self._vector(row), self._vector(lanes)
        spill = self._spill(row)
        result = undefined_value(row.type)
        for i in range(LANES):
            at = self._lane_index(lanes, i)
            source = self.builder.gep(spill, [at], inbounds=True, source_etype=element(type_))
            value = self.builder.load(source, align=1, typ=element(type_))
            result = self.builder.insert_element(result, value, ir.Constant(I32, i))
        return result

    def scatter(self, type_: Type, row: Any, lanes: Any, active: Any) -> Any:
        build, scalar = self.builder, element(type_)
        row, lanes, active = self._vector(row), self._vector(lanes), self._vector(active)
        # An inactive lane keeps its own place: its register may hold an undefined lane number.
        lanes = build.select(active, lanes, ir.Constant(lanes.type, list(range(LANES))))
        spill = self._spill(self.constant(scalar, 0))
        for i in range(LANES):
            at = self._lane_index(lanes, i)
            target = build.gep(spill, [at], inbounds=True, source_etype=scalar)
            old = build.load(target, align=1, typ=scalar)
            mine = build.extract_element(row, ir.Constant(I32, i))
            chosen = build.select(build.extract_element(active, ir.Constant(I32, i)), mine, old)
            build.store(chosen, target, align=1)
        return build.load(spill, align=64, typ=row.type)

    def _lane_index(self, lanes: Any, i: int) -> Any:
        return IrValue(self.builder, lanes)[i] & LANES - 1

    def _spill(self, row: Any) -> Any:
        entry = self.builder.function.entry_basic_block
        with self.builder.goto_block(entry):
            if entry.instructions:
                self.builder.position_before(entry.instructions[0])
            slot = self.builder.alloca(row.type)
            slot.align = 64
        self.builder.store(row, slot, align=64)
        # A plain pointer: llvmlite's alloca has a typed one.
        return self.builder.inttoptr(self.builder.ptrtoint(slot, I64), ir.PointerType())

    def ballot(self, condition: Any) -> Any:
        return self.builder.bitcast(self._vector(condition), I64)

    def splat(self, type_: Type, scalar: Any) -> Any:
        wanted = element(type_)
        value = scalar if scalar.type == wanted else self.builder.bitcast(scalar, wanted)
        return self._vector(value)

    # -- floats --------------------------------------------------------------------------------

    def _settle(self, type_: Type, result: Any, sources: tuple[Any, ...], wide: Any = None, always: bool = False) -> Any:
        """Applies AMD's NaN rule: a NaN result is the first NaN operand, made quiet, else the default NaN.

        Hosts differ in the NaN that an operation returns. A row with a NaN in any lane takes a slow path; others pay one test.
        wide: the f32 or f64 value that was rounded to the result, if any
        """
        if not (self.fix_nan or always):
            return result
        rounded = IrValue(self.builder, result if wide is None else wide)
        return self._branch(
            self._any_nan(rounded), result,
            lambda: self.builder.select(rounded.is_nan(), self._first_nan(type_, result, sources), result),
        )  # fmt: skip

    def _any_nan(self, value: IrValue) -> IrValue:
        """Returns i1: a lane is NaN. One comparison is enough for two lanes."""
        if not value.lanes:
            return value.is_nan()
        half = value.lanes // 2
        found = self.builder.fcmp_unordered("uno", value.shuffle(range(half)), value.shuffle(range(half, value.lanes)))
        # One KORTEST tests the masks of two registers, if they are not joined before.
        masks = [found.shuffle(range(first, first + min(half, GROUP))) for first in range(0, half, GROUP)]
        return functools.reduce(operator.or_, masks).bitcast(ir.IntType(min(half, GROUP))) != 0

    def _reload(self, source: Any) -> Any:
        """Loads a source again, if it came straight from memory: rare code would otherwise keep host registers for it."""
        value = plain(source)
        if (made := getattr(value, "opname", "")) == "bitcast":
            return self.builder.bitcast(self._reload(value.operands[0]), value.type)
        if made != "load" or not isinstance(value.type, ir.VectorType):
            return source
        return IrValue(self.builder, value.operands[0]).load_volatile(value.type, value.align)

    def _first_nan(self, type_: Type, result: Any, sources: tuple[Any, ...]) -> Any:
        sources = tuple(self._reload(source) for source in sources)
        build, integer = self.builder, ir.IntType(type_.bits)
        chosen: Any = self.constant(integer, 0x7FC0 if type_.kind == "bfloat" else DEFAULT_NAN.get(type_.bits, 0))
        for source in reversed(sources):
            quieted = build.bitcast(source, self.shape(integer)) | _quiet_bit(type_)
            chosen = build.select(self.compare("uno", type_, source, source), quieted, chosen)
        return build.bitcast(chosen, result.type)

    def _fext(self, a: Any) -> Any:
        return self.builder.fpext(a, self.shape(F64))

    def _widen(self, type_: Type, a: Any) -> Any:
        """Converts f16 or bf16 bits to an f32 value."""
        build = self.builder
        if type_.kind == "bfloat":
            wide = build.zext(a, self.shape(I32))
            return (wide << 16).bitcast(self.shape(F32))
        return self.widen_half(a)

    def widen_half(self, a: Any) -> Any:
        """Converts f16 bits to an f32 value, exactly."""
        if host().converts_half:
            return IrValue(self.builder, a).bitcast(self.shape(ir.HalfType())).fpext(F32)
        return self._widen_half(a)

    def _widen_half(self, a: Any) -> IrValue:
        """Converts f16 bits to f32 without a conversion instruction: rescales by a power of two."""
        wide = IrValue(self.builder, a).zext(I32)
        magnitude = (wide & 0x7FFF) << 13
        scaled = magnitude.bitcast(self.shape(F32)) * 2.0**112
        special = magnitude.unsigned >= 0x7C00 << 13
        infinite = magnitude | 0x7F800000
        nan = magnitude.unsigned > 0x7C00 << 13
        infinite = infinite | self.builder.select(nan, self.constant(I32, 0x00400000), self.constant(I32, 0))
        bits = where(special, infinite, scaled.bitcast(self.shape(I32)))
        return (bits | (wide & 0x8000) << 16).bitcast(self.shape(F32))

    def _narrow(self, type_: Type, a: Any) -> Any:
        """Rounds an f32 value to f16 or bf16 bits, ties to even."""
        build = self.builder
        if type_.kind == "bfloat":
            return self._narrow_bfloat(a)
        if host().converts_half:
            return build.bitcast(self._fptrunc(a, ir.HalfType()), self.shape(I16))
        return self._narrow_half(a)

    def _fptrunc(self, a: Any, scalar: ir.Type) -> Any:
        return self.builder.fptrunc(a, self.shape(scalar))

    def _narrow_bfloat(self, a: Any) -> IrValue:
        raw = self.builder.bitcast(a, self.shape(I32))
        odd = raw >> 16 & 1
        rounded = raw + (odd + 0x7FFF)
        quieted = raw | 0x00400000
        nan = self.builder.fcmp_unordered("uno", a, a)
        return (where(nan, quieted, rounded) >> 16).trunc(I16)

    def _narrow_half(self, a: Any) -> IrValue:
        """Rounds f32 to f16 bits by integers: normal results by carry, subnormal ones by an addition."""
        raw = self.builder.bitcast(a, self.shape(I32))
        sign = (raw & 0x80000000) >> 16
        magnitude = raw & 0x7FFFFFFF
        odd = magnitude >> 13 & 1
        bias = ((15 - 127) << 23) + 0xFFF & 0xFFFFFFFF
        normal = (magnitude + bias + odd) >> 13
        magic = IrValue(self.builder, self.constant(F32, 0.5))
        tiny = self._arith("add", magnitude.bitcast(self.shape(F32)), magic)
        subnormal = tiny.bitcast(self.shape(I32)) - magic.bitcast(self.shape(I32))
        bits = where(magnitude.unsigned < 113 << 23, subnormal, normal)
        bits = where(magnitude.unsigned >= 0x477FF000, 0x7C00, bits)
        nan = magnitude.unsigned > 0x7F800000
        quieted = (magnitude & 0x7FFFFF) >> 13 | 0x7E00
        return (where(nan, quieted, bits) | sign).trunc(I16)

    def _narrow_f64(self, type_: Type, a: Any) -> Any:
        """Rounds f64 to a 16-bit type in one rounding: through f32 rounded to odd."""
        single = self._fptrunc(a, F32)
        back = single.fpext(F64)
        raw = single.bitcast(self.shape(I32))
        keep = (back == a) | self.builder.fcmp_unordered("uno", a, a)
        # Truncate toward zero, then set the sticky bit for the later rounding.
        magnitude = self.intrinsic("fabs", F64, [back])
        wanted = self.intrinsic("fabs", F64, [a])
        down = raw - (magnitude.ordered > wanted).zext(I32)
        return self._narrow(type_, where(keep, raw, down | 1).bitcast(self.shape(F32)))

    def _float_convert(self, source: Type, target: Type, a: Any) -> Any:
        wanted = element(target)
        if source is target:
            return a
        if wanted is F64:
            result = self._fext(a if element(source) is F32 else self._widen(source, a))
        elif wanted is F32:
            if element(source) is F64:
                result = self._fptrunc(a, F32)
            else:
                result = self._widen(source, a)
        elif element(source) is F64:
            result = self._narrow_f64(target, a)
        else:
            result = self._narrow(target, a if element(source) is F32 else self._widen(source, a))
        return result

    def _to_integer(self, source: Type, target: Type, a: Any) -> Any:
        value = a if element(source) in (F32, F64) else self._widen(source, a)
        scalar = F64 if element(source) is F64 else F32
        signed = target.kind == "signed"
        name = "fptosi.sat" if signed else "fptoui.sat"
        kind = "f64" if scalar is F64 else "f32"
        prefix = f"v{self.lanes}" if self.lanes > 1 else ""
        full = f"llvm.{name}.{prefix}i{target.bits}.{prefix}{kind}"
        result = self.shape(ir.IntType(target.bits))

        def saturate() -> Any:
            return intrinsics.call(self.builder, full, result, [value])

        if target.bits != 32:
            return saturate()
        number = IrValue(self.builder, value)
        inside = fabs(number).ordered < 2.0**31 if signed else (number.ordered >= 0.0) & (number.ordered < 2.0**32)
        return self.unlikely(target, ~inside, number.fptosi(I32) if signed else number.fptoui(I32), saturate)

    def _from_integer(self, source: Type, target: Type, a: Any) -> Any:
        build = self.builder
        to = build.sitofp if source.kind == "signed" else build.uitofp
        scalar = element(target)
        if scalar in (F32, F64):
            return to(a, self.shape(scalar))
        return self._narrow_f64(target, to(a, self.shape(F64)))


def _quiet_bit(type_: Type) -> int:
    return 0x0040 if type_.kind == "bfloat" else QUIET_BIT[type_.bits]


def _half_bits(type_: Type, value: Number) -> int:
    """Returns the bits of a 16-bit float constant. A number beyond the type's largest, as the limit of an i32, is infinity."""
    import ml_dtypes
    import numpy as np

    dtype = ml_dtypes.bfloat16 if type_.kind == "bfloat" else np.float16
    with np.errstate(over="ignore"):
        return int(np.asarray(value, dtype=dtype).view(np.uint16))
