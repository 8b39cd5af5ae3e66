"""Local variables and parameters by debug information: which registers hold them at an address (DWARF 5, .debug_loclists).

Register numbers are AMDGPU's (LLVM, AMDGPUUsage, "Register Identifier"). A location in memory, or one that this reader does not
know, counts as none: the variable is in scope, and optimized out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import Cursor, DebugSections
from simgpu.hardware.code_object.entries import (
    UNIT_REFERENCES,
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
from simgpu.hardware.code_object.parameters import (
    LETTERS,
    POINTER_TAGS,
    SAME_TYPE,
    DW_AT_byte_size,
    DW_AT_encoding,
    DW_AT_type,
    DW_TAG_base_type,
    DW_TAG_enumeration_type,
    DW_TAG_formal_parameter,
)

DW_TAG_lexical_block, DW_TAG_variable = 0x0B, 0x34
DW_AT_location, DW_AT_const_value, DW_AT_loclists_base = 0x02, 0x1C, 0x8C
DW_FORM_loclistx, DW_FORM_sec_offset, DW_FORM_exprloc = 0x22, 0x17, 0x18
SCOPE_TAGS = frozenset((DW_TAG_subprogram, DW_TAG_inlined_subroutine, DW_TAG_lexical_block))
OF_SCOPE = frozenset((DW_AT_name, DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges, DW_AT_abstract_origin, DW_AT_specification))
OF_VARIABLE = frozenset((DW_AT_name, DW_AT_type, DW_AT_location, DW_AT_const_value, DW_AT_abstract_origin))
OF_TYPE = frozenset((DW_AT_name, DW_AT_type, DW_AT_byte_size, DW_AT_encoding))
WANTED = {
    **dict.fromkeys(SCOPE_TAGS, OF_SCOPE),
    **dict.fromkeys((DW_TAG_variable, DW_TAG_formal_parameter), OF_VARIABLE),
    **dict.fromkeys((DW_TAG_base_type, DW_TAG_enumeration_type, *POINTER_TAGS, *SAME_TYPE), OF_TYPE),
    **dict.fromkeys(UNIT_TAGS, OF_UNIT | {DW_AT_loclists_base}),
}
CHAIN_LIMIT = 64  # names and qualifiers of one type
# First DWARF number, file, first register, count.
REGISTERS = ((32, "s", 0, 64), (1088, "s", 64, 42), (2560, "v", 0, 512), (3072, "a", 0, 512))
# Clang describes a local of HIP as memory of address space 1, DW_OP_lit1 DW_OP_swap DW_OP_xderef. LLVM keeps that when the value is
# in registers; it then means nothing.
IN_MEMORY = bytes((0x31, 0x16, 0x18))
DW_OP_stack_value, DW_OP_piece, DW_OP_lit0, DW_OP_constu, DW_OP_consts = 0x9F, 0x93, 0x30, 0x10, 0x11
DW_OP_reg0, DW_OP_breg0, DW_OP_regx, DW_OP_bregx = 0x50, 0x70, 0x90, 0x92


class Piece(NamedTuple):
    """A part of a value, lowest bytes first."""

    register: str  # as v2, s4 or a3; "" for a constant
    value: int  # of a constant
    size: int  # bytes; 0 if the piece is the whole value


@dataclass(frozen=True)
class Local:
    """A variable or parameter in scope at an address."""

    name: str
    type: str  # as u32, f32 or i64, "pointer", or "" for what has no number
    size: int  # bytes, 0 if unknown
    function: str  # that was inlined, whose variable it is; "" for the kernel's own
    pieces: tuple[Piece, ...] | None  # None if no register holds the value here: optimized out


class _Variable(NamedTuple):
    name: str
    type: str
    size: int
    function: str
    scope: tuple[tuple[int, int], ...]  # ranges
    depth: int
    places: tuple[tuple[int, int, tuple[Piece, ...] | None], ...]  # first address, the one behind, where the value is


class Locals:
    """The local variables of a file. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._entries = Entries(sections, WANTED)
        self._known = [variable for unit in self._entries.units() for variable in self._unit(unit)]

    def at(self, address: int) -> tuple[Local, ...]:
        """The variables in scope, those of the innermost scope first."""
        found = [each for each in self._known if any(low <= address < high for low, high in each.scope)]
        return tuple(
            Local(each.name, each.type, each.size, each.function, _held(each, address))
            for each in sorted(found, key=lambda each: -each.depth)
        )

    def _unit(self, unit: CompileUnit) -> Iterator[_Variable]:
        reader = _Reader(self._sections, self._entries, unit)
        scopes: list[tuple[int, tuple[tuple[int, int], ...], str]] = []  # level, ranges and function of the scopes around
        for _, level, _, tag, values in self._entries.walk(unit, unit.first):
            if level == 0:
                reader.begin(values)
                continue
            while scopes and scopes[-1][0] >= level:
                scopes.pop()
            if tag in SCOPE_TAGS:
                function = scopes[-1][2] if scopes else ""
                if tag == DW_TAG_inlined_subroutine:
                    function = reader.name(values).partition("<")[0]
                scopes.append((level, tuple(reader.ranges(values)), function))
            elif tag in (DW_TAG_variable, DW_TAG_formal_parameter) and scopes and scopes[-1][1]:
                name = reader.name(values)
                if name:
                    type_, size = reader.type(values)
                    yield _Variable(name, type_, size, scopes[-1][2], scopes[-1][1], level, tuple(reader.places(values)))


