"""Kernels of a code object by name: each is read from its metadata entry and its descriptor when it is looked up.

Code objects of libraries have thousands of kernels, and a program uses a few of them.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.code_object import elf
from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.code_object.demangled import readable
from simgpu.hardware.code_object.descriptor import DESCRIPTOR_BYTES, ENTRY_OFFSET_AT, PRELOAD_PROLOGUE_BYTES, KernelDescriptor
from simgpu.hardware.code_object.elf import Segment, Symbols
from simgpu.hardware.code_object.mangled import parameter_types
from simgpu.hardware.code_object.metadata import Metadata
from simgpu.hardware.code_object.names import printable_name
from simgpu.hardware.errors import DecodeError

# More bytes of arguments than any launcher takes; hostile metadata may claim more.
KERNARG_LIMIT = 1 << 20
KEPT = 512  # kernels that a table keeps after they were looked up
# OpenCL C's scalar types, by `.type_name` (OpenCL C specification, "Built-in Scalar Data Types").
OPENCL_TYPES = {
    "float": "f32", "double": "f64", "half": "f16", "bool": "u8", "char": "i8", "uchar": "u8", "short": "i16", "ushort": "u16",
    "int": "i32", "uint": "u32", "long": "i64", "ulong": "u64", "size_t": "u64", "ptrdiff_t": "i64",
}  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """A kernel argument. Fields have the names of the metadata (AMDGPUUsage, "Code Object Metadata")."""

    name: str  # arg0, arg1, ... if the metadata has none
    offset: int  # bytes from the start of the kernarg segment
    size: int  # bytes
    value_kind: str  # by_value, global_buffer, hidden_block_count_x, ...
    address_space: str = ""  # of a pointer: global, constant, ...
    type_name: str = ""  # in the source language
    value_type: str = ""  # of a number: f32, bf16, i64, u8, ...; by the metadata, `.type_name`, the mangled name, DWARF; "" unknown
    access: str = ""  # read_only, write_only or read_write; "" unknown
    pointee_align: int = 0  # bytes; 0 if unknown

    @property
    def hidden(self) -> bool:
        """True if the launcher, not the caller, sets it."""
        return self.value_kind.startswith("hidden_")

    @property
    def is_pointer(self) -> bool:
        return self.value_kind in ("global_buffer", "dynamic_shared_pointer")


@dataclass(frozen=True)
class KernelInfo:
    """A kernel of a file, by its metadata and its descriptor. Addresses are the file's virtual addresses, sizes are bytes."""

    name: str  # as the linker knows it, mangled
    target: str  # gfx908, ...
    descriptor: KernelDescriptor
    descriptor_address: int
    entry: int  # address that the descriptor points to
    code_size: int  # of the entry's symbol; without a symbol, up to the segment's end
    arguments: tuple[Argument, ...]
    kernarg_size: int
    kernarg_align: int
    group_segment_size: int  # static LDS of a workgroup
    private_segment_size: int  # scratch of a work-item
    uses_dynamic_stack: bool
    max_flat_workgroup_size: int  # work-items
    required_workgroup_size: tuple[int, ...]  # work-items in x, y, z; () if not fixed
    wavefront_size: int  # lanes
    sgpr_count: int  # of the metadata, like the following counts; 0 if it has none
    vgpr_count: int
    agpr_count: int
    sgpr_spill_count: int
    vgpr_spill_count: int
    language: str  # such as OpenCL C; "" if the metadata has none
    debug: DebugInformation = field(repr=False, compare=False)  # of its file

    @property
    def title(self) -> str:
        """Name in C++ form, for people."""
        return readable(self.name)

    @property
    def packs_work_items(self) -> bool:
        """True if v0 holds the work-item's numbers along several axes, ten bits each (not on gfx908)."""
        return self.target != "gfx908" and self.descriptor.workitem_id_mode > 0

    @cached_property
    def explicit_arguments(self) -> tuple[Argument, ...]:
        """Arguments that the caller passes; cached because each launch reads them."""
        return tuple(arg for arg in self.arguments if not arg.hidden)

    @cached_property
    def hidden_kinds(self) -> frozenset[str]:
        """Value kinds of the arguments that the launcher sets."""
        return frozenset(arg.value_kind for arg in self.arguments if arg.hidden)

    @cached_property
    def typed_arguments(self) -> tuple[Argument, ...]:
        """Explicit arguments; missing types come from debug information, whose first reading may take seconds."""
        explicit = self.explicit_arguments
        return _with_types(explicit, [parameter.type for parameter in self.debug.parameters(self.name, len(explicit))])

    @cached_property
    def named_arguments(self) -> tuple[Argument, ...]:
        """Explicit arguments for messages: names that metadata lacks come from debug information."""
        explicit = self.explicit_arguments
        if all(argument.name != f"arg{index}" for index, argument in enumerate(explicit)):
            return explicit
        known = self.debug.parameters(self.name, len(explicit))
        return tuple(
            replace(argument, name=parameter.name or argument.name) for argument, parameter in zip(explicit, known, strict=True)
        ) if known else explicit

    @property
    def declared_resources(self) -> dict[str, int]:
        """Declared resources: registers, LDS, private memory and arguments (bytes), work-items, spilled registers."""
        return {
            "sgprs": self.sgpr_count,
            "vgprs": self.vgpr_count,
            "agprs": self.agpr_count,
            "lds_bytes": self.group_segment_size,
            "private_bytes": self.private_segment_size,
            "kernarg_bytes": self.kernarg_size,
            "max_workgroup_size": self.max_flat_workgroup_size,
            "sgpr_spills": self.sgpr_spill_count,
            "vgpr_spills": self.vgpr_spill_count,
        }

    @property
    def start(self) -> int:
        """Address where a wave starts: the entry, or behind its prologue if kernel arguments are preloaded."""
        preloads = self.descriptor.preload_length > 0 and self.target not in GFX12  # which all can preload: no prologue
        return self.entry + (PRELOAD_PROLOGUE_BYTES if preloads else 0)

    def __contains__(self, address: int) -> bool:
        """True if a virtual address is of the code that waves run from `start` on."""
        return self.start <= address < self.entry + self.code_size


