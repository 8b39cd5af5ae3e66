"""Registers and LDS of the register-chained attention kernel, in closed form; `asm` allocates these ranges and no others.

A wave owns q queries (nq = q/16 atoms) and, of each key step, its own keys (na = keys/16 atoms). Letters: e bytes of an element, d
head dimension. Per lane, in 32-bit registers:

  Q^T, K, V fragments   q*d*e/256, keys*d*e/256, keys*d*e/256       V of 2 bytes again once its rows are interleaved
  S^T, P^T, O^T         nq*na*4, nq*na*e (in place of S^T where both may be ArchVGPRs and e = 4), q*d/64
  statistics            3*nq: reference, partial row sum, threshold
"""

from __future__ import annotations

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype as find_dtype
from simgpu.operators.resources import RegisterRange, scalar_ranges

ATOM = 16  # rows and columns of the matrix instruction, on every target and type
FRAGMENT_BYTES = 16  # one load a lane
WAVES = 4  # one a SIMD, each with its own keys
TEMPORARIES = 8
# Work-item id, lane's row and group, key offset, address of the exchange between lane halves.
ADDRESSES = 5
# Behind the loop: four waves' partial O of a work-item, the sum on its way, addresses; beside factors and addresses by width.
END = 22
PAD = 4  # words behind each row of a partial O in LDS: rows of 16 lanes start in different banks
ARGUMENT_WORDS = 21  # four pointers; lq, lk, strides of rows and of heads of four arrays, heads, window, scale
COORDINATES = 4  # wave, first query, head, head of K and V
KEYS = 7  # the block's queries and where their keys begin and end
LOOP_RANGES = ("Q fragments", "K fragments", "V rows", "V fragments", "S", "exponents", "P")  # free behind the loop
STATISTICS = ("references", "row sums", "thresholds")


def key_atoms(d: int, e: int) -> int:
    """Atoms of keys a wave and step: two of 16 bits, where d leaves room for both and their interleaved V; else one."""
    return 2 if e < 4 and d <= 128 else 1


def column_blocks(d: int, e: int) -> tuple[tuple[int, int], ...]:
    """(first column, atoms) of the blocks of V's columns that one load a lane covers: 16 bytes a lane where d allows."""
    blocks, column = [], 0
    while column < d:
        wide = FRAGMENT_BYTES // e
        while wide * ATOM > d - column:
            wide //= 2
        blocks.append((column, wide))
        column += wide * ATOM
    return tuple(blocks)


def registers(d: int, dtype: str, descriptor: HardwareDescriptor, queries: int) -> tuple[RegisterRange, ...]:
    """The named ranges of a wave with this many queries (a multiple of 16)."""
    kind = find_dtype(dtype)
    e, words = kind.bytes, find_dtype(kind.accumulator).registers
    nq, na = queries // ATOM, key_atoms(d, e)
    blocks = column_blocks(d, e)
    fragments = na * ATOM * d * e // 256
    scores = nq * na * 4 * words
    ranges = [
        ("Q fragments", "arch", queries * d * e // 256),
        ("K fragments", "arch", fragments),
        ("V rows", "arch", 4 * na * sum(max(1, wide * e // 4) for _, wide in blocks)),
        ("V fragments", "arch", fragments if e < 4 else 0),
        ("S", "arch" if descriptor.unified_vgprs else "acc", scores),
        ("exponents", "arch", 0 if descriptor.unified_vgprs or e >= 4 else -(-nq // 2) * na * 4),
        ("P", "arch", nq * na * e if e < 4 else 0 if descriptor.unified_vgprs else scores),
        ("O", "acc", queries * d // 64 * words),
        ("zero", "acc", 0 if descriptor.unified_vgprs else 4),
        *((name, "arch", nq * words) for name in STATISTICS),
        ("addresses", "arch", ADDRESSES + len({wide for _, wide in blocks})),
        ("temporaries", "arch", TEMPORARIES),
    ]
    freed = sum(count for name, file, count in ranges if file == "arch" and name in LOOP_RANGES)
    ranges.append(("end", "arch", max(0, nq + END + 2 * len({wide for _, wide in blocks}) - freed)))
    return tuple(RegisterRange(*row) for row in ranges)


def scalars(d: int, dtype: str, split: bool) -> tuple[RegisterRange, ...]:
    """SGPRs of a wave; split: whether workgroups share a head's keys."""
    e = find_dtype(dtype).bytes
    na = key_atoms(d, e)
    return scalar_ranges(
        arguments=ARGUMENT_WORDS + 2 * split,
        coordinates=COORDINATES + split,
        keys=KEYS,
        buffers=4 * (3 + split),
        steps_and_bytes=4,
        rows=5 * na - 2,
        masks=1,
        byte_selectors=2 if e < 4 else 0,
        temporaries=5 if split else 3,
    )


def merge_row_words(d: int, e: int) -> int:
    """32-bit words from one row of a partial O in LDS to the next."""
    return ATOM * column_blocks(d, e)[0][1] + PAD


def merge_bytes(d: int, e: int) -> int:
    """LDS bytes of the waves' partial O, 16 queries by one block of columns at a time."""
    return WAVES * ATOM * merge_row_words(d, e) * 4


def statistics_bytes(queries: int) -> int:
    """LDS bytes of the waves' references and row sums."""
    return WAVES * 2 * queries * 4


def merge_traffic(d: int, queries: int, size: int) -> int:
    """LDS bytes that a block's waves write, and read once again, to add their states of some queries: O, maximum and sum."""
    return WAVES * queries * (d + 2) * size
