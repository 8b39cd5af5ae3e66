"""How a computation becomes a kernel: builder, scheduling, emission, assembling."""

from __future__ import annotations

from simgpu.asm import attention, conv2d, gemm, softmax, unfused  # noqa: F401  (they register their emitters)
from simgpu.asm.emit import EmittedKernel, EmitVisitor, emit, launch
from simgpu.asm.toolchain import assemble

__all__ = ["EmitVisitor", "EmittedKernel", "assemble", "emit", "launch"]