@dataclass(frozen=True)
class CalledFunction:
    """A function that kernels may call: one that the compiler did not inline."""

    name: str  # as the linker knows it, mangled
    entry: int  # virtual address
    code_size: int  # bytes

    @property
    def title(self) -> str:
        """Name in C++ form, for people."""
        return readable(self.name)

    @property
    def start(self) -> int:
        """Address where a wave starts: the entry."""
        return self.entry

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.start + self.code_size


class LinkedFile(NamedTuple):
    """Parts of a code object that its kernels refer to."""

    target: str
    symbols: Symbols
    segments: tuple[Segment, ...]
    debug: DebugInformation


class KernelTable(Mapping[str, KernelInfo]):
    """Kernels by name, in the order of the metadata. A lookup raises KeyError for another name, DecodeError for a damaged entry."""

    def __init__(self, file: LinkedFile, metadata: Metadata) -> None:
        self._file, self._metadata = file, metadata
        self._kernel = functools.lru_cache(KEPT)(self._read)

    def __getitem__(self, name: str) -> KernelInfo:
        return self._kernel(name)

    def __contains__(self, name: object) -> bool:
        return name in self._metadata.kernels

    def __iter__(self) -> Iterator[str]:
        return iter(self._metadata.kernels)

    def __len__(self) -> int:
        return len(self._metadata.kernels)

    def _read(self, name: str) -> KernelInfo:
        entry = self._metadata.kernel(name)
        with elf.damage(f"kernel {printable_name(name)}"):
            return _kernel(self._file, entry, self._end)

    def _end(self, start: int, home: Segment) -> int:
        """Returns the address after the code at `start`, which no symbol gives: the next function's, or the segment's end."""
        after = bisect.bisect_right(self._starts, start)
        return min([home.end, *self._starts[after : after + 1]])

    @cached_property
    def _starts(self) -> list[int]:
        """Addresses of functions that .dynsym names, and those in kernel descriptors."""
        starts = set()
        for name, symbol in self._file.symbols.exported.items():
            if symbol.defined and symbol.kind == "func":
                starts.add(symbol.address)
            elif symbol.defined and name.endswith(".kd"):
                offset = elf.read(self._file.segments, symbol.address + ENTRY_OFFSET_AT, 8)
                starts.add(symbol.address + int.from_bytes(offset, "little", signed=True))
        return sorted(starts)


def _get(table: Any, key: str, kind: type, default: Any = None) -> Any:
    """Returns table[key], or the default. Raises DecodeError if the value is not of type `kind`."""
    if not isinstance(table, dict):
        raise DecodeError(f"metadata: {key} is looked up in {type(table).__name__}, not in a map")
    value = table.get(key, default)
    if not isinstance(value, kind):
        found = "absent" if value is None else f"of type {type(value).__name__}"
        raise DecodeError(f"metadata: {key} is {found}, expected {kind.__name__}")
    return value


def _count(table: Any, key: str, default: int | None = None) -> int:
    """Returns a non-negative 32-bit metadata entry."""
    value = int(_get(table, key, int, default))
    if not 0 <= value < 1 << 32:
        raise DecodeError(f"metadata: {key} is {value}, outside 0..2^32-1")
    return value


