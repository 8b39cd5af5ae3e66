"""hipBLASLt with the interface of Triton's `triton._C.libtriton.amd.hipblas`, computed by PyTorch."""

from __future__ import annotations

import torch

from simgpu.tools.torch.operators.accumulation import is_sampling


class HipblasLt:
    """Matrix products on tensors; b is transposed. Sums are f32. While only samples of a benchmark run, nothing is computed."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """Makes a handle; the workspace is not needed."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """Computes c = a bᵀ: a (m, k), b (n, k), c (m, n)."""
        if not is_sampling():
            c.copy_(a.float() @ b.float().T)

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:  # fmt: skip
        """Computes d = alpha a bᵀ + beta c: a (m, k), b (n, k), c and d (m, n)."""
        if not is_sampling():
            d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())
