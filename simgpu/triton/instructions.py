"""A launch's executed instructions, decoded again from the code object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from simgpu.hardware.isa import Instruction, decode

if TYPE_CHECKING:
    from simgpu.triton.usage import Launched


def executed_instructions(launched: Launched) -> Iterator[tuple[int, Instruction, int]]:
    """Yields virtual address, instruction and executions by all waves, in the order of addresses."""
    info, code = launched.kernel.info, launched.kernel.module.code
    segment = next(s for s in code.segments if s.executable and s.address <= info.start < s.end)
    for offset, times in sorted(launched.run.profile.items()):
        address = info.start + offset
        yield address, decode(segment.data, address - segment.address, info.target), times
