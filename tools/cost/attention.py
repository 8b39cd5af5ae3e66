"""Seconds of fused attention's tiles: products, exponentials, K and V straight to registers, waves merged, a second pass."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import SOFTMAX_INSTRUCTIONS, Sustained
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.reductions import q_tiles, tile_heads
from simgpu.operators.attention.registers import merge_traffic, partial_columns
from simgpu.operators.attention.shared_registers import WAVES, padded
from simgpu.tools.cost.launch import Launch, parts_of, second_pass


def attention_seconds(
    p: AttentionProblem, rates: Sustained, tile_q: Any, tile_kv: Any, split: Any, resident: Any, shared: bool = False
) -> dict[str, Any]:
    """Seconds by term of Q tiles of `tile_q` rows and `tile_kv` keys a step, masks left out; the others numbers, or arrays that
    broadcast. shared: K and V pass through LDS to eight waves."""
    d, e, size = rates.descriptor, p.element.bytes, dtype(p.dtype_c).bytes
    heads, tiles = p.batch * p.heads, q_tiles(p, tile_q, tile_heads(p, tile_q))
    parts, each = parts_of(-(-p.lk // tile_kv), split)
    blocks = tiles * parts
    if shared and p.causal:  # a workgroup has two Q tiles of a head, one after the other
        of_head = tiles * tile_heads(p, tile_q) // heads
        blocks, each = tiles // of_head * -(-of_head // 2), each * min(2, of_head)
    staged = tile_kv * (p.d + p.dv) * e
    asked = tiles * p.lk * 1.0 * (p.d + p.dv) * e
    state = heads * p.lq * (partial_columns(p.dv) + 2) * size * 1.0
    written = np.where(parts > 1, parts * state, heads * p.lq * p.dv * size)
    # Blocks that share K and V are dealt to as many XCDs in turn as leaves each to as few as can be: those that run together on one
    # read them once.
    dealt = d.xcds // math.gcd(d.xcds, heads // tile_heads(p, tile_q))
    sharing = np.maximum(1.0, np.minimum(d.num_cus * resident, tiles / (p.batch * p.kv_heads)) / dealt)
    missed = np.maximum(np.minimum(asked, p.kv_bytes), asked / sharing)
    fits = min(1.0, d.l2_bytes / p.kv_bytes)
    missed = missed - fits * (missed - np.minimum(missed, d.xcds * p.kv_bytes))
    queries = heads * p.lq * p.d * e * 1.0
    kept = min(1.0, d.mall_bytes / p.kv_bytes)
    hbm = np.minimum(missed, p.kv_bytes) + (missed - np.minimum(missed, p.kv_bytes)) * (1 - kept)
    spilt = np.where(parts > 1, np.maximum(0.0, written - d.mall_bytes), written)
    merged = 0.0 if shared else merge_traffic(p.dv, 1, size) * tile_q
    # Lanes beside each other that load from different lines pass the coalescer one by one: four of a K fragment in registers; two
    # where staged V takes half of a line.
    passed = tile_kv * (p.d + 2 * p.dv if shared else 4 * p.d + p.dv) * e
    widths = padded(p.d) + padded(p.dv) if shared else p.padded_d + p.padded_dv
    launch = Launch(
        workgroups=blocks,
        resident=resident,
        steps=each,
        matrix=2.0 * tile_q * tile_kv * widths / d.matrix_flops_per_clock(p.dtype),
        lds=tile_kv * widths * e * (WAVES / rates.rates.lds_read + 1 / rates.rates.lds_write) if shared else 0.0,
        cache=passed / rates.rates.cache,
        valu=tile_q * tile_kv * SOFTMAX_INSTRUCTIONS / rates.valu_lanes,
        step_bytes=staged,
        stored=tile_q * p.dv * size * 1.0 + merged * (1 / rates.rates.lds_read + 1 / rates.rates.lds_write) * 64,
        l2_bytes=asked + queries + written,
        missed_bytes=missed + queries + written,
        hbm_bytes=hbm + queries + spilt,
    )
    terms = launch.seconds(rates)
    second = second_pass(rates, parts, heads * p.lq * (p.dv + 2), state, heads * p.lq * p.dv * size)
    return {**terms, "second pass": second, "total": terms["total"] + second}
