"""Q tiles, registers, LDS and clocks of a step of fused attention, for both forms of the "corrected" policy (`plan`).

Adjacent lanes pass the coalescer together if they load from one line of 64 bytes (gpu-strides). Lanes of a K fragment in
registers load different keys, so each passes on its own. Lanes that stage V for LDS load 8 bytes each, half of the rate.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.rates.sustained import SOFTMAX_INSTRUCTIONS, sustained_rates
from simgpu.hardware.timing_rules.issue import SLOT, TRANS_SLOTS
from simgpu.operators.attention import registers as chained
from simgpu.operators.attention import shared_registers as shared
from simgpu.operators.attention.problem import ATOM, AttentionProblem
from simgpu.operators.attention.registers import REACH
from simgpu.operators.resources import LdsArray, ResourcePlan

_LINE = 64  # bytes of a line that adjacent lanes may load from and pass together
_WIDENING = 1.25  # instructions for an 8-bit element: a conversion and a packing for two, and a permutation for four of V
_MASK_INSTRUCTIONS = 2  # instructions of a score for one of its two bounds: a comparison and a selection
_HALF_LINES = 2  # staged V passes the coalescer at half its rate


def row_slots(heads: int) -> int:
    """Returns the rows of a Q tile that a query's heads take: `heads` rounded up to a power of two.

    The columns of an atom are then a rectangle of heads and queries.
    """
    return 1 << (heads - 1).bit_length()


def tile_heads(p: AttentionProblem, tile_q: int) -> int:
    """Returns the number of query heads that share a Q tile.

    It is the divisor of heads / kv_heads that gives the fewest Q tiles; ties go to the smallest. It is 1 if the queries of one
    head fill the tile, and often heads / kv_heads if there is one query (decoding).
    """
    group = p.heads // p.kv_heads
    most = max(1, REACH // (4 * p.lq * max(p.d, p.dv)))  # reach of 32-bit offsets
    fitting = [heads for heads in range(1, min(group, most) + 1) if group % heads == 0 and row_slots(heads) <= tile_q]
    return min(fitting, key=lambda heads: (q_tiles(p, tile_q, heads), heads))


def q_tiles(p: AttentionProblem, tile_q: int, heads: int) -> int:
    """Returns the number of Q tiles of the whole problem, if `heads` query heads share each."""
    return p.batch * p.heads // heads * -(-p.lq // (tile_q // row_slots(heads)))


def tile_queries(p: AttentionProblem, tile_q: int) -> int:
    """Returns the number of consecutive queries of a head in a Q tile."""
    return tile_q // row_slots(tile_heads(p, tile_q))


def key_steps(p: AttentionProblem, tile_q: int, tile_kv: int) -> tuple[float, int]:
    """Returns steps of `tile_kv` keys over those that a Q tile's queries see: the mean of all tiles, and the most, at least 1.

    Masks hide keys. Under a causal mask of as many keys as queries, the mean is about half of the most.
    """
    if not p.causal and p.window is None:
        return -(-p.lk // tile_kv), -(-p.lk // tile_kv)
    _, low, high = _seen_keys(p, tile_queries(p, tile_q))
    steps = -(-(high - low) // tile_kv)
    return max(1.0, float(steps.mean())), max(1, int(steps.max()))


def slowest_steps(p: AttentionProblem, d: HardwareDescriptor, tile_q: int, tile_kv: int, parts: int) -> int:
    """Returns the steps of all blocks of the CU that has most of them, if CUs take blocks in turn and all begin at once.

    parts: blocks that share a Q tile's keys. The order is that of the kernel under a causal mask (`asm.attention.frame`).
    """
    _, low, high = _seen_keys(p, tile_queries(p, tile_q))
    steps = np.maximum(0, -(-(high - low) // tile_kv))
    each, heads = -(-steps // parts), p.batch * p.heads // tile_heads(p, tile_q)
    turn = gcd(d.xcds, heads)
    series = np.arange(heads // turn * parts)
    of_series = np.clip(steps - series[:, None] % parts * each, 0, each)
    falls = (len(series) - series) % 2 == 1
    of_series[falls] = of_series[falls, ::-1]
    blocks = of_series.ravel().repeat(turn)
    return int(np.pad(blocks, (0, -len(blocks) % d.num_cus)).reshape(-1, d.num_cus).sum(0).max())


def _seen_keys(p: AttentionProblem, queries: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns for each tile of so many queries its first query, the first key that one of them sees, and the end of these keys."""
    first = np.arange(0, p.lq, queries)
    return first, *p.key_range(first, np.minimum(first + queries, p.lq))


