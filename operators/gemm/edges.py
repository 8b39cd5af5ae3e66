"""Clocks of a GEMM's last K step if its loads go to the ends of rows (`asm.parts.staging`), not past the matrix.

    last k              if k does not fill the step
    tiles at edges      of rows that are adjacent in memory (B stored (k,n), A stored (k,m)), if the edge cuts a chunk

Each chunk, the load of a lane, has an offset of its own. If the rows' end cuts chunks, their elements are moved in registers
before they are written to LDS. All other steps load whole chunks at any alignment.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.descriptor import WAVEFRONT, HardwareDescriptor
from simgpu.operators.cost import choose
from simgpu.operators.gemm.limits import aligned_bytes
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.resources import WIDEST

_SLOT = 4  # clocks of a wave for an instruction
_LOADED, _MOVED = 8, 12  # instructions for a chunk to be loaded, and to be moved
_CLIPPED = 3  # for an element by whole lines, in each of the last two steps


def last_step_clocks(p: GemmProblem, d: HardwareDescriptor, t: Any) -> Any:
    """Returns the additional clocks of the last step of tiles t."""
    threads, ends, clocks = t.waves_m * t.waves_n * WAVEFRONT, p.k % t.tile_k > 0, 0.0
    sides = (("A", p.element, p.trans_a, p.m, t.tile_m), ("B", p.element_b, not p.trans_b, p.n, t.tile_n))
    for name, kind, across, size, rows in sides:
        chunk = max(1, WIDEST * 8 // kind.bits)
        loads = rows * t.tile_k / (threads * chunk)
        cut = (size if across else p.k) % chunk > 0
        by_lines = aligned_bytes(p, d, t, name) > 0
        clocks = clocks + choose(by_lines, 2 * chunk * _CLIPPED, _LOADED + _MOVED * cut) * loads * _SLOT
        ends = ends | (across and cut)
    return choose(ends, clocks, 0.0)
