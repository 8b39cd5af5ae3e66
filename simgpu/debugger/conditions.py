"""Expressions on a wave's registers: `any(f32(v17) > 100) and s4 == 7`, compiled into a point's test or evaluated at a stop.

    s4 s[4:5] vcc exec m0 scc wave    numbers (unsigned)
    v17[3] a0[63]                     one lane's 32 bits
    v17 a0                            all lanes, for any(...) and all(...), which look at active ones
    f32(x) f16(x) bf16(x) i32(x)      the bits as such a number
    isnan(x) abs(x)  + - * / % & | ^ << >> ~  < <= == != >= >  and or not

A `$` before a register, as in gdb, is taken. A division by zero is 0.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.debugger.points import STOPS, test_of
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import EXEC, M0, VCC
from simgpu.machine import layout
from simgpu.machine.frame import ROW32, Frame
from simgpu.machine.jit import Compiler
from simgpu.machine.layout import LANES
from simgpu.machine.values import F32, F64, I1, I32, I64, where

_REGISTER = re.compile(r"([sva])(\d+)")
PAIRS = {"vcc": VCC, "exec": EXEC}
FILES = {"s": 102, "v": 256, "a": 256}
CASTS = ("f32", "f16", "bf16", "i32", "u32")
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.GtE: ">=", ast.Gt: ">"}
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
BITWISE = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}
INT, FLOAT, BOOL = "int", "float", "bool"


@dataclass(frozen=True)
class Typed:
    """A value under evaluation. kind: INT, FLOAT or BOOL; lanes: whether there is one for each lane."""

    kind: str
    lanes: bool
    value: Any


class Expression:
    """A parsed expression. Raises LaunchError, in one line, for what is none."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text.replace("$", ""), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = error.msg if isinstance(error, SyntaxError) else "it is too deep"
            raise LaunchError(f"condition {self.text!r} does not parse: {said}") from None
        self._walk(self._tree, _Check())

    def evaluate(self, wave: np.ndarray) -> Any:
        """The value for a wave's bytes: a number or bool, or an array of one a lane."""
        with np.errstate(all="ignore"):
            return self._walk(self._tree, _Numpy(wave)).value

    def test(self, compiler: Compiler) -> int:
        """The address of a point's test that stops where the expression is true."""

        def emit(frame: Frame) -> Any:
            backend = _Emit(frame)
            return backend.truth(self._walk(self._tree, backend)).value.zext(I64) * STOPS

        if self._walk(self._tree, _Check()).lanes:
            raise LaunchError(f"condition {self.text!r} has a value a lane: write v17[3], any(...) or all(...)")
        return compiler.address(f"debugger condition|{ast.dump(self._tree)}", test_of(emit))

    # -- the walk ------------------------------------------------------------------------------

    def _fail(self, why: str) -> LaunchError:
        return LaunchError(f"condition {self.text!r}: {why}")

    def _walk(self, node: ast.AST, to: _Backend) -> Typed:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            if isinstance(node.value, int) and not -(1 << 63) <= node.value < 1 << 64:
                raise self._fail(f"{node.value} has more than 64 bits")
            kind = BOOL if isinstance(node.value, bool) else FLOAT if isinstance(node.value, float) else INT
            return to.constant(kind, node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id, to)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, to)
        if isinstance(node, ast.Call):
            return self._call(node, to)
        if isinstance(node, ast.BoolOp):
            values = [to.truth(self._walk(value, to)) for value in node.values]
            result = values[0]
            for value in values[1:]:
                result = to.binary("&" if isinstance(node.op, ast.And) else "|", result, value)
            return result
        if isinstance(node, ast.UnaryOp):
            value = self._walk(node.operand, to)
            if isinstance(node.op, ast.Not):
                return to.binary("^", to.truth(value), to.constant(BOOL, True))
            if isinstance(node.op, ast.USub):
                return to.binary("-", *self._alike(to.constant(INT, 0), value, to))
            if isinstance(node.op, ast.Invert) and value.kind == INT:
                return to.binary("^", value, to.constant(INT, -1))
        if isinstance(node, ast.BinOp):
            return self._binary(node, to)
        if isinstance(node, ast.Compare):
            left = self._walk(node.left, to)
            found: list[Typed] = []
            for operator, right_node in zip(node.ops, node.comparators, strict=True):
                if type(operator) not in COMPARISONS:
                    break
                right = self._walk(right_node, to)
                found.append(to.compare(COMPARISONS[type(operator)], *self._alike(left, right, to)))
                left = right
            else:
                return functools.reduce(functools.partial(to.binary, "&"), found)
        raise self._fail(f"`{ast.unparse(node)}` is nothing that it may have: registers, numbers, arithmetic, any, all, f32 ...")

    def _binary(self, node: ast.BinOp, to: _Backend) -> Typed:
        left, right = to.number(self._walk(node.left, to)), to.number(self._walk(node.right, to))
        if type(node.op) in BITWISE:
            if FLOAT in (left.kind, right.kind):
                raise self._fail(f"`{ast.unparse(node)}` takes bits of a float: leave f32(...) out")
            return to.binary(BITWISE[type(node.op)], left, right)
        if type(node.op) not in ARITHMETIC:
            raise self._fail(f"`{ast.unparse(node)}`: only + - * / % & | ^ << >> are known")
        left, right = self._alike(left, right, to)
        if isinstance(node.op, ast.Mod) and left.kind == FLOAT:
            raise self._fail(f"`{ast.unparse(node)}`: % is of integers")
        return to.binary(ARITHMETIC[type(node.op)], left, right)

    def _alike(self, left: Typed, right: Typed, to: _Backend) -> tuple[Typed, Typed]:
        left, right = to.number(left), to.number(right)
        if FLOAT in (left.kind, right.kind):
            return to.floating(left), to.floating(right)
        return left, right

    def _name(self, name: str, to: _Backend) -> Typed:
        if name in PAIRS:
            return to.scalar(PAIRS[name], 2)
        if name == "m0":
            return to.scalar(M0, 1)
        if name in ("scc", "wave"):
            return to.field(layout.SCC if name == "scc" else layout.WAVE_ID)
        match = _REGISTER.fullmatch(name)
        if not match:
            raise self._fail(f"{name!r} is no register: s4, v17[3], a0, vcc, exec, m0, scc, wave")
        file, number = match[1], int(match[2])
        self._within(file, number)
        return to.scalar(number, 1) if file == "s" else to.vector(file, number)

    def _within(self, file: str, number: int) -> None:
        if number >= FILES[file]:
            raise self._fail(f"{file}{number} is past the file: {file}0 to {file}{FILES[file] - 1}")

    def _subscript(self, node: ast.Subscript, to: _Backend) -> Typed:
        base, index = node.value, node.slice
        if isinstance(base, ast.Name) and base.id == "s" and isinstance(index, ast.Slice):
            low, high = getattr(index.lower, "value", None), getattr(index.upper, "value", None)
            if isinstance(low, int) and high == low + 1:
                self._within("s", high)
                return to.scalar(low, 2)
            raise self._fail(f"`{ast.unparse(node)}`: a pair is s[4:5]")
        value = self._walk(base, to)
        lane = getattr(index, "value", None)
        if not value.lanes or not isinstance(lane, int) or not 0 <= lane < LANES:
            raise self._fail(f"`{ast.unparse(node)}`: a lane is v17[0] to v17[{LANES - 1}]")
        return to.lane(value, lane)

    def _call(self, node: ast.Call, to: _Backend) -> Typed:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if len(node.args) != 1 or node.keywords or name not in (*CASTS, "any", "all", "isnan", "abs"):
            raise self._fail(f"`{ast.unparse(node)}`: the functions are {', '.join(CASTS)}, isnan, abs, any and all, of one value")
        value = self._walk(node.args[0], to)
        if name in ("any", "all"):
            value = to.truth(value)
            return to.over_lanes(name, value) if value.lanes else value
        if name == "isnan":
            value = to.floating(to.number(value))
            return to.compare("!=", value, value)
        if name == "abs":
            value = to.number(value)
            return to.absolute(value)
        if value.kind != INT:
            raise self._fail(f"`{ast.unparse(node)}`: {name} takes the bits of a register")
        return to.cast(name, value)


