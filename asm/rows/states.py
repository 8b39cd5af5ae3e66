"""States (m, delta) of rows, in f32 or f64; merges of lanes, of a row's waves through LDS, of a split row's parts through memory.

A value is one VGPR or a pair. Exponents are to base 2 in f32, to base e in f64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.activation_f64 import ActivationF64
from simgpu.asm.parts.lanes import lane_number, lanes_reduce
from simgpu.asm.rows.frame import RowFrame
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg

SIGN, QUIET_NAN = 0x80000000, 0x7FF80000  # of an upper word
TEMPORARIES = 4  # VGPRs, or pairs of them


class RowArithmetic:
    """In f32. `scratch`: temporaries. factor: SGPRs of the scores' factor, which only differences of scores are multiplied by.

    So a score near the largest number does not become infinite.
    """

    kind, words = "f32", 1
    lowest = float(np.finfo(np.float32).min)  # the maximum of no elements
    minus_infinity = 0xFF800000  # upper word

    def __init__(self, k: KernelBuilder, factor: Reg) -> None:
        self.k, self.factor = k, factor
        self.scratch = k.v.alloc("temporaries", TEMPORARIES * self.words)

    @property
    def address(self) -> Reg:
        """A temporary that only `leave_out_value` overwrites."""
        return self.scratch[self.scratch.count - 1]

    def temporary(self, number: int) -> Reg:
        """Returns one of the temporaries."""
        return self.scratch.group(number, self.words)

    def operand(self, x: Reg | float) -> Reg | float:
        """Returns a register, or a number as an operand."""
        return x

    def floor(self, m: Reg) -> None:
        """Emits m = the lowest number that a maximum begins with."""
        self.move(m, self.operand(self.lowest))

    def move(self, target: Reg, source: Reg | float) -> None:
        """Emits target = source, a register or, in f32, a number; 0 in both."""
        self.k.move(target, source)

    def maximum(self, m: Reg, elements: Sequence[Reg]) -> None:
        """Emits m = the largest of m and the elements; NaNs do not count."""
        for first, second in zip(elements[::2], elements[1::2], strict=False):
            self.k.v_max3_f32(m, m, first, second)
        if len(elements) % 2:
            self.k.v_max_f32(m, m, elements[-1])

    def multiply(self, target: Reg, x: Reg | float, y: Reg) -> None:
        """Emits target = x · y. x: may be an SGPR or a number."""
        self.k.emit(f"v_mul_{self.kind}", target, self.operand(x), y)

    def add(self, target: Reg, x: Reg) -> None:
        """Emits target += x."""
        self.k.emit(f"v_add_{self.kind}", target, x, target)

    def exp(self, elements: Sequence[Reg], m: Reg, into: Sequence[Reg] = ()) -> None:
        """Emits the exponential of factor · (x - m) for each element x, in its place or in the registers `into`."""
        targets = into or elements
        for target, x in zip(targets, elements, strict=True):
            self.k.v_subrev_f32(target, m, x)
        for target in targets:
            self.k.v_mul_f32(target, self.factor, target)
        for target in targets:
            self.k.v_exp_f32(target, target)

    def of_logarithm(self, x: Reg, m: Reg, scale: Reg, minus_log: Reg) -> None:
        """Emits x = scale · (x - m) + minus_log."""
        self.k.v_subrev_f32(x, m, x)
        self.k.v_fma_f32(x, x, scale, minus_log)

    def select(self, target: Reg, source: Reg) -> None:
        """Emits target = source in lanes that VCC excludes."""
        for word in range(self.words):
            self.k.v_cndmask_b32(target[word], source[word], target[word], "vcc")

    def leave_out_value(self) -> None:
        """Emits the constant that `leave_out` needs, in `address`."""
        self.k.v_mov_b32(self.address, self.minus_infinity)

    def leave_out(self, x: Reg) -> None:
        """Emits x = -infinity in lanes that VCC excludes."""
        *lower, upper = (x[word] for word in range(self.words))
        for word in lower:
            self.k.v_cndmask_b32(word, 0, word, "vcc")
        self.k.v_cndmask_b32(upper, self.address, upper, "vcc")

    def reduce(self, operation: str, value: Reg, lanes: int, note: str) -> None:
        """Emits value = the largest or the sum (max, add) over each group of `lanes` lanes. Overwrites temporary 0."""
        lanes_reduce(self.k, f"v_{operation}_{self.kind}", value, self.temporary(0), lanes, note)

    def is_zero(self, delta: Reg) -> None:
        """Emits VCC = delta is 0."""
        self.k.emit(f"v_cmp_eq_{self.kind}", "vcc", 0, delta)

    def set_to_one(self, delta: Reg) -> None:
        """Emits delta = 1."""
        self.move(delta, 1.0)

    def inverse(self, delta: Reg, gain: float) -> None:
        """Emits delta = gain / delta."""
        self.k.v_rcp_f32(delta, delta)
        if gain != 1:
            self.k.v_mul_f32(delta, gain, delta, note="the gain")

    def minus_logarithm(self, delta: Reg) -> None:
        """Emits delta = -log(delta)."""
        self.k.v_log_f32(delta, delta)
        self.k.v_mul_f32(delta, -math.log(2), delta)


class WideArithmetic(RowArithmetic):
    """In f64. The exponential is a polynomial, and NaN stays NaN."""

    kind, words = "f64", 2
    lowest = float(np.finfo(np.float64).min)
    one, minus_infinity = 0x3FF00000, 0xFFF00000  # upper words

    def __init__(self, k: KernelBuilder, factor: Reg) -> None:
        super().__init__(k, factor)
        self.polynomial = ActivationF64(k, "exp")
        self.polynomial.keep()

    def operand(self, x: Reg | float) -> Reg | float:
        """Returns a register, or the SGPRs of a number."""
        return x if isinstance(x, Reg) else self.polynomial.value(x)

    def maximum(self, m: Reg, elements: Sequence[Reg]) -> None:
        """Emits m = the largest of m and the elements; NaNs do not count."""
        for element in elements:
            self.k.v_max_f64(m, m, element)

    def exp(self, elements: Sequence[Reg], m: Reg, into: Sequence[Reg] = ()) -> None:
        """Emits the exponential of factor · (x - m) for each element x. Overwrites temporaries 0, 1 and 3."""
        k, nan = self.k, self.temporary(3)[0]
        k.v_mov_b32(nan, QUIET_NAN)
        for target, x in zip(into or elements, elements, strict=True):
            k.v_fma_f64(target, m, -1.0, x)
            k.v_mul_f64(target, self.factor, target)
            k.v_cmp_o_f64("vcc", target, target)
            self.polynomial.exp(target, self.temporary(0), self.temporary(1))
            k.v_cndmask_b32(target[1], nan, target[1], "vcc")

    def of_logarithm(self, x: Reg, m: Reg, scale: Reg, minus_log: Reg) -> None:
        """Emits x = scale · (x - m) + minus_log."""
        self.k.v_fma_f64(x, m, -1.0, x)
        self.k.v_fma_f64(x, scale, x, minus_log)

    def set_to_one(self, delta: Reg) -> None:
        """Emits delta = 1."""
        self.move(delta, 0)
        self.k.v_mov_b32(delta[1], self.one)

    def inverse(self, delta: Reg, gain: float) -> None:
        """Emits delta = gain / delta by v_rcp_f64 and two Newton steps. NaN stays NaN."""
        k, y, error = self.k, self.temporary(0), self.temporary(1)
        k.v_rcp_f64(y, delta)
        for _ in range(2):
            k.v_fma_f64(error, delta, y, -1.0)
            k.v_xor_b32(error[1], SIGN, error[1])
            k.v_fma_f64(y, y, error, y, note="1/delta")
        k.v_div_fixup_f64(delta, y, delta, 1.0, note="1/0: infinity")
        if gain != 1:
            self.multiply(delta, gain, delta)

    def minus_logarithm(self, delta: Reg) -> None:
        """Emits delta = y - log(1 + e) = -log(delta), with y from v_log_f32, e = delta · exp(y) - 1. Overwrites all temporaries.

        e is below 2^-18, so two terms of the series are enough: the third is below half a unit of f64.
        """
        k, y, e = self.k, self.temporary(2), self.temporary(3)
        k.v_log_f32(y[0], k.v_cvt_f32_f64(y[0], delta))
        k.v_cvt_f64_f32(y, k.v_mul_f32(y[0], -math.log(2), y[0]))
        self.move(e, y)
        self.polynomial.exp(e, self.temporary(0), self.temporary(1))
        k.v_fma_f64(e, delta, e, -1.0)
        k.v_fma_f64(delta, e, 0.5, -1.0)
        k.v_fma_f64(delta, e, delta, y)


class RowState:
    """State of a row: the maximum m of scores, and delta, the sum of exp(score - m). First a lane's, then after merges the row's.

    running: True if lanes keep an m of their own to the row's end.
    """

    def __init__(self, frame: RowFrame, arithmetic: RowArithmetic, running: bool) -> None:
        self.frame, self.arithmetic, self.running = frame, arithmetic, running
        self.k, self.lanes, k, words = frame.k, frame.lanes, frame.k, arithmetic.words
        self.bytes = 2 * words * WORD
        self.registers = k.v.alloc("m, delta", 2 * words)
        self.m, self.delta = self.registers.group(0, words), self.registers.group(1, words)
        self.kept = arithmetic.temporary(2)

    def empty(self) -> None:
        """Emits the empty state."""
        self.arithmetic.floor(self.m)
        self.arithmetic.move(self.delta, 0)

    def keep(self) -> None:
        """Saves m before it changes."""
        self.arithmetic.move(self.kept, self.m)

    def rescale(self) -> None:
        """Rescales delta from the m that `keep` saved to m. Leaves their exponential where m was saved."""
        self.arithmetic.exp((self.kept,), self.m)
        self.arithmetic.multiply(self.delta, self.kept, self.delta)

    def reduce_maximum(self) -> None:
        """Emits m = the largest of the row's lanes' m."""
        self._reduce_maximum(self.lanes)

    def _reduce_maximum(self, lanes: int) -> None:
        self.arithmetic.reduce("max", self.m, lanes, "m")

    def _reduce_sum(self, lanes: int) -> None:
        self.arithmetic.reduce("add", self.delta, lanes, "delta")

    def merge_lanes(self) -> None:
        """Merges the states of the lanes that share the row in a wave."""
        self.k.comment(f"the states of {self.lanes} lanes merge")
        if self.running:
            self._merge(self.lanes)
        else:
            self._reduce_sum(self.lanes)

    def _merge(self, lanes: int) -> None:
        """Merges the states of each group of lanes."""
        self.keep()
        self._reduce_maximum(lanes)
        self.rescale()
        self._reduce_sum(lanes)

    def merge_waves(self) -> None:
        """Merges the states of the row's waves through LDS. Leaves exp(m of the wave - m) where `keep` saves."""
        k, arithmetic, words, kept, waves = self.k, self.arithmetic, self.arithmetic.words, self.kept, self.frame.tiles.waves_row
        address, own = arithmetic.address, k.s.alloc("m of the wave", words)
        k.comment(f"the states of the row's {waves} waves merge")
        for word in range(words):
            k.v_readfirstlane_b32(own[word], self.m[word])
        region = self.frame.share(self.registers, address, "m, delta")
        for target, part in ((self.m, 0), (self.delta, 1)):
            k.ds_read(target, address, offset=region.offset + part * WORD * words)
        self._merge(waves)
        arithmetic.move(kept, own)
        k.s.free(own)
        arithmetic.exp((kept,), self.m)

    def own_share(self) -> None:
        """Makes delta, after `merge_waves` and its inversion, relative to the wave's own m, as its elements are."""
        self.arithmetic.multiply(self.delta, self.kept, self.delta)

    # -- parts of a split row ------------------------------------------------------------------

    def leave(self, states: Reg) -> None:
        """Stores the part's state. states: the buffer of the row's."""
        k, address = self.k, self.arithmetic.address
        k.set(address, of(k.group_y) * self.bytes)
        k.s_mov_b64("exec", 1, note="one lane")
        k.buffer_store(self.registers, address, states, 0, note="m, delta")

    def merge_parts(self, states: Reg, held: Reg) -> None:
        """Merges the states of all parts of the row, 64 at a time, a lane each. Lanes without a part count nothing.

        states: the buffer of the row's. held: VGPRs for m of a lane's parts.
        """
        k, arithmetic, words, parts = self.k, self.arithmetic, self.arithmetic.words, self.frame.tiles.parts
        address, delta = arithmetic.address, self.kept
        maxima = [held.group(i, words) for i in range(-(-parts // WAVEFRONT))]
        self.empty()
        lane_number(k, address)
        k.set(address, of(address) * self.bytes)
        for i, m in enumerate(maxima):
            k.buffer_load(m, address, states, 0, note="m of a part")
            if i == len(maxima) - 1 and parts % WAVEFRONT:
                arithmetic.floor(delta)
                k.v_cmp_gt_u32("vcc", parts * self.bytes, address)
                arithmetic.select(m, delta)
            k.v_add_u32(address, WAVEFRONT * self.bytes, address)
        arithmetic.maximum(self.m, maxima)
        self.reduce_maximum()
        for m in reversed(maxima):
            k.v_subrev_u32(address, WAVEFRONT * self.bytes, address)
            k.buffer_load(delta, address, states, 0, offset=WORD * words, note="delta")
            arithmetic.exp((m,), self.m)
            arithmetic.multiply(m, delta, m)
            arithmetic.add(self.delta, m)
        self._reduce_sum(self.lanes)
