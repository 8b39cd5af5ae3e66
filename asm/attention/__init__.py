"""TODO."""

from simgpu.asm.attention import emitter, unfused  # noqa: F401  (registration)
