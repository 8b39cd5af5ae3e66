"""Clocks of the vector cache for the loads that stage a K step, in closed form: `layout` without its places.

A lane loads `width` bytes at once. The address coalescer takes 16 lanes of a dword, or 4 lanes of more, and passes each line of
the vector cache that they touch in a clock. If the lanes are in several rows of memory, they take four clocks for each dword that
meets another in its bank (te42kyfo/gpu-benches, gpu-strides). So loads of 8 bytes pass 32 bytes a clock, and rows at odd addresses
take more: 1.98 times as many clocks with lines of 64 bytes, 1.49 with lines of 128.

An operand that is transposed on its way to LDS is staged as if its rows were padded to the next power of two.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from simgpu.hardware.descriptor import WAVEFRONT, HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.operators.cost import choose, largest, minimum
from simgpu.operators.gemm.limits import (
    LINE_TYPES,
    WORD,
    aligned_bytes,
    atom_of,
    lines_of,
    loads_begin,
    padded_rows,
    power_in,
    side_of,
)
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.resources import WIDEST

LINE = 64  # bytes that the vector cache passes in a clock
ROW_LANES = 8  # consecutive lanes that write to 8 slots at once: to every 16-byte place of an LDS line once


def staged_rows(p: GemmProblem, rows: Any, across: bool) -> Any:
    """Returns the rows for which an operand's loads and LDS writes are issued. across: its rows, not k, are contiguous."""
    return padded_rows(rows) if across and p.dtype not in LINE_TYPES else rows


def load_clocks(p: GemmProblem, d: HardwareDescriptor, t: Any, name: str) -> Any:
    """Returns the clocks of the loads of "A" or "B"; 0 for preshuffled matrices and elements that share bytes.

    t: a Tiling, or Tiles.
    """
    is_b = name == "B"
    (rows, kind, across), waves = side_of(p, name, t), t.waves_n if is_b else t.waves_m
    if kind.bits < 8 or (is_b and p.preshuffle_b):
        return 0.0
    threads, chunk = t.waves_m * t.waves_n * WAVEFRONT, WIDEST // kind.bytes
    share, loads, adjacent = rows * t.tile_k // threads, rows * t.tile_k, rows if across else t.tile_k
    if across and p.dtype not in LINE_TYPES:
        loads = staged_rows(p, rows, across) * t.tile_k
        wide = power_in(rows // waves // atom_of(p, d).m, WIDEST // dtype(p.accumulator).bytes)
        vec = rows_of_a_load(rows, wide, kind.bytes, share)
        depth = unit_depth(loads, threads, vec, kind.bytes, chunk)
        adjacent = choose(depth < chunk, row_lanes(rows, vec, kind.bytes, True) * vec, rows)
        loads = largest(loads, threads * vec * depth)
    else:
        vec = choose(aligned_bytes(p, d, t, name) > 0, 1, power_in(share, power_in(rows, chunk) if across else chunk))
    lanes = choose(vec * kind.bytes > WORD, 4, 16)
    group, run = lanes * vec * kind.bytes, minimum(adjacent, lanes * vec) * kind.bytes
    line = pipelines(d.arch).cache_line
    clocks = choose(run < group, minimum(lanes, 4 * group / run), lines_of(group, loads_begin(p, d, t, name), line))
    return loads / vec / lanes * clocks * (1 if is_b else p.streams_a)


def stored_lines(run: Any, row: int) -> Any:
    """Returns the bytes of the lines that stores touch, over the bytes stored. L2 takes stores by lines of 64 bytes.

    run: bytes that adjacent lanes store. row: bytes of which the beginnings of rows are multiples.

    >>> stored_lines(64, 4096), stored_lines(64, 1583 * 4), stored_lines(256, 1583 * 4)
    (1.0, 1.9375, 1.234375)
    """
    return lines_of(run, gcd(row, LINE), LINE) * LINE / run


def rows_of_a_load(rows: Any, wide: Any, nbytes: int, share: Any, read: int = WIDEST) -> Any:
    """Returns the rows that a lane loads at once, of an operand that is transposed.

    8 rows of 16 bits go to four interleaved atoms, if that leaves pieces of at least half a chunk of 16 bytes. 4 rows are for an
    odd number of atoms, or of pairs, whose lanes are assigned more rows than there are.

    wide: atoms whose rows interleave. nbytes: of an element. share: elements of a lane. read: bytes of a lane's read of LDS.
    """
    least = choose((rows < padded_rows(rows)) & (nbytes < WORD), 4, max(1, WORD // nbytes))
    if nbytes == WORD // 2 and read == WIDEST:
        least = choose((wide == 4) & (2 * share >= WIDEST // nbytes * 8), 8, least)
    return largest(wide, least)


def unit_depth(elements: Any, threads: int, vec: Any, nbytes: int, chunk: int) -> Any:
    """Returns the k of a block that a lane transposes, of `elements` in all. vec: its rows. chunk: k of a read of LDS."""
    return largest(max(1, WORD // nbytes), minimum(chunk, elements // threads // vec))


def row_lanes(rows: Any, vec: Any, nbytes: int, parts: Any) -> Any:
    """Returns the consecutive lanes that load transposed units of the same k.

    They are 8, or 16 whose loads of a dword fill a line of 64 bytes. The coalescer takes 16 lanes at a time. One line takes a
    clock. Parts of two lines take eight, because their banks meet (te42kyfo's gpu-strides on MI210). Units of 16 lanes are parts
    of chunks (`parts`), so their LDS writes take two turns.
    """
    return choose((vec * nbytes == WORD) & (rows % (2 * ROW_LANES * vec) == 0) & parts, 2 * ROW_LANES, ROW_LANES)
