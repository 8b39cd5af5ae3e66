"""Cost of a fused attention kernel from its tiles: products, exponentials, loads of K and V, second pass of split keys."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, gcd
from typing import Any

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.clocks import LDS_OF_PRODUCTS, element
from simgpu.hardware.rates.sustained import LDS_CLOCKS, STORE_BYTES, sustained_rates
from simgpu.operators.attention import registers as chained
from simgpu.operators.attention import shared_registers as shared
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.reductions import (
    chained_clocks,
    chained_resources,
    key_steps,
    mask_instructions,
    partial_bytes,
    q_tiles,
    shared_clocks,
    shared_resources,
    slowest_steps,
    tile_heads,
    tile_queries,
)
from simgpu.operators.cost import KernelCost, choose, minimum, parts_of, second_pass
from simgpu.operators.split import Reduction

# 64-byte lines of code that a workgroup executes, counted on 60 emitted kernels within 12 %. Waves with keys of their
# own have a constant, a part for each query, and a part for each query and column of Q and O. Waves that share K and V
# have a constant, and a part for each column.
_CHAINED_LINES, _QUERY_LINES, _COLUMN_LINES = 17, 0.8, 0.007
_SHARED_LINES, _SHARED_COLUMN_LINES = 95, 0.43


def attention_seconds(
    p: AttentionProblem, d: HardwareDescriptor, tile_q: int, tile_kv: int, split: Any, is_shared: bool = False
) -> dict[str, Any]:
    """Returns seconds by term of a launch with Q tiles of `tile_q` rows and steps of `tile_kv` keys.

    Terms: those of the first kernel (`KernelCost.terms`), "second pass", and the sum of both as "total". split: blocks per Q
    tile, a number or an array. is_shared: True if eight waves share K and V through LDS.
    """
    work = shared_reduction(p, d, tile_q) if is_shared else attention_reduction(p, d, tile_q, tile_kv)
    terms = attention_cost(p, d, tile_q, tile_kv, split, is_shared).terms()
    parts, _ = parts_of(work.steps, split)
    second = second_pass(sustained_rates(d), parts, work.elements, work.partial_bytes, work.result_bytes)
    return {**terms, "second pass": second, "total": terms["total"] + second}


def attention_reduction(p: AttentionProblem, d: HardwareDescriptor, tile_q: int, tile_kv: int) -> Reduction:
    """Returns the key loop of a kernel whose waves have keys of their own, as a Reduction: it decides the split of the keys."""
    tiles, (_, steps) = q_tiles(p, tile_q, tile_heads(p, tile_q)), key_steps(p, tile_q, tile_kv)
    return _reduction(p, tiles, steps, lambda parts: attention_cost(p, d, tile_q, tile_kv, parts, False))


def shared_reduction(p: AttentionProblem, d: HardwareDescriptor, tile_q: int) -> Reduction:
    """Returns the key loop of the kernel that shares K and V through LDS, as a Reduction. It is never split."""
    kernel = attention_cost(p, d, tile_q, shared.KEYS_OF_STEP, 1, True)
    return _reduction(p, int(kernel.workgroups), ceil(kernel.steps), lambda parts: kernel)


def _reduction(p: AttentionProblem, tiles: int, steps: int, first: Any) -> Reduction:
    rows, size = p.batch * p.heads * p.lq, dtype(p.dtype_c).bytes
    return Reduction(tiles, steps, rows * (p.dv + 2), partial_bytes(p), rows * p.dv * size, first)


def attention_cost(
    p: AttentionProblem, d: HardwareDescriptor, tile_q: int, tile_kv: int, split: Any, is_shared: bool
) -> KernelCost:
    """Returns the cost of the attention kernel, without the second pass that merges split keys."""
    rates, e, size = sustained_rates(d), p.element_kv.bytes, dtype(p.dtype_c).bytes
    heads, of_tile = p.batch * p.heads, tile_heads(p, tile_q)
    tiles = q_tiles(p, tile_q, of_tile)
    seen, most = key_steps(p, tile_q, tile_kv)
    parts, each = parts_of(most, split)
    blocks = tiles * parts
    use = shared_resources(p, d, tile_q) if is_shared else chained_resources(p, d, tile_q, False)
    clocks = shared_clocks(p, d, tile_q) if is_shared else chained_clocks(p, d, tile_q, tile_kv)
    beginning = _beginning(p, clocks, tile_q, seen) if is_shared else 0.0
    wave = tile_queries(p, tile_q) // (shared.WAVES if is_shared else 1)
    clocks["VALU"] += tile_q * tile_kv * mask_instructions(p, tile_q, tile_kv, wave) / rates.valu_lanes
    resident = max(1, use.blocks_per_cu)
    if is_shared and shared.pairs_tiles(p):
        of_head = tiles * of_tile // heads
        blocks = tiles // of_head * -(-of_head // 2)
        # Blocks of two tiles all have as many keys. The middle one of an odd number of tiles shortens no launch of a single round.
        each = mean = seen * (tiles / blocks if blocks > d.num_cus else min(of_head, 2))
    else:
        mean = seen / parts
    staged, queries = tile_kv * (p.d + p.dv) * e, heads * p.lq * p.d * p.element.bytes * 1.0
    # Blocks that share K and V run on `dealt` XCDs (`asm.attention.frame.heads_at_once`).
    dealt = d.xcds // gcd(d.xcds, heads // of_tile)
    sharing = max(1.0, min(d.num_cus * resident, tiles / (p.batch * p.kv_heads)) / dealt)
    missed, read = _missed_bytes(p, d, tiles * min(seen * tile_kv, p.lk) * 1.0 * (p.d + p.dv) * e, sharing)
    merged = 0.0 if is_shared else chained.merge_traffic(p.dv, tile_q, size)
    merge_clocks = merged * (1 / rates.rates.lds_read + 1 / rates.rates.lds_write)
    return KernelCost(
        rates=rates,
        workgroups=blocks,
        resident=resident,
        steps=minimum(each, mean) if p.causal else each,
        longest=each if p.causal else 0.0,
        slowest=0.0 if is_shared or not p.causal else _slowest(p, d, tile_q, tile_kv, blocks, parts, resident),
        series=heads // of_tile * dealt // d.xcds * parts,
        element=element(f"x_{p.dtype}"),
        matrix=clocks["matrix"],
        units=max(clocks[unit] for unit in ("LDS", "cache", "VALU")),
        once=beginning * tiles / blocks,
        drawn=(clocks["VALU"], max(0.0, clocks["LDS"] - LDS_OF_PRODUCTS * clocks["matrix"])),
        bare=LDS_CLOCKS,
        # Within a wave's own step, products and softmax wait for each other. Eight waves that share K and V fill each
        # other's gaps.
        alone=(0.0 if is_shared else clocks["matrix"] + clocks["VALU"], 0.0),
        burst=clocks["cache"],
        flight=staged,
        asked=staged,
        missed_bytes=missed + queries,
        hbm_bytes=read + queries,
        written_bytes=choose(parts > 1, parts * partial_bytes(p) * 1.0, heads * p.lq * p.dv * size * 1.0),
        stored=tile_q * p.dv * size + merge_clocks * STORE_BYTES,
        code_lines=_code_lines(p, tile_q, is_shared),
        waves=shared.WAVES if is_shared else chained.WAVES,
    )


def _missed_bytes(p: AttentionProblem, d: HardwareDescriptor, asked: float, sharing: float) -> tuple[float, float]:
    """Returns the bytes of K and V that miss L2, and those of them that miss the Infinity Cache.

    asked: bytes that blocks ask for. sharing: blocks that run together on one XCD, which read K and V once.
    """
    missed = max(min(asked, p.kv_bytes), asked / sharing)
    missed -= min(1.0, d.l2_bytes / p.kv_bytes) * (missed - min(missed, d.xcds * p.kv_bytes))
    once = min(missed, p.kv_bytes)
    return missed, once + (missed - once) * (1 - min(1.0, d.mall_bytes / p.kv_bytes))


def _slowest(p: AttentionProblem, d: HardwareDescriptor, tile_q: int, tile_kv: int, blocks: Any, parts: Any, resident: int) -> Any:
    """Returns `slowest_steps` of each number of parts for which CUs have several blocks, which all begin at once; 0 of others."""
    found = [
        slowest_steps(p, d, tile_q, tile_kv, int(count)) if d.num_cus < number <= d.num_cus * resident else 0
        for number, count in zip(np.ravel(blocks), np.ravel(parts), strict=True)
    ]
    return np.reshape(found, np.shape(parts)) if np.ndim(parts) else float(found[0])


def _beginning(p: AttentionProblem, clocks: Mapping[str, float], tile_q: int, steps: float) -> float:
    """Returns the clocks of a Q tile, whose waves share K and V, outside its steps. clocks: of a step without masks, by unit.

    The first products have no softmax beside them. In the first step with keys that it sees, a wave computes its weights again, as
    the maximum moves; the others wait. With a window, waves begin to see keys in different steps.
    """
    begins = 1.0 if p.window is None else max(1.0, min(steps, tile_queries(p, tile_q) / shared.KEYS_OF_STEP))
    return clocks["matrix"] + begins * clocks["VALU"]


def _code_lines(p: AttentionProblem, tile_q: int, is_shared: bool) -> float:
    columns = p.d + p.dv
    if is_shared:
        return _SHARED_LINES + _SHARED_COLUMN_LINES * columns
    return _CHAINED_LINES + tile_q * (_QUERY_LINES + _COLUMN_LINES * columns)
