"""The calls that the code at an address was inlined from (DWARF: DW_TAG_inlined_subroutine)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.dwarf.ranges import BaseAddressEntry
from elftools.elf.elffile import ELFFile


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file."""

    directory: str  # "" where the line table names none
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class InlinedCall:
    """A range of addresses whose code was inlined."""

    low: int
    high: int  # the first address behind it
    depth: int  # of inlining, 1 for the outermost call
    line: SourceLine  # where the call stands


def inlined_calls(data: bytes) -> Iterator[InlinedCall]:
    """Yields every inlined call in a code object's debug information. Damaged information raises pyelftools' errors."""
    elf = ELFFile(io.BytesIO(data))
    if not elf.has_dwarf_info():
        return
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
    for unit in dwarf.iter_CUs():
        top = unit.get_top_DIE()
        low = top.attributes.get("DW_AT_low_pc")
        files = files_of(dwarf.line_program_for_CU(unit))
        yield from _below(dwarf, unit, top, 0, low.value if low else 0, files)


def files_of(program: Any) -> dict[int, tuple[str, str]]:
    """Directory and name of each file number of a line program."""
    if program is None:
        return {}
    first = 0 if program.header["version"] >= 5 else 1
    directories = [_text(name) for name in program.header["include_directory"]]
    found = {}
    for number, entry in enumerate(program.header["file_entry"], start=first):
        # Up to version 4, directory 0 is the compilation's own, which the list leaves out.
        at = entry.dir_index - first
        found[number] = (directories[at] if 0 <= at < len(directories) else "", _text(entry.name))
    return found


def _text(raw: Any) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)


def _below(
    dwarf: Any, unit: Any, parent: Any, depth: int, base: int, files: dict[int, tuple[str, str]]
) -> Iterator[InlinedCall]:
    for child in parent.iter_children():
        inside = depth
        if child.tag == "DW_TAG_inlined_subroutine" and "DW_AT_call_line" in child.attributes:
            inside = depth + 1
            directory, file = files.get(child.attributes["DW_AT_call_file"].value, ("", "?"))
            line = SourceLine(directory, file, child.attributes["DW_AT_call_line"].value)
            for low, high in _ranges(dwarf, unit, child, base):
                yield InlinedCall(low, high, inside, line)
        yield from _below(dwarf, unit, child, inside, base, files)


def _ranges(dwarf: Any, unit: Any, entry: Any, base: int) -> Iterator[tuple[int, int]]:
    attributes = entry.attributes
    if "DW_AT_ranges" in attributes:
        for item in dwarf.range_lists().get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if isinstance(item, BaseAddressEntry):
                base = item.base_address
            else:
                first = 0 if item.is_absolute else base
                yield first + item.begin_offset, first + item.end_offset
    elif "DW_AT_low_pc" in attributes:
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        # DW_AT_high_pc is an address, or a length in every other form (DWARF 4, 2.17.2).
        yield low, high.value if high.form == "DW_FORM_addr" else low + high.value
