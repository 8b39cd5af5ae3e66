"""What a file's debug information tells, read when it is asked for.

It only helps: where it is damaged or too large, it tells nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TypeVar

from simgpu.hardware.code_object.dwarf import DebugLimit, DebugSections
from simgpu.hardware.code_object.elf import ElfFile
from simgpu.hardware.code_object.inlined import InlinedCalls
from simgpu.hardware.code_object.lines import LineTable, SourceLine
from simgpu.hardware.code_object.parameters import ParameterTypes

T = TypeVar("T")


class DebugInformation:
    """The debug information of an ELF. Each part is read once, at the first question that needs it."""

    def __init__(self, data: bytes, kernels: Collection[str]) -> None:
        """data: of the ELF; kernels: the names of the functions whose parameters may be asked for."""
        self._data, self._kernels = data, kernels

    def source_line(self, address: int) -> SourceLine | None:
        """The line of the instruction at a virtual address, or None where the file does not say."""
        return self._lines.at(address) if self._lines else None

    def call_sites(self, address: int) -> tuple[SourceLine, ...]:
        """The lines of the calls that the code at a virtual address was inlined from, innermost first."""
        return self._inlined.at(address) if self._inlined else ()

    def parameter_types(self, kernel: str, count: int) -> tuple[str, ...]:
        """A type of each of a kernel's `count` parameters, as `mangled` has them; () where the file tells none or several."""
        fitting = [types for types in self._parameters.get(kernel, ()) if len(types) == count]
        return fitting[0] if len(fitting) == 1 else ()

    @cached_property
    def _sections(self) -> DebugSections | None:
        return _lines_read(lambda: DebugSections(ElfFile(self._data)))

    @cached_property
    def _lines(self) -> LineTable | None:
        return _lines_read(lambda: LineTable(self._sections) if self._sections else None)

    @cached_property
    def _inlined(self) -> InlinedCalls | None:
        return _lines_read(lambda: InlinedCalls(self._sections, self._lines) if self._sections and self._lines else None)

    @cached_property
    def _parameters(self) -> Mapping[str, Collection[tuple[str, ...]]]:
        """The types by function. The sections are read again for them: no part's steps decide what is known of another."""
        try:
            return ParameterTypes(DebugSections(ElfFile(self._data)), self._kernels).known
        except Exception:  # damaged or too large: whoever asks says that a type is not known
            return {}


def _lines_read(read: Callable[[], T]) -> T | None:
    """What `read` returns, or None where debug information is damaged or too large."""
    try:
        return read()
    except DebugLimit as limit:
        warnings.warn(f"simgpu: source lines are left out: {limit}", RuntimeWarning, stacklevel=2)
    except Exception:  # whatever damaged bytes make of struct, zlib and indices
        pass
    return None
