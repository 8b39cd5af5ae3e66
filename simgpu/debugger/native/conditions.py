"""Expressions on a wave's registers: `any(f32(v17) > 100) and s4 == 7`, compiled into a point's test or evaluated at a stop.

    s4 m0 scc wave                    unsigned 32-bit numbers
    s[4:5] vcc exec                   signed 64-bit numbers
    v17[3] a0[63]                     one lane's 32 bits
    v17 a0                            all lanes, for any(...) and all(...), which look at active ones
    f32(x) f16(x) bf16(x) i32(x) u32(x)    the low bits as such a number
    isnan(x) abs(x)  + - * / % & | ^ << >> ~  < <= == != >= >  and or not

A `$` before a register, as in gdb, is allowed. A division by zero gives 0.
"""

from __future__ import annotations

import ast
import functools
import re
from typing import Any

import numpy as np

from simgpu.debugger.native.emitted import MachineCode
from simgpu.debugger.native.evaluated import OnArrays
from simgpu.debugger.native.points import STOPS, test_of
from simgpu.debugger.native.typed import BOOL, FLOAT, INT, Backend, ExpressionTypes, TypedValue
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import EXEC, M0, VCC
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.jit import Compiler
from simgpu.machine.layout import LANES
from simgpu.machine.values import I64

_REGISTER = re.compile(r"([sva])(\d+)")
PAIRS = {"vcc": VCC, "exec": EXEC}
FILES = {"s": 102, "v": 256, "a": 256}
CASTS = ("f32", "f16", "bf16", "i32", "u32")
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Eq: "==", ast.NotEq: "!=", ast.GtE: ">=", ast.Gt: ">"}
ARITHMETIC = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}
BITWISE = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>"}


class Expression:
    """A parsed expression. Raises LaunchError, in one line, if it does not parse."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text.replace("$", ""), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            said = error.msg if isinstance(error, SyntaxError) else "it is too deep"
            raise LaunchError(f"condition {self.text!r} does not parse: {said}") from None
        self._walk(self._tree, ExpressionTypes())

    def evaluate(self, wave: np.ndarray) -> Any:
        """Returns the value for a wave's bytes (uint8): a number or bool, or an array with one for each lane."""
        with np.errstate(all="ignore"):
            return self._walk(self._tree, OnArrays(wave)).value

    def test(self, compiler: Compiler) -> int:
        """Returns the address of a point's test that stops if the expression is true."""

        def emit(frame: Frame) -> Any:
            backend = MachineCode(frame)
            return backend.truth(self._walk(self._tree, backend)).value.zext(I64) * STOPS

        if self._walk(self._tree, ExpressionTypes()).lanes:
            raise LaunchError(f"condition {self.text!r} has a value a lane: write v17[3], any(...) or all(...)")
        return compiler.address(f"debugger condition|{ast.dump(self._tree)}", test_of(emit))

    # -- the walk ------------------------------------------------------------------------------

    def _fail(self, why: str) -> LaunchError:
        return LaunchError(f"condition {self.text!r}: {why}")

    def _walk(self, node: ast.AST, to: Backend) -> TypedValue:
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
                return to.binary("-", *self._unify(to.constant(INT, 0), value, to))
            if isinstance(node.op, ast.Invert) and value.kind == INT:
                return to.binary("^", value, to.constant(INT, -1))
        if isinstance(node, ast.BinOp):
            return self._binary(node, to)
        if isinstance(node, ast.Compare):
            left = self._walk(node.left, to)
            found: list[TypedValue] = []
            for operator, right_node in zip(node.ops, node.comparators, strict=True):
                if type(operator) not in COMPARISONS:
                    break
                right = self._walk(right_node, to)
                found.append(to.compare(COMPARISONS[type(operator)], *self._unify(left, right, to)))
                left = right
            else:
                return functools.reduce(functools.partial(to.binary, "&"), found)
        raise self._fail(f"`{ast.unparse(node)}` is nothing that it may have: registers, numbers, arithmetic, any, all, f32 ...")

    def _binary(self, node: ast.BinOp, to: Backend) -> TypedValue:
        left, right = to.number(self._walk(node.left, to)), to.number(self._walk(node.right, to))
        if type(node.op) in BITWISE:
            if FLOAT in (left.kind, right.kind):
                raise self._fail(f"`{ast.unparse(node)}` takes bits of a float: leave f32(...) out")
            return to.binary(BITWISE[type(node.op)], left, right)
        if type(node.op) not in ARITHMETIC:
            raise self._fail(f"`{ast.unparse(node)}`: only + - * / % & | ^ << >> are known")
        left, right = self._unify(left, right, to)
        if isinstance(node.op, ast.Mod) and left.kind == FLOAT:
            raise self._fail(f"`{ast.unparse(node)}`: % is of integers")
        return to.binary(ARITHMETIC[type(node.op)], left, right)

    def _unify(self, left: TypedValue, right: TypedValue, to: Backend) -> tuple[TypedValue, TypedValue]:
        left, right = to.number(left), to.number(right)
        if FLOAT in (left.kind, right.kind):
            return to.floating(left), to.floating(right)
        return left, right

    def _name(self, name: str, to: Backend) -> TypedValue:
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
        self._check_register(file, number)
        return to.scalar(number, 1) if file == "s" else to.vector(file, number)

    def _check_register(self, file: str, number: int) -> None:
        if number >= FILES[file]:
            raise self._fail(f"{file}{number} is past the file: {file}0 to {file}{FILES[file] - 1}")

    def _subscript(self, node: ast.Subscript, to: Backend) -> TypedValue:
        base, index = node.value, node.slice
        if isinstance(base, ast.Name) and base.id == "s" and isinstance(index, ast.Slice):
            low, high = getattr(index.lower, "value", None), getattr(index.upper, "value", None)
            if isinstance(low, int) and high == low + 1:
                self._check_register("s", high)
                return to.scalar(low, 2)
            raise self._fail(f"`{ast.unparse(node)}`: a pair is s[4:5]")
        value = self._walk(base, to)
        lane = getattr(index, "value", None)
        if not value.lanes or not isinstance(lane, int) or not 0 <= lane < LANES:
            raise self._fail(f"`{ast.unparse(node)}`: a lane is v17[0] to v17[{LANES - 1}]")
        return to.lane(value, lane)

    def _call(self, node: ast.Call, to: Backend) -> TypedValue:
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
