"""TODO."""

from simgpu.operators.softmax import execute, traffic  # noqa: F401  (registration)
