"""Entries of .debug_info, walked in order or read at a position. Only the attributes that the caller wants are returned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import IMPLICIT, STRING, Cursor, DebugSections, fixed_size, read_form

DW_UT_type, DW_UT_skeleton, DW_UT_split_compile, DW_UT_split_type = 2, 4, 5, 6
UNIT_TAGS = (0x11, 0x3C, 0x41, 0x4A)  # DW_TAG_compile_unit, partial_unit, type_unit, skeleton_unit: the first entry of a unit
DW_AT_name, DW_AT_str_offsets_base, DW_AT_abstract_origin, DW_AT_specification = 0x03, 0x72, 0x31, 0x47
DW_FORM_ref_addr, UNIT_REFERENCES = 0x10, frozenset((0x11, 0x12, 0x13, 0x14, 0x15))  # DW_FORM_ref1 to ref8, ref_udata
TEXT_SECTIONS = {STRING: ".debug_info", 0x0E: ".debug_str", 0x1F: ".debug_line_str"}  # by form
INDEXED_TEXT = frozenset((0x1A, 0x25, 0x26, 0x27, 0x28))  # DW_FORM_strx and its kin
SKIP = -1  # in place of a form: bytes that hold no wanted attribute

Values = dict[int, tuple[int, int]]  # form and value of each wanted attribute that an entry has


class CompileUnit(NamedTuple):
    """A unit of .debug_info. Positions are bytes from the start of the section."""

    start: int  # of its header; references within the unit are relative to it
    first: int  # position of its first entry, which has the unit's attributes
    end: int
    version: int  # of DWARF
    address: int  # bytes of an address
    offset: int  # bytes of an offset
    abbreviations: int  # offset of its table in .debug_abbrev


class DebugEntry(NamedTuple):
    """An entry with its wanted attributes."""

    at: int  # its position in .debug_info
    level: int  # nesting depth, 0 for the entry at which the walk began
    parent: int  # position of the enclosing entry, -1 for the first
    tag: int
    values: Values


@dataclass(frozen=True)
class Abbreviation:
    """Layout of an entry, from .debug_abbrev."""

    tag: int
    children: bool
    wanted: bool  # True if the caller wants entries of this tag
    # Attribute (None if not wanted), form, and the constant of DW_FORM_implicit_const; for SKIP, a number of bytes.
    fields: tuple[tuple[int | None, int, int], ...]


class Entries:
    """Debug entries of a file with the wanted attributes. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections, wanted: Mapping[int, frozenset[int]]) -> None:
        """wanted: attributes by tag; `walk` skips entries of other tags."""
        self._sections, self._wanted = sections, wanted
        self._section = sections[".debug_info"]
        self._tables: dict[tuple[int, int, int], dict[int, Abbreviation]] = {}

    def units(self) -> Iterator[CompileUnit]:
        """Yields the units."""
        at = 0
        while at < len(self._section):
            self._sections.steps.take()
            unit = self._unit(at)
            yield unit
            at = unit.end

    def walk(self, unit: CompileUnit, at: int) -> Iterator[DebugEntry]:
        """Yields the entry at position `at` and its descendants, in order, if their tags are wanted."""
        cursor, known, take = Cursor(self._section, at, unit.end), self._abbreviation_table(unit), self._sections.steps.take
        parents: list[int] = []  # places of the open entries
        while cursor.at < unit.end:
            at = cursor.at
            code = cursor.uleb()
            take()
            if code == 0:
                del parents[-1:]
            else:
                abbreviation = known[code]
                values = self._values(cursor, unit, abbreviation)
                if abbreviation.wanted:
                    yield DebugEntry(at, len(parents), parents[-1] if parents else -1, abbreviation.tag, values)
                if abbreviation.children:
                    parents.append(at)
            if not parents:
                return

    def entry(self, unit: CompileUnit, at: int) -> tuple[int, Values]:
        """Returns tag and wanted values of the entry at position `at`. Raises ValueError if that is outside the unit."""
        if not unit.first <= at < unit.end:
            raise ValueError(f"no entry can stand at byte {at} of a unit from {unit.first} to {unit.end}")
        cursor = Cursor(self._section, at, unit.end)
        self._sections.steps.take()
        abbreviation = self._abbreviation_table(unit)[cursor.uleb()]
        return abbreviation.tag, self._values(cursor, unit, abbreviation)

    def text(self, unit: CompileUnit, strings: int, form: int, value: int) -> str:
        """Returns the string that a form and its value denote. strings: the unit's DW_AT_str_offsets_base."""
        if form in INDEXED_TEXT:
            offsets = Cursor(self._sections[".debug_str_offsets"], strings + value * unit.offset)
            return self._sections.text(".debug_str", offsets.number(unit.offset))
        return self._sections.text(TEXT_SECTIONS.get(form, ""), value)

    def _unit(self, start: int) -> CompileUnit:
        cursor = Cursor(self._section, start)
        length, offset = cursor.length()
        end = cursor.end = cursor.at + length
        if end > len(self._section):
            raise ValueError(f"a unit ends at byte {end} of {len(self._section)}")
        version = cursor.number(2)
        if version >= 5:
            kind, address, abbreviations = cursor.number(1), cursor.number(1), cursor.number(offset)
            if kind in (DW_UT_type, DW_UT_split_type):
                cursor.at += 8 + offset  # the type's signature and place
            elif kind in (DW_UT_skeleton, DW_UT_split_compile):
                cursor.at += 8  # the unit's number
        else:
            abbreviations, address = cursor.number(offset), cursor.number(1)
        if address not in (4, 8):
            raise ValueError(f"addresses of {address} bytes")
        return CompileUnit(start, cursor.at, end, version, address, offset, abbreviations)

    def _values(self, cursor: Cursor, unit: CompileUnit, abbreviation: Abbreviation) -> Values:
        """Reads the entry at the cursor, behind its code, and returns the wanted values."""
        self._sections.steps.take(len(abbreviation.fields))
        values = {}
        for attribute, form, constant in abbreviation.fields:
            if form == SKIP:
                cursor.at += constant
                continue
            value = constant if form == IMPLICIT else read_form(cursor, form, unit.address, unit.offset)
            if attribute is not None:
                values[attribute] = form, value
        return values

    def _abbreviation_table(self, unit: CompileUnit) -> dict[int, Abbreviation]:
        """Returns the unit's abbreviations by code; adjacent unwanted fields of fixed size are merged into one."""
        key = unit.abbreviations, unit.address, unit.offset
        if key in self._tables:
            return self._tables[key]
        cursor = Cursor(self._sections[".debug_abbrev"], unit.abbreviations)
        table = self._tables[key] = {}
        while code := cursor.uleb():
            tag, children = cursor.uleb(), cursor.number(1)
            of_tag = self._wanted.get(tag, frozenset())
            fields: list[tuple[int | None, int, int]] = []
            taken: set[int] = set()
            while True:
                self._sections.steps.take()
                attribute, form = cursor.uleb(), cursor.uleb()
                constant = cursor.sleb() if form == IMPLICIT else 0
                if not attribute and not form:
                    break
                wanted = attribute in of_tag and attribute not in taken
                taken.add(attribute)
                size = fixed_size(form, unit.address, unit.offset)
                if wanted or size is None:
                    fields.append((attribute if wanted else None, form, constant))
                elif fields and fields[-1][1] == SKIP:
                    fields[-1] = None, SKIP, fields[-1][2] + size
                elif size:
                    fields.append((None, SKIP, size))
            table[code] = Abbreviation(tag, bool(children), tag in self._wanted, tuple(fields))
        return table
