"""LLVM's intrinsic functions, declared where a module first calls them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine.values import Value


def call(build: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[Any]) -> Value:
    """Call `name`, an intrinsic's whole name, of which all calls in a module have the same types."""
    module = build.module
    function = module.globals.get(name) or ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return build.call(function, args)


def folded(build: ir.IRBuilder, name: str, values: Sequence[Any]) -> Value:
    """One value of several of a type, by an intrinsic of two operands."""
    return functools.reduce(lambda x, y: call(build, name, x.type, [x, y]), values)


def type_name(kind: ir.Type) -> str:
    """A type as the names of intrinsics spell it."""
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{type_name(kind.element)}"
    return {ir.HalfType(): "f16", ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(kind) or f"i{kind.width}"
