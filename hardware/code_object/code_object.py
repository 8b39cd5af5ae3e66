"""Reads amdhsa code objects: ELF, kernel descriptors, metadata, relocations and line tables.

Formats: LLVM AMDGPUUsage ("Code Object", "Code Object Metadata", "ELF Code Object"). The target
comes from e_flags: the spelling of `amdhsa.target` in the metadata differs between compilers.
For any bytes, `CodeObject.parse` raises no exception but DecodeError.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.code_object import bundle, compressed, elf
from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.code_object.demangled import kernels_by_name, readable
from simgpu.hardware.code_object.descriptor import DESCRIPTOR_BYTES, PRELOAD_PROLOGUE_BYTES, KernelDescriptor
from simgpu.hardware.code_object.elf import EM_AMDGPU, ElfFile, Relocation, Segment, Symbol
from simgpu.hardware.code_object.mangled import parameter_types
from simgpu.hardware.code_object.names import printable_name
from simgpu.hardware.errors import DecodeError

# More bytes of arguments than any launcher takes; hostile metadata may claim more.
KERNARG_LIMIT = 1 << 20
LISTED = 8  # most kernels in a module's repr
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

    @cached_property
    def explicit_arguments(self) -> tuple[Argument, ...]:
        """Arguments that the caller passes; cached because each launch reads them."""
        return tuple(arg for arg in self.arguments if not arg.hidden)

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


def kernel_list(names: Collection[str]) -> str:
    """Returns the number of kernels and the first LISTED names, for messages of one line."""
    shown = ", ".join(list(names)[:LISTED])
    return f"{len(names)} kernel(s): {shown or 'none'}{', ...' if len(names) > LISTED else ''}"


def kernel_named(kernels: Mapping[str, KernelInfo], name: str) -> KernelInfo:
    """Returns the kernel that a mangled or C++ name selects.

    Parameters, template arguments or namespaces may be left out if only one kernel fits. Raises KeyError with the
    possible names if none or several fit.
    """
    found = kernels_by_name(kernels, name)
    if len(found) == 1:
        return kernels[found[0]]
    if found:
        raise KeyError(f"{name!r} may be any of {', '.join(readable(each) for each in found)}")
    raise KeyError(f"no kernel {name!r}; the module has: {', '.join(map(readable, kernels)) or 'none'}")


class LoadedKernel:
    """Base of a kernel loaded to a device, the simulator or a GPU."""

    info: KernelInfo  # the kernel in its file

    def __repr__(self) -> str:
        taken = ", ".join(f"{argument.name}: {argument.value_type or argument.value_kind}" for argument in self.arguments)
        return f"<Kernel {self.name}({taken}) for {self.info.target}>"

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def title(self) -> str:
        """Name in C++ form, for people."""
        return self.info.title

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Arguments that the caller passes."""
        return self.info.explicit_arguments

    @property
    def resources(self) -> dict[str, int]:
        """Registers, LDS and private memory (bytes) that the kernel declares."""
        return self.info.declared_resources


