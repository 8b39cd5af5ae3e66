"""f64 matrix instructions: D[i][j] = fma(A[i][k], B[k][j], ...) over ascending k, from C, a register pair of D at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import F64, I64, Value, default_nan, fma, joined
from simgpu.matrix.fragments import DROW, Walk, elements, stack
from simgpu.matrix.sums import told

WIDTH = 8  # lanes of one host vector of doubles
PAIR = 2 * ROW  # bytes of 64 doubles
SIGN = 1 << 63


def double_sum(frame: Frame, walk: Walk, d: Any, c: Callable[[int], Value], a: Any, b: Any) -> None:
    """walk: for groups of 8 lanes; d: pointer to the registers; c(pair): <64 x double>; a, b: pointers to rows of doubles."""
    per_pair = LANES // WIDTH
    for pair in range(walk.groups // per_pair):
        old = c(pair)
        parts = [
            _summed(frame, walk, pair * per_pair + part, old.shuffled(range(part * WIDTH, (part + 1) * WIDTH)), a, b)
            for part in range(per_pair)
        ]
        frame.write_wide(d.at(pair * PAIR), joined(parts, LANES)[0].bitcast(ir.VectorType(I64, LANES)), None)


def _summed(frame: Frame, walk: Walk, group: int, old: Value, a: Any, b: Any) -> Value:
    total = old
    for step in range(walk.steps):
        total = fma(elements(a, walk.a[group, step], F64), elements(b, walk.b[group, step], F64), total)
    told(frame, group, total, lambda: old)
    return default_nan(total)


def doubles(frame: Frame, registers: Any, pair: int, negate: bool) -> Value:
    """<64 x double> of a register pair."""
    bits = frame.read_wide(registers.at(pair * PAIR), 64)
    return (bits ^ SIGN if negate else bits).bitcast(DROW)


def spread(frame: Frame, registers: Any, count: int, negate: bool) -> Any:
    """Pointer to a copy of `count` registers as rows of 64 doubles."""
    rows = stack(frame, count * ROW)
    for pair in range(count // 2):
        rows.at(pair * PAIR).store(doubles(frame, registers, pair, negate), 64)
    return rows
