"""Loads object files into memory that the host can execute.

LLVM compiles handlers for x86-64 Linux to ELF files whose only relocations are absolute addresses. To place these takes 0.1 ms
a file, and no LLVM. All other files are loaded by LLVM itself.

Source of offsets and numbers: the System V ABI, "Object Files", and its AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from simgpu.hardware.errors import SimError
from simgpu.machine.compiling import object_file
from simgpu.machine.host import host

ELF64 = b"\x7fELF\x02\x01\x01"  # 64 bits, little-endian
RELOCATABLE, X86_64 = 1, 62
CONTENT, SYMBOLS, RELOCATIONS, UNWINDING = 1, 2, 4, 0x70000001  # types of sections
WRITABLE, IN_MEMORY = 1, 2  # flags of sections
FAILED = ctypes.c_void_p(-1).value  # what mmap returns instead of an address
MASK64 = (1 << 64) - 1
ABSOLUTE64 = 1  # R_X86_64_64, the relocation by which eight bytes become an address
FUNCTION = 2  # type of a symbol
SYMBOL, RELOCATION = struct.Struct("<IBBHQQ"), struct.Struct("<QQq")


class Unsupported(Exception):
    """A file that LLVM must load."""


class Loader:
    """Loads object files, which may call functions of files that were loaded before. What is loaded stays."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}  # of the loaded functions, by name

    def load(self, code: bytes, names: Iterable[str]) -> None:
        """Loads an object file. names: of all functions of ours that it has or calls.

        Raises SimError if the system refuses executable memory.
        """
        try:
            self.addresses |= load_elf(code, self.addresses)
        except Unsupported:
            self._load_by_llvm(code, set(names))

    def _load_by_llvm(self, code: bytes, names: set[str]) -> None:
        import llvmlite.binding as llvm

        for name in names & self.addresses.keys():
            llvm.add_symbol(name, self.addresses[name])
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        found = {name: int(self._engine.get_function_address(name)) for name in names - self.addresses.keys()}
        self.addresses |= {name: address for name, address in found.items() if address}

    @functools.cached_property
    def _engine(self) -> Any:
        import llvmlite.binding as llvm

        own = object_file.machine(host().triple, host().cpu, host().features)  # it belongs to the engine from then on
        return llvm.create_mcjit_compiler(llvm.parse_assembly(""), own)


class ElfSymbol(NamedTuple):
    name: str
    is_function: bool
    section: int  # 0 if it is in another file
    value: int  # offset in the section


class ElfSection(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int  # of a table of symbols: the section of their names
    info: int  # of relocations: the section that they change
    align: int
    entry: int


SECTION = struct.Struct("<IIQQQQIIQQ")


class ElfFile:
    """Reads an ELF file for x86-64. Raises Unsupported for other files, and for sections that handlers do not have."""

    def __init__(self, code: bytes) -> None:
        if not code.startswith(ELF64) or struct.unpack_from("<HH", code, 16) != (RELOCATABLE, X86_64):
            raise Unsupported
        self._code = code
        (start,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
        self.sections = [ElfSection(*fields) for fields in SECTION.iter_unpack(code[start : start + count * SECTION.size])]
        self.image = bytearray()  # the sections that are in memory
        self.places: dict[int, int] = {}  # their offsets in the image, by number
        for number, section in enumerate(self.sections):
            if section.flags & IN_MEMORY and section.type != UNWINDING:
                self._add(number, section)
        self._symbols = [symbol for section in self.sections if section.type == SYMBOLS for symbol in self._read_symbols(section)]

    def _add(self, number: int, section: ElfSection) -> None:
        if section.type != CONTENT or section.flags & WRITABLE:
            raise Unsupported
        self.image += bytes(-len(self.image) % max(section.align, 1))
        self.places[number] = len(self.image)
        self.image += self._content(section)

    def _content(self, section: ElfSection) -> bytes:
        return self._code[section.offset : section.offset + section.size]

    def _read_symbols(self, table: ElfSection) -> Iterator[ElfSymbol]:
        names = self._content(self.sections[table.link])
        for at, about, _, section, value, _ in SYMBOL.iter_unpack(self._content(table)):
            yield ElfSymbol(names[at : names.index(0, at)].decode(), about & 15 == FUNCTION, section, value)

    def place(self, base: int, known: Mapping[str, int]) -> dict[str, int]:
        """Makes the image that of address `base`; returns the addresses of its functions. known: those of others."""
        own = {number: base + place for number, place in self.places.items()}
        addresses = [
            own[symbol.section] + symbol.value if symbol.section in own else known.get(symbol.name) or _of_library(symbol.name)
            for symbol in self._symbols
        ]
        for section in self.sections:
            if section.type == RELOCATIONS and section.info in self.places:
                for offset, about, addend in RELOCATION.iter_unpack(self._content(section)):
                    address = addresses[about >> 32]
                    if about & 0xFFFFFFFF != ABSOLUTE64 or address is None:
                        raise Unsupported
                    struct.pack_into("<Q", self.image, self.places[section.info] + offset, (address + addend) & MASK64)
        found = zip(self._symbols, addresses, strict=True)
        return {symbol.name: address for symbol, address in found if symbol.is_function and address is not None}


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_ssize_t]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc


@functools.cache
def _of_library(name: str) -> int | None:
    """Returns the address of a function of the C library, which LLVM calls to copy memory; None if it has none."""
    try:
        return ctypes.cast(getattr(_libc(), name), ctypes.c_void_p).value
    except AttributeError:
        return None


def load_elf(code: bytes, known: Mapping[str, int]) -> dict[str, int]:
    """Loads an ELF file; returns the addresses of its functions. known: those of others that it may call.

    Raises Unsupported for another format, for writable data, a relocation that is no absolute address, an unknown function.
    """
    file = ElfFile(code)
    size = len(file.image)
    base = _libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    if base == FAILED:
        raise _refusal(size)
    try:
        found = file.place(base, known)
    except Unsupported:
        _libc().munmap(base, size)
        raise
    ctypes.memmove(base, bytes(file.image), size)
    if _libc().mprotect(base, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise _refusal(size)
    return found


def _refusal(size: int) -> SimError:
    why = os.strerror(ctypes.get_errno())
    return SimError(f"the system gives no memory for {size} bytes of compiled code: {why}; handlers need executable memory")
