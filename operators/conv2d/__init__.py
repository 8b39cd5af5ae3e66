"""TODO."""

from simgpu.operators.conv2d import execute, traffic  # noqa: F401  (registration)
