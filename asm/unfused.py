"""Unfused attention, the baseline: S = scale · Q K^T, the softmax of S in place, R = P V; S in memory between the kernels."""

from __future__ import annotations

from dataclasses import replace

from asm.emit import EmittedKernel, emit, emits
from hardware.errors import UnsupportedInstruction
from operators.unfused import PARTS, UnfusedAttention

OPERANDS = ("Q", "K", "V", "R")
SCORES = "S"
# What each part calls its pointers, and which arrays these are.
NAMES = (
    {"A": "Q", "B": "K", "C": SCORES},
    {"X": SCORES, "Y": SCORES},
    {"A": SCORES, "B": "V", "C": "R"},
)


@emits(UnfusedAttention)
def emit_unfused(root: UnfusedAttention) -> EmittedKernel:
    """The first of three kernels (more where a part is split), the others following. UnsupportedInstruction for types but f32."""
    p = root.problem
    if p.dtype != "f32":
        raise UnsupportedInstruction(f"unfused attention kernels are emitted for f32, whose P needs no conversion, not for {p.dtype}")
    root.plan  # noqa: B018  raises where the tiles cannot fit
    steps: list[EmittedKernel] = []
    scratch = [(SCORES, root.score_bytes)]
    for part, name, names in zip(root.parts, PARTS, NAMES, strict=True):
        kernel = emit(part)
        own = {held: f"{name} {held}" for held, _ in kernel.scratch}
        scratch += [(own[held], size) for held, size in kernel.scratch]
        for step in kernel.steps:
            buffers = tuple({**names, **own}[buffer] for buffer in step.buffers)
            steps.append(replace(step, buffers=buffers, operands=(), scratch=(), following=()))
    first, *rest = steps
    return replace(first, operands=OPERANDS, scratch=tuple(scratch), following=tuple(rest))
