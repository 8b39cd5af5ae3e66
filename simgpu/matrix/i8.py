"""Sums of products of 16-bit integers, two steps of the sum in each 32-bit lane of the host (AVX-512's vpmaddwd).

Steps 2s and 2s + 1 must be neighbours in a lane's registers, as they are wherever an element has 16 bits or fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.jit import host
from simgpu.machine.lane_ops import I16, I32, I64, LLVMOps
from simgpu.machine.layout import LANES, ROW
from simgpu.matrix.fragments import GROUP, Spread
from simgpu.matrix.operand_cache import Kept
from simgpu.matrix.sums import VI, Accumulator, Groups, splat


class Pairs:
    """One operand's integers (of 16 bits each, as <64 x i32> rows) at `pointer`: rows 2r and 2r + 1 as one where row 2r was."""

    def __init__(self, spread: Spread, pointer: Any) -> None:
        self.frame = spread.frame
        self.pointer = pointer
        self.ops = spread.ops

    def store(self, row: Any, low: Any, high: Any) -> None:
        """row: the first's number, an int or i64."""
        build = self.frame.build
        half = build.and_(low, self.ops.constant(I32, 0xFFFF))
        pair = build.or_(half, build.shl(high, self.ops.constant(I32, 16)))
        offset = row * ROW if isinstance(row, int) else build.mul(row, ir.Constant(I64, ROW))
        self.frame.store(pair, self.frame.at(self.pointer, offset), 64)


def serves(groups: Groups) -> bool:
    """Whether the host has the instruction, and steps come in such pairs."""
    walk = groups.walk
    if not host().has_wide_words or not walk.regular or walk.index is not None or walk.steps % 2:
        return False
    even = [places[:, ::2] for places in (walk.a, walk.b)]
    odd = [places[:, 1::2] for places in (walk.a, walk.b)]
    return all((e // LANES % 2 == 0).all() and (o == e + LANES).all() for e, o in zip(even, odd, strict=True))


def dot(groups: Groups, group: Any, steps: list[int], a: Pairs, b: Pairs) -> Any:
    """Sum (<16 x i32>) over `steps`, an even number that starts with an even one."""
    build = groups.build
    kind = ir.VectorType(I16, 2 * GROUP)
    total: Any = None
    for step in steps[::2]:
        pairs = groups.a(a.pointer, I32, group, step), groups.b(b.pointer, I32, group, step)
        words = [build.bitcast(pair, kind) for pair in pairs]
        products = intrinsics.call(build, "llvm.x86.avx512.pmaddw.d.512", VI, words)
        total = products if total is None else build.add(total, products)
    return total


def integer_sum(groups: Groups, c: Accumulator, a: Spread, b: Spread, clamp: bool) -> None:
    """i8: exact products and sum, added to C with wrap or saturation."""
    build = groups.build
    ops = LLVMOps(build, GROUP)
    steps = list(range(groups.walk.steps))
    products = _pair_products(groups, steps, a, b) if serves(groups) else _single_products(groups, steps, a, b)

    def one(group: Any) -> None:
        total, old = products(group), c.load(group, VI)
        c.store(group, ops.intrinsic("sadd.sat", I32, [old, total]) if clamp else build.add(old, total))

    groups.run(one)


def _pair_products(groups: Groups, steps: list[int], a: Spread, b: Spread) -> Callable[[Any], Any]:
    left, right = (_paired(spread, which) for which, spread in enumerate((a, b)))
    return lambda group: dot(groups, group, steps, left, right)


def _single_products(groups: Groups, steps: list[int], a: Spread, b: Spread) -> Callable[[Any], Any]:
    build = groups.build
    left, right = (_single(spread, which) for which, spread in enumerate((a, b)))

    def total(group: Any) -> Any:
        found: Any = splat(VI, 0)
        for step in steps:
            product = build.mul(groups.a(left, I32, group, step), groups.b(right, I32, group, step))
            found = build.add(found, product)
        return found

    return total


def _paired(spread: Spread, which: int) -> Pairs:
    kept = Kept(spread, which, "pairs")
    pairs = Pairs(spread, kept.take(spread.rows * ROW))
    with kept.renewed():
        for row in range(0, spread.rows, 2):
            pairs.store(row, spread.integer(row), spread.integer(row + 1))
    return pairs


def _single(spread: Spread, which: int) -> Any:
    kept = Kept(spread, which, "integers")
    pointer = kept.take(spread.rows * ROW)
    with kept.renewed():
        spread.store(pointer, spread.integer)
    return pointer
