"""Layout of a matrix instruction's operands in registers, in closed form.

A place is (register, lane, low_bit): the 32-bit register counted from the operand's first, the lane 0..63 and the
element's lowest bit in it. Rows and columns are [i][k] for A and IDX, [k][j] for B, [i][j] for C and D. The tests compare
every formula element by element with AMD's Matrix Instruction Calculator 1.3.2; `MatrixInstruction.is_verified` is False for
layouts without published evidence. Functions take ints or integer arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT

Index = Any  # an int or an integer array
RegisterBits = tuple[Index, Index, Index]  # a place: (register, lane, low_bit), of the type of its indices


# BLGP: the lane whose B value lane l reads (ISA guides, "BLGP").
_BLGP = (
    lambda lane: lane,
    lambda lane: lane % 32,
    lambda lane: 32 + lane % 32,
    lambda lane: (lane + 16) % 64,
    lambda lane: lane % 16,
    lambda lane: 16 + lane % 16,
    lambda lane: 32 + lane % 16,
    lambda lane: 48 + lane % 16,
)


def blgp_lane(lane: Index, blgp: int) -> Index:
    """Returns the lane that `lane` reads B from under BLGP 0..7."""
    return _BLGP[blgp](lane)


def broadcast_block(block: Index, cbsz: int, abid: int) -> Index:
    """Returns the block of A that product `block` reads: groups of 2^cbsz blocks share their abid-th."""
    return block if cbsz == 0 else (block & ~((1 << cbsz) - 1)) + abid


def input_place(
    outer: Index, kk: Index, block: Index, *, size: int, k: int, blocks: int, bits: int, run: int = 0
) -> RegisterBits:
    """Returns the place of an element of A (outer = i, size = m) or B (outer = j, size = n), `bits` wide.

    64/(size·blocks) lane groups have equal parts of k, with consecutive k packed little-endian. With `run`, a lane's part
    consists of runs of that many k, one from every `run`·groups consecutive k.
    """
    groups = WAVEFRONT // (size * blocks)
    per_lane = k // groups
    if run and run < per_lane:
        group = kk // run % groups
        slot = kk // (run * groups) * run + kk % run
    else:
        group, slot = kk // per_lane, kk % per_lane
    low = slot * bits
    return low // 32, (group * blocks + block) * size + outer, low % 32


def input_element(
    low: Index, lane: Index, *, size: int, k: int, blocks: int, bits: int, run: int = 0
) -> tuple[Index, Index, Index]:
    """Returns the element (outer, kk, block) at bit `low` of a lane: the inverse of `input_place`."""
    groups = WAVEFRONT // (size * blocks)
    per_lane = k // groups
    group, slot = lane // (size * blocks), low // bits
    if run and run < per_lane:
        kk = slot // run * run * groups + group * run + slot % run
    else:
        kk = group * per_lane + slot
    return lane % size, kk, lane // size % blocks


def output_place(i: Index, j: Index, block: Index, *, m: int, n: int) -> RegisterBits:
    """Returns the place of an element of a 32-bit C or D.

    The rows of all blocks, one block after another, are dealt to the 64/n lane groups four at a time.
    """
    groups = WAVEFRONT // n
    row = block * m + i
    return row // (4 * groups) * 4 + row % 4, row // 4 % groups * n + j, 0 * row


def output_element(register: Index, lane: Index, *, m: int, n: int) -> tuple[Index, Index, Index]:
    """Returns the element (i, j, block) at a place: the inverse of `output_place`."""
    groups = WAVEFRONT // n
    row = register // 4 * 4 * groups + lane // n * 4 + register % 4
    return row % m, lane % n, row // m


def output_place_f64(i: Index, j: Index, block: Index, *, n: int, blocks: int) -> RegisterBits:
    """Returns the place of an element of an f64 C or D, a register pair: rows are dealt to the lane groups one at a time."""
    groups = WAVEFRONT // (n * blocks)
    return i // groups * 2, (i % groups * blocks + block) * n + j, 0 * i


def output_element_f64(register: Index, lane: Index, *, n: int, blocks: int) -> tuple[Index, Index, Index]:
    """Returns the element (i, j, block) at a place: the inverse of `output_place_f64`; `register` is a pair's low one."""
    groups = WAVEFRONT // (n * blocks)
    return register // 2 * groups + lane // (n * blocks), lane % n, lane // n % blocks


def grid(blocks: int, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the index arrays (block, row, column), each of shape (blocks, rows, columns)."""
    block, row, column = np.indices((blocks, rows, columns))
    return block, row, column
