"""Reads a linked amdhsa ELF: target, sections, segments, symbols, relocations.

Formats: LLVM AMDGPUUsage, "ELF Code Object"; System V ABI, chapters 4 and 5. Each byte is read a bounded number of
times, whatever the file claims: ELF lets tables overlap, and pyelftools reads each as often as it is named. Functions
raise DecodeError for errors that they detect; damaged bytes may raise any other exception, which `damage` turns into
DecodeError.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from simgpu.hardware.code_object.names import printable, printable_name
from simgpu.hardware.errors import DecodeError

EM_AMDGPU = 224
# EF_AMDGPU_MACH (e_flags bits 7:0).
TARGET_OF_MACH = {0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x49: "gfx1250"}
# A generic target's code runs on several GPUs (LLVM AMDGPUUsage, "Generic Processors").
GENERIC_MACH = {0x5F: "gfx9-4-generic"}
SERVED_BY = {"gfx9-4-generic": ("gfx942", "gfx950")}
# e_ident[EI_ABIVERSION] to code object version; version 2 has no msgpack metadata.
VERSION_OF_ABI = {1: 3, 2: 4, 3: 5, 4: 6}
# XNACK in e_flags bits 9:8, SRAMECC in bits 11:10 (code object v4 and later).
FEATURE_SETTINGS = ("unsupported", "any", "off", "on")
PT_LOAD, PT_NOTE = 1, 4
PF_EXECUTE, PF_WRITE = 1, 2
SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_DYNSYM = 2, 4, 8, 11
SHF_ALLOC = 2
SYMBOL_KINDS = ("notype", "object", "func", "section", "file", "common", "tls")

# Layouts of table entries.
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELA = struct.Struct("<QQq")

# Limits against hostile files; linkers stay below them.
SEGMENT_LIMIT = 128  # program headers; lld makes about ten
IMAGE_LIMIT = 1 << 28  # bytes from the first loaded to the last: no file for a simulated GPU spans more
ZEROED_CODE_LIMIT = 1 << 12  # bytes of an executable segment that are not in the file: a page
NAME_SHARE = 4  # bytes of all symbols' names per byte of the file: names may share their ends, but not repeatedly

# Relocation: number -> (bytes written, shift of the value, relative to the place).
RELOCATIONS = {
    1: (4, 0, False),  # R_AMDGPU_ABS32_LO
    2: (4, 32, False),  # R_AMDGPU_ABS32_HI
    3: (8, 0, False),  # R_AMDGPU_ABS64
    4: (4, 0, True),  # R_AMDGPU_REL32
    5: (8, 0, True),  # R_AMDGPU_REL64
    6: (4, 0, False),  # R_AMDGPU_ABS32
    10: (4, 0, True),  # R_AMDGPU_REL32_LO
    11: (4, 32, True),  # R_AMDGPU_REL32_HI
    13: (8, 0, False),  # R_AMDGPU_RELATIVE64: base + addend
}
RELATIVE64 = 13


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol of the code object."""

    name: str
    address: int  # as in the file, before loading
    size: int  # bytes
    kind: str  # the ELF type without STT_, in lower case: func, object, ...
    defined: bool = True


@dataclass(frozen=True)
class Segment:
    """A loadable segment."""

    address: int  # virtual
    data: bytes
    memory_size: int  # bytes; those past `data` are zero
    executable: bool
    writable: bool

    @property
    def end(self) -> int:
        return self.address + self.memory_size


@dataclass(frozen=True)
class Relocation:
    """A dynamic relocation."""

    place: int  # the virtual address that it is applied to
    kind: int  # key of `RELOCATIONS`
    symbol: str  # "" if it refers to none
    value: int  # address of the symbol, before loading; 0 without a symbol
    addend: int


