"""The parts of a linked amdhsa ELF: identity, segments, symbols, relocations, notes, line rows.

Formats: LLVM AMDGPUUsage, "ELF Code Object". Functions raise DecodeError for what they understand
to be wrong; damaged bytes may raise anything else, which `code_object` turns into DecodeError.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from simgpu.hardware.errors import DecodeError

EM_AMDGPU = 224
# EF_AMDGPU_MACH (e_flags bits 7:0).
TARGET_OF_MACH = {0x30: "gfx908", 0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950"}
# e_ident[EI_ABIVERSION] to code object version; version 2 has no msgpack metadata.
VERSION_OF_ABI = {1: 3, 2: 4, 3: 5, 4: 6}
# XNACK in e_flags bits 9:8, SRAMECC in bits 11:10 (code object v4 and later).
FEATURE_SETTINGS = ("unsupported", "any", "off", "on")
NT_AMDGPU_METADATA = 32
PF_EXECUTE, PF_WRITE = 1, 2
# No file that fits a GPU's memory in a simulator spans more than this; hostile headers do.
IMAGE_LIMIT = 1 << 28

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


@dataclass(frozen=True)
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
    memory_size: int  # bytes; what lies past `data` is zero
    executable: bool
    writable: bool

    @property
    def end(self) -> int:
        return self.address + self.memory_size


@dataclass(frozen=True)
class Relocation:
    """A dynamic relocation."""

    place: int  # the virtual address that it is applied at
    kind: int  # key of `RELOCATIONS`
    symbol: str
    value: int  # of the symbol
    addend: int


def identity(elf: Any) -> tuple[str, str, str, int]:
    """The target, XNACK, SRAMECC and code object version that the ELF header says."""
    ident = elf.header["e_ident"]
    if elf.elfclass != 64 or not elf.little_endian:
        raise DecodeError("not a 64-bit little-endian ELF: AMD GPUs have no other")
    abi = ident["EI_ABIVERSION"]
    if abi not in VERSION_OF_ABI:
        raise DecodeError(f"ELF ABI version {abi}: code object versions 3 to 6 are 1 to 4")
    flags = elf.header["e_flags"]
    mach = flags & 0xFF
    if mach not in TARGET_OF_MACH:
        known = ", ".join(f"{name} {code:#x}" for code, name in TARGET_OF_MACH.items())
        raise DecodeError(f"code object for GPU mach {mach:#x}: known are {known}")
    version = VERSION_OF_ABI[abi]
    if version == 3:
        xnack, sramecc = (2 + (flags >> 8 & 1)), (2 + (flags >> 9 & 1))
    else:
        xnack, sramecc = flags >> 8 & 3, flags >> 10 & 3
    return TARGET_OF_MACH[mach], FEATURE_SETTINGS[xnack], FEATURE_SETTINGS[sramecc], version


def segments(elf: Any, data: bytes) -> Iterator[Segment]:
    """Yields the loadable segments. Raises DecodeError where the file does not hold them or they span too much."""
    loads = [s.header for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
    if not loads:
        raise DecodeError("no loadable segment: the code object is not linked (run ld.lld on it)")
    for header in loads:
        start, size = header["p_offset"], header["p_filesz"]
        if start + size > len(data):
            raise DecodeError(
                f"a segment ends at byte {start + size} of a file of {len(data)}: it is cut off"
            )
        if header["p_memsz"] < size:
            raise DecodeError(f"a segment of {size} bytes in the file has {header['p_memsz']} loaded")
        yield Segment(
            header["p_vaddr"],
            data[start : start + size],
            header["p_memsz"],
            bool(header["p_flags"] & PF_EXECUTE),
            bool(header["p_flags"] & PF_WRITE),
        )
    _check_span(loads)


def _check_span(loads: list[Any]) -> None:
    ordered = sorted(loads, key=lambda header: header["p_vaddr"])
    for one, two in itertools.pairwise(ordered):
        if one["p_vaddr"] + one["p_memsz"] > two["p_vaddr"]:
            raise DecodeError(f"segments overlap at address {two['p_vaddr']:#x}: the file is damaged")
    low = min(h["p_vaddr"] for h in loads)
    high = max(h["p_vaddr"] + h["p_memsz"] for h in loads)
    if high - low > IMAGE_LIMIT:
        raise DecodeError(f"segments span {high - low} bytes, more than the limit of {IMAGE_LIMIT}")


def span(loaded: tuple[Segment, ...]) -> tuple[int, int]:
    """The first address of the segments, and the address behind the last."""
    return min(s.address for s in loaded), max(s.end for s in loaded)


def symbols(elf: Any) -> dict[str, Symbol]:
    """The symbols by name; one of .dynsym wins over a local of .symtab."""
    tables = [s for s in elf.iter_sections() if isinstance(s, SymbolTableSection)]
    tables.sort(key=lambda table: table["sh_type"] == "SHT_DYNSYM")
    return {
        symbol.name: _symbol(symbol)
        for table in tables
        for symbol in table.iter_symbols()
        if symbol.name
    }


def _symbol(symbol: Any) -> Symbol:
    kind = str(symbol["st_info"]["type"]).removeprefix("STT_").lower()
    defined = symbol["st_shndx"] != "SHN_UNDEF"
    return Symbol(symbol.name, symbol["st_value"], symbol["st_size"], kind, defined)


def relocations(elf: Any) -> Iterator[Relocation]:
    """Yields the load-time relocations. Raises DecodeError for a kind or a symbol that cannot be resolved."""
    for section in elf.iter_sections():
        if section["sh_type"] != "SHT_RELA" or not section["sh_flags"] & 2:  # SHF_ALLOC
            continue
        table = elf.get_section(section["sh_link"])
        for entry in section.iter_relocations():
            place, kind, addend = entry["r_offset"], entry["r_info_type"], entry["r_addend"]
            if kind not in RELOCATIONS:
                raise DecodeError(f"relocation type {kind} at {place:#x} is not an AMDGPU load-time one")
            name, value = "", 0
            if kind != RELATIVE64 and entry["r_info_sym"]:
                symbol = _symbol(table.get_symbol(entry["r_info_sym"]))
                if not symbol.defined:
                    raise DecodeError(
                        f"the code object needs symbol {symbol.name}, which it does not define"
                    )
                name, value = symbol.name, symbol.address
            yield Relocation(place, kind, name, value, addend)


def relocate(memory: bytearray, base: int, bias: int, relocation: Relocation) -> None:
    """Applies a relocation to `memory`, whose first byte has the virtual address `base` and is loaded `bias` higher."""
    size, shift, relative = RELOCATIONS[relocation.kind]
    at = relocation.place - base
    if not 0 <= at <= len(memory) - size:
        raise DecodeError(f"relocation at {relocation.place:#x} lies outside the loaded segments")
    value = relocation.value + relocation.addend
    value -= relocation.place if relative else -bias
    memory[at : at + size] = ((value >> shift) % (1 << 8 * size)).to_bytes(size, "little")


def metadata(elf: Any) -> dict[str, Any]:
    """The decoded metadata note. Raises DecodeError if there is none."""
    for segment in elf.iter_segments():
        if segment["p_type"] != "PT_NOTE":
            continue
        for note in segment.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (
                NT_AMDGPU_METADATA,
                "NT_AMDGPU_METADATA",
            ):
                decoded = msgpack.unpackb(note["n_descdata"], strict_map_key=False)
                if isinstance(decoded, dict):
                    return decoded
                raise DecodeError("the metadata note is no map")
    raise DecodeError("no AMDGPU metadata note: not a code object of version 3 or later")


def dwarf_rows(data: bytes) -> Iterator[tuple[int, int, str | None]]:
    """Yields rows (address, order, file:line) of the line tables; an end of sequence has no line."""
    elf = ELFFile(io.BytesIO(data))
    if not elf.has_dwarf_info():
        return
    dwarf = elf.get_dwarf_info(relocate_dwarf_sections=False)
    order = 0
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        if program is None:
            continue
        first = 0 if program.header["version"] >= 5 else 1
        files = program.header["file_entry"]
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            # An end of sequence sorts before a row of the next sequence at the same address.
            order += 0 if state.end_sequence else 1
            rank = 0 if state.end_sequence else order
            index = state.file - first
            # Line 0 marks code of no source line.
            known = 0 <= index < len(files) and state.line > 0 and not state.end_sequence
            name = files[index].name.decode("utf-8", "replace") if known else ""
            yield state.address, rank, f"{name}:{state.line}" if known else None
