"""Attention's registers and LDS between its two products (the paper's Table 2), recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from simgpu.operators import AttentionProblem, AttentionTiles, FusedAttention, derive_tiles
from simgpu.operators.traffic import block_counters
from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure, pair
from simgpu.tools.validation.paper.givens import Givens


def table_2(g: Givens) -> Iterator[PaperNumber]:
    """Yields the numbers of registers, then of LDS."""
    where = "Table 2: registers between the two products"
    for row in g.table_2:
        both = old, new = derive_tiles(g.gpu_a, g.length, row.d, "published"), derive_tiles(g.mi100, g.length, row.d)
        fits = ["fits" if row.tile_q <= p.tile_Q_max else "does not" for p in both]
        yield PaperNumber(
            where, f"d = {row.d}, tKV = {old.tile_KV}, tQ = {row.tile_q}", row.printed, f"{old.vgprs_at(row.tile_q)}, {fits[0]}",
            f"{new.vgprs_at(row.tile_q)} Arch of {new.descriptor.vgpr_per_thread}, {fits[1]}; tQ up to {new.tile_Q_max}", "E14",
            "a formula, not a measurement; one wave a CU",
        )  # fmt: skip
    yield from _lds(g, where)


def _lds(g: Givens, where: str) -> Iterator[PaperNumber]:
    a = g.gpu_a
    plan, new = derive_tiles(a, g.length, g.d, "published"), derive_tiles(g.mi100, g.length, g.d)
    e_bytes = plan.problem.element.bytes
    q, e, kv = (e_bytes * x * y for x, y in ((plan.tile_Q, g.d), (plan.tile_Q, plan.tile_KV), (plan.tile_KV, g.d)))
    tile = f"tQ = {plan.tile_Q}, tKV = {plan.tile_KV}"
    yield PaperNumber(where, f"E^T, {tile}", "24 KB", QuotedFigure("24 KB"), f"{e >> 10} KB", "E15", f"Q + E is {(q + e) >> 10} KB")
    yield PaperNumber(where, "V and E through LDS, a step", "~10 KB", QuotedFigure("~10 KB"), f"{(kv + 2 * e) >> 10} KB", "E16")
    both = q + e + 2 * kv
    yield PaperNumber(
        where, "LDS with Q, E and one of K, V; with both", "not checked", f"{(q + e + kv) >> 10} KB",
        f"{both >> 10} KB: {'' if both <= a.lds_bytes else 'not '}in {a.lds_bytes >> 10} KB", "E16",
        "corrected keeps Q and P in registers",
    )  # fmt: skip
    atom, rows = a.atom("f32"), a.atom("f32").m
    yield PaperNumber(
        where, "A fragments of E^T, stored at col*tQ + row, that are read right", "row_in_m*tQ + ks*m + col_group",
        f"{read_right(plan, lambda ks, group, row: row * plan.tile_Q + ks * rows + group):.0%}",
        f"{read_right(plan, lambda ks, group, row: (ks * atom.k + group) * plan.tile_Q + row):.0%}", "E17",
        "untransposed, and m where k belongs: (ks*k + col_group)*tQ + row_in_m",
    )  # fmt: skip
    measured = next((row.fused for row in g.table_3 if row.length == g.length), 0.0)
    steps = plan.rounds * -(-g.length // plan.tile_KV)
    seconds = measured / 1e3 / steps
    counted = block_counters(FusedAttention(AttentionProblem(g.length, g.length, g.d), a, "published"))
    moved = (counted.lds_write_bytes + counted.lds_read_bytes) / (plan.tiles * -(-g.length // plan.tile_KV))
    yield PaperNumber(
        where, f"a step of {measured:g} ms (measured)", "LDS-bound", f"{seconds * 1e6:.0f} us",
        f"{seconds * a.clock_mhz * 1e3:.0f}k cycles; LDS takes {moved / a.lds_bytes_per_clock:,.0f}", "E18",
        f"{moved / 1024:.0f} KB in and out at {a.lds_bytes_per_clock} bytes a clock",
    )  # fmt: skip
    held = "in registers; A fragments from LDS"
    yield PaperNumber(where, "Q_0", held, *pair(map(where_is_q, (plan, new))), "E31", "the paper says both")


def read_right(plan: AttentionTiles, index: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> float:
    """Fraction of the second product's A fragments that are right if read from E^T, stored at col*tQ + row, at `index`.

    index: of K step, lane group and row in an atom, each broadcast against the others; E is (tQ, tKV).
    """
    atom = plan.descriptor.atom(plan.dtype)
    e = np.arange(plan.tile_Q * plan.tile_KV).reshape(plan.tile_Q, plan.tile_KV)
    lds = e.T.reshape(-1)
    steps, groups, rows = np.ix_(*(np.arange(count) for count in (plan.tile_KV // atom.k, atom.lane_groups, atom.m)))
    return float((lds[index(steps, groups, rows) % lds.size] == e[rows, steps * atom.k + groups]).mean())


def where_is_q(plan: AttentionTiles) -> str:
    """Names the resources of a plan that hold Q."""
    resources = plan.resources
    named = [row.name for row in resources.registers if row.name.startswith("Q")]
    arrays = [array.name for array in resources.lds if array.name.startswith("Q")]
    return "; ".join((*(f"registers ({name})" for name in named), *(f"LDS ({name})" for name in arrays)))
