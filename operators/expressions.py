"""Elementwise arithmetic that is written once: executed with numpy, bounded, and emitted as f32 instructions.

A function of a tree's leaves is called once, with a Value for each argument (`trace`). What it returns is a small graph of
operations. `evaluate` computes the graph in an arithmetic: one function for each operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from simgpu.hardware.errors import LaunchError

Number = int | float
SYMBOLS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
LARGEST_POWER = 16
SMALLEST, LARGEST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)  # magnitudes of constants
FUNCTIONS = ("maximum", "minimum", "absolute", "sqrt", "rsqrt", "exp", "log", "binade", "select")
NO_NUMBER = f"a leaf is no number: use {', '.join(FUNCTIONS)} of simgpu.operators.expressions, not math or numpy"


def _operators(op: str) -> tuple[Callable[[Value, Value | Number], Value], Callable[[Value, Value | Number], Value]]:
    """Returns the methods of an operator, for a value on its left and on its right."""
    return lambda left, right: _apply(op, left, right), lambda right, left: _apply(op, left, right)


@dataclass(frozen=True)
class Value:
    """A number of each element: an argument (`name`), a constant, or an operation on others.

    >>> from simgpu.operators.expressions import Value, rsqrt
    >>> squares = Value("argument", name="squares")
    >>> print(rsqrt(squares / 64 + 1e-5))
    rsqrt(squares / 64 + 1e-05)
    """

    op: str  # argument, constant, one of SYMBOLS or of FUNCTIONS
    operands: tuple[Value, ...] = ()
    name: str = ""  # of an argument
    constant: float = 0.0

    __array_ufunc__ = None  # an array on the left leaves the operation to Value, which refuses it

    __add__, __radd__ = _operators("add")
    __sub__, __rsub__ = _operators("subtract")
    __mul__, __rmul__ = _operators("multiply")
    __truediv__, __rtruediv__ = _operators("divide")

    def __pow__(self, power: int) -> Value:
        """Returns the product of `power` factors."""
        if not isinstance(power, int) or not 1 <= power <= LARGEST_POWER:
            raise TypeError(f"a leaf's power is {power!r}: give an integer from 1 to {LARGEST_POWER}, or use sqrt and exp")
        return self if power == 1 else _apply("multiply", self ** (power - 1), self)

    def __neg__(self) -> Value:
        return _apply("subtract", 0.0, self)

    def __abs__(self) -> Value:
        return _apply("absolute", self)

    def __bool__(self) -> NoReturn:
        raise TypeError("a leaf has no value yet, so it cannot decide an `if`: use maximum, minimum and select")

    def __gt__(self, other: object) -> NoReturn:
        raise TypeError("a leaf has no value yet to compare: select(x - y, a, b) is `a if x > y else b`; also maximum and minimum")

    __lt__ = __ge__ = __le__ = __gt__

    def __float__(self) -> NoReturn:
        raise TypeError(NO_NUMBER)

    def __str__(self) -> str:
        return _text(self)[0]


def _apply(op: str, *operands: Value | Number) -> Value:
    return Value(op, tuple(one if isinstance(one, Value) else _constant(one) for one in operands))


def _constant(number: object) -> Value:
    if isinstance(number, bool) or not isinstance(number, (int, float, np.integer, np.floating)):
        raise TypeError(f"{type(number).__name__} {number!r} is no number and no leaf's argument")
    value = float(number)
    if value and not SMALLEST <= abs(value) <= LARGEST:  # instructions take subnormal numbers for 0
        raise TypeError(f"the constant {value:g} is no normal f32: give 0, or {SMALLEST:.3g} to {LARGEST:.3g}")
    return Value("constant", constant=value)


def maximum(x: Value | Number, y: Value | Number) -> Value:
    """Returns the larger of two values."""
    return _apply("maximum", x, y)


def minimum(x: Value | Number, y: Value | Number) -> Value:
    """Returns the smaller of two values."""
    return _apply("minimum", x, y)


def absolute(x: Value | Number) -> Value:
    """Returns |x|."""
    return _apply("absolute", x)


def sqrt(x: Value | Number) -> Value:
    """Returns the square root."""
    return _apply("sqrt", x)


def rsqrt(x: Value | Number) -> Value:
    """Returns 1 / sqrt(x), which is one instruction."""
    return _apply("rsqrt", x)


def exp(x: Value | Number) -> Value:
    """Returns e to the power x."""
    return _apply("exp", x)


def log(x: Value | Number) -> Value:
    """Returns the natural logarithm."""
    return _apply("log", x)


def binade(x: Value | Number) -> Value:
    """Returns the largest power of two that is at most |x|: x without its sign and mantissa, 0 for 0 and subnormal numbers."""
    return _apply("binade", x)


def select(condition: Value | Number, yes: Value | Number, no: Value | Number) -> Value:
    """Returns `yes` if the condition is larger than 0, else `no`, which is also the result of a condition that is NaN.

    >>> x = Value("argument", name="x")
    >>> evaluate(select(x, 1, 0.5 * x), {"x": np.array([-4.0, 3.0, np.nan])}, NUMPY)
    array([-2.,  1., nan])
    """
    return _apply("select", condition, yes, no)


def _text(value: Value) -> tuple[str, int]:
    """Returns a value's text, and how strongly its outermost operation binds."""
    if value.op == "argument":
        return value.name, 3
    if value.op == "constant":
        return f"{value.constant:g}", 3
    if value.op in FUNCTIONS:
        return f"{value.op}({', '.join(_text(one)[0] for one in value.operands)})", 3
    strength = 1 if value.op in ("add", "subtract") else 2
    (left, of_left), (right, of_right) = (_text(one) for one in value.operands)
    left = left if of_left >= strength else f"({left})"
    right = right if of_right > strength or (of_right == strength and value.op in ("add", "multiply")) else f"({right})"
    return f"{left} {SYMBOLS[value.op]} {right}", strength


