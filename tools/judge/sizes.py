"""Sizes drawn from ranges, and integer expressions of sizes, as `cdiv(n, 256)`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from simgpu.tools.shared.errors import UsageError

EDGES = (1, 63, 64, 65, 127, 256, 257, 1000)  # sizes around a wave and a workgroup; those of a range are tried first
_LARGEST = 2**31 - 1
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., int]] = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max}


def evaluate(node: ast.AST, sizes: Mapping[str, int], where: str) -> int:
    """Computes an expression of sizes, with + - * / % and parentheses, cdiv, min and max; / rounds down as in C.

    Raises UsageError, which names `where`, for anything else, and for a value that is no 31-bit number of at least 0.

    >>> evaluate(ast.parse("cdiv(n, 256) * 2", mode="eval").body, {"n": 1000}, "grid")
    8
    """
    value = _evaluate(node, sizes, where)
    if not 0 <= value <= _LARGEST:
        raise UsageError(f"{where}: {ast.unparse(node)} is {value}, not within 0 to {_LARGEST}")
    return value


def _evaluate(node: ast.AST, sizes: Mapping[str, int], where: str) -> int:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            if name not in sizes:
                raise UsageError(f"{where}: {name!r} is no size; sizes are {', '.join(sizes) or 'none'}")
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            values = _evaluate(left, sizes, where), _evaluate(right, sizes, where)
            if max(map(abs, values)) > _LARGEST or (isinstance(op, (ast.Div, ast.FloorDiv, ast.Mod)) and not values[1]):
                raise UsageError(f"{where}: {ast.unparse(node)} of {values[0]} and {values[1]} has no value")
            return int(_OPERATORS[type(op)](*values))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS and len(args) == 2:
            values = _evaluate(args[0], sizes, where), _evaluate(args[1], sizes, where)
            if name == "cdiv" and not values[1]:
                raise UsageError(f"{where}: {ast.unparse(node)} divides by 0")
            return _FUNCTIONS[name](*values)
    raise UsageError(f"{where}: {ast.unparse(node)} is no expression of sizes: use + - * / %, cdiv, min, max")


def parse(text: str, where: str) -> ast.expr:
    """Parses an expression or a call. Raises UsageError, which names `where`."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{where}: {text.strip()!r} cannot be read") from None


def draw(ranges: Mapping[str, Sequence[int]], count: int, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """Yields `count` sets of sizes: each range's upper end, its lower end, sizes around powers of two, then random ones.

    >>> [sizes["n"] for sizes in draw({"n": (1, 300)}, 4, np.random.default_rng(0))]
    [300, 1, 256, 127]
    """
    for index in range(count):
        yield {name: _draw(low, high, index, rng) for name, (low, high) in ranges.items()}


def _draw(low: int, high: int, index: int, rng: np.random.Generator) -> int:
    if index < 2:
        return (high, low)[index]
    edges = [edge for edge in EDGES if low < edge < high]
    if index % 2 == 0 or not edges:
        return int(rng.integers(low, high, endpoint=True)) if index % 4 else int(rng.choice(edges or [low]))
    return int(rng.choice(edges))


def check_ranges(ranges: Any, where: str) -> dict[str, tuple[int, int]]:
    """Returns SIZES of a reference: a range (low, high) or one number for each name. Raises UsageError."""
    found: dict[str, tuple[int, int]] = {}
    for name, given in dict(ranges).items():
        low, high = given if isinstance(given, (tuple, list)) and len(given) == 2 else (given, given)
        if not all(isinstance(end, int) for end in (low, high)) or not 0 <= low <= high <= _LARGEST or not str(name).isidentifier():
            raise UsageError(f"{where}: SIZES[{name!r}] = {given!r}: give (lowest, highest), as (1, 1000)")
        found[str(name)] = low, high
    return found
