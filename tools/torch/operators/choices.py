"""Elements that PyTorch's GPU kernels choose among equal ones, if the CPU's choose differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _topk(values: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    """Replaces `aten::topk`: of the elements equal to the k-th, takes those of the lowest index (gatherTopK in PyTorch's
    TensorTopK.cu)."""
    if values.dim() == 0 or k > values.shape[dim]:
        found = torch.ops.aten.topk.default(values, k, dim, largest, sorted)  # PyTorch's own answer, or error
        return found[0], found[1]
    ordered, indices = torch.sort(values, dim=dim, descending=largest, stable=True)
    return ordered.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()


# By the operator's name in PyTorch's dispatcher.
CHOICES: dict[str, Callable[..., Any]] = {"aten::topk": _topk}
