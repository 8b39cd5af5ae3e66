"""How a computation becomes a kernel: builder, scheduling, emission, assembling."""

from __future__ import annotations

from simgpu.asm import attention, conv2d, gemm, softmax  # noqa: F401  (they register their emitters)
from simgpu.asm.builder.toolchain import assemble
from simgpu.asm.emit import EmittedKernel, EmitVisitor, Prepared, emit, launch

__all__ = ["EmitVisitor", "EmittedKernel", "Prepared", "assemble", "emit", "launch"]
