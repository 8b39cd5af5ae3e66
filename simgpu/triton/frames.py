"""Instructions as lines of Triton source: inlined library code goes back to the line that called it."""

from __future__ import annotations

from dataclasses import replace

from simgpu.engine.finding import Finding
from simgpu.hardware.code_object.code_object import CodeObject


def frames(code: CodeObject, address: int) -> tuple[str, ...]:
    """`file:line` from the instruction's own line out to the kernel's, Triton's library left out where a caller is known."""
    found = code.debug.frames(address)
    users = [frame for frame in found if not frame.is_library] or found[:1]
    return tuple(dict.fromkeys(str(frame.line) for frame in users))


def line_of(code: CodeObject, address: int) -> str:
    """The line of user code that an instruction belongs to, or ""."""
    return next(iter(frames(code, address)), "")


def told_by_source(code: CodeObject, finding: Finding) -> Finding:
    """The finding with its lines in the user's files; calls between them are named in the message."""
    chain = frames(code, finding.pc)
    other = line_of(code, finding.other_pc) if finding.other_pc is not None else ""
    message = finding.message + "".join(f", called at {frame}" for frame in chain[1:])
    return replace(finding, message=message, source=chain[0] if chain else "", other_source=other)
