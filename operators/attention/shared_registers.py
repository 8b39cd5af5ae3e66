"""Registers and LDS of the attention kernel whose waves share K and V through LDS, in closed form.

Eight waves, two a SIMD, own 32 queries each and go over the same keys, 64 a step. Letters: d and dv head dimensions, padded to a
power of two, 64 at least; types of 2 bytes. LDS: two stages of K and of V, 2*64*(d + dv)*2 bytes. Per lane, in 32-bit registers:

  Q^T, S^T, P^T, O^T    32*d*2/256, 32*64/64, half of it, 32*dv/64
  fragments             FRAGMENTS reads of 16 bytes, of V, then of K, on their way from LDS
  staging               the lane's 16th of a step on its way from memory: d/16, dv/16
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

WAVES = 8  # two a SIMD: one's softmax hides behind the other's products
QUERIES = 32  # of a wave
TILE = WAVES * QUERIES
KEYS_OF_STEP = 64
STAGES = 2
FRAGMENTS = 12  # reads of LDS ahead of their use: 24 matrix instructions of 16 clocks, more than its latency
# Fragments whose products stand behind the barrier that ends a wave's reads. Where products take the longest of a step, they last
# while the other wave of the SIMD reads its first fragments; where the softmax does, it is not to wait for them.
LONG_TAIL, SHORT_TAIL = 8, 3
NARROWEST = 64  # columns: every lane stages as much
COLUMN_UNIT = 8  # elements of a lane's 16 bytes of K, inside or outside of d as a whole
# Targets with v_dot2_f32 of the type, of those with one register file (LLVM, VOP3PInstructions.td).
DOT_PRODUCTS = {"f16": ("gfx90a", "gfx942", "gfx950"), "bf16": ("gfx950",)}
# Work-item id, lane's row and group, exchange between lane halves; K's offset, read and write address, V's.
_ADDRESSES = 10


def padded(width: int) -> int:
    """Columns of K or V in LDS and registers."""
    return max(NARROWEST, 1 << (width - 1).bit_length())


def value_keys(dv: int) -> int:
    """Keys of V that a lane takes of four columns, to transpose them: 4, or 2 where lanes would have nothing to do."""
    return 4 if padded(dv) >= 128 else 2


def stage_bytes(p: AttentionProblem) -> tuple[int, int]:
    """LDS bytes of one stage of K, of V."""
    size = KEYS_OF_STEP * p.element.bytes
    return size * padded(p.d), size * padded(p.dv)


def lds(p: AttentionProblem) -> tuple[LdsArray, LdsArray]:
    """Both stages of K, of V."""
    keys, values = stage_bytes(p)
    return LdsArray("K stages", STAGES * keys), LdsArray("V stages", STAGES * values)


def step_sums(p: AttentionProblem, desc: HardwareDescriptor) -> str:
    """How a step is summed up: "packed", of P as it was rounded (not where the log-sum-exp is wanted); "f32"; or "", which leaves
    it to a running sum and takes maxima, as a sum in f32 does not tell where a P passes f16's largest number."""
    if not p.lse and desc.arch in DOT_PRODUCTS[p.dtype]:
        return "packed"
    return "f32" if p.dtype == "bf16" else ""


def registers(p: AttentionProblem, desc: HardwareDescriptor) -> tuple[RegisterRange, ...]:
    """The named ranges of a wave."""
    d, dv, nq = padded(p.d), padded(p.dv), QUERIES // ATOM
    scores = QUERIES * KEYS_OF_STEP // 64
    ranges = (
        ("Q fragments", "arch", QUERIES * d * 2 // 256),
        ("S", "arch", scores),
        ("P", "arch", scores // 2),
        ("fragments", "arch", 4 * FRAGMENTS),
        ("K staging", "arch", d // 16),
        ("V staging", "arch", dv // 16),
        ("V halves", "arch", 2),
        ("O", "acc", QUERIES * dv // 64),
        *((name, "arch", nq) for name in STATISTICS),
        ("step sum", "arch", 1 if step_sums(p, desc) else 0),
        ("slopes", "arch", nq if p.alibi else 0),
        ("K columns", "arch", d // NARROWEST if p.d != d else 0),
        ("addresses", "arch", _ADDRESSES),
        ("temporaries", "arch", TEMPORARIES),
    )
    return tuple(RegisterRange(*row) for row in ranges)


def scalars(p: AttentionProblem, desc: HardwareDescriptor) -> tuple[RegisterRange, ...]:
    """SGPRs of a wave."""
    return scalar_ranges(
        arguments=ARGUMENT_WORDS + POINTER_WORDS * (p.lse + p.alibi) + SOFTCAP_WORDS * (p.softcap is not None),
        coordinates=COORDINATES + 1 + p.causal,
        keys=KEYS,
        buffers=4 * (3 + p.lse),
        steps=2,
        rows=3,
        masks=1,
        byte_selectors=2,
        ones=int(step_sums(p, desc) == "packed"),
        temporaries=6,
    )
