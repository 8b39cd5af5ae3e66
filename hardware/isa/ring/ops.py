"""Operations of instruction bodies on elements: a class to put before an engine's own operations.

Integers, selects and moves are the engine's. Floats stay bits in registers and memory. Each operation takes their elements,
computes with integers, and returns the bits of the result's element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Value, both, const, either, negate, where
from simgpu.hardware.isa.ring import functions as ring
from simgpu.hardware.isa.ring.elements import element_of, float_of
from simgpu.hardware.isa.types import Type

ROUNDINGS = ("floor", "ceil", "trunc", "rint", "sqrt")
# Functions of `hardware.isa.arithmetic` that bodies call, by name.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("exp2_f32", "exp2_f16"), ring.exp2),
    **dict.fromkeys(("log2_f32", "log2_f16"), ring.tag_function("log2")),
    **dict.fromkeys(("rcp_f32", "rcp_f64", "rcp_f16"), ring.reciprocal),
    **dict.fromkeys(("rsq_f32", "rsq_f64", "rsq_f16"), ring.reciprocal_root),
    **dict.fromkeys(("sqrt_f32", "root"), ring.tag_function("sqrt")),
    **dict.fromkeys(("sin_f32", "sin_f16"), ring.sine),
    **dict.fromkeys(("cos_f32", "cos_f16"), ring.cosine),
    "within_trig_range": lambda a, value, beyond: value,
    **dict.fromkeys(("minimum_number", "minimum"), ring.smaller),
    **dict.fromkeys(("maximum_number", "maximum"), ring.greater),
    "median": ring.median,
    "ldexp": ring.ldexp,
    "fract": ring.fraction,
    "frexp_mantissa": ring.tag_function("mantissa"),
    "frexp_exponent": ring.exponent,
    "flush": lambda a: a,
    "to_f16_toward_zero": lambda a: ring.convert(a, t.f16),
    "stochastic_f16": lambda a, seed: ring.convert(a, t.f16),
    "stochastic_bf16": lambda a, seed: ring.convert(a, t.bf16),
    "classify": ring.classes,
    "scale": ring.division_scaled,
    "fmas": ring.division_step,
    "fixup": ring.division_fixed,
    "encode": ring.small_code,
    "decode": ring.small_value,
    "decode_scaled": ring.small_value_scaled,
    "add3": ring.rounded_high_half,
    "add": ring.drop_rounding,
}


class RingOps:
    """Operations on floats as elements; `super()` has those on integers.

    >>> import numpy as np
    >>> from simgpu.hardware.isa.lane_numpy import NumpyOps
    >>> class Elements(RingOps, NumpyOps):
    ...     plain = NumpyOps()
    >>> three, two, ops = np.uint32(0x40400000), np.uint32(0x40000000), Elements()
    >>> bool(ops.binary("add", t.f32, three, three) == ops.binary("mul", t.f32, three, two))
    True
    """

    functions = FUNCTIONS
    plain: Any  # the engine's operations on numbers

    def binary(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        if not type_.is_float:
            return super().binary(op, type_, a, b)  # type: ignore[misc]
        x, y = self._value(type_, a), self._value(type_, b)
        if op in ("min", "max"):
            return (ring.smaller if op == "min" else ring.greater)(x, y).raw
        if op == "div":
            return ring.quotient(x, y).raw
        if op == "mul":
            result = float_of(element_of(x) * element_of(y), type_)
            return ring.finite_or((x, y), result, lambda: ring.infinite_product(x, y)).raw
        if op == "sub":
            result = float_of(element_of(x) - element_of(y), type_)
            return ring.finite_or((x, y), result, lambda: ring.infinite_sum(x, -y)).raw
        result = float_of(element_of(x) + element_of(y), type_)
        return ring.finite_or((x, y), result, lambda: ring.infinite_sum(x, y)).raw

    def unary(self, op: str, type_: Type, a: Any) -> Any:
        if not type_.is_float or op in ("neg", "abs"):
            return super().unary(op, type_, a)  # type: ignore[misc]
        return ring.tag_function(op)(self._value(type_, a)).raw if op in ROUNDINGS else a

    def compare(self, op: str, type_: Type, a: Any, b: Any) -> Any:
        if not type_.is_float:
            return super().compare(op, type_, a, b)  # type: ignore[misc]
        x, y = ring.order_key(self._value(type_, a)), ring.order_key(self._value(type_, b))
        if op == "uno":
            return const(x, 0, t.u1).raw
        usual = ring.beyond_usual_range(self._value(type_, a), self._value(type_, b))
        result = x._compare(op, y)
        return result.raw if usual is None or op in ("eq", "ne") else both(result, negate(usual)).raw

    def fma(self, type_: Type, a: Any, b: Any, c: Any) -> Any:
        x, y, z = (self._value(type_, raw) for raw in (a, b, c))
        result = float_of(element_of(x) * element_of(y) + element_of(z), type_)

        def infinite() -> Value:
            if type_.name not in ring.INFINITE:
                return result
            product = either(ring.is_infinite(x), ring.is_infinite(y))
            return where(product, ring.infinite_sum(ring.infinite_product(x, y), z), z)

        return ring.finite_or((x, y, z), result, infinite).raw

    def convert(self, source: Type, target: Type, a: Any) -> Any:
        if not source.is_float or source is target:
            return super().convert(source, target, a)  # type: ignore[misc]
        value = self._value(source, a)
        return (ring.convert(value, target) if target.is_float else ring.to_integer(value, target)).raw

    def _value(self, type_: Type, raw: Any) -> Value:
        return Value(self, type_, raw)  # type: ignore[arg-type]