class ProgramHeader(NamedTuple):
    """An entry of the program header table, with its fields in the file's order."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    alignment: int


class Section(NamedTuple):
    """An entry of the section header table, with its fields in the file's order."""

    name: int  # its offset in the table of section names
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class ElfFile:
    """Header and tables of a 64-bit little-endian ELF file. Raises DecodeError for other files and tables outside the file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if len(data) < 64:
            raise DecodeError(f"an ELF header has 64 bytes, the file has {len(data)}: it is cut off")
        if data[:4] != b"\x7fELF" or data[4] != 2 or data[5] != 1:
            raise DecodeError("not a 64-bit little-endian ELF: AMD GPUs have no other")
        self.abi = data[8]
        fields = struct.unpack_from("<HHIQQQIHHHHHH", data, 16)
        self.flags = fields[6]
        segments_at, sections_at = fields[4:6]
        segment_bytes, segments, section_bytes, sections, names = fields[8:13]
        if segments > SEGMENT_LIMIT:
            raise DecodeError(f"{segments} program headers, the limit is {SEGMENT_LIMIT}: no linker makes so many")
        self.headers = [ProgramHeader(*row) for row in self._table("program", PROGRAM_HEADER, segments_at, segments, segment_bytes)]
        if sections_at and not sections:  # more than fits a half-word: the first section's size
            sections = Section(*SECTION_HEADER.unpack_from(data, sections_at)).size
        self.sections = [Section(*row) for row in self._table("section", SECTION_HEADER, sections_at, sections, section_bytes)]
        self._read_symbols: dict[int, list[Symbol]] = {}
        self._names_at = names if names != 0xFFFF or not self.sections else self.sections[0].link

    def _table(self, what: str, entry: struct.Struct, at: int, count: int, entry_bytes: int) -> Iterator[tuple[Any, ...]]:
        if not count:
            return iter(())
        if entry_bytes != entry.size:
            raise DecodeError(f"{what} headers of {entry_bytes} bytes each: they have {entry.size}")
        return entry.iter_unpack(self.part(f"the table of {what} headers", at, count * entry.size))

    def part(self, what: str, at: int, size: int) -> bytes:
        """Returns `size` bytes of the file from byte `at` on. Raises DecodeError, which names `what`, if the file is shorter."""
        if at + size > len(self.data):
            raise DecodeError(f"{what} ends at byte {at + size} of a file of {len(self.data)}: it is cut off")
        return self.data[at : at + size]

    def content(self, what: str, section: Section) -> bytes:
        """Returns a section's bytes in the file; b"" for a NOBITS section."""
        return b"" if section.type == SHT_NOBITS else self.part(what, section.offset, section.size)

    def sections_named(self, prefixes: tuple[bytes, ...]) -> dict[str, Section]:
        """Returns the first section of each name that begins with one of the prefixes. Names are cut to 32 characters."""
        found: dict[str, Section] = {}
        if not 0 < self._names_at < len(self.sections):
            return found
        names = self.content("the table of section names", self.sections[self._names_at])
        for section in self.sections:
            name = names[section.name : section.name + 32].partition(b"\0")[0]
            if name.startswith(prefixes):
                found.setdefault(name.decode("ascii", "replace"), section)
        return found

    @cached_property
    def symbol_sections(self) -> dict[int, int]:
        """Numbers of the sections with symbol tables, by type. Raises DecodeError for two tables of one type."""
        found: dict[int, int] = {}
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            places = [number for number, section in enumerate(self.sections) if section.type == kind]
            if len(places) > 1:
                raise DecodeError(f"{len(places)} symbol tables of type {kind}: an ELF file has at most one of each type")
            found.update((kind, number) for number in places)
        return found

    def symbols(self, kind: int) -> list[Symbol]:
        """Returns the symbols of the table of a type, also unnamed ones; [] if there is none."""
        if kind not in self._read_symbols:
            number = self.symbol_sections.get(kind)
            self._read_symbols[kind] = [] if number is None else self._symbols(self.sections[number])
        return self._read_symbols[kind]

    def _symbols(self, table: Section) -> list[Symbol]:
        strings = b""
        if table.link < len(self.sections):
            strings = self.content("the table of symbols' names", self.sections[table.link])
        found, room = [], NAME_SHARE * len(self.data)
        for name_at, info, _, section, value, size in SYMBOL.iter_unpack(
            _whole_entries(self.content("a symbol table", table), SYMBOL)
        ):
            end = strings.find(b"\0", name_at)
            end = len(strings) if end < 0 else end
            room -= max(0, end - name_at)
            if room < 0:
                limit = f"{NAME_SHARE * len(self.data)} bytes together in a file of {len(self.data)}"
                raise DecodeError(f"symbols' names have over {limit}: they overlap")
            name = printable(strings[name_at:end].decode("utf-8", "surrogateescape"))
            kind = info & 15
            found.append(Symbol(name, value, size, SYMBOL_KINDS[kind] if kind < len(SYMBOL_KINDS) else str(kind), section != 0))
        return found


