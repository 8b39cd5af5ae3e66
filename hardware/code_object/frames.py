"""Source lines of an instruction, from the innermost inlined function out to the kernel, and the user's own line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.hardware.code_object.lines import SourceLine

# Parts of paths that users do not write: this package's headers, HIP's and ROCm's, the compiler's and the system's, Triton's.
LIBRARIES = (
    "simgpu/tools/shared/device/", "simgpu/tools/cases/opencl.h", "/include/hip/", "/opt/rocm", "/lib/clang/", "/usr/include/",
    "/usr/lib/", "triton/language/",
)  # fmt: skip


@dataclass(frozen=True)
class SourceFrame:
    """A source line, and the function that it is in."""

    line: SourceLine
    function: str  # "" for the kernel's own, or if the file has no name

    def __str__(self) -> str:
        return f"{self.line} in {self.function}" if self.function else str(self.line)


def is_library(line: SourceLine) -> bool:
    """True if a line is in a header that users do not write."""
    return any(part in f"{line.directory}/{line.file}" for part in LIBRARIES)


def users_line(frames: Sequence[SourceFrame]) -> SourceLine | None:
    """Returns the innermost line outside libraries; if there is none, the innermost line; None without frames."""
    lines = [frame.line for frame in frames]
    return next((line for line in lines if not is_library(line)), lines[0] if lines else None)


def library_words(source: str, frames: Sequence[str]) -> str:
    """Returns a description of the code inlined at a user's line, `in __syncthreads, hip.h:61`; "" for the line's own code.

    source: the user's line; frames: printed frames, innermost first. The text names the function that the line calls and
    the innermost line.

    >>> library_words("k.hip:5", ("math.h:27 in sqrtf", "k.hip:5"))
    'in sqrtf, math.h:27'
    """
    lines, functions = zip(*(frame.partition(" in ")[::2] for frame in frames), strict=True) if frames else ((), ())
    inside = lines.index(source) if source in lines else 0
    if not inside:
        return ""
    return f"in {functions[inside - 1]}, {lines[0]}" if functions[inside - 1] else lines[0]
