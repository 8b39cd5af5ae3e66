"""PyTorch's matrix products by simgpu's GEMM: matrices in any layout that BLAS takes; others are copied first, as PyTorch does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simgpu.operators import GemmProblem
from simgpu.tools.torch.operators.kernels import TYPES, Call, OnHost, pose, type_of

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _storage(matrices: Tensor) -> tuple[Tensor, bool, int]:
    """Returns matrices (..., rows, columns), whether they are stored transposed, and the stride of stored rows.

    A copy if they are neither, or if the matrices of a batch do not follow each other.
    """
    rows, columns = matrices.shape[-2:]
    down, across = matrices.stride()[-2:]
    for transposed, inner, outer, length, count in ((False, across, down, columns, rows), (True, down, across, rows, columns)):
        stride = length if count == 1 else outer
        apart = matrices.dim() == 2 or len(matrices) == 1 or matrices.stride(0) == count * stride
        if (inner == 1 or length == 1) and stride >= length and apart:
            return matrices, transposed, stride
    return matrices.contiguous(), False, columns


def multiply(
    call: Call, a: Tensor, b: Tensor, addend: Tensor | None = None, alpha: float = 1, beta: float = 1,
    kind: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """Returns alpha * a (m, k) times b (k, n), or a batch of both in a first axis, plus beta * addend, which broadcasts.

    kind: type of the result (default: the operands'). Raises OnHost.
    """
    if a.dtype != b.dtype or a.dim() != b.dim() or a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise OnHost("of operands that do not fit each other")  # PyTorch's own error says how
    (name, _), shape, kind = map(type_of, (a, b)), (*a.shape[:-1], b.shape[-1]), kind or a.dtype
    addend = None if beta == 0 else addend
    bias = addend is not None and beta == 1 and addend.dtype == kind and addend.shape == shape[-1:] and addend.is_contiguous()
    if addend is None or bias:
        out = torch.empty(shape, dtype=kind, device=a.device)
    else:
        out = addend.expand(shape).to(kind, memory_format=torch.contiguous_format, copy=True)
    (left, trans_a, lda), (right, trans_b, ldb) = _storage(a), _storage(b)
    problem = pose(
        GemmProblem, *shape[-2:], a.shape[-1], name, trans_a, trans_b, float(alpha), 0.0 if addend is None or bias else float(beta),
        lda, ldb, batch=math.prod(shape[:-2]), bias=bias, dtype_c=TYPES.get(kind, "i32"),
    )  # fmt: skip
    call.launch(problem, A=left, B=right, C=out, **({"bias": addend} if bias and addend is not None else {}))
    return out


def _product(call: Call, *args: Any, alpha: float = 1, beta: float = 1) -> Tensor:
    """Computes mm, bmm, addmm and baddbmm: an addend if there is one, two matrices or batches, the type of the result if given."""
    kind = next((arg for arg in args if isinstance(arg, torch.dtype)), None)
    *addends, a, b = (arg for arg in args if isinstance(arg, Tensor))
    type_of(a, *_FLOATS)
    return multiply(call, a, b, addends[0] if addends else None, alpha, beta, kind)


def _of_vector(call: Call, *args: Any, alpha: float = 1, beta: float = 1) -> Tensor:
    """Computes mv and addmv: an addend if there is one, a matrix and a vector."""
    *addends, a, vector = args
    type_of(a, *_FLOATS)
    return multiply(call, a, vector[:, None], addends[0].reshape(-1, 1) if addends else None, alpha, beta)[:, 0]


def _dot(call: Call, a: Tensor, b: Tensor) -> Tensor:
    type_of(a, *_FLOATS)
    return multiply(call, a[None], b[:, None]).reshape(())


def _int_mm(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Multiplies int8 matrices, exactly."""
    type_of(a, torch.int8)
    return multiply(call, a, b, kind=torch.int32)


# By the operator's name in PyTorch's dispatcher; 16-bit types on the host are in `accumulation`.
GEMMS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}{overload}": _product for name in ("mm", "bmm", "addmm", "baddbmm") for overload in ("", ".dtype")},
    "aten::mv": _of_vector, "aten::addmv": _of_vector, "aten::dot": _dot, "aten::_int_mm": _int_mm,
}  # fmt: skip
