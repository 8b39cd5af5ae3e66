"""Kernels from computations: a tree becomes assembly text and a code object.

    builder/     a kernel under construction: instructions, registers, waits, assembling
    parts/       instruction sequences that kernels are made of
    emit.py      the kernel of a tree; computations on a device
    gemm/        kernels of a GEMM
    conv2d/      kernels of a convolution
    softmax/     kernels of a softmax
    attention/   kernels of attention
"""

from __future__ import annotations

from simgpu.asm.builder.toolchain import assemble
from simgpu.asm.emit import EmittedKernel, EmitVisitor, Prepared, emit, launch

__all__ = ["EmitVisitor", "EmittedKernel", "Prepared", "assemble", "emit", "launch"]
