"""Seconds of fused attention's tiles: products, exponentials, K and V straight to registers, waves merged, a second pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import SOFTMAX_INSTRUCTIONS, Sustained
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.registers import merge_traffic
from simgpu.tools.cost.launch import Launch, parts_of, second_pass


def attention_seconds(
    p: AttentionProblem, rates: Sustained, tile_q: Any, tile_kv: Any, split: Any, resident: Any
) -> dict[str, Any]:
    """Seconds by term of tiles of `tile_q` queries and `tile_kv` keys a step, masks left out; numbers, or arrays that broadcast."""
    d, e, size = rates.descriptor, p.element.bytes, dtype(p.dtype_c).bytes
    heads, tiles = p.batch * p.heads, -(-p.lq // tile_q)
    parts, each = parts_of(-(-p.lk // tile_kv), split)
    blocks = heads * tiles * parts
    staged = 2 * tile_kv * p.d * e
    asked = heads * tiles * p.lk * 2.0 * p.d * e
    state = heads * p.lq * (p.d + 2) * size * 1.0
    written = np.where(parts > 1, parts * state, p.batch * p.heads * p.lq * p.d * size)
    # Blocks that share K and V are dealt to all XCDs in turn: those that run together on one read them once.
    sharing = np.maximum(1.0, np.minimum(d.num_cus * resident, tiles * p.heads / p.kv_heads) / d.xcds)
    missed = np.maximum(np.minimum(asked, p.kv_bytes), asked / sharing)
    fits = min(1.0, d.l2_bytes / p.kv_bytes)
    missed = missed - fits * (missed - np.minimum(missed, d.xcds * p.kv_bytes))
    queries = heads * p.lq * p.d * e * 1.0
    kept = min(1.0, d.mall_bytes / p.kv_bytes)
    hbm = np.minimum(missed, p.kv_bytes) + (missed - np.minimum(missed, p.kv_bytes)) * (1 - kept)
    spilt = np.where(parts > 1, np.maximum(0.0, written - d.mall_bytes), written)
    merged = merge_traffic(p.d, 1, size) * tile_q
    launch = Launch(
        workgroups=blocks,
        resident=resident,
        steps=each,
        matrix=4.0 * tile_q * tile_kv * p.d / d.matrix_flops_per_clock(p.dtype),
        cache=staged / rates.rates.cache,
        valu=tile_q * tile_kv * SOFTMAX_INSTRUCTIONS / rates.valu_lanes,
        step_bytes=staged,
        stored=tile_q * p.d * size * 1.0 + merged * (1 / rates.rates.lds_read + 1 / rates.rates.lds_write) * 64,
        l2_bytes=asked + queries + written,
        missed_bytes=missed + queries + written,
        hbm_bytes=hbm + queries + spilt,
    )
    terms = launch.seconds(rates)
    second = second_pass(rates, parts, heads * p.lq * (p.d + 2), state, heads * p.lq * p.d * size)
    return {**terms, "second pass": second, "total": terms["total"] + second}
