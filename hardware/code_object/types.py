"""Types of variables with their parts: elements of arrays, members of structs, targets of pointers (DWARF 5, chapter 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

from simgpu.hardware.code_object.entries import CompileUnit, DW_AT_name, Entries, Values
from simgpu.hardware.code_object.mangled import OTHER, POINTER
from simgpu.hardware.code_object.references import (
    CHAIN_LIMIT,
    POINTER_BYTES,
    SAME_TYPE,
    DW_AT_byte_size,
    DW_AT_type,
    References,
)

DW_TAG_array_type, DW_TAG_subrange_type, DW_TAG_member, DW_TAG_inheritance = 0x01, 0x21, 0x0D, 0x1C
STRUCT_TAGS = frozenset((0x02, 0x13, 0x17))  # DW_TAG_class_type, structure_type, union_type
DW_AT_upper_bound, DW_AT_count, DW_AT_data_member_location, DW_AT_bit_size, DW_AT_external = 0x2F, 0x37, 0x38, 0x0D, 0x3F
DW_AT_GNU_vector = 0x2107
OF_PARTS = {
    DW_TAG_array_type: frozenset((DW_AT_type, DW_AT_GNU_vector)),
    DW_TAG_subrange_type: frozenset((DW_AT_upper_bound, DW_AT_count)),
    DW_TAG_member: frozenset((DW_AT_name, DW_AT_type, DW_AT_data_member_location, DW_AT_bit_size, DW_AT_external)),
    DW_TAG_inheritance: frozenset((DW_AT_type, DW_AT_data_member_location)),
    **dict.fromkeys(STRUCT_TAGS, frozenset((DW_AT_name, DW_AT_byte_size))),
}
ARRAY, STRUCT, VECTOR = "array", "struct", "vector"
MOST_BYTES = 1 << 30  # of an array; larger ones are damaged information


@dataclass(frozen=True)
class DwarfType:
    """A type. Equal types of different entries are equal."""

    kind: str  # such as f32, i64, POINTER, ARRAY, STRUCT, or OTHER
    size: int  # bytes, 0 if unknown
    name: str = ""  # of a struct; VECTOR for an array that is a vector
    count: int = 0  # elements of an array
    members: tuple[Member, ...] = ()  # of a struct, in the order of the source; those of its base classes first
    _target: Callable[[], DwarfType] | None = None

    @cached_property
    def target(self) -> DwarfType:
        """Type of an array's element, or of what a pointer points to."""
        return self._target() if self._target else DwarfType(OTHER, 0)

    def array(self, count: int, name: str = "") -> DwarfType:
        """Returns the type of an array of `count` such elements. name: VECTOR for a vector.

        >>> DwarfType("f32", 4).array(3).size
        12
        """
        return DwarfType(ARRAY, self.size * count, name, count, _target=lambda: self)

    @property
    def alignment(self) -> int:
        """Alignment in bytes, of types that do not declare a larger one."""
        if self.kind == STRUCT:
            return max((member.type.alignment for member in self.members), default=1)
        return self.target.alignment if self.kind == ARRAY else max(1, self.size)

    @property
    def fits_registers(self) -> bool:
        """True for numbers, vectors, and structs and arrays of just one of them, which compilers hold in consecutive registers."""
        if self.kind == STRUCT:
            return len({member.offset for member in self.members}) == 1 and self.members[0].type.fits_registers
        return self.kind != ARRAY or self.name == VECTOR or (self.count == 1 and self.target.fits_registers)

    def member(self, name: str) -> Member | None:
        """Returns a member by name, also one of an anonymous member or a base class; None if there is none."""
        for each in self.members:
            if each.name == name:
                return each
            inner = each.type.member(name) if not each.name else None
            if inner is not None:
                return Member(name, each.offset + inner.offset, inner.type)
        return None


@dataclass(frozen=True)
class Member:
    """A member of a struct."""

    name: str  # "" for an anonymous struct or union, whose members count as those of the outer one
    offset: int  # bytes
    type: DwarfType


class Types:
    """Makes types from entries. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, entries: Entries, references: References) -> None:
        self._entries, self._references = entries, references
        self._known: dict[int, DwarfType] = {}  # by the entry's position

    def of(self, unit: CompileUnit, values: Values, depth: int = 0) -> DwarfType:
        """Returns the type of a variable, parameter, member or element, by its attributes."""
        for _ in range(CHAIN_LIMIT):
            found = self._references.type_entry(unit, values)
            if found is None:
                break
            unit, at, tag, values = found
            if tag == DW_TAG_array_type or tag in STRUCT_TAGS:
                if depth > CHAIN_LIMIT:
                    break
                if at not in self._known:
                    make = self._array if tag == DW_TAG_array_type else self._struct
                    self._known[at] = make(unit, at, values, depth)
                return self._known[at]
            kind, size = self._references.own_type(unit, tag, values)
            if kind == POINTER:
                return DwarfType(POINTER, POINTER_BYTES, _target=partial(self.of, unit, values))
            if kind != OTHER:
                return DwarfType(kind, size)
            if tag not in SAME_TYPE and DW_AT_type not in values:
                break
        return DwarfType(OTHER, 0)

    def _array(self, unit: CompileUnit, at: int, values: Values, depth: int) -> DwarfType:
        made, counts, name = self.of(unit, values, depth + 1), [], VECTOR if DW_AT_GNU_vector in values else ""
        for _, level, _, tag, parts in self._entries.walk(unit, at):
            if level == 1 and tag == DW_TAG_subrange_type:
                bound = parts[DW_AT_upper_bound][1] + 1 if DW_AT_upper_bound in parts else 0
                counts.append(parts.get(DW_AT_count, (0, bound))[1])
        for count in reversed(counts):
            made = made.array(count, name)
            if not 0 <= made.size <= MOST_BYTES:
                raise ValueError(f"an array of {made.size} bytes")
        return made

    def _struct(self, unit: CompileUnit, at: int, values: Values, depth: int) -> DwarfType:
        members: list[Member] = []
        for _, level, _, tag, parts in self._entries.walk(unit, at):
            if level != 1 or tag not in (DW_TAG_member, DW_TAG_inheritance) or parts.keys() & {DW_AT_bit_size, DW_AT_external}:
                continue  # an entry of a member; a bit field; a static member
            name = self._references.text(unit, *parts[DW_AT_name]) if DW_AT_name in parts else ""
            members.append(Member(name, parts.get(DW_AT_data_member_location, (0, 0))[1], self.of(unit, parts, depth + 1)))
        name = self._references.text(unit, *values[DW_AT_name]) if DW_AT_name in values else ""
        return DwarfType(STRUCT, values.get(DW_AT_byte_size, (0, 0))[1], name.partition("<")[0], members=tuple(members))
