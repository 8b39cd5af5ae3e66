"""Inlined calls at an address (DWARF: DW_TAG_inlined_subroutine)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.code_object.dwarf import Cursor, DebugSections
from simgpu.hardware.code_object.entries import (
    UNIT_TAGS,
    CompileUnit,
    DW_AT_abstract_origin,
    DW_AT_name,
    DW_AT_specification,
    DW_AT_str_offsets_base,
    Entries,
    Values,
)
from simgpu.hardware.code_object.lines import LineTable, SourceLine
from simgpu.hardware.code_object.references import RANGE_KINDS, References, ranges

DW_TAG_inlined_subroutine, DW_TAG_subprogram = 0x1D, 0x2E
DW_AT_stmt_list, DW_AT_low_pc, DW_AT_high_pc = 0x10, 0x11, 0x12
DW_AT_ranges, DW_AT_call_file, DW_AT_call_line = 0x55, 0x58, 0x59
DW_AT_addr_base, DW_AT_rnglists_base = 0x73, 0x74
DW_FORM_addr, DW_FORM_rnglistx = 0x01, 0x23
ADDRESS_INDEXED = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C, 0x1F01))  # DW_FORM_addrx and its kin
OF_UNIT = frozenset((DW_AT_stmt_list, DW_AT_low_pc, DW_AT_addr_base, DW_AT_rnglists_base, DW_AT_str_offsets_base))
OF_CALL = frozenset((DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges, DW_AT_call_file, DW_AT_call_line, DW_AT_abstract_origin))
OF_FUNCTION = frozenset((DW_AT_name, DW_AT_abstract_origin, DW_AT_specification))
WANTED = {DW_TAG_inlined_subroutine: OF_CALL, DW_TAG_subprogram: OF_FUNCTION} | dict.fromkeys(UNIT_TAGS, OF_UNIT)
DEEPEST = 64  # most calls that are listed for one address


@dataclass(frozen=True)
class InlinedCall:
    """An inlined call."""

    site: SourceLine  # of the call
    function: str  # the called function; "" if the file has no name


class InlinedCalls:
    """Every inlined call of a file. Damaged information raises IndexError, KeyError, ValueError or struct.error."""

    def __init__(self, sections: DebugSections, lines: LineTable) -> None:
        self._sections, self._lines = sections, lines
        self._units: list[tuple[CompileUnit, int]] = []  # with the place of its line number program
        # For each call: index of the unit, number of the file in its line table, line, and form and value of the reference
        # to the function.
        self._calls: list[tuple[int, int, int, int, int]] = []
        self._known: dict[int, InlinedCall] = {}
        self._entries = Entries(sections, WANTED)
        self._references = References(self._entries)
        # For each range: first address, end, nesting depth of calls, index of the call.
        rows = [row for unit in self._references.units for row in self._unit(unit)]
        table = np.array(rows, np.uint64).reshape(-1, 4)
        self._low, self._high, self._depth, self._call = table.T

    def at(self, address: int) -> tuple[InlinedCall, ...]:
        """Returns the calls that the code at an address was inlined from, innermost first."""
        if not 0 <= address < 1 << 64:
            return ()
        place = np.uint64(address)
        inside = np.flatnonzero((self._low <= place) & (place < self._high))
        inside = inside[np.argsort(-self._depth[inside].astype(np.int64), kind="stable")]
        return tuple(self._inlined_call(int(self._call[index])) for index in inside[:DEEPEST])

    def _inlined_call(self, number: int) -> InlinedCall:
        if number not in self._known:
            at, file, line, form, value = self._calls[number]
            unit, lines = self._units[at]
            site = SourceLine(*(self._lines.file(lines, file) or ("", "?")), line)
            name = self._references.name(unit, {DW_AT_abstract_origin: (form, value)})
            self._known[number] = InlinedCall(site, name.partition("<")[0])
        return self._known[number]

    def _unit(self, unit: CompileUnit) -> Iterator[tuple[int, int, int, int]]:
        """Yields first address, end, depth and call of each range of a unit's calls."""
        said = Attributes(self._sections, unit)
        around: list[int] = []  # levels of the enclosing calls
        for _, level, _, tag, values in self._entries.walk(unit, unit.first):
            if level == 0:
                said.begin(values)
                self._references.begin(unit, values)
                self._units.append((unit, said.lines))
            elif tag == DW_TAG_inlined_subroutine and DW_AT_call_line in values:
                while around and around[-1] >= level:
                    around.pop()
                around.append(level)
                number, file = len(self._calls), values.get(DW_AT_call_file, (0, 0))[1]
                origin = values.get(DW_AT_abstract_origin, (0, 0))
                self._calls.append((len(self._units) - 1, file, values[DW_AT_call_line][1], *origin))
                for low, high in said.ranges(values):
                    if 0 <= low < high < 1 << 64:
                        yield low, high, len(around), number


class Attributes:
    """A unit's attributes, which resolve the addresses and ranges in its entries."""

    def __init__(self, sections: DebugSections, unit: CompileUnit) -> None:
        self._sections, self._version, self._address, self._offset = sections, unit.version, unit.address, unit.offset
        self._low = self._addresses = self._lists = 0
        self.lines = -1  # offset of its program in .debug_line, -1 if it has none

    def begin(self, values: Values) -> None:
        """Sets the attributes from the values of the unit's first entry."""
        none = (0, 0)
        self.lines = values.get(DW_AT_stmt_list, (0, -1))[1]
        self._addresses, self._lists = values.get(DW_AT_addr_base, none)[1], values.get(DW_AT_rnglists_base, none)[1]
        self._low = self._resolve(*values[DW_AT_low_pc]) if DW_AT_low_pc in values else 0

    def _resolve(self, form: int, value: int) -> int:
        return self._indexed_address(value) if form in ADDRESS_INDEXED else value

    def _indexed_address(self, index: int) -> int:
        return Cursor(self._sections[".debug_addr"], self._addresses + index * self._address).number(self._address)

    def ranges(self, values: Values) -> Iterator[tuple[int, int]]:
        """Yields first address and end of each range of an entry."""
        if DW_AT_ranges in values:
            form, value = values[DW_AT_ranges]
            if form == DW_FORM_rnglistx:
                entry = Cursor(self._sections[".debug_rnglists"], self._lists + value * self._offset)
                value = self._lists + entry.number(self._offset)
            yield from self._listed_5(value) if self._version >= 5 else self._listed_4(value)
        elif DW_AT_low_pc in values:
            low = self._resolve(*values[DW_AT_low_pc])
            form, high = values.get(DW_AT_high_pc, (DW_FORM_addr, low))
            # DW_AT_high_pc is an address, or a length in every other form (DWARF 4, 2.17.2).
            is_address = form == DW_FORM_addr or form in ADDRESS_INDEXED
            yield low, self._resolve(form, high) if is_address else low + high

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
        return self.listed_ranges(Cursor(self._sections[".debug_rnglists"], at), RANGE_KINDS)

    def listed_ranges(self, cursor: Cursor, kinds: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        """Yields first address and end of each range of a DWARF 5 list that begins at the cursor (see `ranges`)."""
        return ranges(cursor, kinds, self._low, self._address, self._indexed_address, self._sections.steps.take)
