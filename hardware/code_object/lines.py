"""Source lines of addresses, from DWARF's line number programs (versions 2 to 5)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simgpu.hardware.code_object.dwarf import STRING, Cursor, DebugSections, read_form

SECTION_OF_FORM = {STRING: ".debug_line", 0x0E: ".debug_str", 0x1F: ".debug_line_str"}
DW_LNCT_path, DW_LNCT_directory_index = 1, 2


@dataclass(frozen=True)
class SourceLine:
    """A line of a source file."""

    directory: str  # "" if the line table has none
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class File(NamedTuple):
    """A file of a line table, by the positions of its names in string sections."""

    section: str  # section of its name
    at: int  # byte of the section
    directory: tuple[str, int] | None  # section and byte of its folder's name


class LineUnit(NamedTuple):
    """Files of a line number program."""

    first: int  # number of the first: 1, or 0 in version 5
    files: list[File]


class LineTable:
    """Rows of all line number programs of a file, by address."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self.units: dict[int, LineUnit] = {}  # by the offset of a program in .debug_line
        self._owners: list[int] = []  # offset of a program, by the unit numbers in rows
        # For each row: address, line (0: no source line), file, unit, a rank that orders rows of one address, and is_stmt.
        self._columns = [array("Q") for _ in range(6)]
        section, at = sections[".debug_line"], 0
        while at < len(section):
            at = self._read_unit(section, at)
        columns = [np.frombuffer(column, np.uint64) for column in self._columns]
        order = np.lexsort((columns[4], columns[0]))
        self._addresses, self._lines, self._files, self._unit_numbers, _, self._statements = (column[order] for column in columns)

    def at(self, address: int) -> SourceLine | None:
        """Returns the line of the instruction at an address, None if the file has none."""
        index = int(np.searchsorted(self._addresses, np.uint64(address), "right")) - 1 if 0 <= address < 1 << 64 else -1
        if index < 0 or not self._lines[index]:
            return None
        place = self.file(self._owners[int(self._unit_numbers[index])], int(self._files[index]))
        return place and SourceLine(*place, int(self._lines[index]))

    def statements(self, low: int, high: int) -> Iterator[int]:
        """Yields the addresses from `low` to below `high` at which a statement begins.

        The compiler marks them (is_stmt), but not where only the file changes: LLVM compares the numbers of lines
        (AsmPrinter, DwarfDebug::beginInstruction).
        """
        first, end = np.searchsorted(self._addresses, np.array([low, high], np.uint64))
        for index in range(int(first), int(end)):
            is_last = index + 1 >= len(self._addresses) or self._addresses[index] != self._addresses[index + 1]
            other = max(index - 1, int(first))  # in another file, or the first row itself
            marked = self._statements[index] or self._files[index] != self._files[other]
            if is_last and marked and self._lines[index]:
                yield int(self._addresses[index])

    def file(self, unit: int, number: int) -> tuple[str, str] | None:
        """Returns folder and name of file `number` of the program at byte `unit` of .debug_line, None if there is none."""
        first, files = self.units.get(unit, LineUnit(0, []))
        if not 0 <= number - first < len(files):
            return None
        found = files[number - first]
        directory = self._sections.text(*found.directory) if found.directory else ""
        return directory, self._sections.text(found.section, found.at)

    def _read_unit(self, section: bytes, start: int) -> int:
        """Runs the program at byte `start` and returns the start of the next."""
        cursor = Cursor(section, start)
        length, offset = cursor.length()
        end = cursor.at + length
        if end > len(section):
            raise ValueError(f"a line number program ends at byte {end} of {len(section)}")
        self._sections.steps.take(length)  # an operation and an entry of a table have at least a byte each
        cursor.end = end
        version = cursor.number(2)
        address_bytes = 8
        if version >= 5:
            address_bytes = cursor.number(1)
            cursor.number(1)  # size of a segment selector
        header_length = cursor.number(offset)
        program = cursor.at + header_length
        minimum = cursor.number(1)
        if version >= 4:
            cursor.number(1)  # maximum_operations_per_instruction
        is_statement = cursor.number(1)  # default_is_stmt
        base = (cursor.number(1) ^ 0x80) - 0x80  # signed
        span, opcode_base = cursor.number(1), cursor.number(1)
        operands = [cursor.number(1) for _ in range(opcode_base - 1)]
        self.units[start] = _files_5(cursor, address_bytes, offset) if version >= 5 else _files_4(cursor)
        self._owners.append(start)
        self._run(Cursor(section, program, end), end, minimum, base, span, opcode_base, operands, is_statement)
        return end

    def _run(
        self, cursor: Cursor, end: int, minimum: int, base: int, span: int, opcode_base: int, operands: list[int], default: int
    ) -> None:
        """Runs the program up to `end` and adds its rows.

        minimum: minimum_instruction_length; base, span: line_base and line_range; operands: number of LEB128 operands of each
        standard opcode; default: default_is_stmt.
        """
        addresses, lines, files, units, ranks, statements = (column.append for column in self._columns)
        data, unit, rows = cursor.data, len(self._owners) - 1, self._columns[0]
        wide, known = (1 << 64) - 1, opcode_base - 1
        address, file, line, statement = 0, 1, 1, default

        def row(rank: int) -> None:
            addresses(address & wide)
            lines(line if rank and 0 < line < 1 << 32 else 0)
            files(file & wide)
            units(unit)
            ranks(rank)
            statements(statement)

        while cursor.at < end:
            opcode = data[cursor.at]
            cursor.at += 1
            if opcode > known:  # a special opcode
                adjusted = opcode - opcode_base
                address += adjusted // span * minimum
                line += base + adjusted % span
                row(len(rows) + 1)
            elif opcode == 0:
                size = cursor.uleb()
                after = cursor.at + size
                extended = cursor.number(1)
                if extended == 1:  # DW_LNE_end_sequence: sorts before a row of the next sequence at the same address
                    row(0)
                    address, file, line, statement = 0, 1, 1, default
                elif extended == 2:  # DW_LNE_set_address
                    address = cursor.number(size - 1)
                cursor.at = after
            elif opcode == 1:  # DW_LNS_copy
                row(len(rows) + 1)
            elif opcode == 2:  # DW_LNS_advance_pc
                address += cursor.uleb() * minimum
            elif opcode == 3:  # DW_LNS_advance_line
                line += cursor.sleb()
            elif opcode == 4:  # DW_LNS_set_file
                file = cursor.uleb()
            elif opcode == 6:  # DW_LNS_negate_stmt
                statement = 1 - statement
            elif opcode == 8:  # DW_LNS_const_add_pc
                address += (255 - opcode_base) // span * minimum
            elif opcode == 9:  # DW_LNS_fixed_advance_pc
                address += cursor.number(2)
            else:
                for _ in range(operands[opcode - 1]):
                    cursor.uleb()


