"""Stores of a tile of C, in closed form: the lines that they touch, and tiles that pass through LDS first.

A wave's lanes store the adjacent columns of one row of an atom, or of `wide` interleaved atoms. L2 takes stores by lines of 64
bytes. Where rows of C begin anywhere, a run of n bytes touches (n + 63)/n times its lines at most, so short runs take up to twice
as long. A tile that passes through LDS is stored by runs of its whole rows.
"""

from __future__ import annotations

from typing import Any

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import LDS_CLOCKS, STORE_BYTES, sustained_rates
from simgpu.operators.cost import choose, largest, minimum
from simgpu.operators.gemm.limits import atom_of, power_in
from simgpu.operators.gemm.loads import WORD, stored_lines
from simgpu.operators.gemm.problem import GATES, GemmProblem
from simgpu.operators.resources import WIDEST

ALIGNED = 16  # elements: rows of C that begin at multiples of this are stored as they are
GROUP = WIDEST // WORD  # adjacent columns of a lane after LDS
ROW_PAD = 16  # bytes after a row in LDS, so that rows of a wave's lane groups begin in different banks


def touched_lines(p: GemmProblem, d: HardwareDescriptor, t: Any, sums: bool) -> Any:
    """Returns the bytes of the lines that stores touch, over the bytes stored. sums: of partial products, else of C."""
    size, row = _row(p, sums)
    direct = stored_lines(_run(p, d, t, size, sums), row)
    return choose(passes_lds(p, d, t, sums), stored_lines(t.tile_n * size, row), direct)


def passes_lds(p: GemmProblem, d: HardwareDescriptor, t: Any, sums: bool) -> Any:
    """True if a tile passes through LDS on its way to C: if the lines that this saves take longer than LDS.

    Products with leaves do not: their lanes hold values of their rows. t: a Tiling, or Tiles.
    """
    size, row = _row(p, sums)
    if row % (ALIGNED * size) == 0 or dtype(p.accumulator).bytes != WORD or p.activation in GATES or p.leaves is not None:
        return False
    rates = sustained_rates(d)
    active = minimum(-(-p.m // t.tile_m) * -(-p.n // t.tile_n) * p.batch * t.split_k, d.num_cus)
    rate = minimum(STORE_BYTES, rates.row.l2_share * d.l2_bytes_per_clock / 2 / active)
    saved = stored_lines(_run(p, d, t, size, sums), row) - stored_lines(t.tile_n * size, row)
    stage = p.element.packed_bytes(t.tile_m * t.tile_k) + p.element_b.packed_bytes(t.tile_n * t.tile_k)
    fits = strip_bytes(t, atom_of(p, d).m) <= 2 * stage
    return fits & (saved * size * t.tile_m * t.tile_n / rate > lds_clocks(p, d, t))


def lds_clocks(p: GemmProblem, d: HardwareDescriptor, t: Any) -> Any:
    """Returns the clocks in which a tile passes through LDS: its bytes both ways, and for each strip two latencies and barriers."""
    rates, row = sustained_rates(d).rates, sustained_rates(d).row
    strips = t.tile_m // t.waves_m // atom_of(p, d).m
    return t.tile_m * t.tile_n * WORD * (1 / rates.lds_write + 1 / rates.lds_read) + strips * 2 * (LDS_CLOCKS + row.barrier)


def strip_bytes(t: Any, atom_rows: int) -> Any:
    """Returns the bytes of LDS for a strip of the tile: a row of atoms of each wave along m."""
    return t.waves_m * atom_rows * (t.tile_n * WORD + ROW_PAD)


def _row(p: GemmProblem, sums: bool) -> tuple[int, int]:
    """Returns the bytes of an element, and of a row in memory."""
    size, columns = (dtype(p.accumulator).bytes, p.n) if sums else (dtype(p.dtype_c).bytes, p.ldc or p.columns_c)
    return size, columns * size


def _run(p: GemmProblem, d: HardwareDescriptor, t: Any, size: int, sums: bool) -> Any:
    """Returns the bytes that adjacent lanes store directly: a lane has adjacent columns, one of each of `wide` atoms."""
    atom = atom_of(p, d)
    wide = power_in(largest(1, t.tile_n // t.waves_n // atom.n), WIDEST // dtype(p.accumulator).bytes)
    return wide * atom.n * size * (p.n if sums else p.columns_c) // p.n
