"""exp, silu and gelu in f64 for epilogues and softmax, because the chip has an exponential only in f32.

exp(x) = 2^n · exp(r), n = rint(x · log2 e), r = x - n · ln 2 by two constants, |r| <= 0.347. The Taylor polynomial of
degree 13 for exp(r) is off by at most 0.347^14/14! < 5e-18. 1/d is v_rcp_f64 (2^-23) and two Newton steps. Phi(-|x|) =
erfc(z)/2 with z = |x|/sqrt(2) and

erfc(z) = exp(-z²) · P(t) / (1 + 2z),  t = (z - 3.5)/(z + 3.5)

after Shepherd and Laframboise (Math. Comp. 36, 1981). P is the truncated Chebyshev series of degree 21, which omits less
than 4e-16 of values about 1. Phi is off by at most 4 · 2^-53 in total; the logistic function has the same relative error.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.isa.instruction import Reg

PAIRS = {"silu": 4, "gelu": 6}  # register pairs that an activation needs
SIGN = 0x80000000
LN2 = (6.93147180369123816490e-01, 1.90821492927058770002e-10)  # high part with 32 trailing zeros, then the rest
LOWEST, HIGHEST = -746.0, 710.0  # exp is 0 below and infinite above
TERMS = 13
SERIES = tuple(1 / math.factorial(term) for term in range(TERMS + 1))
INLINE = (0.5, 1.0)  # operands that need no register
OF_EXP = (LOWEST, HIGHEST, 1 / math.log(2), *(-part for part in LN2), *SERIES[3:])  # constants of `exp` that need one
MIDDLE = 3.5  # z at which t is 0
FARTHEST = 30.0  # z beyond which exp(-z²) is 0
P = (
    1.2423492448711544, -0.1400091801376261, -0.010555596332228639, 0.09751909515384957, -0.11508959815975196,
    0.08798315380941157, -0.048823325835233244, 0.019099331128773583, -0.004215019844980131, -0.0003022691234484214,
    0.0005643841044970571, -0.0001215073557714501, -4.278126759703846e-05, 2.4247838299524493e-05, 2.326448512283418e-06,
    -3.792647998094451e-06, -4.203343721224305e-08, 5.776043364099197e-07, -9.400588260029745e-09, -7.964391259385033e-08,
    9.974089916568879e-10, 6.921842556455587e-09,
)  # fmt: skip


class ActivationF64:
    """Emits x = activation(x) for a pair x; NaN stays NaN."""

    def __init__(self, k: KernelBuilder, activation: str) -> None:
        self.k, self.activation = k, activation
        self.constant = k.s.alloc("activation constant", 2)
        self.kept: dict[float, Reg] = {}

    def keep(self) -> None:
        """Loads the constants of `exp` into SGPRs that stay theirs, for code in loops: 2 each."""
        for value in OF_EXP:
            self.kept[value] = self.k.s.alloc("exp constant", 2)
            self._load(self.kept[value], value)

    def emit(self, x: Reg, free: Sequence[Reg]) -> None:
        """Emits x = activation(x). free: `PAIRS` register pairs."""
        if self.activation == "silu":
            self._silu(x, *free)
        else:
            self._gelu(x, *free)

    def value(self, value: float) -> Reg:
        """Returns the SGPRs of a constant: kept ones, else ones that the next call overwrites."""
        if value not in self.kept:
            self._load(self.constant, value)
        return self.kept.get(value, self.constant)

    def _load(self, registers: Reg, value: float) -> None:
        low, high = struct.unpack("<II", struct.pack("<d", value))
        self.k.s_mov_b32(registers[0], low)
        self.k.s_mov_b32(registers[1], high, note=f"{value:.17g}")

    def exp(self, x: Reg, n: Reg, p: Reg) -> None:
        """Emits x = exp(x); exp(NaN) is 0."""
        k = self.k
        k.v_max_f64(x, self.value(LOWEST), x)
        k.v_min_f64(x, self.value(HIGHEST), x)
        k.v_rndne_f64(n, k.v_mul_f64(n, self.value(1 / math.log(2)), x))
        for part in LN2:
            k.v_fma_f64(x, n, self.value(-part), x, note="r")
        self._horner(p, x, SERIES)
        k.v_cvt_i32_f64(n[0], n)
        k.v_ldexp_f64(x, p, n[0], note="exp")

    def _horner(self, p: Reg, x: Reg, coefficients: Sequence[float]) -> None:
        """Emits p = the polynomial's value at x."""
        k = self.k
        k.move(p, self.value(coefficients[-1]))
        for coefficient in reversed(coefficients[:-1]):
            k.v_fma_f64(p, p, x, coefficient if coefficient in INLINE else self.value(coefficient))

    def _reciprocal(self, y: Reg, d: Reg, error: Reg) -> None:
        """Emits y = 1/d for finite d, and negates d."""
        k = self.k
        k.v_rcp_f64(y, d)
        k.v_xor_b32(d[1], SIGN, d[1])
        for _ in range(2):
            k.v_fma_f64(error, d, y, 1.0)
            k.v_fma_f64(y, y, error, y, note="1/d")

    def _silu(self, x: Reg, d: Reg, y: Reg, n: Reg, p: Reg) -> None:
        """Emits x = x / (1 + exp(-x))."""
        k = self.k
        k.v_mov_b32(d[0], x[0])
        k.v_xor_b32(d[1], SIGN, x[1])
        self.exp(d, n, p)
        k.v_add_f64(d, 1.0, d)
        self._reciprocal(y, d, n)
        k.v_div_fixup_f64(y, y, d, -1.0, note="infinite d: 0")
        k.v_mul_f64(x, x, y)

    def _gelu(self, x: Reg, z: Reg, a: Reg, b: Reg, y: Reg, n: Reg, p: Reg) -> None:
        """Emits x = x·Phi(x)."""
        k = self.k
        k.v_mul_f64(z, self.value(math.sqrt(0.5)), x)
        k.v_and_b32(z[1], SIGN - 1, z[1])
        k.v_min_f64(z, self.value(FARTHEST), z, note="z = |x|/sqrt(2)")
        k.v_add_f64(a, self.value(MIDDLE), z)
        k.v_fma_f64(b, 2.0, z, 1.0)
        k.v_mul_f64(p, a, b)
        self._reciprocal(y, p, n)
        k.v_mul_f64(a, a, y, note="1/(1 + 2z)")
        k.v_mul_f64(b, b, y)
        k.v_add_f64(y, self.value(-MIDDLE), z)
        k.v_mul_f64(b, b, y, note="t")
        self._horner(p, b, P)
        k.v_mul_f64(a, a, p)
        k.v_mul_f64(z, z, z)
        k.v_xor_b32(z[1], SIGN, z[1])
        self.exp(z, n, p)
        k.v_mul_f64(a, a, z)
        k.v_mul_f64(a, 0.5, a, note="Phi(-|x|)")
        k.v_fma_f64(b, -1.0, a, 1.0)
        k.v_cmp_gt_f64("vcc", 0, x)
        for word in range(2):
            k.v_cndmask_b32(a[word], b[word], a[word], "vcc", note="Phi(x)")
        k.v_mul_f64(x, x, a)
