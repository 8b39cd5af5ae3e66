"""TODO."""

from simgpu.operators.attention import execute, traffic  # noqa: F401  (registration)
