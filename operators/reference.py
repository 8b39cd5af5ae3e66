"""float64 references of all operators, and how far a kernel may be from them."""

from simgpu.operators.attention.reference import attention, attention_error_bound
from simgpu.operators.conv2d.reference import conv2d, conv2d_error_bound
from simgpu.operators.gemm.reference import gemm, gemm_error_bound
from simgpu.operators.softmax.reference import softmax, softmax_error_bound

__all__ = [
    "attention",
    "attention_error_bound",
    "conv2d",
    "conv2d_error_bound",
    "gemm",
    "gemm_error_bound",
    "softmax",
    "softmax_error_bound",
]
