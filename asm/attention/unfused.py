"""Unfused attention, the baseline: S = scale · Q K^T, P = softmax of S, R = P V; S and P in memory between the kernels.

P in f32 takes S's place. P of 2 bytes lies beside S, which stays f32.
"""

from __future__ import annotations

from dataclasses import replace

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.emit import emit
from simgpu.operators.attention.unfused import PARTS, UnfusedAttention

OPERANDS = ("Q", "K", "V", "R")
SCORES, WEIGHTS = "S", "P"


@emit.register(UnfusedAttention)
def emit_unfused(root: UnfusedAttention) -> EmittedKernel:
    """The first of three kernels (more where a part is split), the others following. UnsupportedInstruction for a type that softmax
    has no kernel for."""
    root.plan  # noqa: B018  raises where the tiles cannot fit
    weights = WEIGHTS if root.weight_bytes else SCORES
    steps: list[EmittedKernel] = []
    scratch = [(name, size) for name, size in ((SCORES, root.score_bytes), (WEIGHTS, root.weight_bytes)) if size]
    # What each part calls its pointers, and which arrays these are.
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