class _Reader(Attributes):
    """Reads what the entries of a unit say of variables."""

    def __init__(self, sections: DebugSections, entries: Entries, unit: CompileUnit) -> None:
        super().__init__(sections, unit)
        self._entries, self._unit = entries, unit
        self._locations = 0  # DW_AT_loclists_base

    def begin(self, values: Values) -> None:
        super().begin(values)
        self._locations = values.get(DW_AT_loclists_base, (0, 0))[1]

    def name(self, values: Values) -> str:
        """The name of an entry, or of that which it is an instance of."""
        for _ in range(CHAIN_LIMIT):
            if DW_AT_name in values:
                return self._entries.text(self._unit, self.strings, *values[DW_AT_name])
            found = self._referred(values.get(DW_AT_abstract_origin, values.get(DW_AT_specification)))
            if found is None:
                break
            values = found[1]
        return ""

    def type(self, values: Values) -> tuple[str, int]:
        """A variable's type and its bytes; ("", 0) for one that is no number."""
        for _ in range(CHAIN_LIMIT):
            found = self._referred(values.get(DW_AT_type, values.get(DW_AT_abstract_origin)))
            if found is None:
                break
            tag, values = found
            size = values.get(DW_AT_byte_size, (0, 0))[1]
            if tag in POINTER_TAGS:
                return "pointer", 8
            if tag == DW_TAG_enumeration_type:
                return f"i{8 * size}", size
            if tag == DW_TAG_base_type:
                letter = LETTERS.get(values.get(DW_AT_encoding, (0, 0))[1], "")
                return (f"{letter}{8 * size}", size) if letter else ("", size)
            if tag not in SAME_TYPE and tag not in (DW_TAG_variable, DW_TAG_formal_parameter):
                break
        return "", 0

    def places(self, values: Values) -> Iterator[tuple[int, int, tuple[Piece, ...] | None]]:
        """Yields where a variable is: ranges of addresses, and its pieces there."""
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
            yield from self._listed(value)

    def _listed(self, at: int) -> Iterator[tuple[int, int, tuple[Piece, ...] | None]]:
        cursor, base, size = Cursor(self._sections[".debug_loclists"], at), self._low, self._address
        while True:
            self._sections.steps.take()
            kind = cursor.number(1)
            if kind == 0:  # DW_LLE_end_of_list
                return
            if kind == 1:  # base_addressx
                base = self._indexed(cursor.uleb())
                continue
            if kind == 6:  # base_address
                base = cursor.number(size)
                continue
            low, high = 0, 1 << 64  # 5: default_location
            if kind == 2:  # startx_endx
                low, high = self._indexed(cursor.uleb()), self._indexed(cursor.uleb())
            elif kind == 3:  # startx_length
                low = self._indexed(cursor.uleb())
                high = low + cursor.uleb()
            elif kind == 4:  # offset_pair
                low, high = base + cursor.uleb(), base + cursor.uleb()
            elif kind == 7:  # start_end
                low, high = cursor.number(size), cursor.number(size)
            elif kind == 8:  # start_length
                low = cursor.number(size)
                high = low + cursor.uleb()
            elif kind != 5:
                raise ValueError(f"kind {kind} of a location list's entry is not known")
            yield low, high, pieces_of(_block(cursor))

    def _referred(self, reference: tuple[int, int] | None) -> tuple[int, Values] | None:
        if reference is None or reference[0] not in UNIT_REFERENCES:
            return None
        return self._entries.entry(self._unit, self._unit.start + reference[1])


def _block(cursor: Cursor) -> bytes:
    length = cursor.uleb()
    first, cursor.at = cursor.at, cursor.at + length
    return cursor.data[first : first + length]


def _held(variable: _Variable, address: int) -> tuple[Piece, ...] | None:
    """Where the value is at an address; () counts as nowhere."""
    found = [pieces for low, high, pieces in variable.places if low <= address < high]
    return (found[0] or None) if found else None


def pieces_of(expression: bytes) -> tuple[Piece, ...] | None:
    """The registers and constants that a location expression names; None for one of memory, or that is not known.

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
    """The register or constant that an operation pushes."""
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
