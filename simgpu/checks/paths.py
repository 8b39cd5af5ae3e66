"""Waits and hazards along the path that each wave takes.

Both depend on nothing but the sequence of instructions, so they are looked at once for each way
through the code: a control transfer looks up (state, from, to) in a table of its worker, and only a
transfer that was not seen in that state before returns to Python, which walks the instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simgpu.checks.check import Check

if TYPE_CHECKING:
    from simgpu.launch import Launch
    from simgpu.worker import Worker


class Paths(Check):
    """The automaton's hooks."""


def advance(launch: Launch, worker: Worker) -> None:
    """Make the transition that the current wave lacks, and let it go on."""
