"""Operators whose tiles are judged, and the types of their kernels. Importing it loads no operator."""

OPS = ("gemm", "conv2d", "attention", "softmax", "rmsnorm_gemm", "rmsnorm", "layernorm", "quantise", "attention_backward")
# With kernels; others: all of the matrix units.
TYPES = {"softmax": ("f32", "f16", "bf16", "f64"), "attention_backward": ("f16", "bf16"),
         **dict.fromkeys(("attention", "rmsnorm_gemm", "rmsnorm", "layernorm", "quantise"), ("f32", "f16", "bf16"))}  # fmt: skip
