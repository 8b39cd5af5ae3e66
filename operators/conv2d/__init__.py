"""TODO."""

from simgpu.operators.conv2d import execute  # noqa: F401  (registration)