class _Backend:
    """What becomes of the parts of an expression."""

    def constant(self, kind: str, value: float) -> Typed: ...  # type: ignore[empty-body]
    def scalar(self, number: int, count: int) -> Typed: ...  # type: ignore[empty-body]
    def field(self, offset: int) -> Typed: ...  # type: ignore[empty-body]
    def vector(self, file: str, number: int) -> Typed: ...  # type: ignore[empty-body]
    def lane(self, value: Typed, lane: int) -> Typed: ...  # type: ignore[empty-body]
    def cast(self, name: str, value: Typed) -> Typed: ...  # type: ignore[empty-body]
    def floating(self, value: Typed) -> Typed: ...  # type: ignore[empty-body]
    def number(self, value: Typed) -> Typed: ...  # type: ignore[empty-body]
    def truth(self, value: Typed) -> Typed: ...  # type: ignore[empty-body]
    def absolute(self, value: Typed) -> Typed: ...  # type: ignore[empty-body]
    def binary(self, operator: str, a: Typed, b: Typed) -> Typed: ...  # type: ignore[empty-body]
    def compare(self, operator: str, a: Typed, b: Typed) -> Typed: ...  # type: ignore[empty-body]
    def over_lanes(self, name: str, value: Typed) -> Typed: ...  # type: ignore[empty-body]


