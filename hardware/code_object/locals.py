"""Local variables and parameters by debug information: the registers that hold them at an address (DWARF 5, .debug_loclists).

Register numbers are AMDGPU's (LLVM, AMDGPUUsage, "Register Identifier"). A variable in memory, or with a location of an
unsupported form, is reported as optimized out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import Cursor, DebugSections
from simgpu.hardware.code_object.entries import (
    UNIT_TAGS,
    CompileUnit,
    DW_AT_abstract_origin,
    DW_AT_name,
    DW_AT_specification,
    Entries,
    Values,
)
from simgpu.hardware.code_object.inlined import (
    OF_UNIT,
    Attributes,
    DW_AT_high_pc,
    DW_AT_low_pc,
    DW_AT_ranges,
    DW_TAG_inlined_subroutine,
    DW_TAG_subprogram,
)
from simgpu.hardware.code_object.references import (
    LOCATION_KINDS,
    OF_TYPES,
    DW_AT_type,
    DW_TAG_formal_parameter,
    DW_TAG_variable,
    References,
)

DW_TAG_lexical_block = 0x0B
DW_AT_location, DW_AT_const_value, DW_AT_loclists_base = 0x02, 0x1C, 0x8C
DW_FORM_loclistx, DW_FORM_sec_offset, DW_FORM_exprloc = 0x22, 0x17, 0x18
SCOPE_TAGS = frozenset((DW_TAG_subprogram, DW_TAG_inlined_subroutine, DW_TAG_lexical_block))
OF_SCOPE = frozenset((DW_AT_name, DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges, DW_AT_abstract_origin, DW_AT_specification))
OF_VARIABLE = frozenset((DW_AT_name, DW_AT_type, DW_AT_location, DW_AT_const_value, DW_AT_abstract_origin))
WANTED = {
    **dict.fromkeys(SCOPE_TAGS, OF_SCOPE),
    **dict.fromkeys((DW_TAG_variable, DW_TAG_formal_parameter), OF_VARIABLE),
    **OF_TYPES,
    **dict.fromkeys(UNIT_TAGS, OF_UNIT | {DW_AT_loclists_base}),
}
# First DWARF number, register file, first register, count.
REGISTERS = ((32, "s", 0, 64), (1088, "s", 64, 42), (2560, "v", 0, 512), (3072, "a", 0, 512))
# Clang describes a local of HIP as memory of address space 1: DW_OP_lit1 DW_OP_swap DW_OP_xderef. LLVM keeps these operations
# even if the value is in registers, where they have no meaning.
IN_MEMORY = bytes((0x31, 0x16, 0x18))
DW_OP_stack_value, DW_OP_piece, DW_OP_lit0, DW_OP_constu, DW_OP_consts = 0x9F, 0x93, 0x30, 0x10, 0x11
DW_OP_reg0, DW_OP_breg0, DW_OP_regx, DW_OP_bregx = 0x50, 0x70, 0x90, 0x92


class Piece(NamedTuple):
    """A part of a value. Pieces of a value are ordered from its lowest bytes up."""

    register: str  # such as v2, s4 or a3; "" for a constant
    value: int  # of a constant
    size: int  # bytes; 0 if the piece is the whole value


@dataclass(frozen=True)
class Local:
    """A variable or parameter in scope at an address."""

    name: str
    type: str  # such as u32, f32 or i64, "pointer", or "" for other types
    size: int  # bytes, 0 if unknown
    function: str  # the inlined function that it belongs to; "" for the kernel's own
    pieces: tuple[Piece, ...] | None  # None if no register holds the value here: optimized out


class _Variable(NamedTuple):
    name: str
    type: str
    size: int
    function: str
    scope: tuple[tuple[int, int], ...]  # ranges
    depth: int
    places: tuple[tuple[int, int, tuple[Piece, ...] | None], ...]  # first address, end, pieces of the value


class Locals:
    """Local variables of a file. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._entries = Entries(sections, WANTED)
        self._references = References(self._entries)
        self._known = [variable for unit in self._references.units for variable in self._unit(unit)]

    def at(self, address: int) -> tuple[Local, ...]:
        """Returns the variables in scope, those of the innermost scope first."""
        found = [each for each in self._known if any(low <= address < high for low, high in each.scope)]
        return tuple(
            Local(each.name, each.type, each.size, each.function, _pieces_at(each, address))
            for each in sorted(found, key=lambda each: -each.depth)
        )

    def _unit(self, unit: CompileUnit) -> Iterator[_Variable]:
        reader, known = _Places(self._sections, unit), self._references
        scopes: list[tuple[int, tuple[tuple[int, int], ...], str]] = []  # level, ranges and function of the enclosing scopes
        for _, level, _, tag, values in self._entries.walk(unit, unit.first):
            if level == 0:
                reader.begin(values)
                known.begin(unit, values)
                continue
            while scopes and scopes[-1][0] >= level:
                scopes.pop()
            if tag in SCOPE_TAGS:
                function = scopes[-1][2] if scopes else ""
                if tag == DW_TAG_inlined_subroutine:
                    function = known.name(unit, values).partition("<")[0]
                scopes.append((level, tuple(reader.ranges(values)), function))
            elif tag in (DW_TAG_variable, DW_TAG_formal_parameter) and scopes and scopes[-1][1]:
                name = known.name(unit, values)
                if name:
                    type_, size = known.type(unit, values)
                    yield _Variable(name, type_, size, scopes[-1][2], scopes[-1][1], level, tuple(reader.places(values)))


