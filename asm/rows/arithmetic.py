"""Arithmetic of softmax states: f32 with exponents to base 2, f64 with exponents to base e. A value is one VGPR or a pair."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.activation_f64 import ActivationF64
from simgpu.asm.parts.lanes import lanes_reduce, lanes_reduce_wide
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.tree import FINITE_FLOOR

SIGN, QUIET_NAN = 0x80000000, 0x7FF80000  # of an upper word
TEMPORARIES = 4  # VGPRs, or pairs of them


class RowArithmetic:
    """In f32. `scratch`: temporaries."""

    kind, words = "f32", 1
    largest, lowest = float(np.finfo(np.float32).max), FINITE_FLOOR
    minus_infinity = 0xFF800000  # upper word

    def __init__(self, k: KernelBuilder) -> None:
        self.k = k
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

    def limit(self, m: Reg) -> None:
        """Limits m to the largest finite number, because infinity - m is infinity."""
        self.k.emit(f"v_min_{self.kind}", m, self.operand(self.largest), m)

    def move(self, target: Reg, source: Reg | float) -> None:
        """Emits target = source, a register or, in f32, a number; 0 in both."""
        for word in range(self.words):
            self.k.v_mov_b32(target[word], source[word] if isinstance(source, Reg) else source)

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

    def exp(self, elements: Sequence[Reg], m: Reg) -> None:
        """Emits x = exp(x - m) for each element x."""
        for x in elements:
            self.k.v_subrev_f32(x, m, x)
        for x in elements:
            self.k.v_exp_f32(x, x)

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
        reduction = lanes_reduce if self.words == 1 else lanes_reduce_wide
        reduction(self.k, f"v_{operation}_{self.kind}", value, self.temporary(0), lanes, note)

    def inverse(self, delta: Reg, gain: float) -> None:
        """Emits delta = gain / delta, 0 for a row in which nothing counts. Overwrites temporary 0."""
        k, found = self.k, self.temporary(0)
        k.v_rcp_f32(found, delta)
        if gain != 1:
            k.v_mul_f32(found, gain, found, note="the gain")
        k.v_cmp_eq_f32("vcc", 0, delta)
        k.v_cndmask_b32(delta, found, 0, "vcc")


class WideArithmetic(RowArithmetic):
    """In f64. The exponential is a polynomial, and NaN stays NaN."""

    kind, words = "f64", 2
    largest = float(np.finfo(np.float64).max)
    lowest = -largest
    minus_infinity = 0xFFF00000

    def __init__(self, k: KernelBuilder) -> None:
        super().__init__(k)
        self.polynomial = ActivationF64(k, "exp")
        self.polynomial.keep()

    def operand(self, x: Reg | float) -> Reg | float:
        """Returns a register, or the SGPRs of a number."""
        return x if isinstance(x, Reg) else self.polynomial.value(x)

    def maximum(self, m: Reg, elements: Sequence[Reg]) -> None:
        """Emits m = the largest of m and the elements; NaNs do not count."""
        for element in elements:
            self.k.v_max_f64(m, m, element)

    def exp(self, elements: Sequence[Reg], m: Reg) -> None:
        """Emits x = exp(x - m) for each element x. Overwrites temporaries 0, 1 and 3."""
        k, nan = self.k, self.temporary(3)[0]
        k.v_mov_b32(nan, QUIET_NAN)
        for x in elements:
            k.v_fma_f64(x, m, -1.0, x)
            k.v_cmp_o_f64("vcc", x, x)
            self.polynomial.exp(x, self.temporary(0), self.temporary(1))
            k.v_cndmask_b32(x[1], nan, x[1], "vcc")

    def inverse(self, delta: Reg, gain: float) -> None:
        """Emits delta = gain / delta by v_rcp_f64 and two Newton steps, 0 for a row in which nothing counts. NaN stays NaN."""
        k, y, error = self.k, self.temporary(0), self.temporary(1)
        k.v_rcp_f64(y, delta)
        for _ in range(2):
            k.v_fma_f64(error, delta, y, -1.0)
            k.v_xor_b32(error[1], SIGN, error[1])
            k.v_fma_f64(y, y, error, y, note="1/delta")
        k.v_div_fixup_f64(y, y, delta, 1.0, note="infinite delta: 0")
        if gain != 1:
            self.multiply(y, gain, y)
        k.v_cmp_eq_f64("vcc", 0, delta)
        for word in range(self.words):
            k.v_cndmask_b32(delta[word], y[word], 0, "vcc")
