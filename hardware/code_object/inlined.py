"""The calls that the code at an address was inlined from (DWARF: DW_TAG_inlined_subroutine)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.code_object.dwarf import IMPLICIT, Cursor, DebugSections, fixed_size, read_form
from simgpu.hardware.code_object.lines import LineTable, SourceLine

DW_TAG_inlined_subroutine = 0x1D
DW_AT_stmt_list, DW_AT_low_pc, DW_AT_high_pc = 0x10, 0x11, 0x12
DW_AT_ranges, DW_AT_call_file, DW_AT_call_line = 0x55, 0x58, 0x59
DW_AT_addr_base, DW_AT_rnglists_base = 0x73, 0x74
DW_FORM_addr, DW_FORM_rnglistx = 0x01, 0x23
ADDRESS_INDEXED = frozenset((0x1B, 0x29, 0x2A, 0x2B, 0x2C, 0x1F01))  # DW_FORM_addrx and its kin
DW_UT_type, DW_UT_skeleton, DW_UT_split_compile, DW_UT_split_type = 2, 4, 5, 6
WANTED = frozenset((
    DW_AT_stmt_list, DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges,
    DW_AT_call_file, DW_AT_call_line, DW_AT_addr_base, DW_AT_rnglists_base,
))  # fmt: skip
DEEPEST = 64  # calls that are told of one address


@dataclass(frozen=True)
class Abbreviation:
    """What an entry of debug information consists of."""

    tag: int
    children: bool
    # Attribute or None, form, and the constant of an implicit one; of a fixed number of bytes where no attribute is wanted.
    fields: tuple[tuple[int | None, int, int], ...]


SKIP = -1  # as a form: bytes that nothing is wanted of


class InlinedCalls:
    """Every inlined call of a file. Damaged information raises IndexError, ValueError or struct.error."""

    def __init__(self, sections: DebugSections, lines: LineTable) -> None:
        self._sections, self._lines = sections, lines
        self._abbreviations: dict[tuple[int, int, int], dict[int, Abbreviation]] = {}
        self._places: list[tuple[int, int, int]] = []  # of each call: the line table, the file's number, the line
        rows: list[tuple[int, int, int, int]] = []  # of each range: first address, the one behind, depth, call
        section, at = sections[".debug_info"], 0
        while at < len(section):
            cursor = Cursor(section, at)
            length, offset = cursor.length()
            at = cursor.end = cursor.at + length
            if at > len(section):
                raise ValueError(f"a unit ends at byte {at} of {len(section)}")
            rows += self._unit(cursor, at, offset)
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

    def _unit(self, cursor: Cursor, end: int, offset: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields the ranges of a unit's calls."""
        version = cursor.number(2)
        kind = cursor.number(1) if version >= 5 else 0
        if version >= 5:
            address, abbreviations = cursor.number(1), cursor.number(offset)
            if kind in (DW_UT_type, DW_UT_split_type):
                cursor.at += 8 + offset  # the type's signature and place
            elif kind in (DW_UT_skeleton, DW_UT_split_compile):
                cursor.at += 8  # the unit's number
        else:
            abbreviations, address = cursor.number(offset), cursor.number(1)
        if address not in (4, 8):
            raise ValueError(f"addresses of {address} bytes")
        known = self._abbreviated(abbreviations, address, offset)
        unit = Attributes(self._sections, version, address, offset)
        depth: list[int] = []  # of inlining, at each level that is open
        first = True
        while cursor.at < end:
            code = cursor.uleb()
            self._sections.steps.take()
            if code == 0:
                if depth:
                    depth.pop()
                continue
            entry = known[code]
            values = self._values(cursor, entry, address, offset)
            if first:
                unit.begin(values)
                first = False
            inside = depth[-1] if depth else 0
            if entry.tag == DW_TAG_inlined_subroutine and DW_AT_call_line in values:
                inside += 1
                call = len(self._places)
                self._places.append((unit.lines, values.get(DW_AT_call_file, (0, 0))[1], values[DW_AT_call_line][1]))
                for low, high in unit.ranges(values):
                    if 0 <= low < high < 1 << 64:
                        yield low, high, inside, call
            if entry.children:
                depth.append(inside)

    def _values(self, cursor: Cursor, entry: Abbreviation, address: int, offset: int) -> dict[int, tuple[int, int]]:
        """Form and value of the wanted attributes of the entry that stands here."""
        self._sections.steps.take(len(entry.fields))
        values = {}
        for attribute, form, constant in entry.fields:
            if form == SKIP:
                cursor.at += constant
                continue
            value = constant if form == IMPLICIT else read_form(cursor, form, address, offset)
            if attribute is not None:
                values[attribute] = form, value
        return values

    def _abbreviated(self, at: int, address: int, offset: int) -> dict[int, Abbreviation]:
        """The table of abbreviations at a place; neighbours of a fixed size that nothing is wanted of are one field."""
        key = at, address, offset
        if key in self._abbreviations:
            return self._abbreviations[key]
        cursor = Cursor(self._sections[".debug_abbrev"], at)
        table = self._abbreviations[key] = {}
        while code := cursor.uleb():
            tag, children = cursor.uleb(), cursor.number(1)
            fields: list[tuple[int | None, int, int]] = []
            taken: set[int] = set()
            while True:
                self._sections.steps.take()
                attribute, form = cursor.uleb(), cursor.uleb()
                constant = cursor.sleb() if form == IMPLICIT else 0
                if not attribute and not form:
                    break
                wanted = attribute in WANTED and attribute not in taken
                taken.add(attribute)
                size = fixed_size(form, address, offset)
                if wanted or size is None:
                    fields.append((attribute if wanted else None, form, constant))
                elif fields and fields[-1][1] == SKIP:
                    fields[-1] = None, SKIP, fields[-1][2] + size
                elif size:
                    fields.append((None, SKIP, size))
            table[code] = Abbreviation(tag, bool(children), tuple(fields))
        return table


class Attributes:
    """What a unit says of itself, and the addresses that entries of it name."""

    def __init__(self, sections: DebugSections, version: int, address: int, offset: int) -> None:
        self._sections, self._version, self._address, self._offset = sections, version, address, offset
        self._low = self._addresses = self._lists = 0
        self.lines = -1  # where its line number program begins

    def begin(self, values: dict[int, tuple[int, int]]) -> None:
        """Takes what the unit's own entry says."""
        none = (0, 0)
        self.lines = values.get(DW_AT_stmt_list, (0, -1))[1]
        self._addresses, self._lists = values.get(DW_AT_addr_base, none)[1], values.get(DW_AT_rnglists_base, none)[1]
        self._low = self._resolved(*values[DW_AT_low_pc]) if DW_AT_low_pc in values else 0

    def _resolved(self, form: int, value: int) -> int:
        return self._indexed(value) if form in ADDRESS_INDEXED else value

    def _indexed(self, index: int) -> int:
        return Cursor(self._sections[".debug_addr"], self._addresses + index * self._address).number(self._address)

    def ranges(self, values: dict[int, tuple[int, int]]) -> Iterator[tuple[int, int]]:
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
