"""TODO."""

from simgpu.operators.gemm import execute  # noqa: F401  (registration)
