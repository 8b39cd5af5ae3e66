"""The closed form's tiles beside the best of an exhaustive search, both priced by the cost model. The product never searches.

What is searched:  gemm  every tile that the emitter takes (`candidates`), split into up to 512 parts
                   conv2d  every tile of the closed form's columns and channel step that fits a CU, with every split
                   attention  16, 32 and 64 queries that fit, with every split of the keys up to 512
                   softmax  rows kept by 1, 4 or 8 waves, or streamed by up to 512 blocks
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import exp, log
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.sustained import sustained
from simgpu.operators import plan_attention, plan_conv2d, plan_gemm, plan_softmax
from simgpu.operators.attention.plan import queries_that_fit
from simgpu.operators.conv2d.plan import with_tile
from simgpu.operators.conv2d.tiles import Conv2dPlan
from simgpu.operators.softmax.plan import ROW_WAVES, softmax_resources, step_elements
from simgpu.tools.cost.attention import attention_seconds
from simgpu.tools.cost.candidates import candidates, splits
from simgpu.tools.cost.conv2d import conv2d_seconds
from simgpu.tools.cost.gemm import Tiles, gemm_seconds
from simgpu.tools.cost.softmax import softmax_seconds

SUMMARY = ("kind", "problems", "geometric mean", "worst", "above 1.25")
Tile = tuple[int, ...]


@dataclass(frozen=True)
class Ranking:
    """The closed form's tile of one problem beside the best that the search found, in the numbers of `TILES`."""

    problem: str
    kind: str
    chosen: Tile
    seconds: float  # of the chosen tile
    best: Tile
    least: float  # seconds of the best tile

    @property
    def regret(self) -> float:
        """seconds over the least seconds, at least 1 if the search covers the closed form."""
        return self.seconds / self.least


TILES = {
    "gemm": "tM x tN x tK, split of K",
    "conv2d": "rows x columns x channels, blocks a CU wanted, split",
    "attention": "queries, split of the keys",
    "softmax": "waves that keep a row (0: it streams), blocks a row",
}


def rank(op: str, problem: Any, descriptor: HardwareDescriptor, kind: str = "") -> Ranking:
    """The closed form's answer for a problem, and the best of all."""
    return _RANKED[op](problem, descriptor, kind)


def summarise(kind: str, rows: Iterable[Ranking]) -> tuple[str, int, float, float, int]:
    """Kind, problems, geometric mean and worst of the regret, problems above 1.25."""
    every = [row.regret for row in rows]
    return kind, len(every), exp(sum(map(log, every)) / len(every)), max(every), sum(value > 1.25 for value in every)


def _gemm(p: Any, d: HardwareDescriptor, kind: str) -> Ranking:
    plan, rates = plan_gemm(p, d), sustained(d)
    every = candidates(plan)
    times = gemm_seconds(p, rates, every.tiles)["total"]
    place = int(times.argmin())
    chosen = (plan.tile_m, plan.tile_n, plan.tile_k, plan.split_k)
    mine = gemm_seconds(p, rates, Tiles(*chosen, plan.resources.blocks_per_cu))["total"]
    name = "x".join(map(str, (p.m, p.n, p.k)))
    return Ranking(name, kind, chosen, float(mine), every.at(place), float(times.ravel()[place]))


def _conv2d(p: Any, d: HardwareDescriptor, kind: str) -> Ranking:
    plan, rates = plan_conv2d(p, d), sustained(d)

    def tile(of: Conv2dPlan, split: int) -> Tile:
        return of.tile_oh, of.tile_ow, of.tile_oc, of.blocks_wanted, split

    found: list[tuple[float, Tile]] = []
    rows_of_atoms = plan.waves_p * plan.atom.m // np.gcd(plan.waves_p * plan.atom.m, plan.tile_ow)
    parts = np.unique(np.minimum(splits(), plan.ic_steps))
    for rows in range(rows_of_atoms, 256 // plan.tile_ow + 1, rows_of_atoms):
        for channels in range(plan.waves_oc * plan.atom.n, 257, plan.waves_oc * plan.atom.n):
            other = with_tile(plan, rows, channels)
            if other is not None:
                times = conv2d_seconds(other, rates, parts)["total"]
                place = int(np.argmin(times))
                found.append((float(np.ravel(times)[place]), tile(other, int(parts[place]))))
    mine = float(conv2d_seconds(plan, rates, plan.split_ic)["total"])
    least, best = min(found)
    name = f"{p.n}x{p.ic}x{p.ih}x{p.iw} by {p.oc}x{p.kh}x{p.kw}"
    return Ranking(name, kind, tile(plan, plan.split_ic), mine, best, least)


def _attention(p: Any, d: HardwareDescriptor, kind: str) -> Ranking:
    plan, rates, parts = plan_attention(p, d), sustained(d), np.array(splits())
    found = []
    for queries in queries_that_fit(p, d):
        resident = replace(plan, tile_Q=queries, split_kv=1).resources.blocks_per_cu
        times = attention_seconds(p, rates, queries, plan.tile_KV, parts, resident)["total"]
        found.append((float(times.min()), (queries, int(parts[times.argmin()]))))
    least, best = min(found)
    mine = attention_seconds(p, rates, plan.tile_Q, plan.tile_KV, plan.split_kv, plan.resources.blocks_per_cu)["total"]
    name = f"{p.batch}x{p.heads} heads, {p.lq} by {p.lk}, d = {p.d}"
    return Ranking(name, kind, (plan.tile_Q, plan.split_kv), float(mine), best, least)


def _softmax(p: Any, d: HardwareDescriptor, kind: str) -> Ranking:
    plan, rates, step = plan_softmax(p, d), sustained(d), step_elements(p, d)
    found: list[tuple[float, Tile]] = []
    for waves in (0, *ROW_WAVES):
        use = softmax_resources(p, d, waves)
        if not use.blocks_per_cu or use.arch_vgprs > d.vgpr_budget(2)[0]:
            continue
        parts = np.unique(np.minimum(splits(), -(-p.n // step))) if not waves else np.array([1])
        times = np.atleast_1d(softmax_seconds(p, rates, waves, step, use.blocks_per_cu, parts)["total"])
        found.append((float(times.min()), (waves, int(parts[times.argmin()]))))
    waves = plan.waves_row if plan.resident else 0
    mine = softmax_seconds(p, rates, waves, step, plan.resources.blocks_per_cu, plan.split_n)["total"]
    least, best = min(found)
    return Ranking(f"{p.rows} rows of {p.n}", kind, (waves, plan.split_n), float(mine), best, least)


_RANKED = {"gemm": _gemm, "conv2d": _conv2d, "attention": _attention, "softmax": _softmax}
