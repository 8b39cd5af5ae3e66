"""Kernels from computations: a tree becomes assembly text and a code object.

Each name is loaded when it is first used: an assembler needs no operators.

    builder/     a kernel under construction: instructions, registers, waits, assembling
    parts/       instruction sequences that kernels are made of
    visitor.py   the kernel of a tree; computations on a device
    gemm/        kernels of a GEMM
    conv2d/      kernels of a convolution
    rows/        kernels of operators on rows, softmax among them
    attention/   kernels of attention
    attention_backward/  kernels of the gradients of attention
    columns.py   kernels of a reduction of columns
    transpose.py  the kernel of a transpose
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.hardware import lazy

if TYPE_CHECKING:  # names that `__getattr__` finds, for mypy and editors
    from simgpu.asm.builder.emitted import EmittedKernel
    from simgpu.asm.builder.toolchain import assemble
    from simgpu.asm.visitor import EmitVisitor, Prepared, emit, launch

# Module of this package -> the public names that it has.
_NAMES = {
    "builder.emitted": ("EmittedKernel",),
    "builder.toolchain": ("assemble",),
    "visitor": ("EmitVisitor", "Prepared", "emit", "launch"),
}

__all__ = ["EmitVisitor", "EmittedKernel", "Prepared", "assemble", "emit", "launch"]

__getattr__ = lazy.loader(__name__, __name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
