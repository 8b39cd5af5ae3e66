"""Variables and parameters by debug information: the registers and memory that hold them at an address (DWARF 5, .debug_loclists).

A variable whose location has an unsupported form is reported as optimized out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
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
from simgpu.hardware.code_object.expression import Piece, StackOperation, pieces_of
from simgpu.hardware.code_object.inlined import (
    OF_UNIT,
    Attributes,
    DW_AT_high_pc,
    DW_AT_low_pc,
    DW_AT_ranges,
    DW_TAG_inlined_subroutine,
    DW_TAG_subprogram,
)
from simgpu.hardware.code_object.mangled import OTHER
from simgpu.hardware.code_object.references import (
    LOCATION_KINDS,
    OF_TYPES,
    DW_AT_type,
    DW_TAG_formal_parameter,
    DW_TAG_variable,
    References,
)
from simgpu.hardware.code_object.shared import Shared, offsets
from simgpu.hardware.code_object.types import OF_PARTS, STRUCT, DwarfType, Types

DW_TAG_lexical_block = 0x0B
DW_AT_location, DW_AT_const_value, DW_AT_loclists_base = 0x02, 0x1C, 0x8C
DW_FORM_loclistx, DW_FORM_sec_offset, DW_FORM_exprloc = 0x22, 0x17, 0x18
SCOPE_TAGS = frozenset((DW_TAG_subprogram, DW_TAG_inlined_subroutine, DW_TAG_lexical_block))
DW_AT_frame_base = 0x40
OF_SCOPE = frozenset(
    (DW_AT_name, DW_AT_low_pc, DW_AT_high_pc, DW_AT_ranges, DW_AT_abstract_origin, DW_AT_specification, DW_AT_frame_base)
)  # fmt: skip
OF_VARIABLE = frozenset((DW_AT_name, DW_AT_type, DW_AT_location, DW_AT_const_value, DW_AT_abstract_origin, DW_AT_specification))
WANTED = {
    **OF_PARTS,
    **dict.fromkeys(SCOPE_TAGS, OF_SCOPE),
    **dict.fromkeys((DW_TAG_variable, DW_TAG_formal_parameter), OF_VARIABLE),
    **OF_TYPES,
    **dict.fromkeys(UNIT_TAGS, OF_UNIT | {DW_AT_loclists_base}),
}
EVERYWHERE = 0, 1 << 64


@dataclass(frozen=True)
class Local:
    """A variable or parameter in scope at an address."""

    name: str
    type: str  # such as u32, f32 or i64, "pointer", or "" for other types
    size: int  # bytes, 0 if unknown
    function: str  # the inlined function that it belongs to; "" for the kernel's own
    pieces: tuple[Piece, ...] | None  # None if nothing holds the value here: optimized out
    layout: DwarfType = field(default=DwarfType(OTHER, 0), compare=False)  # the type with its parts
    is_global: bool = False  # True for variables outside functions
    frame: str = ""  # the register that holds the base of the function's frame in private memory, "" if the base is 0


class _Variable(NamedTuple):
    name: str
    type: str
    layout: DwarfType
    function: str
    scope: tuple[tuple[int, int], ...]  # ranges
    depth: int
    places: tuple[tuple[int, int, tuple[Piece, ...] | None], ...]  # first address, end, pieces of the value
    frame: str
    home: int = -1  # for a variable that may be in LDS, the position of its function in .debug_info, or 0

    def local(self, pieces: tuple[Piece, ...] | None) -> Local:
        size = self.layout.size
        return Local(self.name, self.type, size, self.function, pieces, self.layout, not self.depth, self.frame)


class _Scope(NamedTuple):
    level: int
    ranges: tuple[tuple[int, int], ...]
    function: str  # the inlined function; "" for the kernel's own
    frame: str


class Locals:
    """Local and global variables of a file. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections) -> None:
        self._sections = sections
        self._entries = Entries(sections, WANTED)
        self._references = References(self._entries)
        self._types = Types(self._entries, self._references)
        self._functions: list[tuple[tuple[tuple[int, int], ...], set[int]]] = []  # ranges, and entries of it and of inlined ones
        self._known = [variable for unit in self._references.units for variable in self._unit(unit)]

    def at(self, address: int, lds_bytes: int = 0) -> tuple[Local, ...]:
        """Returns the variables in scope, those of the innermost scope first, global ones last.

        lds_bytes: size of the kernel's static LDS, which the places of its variables in LDS follow from
        """
        found = [each for each in self._known if each.home < 0 and any(low <= address < high for low, high in each.scope)]
        shared = list(self._lds_variables(address, lds_bytes)) if lds_bytes else []
        placed = {each.name for each in shared}
        return tuple(
            [each.local(_pieces_at(each, address)) for each in sorted(found, key=lambda each: -each.depth) if each.depth] + shared
            + [each.local(_pieces_at(each, address)) for each in found if not each.depth and each.name not in placed]
        )

    def _lds_variables(self, address: int, lds_bytes: int) -> Iterator[Local]:
        """Yields the variables in LDS of the kernel at an address whose places are known."""
        around = [homes for ranges, homes in self._functions if any(low <= address < high for low, high in ranges)]
        homes = around[0] | {0} if around else set()
        wanted = [each for each in self._known if each.home in homes]
        # A static local has a mangled name that ends with its own.
        parts = [Shared(f"_Z{len(each.name)}{each.name}" if each.home else each.name, each.layout.size, each.layout.alignment)
                 for each in wanted]  # fmt: skip
        for each, offset in zip(wanted, offsets(parts, lds_bytes), strict=True):
            if offset is not None:
                yield each.local((Piece("", 0, 0, "lds", (StackOperation("constant", value=offset),)),))

    def _unit(self, unit: CompileUnit) -> Iterator[_Variable]:
        reader, known = _Places(self._sections, unit), self._references
        scopes: list[_Scope] = []
        home, homes, has_parameters = 0, set[int](), False
        for at, level, _, tag, values in self._entries.walk(unit, unit.first):
            if level == 0:
                reader.begin(values)
                known.begin(unit, values)
                continue
            while scopes and scopes[-1].level >= level:
                scopes.pop()
            if tag in SCOPE_TAGS:
                function, frame = (scopes[-1].function, scopes[-1].frame) if scopes else ("", "")
                if tag == DW_TAG_inlined_subroutine:
                    function = known.name(unit, values).partition("<")[0]
                    homes.add(unit.start + values.get(DW_AT_abstract_origin, (0, 0))[1])
                ranges = tuple(reader.ranges(values))
                if tag == DW_TAG_subprogram:
                    home, homes, has_parameters, frame = at, {at}, False, reader.frame(values)
                    if ranges:
                        self._functions.append((ranges, homes))
                scopes.append(_Scope(level, ranges, function, frame))
            elif tag in (DW_TAG_variable, DW_TAG_formal_parameter):
                has_parameters = has_parameters or tag == DW_TAG_formal_parameter
                name, places = known.name(unit, values), tuple(reader.places(values))
                if not name:
                    continue
                made = _Variable(name, known.type(unit, values)[0], self._types.of(unit, values), "", (EVERYWHERE,), 0, places, "")
                inside = scopes[-1] if scopes else None
                # LLVM writes static variables before the parameters of their function.
                static = not places and made.layout.size and DW_AT_abstract_origin not in values and not has_parameters
                if static and (made.layout.kind != STRUCT or made.layout.members):
                    yield made._replace(home=home if inside else 0, depth=level if inside else 0)
                if inside and inside.ranges:
                    yield made._replace(function=inside.function, scope=inside.ranges, depth=level, frame=inside.frame)
                elif not inside and places:
                    yield made