def _result(operator: str, a: Typed, b: Typed) -> str:
    return a.kind if a.kind == b.kind else FLOAT if FLOAT in (a.kind, b.kind) else INT


class _Check(_Backend):
    """Only the types: what is wrong is said when the expression is parsed."""

    def constant(self, kind: str, value: float) -> Typed:
        return Typed(kind, False, None)

    def scalar(self, number: int, count: int) -> Typed:
        return Typed(INT, False, None)

    def field(self, offset: int) -> Typed:
        return Typed(INT, False, None)

    def vector(self, file: str, number: int) -> Typed:
        return Typed(INT, True, None)

    def lane(self, value: Typed, lane: int) -> Typed:
        return Typed(value.kind, False, None)

    def cast(self, name: str, value: Typed) -> Typed:
        return Typed(INT if name in ("i32", "u32") else FLOAT, value.lanes, None)

    def floating(self, value: Typed) -> Typed:
        return Typed(FLOAT, value.lanes, None)

    def number(self, value: Typed) -> Typed:
        return Typed(INT, value.lanes, None) if value.kind == BOOL else value

    def truth(self, value: Typed) -> Typed:
        return Typed(BOOL, value.lanes, None)

    def absolute(self, value: Typed) -> Typed:
        return value

    def binary(self, operator: str, a: Typed, b: Typed) -> Typed:
        return Typed(_result(operator, a, b), a.lanes or b.lanes, None)

    def compare(self, operator: str, a: Typed, b: Typed) -> Typed:
        return Typed(BOOL, a.lanes or b.lanes, None)

    def over_lanes(self, name: str, value: Typed) -> Typed:
        return Typed(BOOL, False, None)


