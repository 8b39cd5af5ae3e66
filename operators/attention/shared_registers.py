"""Registers and LDS of the attention kernel whose waves share K and V through LDS, in closed form.

Eight waves, two a SIMD, own q queries each and loop over the same keys, 64 a step. q is 32, or 16 where the registers do not
hold 32. Letters: d and dv head dimensions, padded to a power of two, at least 64; types of 2 bytes. LDS: two stages of K and of V,
2*64*(d + dv)*2 bytes. Per lane, in 32-bit registers:

    Q^T, S^T, P^T, O^T    q*d*2/256, q*64/64, half of it, q*dv/64
    fragments             FRAGMENTS reads of 16 bytes in flight from LDS, of V, then of K
    staging               a lane's part of a step's K and V in flight from memory: d/16, dv/16
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.registers import (
    ARGUMENT_WORDS,
    COORDINATES,
    KEYS,
    POINTER_WORDS,
    SOFTCAP_WORDS,
    STATISTICS,
    TEMPORARIES,
)
from simgpu.operators.resources import LdsArray, RegisterRange, scalar_ranges

if TYPE_CHECKING:
    from simgpu.hardware.descriptor import HardwareDescriptor
    from simgpu.operators.attention.problem import AttentionProblem

WAVES = 8  # two a SIMD: products of one wave hide the other's softmax
TILES = (WAVES * 32, WAVES * 16)  # queries of a block, the largest first
KEYS_OF_STEP = 64
STAGES = 2
FRAGMENTS = 12  # reads of LDS ahead of their use: 24 matrix instructions of 16 clocks, more than its latency
# Fragments that are multiplied after the barrier that ends a wave's reads. If products take the longest part of a step,
# they last while the SIMD's other wave reads its first fragments. If the softmax does, it should not wait for them.
LONG_TAIL, SHORT_TAIL = 8, 3
NARROWEST = 64  # fewest columns of K or V in LDS: every lane stages the same amount
COLUMN_UNIT = 8  # elements in a lane's 16-byte load of K, which is inside d as a whole or not at all
# Targets with v_dot2_f32 of the type, among those with one register file (LLVM, VOP3PInstructions.td).
DOT_PRODUCTS = {"f16": ("gfx90a", "gfx942", "gfx950"), "bf16": ("gfx950",)}
# Work-item id, lane's row and group, exchange between lane halves; offset, read and write address of K and of V.
_ADDRESSES = 10


def padded_columns(width: int) -> int:
    """Returns the columns of K or V in LDS and registers: `width` rounded up to a power of two, at least NARROWEST."""
    return max(NARROWEST, 1 << (width - 1).bit_length())


def value_keys(dv: int) -> int:
    """Returns the number of keys in the block of keys by four columns of V that a lane transposes: 4, or 2 for a narrow V."""
    return 4 if padded_columns(dv) >= 128 else 2


def stage_bytes(p: AttentionProblem) -> tuple[int, int]:
    """Returns the LDS bytes of one stage of K and of V."""
    size = KEYS_OF_STEP * p.element.bytes
    return size * padded_columns(p.d), size * padded_columns(p.dv)


def lds(p: AttentionProblem) -> tuple[LdsArray, LdsArray]:
    """Returns the LDS arrays: both stages of K and of V."""
    keys, values = stage_bytes(p)
    return LdsArray("K stages", STAGES * keys), LdsArray("V stages", STAGES * values)


def step_sums(p: AttentionProblem, desc: HardwareDescriptor) -> str:
    """Returns how a step's P is summed: "packed", "f32" or "".

    "packed": dot products of the rounded P, unless the log-sum-exp is stored. "f32": sums of P in f32. "": a running sum, with
    maxima, because a sum in f32 does not show whether a P exceeds f16's largest number.
    """
    if not p.lse and desc.arch in DOT_PRODUCTS[p.dtype]:
        return "packed"
    return "f32" if p.dtype == "bf16" else ""


def registers(p: AttentionProblem, desc: HardwareDescriptor, tile_q: int) -> tuple[RegisterRange, ...]:
    """Returns the named VGPR ranges of a wave in a block of `tile_q` queries."""
    queries = tile_q // WAVES
    d, dv, nq = padded_columns(p.d), padded_columns(p.dv), queries // ATOM
    scores = queries * KEYS_OF_STEP // 64
    ranges = (
        ("Q fragments", "arch", queries * d * 2 // 256),
        ("S", "arch", scores),
        ("P", "arch", scores // 2),
        ("fragments", "arch", 4 * FRAGMENTS),
        ("K staging", "arch", d // 16),
        ("V staging", "arch", dv // 16),
        ("V halves", "arch", 2),
        ("O", "acc", queries * dv // 64),
        *((name, "arch", nq) for name in STATISTICS),
        ("step sum", "arch", 1 if step_sums(p, desc) else 0),
        ("slopes", "arch", nq if p.alibi else 0),
        ("K columns", "arch", d // NARROWEST if p.d != d else 0),
        ("addresses", "arch", _ADDRESSES),
        ("temporaries", "arch", TEMPORARIES),
    )
    return tuple(RegisterRange(*row) for row in ranges)


def pairs_tiles(p: AttentionProblem) -> bool:
    """True if a block computes two Q tiles of a head, the same number from its first and from its last.

    Under a causal mask, all such pairs see the same number of keys. With a window, tiles are about equal by themselves.

    >>> from simgpu.operators import AttentionProblem
    >>> [pairs_tiles(AttentionProblem(512, 512, 64, causal=True, window=window)) for window in (None, 128)]
    [True, False]
    """
    return p.causal and p.window is None


def scalars(p: AttentionProblem, desc: HardwareDescriptor) -> tuple[RegisterRange, ...]:
    """Returns the SGPRs of a wave."""
    return scalar_ranges(
        arguments=ARGUMENT_WORDS + POINTER_WORDS * (p.lse + p.alibi) + SOFTCAP_WORDS * (p.softcap is not None),
        coordinates=COORDINATES + 1 + pairs_tiles(p),
        keys=KEYS,
        buffers=4 * (3 + p.lse),
        steps=2,
        rows=3,
        masks=1,
        byte_selectors=2,
        ones=int(step_sums(p, desc) == "packed"),
        temporaries=6,
    )
