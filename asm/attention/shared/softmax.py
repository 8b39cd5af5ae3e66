"""Softmax that detects from a step's row sum that m must be raised because some P exceeds its bound.

Until then it computes no maximum. The exponents stay in registers, so that P can be recomputed. The rounded P are summed, two per
instruction (v_dot2_f32 with ones), if the target has that for the type and no log-sum-exp is stored. Otherwise P is summed in f32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from simgpu.asm.attention.shape import QUAD
from simgpu.asm.attention.softmax import FLOOR, HiddenReads, SoftmaxUpdate
from simgpu.hardware.isa.instruction import Reg

ONES = {"bf16": 0x3F803F80, "f16": 0x3C003C00}
UNSEEN = -1.0  # threshold of a query that has seen no key: any sum exceeds it
INFINITE = 2.0**24  # finite f16 numbers of a lane's keys in a step cannot add up to this
BATCH = 8  # exponentials in flight before they are rounded


class StepSums(SoftmaxUpdate):
    """Emits the update for some query atoms, with a check of the step's sums."""

    packed: bool  # True: sums of the rounded P

    def start(self) -> None:
        """Emits the state before any key."""
        super().start()
        k, wave = self.k, self.wave
        self.total = wave.ranges["step sum"]
        # Limit for a lane's sum of a step. Above it, some P exceeds 2^LAZY or, in f16, was rounded to infinity.
        self.most = INFINITE if self.raised else wave.shape.na * QUAD * 2.0**self.threshold
        for q in range(wave.shape.nq):
            k.v_mov_b32(self.thresholds[q], UNSEEN)
        if self.packed:
            self.ones = k.s.alloc("two ones")
            k.s_mov_b32(self.ones, ONES[wave.shape.half])

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
            k.v_cmp_gt_f32("vcc", 0, self.thresholds[q])
            k.v_cndmask_b32(bound, bound, floor, "vcc", note="any score is a query's first")
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
