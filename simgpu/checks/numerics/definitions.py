"""Finds the last writers of a register before an instruction, on all paths through the code."""

from __future__ import annotations

from simgpu.engine.program import Program
from simgpu.hardware.timing_rules.register_use import Register

PATIENCE = 4096  # most instructions that one search looks at


class Definitions:
    """Last writers of registers in a program's lowered code."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.before: dict[int, list[int]] = {}
        for index in program.instructions:
            for following in program.following(index):
                self.before.setdefault(following, []).append(index)

    def of(self, index: int, register: Register) -> set[int] | None:
        """Returns the records that may have written a register's value before record `index`.

        Returns None if that is unknown: a path reaches code without lowered predecessors, or the search takes too long.
        """
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
