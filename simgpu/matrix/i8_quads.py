"""Emits dense i8 sums straight from the registers: four products of bytes in each 32-bit lane of the host (x86's VPDPBUSD).

A register of A or B holds four consecutive k of a lane. VPDPBUSD multiplies unsigned bytes by signed ones. So B counts as B + 128,
which flips its bytes' highest bits, and each row of A's elements is summed once to take 128 of them away again.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir

from simgpu.machine.frame import Frame
from simgpu.machine.host import host
from simgpu.machine.intrinsics import call_by_parts
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.values import I32, IrValue, constant
from simgpu.matrix.fragments import GROUP, stack
from simgpu.matrix.sums import VI, Groups, separate

BYTES = 4  # of a register's lane, each a step
HIGHEST_BITS = 0x80808080  # of four bytes; as unsigned bytes, four times 128
LINE = 4 * GROUP
CHAINS = 4  # sums at a time: each of VPDPBUSD's results takes several clocks, and a host begins one or two a clock


class SharedColumns(NamedTuple):
    """Groups of 16 lanes of D that multiply the same elements of B."""

    first: int  # number of the first group
    apart: int  # distance of their numbers
    groups: int
    b: int  # bytes to B's elements at `QuadPlaces.b_steps`


class QuadPlaces(NamedTuple):
    """Places of the dwords that a dense product multiplies, as byte offsets into the operands' registers."""

    a_steps: list[int]  # to 16 dwords of A that hold the rows of the first groups, by four steps
    a_groups: np.ndarray  # from there to each group's dword
    b_steps: list[int]
    alike: list[SharedColumns]


def quad_places(groups: Groups) -> QuadPlaces | None:
    """Returns the places if the host has VPDPBUSD and each dword of an operand holds four consecutive steps, else None."""
    walk = groups.walk
    if not host().dots_bytes or not walk.regular or walk.index is not None or walk.steps % BYTES:
        return None
    a, b = (_dwords(places) for places in (walk.a[..., 0], walk.b[..., 0]))
    if a is None or b is None:
        return None
    (a_steps, a_groups), (b_steps, b_groups) = separate(a), separate(b)
    least = a_groups.min()
    a_steps, a_groups = a_steps + least, a_groups - least
    found = [_alike(int(start), np.flatnonzero(b_groups == start)) for start in np.unique(b_groups)]
    lines = a_groups.max() // LINE + 1
    in_lines = not (a_steps % LINE).any() and not ((b_steps + b_groups[:, None]) % LINE).any()
    in_row = (a_steps % ROW + lines * LINE <= ROW).all()
    alike = [each for each in found if each is not None]
    if not in_lines or not in_row or len(alike) < len(found):
        return None
    return QuadPlaces(a_steps.tolist(), a_groups, b_steps.tolist(), alike)


def _dwords(places: np.ndarray) -> np.ndarray | None:
    """Returns the bytes to the dword of each four steps, int64 (groups, steps // 4); None if these are not one dword.

    places: (groups, steps), as in `FragmentWalk`.
    """
    quads = places.reshape(len(places), -1, BYTES)
    row, lane = np.divmod(quads[..., 0], LANES)
    if (row % BYTES).any() or (quads != quads[..., :1] + LANES * np.arange(BYTES)).any():
        return None
    return row // BYTES * ROW + lane * 4


def _alike(start: int, numbers: np.ndarray) -> SharedColumns | None:
    """Returns groups of D by their numbers; None if these are unevenly spaced, or no multiple of CHAINS. start: B's first byte."""
    apart = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 1
    if len(numbers) % CHAINS or (numbers != numbers[0] + apart * np.arange(len(numbers))).any():
        return None
    return SharedColumns(int(numbers[0]), apart, len(numbers), start)


def sum_quads(groups: Groups, quads: QuadPlaces, a: Any, b: Any, add: Callable[[Any, IrValue], None]) -> None:
    """Emits the sums. a, b: pointers to the registers, which D does not overlap.

    add(group, total): emits the use of the sum of products (<16 x i32>) of a group (i64) of lanes of D.
    """
    table, rows = groups.table(quads.a_groups), _sums_of_rows(groups.frame, quads, a)

    def sum_alike(alike: SharedColumns) -> None:
        words = [b.at(alike.b + step).load(VI, LINE) ^ HIGHEST_BITS for step in quads.b_steps]

        def total_of(group: Any) -> IrValue:
            row = groups.entry(table, group)
            total = rows.at(row).load(I32).splat(GROUP)
            for step, word in zip(quads.a_steps, words, strict=True):
                total = _add_products(total, word, a.at(row).at(step).load(I32).splat(GROUP))
            return total

        def sum_some(number: IrValue) -> tuple[()]:
            start = number * (alike.apart * CHAINS) + alike.first
            some = [start + alike.apart * chain for chain in range(CHAINS)]
            for group, total in zip(some, [total_of(group) for group in some], strict=True):
                add(group, total)
            return ()

        groups.frame.loop(alike.groups // CHAINS, sum_some)

    for alike in quads.alike:
        sum_alike(alike)


def _sums_of_rows(frame: Frame, quads: QuadPlaces, a: Any) -> Any:
    """Emits -128 times the sum of each row of A; returns a pointer to them (i32), at the offsets `a_groups`."""
    lines = range(0, int(quads.a_groups.max()) + 1, LINE)
    sums = stack(frame, len(lines) * LINE)
    of_128 = frame.value(constant(VI, HIGHEST_BITS))
    for line in lines:
        totals = [frame.value(constant(VI, 0))] * CHAINS
        for number, step in enumerate(quads.a_steps):
            chain = number % CHAINS
            totals[chain] = _add_products(totals[chain], of_128, a.at(step + line).load(VI, LINE))
        sums.at(line).store(-functools.reduce(operator.add, totals), LINE)
    return sums


def _add_products(total: IrValue, unsigned: IrValue, signed: IrValue) -> IrValue:
    """Adds the products of four bytes to each lane; all arguments are <16 x i32>."""
    lanes = host().word_lanes // 2
    return call_by_parts(f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", ir.VectorType(I32, lanes), (total, unsigned, signed), lanes)