class _Numpy(_Backend):
    """Evaluates on a wave's bytes."""

    BINARY: dict[str, Callable[[Any, Any], Any]] = {  # noqa: RUF012
        "+": np.add, "-": np.subtract, "*": np.multiply, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
        "<<": lambda a, b: np.left_shift(a, b & 63), ">>": lambda a, b: np.right_shift(a, b & 63),
    }  # fmt: skip
    COMPARE: dict[str, Callable[[Any, Any], Any]] = {  # noqa: RUF012
        "<": np.less, "<=": np.less_equal, "==": np.equal, "!=": np.not_equal, ">=": np.greater_equal, ">": np.greater,
    }  # fmt: skip

    def __init__(self, wave: np.ndarray) -> None:
        self.wave = wave

    def _words(self, offset: int, count: int) -> np.ndarray:
        return self.wave[offset : offset + 4 * count].view(np.uint32)

    def constant(self, kind: str, value: float) -> Typed:
        if kind == INT:
            return Typed(INT, False, np.array(int(value) & (1 << 64) - 1, np.uint64).view(np.int64)[()])
        return Typed(kind, False, np.float64(value) if kind == FLOAT else np.bool_(value))

    def scalar(self, number: int, count: int) -> Typed:
        words = self._words(4 * number, count).astype(np.int64)
        return Typed(INT, False, words[0] if count == 1 else words[0] | words[1] << 32)

    def field(self, offset: int) -> Typed:
        return Typed(INT, False, self._words(offset, 1).astype(np.int64)[0])

    def vector(self, file: str, number: int) -> Typed:
        return Typed(INT, True, self._words(layout.vector_register(file, number), LANES).astype(np.int64))

    def lane(self, value: Typed, lane: int) -> Typed:
        return Typed(value.kind, False, value.value[lane])

    def cast(self, name: str, value: Typed) -> Typed:
        bits: Any = np.asarray(value.value).astype(np.uint32)
        if name == "bf16":
            bits = bits << 16
        made: Any
        if name == "f16":
            made = bits.astype(np.uint16).view(np.float16).astype(np.float64)
        elif name in ("f32", "bf16"):
            made = bits.view(np.float32).astype(np.float64)
        else:
            made = bits.view(np.int32).astype(np.int64) if name == "i32" else bits.astype(np.int64)
        return Typed(INT if name in ("i32", "u32") else FLOAT, value.lanes, made if value.lanes else made[()])

    def floating(self, value: Typed) -> Typed:
        return Typed(FLOAT, value.lanes, np.asarray(value.value, np.float64)[()])

    def number(self, value: Typed) -> Typed:
        return Typed(INT, value.lanes, np.asarray(value.value, np.int64)[()]) if value.kind == BOOL else value

    def truth(self, value: Typed) -> Typed:
        return value if value.kind == BOOL else Typed(BOOL, value.lanes, value.value != 0)

    def absolute(self, value: Typed) -> Typed:
        return Typed(value.kind, value.lanes, np.abs(value.value))

    def binary(self, operator: str, a: Typed, b: Typed) -> Typed:
        x, y, kind = a.value, b.value, _result(operator, a, b)
        if operator not in "/%":
            made = self.BINARY[operator](x, y)
        else:
            divide = np.remainder if operator == "%" else np.floor_divide if kind == INT else np.divide
            made = np.where(np.equal(y, 0), 0, divide(x, np.where(np.equal(y, 0), 1, y)))[()]
        return Typed(kind, a.lanes or b.lanes, made)

    def compare(self, operator: str, a: Typed, b: Typed) -> Typed:
        return Typed(BOOL, a.lanes or b.lanes, self.COMPARE[operator](a.value, b.value))

    def over_lanes(self, name: str, value: Typed) -> Typed:
        words = self._words(4 * EXEC, 2)
        active = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
        held = value.value[active]
        return Typed(BOOL, False, bool(held.any() if name == "any" else held.all()))


