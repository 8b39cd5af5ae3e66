"""Checks results of vector instructions for new anomalies.

A NaN is new if no operand is one, an infinity if all operands are finite; others only pass on. The types of operands and results
tell which instructions may make new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.checks.numerics.conversions import NumberRange, range_of
from simgpu.checks.numerics.table import OPERANDS, NumericKind, note
from simgpu.checks.numerics.wanted import NumericsOptions
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import Flag
from simgpu.hardware.isa.lane import Value, both, cast, either, isnan, negate
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type
from simgpu.machine import intrinsics
from simgpu.machine.frame import Frame
from simgpu.machine.layout import GROUP, LANES, SLOT_INDEX
from simgpu.machine.mode import Mode
from simgpu.machine.values import I64
from simgpu.machine.wave_frame import MASK, ROW32
from simgpu.matrix.fragments import stack

FRACTION = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
# Instructions whose result is one of the operands.
SELECTS = re.compile(r"v_(pk_)?(max|min|med|maxmin|minmax|maximum|minimum)")
# Steps of LLVM's expansion of a division. v_div_fixup ends it and replaces their result, its first operand, by the right value
# if 0 or infinity is divided or divides (LLVM, AMDGPULegalizerInfo::legalizeFDIV32).
DIVISION_STEPS = re.compile(r"v_div_(scale|fmas)_")
DIVISION_END = re.compile(r"v_div_fixup_")
SUMS = re.compile(r"v_(pk_)?(add|sub|subrev|fma|fmac|fmamk|fmaak|mad|madmk|madak|mac|fma_mix|mad_mix)_f(16|32|64)")


@dataclass(frozen=True)
class Vector:
    """Facts that the hooks use about an instruction."""

    wanted: NumericsOptions
    ignored: int  # number of leading float operands that do not count, because special values in them are replaced
    sums: bool  # True if it adds, so that a result may have cancelled
    range: NumberRange | None  # of a conversion to integers or small floats


def element_of(type_: Type) -> Type:
    return type_.element if type_.element is not None else type_


def float_parameters(spec: Spec) -> list[Type]:
    """Returns the float types that an instruction reads; element types for packed and vector operands."""
    return [element_of(p.type) for p in spec.params if element_of(p.type).is_float]


def float_results(spec: Spec) -> list[Type]:
    return [element_of(type_) for type_ in spec.results if element_of(type_).is_float]


def plan_vector(inst: Instruction, wanted: NumericsOptions) -> Vector | None:
    """Returns how to check an instruction's results, None if they can contain nothing new."""
    spec = inst.spec
    sources = float_parameters(spec)
    if not spec.encoding.startswith("vop") or not (sources or float_results(spec)):
        return None
    name = spec.mnemonic
    wide = max(sources, key=lambda type_: type_.bits, default=None)
    held = range_of(spec, inst.target, wide) if wide is not None else None
    if held is None and not wanted.denormals and (not float_results(spec) or SELECTS.match(name) or DIVISION_STEPS.match(name)):
        return None
    return Vector(wanted, bool(DIVISION_END.match(name)), bool(SUMS.match(name)), held)


def floats(given: Iterable[Any]) -> list[Value]:
    """Returns the floats that a body takes or returns, elements of tuples one by one."""
    found = []
    for value in given:
        if isinstance(value, tuple):
            found += floats(value)
        elif isinstance(value, Value) and value.type.is_float:
            found.append(value)
    return found


