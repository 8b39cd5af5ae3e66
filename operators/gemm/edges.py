"""Clocks of a GEMM's last K step if its loads go to the ends of rows (`asm.parts.staging`), not past the matrix.

    last k              if k does not fill the step
    tiles at edges      of rows that are adjacent in memory (B stored (k,n), A stored (k,m)), if the edge cuts a chunk

Each chunk, the load of a lane, has an offset of its own. If the rows' end cuts chunks, their elements are moved in registers
before they are written to LDS. All other steps load whole chunks at any alignment.
"""

from __future__ import annotations

from typing import Any

from simgpu.operators.cost import choose
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.resources import WIDEST

_WAVE = 64  # lanes
_SLOT = 4  # clocks of a wave for an instruction
_LOADED, _MOVED = 8, 12  # instructions for a chunk to be loaded, and to be moved


def last_step_clocks(p: GemmProblem, t: Any) -> Any:
    """Returns the additional clocks of the last step of tiles t."""
    threads, ends, clocks = t.waves_m * t.waves_n * _WAVE, p.k % t.tile_k > 0, 0.0
    for kind, across, size, rows in ((p.element, p.trans_a, p.m, t.tile_m), (p.element_b, not p.trans_b, p.n, t.tile_n)):
        chunk = max(1, WIDEST * 8 // kind.bits)
        loads = rows * t.tile_k / (threads * chunk)
        cut = (size if across else p.k) % chunk > 0
        clocks = clocks + loads * _SLOT * (_LOADED + _MOVED * cut)
        ends = ends | (across and cut)
    return choose(ends, clocks, 0.0)


def run_step(p: GemmProblem, across: bool, is_b: bool) -> int:
    """Returns bytes of which the beginnings of an operand's rows in memory are multiples."""
    kind, stride, length = (p.element_b, p.ldb, p.n if across else p.k) if is_b else (p.element, p.lda, p.m if across else p.k)
    return int(kind.packed_bytes(stride or length))
