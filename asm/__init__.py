"""How a computation becomes a kernel: builder, scheduling, emission, assembling."""

from __future__ import annotations

from asm import attention, conv2d, gemm, softmax, unfused  # noqa: F401  (they register their emitters)
from asm.emit import EmittedKernel, EmitVisitor, emit, launch
from asm.toolchain import assemble

__all__ = ["EmitVisitor", "EmittedKernel", "assemble", "emit", "launch"]