def _whole_entries(table: bytes, entry: struct.Struct) -> bytes:
    return table[: len(table) - len(table) % entry.size]


def identity(elf: ElfFile, wanted: str = "") -> tuple[str, str, str, int]:
    """Returns the target, the XNACK and SRAMECC settings (of FEATURE_SETTINGS) and the code object version.

    wanted: the target of generic code, if it is one that the code runs on; otherwise the first of those is
    """
    if elf.abi not in VERSION_OF_ABI:
        raise DecodeError(f"ELF ABI version {elf.abi}: code object versions 3 to 6 are 1 to 4")
    mach = elf.flags & 0xFF
    targets = SERVED_BY[GENERIC_MACH[mach]] if mach in GENERIC_MACH else (TARGET_OF_MACH.get(mach, ""),)
    if not targets[0]:
        known = ", ".join(f"{name} {code:#x}" for code, name in (TARGET_OF_MACH | GENERIC_MACH).items())
        raise DecodeError(f"code object for GPU mach {mach:#x}: known are {known}")
    version = VERSION_OF_ABI[elf.abi]
    if version == 3:
        xnack, sramecc = (2 + (elf.flags >> 8 & 1)), (2 + (elf.flags >> 9 & 1))
    else:
        xnack, sramecc = elf.flags >> 8 & 3, elf.flags >> 10 & 3
    return wanted if wanted in targets else targets[0], FEATURE_SETTINGS[xnack], FEATURE_SETTINGS[sramecc], version


def segments(elf: ElfFile) -> list[Segment]:
    """Returns the loadable segments. Raises DecodeError if the file does not hold them or they are too large."""
    loads = [header for header in elf.headers if header.type == PT_LOAD]
    if not loads:
        raise DecodeError("no loadable segment: the code object is not linked (run ld.lld on it)")
    for header in loads:
        zeroed = header.memory_size - header.file_size
        if zeroed < 0:
            raise DecodeError(f"a segment of {header.file_size} bytes in the file has {header.memory_size} loaded")
        if header.flags & PF_EXECUTE and zeroed > ZEROED_CODE_LIMIT:
            raise DecodeError(f"{zeroed} bytes of code are not in the file, the limit is {ZEROED_CODE_LIMIT}: the file is damaged")
    _check_span(loads)
    return [
        Segment(
            header.address,
            elf.part("a segment", header.offset, header.file_size),
            header.memory_size,
            bool(header.flags & PF_EXECUTE),
            bool(header.flags & PF_WRITE),
        )
        for header in loads
    ]


def _check_span(loads: list[ProgramHeader]) -> None:
    ordered = sorted(loads, key=lambda header: header.address)
    for one, two in itertools.pairwise(ordered):
        if one.address + one.memory_size > two.address:
            raise DecodeError(f"segments overlap at address {two.address:#x}: the file is damaged")
    span = ordered[-1].address + ordered[-1].memory_size - ordered[0].address
    if span > IMAGE_LIMIT:
        raise DecodeError(f"segments span {span} bytes, more than the limit of {IMAGE_LIMIT}")