def trace(where: str, function: Callable[..., Any], names: Sequence[str]) -> Any:
    """Returns what `function` returns for one Value of each name.

    LaunchError, which begins with `where`, if the function takes other arguments or does what a Value cannot.
    """
    try:
        return function(**{name: Value("argument", name=name) for name in names})
    except Exception as error:  # whatever a user's function raises
        said = NO_NUMBER if "__array_ufunc__" in str(error) else error  # numpy's message for a function of its own
        raise LaunchError(f"{where}({', '.join(names)}): {said}") from None


def operations(*values: Value) -> Iterator[Value]:
    """Yields the graph's distinct operations, operands first."""
    seen: set[Value] = set()

    def visit(value: Value) -> Iterator[Value]:
        if value in seen or value.op in ("argument", "constant"):
            return
        seen.add(value)
        for one in value.operands:
            yield from visit(one)
        yield value

    for value in values:
        yield from visit(value)


def arguments(value: Value) -> set[str]:
    """Returns the names of the arguments that a value depends on."""
    return {value.name} if value.op == "argument" else {name for one in value.operands for name in arguments(one)}


def hoist(value: Value, names: set[str], title: str) -> tuple[tuple[Value, ...], Value]:
    """Returns the largest parts of a value that depend on no arguments but `names`, and the value with each of them as an argument.

    Part number i is the argument "{title} {i}".

    >>> from simgpu.operators.expressions import Value, hoist, rsqrt
    >>> x, squares = Value("argument", name="x"), Value("argument", name="squares")
    >>> parts, rest = hoist(x * rsqrt(squares / 64), {"squares"}, "row value")
    >>> print(*parts, rest, sep=", ")
    rsqrt(squares / 64), x * row value 0
    """

    def largest(one: Value) -> Iterator[Value]:
        used = arguments(one)
        if used and used <= names:
            yield one
        else:
            for operand in one.operands:
                yield from largest(operand)

    parts = tuple(dict.fromkeys(largest(value)))
    return parts, substitute(value, {part: Value("argument", name=f"{title} {number}") for number, part in enumerate(parts)})


def substitute(value: Value, known: Mapping[Value, Value]) -> Value:
    """Returns a value with parts of it replaced by others.

    >>> x, y = Value("argument", name="x"), Value("argument", name="y")
    >>> print(substitute(x * y - 1, {y: x + 2}))
    x * (x + 2) - 1
    """
    if value in known:
        return known[value]
    return Value(value.op, tuple(substitute(one, known) for one in value.operands), value.name, value.constant)


def evaluate(value: Value, given: Mapping[str, Any], arithmetic: Mapping[str, Callable[..., Any]]) -> Any:
    """Returns a value for arguments `given`.

    arithmetic: a function for each operation, and one for "constant".

    >>> from simgpu.operators.expressions import NUMPY, Value, evaluate, maximum
    >>> x = Value("argument", name="x")
    >>> evaluate(maximum(x * x - 1, 0), {"x": np.array([0.5, 3.0])}, NUMPY)
    array([0., 8.])
    """
    known: dict[Value, Any] = {}

    def read(one: Value) -> Any:
        if one.op == "argument":
            return given[one.name]
        return arithmetic["constant"](one.constant) if one.op == "constant" else known[one]

    for one in operations(value):
        known[one] = arithmetic[one.op](*(read(operand) for operand in one.operands))
    return read(value)


def _binade(x: Any) -> Any:
    found = np.where(np.isfinite(x), np.ldexp(np.sign(np.abs(x)), np.frexp(x)[1] - 1), np.inf)
    return found.astype(x.dtype) if isinstance(x, np.ndarray) else float(found)


# In the type of the arrays: float64 constants of numpy would widen f32.
NUMPY: dict[str, Callable[..., Any]] = {
    "constant": lambda number: number,
    **{name: getattr(np, name) for name in (*SYMBOLS, "maximum", "minimum", "absolute", "sqrt", "exp", "log")},
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "binade": _binade,
    "select": lambda condition, yes, no: np.where(condition > 0, yes, no),
}
# As instructions compute, whatever the arguments.
F32: dict[str, Callable[..., Any]] = {**NUMPY, "constant": np.float32}
