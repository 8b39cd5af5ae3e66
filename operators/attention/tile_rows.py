"""Which rows of Q a tile has: queries of one head, or of several heads that share K and V."""

from __future__ import annotations

from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.registers import REACH


def row_slots(heads: int) -> int:
    """Rows of a Q tile that a query's heads take: a power of two, so that rows of an atom are a rectangle of heads and queries."""
    return 1 << (heads - 1).bit_length()


def tile_heads(p: AttentionProblem, tile_q: int) -> int:
    """How many of the query heads that share K and V share a Q tile too: the divisor of their number with the fewest Q tiles, of
    equals the smallest. One where queries fill the tile, all of a group's where one query is decoded."""
    group = p.heads // p.kv_heads
    most = max(1, REACH // (4 * p.lq * max(p.d, p.dv)))  # 32-bit offsets reach
    fitting = [heads for heads in range(1, min(group, most) + 1) if group % heads == 0 and row_slots(heads) <= tile_q]
    return min(fitting, key=lambda heads: (q_tiles(p, tile_q, heads), heads))


def q_tiles(p: AttentionProblem, tile_q: int, heads: int) -> int:
    """Q tiles of all heads, if so many share one."""
    return p.batch * p.heads // heads * -(-p.lq // (tile_q // row_slots(heads)))
