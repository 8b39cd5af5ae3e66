"""Bytes that attention moves and instructions that it executes, counted block by block, because masks hide keys from some."""

from __future__ import annotations

from dataclasses import fields

from simgpu.hardware.dtypes import dtype
from simgpu.operators.attention.registers import merge_traffic
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.attention.unfused import UnfusedAttention
from simgpu.operators.traffic import Counters, block_counters


@block_counters.register(FusedAttention)
def _fused_counters(tree: FusedAttention) -> Counters:
    p, plan, atom = tree.problem, tree.derivation, tree.derivation.descriptor.atom(tree.problem.dtype)
    e, size = p.element.bytes, dtype(p.dtype_c).bytes
    moved, written, read, atoms = p.batch * p.heads * p.lq * p.dv * size + plan.partial_bytes, 0, 0, 0
    for block in tree.children():
        heads, keys = len(block.views[0].outer[1]), len(block.views[1].rows)
        queries = heads * len(block.views[0].rows)
        moved += queries * p.d * e + keys * (p.d + p.dv) * p.element_kv.bytes if keys else 0
        if plan.policy == "published":
            staged, exchange = 2 * keys * p.d * e, queries * keys * 4  # K and V; E^T, written, then read
            written, read = written + staged + exchange, read + staged + exchange
        elif plan.shared:
            staged, waves = keys * (p.d + p.dv) * e, -(-len(block.views[0].rows) // (plan.tile_queries // plan.waves_q))
            written, read = written + staged, read + waves * staged
        elif keys:
            merged = merge_traffic(p.dv, queries, size)
            written, read = written + merged, read + merged
        columns = -(-heads // atom.n) * -(-len(block.views[0].rows) // max(1, atom.n // plan.row_slots))
        scores, values = -(-p.d // atom.k) * columns, -(-p.dv // atom.m) * columns
        wave = plan.tile_KV // plan.waves_kv  # keys of a wave and step
        for share, times in ((wave, keys // wave), (keys % wave, 1)):
            atoms += times * (scores * -(-share // atom.m) + values * -(-share // atom.k))
    return Counters(p.flops, p.bytes_once, moved, written, read, atoms)


@block_counters.register(UnfusedAttention)
def _unfused_counters(tree: UnfusedAttention) -> Counters:
    parts = [block_counters(part) for part in tree.parts]
    return Counters(*(sum(getattr(part, field.name) for part in parts) for field in fields(Counters)))
