"""DWARF sections and a cursor that reads their fields. Steps are counted, to limit the time that optional information takes.

Format: "DWARF Debugging Information Format", versions 4 and 5. Tests compare the results with those of pyelftools, which is
not used here: it expands sections to any claimed size, makes an object of each row and entry, and follows circular references.
"""

from __future__ import annotations

import struct
import zlib

from simgpu.hardware.code_object.elf import ElfFile, Section
from simgpu.hardware.code_object.names import printable

SHF_COMPRESSED = 0x800
COMPRESSION_HEADER = struct.Struct("<IIQQ")  # Elf64_Chdr: type, reserved, size, alignment
ELFCOMPRESS_ZLIB = 1
SECTION_LIMIT = 1 << 26  # most bytes of all debug sections, expanded
# A byte of a line table, an entry, an attribute or a range is a step. Two million take seconds and suffice for about a
# million instructions.
STEP_LIMIT = 1 << 21
TEXT_LIMIT = 1 << 10  # most bytes of a file's or a folder's name


class DebugLimit(Exception):
    """Raised for debug information that is larger than any compiler makes it."""


class StepBudget:
    """Remaining number of steps."""

    def __init__(self) -> None:
        self.left = STEP_LIMIT

    def take(self, count: int = 1) -> None:
        """Counts steps. Raises DebugLimit if there are too many."""
        self.left -= count
        if self.left < 0:
            raise DebugLimit(f"debug information takes over {STEP_LIMIT} steps to read, the limit")


class DebugSections:
    """Uncompressed debug sections of an ELF file by name, b"" for an absent one. Raises DebugLimit if they are too large."""

    def __init__(self, elf: ElfFile) -> None:
        self._content: dict[str, bytes] = {}
        room = SECTION_LIMIT
        for name, section in elf.sections_named((b".debug_", b".zdebug_")).items():
            content = _expand(elf, name, section, room)
            room -= len(content)
            if room < 0:
                raise DebugLimit(f"debug sections have over {SECTION_LIMIT} bytes, the limit")
            self._content.setdefault(name.replace(".zdebug_", ".debug_"), content)
        self.steps = StepBudget()

    def __getitem__(self, name: str) -> bytes:
        return self._content.get(name, b"")

    def text(self, section: str, at: int) -> str:
        """Returns the string at byte `at` of a section, printable, at most TEXT_LIMIT bytes of it."""
        raw = self[section][at : at + TEXT_LIMIT].partition(b"\0")[0]
        return printable(raw.decode("utf-8", "replace"))


def _expand(elf: ElfFile, name: str, section: Section, room: int) -> bytes:
    """Returns a section's uncompressed bytes; at most `room` + 1 of a compressed one."""
    raw = elf.content(f"section {name}", section)
    if section.flags & SHF_COMPRESSED:
        kind = COMPRESSION_HEADER.unpack_from(raw)[0]
        if kind != ELFCOMPRESS_ZLIB:
            raise DebugLimit(f"section {name} is compressed by method {kind}, known is {ELFCOMPRESS_ZLIB} (zlib)")
        raw = raw[COMPRESSION_HEADER.size :]
    elif name.startswith(".zdebug_"):
        raw = raw[12:]  # "ZLIB" and the size
    else:
        return raw
    return zlib.decompressobj().decompress(raw, room + 1)


class Cursor:
    """Reads consecutive fields of a section. Methods raise IndexError or ValueError past the end."""

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def number(self, size: int) -> int:
        """Reads an unsigned integer of 1 to 8 bytes."""
        first = self.at
        self.at = first + size
        if self.at > self.end:
            raise IndexError(f"a field ends at byte {self.at}, past byte {self.end}, where its unit does")
        return int.from_bytes(self.data[first : self.at], "little")

    def uleb(self) -> int:
        """Reads an unsigned LEB128 number of at most 10 bytes, which hold 64 bits."""
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a LEB128 number of more than 64 bits")

    def sleb(self) -> int:
        """Reads a signed LEB128 number."""
        first = self.at
        value = self.uleb()
        bits = 7 * (self.at - first)
        return value - (1 << bits) if value >> bits - 1 else value

    def length(self) -> tuple[int, int]:
        """Reads a unit's length; returns it and the size of the unit's offsets: 4 bytes, or 8 in the 64-bit format."""
        value = self.number(4)
        return (self.number(8), 8) if value == 0xFFFFFFFF else (value, 4)

    def text_at(self) -> int:
        """Returns the position of the NUL-terminated string at the cursor, and moves past it."""
        first = self.at
        self.at = self.data.index(b"\0", first, self.end) + 1
        return first


# Bytes of a value by its DW_FORM number; "a": those of an address, "o": of an offset.
FIXED: dict[int, int | str] = {
    0x01: "a", 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x0E: "o", 0x10: "o", 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8,
    0x17: "o", 0x19: 0, 0x1C: 4, 0x1D: "o", 0x1E: 16, 0x1F: "o", 0x20: 8, 0x21: 0, 0x24: 8,
    0x25: 1, 0x26: 2, 0x27: 3, 0x28: 4, 0x29: 1, 0x2A: 2, 0x2B: 3, 0x2C: 4, 0x1F20: "o", 0x1F21: "o",
}  # fmt: skip
SIGNED = 0x0D  # DW_FORM_sdata
LEB = frozenset((SIGNED, 0x0F, 0x15, 0x1A, 0x1B, 0x22, 0x23, 0x1F01, 0x1F02))
BLOCKS = {0x03: 2, 0x04: 4, 0x0A: 1, 0x09: 0, 0x18: 0}  # bytes of the length before a block, 0 for a LEB128 number
STRING = 0x08
IMPLICIT = 0x21  # DW_FORM_implicit_const: the value is in the abbreviation


def fixed_size(form: int, address: int, offset: int) -> int | None:
    """Returns the bytes of a form's value; None if they vary. address, offset: bytes of an address and of an offset."""
    size = FIXED.get(form)
    return {"a": address, "o": offset}[size] if isinstance(size, str) else size


def read_form(cursor: Cursor, form: int, address: int, offset: int) -> int:
    """Returns a form's value as a number; for an inline string, its position; for a block, that of its length.

    Moves the cursor past the value. Raises ValueError for an unknown form.
    """
    size = fixed_size(form, address, offset)
    if size is not None:
        return cursor.number(size)
    if form == SIGNED:
        return cursor.sleb()
    if form in LEB:
        return cursor.uleb()
    if form == STRING:
        return cursor.text_at()
    if form in BLOCKS:
        first = cursor.at
        size = cursor.number(BLOCKS[form]) if BLOCKS[form] else cursor.uleb()
        cursor.at += size
        return first
    raise ValueError(f"DWARF form {form:#x} is not known")