class _Places(Attributes):
    """Reads the locations of a unit's variables."""

    def __init__(self, sections: DebugSections, unit: CompileUnit) -> None:
        super().__init__(sections, unit)
        self._locations = 0  # DW_AT_loclists_base

    def begin(self, values: Values) -> None:
        super().begin(values)
        self._locations = values.get(DW_AT_loclists_base, (0, 0))[1]

    def frame(self, values: Values) -> str:
        """Returns the register of a function's frame base; "" if it has none, as a kernel."""
        if DW_AT_frame_base not in values or values[DW_AT_frame_base][0] != DW_FORM_exprloc:
            return ""
        pieces = pieces_of(_block(Cursor(self._sections[".debug_info"], values[DW_AT_frame_base][1])), self._indexed_address)
        return pieces[0].register if pieces else ""

    def places(self, values: Values) -> Iterator[tuple[int, int, tuple[Piece, ...] | None]]:
        """Yields first address, end and pieces of each location of a variable; pieces are None for an unsupported one."""
        if DW_AT_const_value in values:
            yield *EVERYWHERE, (Piece("", values[DW_AT_const_value][1], 0),)
        if DW_AT_location not in values:
            return
        form, value = values[DW_AT_location]
        if form == DW_FORM_exprloc:
            cursor = Cursor(self._sections[".debug_info"], value)
            yield *EVERYWHERE, pieces_of(_block(cursor), self._indexed_address)
        elif form in (DW_FORM_loclistx, DW_FORM_sec_offset) and self._version >= 5:
            if form == DW_FORM_loclistx:
                entry = Cursor(self._sections[".debug_loclists"], self._locations + value * self._offset)
                value = self._locations + entry.number(self._offset)
            cursor = Cursor(self._sections[".debug_loclists"], value)
            for low, high in self.listed_ranges(cursor, LOCATION_KINDS):
                yield low, high, pieces_of(_block(cursor), self._indexed_address)


def _block(cursor: Cursor) -> bytes:
    length = cursor.uleb()
    first, cursor.at = cursor.at, cursor.at + length
    return cursor.data[first : first + length]


def _pieces_at(variable: _Variable, address: int) -> tuple[Piece, ...] | None:
    """Returns the value's pieces at an address; None if there are none."""
    found = [pieces for low, high, pieces in variable.places if low <= address < high]
    return (found[0] or None) if found else None
