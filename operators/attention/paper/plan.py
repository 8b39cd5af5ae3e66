"""Policy "published" of fused attention, in closed form (paper, section Fused Attention; errata E11, E14 to E16).

One wave's registers for one Q tile, with e = 4 for every type:

tKV = (LDS/2) / (4*d),   V(tQ) = tQ*(2d + tKV)/64 + tQ/8 + 16,   tQ = floor16((V - 16)*64 / (2d + tKV + 8))

This reproduces the paper's Table 2. If there would be fewer Q tiles than CUs, tQ is the largest multiple of 16 that gives
at least as many, or 16. (The paper "reduces tile sizes until occupancy is acceptable" and says neither which size nor how far.
tKV does not change the number of tiles, and at all printed lengths there are enough.) LDS is checked for one tile of K or V, as
in the paper. For a kernel (`values` is given), the plan counts all registers and LDS, and its tiles are smaller if these do not
fit (`registers`).
"""

from __future__ import annotations

from dataclasses import replace

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.attention.paper import registers
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.tiles import STEP, AttentionTiles, alignment_row, soft_rows
from simgpu.operators.levels import Level
from simgpu.operators.resources import Constraint, freeing_remedy, limit_rows, mark_binding

_ROWS = ("SGPR", "waves per SIMD", "workgroup size")  # rows of `limit_rows`; LDS and VGPR are the paper's own


def published_tiles(p: AttentionProblem, desc: HardwareDescriptor, values: str) -> AttentionTiles:
    """Returns tiles by the formulas as printed or, for the kernel that `values` names, tiles that fit it."""
    d = p.d
    tile_kv = max(STEP, desc.lds_bytes // 2 // (4 * d) // STEP * STEP)
    budget = desc.vgpr_per_thread
    tile_q_max = max(0, (budget - registers.OVERHEAD) * 64 // (2 * d + tile_kv + 8) // STEP * STEP)
    largest = min(max(STEP, tile_q_max), -(-p.lq // STEP) * STEP)

    def fills_cus(queries: int) -> bool:
        return p.batch * p.heads * -(-p.lq // queries) >= desc.num_cus

    tile_q = next((queries for queries in range(largest, STEP, -STEP) if fills_cus(queries)), STEP)
    if values:
        return paper_kernel(AttentionTiles(p, desc, "published", tile_q, tile_kv, tile_q_max, 1, (), values=values))
    vgprs = registers.published_vgprs(tile_q, tile_kv, d)
    plan = AttentionTiles(p, desc, "published", tile_q, tile_kv, tile_q_max, 1, ())
    rows = (
        Constraint(
            "LDS",
            Level.BLOCK,
            desc.lds_bytes // 2,
            4 * tile_kv * d,
            "bytes",
            "one tile of K or V (E15, E16)",
            f"at {STEP} keys d <= {desc.lds_bytes // 2 // (4 * STEP) // STEP * STEP} fits",
        ),
        Constraint(
            "VGPR",
            Level.WARP,
            budget,
            vgprs,
            "registers",
            "Q, S, O live between the two products (E14)",
            freeing_remedy(vgprs, budget, how="lower d"),
        ),
        *(row for row in limit_rows(desc, vgprs, 0, plan.resources.sgprs, 0, 1, 1, {}) if row.name in _ROWS),
        alignment_row(plan),
        *soft_rows(plan),
    )
    return replace(plan, constraints=mark_binding(rows, "VGPR" if tile_q == tile_q_max else "occupancy"))


def paper_kernel(published: AttentionTiles) -> AttentionTiles:
    """Returns the published tiles, made smaller if the kernel's registers or LDS do not fit them."""
    p, desc, asked = published.problem, published.descriptor, (published.tile_Q, published.tile_KV)
    tile_q, tile_kv = registers.fit_tile(p.d, p.dtype, desc, published.values, *asked)
    plan = replace(published, tile_Q=tile_q, tile_KV=tile_kv, tile_Q_max=min(published.tile_Q_max, tile_q))
    use, lower = plan.resources, "lower d, or use policy corrected"
    notes = {
        "LDS": ("K or V, and E (E15, E16)", lower),
        "ArchVGPR": ("Q, S, statistics, fragments" + ", O (E14)" * (plan.values == "fma"), lower),
        "AccVGPR": ("S where C and D must be here" + ", O (E14)" * (plan.values == "mfma"), lower),
    }
    rows = (
        *limit_rows(desc, use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, 1, 1, notes),
        Constraint("VGPR", Level.WARP, desc.vgpr_per_thread, plan.vgprs, "registers", "the paper's: Q, S, O (E14)", hard=False),
        alignment_row(plan),
        *soft_rows(plan),
    )
    limited_by = None if asked != (tile_q, tile_kv) else "VGPR" if tile_q == published.tile_Q_max else "occupancy"
    return replace(plan, constraints=mark_binding(rows, limited_by))
