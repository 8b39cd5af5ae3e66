"""TODO."""

from simgpu.operators.softmax import execute  # noqa: F401  (registration)
