"""Unfused attention, the baseline: S = scale · Q K^T, P = softmax of S, R = P V, with S and P in memory between the kernels.

P in f32 overwrites S. P of 2 bytes has its own memory, and S stays f32.
"""

from __future__ import annotations

from dataclasses import replace

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.visitor import emit
from simgpu.operators.attention.unfused import PARTS, UnfusedAttention

OPERANDS = ("Q", "K", "V", "R")
SCORES, WEIGHTS = "S", "P"


@emit.register(UnfusedAttention)
def emit_unfused(root: UnfusedAttention) -> EmittedKernel:
    """Returns the first of three kernels (more if a part is split); the others follow it.

    UnsupportedInstruction for a type that has no softmax kernel.
    """
    root.plan  # noqa: B018  raises if the tiles cannot fit
    weights = WEIGHTS if root.weight_bytes else SCORES
    steps: list[EmittedKernel] = []
    scratch = [(name, size) for name, size in ((SCORES, root.score_bytes), (WEIGHTS, root.weight_bytes)) if size]
    # Each part's pointers, and the arrays that they get.
    arrays = {"A": "Q", "B": "K", "C": SCORES}, {"X": SCORES, "Y": weights}, {"A": weights, "B": "V", "C": "R"}
    for part, name, names in zip(root.parts, PARTS, arrays, strict=True):
        kernel = emit(part)
        own = {held: f"{name} {held}" for held, _ in kernel.scratch}
        scratch += [(own[held], size) for held, size in kernel.scratch]
        for step in kernel.steps:
            buffers = tuple({**names, **own}[buffer] for buffer in step.buffers)
            steps.append(replace(step, buffers=buffers, operands=(), scratch=(), following=()))
    first, *rest = steps
    return replace(first, operands=OPERANDS, scratch=tuple(scratch), following=tuple(rest))
