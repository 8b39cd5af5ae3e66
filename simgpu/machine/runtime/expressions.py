"""Translates expressions of a syntax tree. Numbers that are known stay Python's; others are i64, which wrap, or f64."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.intrinsics import smax, smin
from simgpu.machine.runtime import places
from simgpu.machine.runtime.places import Array, Builtin, NotTranslated, StructRecord, is_real, number, real, shape, truth
from simgpu.machine.runtime.source import Part
from simgpu.machine.values import I1, I64, Builder, IrValue, where

SAME: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Div: operator.truediv,
}  # fmt: skip
OF_FLOATS = (ast.Add, ast.Sub, ast.Mult, ast.Div)
COMPARED: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne), ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt), ast.GtE: (">=", operator.ge),
}  # fmt: skip
BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor)


class Expressions:
    """Expressions of a function under translation; a method for each kind of node."""

    module: ir.Module
    build: Builder
    choices: itertools.count[int]

    def read(self, name: str) -> Any:
        """Returns the value of a name."""
        raise NotImplementedError

    def assign(self, name: str, value: Any) -> None:
        """Gives a variable a value."""
        raise NotImplementedError

    def call(self, part: Part, arguments: Sequence[Any]) -> Any:
        """Emits a call of another function; returns its result."""
        raise NotImplementedError

    def choose(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> None:
        """Emits a branch: `then` emits its code if the test holds, `otherwise` if not."""
        raise NotImplementedError

    def method(self, prefix: str, node: ast.AST) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] | None = getattr(self, f"{prefix}_{type(node).__name__}", None)
        if found is None:
            raise NotTranslated(f"`{ast.unparse(node)}` has no translation")
        return found

    def value(self, node: ast.expr) -> Any:
        return self.method("of", node)(node)

    def truth(self, node: ast.expr) -> Any:
        return truth(self.build, self.value(node))

    def of_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def of_Name(self, node: ast.Name) -> Any:
        return self.read(node.id)

    def of_Tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.spread(node.elts))

    def spread(self, nodes: Sequence[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.value(node.value)
            else:
                yield self.value(node)

    def of_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, StructRecord):
            return places.load(*owner.field(node.attr))
        return getattr(owner, node.attr)

    def of_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.value(node.value)
        if isinstance(node.slice, ast.Slice):
            first = 0 if node.slice.lower is None else self.value(node.slice.lower)
            return owner.part(first, owner.shape[0] if node.slice.upper is None else self.value(node.slice.upper))
        index = self.value(node.slice)
        if isinstance(owner, Array):
            found = owner.row(index)
            return found if found.shape else places.load(found.kind, found.pointer)
        if isinstance(index, int):
            return owner[index]
        return self.table(owner).at(index)[1].load(I64, 8)

    def table(self, values: Any) -> Array:
        """Returns a tuple of integers as a constant array in memory."""
        kind = ir.ArrayType(I64, len(values))
        held = ir.GlobalVariable(self.module, kind, self.module.get_unique_name("table"))
        held.linkage, held.global_constant, held.initializer = "internal", True, ir.Constant(kind, [int(one) for one in values])
        return Array(np.dtype(np.int64), IrValue(self.build, held).address().pointer(), (len(values),))

    def of_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            tested = truth(self.build, value)
            return not tested if isinstance(tested, bool) else ~tested
        if isinstance(node.op, ast.USub):
            return -value if isinstance(value, (int, float)) else -(value if is_real(value) else number(self.build, value))
        if isinstance(node.op, ast.Invert):
            return ~int(value) if isinstance(value, int) else ~number(self.build, value)
        raise NotTranslated(f"`{ast.unparse(node)}` has no translation")

    def of_BinOp(self, node: ast.BinOp) -> Any:
        return self.binary(node.op, self.value(node.left), self.value(node.right))

    def binary(self, op: ast.operator, a: Any, b: Any) -> Any:
        if type(op) not in SAME:
            raise NotTranslated(f"no operator {type(op).__name__}")
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return SAME[type(op)](a, b)
        if isinstance(op, OF_FLOATS) and (isinstance(op, ast.Div) or is_real(a) or is_real(b)):
            return SAME[type(op)](real(self.build, a), real(self.build, b))
        if isinstance(op, BITWISE) and all(isinstance(one, IrValue) and one.type == I1 for one in (a, b)):
            return SAME[type(op)](a, b)
        a, b = number(self.build, a), number(self.build, b)
        if isinstance(op, (ast.FloorDiv, ast.Mod)):
            return self.divide(a, b, isinstance(op, ast.Mod))
        return a.ashr(b) if isinstance(op, ast.RShift) else SAME[type(op)](a, b)

    def divide(self, a: IrValue, b: IrValue, rest: bool) -> IrValue:
        """Divides, rounding down, or returns the remainder; 0 for a divisor of 0."""
        build = self.build
        divisor = where((b + 1).unsigned <= 1, 1, b)  # division by 0, or of the lowest number by -1, traps on a host
        left = build.srem(a, divisor)
        below = (left != 0) & ((left ^ divisor).signed < 0)
        if rest:
            return where(below, left + divisor, left)
        return where(b == 0, 0, where(b == -1, -a, build.sdiv(a, divisor) - below.zext(I64)))

    def of_BoolOp(self, node: ast.BoolOp) -> Any:
        found: Any = self.truth(node.values[0])
        for following in node.values[1:]:
            found = self.short_circuit(found, isinstance(node.op, ast.And), following)
        return found

    def short_circuit(self, first: Any, both: bool, second: ast.expr) -> Any:
        """Evaluates `and` or `or` of two expressions; `second` only if the first does not decide."""
        if isinstance(first, bool):
            return self.truth(second) if first == both else first
        if both:
            return truth(self.build, self.choose_value(first, lambda: self.truth(second), lambda: False))
        return truth(self.build, self.choose_value(first, lambda: True, lambda: self.truth(second)))

    def of_IfExp(self, node: ast.IfExp) -> Any:
        return self.choose_value(self.truth(node.test), lambda: self.value(node.body), lambda: self.value(node.orelse))

    def choose_value(self, test: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        """Returns the value of `then` if the test holds, else of `otherwise`; only one is evaluated."""
        if isinstance(test, bool):
            return then() if test else otherwise()
        name = f"choice {next(self.choices)}"  # no variable has this name
        self.choose(test, lambda: self.assign(name, then()), lambda: self.assign(name, otherwise()))
        return self.read(name)

    def of_Compare(self, node: ast.Compare) -> Any:
        found: Any = True
        left = self.value(node.left)
        for op, following in zip(node.ops, node.comparators, strict=True):
            right = self.value(following)
            tested = self.compare(op, left, right)
            found = tested if found is True else found & tested
            left = right
        return found

    def compare(self, op: ast.cmpop, a: Any, b: Any) -> Any:
        if type(op) not in COMPARED:
            raise NotTranslated(f"no comparison {type(op).__name__}")
        how, known = COMPARED[type(op)]
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return known(a, b)
        if is_real(a) or is_real(b):
            left, right = real(self.build, a), real(self.build, b)
            return left != right if how == "!=" else left.ordered.test(how, right)
        return number(self.build, a).signed.test(how, number(self.build, b))

    def of_Call(self, node: ast.Call) -> Any:
        if node.keywords:
            raise NotTranslated("calls take no keywords")
        called, given = self.value(node.func), list(self.spread(node.args))
        if isinstance(called, Part):
            return self.call(called, given)
        if isinstance(called, Builtin):
            return called.emit(self.build, *(number(self.build, one) if shape(one) is int else one for one in given))
        if called in (min, max):
            return self.extreme(called, given)
        if called is int:
            return self.integer(given[0])
        if called is float:
            return real(self.build, given[0])
        if called is len:
            return given[0].shape[0] if isinstance(given[0], Array) else len(given[0])
        if isinstance(called, type) and issubclass(called, tuple):  # a NamedTuple
            return places.make_tuple(called, given)
        if inspect.ismethod(called) and isinstance(called.__self__, Array):
            return called(*given)
        raise NotTranslated(f"`{ast.unparse(node.func)}` cannot be called")

    def extreme(self, which: Callable[..., Any], given: Sequence[Any]) -> Any:
        """Returns the `min` or `max` of numbers, the first of equal ones."""
        if all(isinstance(one, (int, float)) for one in given):
            return which(given)
        if not any(map(is_real, given)):
            pick = smin if which is min else smax
            return functools.reduce(pick, [number(self.build, one) for one in given])

        def pick_float(a: IrValue, b: IrValue) -> IrValue:
            return where(b.ordered < a if which is min else b.ordered > a, b, a)

        return functools.reduce(pick_float, [real(self.build, one) for one in given])

    def integer(self, value: Any) -> IrValue:
        """Rounds toward 0, to the nearest integer of 64 bits; 0 for a NaN."""
        if not is_real(value):
            return number(self.build, value)
        rounded: IrValue = intrinsics.call(self.build, "llvm.fptosi.sat.i64.f64", I64, [real(self.build, value)])
        return rounded
