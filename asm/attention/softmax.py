"""Softmax between the two products: lane-local, base 2, relative to a reference that seldom moves.

A lane's scores all belong to query i of an atom. With c = scale · log2(e) and a reference m per query (base 2, kept negated), P
= 2^(c·S - m). Any m is correct that keeps P in range, as long as the lanes of a query agree. So m is raised only if some
exponent exceeds a threshold. That costs one wave-wide vote an atom and step; the cross-lane maximum and the rescale of O and of
the row sums are out of line.

A raised m makes the largest P equal to GAINS of the operands' type: f16 has too little range below 1. A query that has seen no
key has the threshold FLOOR instead, so that its first key sets m, whatever its sign. Masked scores are -inf: their P is 0 for
every m, also if the query has seen nothing else. Row sums stay partial, a lane's keys each, until the end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from simgpu.asm.attention.frame import AttentionFrame
from simgpu.asm.attention.shape import GROUPS, QUAD
from simgpu.asm.attention.wave import WaveRegisters
from simgpu.asm.builder.formula import of
from simgpu.asm.builder.interleave import interleave, stream
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.matrix import scale
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM, GAINS

LAZY = 8.0  # smaller exponents do not move m: P <= 256, and the f32 sums lose no bits (HipKittens)
LARGEST_F16 = 15.9  # the same for P in f16: 2^15.9 = 61147 is below its largest finite value, 65504
FLOOR = -3.4028234663852886e38  # the lowest finite f32: everything but -inf (and NaN) exceeds it
MINUS_INFINITY = -math.inf
LN_2 = math.log(2)
ONES = {"bf16": 0x3F803F80, "f16": 0x3C003C00}
UNSEEN = -1.0  # threshold of a query that has seen no key: any sum exceeds it
INFINITE = 2.0**24  # finite f16 numbers of a lane's keys in a step cannot add up to this
BATCH = 8  # exponentials in flight before they are rounded


@dataclass(frozen=True)
class HiddenReads:
    """LDS reads that are emitted among the last instructions of a softmax, which hide them."""

    wait: Callable[[], object]  # emits the wait before the softmax's last instructions
    reads: Callable[[], object]  # emits the reads, among those instructions

    @contextlib.contextmanager
    def interleave_block(self, k: KernelBuilder) -> Iterator[None]:
        """Emits the wait, then merges the reads with the instructions emitted inside the `with` block."""
        self.wait()
        with stream(k) as reads:
            self.reads()
        with stream(k) as last:
            yield
        k.items += interleave(reads, last)


class SoftmaxUpdate:
    """Emits the update for some query atoms.

    Scores in base 2, with c = scale · log2(e): plain, c·S; capped, cap·tanh(x) = cap - 2·cap / (1 + e^2x), with e^2x = 2^(c'·S).
    ALiBi subtracts its slope times the distance of query and key. `scalars` in frame.py has the constants.
    """

    def __init__(self, wave: WaveRegisters, block: AttentionFrame) -> None:
        self.wave, self.k, self.block, self.p = wave, wave.k, block, block.plan.problem
        k, gain = self.k, GAINS.get(self.p.dtype, 1.0)
        self.windowed, self.capped = self.p.window is not None, self.p.softcap is not None
        self.lane_row, self.group, self.temporaries = block.lane_row, block.group, wave.ranges["temporaries"]
        self.raised = math.log2(gain)  # the largest exponent when m has been raised
        self.threshold = LAZY if gain == 1 else LARGEST_F16
        self.references, self.sums, self.thresholds = (
            wave.ranges[name] for name in ("references", "row sums", "thresholds")
        )
        self.masked, self.other_half = k.s.alloc("some score is masked"), k.v.alloc("4·(lane ^ 32)")
        k.v_lshlrev_b32(self.other_half, 2, k.work_item)
        k.v_and_b32(self.other_half, 4 * (WAVEFRONT - 1), self.other_half)
        k.v_xor_b32(self.other_half, 4 * 32, self.other_half)

    def start(self) -> None:
        """Emits the state before any key."""
        k = self.k
        k.move(self.references, 0, note="-m of each query atom")
        k.move(self.sums, 0)
        k.move(self.thresholds, FLOOR)

    def exponents(self, half: Sequence[int], q: int) -> list[Reg]:
        """Returns the registers of c·S - m, later of the unrounded P, of query atom q, key by key."""
        wave, na = self.wave, self.wave.shape.na
        if "exponents" in wave.ranges:
            place = wave.ranges["exponents"]
            start = (q - half[0]) * na * QUAD
        elif wave.k.target == "gfx908":
            place, start = wave.ranges["P"], q * na * QUAD
        else:
            place, start = wave.ranges["S"], q * na * QUAD
        return [place[start + n] for n in range(na * QUAD)]

    def update(self, half: Sequence[int], ahead: HiddenReads | None = None) -> None:
        """Emits P of the query atoms `half` from their S, and the updates of m, the row sums and O."""
        self._exponents_of(half)
        for q in half:
            weights = self.exponents(half, q)
            self._raise(q, weights)
            self._exponentials(weights, q)
            with ahead.interleave_block(self.k) if ahead is not None and q == half[-1] else contextlib.nullcontext():
                for register in weights:
                    self.k.v_add_f32(self.sums[q], self.sums[q], register)
                self._round(q, weights)

    def _exponents_of(self, half: Sequence[int]) -> None:
        """Emits the scores in base 2, minus m; masked scores are -inf."""
        k = self.k
        for q in half:
            scores = [self.wave.score(q, a)[r] for a in range(self.wave.shape.na) for r in range(QUAD)]
            subtrahend = self.references[q]
            if self.capped:
                subtrahend = k.v_add_f32(self.temporaries[2], self.block.arguments["cap"], subtrahend, note="cap - m")
            for x, score in zip(self.exponents(half, q), scores, strict=True):
                source = score
                if score.file == "a":
                    source = k.v_accvgpr_read_b32(x, score)
                self._exponent(x, source, subtrahend, q)
            if self.p.alibi:
                self._alibi(q, self.exponents(half, q))
        self._mask_half(half)

    def _exponentials(self, x: Sequence[Reg], q: int) -> None:
        for register in x:
            self.k.v_exp_f32(register, register, note=f"P, query atom {q}")

    def end(self, q: int) -> None:
        """Adds the row sums of a query's four lanes. Every lane gets the result."""
        self.across_groups("v_add_f32", self.sums[q])

    def _exponent(self, x: Reg, score: Reg, subtrahend: Reg, q: int) -> None:
        """Emits x = the score in base 2, minus m."""
        k, a, note = self.k, self.block.arguments, f"exponent, query atom {q}"
        if not self.capped:
            k.v_fma_f32(x, score, a["scale"], subtrahend, note=note)
            return
        k.v_exp_f32(x, k.v_mul_f32(x, a["scale"], score))
        k.v_rcp_f32(x, k.v_add_f32(x, 1.0, x))
        k.v_fma_f32(x, x, a["minus_twice_cap"], subtrahend, note=note)

    def _alibi(self, q: int, x: Sequence[Reg]) -> None:
        """Subtracts slope · |query - key| from the exponents."""
        k, block, slope = self.k, self.block, self.wave.ranges["slopes"][q]
        behind, before, distance, other = (self.temporaries[n] for n in (2, 3, 4, 5))
        block.query_of(behind, q)
        k.set(behind, of(behind) - of(self.group, GROUPS) * QUAD + (of(block.position) - block.first_key))
        k.v_cvt_f32_i32(behind, behind, note=f"query's place minus the first key, query atom {q}")
        if not self.p.causal:
            k.v_sub_f32(before, 0, behind)
        for n, register in enumerate(x):
            key = float(ATOM * (n // QUAD) + n % QUAD)
            k.v_subrev_f32(distance, key, behind)
            if not self.p.causal:
                k.v_add_f32(other, key, before)
                k.v_max_f32(distance, distance, other)
            k.v_fma_f32(register, distance, slope, register, note="ALiBi")

    # -- masks -------------------------------------------------------------------------------

    def find_edges(self) -> None:
        """Emits masked = 1 if an edge cuts the wave's step, else 0."""
        k, block = self.k, self.block
        k.s_add_u32(self.masked, block.first_key, block.wave_keys)
        k.s_cmp_gt_i32(self.masked, block.full_high)
        k.s_cselect_b32(self.masked, 1, 0)
        if self.windowed:
            k.s_cmp_lt_i32(block.first_key, block.full_low)
            k.s_cselect_b32(self.masked, 1, self.masked)

    def _mask_half(self, half: Sequence[int]) -> None:
        k = self.k
        with k.aside(k.s_cmp_lg_u32(self.masked, 0), "masked", "unmasked"):
            k.comment("scores past an edge: -inf")
            high, low, minus_infinity = self.temporaries[1], self.temporaries[2], self.temporaries[3]
            k.v_mov_b32(minus_infinity, MINUS_INFINITY)
            for q in half:
                self._bounds(q, high, low)
                for n, x in enumerate(self.exponents(half, q)):
                    key = ATOM * (n // QUAD) + n % QUAD
                    k.v_cndmask_b32(x, minus_infinity, x, k.v_cmp_le_i32("vcc", key, high))
                    if self.windowed:
                        k.v_cndmask_b32(x, minus_infinity, x, k.v_cmp_ge_i32("vcc", key, low))

    def _bounds(self, q: int, high: Reg, low: Reg) -> None:
        """Emits the last and first key that the lane's query sees, relative to the lane's first key of the step (4g)."""
        k, block = self.k, self.block
        position, reach, last = self.temporaries[4], of(block.arguments["window"]) - 1, of(block.high)
        if self.p.causal or self.windowed:
            block.query_of(position, q)
            k.v_add_u32(position, block.position, position, note="the query's place among the keys")
            last = last.least(position if self.p.causal else of(position) + reach, "i32")
        if self.windowed:
            k.set(low, of(position) - reach - block.first_key - of(self.group, GROUPS) * QUAD)
        k.set(high, last - block.first_key - of(self.group, GROUPS) * QUAD, note=f"query atom {q}: last key")

    # -- the reference -----------------------------------------------------------------------

    def _raise(self, q: int, x: Sequence[Reg]) -> None:
        """Moves m to the new maximum, out of line, if an exponent exceeds the threshold."""
        k, largest = self.k, self.temporaries[0]
        self._maximum(largest, x)
        k.v_cmp_gt_f32("vcc", largest, self.thresholds[q], note=f"does a maximum of query atom {q} move?")
        with k.aside("vccnz", "raise", "kept"):
            k.comment(f"query atom {q}: new reference, rescaled sums and O")
            self.across_groups("v_max_f32", largest)
            k.v_cmp_gt_f32("vcc", largest, self.thresholds[q])
            self._rescale(q, x, self.threshold)

    def _rescale(self, q: int, x: Sequence[Reg], threshold: float) -> None:
        """Moves m, in lanes of VCC, so that the largest exponent (temporaries[0]) becomes log2(gain).

        Exponents, row sum and O are rescaled, and these lanes' thresholds become `threshold`.
        """
        k = self.k
        largest, rise, factor = self.temporaries[0], self.temporaries[2], self.temporaries[3]
        if self.raised:
            k.v_subrev_f32(largest, float(self.raised), largest)
        k.v_cndmask_b32(rise, 0, largest, "vcc")
        k.v_mov_b32(factor, threshold)
        k.v_cndmask_b32(self.thresholds[q], self.thresholds[q], factor, "vcc")
        k.v_sub_f32(self.references[q], self.references[q], rise)
        for register in x:
            k.v_sub_f32(register, register, rise)
        k.v_max_f32(rise, 0, rise, note="a first key may lower m, but there is nothing to rescale")
        k.v_exp_f32(factor, k.v_sub_f32(rise, 0, rise))
        k.v_mul_f32(self.sums[q], factor, self.sums[q])
        for t in range(self.wave.shape.column_atoms):
            scale(k, self.wave.output(t, q), [factor] * QUAD, self.temporaries[4:8])

    def _maximum(self, target: Reg, x: Sequence[Reg]) -> None:
        k = self.k
        k.v_max3_f32(target, x[0], x[1], x[2])
        rest = list(x[3:])
        while len(rest) > 1:
            k.v_max3_f32(target, target, rest.pop(0), rest.pop(0))
        for last in rest:
            k.v_max_f32(target, target, last)

    def across_groups(self, operation: str, value: Reg) -> None:
        """Combines a value over the four lane groups, lanes 16 and 32 apart. Every lane gets the result."""
        k, other = self.k, self.temporaries[1]
        k.ds_swizzle_b32(other, value, offset="swizzle(SWAP,16)")
        k.emit(operation, value, value, other)
        k.ds_bpermute_b32(other, self.other_half, value)
        k.emit(operation, value, value, other)

    # -- rounding ----------------------------------------------------------------------------

    def _round(self, q: int, x: Sequence[Reg]) -> None:
        """Rounds P to the operands' type: pairs of keys in a register."""
        if self.wave.shape.narrow:
            self._pack(self.wave.weights(q), x)

    def _pack(self, packed: Reg, x: Sequence[Reg]) -> None:
        k, bf16 = self.k, self.wave.shape.score.a_type == "bf16"
        if bf16 and k.target == "gfx950":
            for n in range(0, len(x), 2):
                k.v_cvt_pk_bf16_f32(packed[n // 2], x[n], x[n + 1])
            return
        for register in x:
            if bf16:
                k.v_add_u32(register, 0x8000, register, note="to nearest")
            else:
                k.v_cvt_f16_f32(register, register)
        for n in range(0, len(x), 2):
            if bf16:
                k.v_perm_b32(packed[n // 2], x[n + 1], x[n], self.wave.pack[1])
            else:
                k.v_pack_b32_f16(packed[n // 2], x[n], x[n + 1])


def inverse(k: KernelBuilder, target: Reg, total: Reg) -> None:
    """Emits target = 1 / total, 0 for a query that saw no key."""
    k.v_cmp_eq_f32("vcc", 0, total)
    k.v_rcp_f32(target, total)
    k.v_cndmask_b32(target, target, 0, "vcc", note="no key seen: 0")


def log_sum_exp(k: KernelBuilder, target: Reg, total: Reg, reference: Reg) -> None:
    """Emits target = log(sum(exp)) of a query, from its row sum and -m in base 2."""
    k.v_log_f32(target, total)
    k.v_sub_f32(target, target, reference)
    k.v_mul_f32(target, LN_2, target)


class StepSums(SoftmaxUpdate):
    """Emits the update for some query atoms, without a maximum until a step's sum shows that some P exceeds its bound.

    The exponents stay in registers, so that P can be recomputed. The rounded P are summed, two per instruction (v_dot2_f32 with
    ones), if the target has that for the type and no log-sum-exp is stored. Otherwise P is summed in f32.
    """

    packed: bool  # True: sums of the rounded P

    def start(self) -> None:
        """Emits the state before any key."""
        super().start()
        k, wave = self.k, self.wave
        self.total = wave.ranges["step sum"]
        # Limit for a lane's sum of a step. Above it, some P exceeds 2^LAZY or, in f16, was rounded to infinity.
        self.most = INFINITE if self.raised else wave.shape.na * QUAD * 2.0**self.threshold
        k.move(self.thresholds, UNSEEN)
        if self.packed:
            self.ones = k.scalar("two ones", ONES[wave.shape.half])

    def update(self, half: Sequence[int], ahead: HiddenReads | None = None) -> None:
        """Emits P of these query atoms from their S, and the updates of m, the sums and O."""
        self._exponents_of(half)
        for q in half:
            x = self.exponents(half, q)
            self._weights(q, x, ahead if q == half[-1] else None)
            self._raise(q, x)
            self.k.v_add_f32(self.sums[q], self.sums[q], self.total)

    def _weights(self, q: int, x: Sequence[Reg], ahead: HiddenReads | None) -> None:
        """Emits P from the exponents, and its sum."""
        for first in range(0, len(x), BATCH):
            last = ahead is not None and first + BATCH == len(x)
            with ahead.interleave_block(self.k) if ahead is not None and last else contextlib.nullcontext():
                self._batch(q, first, x[first : first + BATCH])

    def _batch(self, q: int, first: int, exponents: Sequence[Reg]) -> None:
        k, total, note = self.k, self.total, f"sum, query atom {q}"
        batch = [self.temporaries[n] for n in range(BATCH)]
        for register, exponent in zip(batch, exponents, strict=True):
            k.v_exp_f32(register, exponent, note=f"P, query atom {q}")
        part = self.wave.weights(q)[first // 2 : (first + BATCH) // 2]
        if self.packed:
            self._pack(part, batch)
            for n in range(BATCH // 2):
                before = total if first or n else 0
                k.emit(f"v_dot2_f32_{self.wave.shape.half}", total, part[n], self.ones, before, note=note)
            return
        rest = batch if first else batch[2:]
        if not first:
            k.v_add_f32(total, batch[0], batch[1], note=note)
        for register in rest:
            k.v_add_f32(total, total, register, note=note)
        self._pack(part, batch)

    def _raise(self, q: int, x: Sequence[Reg]) -> None:
        """Emits, out of line, the new maximum m and P recomputed, if a step's sum exceeds its threshold."""
        k, largest, bound, floor = self.k, self.temporaries[0], self.temporaries[2], self.temporaries[3]
        k.v_cmp_gt_f32("vcc", self.total, self.thresholds[q], note=f"does a maximum of query atom {q} move?")
        with k.aside("vccnz", "raise", "kept"):
            k.comment(f"query atom {q}: new reference, rescaled sums and O, P anew")
            self._maximum(largest, x)
            self.across_groups("v_max_f32", largest)
            k.v_mov_b32(bound, self.threshold)
            k.v_mov_b32(floor, FLOOR)
            k.v_cndmask_b32(bound, bound, floor, k.v_cmp_gt_f32("vcc", 0, self.thresholds[q]), note="any score is a query's first")
            k.v_cmp_gt_f32("vcc", largest, bound)
            self._rescale(q, x, self.most)
            self._weights(q, x, None)


class PackedSums(StepSums):
    """Sums of the rounded P."""

    packed = True


class ExactSums(StepSums):
    """Sums of P in f32."""

    packed = False


FORMS = {"packed": PackedSums, "f32": ExactSums, "": SoftmaxUpdate}
