"""Names and types of functions' parameters by debug information (DWARF: DW_TAG_formal_parameter); types as in `mangled`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from simgpu.hardware.code_object.dwarf import TEXT_LIMIT, DebugSections
from simgpu.hardware.code_object.entries import (
    UNIT_TAGS,
    CompileUnit,
    DW_AT_abstract_origin,
    DW_AT_name,
    DW_AT_str_offsets_base,
    Entries,
    Values,
)
from simgpu.hardware.code_object.references import OF_TYPES, DW_AT_type, DW_TAG_formal_parameter, References

DW_TAG_subprogram = 0x2E
DW_AT_linkage_name, DW_AT_MIPS_linkage_name = 0x6E, 0x2007
WANTED = {
    DW_TAG_subprogram: frozenset((DW_AT_name, DW_AT_linkage_name, DW_AT_MIPS_linkage_name)),
    DW_TAG_formal_parameter: frozenset((DW_AT_name, DW_AT_type, DW_AT_abstract_origin)),
    **OF_TYPES,
    **dict.fromkeys(UNIT_TAGS, frozenset((DW_AT_str_offsets_base,))),
}


class Parameter(NamedTuple):
    """A parameter of a function."""

    name: str  # "" if the file has no name
    type: str  # such as f32, POINTER or OTHER


class Parameters:
    """Parameters of named functions. Damaged information raises IndexError, KeyError or ValueError."""

    def __init__(self, sections: DebugSections, names: Collection[str]) -> None:
        self._entries = Entries(sections, WANTED)
        self._references = References(self._entries)
        # By name, the unit and the parameters' attributes of each function. Longer names are left out: they are read cut off.
        found: dict[str, list[tuple[CompileUnit, list[Values]]]] = {
            name: [] for name in names if 0 < len(name.encode()) < TEXT_LIMIT
        }
        for unit in self._references.units:
            self._read(unit, found)
        # By name, the parameters of its functions.
        self.known = {name: {self._parameters(*function) for function in functions} for name, functions in found.items()}

    def _read(self, unit: CompileUnit, found: dict[str, list[tuple[CompileUnit, list[Values]]]]) -> None:
        """Adds the wanted functions of a unit to `found`."""
        home, parameters = -2, list[Values]()  # place of the last function whose name is wanted
        for at, level, parent, tag, values in self._entries.walk(unit, unit.first):
            if tag == DW_TAG_subprogram:
                functions = found.get(self._linkage_name(unit, values))
                if functions is not None:
                    home, parameters = at, []
                    functions.append((unit, parameters))
            elif tag == DW_TAG_formal_parameter and parent == home:
                parameters.append(values)
            elif level == 0:
                self._references.begin(unit, values)

    def _linkage_name(self, unit: CompileUnit, values: Values) -> str:
        """Returns the mangled name of a function, or DW_AT_name if the entry has none."""
        named = (values[each] for each in (DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name) if each in values)
        return next((self._references.text(unit, *text) for text in named), "")

    def _parameters(self, unit: CompileUnit, parameters: list[Values]) -> tuple[Parameter, ...]:
        known = self._references
        return tuple(Parameter(known.name(unit, values), known.type(unit, values)[0]) for values in parameters)
