"""Registers that are live after each instruction of a kernel: those that later instructions may still read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simgpu.checks.lint.registers import FILES, NAMED
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.code.flow import successors


def live_registers(steps: Sequence[LintStep | None], at: Mapping[int, int]) -> list[int]:
    """Returns for each instruction the registers that are live after it, as bits of `simgpu.checks.lint.registers`.

    It works backwards to a fixed point along branches within the kernel. A write counts as whole for any EXEC, unless only a
    part of the register is written. at: rows by address.
    """
    following = [
        [at[pc] for pc in successors(step.inst, step.pc) if pc in at] if step is not None else [] for step in steps
    ]
    before, behind = [0] * len(steps), [0] * len(steps)
    changed = True
    while changed:
        changed = False
        for number in range(len(steps) - 1, -1, -1):
            held = 0
            for other in following[number]:
                held |= before[other]
            behind[number] = held
            step = steps[number]
            if step is not None:
                partial = "partial_write" in step.effect.access.classes
                held = (held if partial else held & ~step.writes) | step.reads
            if held != before[number]:
                before[number], changed = held, True
    return behind


def ranges(held: int) -> str:
    """Formats registers as `v0-3,7 a0-63 s4`, then state by name."""
    parts = []
    for file, first in FILES.items():
        if file not in "vas":
            continue
        bits = held >> first & (1 << (256 if file != "s" else 128)) - 1
        runs, at = [], 0
        while bits:
            skip = (bits & -bits).bit_length() - 1
            bits >>= skip
            length = (~bits & bits + 1).bit_length() - 1
            at += skip
            runs.append(f"{at}" if length == 1 else f"{at}-{at + length - 1}")
            bits >>= length
            at += length
        if runs:
            parts.append(file + ",".join(runs))
    return " ".join([*parts, *(name for name in sorted(NAMED) if held >> NAMED[name] & 1)])