class _Places(Attributes):
    """Reads the locations of a unit's variables."""

    def __init__(self, sections: DebugSections, unit: CompileUnit) -> None:
        super().__init__(sections, unit)
        self._locations = 0  # DW_AT_loclists_base

    def begin(self, values: Values) -> None:
        super().begin(values)
        self._locations = values.get(DW_AT_loclists_base, (0, 0))[1]

    def places(self, values: Values) -> Iterator[tuple[int, int, tuple[Piece, ...] | None]]:
        """Yields first address, end and pieces of each location of a variable; pieces are None for an unsupported one."""
        everywhere = 0, 1 << 64
        if DW_AT_const_value in values:
            yield *everywhere, (Piece("", values[DW_AT_const_value][1], 0),)
        if DW_AT_location not in values:
            return
        form, value = values[DW_AT_location]
        if form == DW_FORM_exprloc:
            cursor = Cursor(self._sections[".debug_info"], value)
            yield *everywhere, pieces_of(_block(cursor))
        elif form in (DW_FORM_loclistx, DW_FORM_sec_offset) and self._version >= 5:
            if form == DW_FORM_loclistx:
                entry = Cursor(self._sections[".debug_loclists"], self._locations + value * self._offset)
                value = self._locations + entry.number(self._offset)
            cursor = Cursor(self._sections[".debug_loclists"], value)
            for low, high in self.listed_ranges(cursor, LOCATION_KINDS):
                yield low, high, pieces_of(_block(cursor))


def _block(cursor: Cursor) -> bytes:
    length = cursor.uleb()
    first, cursor.at = cursor.at, cursor.at + length
    return cursor.data[first : first + length]


def _pieces_at(variable: _Variable, address: int) -> tuple[Piece, ...] | None:
    """Returns the value's pieces at an address; None if there are none."""
    found = [pieces for low, high, pieces in variable.places if low <= address < high]
    return (found[0] or None) if found else None


def pieces_of(expression: bytes) -> tuple[Piece, ...] | None:
    """Returns the registers and constants of a location expression; None if it is in memory or not supported.

    >>> pieces_of(bytes.fromhex("92821400311618"))
    (Piece(register='v2', value=0, size=0),)
    """
    cursor, found, current = Cursor(expression), list[Piece](), None
    while cursor.at < len(expression):
        if expression.startswith(IN_MEMORY, cursor.at):
            cursor.at += len(IN_MEMORY)
            continue
        op = cursor.number(1)
        if op == DW_OP_piece:
            if current is None:
                return None
            found.append(current._replace(size=cursor.uleb()))
            current = None
        elif op != DW_OP_stack_value:
            current = _operand(op, cursor) if current is None else None
            if current is None:
                return None
    return tuple(found) if current is None else (*found, current)


def _operand(op: int, cursor: Cursor) -> Piece | None:
    """Returns the register or constant of an operation, None for other operations; reads its operands."""
    if DW_OP_lit0 <= op < DW_OP_lit0 + 32:
        return Piece("", op - DW_OP_lit0, 0)
    if op in (DW_OP_constu, DW_OP_consts):
        return Piece("", cursor.uleb() if op == DW_OP_constu else cursor.sleb(), 0)
    if DW_OP_reg0 <= op < DW_OP_reg0 + 32 or op == DW_OP_regx:
        return _register(cursor.uleb() if op == DW_OP_regx else op - DW_OP_reg0)
    if DW_OP_breg0 <= op < DW_OP_breg0 + 32 or op == DW_OP_bregx:
        number = cursor.uleb() if op == DW_OP_bregx else op - DW_OP_breg0
        return _register(number) if cursor.sleb() == 0 else None
    return None


def _register(number: int) -> Piece | None:
    for start, file, first, count in REGISTERS:
        if start <= number < start + count:
            return Piece(f"{file}{first + number - start}", 0, 0)
    return None
