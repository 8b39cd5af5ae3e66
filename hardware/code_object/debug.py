"""A file's debug information, read on first use. If it is damaged or too large, it counts as absent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from simgpu.hardware.code_object.dwarf import DebugLimit, DebugSections
from simgpu.hardware.code_object.elf import ElfFile
from simgpu.hardware.code_object.frames import SourceFrame, is_library, users_line
from simgpu.hardware.code_object.lines import LineTable, SourceLine

if TYPE_CHECKING:
    from simgpu.hardware.code_object.inlined import InlinedCall, InlinedCalls
    from simgpu.hardware.code_object.locals import Local, Locals
    from simgpu.hardware.code_object.parameters import Parameter

T = TypeVar("T")


class DebugInformation:
    """Debug information of an ELF. Each part is read once, on first use, and its reader is imported then."""

    def __init__(self, data: bytes, kernels: Collection[str]) -> None:
        """data: the ELF's bytes; kernels: names of the functions whose parameters may be requested."""
        self._data, self._kernels = data, kernels

    def source_line(self, address: int) -> SourceLine | None:
        """Returns the line of the instruction at a virtual address, or None if the file has none."""
        return self._lines.at(address) if self._lines else None

    def statements(self, low: int, high: int) -> list[int]:
        """Returns the addresses from `low` to below `high` at which a statement begins, by the line table."""
        return list(self._lines.statements(low, high)) if self._lines else []

    def frames(self, address: int) -> tuple[SourceFrame, ...]:
        """Returns the lines of the instruction at a virtual address and of the calls that it was inlined from, innermost first.

        Returns () if the file has none.
        """
        own, calls = self.source_line(address), self._calls(address)
        lines = [*filter(None, [own]), *(call.site for call in calls)]
        functions = [call.function for call in calls] + [""]
        return tuple(map(SourceFrame, lines, functions[len(functions) - len(lines) :]))

    def users_line(self, address: int) -> SourceLine | None:
        """Returns the innermost line of `frames` outside library headers; the innermost line if all are in libraries."""
        own = self.source_line(address)
        return own if own is not None and not is_library(own) else users_line(self.frames(address))

    def place(self, address: int) -> tuple[str, tuple[str, ...]]:
        """Returns the user's `file:line` of an instruction, "" if there is none, and its frames, for messages."""
        frames = self.frames(address)
        return str(users_line(frames) or ""), tuple(map(str, frames))

    def _calls(self, address: int) -> tuple[InlinedCall, ...]:
        return _lines_read(lambda: self._inlined_calls.at(address) if self._inlined_calls else ()) or ()

    def parameters(self, kernel: str, count: int) -> tuple[Parameter, ...]:
        """Returns a kernel's `count` parameters; () if the file describes no such list or several different ones."""
        fitting = [each for each in self._parameters.get(kernel, ()) if len(each) == count]
        return fitting[0] if len(fitting) == 1 else ()

    def locals(self, address: int, lds_bytes: int = 0) -> tuple[Local, ...]:
        """Returns the variables in scope at a virtual address, those of the innermost scope first, global ones last.

        lds_bytes: size of the kernel's static LDS; without it, no variable in LDS is found
        """
        return _lines_read(lambda: self._locals.at(address, lds_bytes) if self._locals else ()) or ()

    @cached_property
    def _locals(self) -> Locals | None:
        from simgpu.hardware.code_object.locals import Locals

        return _lines_read(lambda: Locals(DebugSections(ElfFile(self._data))))

    @cached_property
    def _sections(self) -> DebugSections | None:
        return _lines_read(lambda: DebugSections(ElfFile(self._data)))

    @cached_property
    def _lines(self) -> LineTable | None:
        return _lines_read(lambda: LineTable(self._sections) if self._sections else None)

    @cached_property
    def _inlined_calls(self) -> InlinedCalls | None:
        from simgpu.hardware.code_object.inlined import InlinedCalls

        return _lines_read(lambda: InlinedCalls(self._sections, self._lines) if self._sections and self._lines else None)

    @cached_property
    def _parameters(self) -> Mapping[str, Collection[tuple[Parameter, ...]]]:
        """Parameters by function. The sections are read again, so that one part's step count does not limit another's."""
        from simgpu.hardware.code_object.parameters import Parameters

        try:
            return Parameters(DebugSections(ElfFile(self._data)), self._kernels).known
        except Exception:  # damaged or too large: callers report an unknown type
            return {}


def _lines_read(read: Callable[[], T]) -> T | None:
    """Returns the result of `read`, or None if debug information is damaged or too large."""
    try:
        return read()
    except DebugLimit as limit:
        warnings.warn(f"simgpu: source lines are left out: {limit}", RuntimeWarning, stacklevel=2)
    except Exception:  # any exception of struct, zlib and indices on damaged bytes
        pass
    return None