def _files_4(cursor: Cursor) -> LineUnit:
    """Reads the files of a version up to 4, in which directory 0, that of the compilation, is not listed."""
    folders, files = [], []
    while cursor.number(1):
        cursor.at -= 1
        folders.append(cursor.text_at())
    while cursor.number(1):
        cursor.at -= 1
        name, folder = cursor.text_at(), cursor.uleb()
        cursor.uleb(), cursor.uleb()  # time and size
        directory = (".debug_line", folders[folder - 1]) if 0 < folder <= len(folders) else None
        files.append(File(".debug_line", name, directory))
    return LineUnit(1, files)


def _files_5(cursor: Cursor, address: int, offset: int) -> LineUnit:
    folders = [(section, at) for section, at, _ in _entries(cursor, address, offset)]
    files = [
        File(section, at, folders[folder] if folder < len(folders) else None)
        for section, at, folder in _entries(cursor, address, offset)
    ]
    return LineUnit(0, files)


def _entries(cursor: Cursor, address: int, offset: int) -> list[tuple[str, int, int]]:
    """Reads a version 5 table; returns for each entry section and byte of its name, and the number of its folder."""
    formats = [(cursor.uleb(), cursor.uleb()) for _ in range(cursor.number(1))]
    found = []
    for _ in range(cursor.uleb()):
        before = cursor.at
        section, at, folder = "", 0, 0
        for content, form in formats:
            value = read_form(cursor, form, address, offset)
            if content == DW_LNCT_path:
                section, at = SECTION_OF_FORM.get(form, ""), value
            elif content == DW_LNCT_directory_index:
                folder = value
        if cursor.at == before:
            raise ValueError("entries of no bytes in a line table")
        found.append((section, at, folder))
    return found
