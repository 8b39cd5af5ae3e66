"""TODO."""

from simgpu.asm.gemm import emitter  # noqa: F401  (registration)
