"""Computations of several trees: their kernels in sequence.

Unfused attention, the baseline: S = scale · Q K^T, P = softmax of S, R = P V, with S and P in memory between the kernels.
P in f32 overwrites S. P of 2 bytes has its own memory, and S stays f32.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.visitor import emit
from simgpu.operators.attention.sequence import KernelSequence
from simgpu.operators.attention.unfused import UnfusedAttention

SCORES, WEIGHTS = "S", "P"
Scratch = tuple[str, int]  # name, bytes


def emit_sequence(
    root: KernelSequence, arrays: Iterable[Mapping[str, str]], operands: tuple[str, ...], scratch: Iterable[Scratch]
) -> EmittedKernel:
    """Returns the first kernel of a sequence's trees; the others follow it. Raises as the plan, and as `emit` for a part.

    arrays: for each part, its pointers' names, and the arrays that they get if these have other names. scratch: arrays between
    the parts; that of the parts gets their names as prefixes.
    """
    steps, held = [], list(scratch)
    for part, prefix, names in zip(root.parts, root.plan.names, arrays, strict=True):
        kernel = emit(part)
        own = {name: f"{prefix} {name}" for name, _ in kernel.scratch}
        held += [(own[name], size) for name, size in kernel.scratch]
        for step in kernel.steps:
            buffers = tuple({**names, **own}.get(buffer, buffer) for buffer in step.buffers)
            steps.append(replace(step, buffers=buffers, operands=(), scratch=(), following=()))
    first, *rest = steps
    return replace(first, operands=operands, scratch=tuple(held), following=tuple(rest))


@emit.register(UnfusedAttention)
def emit_unfused(root: UnfusedAttention) -> EmittedKernel:
    """Returns the first of three kernels (more if a part is split); the others follow it.

    UnsupportedInstruction for a type that has no softmax kernel.
    """
    weights = WEIGHTS if root.weight_bytes else SCORES
    scratch = [(name, size) for name, size in ((SCORES, root.score_bytes), (WEIGHTS, root.weight_bytes)) if size]
    arrays = {"A": "Q", "B": "K", "C": SCORES}, {"X": SCORES, "Y": weights}, {"A": weights, "B": "V", "C": "R"}
    return emit_sequence(root, arrays, ("Q", "K", "V", "R"), scratch)
