"""Arithmetic of an epilogue: scales, alpha, beta·C, bias, activation, residual. `elements.py` rounds the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.activation_f64 import PAIRS, ActivationF64
from simgpu.hardware.isa.instruction import Reg

LOG2E = 1 / math.log(2)
# erfc(z) = (a1 t + ... + a5 t^5) exp(-z²), t = 1/(1 + p z), z >= 0: off by at most 1.5e-7 (Abramowitz and Stegun,
# Handbook of Mathematical Functions, 7.1.26).
ERFC_P = 0.3275911
ERFC_A = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
ADD = {"f32": "v_add_f32", "f64": "v_add_f64", "i32": "v_add_u32"}
MULTIPLY = {"f32": "v_mul_f32", "f64": "v_mul_f64", "i32": "v_mul_lo_u32"}
ACTIVATION_VGPRS = {"silu": 1, "gelu": 3}  # scratch registers for f32; for f64 see `activation_f64.PAIRS`


@dataclass
class Epilogue:
    """Emits activation(alpha·x + beta·c + bias), a step per method, for elements of type `dtype`.

    Constants that VOP3 cannot hold as literals are in SGPRs, loaded by `prepare`.
    """

    k: KernelBuilder
    dtype: str  # f32, f64 or i32
    alpha: Reg | None  # SGPR or pair; None: 1
    beta: Reg | None  # SGPR or pair; None: `add_scaled` is not used
    activation: str = "none"  # none, relu, gelu or silu
    sums: str = ""  # type of the sums that `scale` takes, if it may differ: i32, and the epilogue is in f32
    constants: dict[float, Operand] = field(default_factory=dict)  # by value, in SGPRs
    wide: ActivationF64 | None = None  # activation in f64

    def prepare(self) -> None:
        """Loads the activation's constants into SGPRs."""
        if self.dtype == "f64" and self.activation in PAIRS:
            self.wide = ActivationF64(self.k, self.activation)
            return
        wanted = {"gelu": (ERFC_P, *ERFC_A, math.sqrt(0.5), -LOG2E), "silu": (-LOG2E,)}.get(self.activation, ())
        for value in wanted:
            register = self.k.scalar("activation constant", float(value))
            self.constants[value] = register

    def scratch(self) -> list[Reg]:
        """Returns new VGPRs for `activate`. The caller owns them."""
        counts, words = (PAIRS, 2) if self.dtype == "f64" else (ACTIVATION_VGPRS, 1)
        return [self.k.v.alloc("activation", words) for _ in range(counts.get(self.activation, 0))]

    def apply(self, x: Reg, added: Reg | None, free: Sequence[Reg]) -> None:
        """Emits x = activation(alpha·x + added), for a sum x. free: as for `activate`."""
        self.scale(x)
        if added is not None:
            self.add(x, added)
        self.activate(x, free)

    def scale(self, x: Reg) -> None:
        """Emits x *= alpha, for a sum x."""
        if self.sums == "i32" and self.dtype == "f32":
            self.k.v_cvt_f32_i32(x, x)
        if self.alpha is not None:
            self.k.emit(MULTIPLY[self.dtype], x, self.alpha, x)

    def multiply(self, x: Reg, other: Reg) -> None:
        """Emits x *= other."""
        self.k.emit(MULTIPLY[self.dtype], x, other, x)

    def add_scaled(self, x: Reg, c: Reg) -> None:
        """Emits x += beta·c. An i32 c is overwritten."""
        if self.dtype == "f32":
            self.k.v_fmac_f32(x, self.beta, c)
        elif self.dtype == "f64":
            self.k.v_fma_f64(x, self.beta, c, x)
        else:
            self.k.v_mul_lo_u32(c, c, self.beta)
            self.k.v_add_u32(x, c, x)

    def add(self, x: Reg, other: Reg) -> None:
        """Emits x += other."""
        self.k.emit(ADD[self.dtype], x, other, x)

    def activate(self, x: Reg, free: Sequence[Reg]) -> None:
        """Emits x = activation(x). free: VGPRs of `scratch`. NaN stays NaN."""
        if self.activation == "relu":
            self._relu(x)
        elif self.wide is not None:
            self.wide.emit(x, free)
        elif self.activation == "silu":
            self._silu(x, free[0])
        elif self.activation == "gelu":
            self._gelu(x, *free)

    def _relu(self, x: Reg) -> None:
        k = self.k
        if self.dtype == "i32":
            k.v_max_i32(x, 0, x)
            return
        k.emit(f"v_cmp_gt_{self.dtype}", "vcc", 0, x, note="not v_max: NaN stays")
        for word in range(x.count):
            k.v_cndmask_b32(x[word], x[word], 0, "vcc")

    def _silu(self, x: Reg, e: Reg) -> None:
        k = self.k
        k.v_exp_f32(e, k.v_mul_f32(e, self.constants[-LOG2E], x), note="exp(-x)")
        k.v_rcp_f32(e, k.v_add_f32(e, 1.0, e))
        k.v_mul_f32(x, x, e)

    def _gelu(self, x: Reg, t: Reg, y: Reg, z: Reg) -> None:
        """Emits x = x·Phi(x), with Phi by erfc of |x|/sqrt(2)."""
        k, at = self.k, self.constants
        k.v_mul_f32(z, at[math.sqrt(0.5)], x)
        k.v_and_b32(z, 0x7FFFFFFF, z, note="z = |x|/sqrt(2)")
        k.v_rcp_f32(t, k.v_fma_f32(t, at[ERFC_P], z, 1.0), note="t")
        k.v_mov_b32(y, at[ERFC_A[4]])
        for a in reversed(ERFC_A[:4]):
            k.v_fma_f32(y, y, t, at[a])
        k.v_mul_f32(y, y, t)
        k.v_mul_f32(t, z, z)
        k.v_exp_f32(t, k.v_mul_f32(t, at[-LOG2E], t), note="exp(-z²)")
        k.v_mul_f32(y, y, t)
        k.v_mul_f32(y, 0.5, y, note="Phi(-|x|)")
        k.v_sub_f32(t, 1.0, y)
        k.v_cndmask_b32(y, t, y, k.v_cmp_gt_f32("vcc", 0, x), note="Phi(x)")
        k.v_mul_f32(x, x, y)

