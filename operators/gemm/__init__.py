"""TODO."""

from simgpu.operators.gemm import execute, traffic  # noqa: F401  (registration)
