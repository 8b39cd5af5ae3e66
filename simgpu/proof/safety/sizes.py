"""Sizes and conditions that a user states about arguments: `x=4*n`, `n<=m*k`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from simgpu.hardware.errors import SimError
from simgpu.proof.safety.integers import Integers

Term = Any
MOST_TEXT = 1000  # characters of an expression
WIDTH = 64  # bits of a size as a bit-vector; for models only, since it may wrap
BINARY: dict[type, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {  # of numbers and integers; of bit-vectors
    ast.Add: (lambda a, b: a + b, lambda a, b: a + b),
    ast.Sub: (lambda a, b: a - b, lambda a, b: a - b),
    ast.Mult: (lambda a, b: a * b, lambda a, b: a * b),
    ast.FloorDiv: (lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else a / b, lambda a, b: a / b),
    ast.Mod: (lambda a, b: a % b, z3.SRem),
    ast.Pow: (lambda a, b: a**b, lambda a, b: a**b),
}
COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b, ast.GtE: lambda a, b: a >= b,
}  # fmt: skip


class BadAssumption(SimError):
    """Raised for text that is no expression of arguments, or that holds in no launch."""


@dataclass(frozen=True)
class SizeExpression:
    """An expression of whole numbers and names: + - * // % **, and comparisons between such.

    >>> SizeExpression.parse("4 * (n + 1)").value({"n": 2})
    12
    """

    text: str
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> SizeExpression:
        """Parses text. Raises BadAssumption."""
        try:
            if len(text) > MOST_TEXT:
                raise ValueError
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise BadAssumption(f"{text[:80]!r} is no expression, as 4*(n+1) or n<=m") from None
        made = cls(text, tree)
        for node in ast.walk(tree):
            if not _is_allowed(node) or (isinstance(node, ast.Compare) and node is not tree):
                raise BadAssumption(f"{text!r}: {ast.unparse(node)!r} is not allowed: use whole numbers, names, + - * // % ** ( )")
        return made

    @property
    def is_condition(self) -> bool:
        return isinstance(self.tree, ast.Compare)

    @property
    def divides(self) -> bool:
        """True if its value as a bit-vector may differ from that as an integer even if the integer is small."""
        return any(isinstance(node, (ast.FloorDiv, ast.Mod)) for node in ast.walk(self.tree))

    def names(self) -> Iterator[str]:
        """Yields the names in it."""
        yield from (node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name))

    def value(self, names: Mapping[str, int]) -> Any:
        """Returns its value for numbers."""
        return self._evaluate(self.tree, names, bits=False)

    def whole(self, names: Mapping[str, Term]) -> Term:
        """Returns it as a formula of integers."""
        return self._evaluate(self.tree, names, bits=False)

    def bits(self, names: Mapping[str, Term]) -> Term:
        """Returns it as a formula of bit-vectors of WIDTH bits."""
        made = self._evaluate(self.tree, names, bits=True)
        return z3.BitVecVal(made, WIDTH) if isinstance(made, int) and not isinstance(made, bool) else made

    def _evaluate(self, node: ast.AST, names: Mapping[str, Any], bits: bool) -> Any:
        if isinstance(node, ast.Compare):
            values = [self._evaluate(each, names, bits) for each in (node.left, *node.comparators)]
            found = [COMPARISONS[type(op)](a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)]
            return all(found) if all(isinstance(each, bool) for each in found) else z3.And(*found)
        if isinstance(node, ast.BinOp):
            a, b = (self._evaluate(each, names, bits) for each in (node.left, node.right))
            numbers = isinstance(a, int) and isinstance(b, int)
            if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and isinstance(b, int) and b <= 0:
                raise BadAssumption(f"{self.text!r} divides by {b}")
            if isinstance(node.op, ast.Pow) and not (numbers and 0 <= b < 128 and abs(a) < 1 << 16):
                raise BadAssumption(f"{self.text!r}: ** is for small numbers, as 2**20")
            return BINARY[type(node.op)][bits and not numbers](a, b)
        if isinstance(node, ast.UnaryOp):
            return -self._evaluate(node.operand, names, bits)
        if isinstance(node, ast.Name):
            return names[node.id]
        assert isinstance(node, ast.Constant)
        return node.value


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int and abs(node.value) < 1 << 64
    plain = (ast.BinOp, ast.Compare, ast.Name, ast.Load, ast.USub, *BINARY, *COMPARISONS)
    return isinstance(node, plain) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))


def widen(term: Term, signed: bool) -> Term:
    """Returns a bit-vector with WIDTH bits."""
    return (z3.SignExt if signed else z3.ZeroExt)(WIDTH - term.size(), term)


def whole(integers: Integers, term: Term, signed: bool) -> Term:
    """Returns a bit-vector's value as an integer."""
    return integers.signed_value(term) if signed else integers.of(term)
