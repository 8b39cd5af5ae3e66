"""Finds the last writers of a register, by the code only, over all paths that lead to a place."""

from __future__ import annotations

from simgpu.engine.program import Program
from simgpu.hardware.timing_rules.register_use import Register

PATIENCE = 4096  # instructions that are walked over for a register


class Definitions:
    """Last writers of registers at places of a program's lowered code."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.before: dict[int, list[int]] = {}
        for index in program.instructions:
            for following in program.following(index):
                self.before.setdefault(following, []).append(index)

    def of(self, index: int, register: Register) -> set[int] | None:
        """Returns the records that may have written a register's value before record `index`, None if unknown."""
        found: set[int] = set()
        pending, seen = list(self.before.get(index, ())), {index}
        if not pending:
            return None
        while pending:
            at = pending.pop()
            if at in seen:
                continue
            seen.add(at)
            effect = self.program.effect(at)
            if register in effect.access.writes or register in effect.pending:
                found.add(at)
                continue
            before = self.before.get(at)
            if not before or len(seen) > PATIENCE:
                return None
            pending += before
        return found or None
