"""The calls that the code at an address was inlined from (DWARF: DW_TAG_inlined_subroutine)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simgpu.hardware.code_object.dwarf import Cursor, DebugSections
from simgpu.hardware.code_object.entries import UNIT_TAGS, CompileUnit, Entries, Values
from simgpu.hardware.code_object.lines import LineTable, SourceLine

DW_TAG_inlined_subroutine = 0x1D
DW_AT_stmt_list, DW_AT_low_pc, DW_AT_high_pc = 0x10, 0x11, 0x12
DW_AT_ranges, DW_AT_call_file, DW_AT_call_line = 0x55, 0x58, 0x59
DW_AT_addr_base, DW_AT_rnglists_base = 0x73, 0x74
DW_FORM_addr, DW_FORM_rnglistx = 0x01, 0x23
ADDRESS_INDEXED = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C, 0x1F01))  # DW_FORM_addrx and its kin
OF_UNIT = frozenset((DW_AT_stmt_list, DW_AT_low_pc, DW_AT_addr_base, DW_AT_rnglists_base))
OF_CALL = frozenset((DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges, DW_AT_call_file, DW_AT_call_line))
WANTED = {DW_TAG_inlined_subroutine: OF_CALL} | dict.fromkeys(UNIT_TAGS, OF_UNIT)
DEEPEST = 64  # calls that are told of one address


class InlinedCalls:
    """Every inlined call of a file. Damaged information raises IndexError, KeyError, ValueError or struct.error."""

    def __init__(self, sections: DebugSections, lines: LineTable) -> None:
        self._sections, self._lines = sections, lines
        self._places: list[tuple[int, int, int]] = []  # of each call: the line table, the file's number, the line
        entries = Entries(sections, WANTED)
        # Of each range: first address, the one behind, depth, call.
        rows = [row for unit in entries.units() for row in self._unit(entries, unit)]
        table = np.array(rows, np.uint64).reshape(-1, 4)
        self._low, self._high, self._depth, self._call = table.T

    def at(self, address: int) -> tuple[SourceLine, ...]:
        """The lines of the calls that the code at an address was inlined from, innermost first."""
        if not 0 <= address < 1 << 64:
            return ()
        place = np.uint64(address)
        inside = np.flatnonzero((self._low <= place) & (place < self._high))
        inside = inside[np.argsort(-self._depth[inside].astype(np.int64), kind="stable")]
        return tuple(self._line(*self._places[int(self._call[index])]) for index in inside[:DEEPEST])

    def _line(self, unit: int, file: int, line: int) -> SourceLine:
        return SourceLine(*(self._lines.file(unit, file) or ("", "?")), line)

    def _unit(self, entries: Entries, unit: CompileUnit) -> Iterator[tuple[int, int, int, int]]:
        """Yields the ranges of a unit's calls."""
        said = Attributes(self._sections, unit)
        around: list[int] = []  # the levels of the calls that an entry lies in
        for _, level, _, tag, values in entries.walk(unit, unit.first):
            if tag != DW_TAG_inlined_subroutine:
                said.begin(values)
            elif DW_AT_call_line in values:
                while around and around[-1] >= level:
                    around.pop()
                around.append(level)
                call = len(self._places)
                self._places.append((said.lines, values.get(DW_AT_call_file, (0, 0))[1], values[DW_AT_call_line][1]))
                for low, high in said.ranges(values):
                    if 0 <= low < high < 1 << 64:
                        yield low, high, len(around), call


class Attributes:
    """What a unit says of itself, and the addresses that entries of it name."""

    def __init__(self, sections: DebugSections, unit: CompileUnit) -> None:
        self._sections, self._version, self._address, self._offset = sections, unit.version, unit.address, unit.offset
        self._low = self._addresses = self._lists = 0
        self.lines = -1  # where its line number program begins

    def begin(self, values: Values) -> None:
        """Takes what the unit's own entry says."""
        none = (0, 0)
        self.lines = values.get(DW_AT_stmt_list, (0, -1))[1]
        self._addresses, self._lists = values.get(DW_AT_addr_base, none)[1], values.get(DW_AT_rnglists_base, none)[1]
        self._low = self._resolved(*values[DW_AT_low_pc]) if DW_AT_low_pc in values else 0

    def _resolved(self, form: int, value: int) -> int:
        return self._indexed(value) if form in ADDRESS_INDEXED else value

    def _indexed(self, index: int) -> int:
        return Cursor(self._sections[".debug_addr"], self._addresses + index * self._address).number(self._address)

    def ranges(self, values: Values) -> Iterator[tuple[int, int]]:
        """Yields first address and the one behind of each range of an entry."""
        if DW_AT_ranges in values:
            form, value = values[DW_AT_ranges]
            if form == DW_FORM_rnglistx:
                entry = Cursor(self._sections[".debug_rnglists"], self._lists + value * self._offset)
                value = self._lists + entry.number(self._offset)
            yield from self._listed_5(value) if self._version >= 5 else self._listed_4(value)
        elif DW_AT_low_pc in values:
            low = self._resolved(*values[DW_AT_low_pc])
            form, high = values.get(DW_AT_high_pc, (DW_FORM_addr, low))
            # DW_AT_high_pc is an address, or a length in every form that is none (DWARF 4, 2.17.2).
            is_address = form == DW_FORM_addr or form in ADDRESS_INDEXED
            yield low, self._resolved(form, high) if is_address else low + high

    def _listed_4(self, at: int) -> Iterator[tuple[int, int]]:
        cursor, base, size = Cursor(self._sections[".debug_ranges"], at), self._low, self._address
        while True:
            self._sections.steps.take()
            first, behind = cursor.number(size), cursor.number(size)
            if not first and not behind:
                return
            if first == (1 << 8 * size) - 1:
                base = behind
            else:
                yield base + first, base + behind

    def _listed_5(self, at: int) -> Iterator[tuple[int, int]]:
        cursor, base, size = Cursor(self._sections[".debug_rnglists"], at), self._low, self._address
        while True:
            self._sections.steps.take()
            kind = cursor.number(1)
            if kind == 0:  # DW_RLE_end_of_list
                return
            if kind == 1:  # base_addressx
                base = self._indexed(cursor.uleb())
            elif kind == 2:  # startx_endx
                yield self._indexed(cursor.uleb()), self._indexed(cursor.uleb())
            elif kind == 3:  # startx_length
                first = self._indexed(cursor.uleb())
                yield first, first + cursor.uleb()
            elif kind == 4:  # offset_pair
                yield base + cursor.uleb(), base + cursor.uleb()
            elif kind == 5:  # base_address
                base = cursor.number(size)
            elif kind == 6:  # start_end
                yield cursor.number(size), cursor.number(size)
            elif kind == 7:  # start_length
                first = cursor.number(size)
                yield first, first + cursor.uleb()
            else:
                raise ValueError(f"kind {kind} of a range list's entry is not known")
