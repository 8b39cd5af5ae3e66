"""Names and types of debug entries, through references to other entries; and lists of address ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator

from simgpu.hardware.code_object.dwarf import Cursor
from simgpu.hardware.code_object.entries import (
    UNIT_REFERENCES,
    CompileUnit,
    DW_AT_abstract_origin,
    DW_AT_name,
    DW_AT_specification,
    DW_AT_str_offsets_base,
    DW_FORM_ref_addr,
    Entries,
    Values,
)
from simgpu.hardware.code_object.mangled import OTHER, POINTER

DW_TAG_formal_parameter, DW_TAG_base_type, DW_TAG_enumeration_type, DW_TAG_variable = 0x05, 0x24, 0x04, 0x34
POINTER_TAGS = frozenset((0x0F, 0x10, 0x42))  # DW_TAG_pointer_type, reference_type, rvalue_reference_type
# DW_TAG_typedef, const_type, volatile_type, restrict_type, atomic_type: another name of a type, or the type with a qualifier.
SAME_TYPE = frozenset((0x16, 0x26, 0x35, 0x37, 0x47))
DW_AT_byte_size, DW_AT_encoding, DW_AT_type = 0x0B, 0x3E, 0x49
# Attributes that `References.type` reads, by tag. A caller adds name, type and origin of variables and parameters.
OF_TYPES = {
    DW_TAG_base_type: frozenset((DW_AT_name, DW_AT_encoding, DW_AT_byte_size)),
    DW_TAG_enumeration_type: frozenset((DW_AT_type, DW_AT_byte_size)),
    **dict.fromkeys(SAME_TYPE, frozenset((DW_AT_type,))),
    **dict.fromkeys(POINTER_TAGS, frozenset((DW_AT_type,))),
}
THROUGH = SAME_TYPE | {DW_TAG_enumeration_type, DW_TAG_formal_parameter, DW_TAG_variable}  # the type is another entry's
# DW_ATE_boolean, float, signed, signed_char, unsigned, unsigned_char, UTF.
LETTERS = {0x02: "u", 0x04: "f", 0x05: "i", 0x06: "i", 0x07: "u", 0x08: "u", 0x10: "u"}
BYTES = {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}
POINTER_BYTES = 8
CHAIN_LIMIT = 64  # most entries that lead to a name or a type


class References:
    """Follows references between a file's entries. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.units = list(entries.units())
        self._strings: dict[int, int] = {}  # DW_AT_str_offsets_base by the start of a unit

    def begin(self, unit: CompileUnit, values: Values) -> None:
        """Records the attributes of the unit's first entry; needed before `text` and `name`."""
        self._strings[unit.start] = values.get(DW_AT_str_offsets_base, (0, 0))[1]

    def text(self, unit: CompileUnit, form: int, value: int) -> str:
        """Returns the string that a form and its value denote in a unit."""
        return self._entries.text(unit, self._strings.get(unit.start, 0), form, value)

    def name(self, unit: CompileUnit, values: Values) -> str:
        """Returns an entry's name, or that of its abstract origin or specification; "" if there is none."""
        for _ in range(CHAIN_LIMIT):
            if DW_AT_name in values:
                return self.text(unit, *values[DW_AT_name])
            found = self._referenced_entry(unit, values.get(DW_AT_abstract_origin, values.get(DW_AT_specification)))
            if found is None:
                break
            unit, _, _, values = found
        return ""

    def type(self, unit: CompileUnit, values: Values) -> tuple[str, int]:
        """Returns the type of a parameter or variable, such as f32, POINTER or OTHER, and its size in bytes, 0 for OTHER."""
        for _ in range(CHAIN_LIMIT):
            found = self.type_entry(unit, values)
            if found is None:
                break
            unit, _, tag, values = found
            kind, size = self.own_type(unit, tag, values)
            if kind != OTHER:
                return kind, size
            if tag not in THROUGH or (tag == DW_TAG_enumeration_type and DW_AT_type not in values):
                break
        return OTHER, 0

    def type_entry(self, unit: CompileUnit, values: Values) -> tuple[CompileUnit, int, int, Values] | None:
        """Returns unit, position, tag and values of an entry's type, or of its abstract origin; None if it has neither."""
        return self._referenced_entry(unit, values.get(DW_AT_type, values.get(DW_AT_abstract_origin)))

    def own_type(self, unit: CompileUnit, tag: int, values: Values) -> tuple[str, int]:
        """Returns kind and size of the type that an entry defines; (OTHER, 0) if another entry does, or it is no number."""
        if tag in POINTER_TAGS:
            return POINTER, POINTER_BYTES
        if tag == DW_TAG_base_type:
            kind, size = _sized_type(LETTERS.get(values.get(DW_AT_encoding, (0, 0))[1], ""), values)
            return ("bf16" if kind == "f16" and self.name(unit, values) == "__bf16" else kind), size
        if tag == DW_TAG_enumeration_type and DW_AT_type not in values:
            return _sized_type("i", values)  # signed: numbers of both signs fit it
        return OTHER, 0

    def _referenced_entry(
        self, unit: CompileUnit, reference: tuple[int, int] | None
    ) -> tuple[CompileUnit, int, int, Values] | None:  # fmt: skip
        """Returns unit, position, tag and values of the entry that a reference (form, value) denotes.

        Returns None for no reference, one by signature and one into another file.
        """
        form, value = reference or (0, 0)
        if form in UNIT_REFERENCES:
            at = unit.start + value
        elif form == DW_FORM_ref_addr:
            unit, at = self.units[bisect_right(self.units, value, key=lambda one: one.start) - 1], value
        else:
            return None
        return unit, at, *self._entries.entry(unit, at)


def _sized_type(letter: str, values: Values) -> tuple[str, int]:
    size = values.get(DW_AT_byte_size, (0, 0))[1]
    return (f"{letter}{8 * size}", size) if size in BYTES.get(letter, ()) else (OTHER, 0)


# The kinds of an entry in .debug_rnglists (DWARF 5, table 7.30) and in .debug_loclists (table 7.10), by number.
RANGE_KINDS = ("end", "base_addressx", "startx_endx", "startx_length", "offset_pair", "base_address", "start_end", "start_length")
LOCATION_KINDS = (*RANGE_KINDS[:5], "default_location", *RANGE_KINDS[5:])


def ranges(
    cursor: Cursor, kinds: tuple[str, ...], base: int, size: int, indexed: Callable[[int], int], take: Callable[[], None]
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Yields first address and end of each range of a DWARF 5 list at the cursor, which then is behind the range.

    kinds: RANGE_KINDS or LOCATION_KINDS; base: the unit's first address; size: bytes of an address; indexed: returns the
    address at an index of .debug_addr; take: counts a step.
    """
    while True:
        take()
        number = cursor.number(1)
        if number >= len(kinds):
            raise ValueError(f"kind {number} of a list's entry is not known")
        kind = kinds[number]
        if kind == "end":
            return
        if kind == "base_addressx":
            base = indexed(cursor.uleb())
        elif kind == "base_address":
            base = cursor.number(size)
        elif kind == "startx_endx":
            yield indexed(cursor.uleb()), indexed(cursor.uleb())
        elif kind == "startx_length":
            first = indexed(cursor.uleb())
            yield first, first + cursor.uleb()
        elif kind == "offset_pair":
            yield base + cursor.uleb(), base + cursor.uleb()
        elif kind == "start_end":
            yield cursor.number(size), cursor.number(size)
        elif kind == "start_length":
            first = cursor.number(size)
            yield first, first + cursor.uleb()
        else:  # default_location
            yield 0, 1 << 64