def span(loaded: tuple[Segment, ...]) -> tuple[int, int]:
    """Returns the first address of the segments, and the address after their last byte."""
    return min(s.address for s in loaded), max(s.end for s in loaded)


class Symbols(Mapping[str, Symbol]):
    """Symbols by name. For a name in both tables, that of .dynsym is used.

    .symtab has every label, in a library's file hundreds of thousands, so it is read only for a name that .dynsym does not
    have. Lookups raise KeyError, and DecodeError if .symtab is damaged.
    """

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self.exported = _by_name(elf.symbols(SHT_DYNSYM))  # of .dynsym

    def __getitem__(self, name: str) -> Symbol:
        return self.exported.get(name) or self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> dict[str, Symbol]:
        with damage("symbol table"):
            return _by_name(self._elf.symbols(SHT_SYMTAB)) | self.exported


def _by_name(table: list[Symbol]) -> dict[str, Symbol]:
    return {symbol.name: symbol for symbol in table if symbol.name}


def relocations(elf: ElfFile) -> Iterator[Relocation]:
    """Yields the load-time relocations. Raises DecodeError for a kind or a symbol that cannot be resolved."""
    tables = [section for section in elf.sections if section.type == SHT_RELA and section.flags & SHF_ALLOC]
    total = sum(section.size for section in tables)
    if total > len(elf.data):
        raise DecodeError(f"relocation sections of {total} bytes together in a file of {len(elf.data)}: they overlap")
    for section in tables:
        kind = elf.sections[section.link].type if section.link < len(elf.sections) else 0
        named = elf.symbols(kind) if elf.symbol_sections.get(kind) == section.link else []
        for place, info, addend in RELA.iter_unpack(_whole_entries(elf.content("a relocation section", section), RELA)):
            kind, number = info & 0xFFFFFFFF, info >> 32
            if kind not in RELOCATIONS:
                raise DecodeError(f"relocation type {kind} at {place:#x} is not an AMDGPU load-time one")
            name, value = "", 0
            if kind != RELATIVE64 and number:
                if number >= len(named):
                    raise DecodeError(f"relocation at {place:#x} is to symbol {number} of {len(named)}: the file is damaged")
                symbol = named[number]
                if not symbol.defined:
                    raise DecodeError(f"the code object needs symbol {printable_name(symbol.name)}, which it does not define")
                name, value = symbol.name, symbol.address
            yield Relocation(place, kind, name, value, addend)


def relocate(memory: bytearray, base: int, bias: int, relocation: Relocation) -> None:
    """Applies a relocation to `memory`, the image of virtual addresses from `base` on, loaded `bias` bytes higher."""
    size, shift, relative = RELOCATIONS[relocation.kind]
    at = relocation.place - base
    if not 0 <= at <= len(memory) - size:
        raise DecodeError(f"relocation at {relocation.place:#x} lies outside the loaded segments")
    value = relocation.value + relocation.addend
    value -= relocation.place if relative else -bias
    memory[at : at + size] = ((value >> shift) % (1 << 8 * size)).to_bytes(size, "little")


def read(loaded: tuple[Segment, ...], address: int, size: int) -> bytes:
    """Returns `size` bytes at a virtual address, before relocation. Raises DecodeError if no segment holds them."""
    for segment in loaded:
        start = address - segment.address
        if start >= 0 and address + size <= segment.end:
            return segment.data[start : start + size].ljust(size, b"\0")
    raise DecodeError(f"{size} bytes at address {address:#x} lie in no loadable segment")


@contextlib.contextmanager
def damage(what: str) -> Iterator[None]:
    """Turns any exception, such as those of struct and msgpack on damaged bytes, into a DecodeError that names `what`."""
    try:
        yield
    except DecodeError:
        raise
    except Exception as error:
        detail = " ".join(str(error).split()) or type(error).__name__
        raise DecodeError(f"damaged {what}: {detail[:160]}; is the file cut off?") from None
