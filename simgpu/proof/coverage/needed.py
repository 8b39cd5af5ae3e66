"""Instructions that addresses of global memory, lane masks and branches depend on: the others need no terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.registers import FILES, bits
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind
from simgpu.hardware.timing_rules.effects import SPECIAL_REGISTERS, registers_of
from simgpu.hardware.timing_rules.register_use import Register
from simgpu.proof.state import SCC, Place

ADDRESS = ("vaddr", "saddr", "srsrc", "soffset")
SPACES = ("global", "flat", "buffer")
ALWAYS = (ControlKind.SETREG, ControlKind.SETPC, ControlKind.SWAPPC, ControlKind.CALL)


class Needed:
    """Needed instructions, and needed registers at the beginning of each block."""

    def __init__(self, blocks: StraightBlocks) -> None:
        """Finds them backward, to a fixed point."""
        self.instructions: set[int] = set()  # by address
        entering = [0] * len(blocks.nodes)
        changed = True
        while changed:
            changed = False
            for block in reversed(range(len(blocks.nodes))):
                after = 0
                for other in blocks.following[block]:
                    after |= entering[other]
                live = self._before(blocks.steps(block), after)
                if live != entering[block]:
                    entering[block], changed = live, True
        self._live = {steps[0].pc: live for steps, live in zip(blocks.all_steps, entering, strict=True)}

    def _before(self, steps: Sequence[LintStep], live: int) -> int:
        """Returns the registers that are needed before a block, by those after it."""
        for step in reversed(steps):
            read = _reads(step, live)
            if read is not None:
                self.instructions.add(step.pc)
                live = live & ~(step.writes | step.pending) | read
        return live

    def places(self, pc: int, state_places: Iterator[Place]) -> list[Place]:
        """Returns those registers that are needed at the beginning of a block."""
        live = self._live[pc]
        return [place for place in state_places if place[0] not in NUMBERED or live & bits([_register(place)])]


NUMBERED = (*FILES, SCC)


def _register(place: Place) -> Register:
    file, index = place
    if file == SCC:
        return SCC
    return SPECIAL_REGISTERS.get(index, (file, index)) if file == "s" else place


def _reads(step: LintStep, live: int) -> int | None:
    """Returns the registers that an instruction needs; None if nothing needs the instruction."""
    memory = step.inst.spec.memory
    if memory is not None and memory.space in SPACES:
        operands = (registers_of(step.inst.args.get(name)) for name in ADDRESS)
        return bits(frozenset[Register]().union(*operands)) | bits(["exec"])
    if step.control in STATE_BRANCHES or step.control in ALWAYS:
        return step.reads
    return step.reads if (step.writes | step.pending) & live else None