def _argument(entry: Any, index: int) -> Argument:
    argument = Argument(
        name=_get(entry, ".name", str, f"arg{index}"),
        offset=_count(entry, ".offset"),
        size=_count(entry, ".size"),
        value_kind=_get(entry, ".value_kind", str),
        address_space=_get(entry, ".address_space", str, ""),
        type_name=_get(entry, ".type_name", str, ""),
        value_type=_get(entry, ".value_type", str, ""),
        access=_get(entry, ".actual_access", str, _get(entry, ".access", str, "")),
        pointee_align=_count(entry, ".pointee_align", 0),
    )
    return _with_type(argument, OPENCL_TYPES.get(argument.type_name, ""))


def _with_types(arguments: tuple[Argument, ...], types: Sequence[str]) -> tuple[Argument, ...]:
    """Returns the arguments, explicit ones without a type with that of `types`; unchanged if there is not one type for each."""
    if len(types) != sum(not argument.hidden for argument in arguments):
        return arguments
    told = iter(types)
    return tuple(argument if argument.hidden else _with_type(argument, next(told)) for argument in arguments)


def _with_type(argument: Argument, type_: str) -> Argument:
    """Returns the argument with the type if it is a number without one and the sizes agree, or else unchanged."""
    bits = int(type_.lstrip("bfiu") or 0) if type_ not in ("pointer", "void") else 0
    untyped = argument.value_kind == "by_value" and not argument.value_type
    return replace(argument, value_type=type_) if untyped and bits == 8 * argument.size else argument


def _kernel(code: LinkedFile, entry: Any, end_of: Callable[[int, Segment], int]) -> KernelInfo:
    name = _get(entry, ".name", str)
    symbol_name = _get(entry, ".symbol", str, f"{name}.kd")
    symbol = code.symbols.get(symbol_name)
    if symbol is None or not symbol.defined:
        raise DecodeError(f"kernel {printable_name(name)}: its descriptor symbol {printable_name(symbol_name)} is not in the file")
    descriptor = KernelDescriptor.decode(elf.read(code.segments, symbol.address, DESCRIPTOR_BYTES), code.target)
    start = symbol.address + descriptor.entry_offset
    home = next((s for s in code.segments if s.executable and s.address <= start < s.end), None)
    if home is None or start % 4:
        raise DecodeError(f"kernel {printable_name(name)}: its entry address {start:#x} lies in no executable segment")
    function = code.symbols.get(symbol_name.removesuffix(".kd"))
    sized = function is not None and function.address == start and function.size > 0
    size = (min(start + function.size, home.end) if function and sized else end_of(start, home)) - start
    arguments = tuple(_argument(a, i) for i, a in enumerate(_get(entry, ".args", list, [])))
    arguments = _with_types(arguments, parameter_types(name) or ())
    kernarg_size = _count(entry, ".kernarg_segment_size", descriptor.kernarg_size)
    if kernarg_size > KERNARG_LIMIT:
        raise DecodeError(f"kernel {printable_name(name)}: {kernarg_size} bytes of arguments, the limit is {KERNARG_LIMIT}")
    for argument in arguments:
        if argument.offset + argument.size > kernarg_size:
            raise DecodeError(
                f"kernel {printable_name(name)}: argument {printable_name(argument.name)} ends at byte "
                f"{argument.offset + argument.size}, past the kernarg segment of {kernarg_size}"
            )
    required = _get(entry, ".reqd_workgroup_size", list, [])
    if len(required) > 3 or not all(isinstance(extent, int) for extent in required):
        raise DecodeError(
            f"kernel {printable_name(name)}: .reqd_workgroup_size is a list of {len(required)}, not of three integers"
        )
    return KernelInfo(
        name=name,
        target=code.target,
        descriptor=descriptor,
        descriptor_address=symbol.address,
        entry=start,
        code_size=size,
        arguments=arguments,
        kernarg_size=kernarg_size,
        kernarg_align=_count(entry, ".kernarg_segment_align", 8),
        group_segment_size=_count(entry, ".group_segment_fixed_size", descriptor.group_segment_size),
        private_segment_size=_count(entry, ".private_segment_fixed_size", descriptor.private_segment_size),
        uses_dynamic_stack=bool(_get(entry, ".uses_dynamic_stack", bool, descriptor.dynamic_stack)),
        max_flat_workgroup_size=_count(entry, ".max_flat_workgroup_size", 1024),
        required_workgroup_size=tuple(required),
        wavefront_size=_count(entry, ".wavefront_size", 64),
        sgpr_count=_count(entry, ".sgpr_count", 0),
        vgpr_count=_count(entry, ".vgpr_count", 0),
        agpr_count=_count(entry, ".agpr_count", 0),
        sgpr_spill_count=_count(entry, ".sgpr_spill_count", 0),
        vgpr_spill_count=_count(entry, ".vgpr_spill_count", 0),
        language=_get(entry, ".language", str, ""),
        debug=code.debug,
    )
