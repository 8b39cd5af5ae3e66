"""Order of a GEMM's tiles: tiles in flight together share as much of A and B as possible.

Rows of tiles are cut into groups. Tiles are numbered down a column of the group, then by column, then by group.
"""

from __future__ import annotations

from math import isqrt

from simgpu.operators.gemm.plan import GemmPlan


def group_rows(plan: GemmPlan) -> int:
    """Returns the rows of tiles in a group.

    c tiles in flight on the CUs that share an L2, h rows by c/h columns, read h·tM rows of A and (c/h)·tN columns of B. That is
    least for h = sqrt(c·tN/tM). The rows of tiles are cut into equal groups of at most h.
    """
    _, gy = plan.grid
    in_flight = max(1, plan.descriptor.num_cus // plan.descriptor.xcds * max(1, plan.resources.blocks_per_cu))
    most = max(1, isqrt(in_flight * plan.tile_n // plan.tile_m))
    groups = -(-gy // most)
    return -(-gy // groups)


def tile_at(plan: GemmPlan, workgroup: int) -> tuple[int, int, int, int]:
    """Returns (row, column, product of the batch, part of K) of the tile that a workgroup of the launch computes."""
    gx, gy = plan.grid
    local, xcd = divmod(workgroup, plan.descriptor.xcds)
    each, rest = divmod(plan.workgroups, plan.descriptor.xcds)
    number, tile = divmod(xcd * each + min(xcd, rest) + local, gx * gy)
    batch, part = divmod(number, plan.split_k)
    rows = group_rows(plan)
    group, place = divmod(tile, rows * gx)
    column, row = divmod(place, min(rows, gy - group * rows))
    return group * rows + row, column, batch, part
