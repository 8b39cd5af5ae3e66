"""Every tile of a problem that a search covers, with its modelled time: one table per operator.

Covered:  gemm  every tile that the emitter accepts (`candidates`), split into up to 512 parts
          rmsnorm_gemm  the same tiles, unsplit: a block needs whole rows
          conv2d  every tile of the closed form's columns and channel step that fits a CU, with every split
          attention  16, 32 and 64 queries that fit, with every split of the keys up to 512
          rmsnorm, layernorm, quantise  rows kept by 1, 4 or 8 waves, or streamed by up to 512 blocks; 1, 2 or 4 loads or rows in
                   flight
          softmax  rows kept by 1, 4 or 8 waves, or streamed by up to 512 blocks
          attention_backward  64, 128, 192 or 256 rows of a block that fit, for each of the two kernels of gradients
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import (
    AttentionBackward,
    Conv2d,
    Conv2dPlan,
    FusedAttention,
    FusedTree,
    RowTree,
    Softmax,
    TiledComputation,
)
from simgpu.operators.attention.cost import attention_seconds
from simgpu.operators.attention.plan import queries_that_fit, with_queries
from simgpu.operators.attention.reductions import key_steps, shared_tile
from simgpu.operators.attention_backward.cost import gradient_seconds
from simgpu.operators.attention_backward.plan import gradient_plans
from simgpu.operators.attention_backward.tiles import SIDES
from simgpu.operators.conv2d.cost import conv2d_seconds
from simgpu.operators.conv2d.plan import with_tile
from simgpu.operators.cost import parts_of
from simgpu.operators.gemm.cost import Tiles, gemm_seconds
from simgpu.operators.gemm.plan import with_tiling
from simgpu.operators.rows.cost import row_seconds
from simgpu.operators.rows.plan import with_loads, with_parts, with_waves
from simgpu.operators.rows.tiles import IN_FLIGHT, ROW_WAVES, RowPlan
from simgpu.operators.softmax.cost import softmax_seconds
from simgpu.operators.softmax.plan import keeping, softmax_resources, step_elements
from simgpu.operators.tree import Root
from simgpu.tools.cost.candidates import candidates, splits

Tile = tuple[int, ...]
TILES = {
    "gemm": "tM x tN x tK, split of K",
    "conv2d": "rows x columns x channels, split",
    "attention": "queries, split of the keys",
    "softmax": "waves that keep a row (0: it streams), blocks a row",
    "rmsnorm_gemm": "tM x tN x tK, split of K (always 1)",
    "attention_backward": "keys of a block of dK and dV, queries of a block of dQ, 1",
    **dict.fromkeys(
        ("rmsnorm", "layernorm", "quantise"), "waves that keep a row (0: it streams), loads or rows in flight, blocks a row"
    ),
}
# The tree of a problem on a board, by the closed form.
ROOTS: dict[str, Callable[[Any, HardwareDescriptor], Root]] = {
    "gemm": TiledComputation.of, "conv2d": Conv2d, "softmax": Softmax, "attention": FusedAttention,
    "attention_backward": AttentionBackward, "rmsnorm_gemm": FusedTree.of,
    **dict.fromkeys(("rmsnorm", "layernorm", "quantise"), RowTree),
}  # fmt: skip


@dataclass(frozen=True)
class Space:
    """A problem's tiles. A tile is the numbers of TILES, its split last."""

    problem: str
    chosen: Tile  # the closed form's tile
    chosen_seconds: float
    rows: tuple[Tile, ...]  # tiles without a split
    splits: tuple[int, ...]
    seconds: np.ndarray  # one row per tile, one column per split; infinite if the tile does not allow the split
    tree: Callable[[Tile], Root]  # builds a tile's tree, to be emitted

    def best(self) -> tuple[Tile, float]:
        """Returns the tile of least time, and its seconds."""
        row, column = divmod(int(self.seconds.argmin()), len(self.splits))
        return (*self.rows[row], self.splits[column]), float(self.seconds[row, column])


def space(op: str, problem: Any, descriptor: HardwareDescriptor) -> Space:
    """Returns the tiles of one of TILES' operators."""
    return _SPACES[op](problem, descriptor)


def _parts(steps: int, split: int) -> int:
    """Number of the split's blocks that have work."""
    return int(parts_of(steps, min(split, steps))[0])


