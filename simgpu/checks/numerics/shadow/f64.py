"""Evaluates bodies of instructions on f64: the operations of `hardware.isa.lane` with float64 arrays for all float types.

Bitwise operations on floats have no meaning here and raise `NoShadow`. Elementary functions, which the hardware approximates, are
computed in f64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Number, Value
from simgpu.hardware.isa.lane_numpy import NumpyOps
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type

Array = np.ndarray


class NoShadow(Exception):
    """Raised if a body needs a float's bits."""


class Float64Ops(NumpyOps):
    """Integers as in `NumpyOps`; floats are float64 arrays without further rounding."""

    def const(self, type_: Type, value: Number) -> Array:
        return np.asarray(value, np.float64) if type_.is_float else super().const(type_, value)

    def binary(self, op: str, type_: Type, a: Array, b: Array) -> Array:
        if not type_.is_float:
            return super().binary(op, type_, a, b)
        functions: dict[str, Callable[[Array, Array], Array]] = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
            "min": lambda x, y: np.where(x < y, x, y), "max": lambda x, y: np.where(y < x, x, y),
        }  # fmt: skip
        if op not in functions:
            raise NoShadow(op)
        return np.asarray(functions[op](a, b))

    def unary(self, op: str, type_: Type, a: Array) -> Array:
        if not type_.is_float:
            return super().unary(op, type_, a)
        functions: dict[str, Callable[[Array], Array]] = {
            "neg": np.negative, "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
            "sqrt": np.sqrt, "quiet": np.asarray,
        }  # fmt: skip
        if op not in functions:
            raise NoShadow(op)
        return functions[op](a)

    def compare(self, op: str, type_: Type, a: Array, b: Array) -> Array:
        return super().compare(op, t.f64, _bits(a), _bits(b)) if type_.is_float else super().compare(op, type_, a, b)

    def fma(self, type_: Type, a: Array, b: Array, c: Array) -> Array:
        return np.asarray(a * b + c)

    def convert(self, source: Type, target: Type, a: Array) -> Array:
        if source.is_float and target.is_float:
            return a
        if source.is_float:
            return super().convert(t.f64, target, _bits(a))
        return super().convert(source, t.f64, a).view(np.float64) if target.is_float else super().convert(source, target, a)

    def bitcast(self, source: Type, target: Type, a: Array) -> Array:
        if source.is_float or target.is_float:
            raise NoShadow("bits")
        return super().bitcast(source, target, a)


def _bits(a: Array) -> Array:
    return np.asarray(a, np.float64).view(np.uint64)


OPS = Float64Ops()
TURN = 2 * np.pi
# By the mnemonic without its type. The argument of sin and cos is in turns.
ELEMENTARY: dict[str, Callable[[Array], Array]] = {
    "v_exp": np.exp2, "v_log": np.log2, "v_rcp": lambda x: 1 / x, "v_rcp_iflag": lambda x: 1 / x, "v_rsq": lambda x: 1 / np.sqrt(x),
    "v_sqrt": np.sqrt, "v_sin": lambda x: np.sin(TURN * x), "v_cos": lambda x: np.cos(TURN * x),
}  # fmt: skip
CONVERTS = ("v_cvt_sr_", "v_cvt_pkrtz_", "v_cvt_scalef32")  # bodies that round a float's bits: the shadow is the operand's


def evaluate(spec: Spec, arguments: Sequence[Array], packed: bool, modifiers: dict[str, int]) -> list[Array]:
    """Returns the float results of a body, element by element. Raises NoShadow if f64 cannot follow the body.

    arguments: one array for each element that the body takes, in order: f64 for floats, raw integers. packed: True if they are
    one half of packed operands.
    """
    name, _, _ = spec.mnemonic.rpartition("_")
    if name in ELEMENTARY:
        return [ELEMENTARY[name](arguments[0])]
    if spec.mnemonic.startswith(CONVERTS):
        return list(arguments[: len(elements(spec.results[0]))])
    if spec.body is None:
        raise NoShadow("no body")
    left = list(arguments)
    given: list[Any] = []
    for param in spec.params:
        if param.type.state == "modifier":
            continue
        kinds = [param.type] if packed else elements(param.type)
        values = tuple(Value(OPS, t.u1 if kind.kind == "mask" else kind, left.pop(0)) for kind in kinds)
        given.append(values if param.type.kind == "pair" and not packed else values[0])
    named = {p.name: modifiers[p.name] for p in spec.params if p.type.state == "modifier" and p.name in modifiers}
    result = spec.body(*given, **named)
    found: list[Array] = []
    for one in result if isinstance(result, tuple) else (result,):
        found += [np.broadcast_to(value.raw, 64) for value in _flat(one) if value.type.is_float]
    return found


def _flat(value: Any) -> list[Value]:
    return [one for part in value for one in _flat(part)] if isinstance(value, tuple) else [value]


def elements(type_: Type) -> list[Type]:
    """Returns the types of the elements that a body takes or returns for an operand of a type."""
    return [type_.element] * (type_.bits // type_.element.bits) if type_.element is not None else [type_]
