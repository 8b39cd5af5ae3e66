"""hipBLASLt as Triton's `triton._C.libtriton.amd.hipblas` has it, computed by PyTorch."""

from __future__ import annotations

import torch


class HipblasLt:
    """Matrix products on tensors; b is transposed. Sums are f32."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """A handle; the workspace is not needed."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c = a bᵀ: a (m, k), b (n, k), c (m, n)."""
        c.copy_(a.float() @ b.float().T)

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:  # fmt: skip
        """d = alpha a bᵀ + beta c: a (m, k), b (n, k), c and d (m, n)."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())
