"""Time of a GEMM whose kernel loads and stores one element at a time (`asm.parts.staging`, `asm.gemm`).

    every step      elements narrower than a register, in rows that are not a whole number of registers apart
    the last step   if k does not fill it
    tiles at edges  of rows that are adjacent in memory (B stored (k,n), A stored (k,m)), if the edge cuts a wide load

Each element is compared with the edge and has a load of its own. Elements narrower than a register are packed as soon as all
of a register's elements have arrived, so a wave waits for each register: for the vector cache, or for L2 or memory if its load
is the first to touch a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.operators.cost import choose, largest, minimum
from simgpu.operators.gemm.problem import GemmProblem

_WAVE = 64
_WORD, _WIDEST = 4, 16  # bytes of a register, and of a lane's widest load
_LINE = 64  # bytes that the vector cache delivers in a clock
_TOGETHER = 16  # lanes that the coalescer accepts at a time, for loads up to 4 bytes; a quarter for wider ones
_MOST_LINES = 7  # most clocks for lanes of different lines and banks
_ISSUE = 24  # clocks of a wave for an element: limit, comparison, two idle turns, selection, load, a turn of four each
_SLOT = 4  # clocks of a wave for an instruction


@dataclass(frozen=True)
class ByElements:
    """Clocks of a wave for a K step whose operands are loaded by elements."""

    apart: Any  # clocks in which it waits, or issues, while other waves may load
    served: Any  # clocks of the address coalescer, which serves one wave at a time


@dataclass(frozen=True)
class Edges:
    """Cost of tiles that load and store by elements."""

    step: ByElements  # a step of a tile anywhere
    last: ByElements  # the last step, with the k that is left
    at_edge: ByElements  # a step of a tile at an edge that cuts its loads
    always: bool  # True if every step is loaded by elements
    narrow: bool  # True if a register holds several elements, for which a wave waits
    cut: Any  # fraction of tiles that are at an edge that cuts their loads
    clipped: Any  # fraction of tiles that are stored by elements
    stored: Any  # additional bytes that such a tile writes to L2, as a multiple of the bytes of its results


def edges(p: GemmProblem, row: Pipelines, t: Any, missed: Any) -> Edges:
    """Returns the cost of loads and stores by elements for tiles t. missed: clocks of a load that misses the vector cache."""
    gx, gy = -(-p.n // t.tile_n), -(-p.m // t.tile_m)
    sides = _sides(p, t)
    inside = p.m / (gy * t.tile_m), p.n / (gx * t.tile_n)
    ends = tuple(1 - count * (1 - share) for count, share in zip((gy, gx), inside, strict=True))
    filled = p.k % t.tile_k / t.tile_k
    cut = 1 - (1 - sides[0].cut) * (1 - sides[1].cut)
    size = dtype(p.dtype_c).bytes
    whole = (p.m // t.tile_m) * (p.n // t.tile_n) / (gx * gy)
    narrow = size < _WORD and (p.ldc or p.columns_c) * size % _WORD
    at = tuple(choose(side.cut > 0, end, share) for side, end, share in zip(sides, ends, inside, strict=True))
    return Edges(
        _by_elements(row, t, sides, inside, missed),
        _by_elements(row, t, sides, tuple(share * filled for share in inside), missed),
        _by_elements(row, t, sides, at, missed),
        any(side.misaligned for side in sides), any(side.pack > 1 for side in sides), cut, 1.0 if narrow else 1 - whole,
        (_wide(t.tile_n // (t.waves_n * 16), _WIDEST // dtype(p.accumulator).bytes) - 1) * largest(*ends),
    )  # fmt: skip


def _by_elements(row: Pipelines, t: Any, sides: Any, inside: Any, missed: Any) -> ByElements:
    """Returns the clocks. inside: for each side, the fraction of its elements inside the matrix; others need no coalescer clock."""
    apart = served = 0.0
    for side, share in zip(sides, inside, strict=True):
        apart, served = apart + side.loads * _ISSUE, served + side.loads * side.clocks * share
        if side.pack > 1:
            groups, first = side.loads / side.pack, side.loads / side.vec
            touched = first + (groups - first) * side.touches(row.cache_line)
            apart = apart + groups * (row.cache_latency + (side.pack - 1) * _SLOT) + touched * (missed - row.cache_latency)
    return ByElements(apart, served)


@dataclass(frozen=True)
class _Side:
    loads: Any  # elements of a lane
    vec: Any  # elements of a wide load
    pack: int  # elements of a register
    clocks: Any  # clocks of the coalescer for one load of 64 lanes
    misaligned: bool
    cut: Any  # fraction of tiles that are at an edge that cuts a wide load
    apart: int  # bytes from one row of memory to the next
    runs: float  # rows of memory that a load of a wave touches

    def touches(self, line: int) -> float:
        """Returns the probability that loading a register touches a new line in some row.

        It is for the second and later registers of a wide load. Rows may begin anywhere in a line.
        """
        return 1 - (1 - _WORD / line) ** self.runs if self.apart % line else 0.0


def _sides(p: GemmProblem, t: Any) -> tuple[_Side, _Side]:
    return (
        _side(p.element.bits, p.trans_a, p.m, t.tile_m, t.waves_m, p.lda or (p.m if p.trans_a else p.k), False, t, p),
        _side(p.element_b.bits, not p.trans_b, p.n, t.tile_n, t.waves_n, p.ldb or (p.k if p.trans_b else p.n), True, t, p),
    )


def _side(
    bits: int, across: bool, size: int, rows: Any, waves: int, stride: int, interleaved: bool, t: Any, p: GemmProblem
) -> _Side:
    """Returns one side. across: True if its rows, not k, are contiguous; stride: elements from one row of memory to the next."""
    e = max(1, bits // 8)
    apart, pack = stride * bits // 8, max(1, _WORD // e)
    threads = t.waves_m * t.waves_n * _WAVE
    atoms = rows // (waves * 16)
    if not across:
        wide = 4 if interleaved else 1
        return _Side(rows * t.tile_k / threads, _WIDEST // e, pack, coalescer_clocks(_WIDEST, 64, apart * wide, min(e, 4)),
                     pack > 1 and apart % _WORD != 0, 0.0, apart, _WAVE * _WIDEST / 64)  # fmt: skip
    transposes = e < _WORD or p.dtype == "xf32"
    vec = _wide(atoms, 4) if transposes else _WIDEST // e
    vec = largest(vec, pack)
    held = 2.0 ** np.ceil(np.log2(rows)) if transposes else rows
    cuts = choose((size % rows != 0) & (size % vec != 0), 1 / -(-size // rows), 0.0)
    clocks = 0.0
    for each in np.unique(vec).tolist():
        clocks = choose(vec == each, coalescer_clocks(int(each) * e, 8 * int(each) * e, apart, e), clocks)
    return _Side(held * t.tile_k / threads, vec, pack, clocks,
                 pack > 1 and apart % _WORD != 0, cuts, apart, 1.0)  # fmt: skip


def _wide(atoms: Any, most: int) -> Any:
    """Returns the largest power of two that divides `atoms`, at most `most`."""
    atoms = atoms.astype(np.int64) if isinstance(atoms, np.ndarray) else int(atoms)
    return minimum(atoms & -atoms, most)


@lru_cache(maxsize=4096)
def coalescer_clocks(piece: int, run: int, stride: int, size: int) -> float:
    """Returns the coalescer's clocks for a load of `size` bytes by 64 lanes, averaged over starting addresses.

    Lanes are `piece` bytes apart within runs of `run` bytes; runs are `stride` bytes apart. The rule is that of
    `checks.path_trace.group_clocks`.
    """
    lanes = np.arange(_WAVE)
    places = lanes * piece % run + lanes * piece // run * stride
    together = _TOGETHER if size <= _WORD else _TOGETHER // 4
    clocks = 0.0
    starts = range(0, _LINE, _WIDEST)
    for start in starts:
        for group in (places + start).reshape(-1, together):
            lines, words = len(np.unique(group // _LINE)), np.unique(group // _WORD)
            if lines == 1:
                clocks += 1
            elif group[-1] - group[0] == (together - 1) * size:
                clocks += lines
            else:
                deepest = np.bincount(words % 16).max()
                clocks += min(together, max(min(lines, _MOST_LINES), 4 * deepest))
    return float(clocks) / len(starts)
