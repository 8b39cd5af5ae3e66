"""Names and types of functions' parameters by debug information (DWARF: DW_TAG_formal_parameter); types as `mangled` has them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import TEXT_LIMIT, DebugSections
from simgpu.hardware.code_object.entries import (
    UNIT_REFERENCES,
    UNIT_TAGS,
    CompileUnit,
    DW_AT_abstract_origin,
    DW_AT_name,
    DW_AT_str_offsets_base,
    DW_FORM_ref_addr,
    Entries,
    Values,
)
from simgpu.hardware.code_object.mangled import OTHER, POINTER

DW_TAG_subprogram, DW_TAG_formal_parameter, DW_TAG_base_type, DW_TAG_enumeration_type = 0x2E, 0x05, 0x24, 0x04
POINTER_TAGS = frozenset((0x0F, 0x10, 0x42))  # DW_TAG_pointer_type, reference_type, rvalue_reference_type
# DW_TAG_typedef, const_type, volatile_type, restrict_type, atomic_type: another name of a type, or the type with a qualifier.
SAME_TYPE = frozenset((0x16, 0x26, 0x35, 0x37, 0x47))
DW_AT_byte_size, DW_AT_encoding, DW_AT_type, DW_AT_linkage_name, DW_AT_MIPS_linkage_name = 0x0B, 0x3E, 0x49, 0x6E, 0x2007
WANTED = {
    DW_TAG_subprogram: frozenset((DW_AT_name, DW_AT_linkage_name, DW_AT_MIPS_linkage_name)),
    DW_TAG_formal_parameter: frozenset((DW_AT_name, DW_AT_type, DW_AT_abstract_origin)),
    DW_TAG_base_type: frozenset((DW_AT_name, DW_AT_encoding, DW_AT_byte_size)),
    DW_TAG_enumeration_type: frozenset((DW_AT_type, DW_AT_byte_size)),
    **dict.fromkeys(SAME_TYPE, frozenset((DW_AT_type,))),
    **dict.fromkeys(UNIT_TAGS, frozenset((DW_AT_str_offsets_base,))),
}
# DW_ATE_boolean, float, signed, signed_char, unsigned, unsigned_char, UTF.
LETTERS = {0x02: "u", 0x04: "f", 0x05: "i", 0x06: "i", 0x07: "u", 0x08: "u", 0x10: "u"}
BYTES = {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}
CHAIN_LIMIT = 64  # names and qualifiers of one type


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str  # "" where the file names none
    type: str  # as f32, POINTER or OTHER


class Parameters:
    """The parameters of named functions. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections, names: Collection[str]) -> None:
        self._entries = Entries(sections, WANTED)
        self._units: list[CompileUnit] = []
        self._strings: dict[int, int] = {}  # where the places of a unit's strings begin, by where the unit does
        # Of each function that has one of the names, the unit and what its parameters say; a longer name would be read cut off.
        found: dict[str, list[tuple[CompileUnit, list[Values]]]] = {
            name: [] for name in names if 0 < len(name.encode()) < TEXT_LIMIT
        }
        for unit in self._entries.units():
            self._units.append(unit)
            self._read(unit, found)
        # By name, what its functions take.
        self.known = {name: {self._parameters(*function) for function in functions} for name, functions in found.items()}

    def _read(self, unit: CompileUnit, found: dict[str, list[tuple[CompileUnit, list[Values]]]]) -> None:
        """Adds a unit's functions to those found."""
        home, parameters = -2, list[Values]()  # where the last function stands whose name is wanted
        for at, level, parent, tag, values in self._entries.walk(unit, unit.first):
            if tag == DW_TAG_subprogram:
                functions = found.get(self._name(unit, values))
                if functions is not None:
                    home, parameters = at, []
                    functions.append((unit, parameters))
            elif tag == DW_TAG_formal_parameter and parent == home:
                parameters.append(values)
            elif level == 0:
                self._strings[unit.start] = values.get(DW_AT_str_offsets_base, (0, 0))[1]

    def _name(self, unit: CompileUnit, values: Values) -> str:
        """The name that the linker knows an entry by: its own where it has no other."""
        for attribute in (DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name):
            if attribute in values:
                return self._entries.text(unit, self._strings.get(unit.start, 0), *values[attribute])
        return ""

    def _parameters(self, unit: CompileUnit, parameters: list[Values]) -> tuple[Parameter, ...]:
        return tuple(Parameter(self._parameter_name(unit, values), self._type(unit, values)) for values in parameters)

    def _parameter_name(self, unit: CompileUnit, values: Values) -> str:
        """A parameter's own name, or that of the parameter that it is an instance of."""
        for _ in range(CHAIN_LIMIT):
            if DW_AT_name in values:
                return self._name(unit, values)
            place = DW_AT_abstract_origin in values and self._place(unit, *values[DW_AT_abstract_origin])
            if not place:
                break
            unit, at = place
            _, values = self._entries.entry(unit, at)
        return ""

    def _type(self, unit: CompileUnit, values: Values) -> str:
        """The type that an entry refers to: a parameter's own, or that of the parameter that it is an instance of."""
        for _ in range(CHAIN_LIMIT):
            reference = values.get(DW_AT_type, values.get(DW_AT_abstract_origin))
            place = reference and self._place(unit, *reference)
            if not place:
                return OTHER
            unit, at = place
            tag, values = self._entries.entry(unit, at)
            if tag in POINTER_TAGS:
                return POINTER
            if tag == DW_TAG_base_type:
                return self._number(unit, values)
            if tag == DW_TAG_enumeration_type and DW_AT_type not in values:
                return _sized("i", values)  # of either sign: numbers of both fit it
            if tag not in SAME_TYPE and tag not in (DW_TAG_enumeration_type, DW_TAG_formal_parameter):
                return OTHER
        return OTHER

    def _number(self, unit: CompileUnit, values: Values) -> str:
        type_ = _sized(LETTERS.get(values.get(DW_AT_encoding, (0, 0))[1], ""), values)
        return "bf16" if type_ == "f16" and self._name(unit, values) == "__bf16" else type_

    def _place(self, unit: CompileUnit, form: int, value: int) -> tuple[CompileUnit, int] | None:
        """The unit and the place of the entry that a reference names; None for one by signature or into another file."""
        if form in UNIT_REFERENCES:
            return unit, unit.start + value
        if form != DW_FORM_ref_addr:
            return None
        return self._units[bisect_right(self._units, value, key=lambda one: one.start) - 1], value


def _sized(letter: str, values: Values) -> str:
    size = values.get(DW_AT_byte_size, (0, 0))[1]
    return f"{letter}{8 * size}" if size in BYTES.get(letter, ()) else OTHER
