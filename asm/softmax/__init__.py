"""TODO."""

from simgpu.asm.softmax import emitter  # noqa: F401  (registration)
