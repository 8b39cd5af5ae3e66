"""Finds the types in a store's registers: those of the instructions that wrote them, by the code before it.

Device memory has no types. For each store the code is walked back, over all paths, to the last writers of its data. Float
results have a type; moves and selects have that of their sources. Compilers use integer operations on floats to round to bf16
and pack halves. The type is unknown after a load of device memory, or if paths disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simgpu.checks.numerics.definitions import Definitions
from simgpu.engine.program import Program
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.register_use import Register
from simgpu.matrix.instruction import row_of

DEPTH = 12  # most instructions without a type of their own that are followed in a row
UNKNOWN = ""
PACKS = re.compile(r"v_(perm|and_or|lshl_or|lshl_add|or|pack)_")
# Types of results by those of the sources: of packing instructions (f32 as it rounds to bf16), and of shifts.
PACKED = {"f32": "bf16x2", "bf16": "bf16x2", "bf16x2": "bf16x2", "f16": "f16x2", "f16x2": "f16x2"}
DOWN = {"f32": "bf16", "bf16x2": "bf16", "f16x2": "f16"}  # by a right shift of 16 bits
UP = {"bf16": "f32", "f16": "f16x2"}  # by a left shift
# Exponent fields in a dword: of the low element, and of the high one; the same twice if there is only one.
FIELDS = {
    "f32": (0x7F800000, 0x7F800000), "f16": (0x7C00, 0x7C00), "bf16": (0x7F80, 0x7F80), "f16x2": (0x7C00, 0x7C000000),
    "bf16x2": (0x7F80, 0x7F800000), "f64": (0x7FF00000, 0x7FF00000),
}  # fmt: skip
HALVES = {"f16": 0x7C00, "f16x2": 0x7C00, "bf16": 0x7F80, "bf16x2": 0x7F80}


@dataclass(frozen=True)
class StoredType:
    """Exponent fields of the elements in the dwords of a store's data."""

    low: int  # low element of each dword
    high: int  # high element of each dword
    wide: bool  # True for f64, for which only each second dword counts


def stored_types(program: Program) -> dict[int, StoredType | None]:
    """Returns the types in the data of all lowered stores and atomics to device memory, by record; None if unknown."""
    return StoredTypes(program).stores()


class StoredTypes:
    """Types of registers in a program's lowered code."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.definitions = Definitions(program)
        self.in_lds: str | None = None  # type of all writes to LDS, once needed

    def stores(self) -> dict[int, StoredType | None]:
        return {index: self._store(index, inst) for index, inst in self.program.instructions.items() if writes_memory(inst)}

    def _store(self, index: int, inst: Instruction) -> StoredType | None:
        memory = inst.spec.memory
        assert memory is not None
        kinds = {self.type_at(index, register) for register in self._data(index)}
        if len(kinds) != 1 or memory.format or memory.bits < 16:
            return None
        kind = kinds.pop()
        if memory.bits == 16:
            if memory.d16 == "hi":
                field = {"f32": 0x7F800000, "bf16x2": 0x7F800000, "f16x2": 0x7C000000}.get(kind, 0)
            else:
                field = HALVES.get(kind, 0)
            return StoredType(field, field, False) if field else None
        return StoredType(*FIELDS[kind], kind == "f64") if kind in FIELDS else None

    def _data(self, index: int) -> list[Register]:
        return [r for r in self.program.effect(index).access.read(["data"]) if isinstance(r, tuple)]

    def type_at(self, index: int, register: Register, depth: int = 0) -> str:
        """Returns the type in a register before an instruction, UNKNOWN if its writers disagree. depth: see DEPTH."""
        kinds = {self._written_type(at, depth) for at in self.definitions.of(index, register) or ()}
        return kinds.pop() if len(kinds) == 1 else UNKNOWN

    def _written_type(self, index: int, depth: int) -> str:
        """Returns the type that an instruction writes to vector registers."""
        inst = self.program.instructions[index]
        spec = inst.spec
        if spec.kind == "matrix":
            return str(row_of(inst).cd_type)
        if spec.memory is not None:
            return self._lds() if spec.memory.space == "ds" and spec.memory.op == "load" else UNKNOWN
        for type_ in spec.results:
            if type_.name in FIELDS:
                return type_.name
            if type_.name == "f32x2":
                return "f32"
        if depth == DEPTH or spec.kind == "control" or spec.encoding.startswith("sop"):
            return UNKNOWN
        registers = [r for r in self.program.effect(index).access.read() if isinstance(r, tuple) and r[0] != "s"]
        kinds = {self.type_at(index, register, depth + 1) for register in registers} - {UNKNOWN}
        if len(kinds) != 1:
            return UNKNOWN
        kind = kinds.pop()
        if PACKS.match(spec.mnemonic):
            return PACKED.get(kind, UNKNOWN)
        if spec.mnemonic.startswith("v_lshrrev_b32"):
            return DOWN.get(kind, UNKNOWN)
        if spec.mnemonic.startswith("v_lshlrev_b32"):
            return UP.get(kind, UNKNOWN)
        return kind

    def _lds(self) -> str:
        """Returns the type that all writes to LDS of a known type share, UNKNOWN if there is none."""
        if self.in_lds is None:
            self.in_lds = UNKNOWN  # for values that pass through LDS twice
            writes = (at for at, inst in self.program.instructions.items() if _writes_lds(inst))
            kinds = {self.type_at(at, register) for at in writes for register in self._data(at)} - {UNKNOWN}
            self.in_lds = kinds.pop() if len(kinds) == 1 else UNKNOWN
        return self.in_lds


def writes_memory(inst: Instruction) -> bool:
    """True if an instruction stores vector registers to device memory, or is an atomic on it."""
    memory = inst.spec.memory
    outside = memory is not None and memory.space not in ("ds", "scratch") and inst.spec.encoding != "smem"
    return outside and memory is not None and memory.op in ("store", "atomic") and "vdata" in inst.args


def _writes_lds(inst: Instruction) -> bool:
    memory = inst.spec.memory
    return memory is not None and memory.space == "ds" and memory.op == "store"
