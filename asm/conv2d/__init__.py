"""TODO."""

from simgpu.asm.conv2d import emitter  # noqa: F401  (registration)
