"""TODO."""

from simgpu.operators.attention import execute  # noqa: F401  (registration)
