"""float64 references of all operators, error bounds of kernels, and usual errors of faithful kernels.

A name's module is loaded at its first use: a command needs one operator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.hardware import lazy

if TYPE_CHECKING:  # names that `__getattr__` finds, for mypy and editors
    from simgpu.operators.attention.reference import attention, attention_error_bound, attention_lse, attention_lse_error_bound
    from simgpu.operators.attention.typical_error import attention_typical_error
    from simgpu.operators.attention_backward.reference import attention_backward, attention_backward_error_bound
    from simgpu.operators.attention_backward.typical_error import attention_backward_typical_error
    from simgpu.operators.columns import columns, columns_error_bound
    from simgpu.operators.conv2d.reference import conv2d, conv2d_error_bound
    from simgpu.operators.conv2d.typical_error import conv2d_typical_error
    from simgpu.operators.fused.reference import fused, fused_error_bound
    from simgpu.operators.gemm.reference import gemm, gemm_error_bound
    from simgpu.operators.gemm.typical_error import gemm_typical_error
    from simgpu.operators.rows.reference import rows, rows_error_bound
    from simgpu.operators.softmax.reference import softmax, softmax_error_bound
    from simgpu.operators.softmax.typical_error import softmax_typical_error
    from simgpu.operators.transpose import transpose

# Module of this package -> the public names that it has.
_NAMES = {
    "attention.reference": ("attention", "attention_error_bound", "attention_lse", "attention_lse_error_bound"),
    "attention.typical_error": ("attention_typical_error",),
    "attention_backward.reference": ("attention_backward", "attention_backward_error_bound"),
    "attention_backward.typical_error": ("attention_backward_typical_error",),
    "columns": ("columns", "columns_error_bound"),
    "conv2d.reference": ("conv2d", "conv2d_error_bound"),
    "conv2d.typical_error": ("conv2d_typical_error",),
    "fused.reference": ("fused", "fused_error_bound"),
    "gemm.reference": ("gemm", "gemm_error_bound"),
    "gemm.typical_error": ("gemm_typical_error",),
    "rows.reference": ("rows", "rows_error_bound"),
    "softmax.reference": ("softmax", "softmax_error_bound"),
    "softmax.typical_error": ("softmax_typical_error",),
    "transpose": ("transpose",),
}

__all__ = [
    "attention",
    "attention_backward",
    "attention_backward_error_bound",
    "attention_backward_typical_error",
    "attention_error_bound",
    "attention_lse",
    "attention_lse_error_bound",
    "attention_typical_error",
    "columns",
    "columns_error_bound",
    "conv2d",
    "conv2d_error_bound",
    "conv2d_typical_error",
    "fused",
    "fused_error_bound",
    "gemm",
    "gemm_error_bound",
    "gemm_typical_error",
    "rows",
    "rows_error_bound",
    "softmax",
    "softmax_error_bound",
    "softmax_typical_error",
    "transpose",
]


__getattr__ = lazy.loader(__name__, "simgpu.operators", _NAMES)


def __dir__() -> list[str]:
    return __all__