def _gemm(kind: type[TiledComputation], problem: Any, d: HardwareDescriptor) -> Space:
    formula = kind.of(problem, d)
    plan = formula.derivation
    p, every = plan.problem, candidates(plan)  # p: of a problem with leaves, its GEMM
    chosen = plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k

    def tree(tile: Tile) -> Root:
        m, n, k, split = tile
        tiling = replace(plan.tiling, tile_m=m, tile_n=n, tile_k=k, split_k=_parts(-(-p.k // k), split), blocks=1, limited_by=None)
        return formula.with_plan(with_tiling(p, d, "corrected", tiling))

    mine = gemm_seconds(p, d, Tiles(*chosen, plan.resources.blocks_per_cu))["total"]
    return Space(
        "x".join(map(str, (p.m, p.n, p.k))), chosen, float(mine), tuple(row[:3] for row in every.rows), every.splits,
        gemm_seconds(p, d, every.tiles)["total"], tree,
    )  # fmt: skip


def _conv2d(p: Any, d: HardwareDescriptor) -> Space:
    formula = Conv2d(p, d)
    plan = formula.derivation
    step, unit = plan.waves_p * plan.atom.m, plan.waves_oc * plan.atom.n
    step //= int(np.gcd(step, plan.tile_ow))
    sides = ((oh, oc) for oh in range(step, 256 // plan.tile_ow + 1, step) for oc in range(unit, 257, unit))
    fitting: dict[Tile, Conv2dPlan] = {(oh, plan.tile_ow, oc): other for oh, oc in sides if (other := with_tile(plan, oh, oc))}
    parts = np.unique(np.minimum(splits(), plan.ic_steps))

    def tree(tile: Tile) -> Root:
        return formula.with_plan(replace(fitting[tile[:3]], split_ic=_parts(plan.ic_steps, tile[3])))

    return Space(
        f"{p.n}x{p.ic}x{p.ih}x{p.iw} by {p.oc}x{p.kh}x{p.kw}", (plan.tile_oh, plan.tile_ow, plan.tile_oc, plan.split_ic),
        float(conv2d_seconds(plan, plan.split_ic)["total"]), tuple(fitting), tuple(map(int, parts)),
        np.array([conv2d_seconds(other, parts)["total"] for other in fitting.values()]), tree,
    )  # fmt: skip


def _attention(p: Any, d: HardwareDescriptor) -> Space:
    formula, parts = FusedAttention(p, d), np.array(splits())
    plan = formula.derivation
    fitting = [with_queries(plan, queries) for queries in sorted(queries_that_fit(p, d))]
    if tile_q := shared_tile(p, d):
        fitting.append(with_queries(plan, tile_q))

    def seconds(made: Any, split: Any) -> Any:
        return attention_seconds(p, d, made.tile_Q, made.tile_KV, split, made.shared)["total"]

    def tree(tile: Tile) -> Root:
        tiles = with_queries(plan, tile[0])
        return formula.with_plan(replace(tiles, split_kv=_parts(key_steps(p, tiles.tile_Q, tiles.tile_KV)[1], tile[1])))

    # If K and V are shared, keys are not split.
    table = np.array([np.where(made.shared & (parts > 1), np.inf, seconds(made, parts)) for made in fitting])
    mine = seconds(plan, plan.split_kv)
    return Space(
        f"{p.batch}x{p.heads} heads, {p.lq} by {p.lk}, d = {p.d}", (plan.tile_Q, plan.split_kv), float(mine),
        tuple((made.tile_Q,) for made in fitting), splits(), table, tree,
    )  # fmt: skip


def _attention_backward(p: Any, d: HardwareDescriptor) -> Space:
    formula = AttentionBackward(p, d)
    chosen = tuple(part.tile for part in formula.plan.parts[1:])
    plans = [{plan.tile: plan for plan in gradient_plans(p, d, side)} for side in SIDES]
    seconds = [{tile: float(gradient_seconds(plan)["total"]) for tile, plan in fitting.items()} for fitting in plans]
    tiles = tuple(product(*plans))
    table = np.array([[seconds[0][keys] + seconds[1][queries]] for keys, queries in tiles])
    return Space(
        f"{p.batch}x{p.heads} heads, {p.lq} by {p.lk}, d = {p.d}", (*chosen, 1), float(table[tiles.index(chosen), 0]), tiles, (1,),
        table, lambda tile: formula.with_plans(plans[0][tile[0]], plans[1][tile[1]]),
    )  # fmt: skip


def _softmax(p: Any, d: HardwareDescriptor) -> Space:
    formula, step = Softmax(p, d), step_elements(p, d)
    plan = formula.derivation
    uses = {waves: softmax_resources(p, d, waves) for waves in (0, *ROW_WAVES)}
    most, packing = keeping(p, d)
    if packing > 1:  # then this number of waves keeps a row only this way
        uses[most] = softmax_resources(p, d, most, packing=packing)
    fitting = {waves: use for waves, use in uses.items() if use.blocks_per_cu and use.arch_vgprs <= d.vgpr_budget(2)[0]}
    parts = np.unique(np.minimum((*splits(), plan.split_n), -(-p.n // step)))
    seconds = np.full((len(fitting), len(parts)), np.inf)
    for row, (waves, use) in enumerate(fitting.items()):
        given = np.array([1]) if waves else parts  # only rows that stream are split
        held = packing if waves == most else 1
        seconds[row, : len(given)] = softmax_seconds(p, d, waves, step, use.blocks_per_cu, given, held)["total"]

    def tree(tile: Tile) -> Root:
        waves, split = tile
        return formula.with_plan(replace(
            plan, waves_row=max(1, waves), lanes_row=d.wavefront_size, in_flight=1, resident=waves > 0,
            packing=packing if waves == most else 1, split_n=_parts(-(-p.n // step), split), resources=fitting[waves],
        ))  # fmt: skip

    waves = plan.waves_row if plan.resident else 0
    mine = softmax_seconds(p, d, waves, step, plan.resources.blocks_per_cu, plan.split_n, plan.packing)["total"]
    return Space(
        f"{p.rows} rows of {p.n}", (waves, plan.split_n), float(mine), tuple((waves,) for waves in fitting), tuple(map(int, parts)),
        seconds, tree,
    )  # fmt: skip


def _rows(p: Any, d: HardwareDescriptor) -> Space:
    formula = RowTree(p, d)
    plan = formula.derivation
    if plan.lanes_row < d.wavefront_size:
        plans: dict[Tile, RowPlan] = {(1, loads): with_loads(plan, loads) for loads in IN_FLIGHT}
    else:
        plans = {(0, 1): with_waves(plan, 0)}
        plans |= {(waves, rows): with_loads(with_waves(plan, waves), rows) for waves in ROW_WAVES for rows in IN_FLIGHT}
    fitting = {tile: other for tile, other in plans.items() if other.feasible}
    streamed = fitting.get((0, 1))
    most = plan.chunks // (streamed.waves_row * d.wavefront_size) if streamed and streamed.shares_rows else 1
    parts = [count for count in splits() if count <= max(1, most)]

    def cut(tile: Tile, count: int) -> RowPlan | None:
        """Returns the plan of a tile whose rows `count` blocks share; only streamed rows are shared."""
        if count == 1:
            return fitting[tile]
        found = with_parts(fitting[tile], count) if tile == (0, 1) else None
        return found if found is not None and found.feasible else None

    every = {(*tile, count): found for tile in fitting for count in parts if (found := cut(tile, count))}
    times = {tile: row_seconds(found)["total"] for tile, found in every.items()}
    seconds = np.array([[times.get((*tile, count), np.inf) for count in parts] for tile in fitting])

    def tree(tile: Tile) -> Root:
        return formula.with_plan(every[tile])

    chosen = plan.waves_row if plan.resident else 0, plan.in_flight, plan.parts if plan.split else 1
    return Space(f"{p.rows} rows of {p.n}", chosen, row_seconds(plan)["total"], tuple(fitting), tuple(parts), seconds, tree)


_SPACES: dict[str, Callable[[Any, HardwareDescriptor], Space]] = {
    "gemm": partial(_gemm, TiledComputation), "conv2d": _conv2d, "attention": _attention, "softmax": _softmax,
    "attention_backward": _attention_backward,
    "rmsnorm_gemm": partial(_gemm, FusedTree), **dict.fromkeys(("rmsnorm", "layernorm", "quantise"), _rows),
}  # fmt: skip
