"""LLVM's intrinsic functions, declared when a module first calls them, also on Values."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine.values import IrValue, join_vectors

CHAINS = 4  # independent chains of fma: a host begins one or two a clock, and each takes four clocks

def call(build: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[Any]) -> IrValue:
    """Calls `name`, an intrinsic's whole name. All calls of it in a module have the same types."""
    module = build.module
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return build.call(function, args)


def call_by_parts(name: str, result: ir.VectorType, values: Sequence[IrValue], size: int) -> IrValue:
    """Calls an intrinsic on each `size` lanes of vectors of equal length, and joins what it returns. result: a call's type."""
    parts = [[value.shuffle(range(low, low + size)) for value in values] for low in range(0, values[0].lanes, size)]
    results = [call(values[0].build, name, result, part) for part in parts]
    return join_vectors(results, result.count * len(results))[0]


def fold(build: ir.IRBuilder, name: str, values: Sequence[Any]) -> IrValue:
    """Reduces several values of a type to one, by an intrinsic of two operands."""
    return functools.reduce(lambda x, y: call(build, name, x.type, [x, y]), values)


def type_name(kind: ir.Type) -> str:
    """Returns a type as the names of intrinsics spell it."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_name(kind.element)}"
    return {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(kind) or f"i{kind.width}"


def _intrinsic(name: str) -> Callable[..., IrValue]:
    """Returns LLVM's intrinsic on values of one type; all but the first may be Python numbers."""

    def intrinsic(first: IrValue, *others: Any) -> IrValue:
        values = [first, *(first.align_shapes(other)[1] for other in others)]
        result: IrValue = call(first.build, f"llvm.{name}.{type_name(first.type)}", first.type, values)
        return result

    return intrinsic


smin, smax, umin, umax = _intrinsic("smin"), _intrinsic("smax"), _intrinsic("umin"), _intrinsic("umax")
sadd_sat, uadd_sat, usub_sat = _intrinsic("sadd.sat"), _intrinsic("uadd.sat"), _intrinsic("usub.sat")
fabs, floor, fma = _intrinsic("fabs"), _intrinsic("floor"), _intrinsic("fma")


def cttz(value: IrValue) -> IrValue:
    """Returns the number of zero bits below the lowest set one; all bits if none is set."""
    result: IrValue = call(value.build, f"llvm.cttz.{type_name(value.type)}", value.type, [value, ir.Constant(ir.IntType(1), 0)])
    return result


def any_lane(mask: IrValue) -> IrValue:
    """Returns i1: any lane of the mask is set."""
    return mask.bitcast(ir.IntType(mask.lanes)) != 0


def any_special(values: Sequence[IrValue]) -> IrValue:
    """Returns i1: True if a lane of any of the float vectors, all of one type, is a NaN or an infinity.

    A finite number times 0 is 0, but a NaN or an infinity times 0 is a NaN. So one fma per vector is enough.
    """
    first = values[0]
    totals = [first.align_shapes(0.0)[1]] * min(CHAINS, len(values))
    for number, value in enumerate(values):
        totals[number % CHAINS] = fma(value, 0.0, totals[number % CHAINS])
    total = functools.reduce(operator.add, totals)
    return any_lane(total.is_nan())
