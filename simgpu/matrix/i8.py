"""Emits sums of products of 16-bit integers, two steps of the sum in each 32-bit lane of the host (x86's VPMADDWD), and i8 sums.

The elements of steps 2s and 2s + 1 must be in consecutive rows of a lane, as elements of at most 16 bits are. i8 elements need not
be spread at all if the host adds four products of bytes in each lane (`i8_quads`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu.machine.host import host
from simgpu.machine.intrinsics import call_by_parts, sadd_sat
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import I16, I32, IrValue
from simgpu.matrix.fragments import GROUP, Spread, copy_of
from simgpu.matrix.i8_quads import BYTES, quad_places, sum_quads
from simgpu.matrix.operand_cache import CacheEntry
from simgpu.matrix.sums import VI, Accumulator, Groups


class Pairs:
    """An operand's integers (16 bits each, as <64 x i32> rows) at `pointer`: rows 2r and 2r + 1 are stored as one, in row 2r."""

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer

    def store(self, row: Any, low: IrValue, high: IrValue) -> None:
        """Stores two rows; row: the first's number, an int or i64."""
        pair = low & 0xFFFF | high << 16
        self.pointer.at(row * ROW).store(pair, 64)

    def shift_down(self, row: Any, distance: IrValue) -> tuple[()]:
        """Shifts both integers of each lane right, with sign; row: the first's number."""
        place = self.pointer.at(row * ROW)
        words = place.load(ir.VectorType(I16, 2 * LANES), 64)
        place.store(words.ashr(distance.trunc(I16)), 64)
        return ()


def serves(groups: Groups) -> bool:
    """True if the host has VPMADDWD for 256 bits or more, and the steps come in pairs of consecutive rows."""
    walk = groups.walk
    if not host().word_lanes or not walk.regular or walk.index is not None or walk.steps % 2:
        return False
    even = [places[:, ::2] for places in (walk.a, walk.b)]
    odd = [places[:, 1::2] for places in (walk.a, walk.b)]
    return all((e // LANES % 2 == 0).all() and (o == e + LANES).all() for e, o in zip(even, odd, strict=True))


def dot(groups: Groups, group: Any, steps: list[int], a: Pairs, b: Pairs) -> Any:
    """Returns the sum (<16 x i32>) over `steps`, an even number of them, starting with an even one."""

    def of_two(step: int) -> IrValue:
        words = ir.VectorType(I16, 2 * GROUP)
        left, right = groups.a(a.pointer, I32, group, step), groups.b(b.pointer, I32, group, step)
        return _add_products(left.bitcast(words), right.bitcast(words))

    return sum(of_two(step) for step in steps[::2])


def _add_products(left: IrValue, right: IrValue) -> IrValue:
    """Multiplies <32 x i16>, and adds neighbouring products to <16 x i32>."""
    lanes = host().word_lanes
    name = {32: "llvm.x86.avx512.pmaddw.d.512", 16: "llvm.x86.avx2.pmadd.wd"}[lanes]
    return call_by_parts(name, ir.VectorType(I32, lanes // 2), (left, right), lanes)


def integer_sum(groups: Groups, c: Accumulator, a: Spread, b: Spread, clamp: bool, aliased: bool) -> None:
    """Emits i8: exact products and sum, added to C with wrap or saturation. aliased: D overlaps A or B."""

    def add(group: Any, total: Any) -> None:
        old = c.load(group, VI)
        c.store(group, sadd_sat(old, total) if clamp else old + total)

    if (quads := quad_places(groups)) is not None:
        left, right = (copy_of(a.frame, part.registers, part.rows // BYTES) if aliased else part.registers for part in (a, b))
        sum_quads(groups, quads, left, right, add)
        return
    summed = products(groups, a, b)
    steps = list(range(groups.walk.steps))
    groups.run(lambda group: add(group, summed(group, steps)))


def products(groups: Groups, a: Spread, b: Spread, paired: bool = True) -> Callable[[Any, list[int]], Any]:
    """Returns a function that emits the sum (<16 x i32>) of a group's products over steps. paired: the integers have 16 bits."""
    if paired and serves(groups):
        pairs = [_pairs_of(spread, which) for which, spread in enumerate((a, b))]
        return lambda group, steps: dot(groups, group, steps, *pairs)
    left, right = (_single(spread, which) for which, spread in enumerate((a, b)))
    return lambda group, steps: sum(groups.product(left, right, I32, group, step) for step in steps)


def _pairs_of(spread: Spread, which: int) -> Pairs:
    entry = CacheEntry(spread, which, "pairs")
    pairs = Pairs(entry.reserve(spread.rows * ROW))

    def store_part(part: Spread, first: Any) -> None:
        for row in range(0, part.rows, 2):
            pairs.store(first + row, part.integer(row), part.integer(row + 1))

    with entry.if_stale():
        spread.by_registers(store_part)
    return pairs


def _single(spread: Spread, which: int) -> Any:
    entry = CacheEntry(spread, which, "integers")
    pointer = entry.reserve(spread.rows * ROW)
    with entry.if_stale():
        spread.store(pointer, type(spread).integer)
    return pointer