class Look:
    """Emits the checks of one instruction's results."""

    def __init__(self, frame: Frame, vector: Vector) -> None:
        self.frame = frame
        self.build = frame.build
        self.vector = vector

    def on_result(self, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Implements `Hooks.on_result`."""
        operands, made = floats(arguments)[self.vector.ignored :], floats(results)
        inst = self.frame.inst
        assert inst is not None
        if self.vector.range is not None:
            self._check_conversion(self.vector.range, bool(mode.fp16_ovfl), operands, arguments)
            return
        if made and not SELECTS.match(inst.mnemonic) and not DIVISION_STEPS.match(inst.mnemonic):
            with self.build.if_then(self._any_special(made), likely=False):
                for result in made:
                    self._new(operands, result, mode)
        if self.vector.wanted.cancellation and self.vector.sums and made:
            self._check_cancellation(operands, made[0])

    # -- NaN and infinities ------------------------------------------------------------------------

    def _any_special(self, made: Sequence[Value]) -> Any:
        """Returns i1: true if a lane of the results is not finite, inactive lanes included."""
        parts: dict[str, list[Any]] = {}
        for value in made:
            raw = self._row(value)
            if value.type.bits == 16:
                field = self._exponent(value.type)
                parts.setdefault("special", []).append((raw & field) == field)
            else:
                pieces = [raw.shuffle(range(start, start + GROUP)) for start in range(0, LANES, GROUP)]
                parts.setdefault(value.type.name, []).extend(pieces)
        tests = []
        for name, found in parts.items():
            if name == "special":
                lanes = found[0]
                for more in found[1:]:
                    lanes = lanes | more
                tests.append(lanes.bitcast(I64) != 0)
            else:
                tests.append(intrinsics.any_special(found))
        return tests[0] if len(tests) == 1 else tests[0] | tests[1]

    def _new(self, operands: Sequence[Value], result: Value, mode: Mode) -> None:
        nan, inf = self._is_nan(result), self._is_infinite(result)
        nan_before = inf_before = self.frame.value(ir.Constant(MASK, [0] * LANES))
        for operand in operands:
            nan_before = nan_before | self._is_nan(operand)
            inf_before = inf_before | self._is_infinite(operand)
        narrower = any(operand.type.bits > result.type.bits for operand in operands)
        made = NumericKind.INFINITY
        if narrower:
            made = NumericKind.SATURATION if mode.fp16_ovfl and result.type is t.f16 else NumericKind.OVERFLOW
        self._note(NumericKind.NAN, nan & ~nan_before, operands, result)
        self._note(made, inf & ~(nan_before | inf_before), operands, result)

    # -- conversions -------------------------------------------------------------------------------

    def _check_conversion(self, held: NumberRange, saturating: bool, operands: Sequence[Value], arguments: Sequence[Any]) -> None:
        inst = self.frame.inst
        assert inst is not None
        scale = None
        if any(p.name == "scale" for p in inst.spec.params):  # the last float, of which only the exponent counts
            scale, operands = operands[-1], operands[:-1]
        kind = NumericKind.SATURATION if held.saturates or saturating else NumericKind.OVERFLOW
        for operand in operands:
            outside = self._is_outside(held, operand, scale)
            nan = None if held.small else isnan(operand)
            test = outside if nan is None else either(outside, nan)
            with self.build.if_then(self._lanes(test).bitcast(I64) != 0, likely=False):
                infinite = self._is_infinite(operand)
                self._note(kind, self._lanes(outside) & ~infinite, [operand], None)
                if nan is not None:
                    self._note(NumericKind.NAN_TO_INTEGER, self._lanes(nan), [operand], None)

    def _is_outside(self, held: NumberRange, operand: Value, scale: Value | None) -> Value:
        if scale is None:
            above = operand > held.high if held.high_is_held else operand >= held.high
            return either(above, operand < held.low if held.low_is_held else operand <= held.low)
        row = self._row(scale)
        power = (row.bitcast(ROW32) & 0x7F800000).bitcast(row.type)
        limit = Value(operand.ops, t.f32, power) * held.high
        size = abs(cast(operand, t.f32))
        return size > limit if held.high_is_held else size >= limit

    # -- on request --------------------------------------------------------------------------------

    def _check_cancellation(self, operands: Sequence[Value], result: Value) -> None:
        """Notes a sum far smaller than its last addend, unless it is 0: the other term was nearly the addend's opposite."""
        addend = operands[-1]
        wide = t.f64 if result.type is t.f64 else t.f32
        total, term = abs(cast(result, wide)), abs(cast(addend, wide))
        test = both(total * 2.0**self.vector.wanted.cancellation <= term, negate(total == 0.0))
        lanes = self._lanes(both(test, term < float("inf")))
        with self.build.if_then(lanes.bitcast(I64) != 0, likely=False):
            self._note(NumericKind.CANCELLATION, lanes, operands, result)

    def on_flush(self, value: Value, tiny: Any) -> None:
        """Implements `Hooks.on_flush`."""
        lanes = self._lanes(Value(value.ops, t.u1, tiny)) & ~self._lanes(value == 0.0)
        with self.build.if_then(lanes.bitcast(I64) != 0, likely=False):
            self._note(NumericKind.DENORMAL, lanes, [value], None)

    # -- values ------------------------------------------------------------------------------------

    def _row(self, value: Value) -> Any:
        """Returns the value in all lanes, as a vector of 64."""
        return self.frame.value(value.ops._vector(value.raw))  # type: ignore[attr-defined]

    def _lanes(self, condition: Value) -> Any:
        return self._row(condition)

    def _bits(self, value: Value) -> Any:
        row = self._row(value)
        integer = ir.VectorType(ir.IntType(value.type.bits), LANES)
        return row if row.type == integer else row.bitcast(integer)

    @staticmethod
    def _exponent(type_: Type) -> int:
        """Bits of a type's exponent field."""
        fraction = FRACTION[type_.name]
        return (1 << type_.bits - 1) - (1 << fraction)

    def _size(self, value: Value) -> Any:
        return self._bits(value) & (1 << value.type.bits - 1) - 1

    def _is_nan(self, value: Value) -> Any:
        return self._size(value).unsigned > self._exponent(value.type)

    def _is_infinite(self, value: Value) -> Any:
        return self._size(value) == self._exponent(value.type)

    def _note(self, kind: NumericKind, lanes: Any, operands: Sequence[Value], result: Value | None) -> None:
        """Emits a note of active lanes, with the types of the kept values in `extra`; see `unpack_types`."""
        inst = self.frame.inst
        assert inst is not None
        active = self.frame.value(lanes).bitcast(I64)
        if Flag.IGNORE_EXEC not in inst.spec.flags:
            active = active & self.frame.exec_bits()
        with self.build.if_then(active != 0):
            kept = [*operands[:OPERANDS], *([result] if result is not None else [])]
            rows = stack(self.frame, 8 * LANES * len(kept))
            for number, value in enumerate(kept):
                wide = self._bits(value)
                rows.at(8 * LANES * number).store(wide.zext(I64) if value.type.bits < 64 else wide, 64)
            extra = pack_types([value.type for value in kept], result is not None)
            record = self.frame.slot(SLOT_INDEX).zext(I64)
            note.call(self.build, self.frame.wave, record, int(kind), active, rows, len(kept), extra)


TYPES = (t.f16, t.bf16, t.f32, t.f64)


def pack_types(types: Sequence[Type], result: bool) -> int:
    """Encodes types as a number: the count, whether the last is the result's, then two bits each."""
    number = len(types) | result << 4
    for place, type_ in enumerate(types):
        number |= TYPES.index(type_) << 8 + 2 * place
    return number


def unpack_types(number: int) -> tuple[list[Type], bool]:
    """Decodes the number that `pack_types` returns."""
    return [TYPES[number >> 8 + 2 * place & 3] for place in range(number & 15)], bool(number >> 4 & 1)