class _Emit(_Backend):
    """Emits machine code."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.build = frame.build

    def _both(self, a: Typed, b: Typed) -> tuple[Any, Any]:
        x, y = a.value, b.value
        if a.lanes and not b.lanes:
            y = y.splat(LANES)
        elif b.lanes and not a.lanes:
            x = x.splat(LANES)
        return x, y

    def constant(self, kind: str, value: float) -> Typed:
        type_ = {INT: I64, FLOAT: F64, BOOL: I1}[kind]
        return Typed(kind, False, self.frame.value(ir.Constant(type_, value if kind == FLOAT else int(value))))

    def scalar(self, number: int, count: int) -> Typed:
        offset = self.frame.scalar(number)
        if count == 2:
            low, high = self.frame.state(offset).zext(I64), self.frame.state(offset + 4).zext(I64)
            return Typed(INT, False, low | high << 32)
        return Typed(INT, False, self.frame.state(offset).zext(I64))

    def field(self, offset: int) -> Typed:
        return Typed(INT, False, self.frame.state(offset).zext(I64))

    def vector(self, file: str, number: int) -> Typed:
        row = self.frame.at(self.frame.wave, layout.vector_register(file, number)).load(ROW32, align=64)
        return Typed(INT, True, row.zext(I64))

    def lane(self, value: Typed, lane: int) -> Typed:
        return Typed(value.kind, False, value.value[lane])

    def cast(self, name: str, value: Typed) -> Typed:
        bits = value.value.trunc(I32)
        if name == "u32":
            return Typed(INT, value.lanes, bits.zext(I64))
        if name == "i32":
            return Typed(INT, value.lanes, bits.sext(I64))
        if name == "f16":
            return Typed(FLOAT, value.lanes, self._half(bits))
        single = ir.VectorType(F32, LANES) if value.lanes else F32
        return Typed(FLOAT, value.lanes, (bits << 16 if name == "bf16" else bits).bitcast(single).fpext(F64))

    def _half(self, bits: Any) -> Any:
        """The double of an f16's bits, by arithmetic: a library does it on some hosts."""
        exponent, fraction, sign = (bits >> 10) & 31, bits & 1023, (bits >> 15) & 1
        wide = ((exponent + 1008).zext(I64) << 52 | fraction.zext(I64) << 42)
        wide = where(exponent == 31, (fraction.zext(I64) << 42) | (0x7FF << 52), wide)
        double = ir.VectorType(F64, LANES) if bits.lanes else F64
        small = fraction.uitofp(F64) * 2.0**-24
        size = where(exponent == 0, small, wide.bitcast(double))
        return where(sign != 0, -size, size)

    def floating(self, value: Typed) -> Typed:
        return value if value.kind == FLOAT else Typed(FLOAT, value.lanes, value.value.sitofp(F64))

    def number(self, value: Typed) -> Typed:
        return Typed(INT, value.lanes, value.value.zext(I64)) if value.kind == BOOL else value

    def truth(self, value: Typed) -> Typed:
        return value if value.kind == BOOL else Typed(BOOL, value.lanes, value.value != 0)

    def absolute(self, value: Typed) -> Typed:
        held = value.value
        negative = held.ordered < 0.0 if value.kind == FLOAT else held.signed < 0
        return Typed(value.kind, value.lanes, where(negative, -held, held))

    def binary(self, operator: str, a: Typed, b: Typed) -> Typed:
        x, y = self._both(a, b)
        kind = _result(operator, a, b)
        if operator in "/%" and kind == INT:
            made = self._divided(operator, x, y)
        elif operator == "/":
            zero = y == 0.0
            made = where(zero, 0.0, x / where(zero, 1.0, y))
        elif operator in ("<<", ">>"):
            made = x << (y & 63) if operator == "<<" else x.ashr(y & 63)
        else:
            made = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "&": lambda: x & y, "|": lambda: x | y,
                    "^": lambda: x ^ y}[operator]()  # fmt: skip
        return Typed(kind, a.lanes or b.lanes, made)

    def _divided(self, operator: str, x: Any, y: Any) -> Any:
        """Towards minus infinity, as Python does; by -1 without the host's overflow."""
        zero, minus = y == 0, y == -1
        safe = where(zero | minus, 1, y)
        quotient, rest = self.build.sdiv(x, safe), self.build.srem(x, safe)
        down = (rest != 0) & ((rest.signed < 0) != (safe.signed < 0))
        if operator == "%":
            return where(zero, 0, where(minus, 0, where(down, rest + safe, rest)))
        return where(zero, 0, where(minus, -x, where(down, quotient - 1, quotient)))

    def compare(self, operator: str, a: Typed, b: Typed) -> Typed:
        x, y = self._both(a, b)
        compare = self.build.icmp_signed
        if a.kind == FLOAT:
            compare = self.build.fcmp_unordered if operator == "!=" else self.build.fcmp_ordered
        return Typed(BOOL, a.lanes or b.lanes, compare(operator, x, y))

    def over_lanes(self, name: str, value: Typed) -> Typed:
        bits = self.build.bitcast(value.value, I64)
        active = self.frame.exec_bits()
        return Typed(BOOL, False, (bits & active) != 0 if name == "any" else (bits & active) == active)