def mask_instructions(p: AttentionProblem, tile_q: int, tile_kv: int, queries: int) -> float:
    """Returns the instructions a score that masks need, in the mean of all steps: of those that an edge of the seen keys cuts.

    queries: consecutive queries of a wave, which has no edge in keys that all of them see.

    >>> p = AttentionProblem(4096, 4096, 64, dtype="f16", window=32)
    >>> mask_instructions(p, 256, 64, 32), mask_instructions(AttentionProblem(4096, 4096, 64), 256, 64, 32)
    (4.0, 0.0)
    """
    if not p.causal and p.window is None:
        return 0.0
    tile = tile_queries(p, tile_q)
    first, low, high = _seen_keys(p, tile)
    start = np.arange(0, tile, queries)
    bounds = [p.key_range(first[:, None] + at, first[:, None] + at + 1) for at in (start, start + queries - 1)]
    whole = np.maximum(0, (bounds[0][1] - low[:, None]) // tile_kv + (low[:, None] - bounds[1][0]) // tile_kv)
    steps = -(-(high - low) // tile_kv)
    cut = 1 - float(np.minimum(whole.mean(1), steps).sum()) / max(1, int(steps.sum()))
    return cut * _MASK_INSTRUCTIONS * (1 if p.window is None else 2)


def chained_resources(p: AttentionProblem, desc: HardwareDescriptor, queries: int, split: bool) -> ResourcePlan:
    ranges, partial = chained.registers(p, desc, queries), chained.merge_bytes(p.padded_dv, p.element.bytes)
    lds = (LdsArray("partial O", partial), LdsArray("statistics", chained.statistics_bytes(queries)))
    return ResourcePlan.of(desc, chained.WAVES, ranges, lds, chained.scalars(p, split))


def shared_resources(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int) -> ResourcePlan:
    return ResourcePlan.of(desc, shared.WAVES, shared.registers(p, desc, tile_q), shared.lds(p), shared.scalars(p, desc))


def shared_tile(p: AttentionProblem, desc: HardwareDescriptor) -> int:
    """Returns the queries of a block whose waves share K and V through LDS: the most that registers hold. 0 if none.

    Conditions: no cache, f16 or bf16, rows of K that are multiples of 16 bytes, one file for both kinds of VGPRs, few enough
    heads per Q tile, and registers and LDS within the limits.
    """
    if p.dtype not in ("f16", "bf16") or p.cached or p.d % shared.COLUMN_UNIT or not desc.unified_vgprs:
        return 0
    if shared.WAVES * desc.wavefront_size > desc.max_workgroup_size:
        return 0
    for tile_q in shared.TILES:
        slots = row_slots(tile_heads(p, tile_q))
        if slots <= tile_q // shared.WAVES and shared_resources(p, desc, tile_q).blocks_per_cu > 0:
            return tile_q
    return 0


def chained_clocks(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int, tile_kv: int) -> dict[str, float]:
    """Returns clocks of a CU, by unit, for one step of a block whose waves have keys of their own."""
    rates, e = sustained_rates(desc), p.element_kv.bytes
    passes = chained.LANE_GROUPS * len(chained.key_spans(p.padded_d, p.element.bytes))  # lanes of a key's row
    lines = sum(-(-ATOM * wide * e // _LINE) for _, wide in chained.column_blocks(p.padded_dv, p.element.bytes))
    widened = p.narrow_kv * tile_kv * (p.padded_d + p.padded_dv) * _WIDENING
    return {
        "matrix": 2 * tile_q * tile_kv * (p.padded_d + p.padded_dv) / desc.matrix_flops_per_clock(p.dtype),
        "cache": tile_kv * _LINE * (passes + lines) / rates.rates.cache,
        "VALU": (tile_q * tile_kv * SOFTMAX_INSTRUCTIONS + widened) / rates.valu_lanes,
        "LDS": 0.0,
    }


def shared_clocks(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int) -> dict[str, float]:
    """Returns clocks of a CU, by unit, for one step of a block whose waves share K and V."""
    rates, e, keys = sustained_rates(desc), p.element.bytes, shared.KEYS_OF_STEP
    d, dv = shared.padded_columns(p.d), shared.padded_columns(p.dv)
    return {
        "matrix": 2 * tile_q * keys * (d + dv) / desc.matrix_flops_per_clock(p.dtype),
        "cache": keys * (d + _HALF_LINES * dv) * e / rates.rates.cache,
        "VALU": tile_q * keys * SOFTMAX_INSTRUCTIONS / rates.valu_lanes,
        "LDS": keys * (d + dv) * e * (shared.WAVES / rates.rates.lds_read + 1 / rates.rates.lds_write),
    }


def vector_clocks(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int) -> float:
    """Returns clocks of a SIMD's vector unit for a step of its two waves: the softmax, and issuing matrix instructions."""
    exponential, fma, sums = TRANS_SLOTS[desc.arch], 1.0, {"packed": 0.5, "f32": 1.0, "": 1.5}[shared.step_sums(p, desc)]
    rounding = 0.5 if p.dtype == "bf16" and desc.arch == "gfx950" else 1.5  # one conversion for two, or three instructions
    scores = tile_q * shared.KEYS_OF_STEP
    atom = max(atom.k for atom in desc.atoms if atom.dtype_in == p.dtype and atom.m == ATOM) * ATOM**2
    issued = scores * (shared.padded_columns(p.d) + shared.padded_columns(p.dv)) / atom / desc.simds_per_cu
    return scores * (fma + exponential + sums + rounding) / sustained_rates(desc).valu_lanes + issued * SLOT


def tail(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int) -> int:
    """Returns the number of fragments that are multiplied after the barrier that ends a wave's reads."""
    return shared.LONG_TAIL if vector_clocks(p, desc, tile_q) <= shared_clocks(p, desc, tile_q)["matrix"] else shared.SHORT_TAIL


def partial_bytes(p: AttentionProblem) -> int:
    """Returns the bytes of one part of the results: O, maximum and sum of every query."""
    return p.batch * p.heads * p.lq * (chained.partial_columns(p.dv) + 2) * dtype(p.dtype_c).bytes
