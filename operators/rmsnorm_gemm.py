"""RMSNorm and the GEMM behind it in one kernel: C = A / sqrt(mean(A^2) + eps) * gamma @ B (Zhang and Sennrich, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simgpu.operators.arguments import nonnegative
from simgpu.operators.expressions import Value, rsqrt
from simgpu.operators.fused.problem import FusedGemm


@dataclass(frozen=True)
class RmsNormGemm(FusedGemm):
    """C (m,n) = rmsnorm(A (m,k), gamma (k), eps) @ B (k,n).

    The factor of a row does not depend on k: it multiplies the row's products, once they are added.

    >>> from simgpu.operators import RmsNormGemm
    >>> [str(value) for value in RmsNormGemm(64, 64, 64).leaves.row_values]
    ['rsqrt(squares / 64 + 1e-05)']
    """

    name = "rmsnorm_gemm"
    vectors = ("gamma",)

    eps: float = field(default=1e-5, metadata={"help": "added to the mean of the squares"})

    def __post_init__(self) -> None:
        nonnegative("eps", self.eps)
        super().__post_init__()

    def row_sums(self, a: Value, gamma: Value) -> Mapping[str, Value]:  # type: ignore[override]
        return {"squares": a * a}

    def left_operand(self, a: Value, gamma: Value) -> Value:  # type: ignore[override]
        return a * gamma

    def result(self, product: Value, squares: Value) -> Value:  # type: ignore[override]
        return product * rsqrt(squares / self.k + self.eps)

    def reference(  # type: ignore[override]
        self, a: NDArray[np.float64], b: NDArray[np.float64], gamma: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        rms = np.sqrt(np.mean(a * a, axis=1, keepdims=True) + self.eps)
        return np.asarray((a / rms * gamma) @ b)


OPERATORS = (RmsNormGemm,)