@dataclass(frozen=True)
class CodeObject:
    """A linked code object.

    >>> from simgpu import asm, operators
    >>> code = CodeObject.parse(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")).assemble())
    >>> code.target, code.version, list(code.kernels)
    ('gfx942', 5, ['gemm_f32_nn_32x32x64'])
    """

    target: str  # gfx908, ...
    xnack: str  # any, off, on or unsupported
    sramecc: str  # the same values
    version: int  # of the code object format
    kernels: Mapping[str, KernelInfo]  # by name, in the order of the metadata
    symbols: Mapping[str, Symbol]  # by name
    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...]
    metadata: Mapping[str, Any]  # the decoded note
    data: bytes = field(repr=False)  # of the ELF
    debug: DebugInformation = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: bytes, target: str = "") -> CodeObject:
        """Parses the code object in `data`: an ELF, an offload bundle, or a host file with a fat binary.

        target selects an entry if a bundle holds several. Raises DecodeError with a message of one line.

        >>> from simgpu import asm, operators
        >>> code = asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")).assemble()
        >>> list(CodeObject.parse(code).kernels)
        ['gemm_f32_nn_32x32x64']
        """
        try:
            return _parse_elf(cls, _unwrap(bytes(data), target))
        except DecodeError:
            raise
        except Exception as error:  # any exception of struct and msgpack on damaged bytes
            detail = " ".join(str(error).split()) or type(error).__name__
            raise DecodeError(
                f"damaged code object ({len(data)} bytes): {detail[:160]}; is the file cut off?"
            ) from None

    def image(self, load_address: int | None = None) -> tuple[bytearray, int]:
        """Returns the memory image with relocations applied, and the virtual address of its first byte.

        load_address: address of byte 0 of the image (default: its virtual address).
        Raises DecodeError for a relocation that cannot be applied.
        """
        base, end = elf.span(self.segments)
        memory = bytearray(end - base)
        for segment in self.segments:
            start = segment.address - base
            memory[start : start + len(segment.data)] = segment.data
        bias = 0 if load_address is None else load_address - base
        for relocation in self.relocations:
            elf.relocate(memory, base, bias, relocation)
        return memory, base

    def read(self, address: int, size: int) -> bytes:
        """Returns `size` bytes at a virtual address, before relocation. Raises DecodeError if no segment holds them."""
        for segment in self.segments:
            start = address - segment.address
            if start >= 0 and address + size <= segment.end:
                return segment.data[start : start + size].ljust(size, b"\0")
        raise DecodeError(f"{size} bytes at address {address:#x} lie in no loadable segment")

    def source_line(self, address: int) -> str | None:
        """Returns the `file:line` of the instruction at a virtual address; None if debug information has none.

        For an instruction inlined from a library's header, that is the user's line (`DebugInformation.users_line`).
        """
        found = self.debug.users_line(address)
        return str(found) if found else None


def _unwrap(data: bytes, target: str) -> bytes:
    """Returns the AMDGPU ELF: `data` itself, or the entry for `target` of the bundle in it. Raises DecodeError for other data."""
    if data.startswith((bundle.BUNDLE_MAGIC, compressed.MAGIC)):
        return bytes(bundle.select(bundle.entries(data), target).data)
    if not data.startswith(b"\x7fELF"):
        raise DecodeError(
            f"not a code object: starts with {data[:4].hex(' ') or 'nothing'}, "
            "not with an ELF or an offload bundle header"
        )
    if len(data) >= 20 and struct.unpack_from("<H", data, 18)[0] != EM_AMDGPU:
        if bundle.holds_bundle(data):
            return bytes(bundle.select(bundle.entries(data), target).data)
        machine = struct.unpack_from("<H", data, 18)[0]
        raise DecodeError(
            f"ELF machine {machine} is not AMDGPU ({EM_AMDGPU}), and no offload bundle is inside"
        )
    return data


def _parse_elf(cls: type[CodeObject], data: bytes) -> CodeObject:
    file = ElfFile(data)
    target, xnack, sramecc, version = elf.identity(file)
    segments = tuple(elf.segments(file))
    symbols = MappingProxyType(elf.symbols(file))
    metadata = elf.metadata(file)
    listed = _get(metadata, "amdhsa.kernels", list, [])
    shell = cls(
        target=target,
        xnack=xnack,
        sramecc=sramecc,
        version=version,
        kernels=MappingProxyType({}),
        symbols=symbols,
        segments=segments,
        relocations=tuple(elf.relocations(file)),
        metadata=MappingProxyType(metadata),
        data=data,
        debug=DebugInformation(data, {_get(entry, ".name", str) for entry in listed}),
    )
    kernels = [_kernel(shell, entry) for entry in listed]
    return replace(shell, kernels=MappingProxyType({kernel.name: kernel for kernel in kernels}))


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


def _kernel(code: CodeObject, entry: Any) -> KernelInfo:
    name = _get(entry, ".name", str)
    symbol_name = _get(entry, ".symbol", str, f"{name}.kd")
    symbol = code.symbols.get(symbol_name)
    if symbol is None or not symbol.defined:
        raise DecodeError(f"kernel {printable_name(name)}: its descriptor symbol {printable_name(symbol_name)} is not in the file")
    descriptor = KernelDescriptor.decode(code.read(symbol.address, DESCRIPTOR_BYTES), code.target)
    start = symbol.address + descriptor.entry_offset
    home = next((s for s in code.segments if s.executable and s.address <= start < s.end), None)
    if home is None or start % 4:
        raise DecodeError(f"kernel {printable_name(name)}: its entry address {start:#x} lies in no executable segment")
    function = code.symbols.get(symbol_name.removesuffix(".kd"))
    sized = function is not None and function.address == start and function.size > 0
    size = min(function.size, home.end - start) if function and sized else home.end - start
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
