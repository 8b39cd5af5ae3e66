"""LLVM's intrinsic functions, declared where a module first calls them, and those of Values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine.values import IrValue

CHAINS = 4  # a host begins one or two multiplications a clock and waits four for each

def call(build: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[Any]) -> IrValue:
    """Call `name`, an intrinsic's whole name, of which all calls in a module have the same types."""
    module = build.module
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return build.call(function, args)


def folded(build: ir.IRBuilder, name: str, values: Sequence[Any]) -> IrValue:
    """One value of several of a type, by an intrinsic of two operands."""
    return functools.reduce(lambda x, y: call(build, name, x.type, [x, y]), values)


def type_name(kind: ir.Type) -> str:
    """A type as the names of intrinsics spell it."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_name(kind.element)}"
    return {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(kind) or f"i{kind.width}"


def _intrinsic(name: str) -> Callable[..., IrValue]:
    """LLVM's intrinsic of values of one type, of which all but the first may be numbers."""

    def intrinsic(first: IrValue, *others: Any) -> IrValue:
        values = [first, *(first.aligned(other)[1] for other in others)]
        result: IrValue = call(first.build, f"llvm.{name}.{type_name(first.type)}", first.type, values)
        return result

    return intrinsic


smin, smax, umin, umax = _intrinsic("smin"), _intrinsic("smax"), _intrinsic("umin"), _intrinsic("umax")
sadd_sat, uadd_sat, usub_sat = _intrinsic("sadd.sat"), _intrinsic("uadd.sat"), _intrinsic("usub.sat")
fabs, floor, fma = _intrinsic("fabs"), _intrinsic("floor"), _intrinsic("fma")


def any_special(values: Sequence[IrValue]) -> IrValue:
    """i1: whether a lane of some float vectors, all of one type, is a NaN or an infinity.

    0 times what is finite is 0, and a NaN otherwise: one multiplication a vector, in CHAINS that do not wait for each other.
    """
    first = values[0]
    totals = [first.aligned(0.0)[1]] * min(CHAINS, len(values))
    for number, value in enumerate(values):
        totals[number % CHAINS] = fma(value, 0.0, totals[number % CHAINS])
    total = functools.reduce(operator.add, totals)
    return total.is_nan().bitcast(ir.IntType(first.lanes)) != 0
