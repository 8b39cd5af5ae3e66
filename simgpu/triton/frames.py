"""Adds calls between the instruction's line and the kernel to findings in Triton programs."""

from __future__ import annotations

from dataclasses import replace

from simgpu.engine.finding import Finding
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.frames import is_library


def with_calls(code: CodeObject, finding: Finding) -> Finding:
    """Returns the finding; its message lists the user's calls that led to its line, the innermost first."""
    lines = [frame.line for frame in code.debug.frames(finding.pc)]
    users = dict.fromkeys(str(line) for line in lines if not is_library(line))
    return replace(finding, message=finding.message + "".join(f", called at {line}" for line in list(users)[1:]))
