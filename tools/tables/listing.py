"""A kernel as a listing: offset, bytes, text, live registers, and the Python line that emitted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.asm.builder.instruction import Instr
from simgpu.asm.builder.waits import Label
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import ToolchainError
from simgpu.tools.tables.kernel_use import listing
from simgpu.tools.tables.live_registers import live_registers, ranges

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

BYTES_COLUMN, TEXT_COLUMN, LIVE_COLUMN, WHERE_COLUMN = 8, 26, 100, 160


@dataclass(frozen=True)
class ListingLine:
    """An instruction, or (offset -1) a label or remark."""

    offset: int  # bytes from the kernel's entry
    raw: str  # the instruction's bytes, in hexadecimal
    text: str
    live: str = ""  # registers that are live after it
    where: str = ""  # Python line that emitted it
    note: str = ""  # the emitter's remark

    def render(self) -> str:
        """Formats the line in columns."""
        if self.offset < 0:
            return self.text
        line = f"{self.offset:#06x}"
        for column, part in (
            (BYTES_COLUMN, self.raw), (TEXT_COLUMN, self.text), (LIVE_COLUMN, self.live), (WHERE_COLUMN, self.where), (0, self.note)
        ):  # fmt: skip
            line = f"{line:<{column}} {part}" if part else line
        return line


def listing_lines(kernel: EmittedKernel, code: CodeObject) -> list[ListingLine]:
    """Returns the lines of one kernel, with its code object.

    Raises ToolchainError if the code object's instructions differ from the emitted ones.
    """
    info = code.kernels[kernel.name]
    decoded = listing(code, info)
    emitted = [item for item in kernel.items if isinstance(item, Instr)]
    if len(decoded) != len(emitted):
        raise ToolchainError(f"{kernel.name}: {len(emitted)} instructions were emitted, the code object has {len(decoded)}")
    raw = code.read(info.entry, info.code_size)
    steps = [LintStep(info.entry + offset, inst) if inst is not None else None for offset, inst, _ in decoded]
    at = {info.entry + offset: number for number, (offset, *_) in enumerate(decoded)}
    rows = iter(zip(decoded, emitted, live_registers(steps, at), strict=True))
    lines: list[ListingLine] = []
    for item in kernel.items:
        if isinstance(item, Instr):
            (offset, inst, _), instr, live = next(rows)
            size = inst.size if inst is not None else 4
            lines.append(
                ListingLine(offset, raw[offset : offset + size].hex(), instr.text(), ranges(live), instr.where, instr.note)
            )  # fmt: skip
        else:
            lines.append(ListingLine(-1, "", f"{item.name}:" if isinstance(item, Label) else f"; {item.text}"))
    return lines
