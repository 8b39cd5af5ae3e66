"""Evaluates conditions on a wave's bytes, as the debugger does at a stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simgpu.debugger.native.typed import BOOL, FLOAT, INT, Backend, TypedValue, result_kind
from simgpu.hardware.isa.instruction import EXEC
from simgpu.machine import layout
from simgpu.machine.layout import LANES


class OnArrays(Backend):
    """Evaluates with NumPy. wave: a wave's state (uint8)."""

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

    def constant(self, kind: str, value: float) -> TypedValue:
        if kind == INT:
            return TypedValue(INT, False, np.array(int(value) & (1 << 64) - 1, np.uint64).view(np.int64)[()])
        return TypedValue(kind, False, np.float64(value) if kind == FLOAT else np.bool_(value))

    def scalar(self, number: int, count: int) -> TypedValue:
        words = self._words(4 * number, count).astype(np.int64)
        return TypedValue(INT, False, words[0] if count == 1 else words[0] | words[1] << 32)

    def field(self, offset: int) -> TypedValue:
        return TypedValue(INT, False, self._words(offset, 1).astype(np.int64)[0])

    def vector(self, file: str, number: int) -> TypedValue:
        return TypedValue(INT, True, self._words(layout.vector_register(file, number), LANES).astype(np.int64))

    def lane(self, value: TypedValue, lane: int) -> TypedValue:
        return TypedValue(value.kind, False, value.value[lane])

    def cast(self, name: str, value: TypedValue) -> TypedValue:
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
        return TypedValue(INT if name in ("i32", "u32") else FLOAT, value.lanes, made if value.lanes else made[()])

    def floating(self, value: TypedValue) -> TypedValue:
        return TypedValue(FLOAT, value.lanes, np.asarray(value.value, np.float64)[()])

    def number(self, value: TypedValue) -> TypedValue:
        return TypedValue(INT, value.lanes, np.asarray(value.value, np.int64)[()]) if value.kind == BOOL else value

    def truth(self, value: TypedValue) -> TypedValue:
        return value if value.kind == BOOL else TypedValue(BOOL, value.lanes, value.value != 0)

    def absolute(self, value: TypedValue) -> TypedValue:
        return TypedValue(value.kind, value.lanes, np.abs(value.value))

    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        x, y, kind = a.value, b.value, result_kind(operator, a, b)
        if operator not in "/%":
            made = self.BINARY[operator](x, y)
        else:
            divide = np.remainder if operator == "%" else np.floor_divide if kind == INT else np.divide
            made = np.where(np.equal(y, 0), 0, divide(x, np.where(np.equal(y, 0), 1, y)))[()]
        return TypedValue(kind, a.lanes or b.lanes, made)

    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        return TypedValue(BOOL, a.lanes or b.lanes, self.COMPARE[operator](a.value, b.value))

    def over_lanes(self, name: str, value: TypedValue) -> TypedValue:
        words = self._words(4 * EXEC, 2)
        active = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
        held = value.value[active]
        return TypedValue(BOOL, False, bool(held.any() if name == "any" else held.all()))
