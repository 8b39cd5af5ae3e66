"""Reads amdhsa code objects: ELF, kernel descriptors, metadata, relocations and line tables.

Formats: LLVM AMDGPUUsage ("Code Object", "Code Object Metadata", "ELF Code Object"). The target
comes from e_flags: the spelling of `amdhsa.target` in the metadata differs between compilers.
For any bytes, `CodeObject.parse` and `kernels` raise no exception but DecodeError, and KeyError for an unknown kernel.
"""

from __future__ import annotations

import itertools
import os
import struct
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from simgpu.hardware.code_object import bundle, compressed, elf
from simgpu.hardware.code_object.debug import DebugInformation
from simgpu.hardware.code_object.demangled import kernels_by_name, readable, without_parameters
from simgpu.hardware.code_object.elf import EM_AMDGPU, ElfFile, Relocation, Segment, Symbols
from simgpu.hardware.code_object.kernels import Argument, CalledFunction, KernelInfo, KernelTable, LinkedFile
from simgpu.hardware.code_object.metadata import Metadata, read_metadata
from simgpu.hardware.errors import DecodeError, LaunchError

LISTED = 8  # most kernels in a module's repr


def first_names(names: Collection[str]) -> str:
    """Returns the first LISTED names in C++ form, for messages of one line.

    >>> first_names([f"k{n}" for n in range(10_000)])
    'k0, k1, k2, k3, k4, k5, k6, k7, ...'
    """
    return ", ".join([*map(readable, itertools.islice(names, LISTED)), *["..."][: len(names) > LISTED]]) or "none"


def kernel_list(names: Collection[str]) -> str:
    """Returns the number of kernels and the first names, for messages of one line."""
    return f"{len(names)} kernel(s): {first_names(names)}"


def kernel_named(kernels: Mapping[str, KernelInfo], name: str) -> KernelInfo:
    """Returns the kernel that a mangled or C++ name selects.

    Parameters, template arguments or namespaces may be left out if only one kernel fits. Raises KeyError with the
    possible names if none or several fit.
    """
    found = [name] if name in kernels else kernels_by_name(kernels, name)
    if len(found) == 1:
        return kernels[found[0]]
    if found:
        raise KeyError(f"{name!r} may be any of {first_names(found)}")
    raise KeyError(f"no kernel {name!r}; the module has: {first_names(kernels)}")


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
    kernels: KernelTable  # by name, in the order of the metadata
    symbols: Symbols  # by name
    segments: tuple[Segment, ...]
    relocations: tuple[Relocation, ...]
    metadata: Metadata  # the notes
    data: bytes = field(repr=False)  # of the ELF
    debug: DebugInformation = field(repr=False, compare=False)

    @classmethod
    def parse(cls, data: bytes, target: str = "") -> CodeObject:
        """Parses the code object in `data`: an ELF, an offload bundle, or a host file with a fat binary.

        target selects an entry if a bundle holds several, or a GPU if the code is generic.
        Raises DecodeError with a message of one line.

        >>> from simgpu import asm, operators
        >>> code = asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")).assemble()
        >>> list(CodeObject.parse(code).kernels)
        ['gemm_f32_nn_32x32x64']
        """
        with elf.damage(f"code object ({len(data)} bytes)"):
            return _parse_elf(cls, _unwrap(bytes(data), target), target)

    @classmethod
    def open(cls, source: str | os.PathLike[str] | bytes, target: str = "") -> CodeObject:
        """Parses the code object in a file or in bytes. Raises LaunchError for a file that cannot be read, else as `parse`."""
        if isinstance(source, (bytes, bytearray, memoryview)):
            return cls.parse(bytes(source), target)
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            raise LaunchError(f"cannot read {source}: {error.strerror or error}") from None
        return cls.parse(data, target)

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
        return elf.read(self.segments, address, size)

    @cached_property
    def functions(self) -> tuple[CalledFunction, ...]:
        """Functions that kernels may call, by address; () if the symbol table is damaged."""
        try:
            held = [s for s in self.symbols.values() if s.kind == "func" and s.size and s.name not in self.kernels]
        except DecodeError:
            return ()
        return tuple(CalledFunction(s.name, s.address, s.size) for s in sorted(held, key=lambda s: s.address))

    def parts(self, kernel: KernelInfo) -> tuple[KernelInfo | CalledFunction, ...]:
        """Returns the code that a launch of a kernel may run: the kernel, then the functions."""
        return kernel, *self.functions

    def part_at(self, kernel: KernelInfo, address: int) -> KernelInfo | CalledFunction | None:
        """Returns the kernel or the function that contains a virtual address; None if neither does."""
        if address in kernel:
            return kernel
        at = bisect_right(self.functions, address, key=lambda function: function.start) - 1
        return self.functions[at] if at >= 0 and address in self.functions[at] else None

    def address_name(self, kernel: KernelInfo, address: int) -> str:
        """Returns an address in code as users read and type it, `gemm+0x98`.

        The bytes are from the beginning of the kernel, or of a function that it calls; C++ parameters are left out. Returns
        only the address if neither contains it.
        """
        part = self.part_at(kernel, address)
        return f"{without_parameters(part.title)}+{address - part.start:#x}" if part else f"{address:#x}"

    def source_line(self, address: int) -> str | None:
        """Returns the `file:line` of the instruction at a virtual address; None if debug information has none.

        For an instruction inlined from a library's header, that is the user's line (`DebugInformation.users_line`).
        """
        found = self.debug.users_line(address)
        return str(found) if found else None


def _unwrap(data: bytes, target: str) -> bytes:
    """Returns the AMDGPU ELF: `data` itself, or the entry for `target` of the bundle in it. Raises DecodeError for other data."""
    if data.startswith((bundle.BUNDLE_MAGIC, compressed.MAGIC)):
        return bytes(bundle.select(bundle.entries(data), target).read())
    if not data.startswith(b"\x7fELF"):
        raise DecodeError(
            f"not a code object: starts with {data[:4].hex(' ') or 'nothing'}, "
            "not with an ELF or an offload bundle header"
        )
    if len(data) >= 20 and struct.unpack_from("<H", data, 18)[0] != EM_AMDGPU:
        if bundle.holds_bundle(data):
            return bytes(bundle.select(bundle.entries(data), target).read())
        machine = struct.unpack_from("<H", data, 18)[0]
        raise DecodeError(
            f"ELF machine {machine} is not AMDGPU ({EM_AMDGPU}), and no offload bundle is inside"
        )
    return data


def _parse_elf(cls: type[CodeObject], data: bytes, wanted: str) -> CodeObject:
    file = ElfFile(data)
    target, xnack, sramecc, version = elf.identity(file, wanted)
    segments = tuple(elf.segments(file))
    symbols = Symbols(file)
    metadata = read_metadata(file)
    debug = DebugInformation(data, metadata.kernels.keys())
    return cls(
        target=target,
        xnack=xnack,
        sramecc=sramecc,
        version=version,
        kernels=KernelTable(LinkedFile(target, symbols, segments, debug), metadata),
        symbols=symbols,
        segments=segments,
        relocations=tuple(elf.relocations(file)),
        metadata=metadata,
        data=data,
        debug=debug,
    )
