"""Operators whose tiles are judged, and the types of their kernels. Importing it loads no operator."""

OPS = ("gemm", "conv2d", "attention", "softmax", "rmsnorm_gemm")
# With kernels; others: all of the matrix units.
TYPES = {"attention": ("f32", "f16", "bf16"), "softmax": ("f32", "f16", "bf16", "f64"), "rmsnorm_gemm": ("f32", "f16", "bf16")}
