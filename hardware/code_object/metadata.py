"""Metadata of a code object: where its notes have each kernel's entry, decoded one entry at a time.

The linker concatenates the notes of its inputs, so a code object of many linked objects has many notes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from simgpu.hardware.code_object.elf import PT_NOTE, ElfFile
from simgpu.hardware.code_object.names import all_printable, printable
from simgpu.hardware.errors import DecodeError

NT_AMDGPU_METADATA = 32
KERNELS, VERSION, PRINTF = "amdhsa.kernels", "amdhsa.version", "amdhsa.printf"

# Limits against hostile files.
METADATA_LIMIT = 1 << 26  # bytes of all notes: some 30,000 kernels
METADATA_KERNELS = 1 << 16  # in a note, and together
METADATA_MAPS = 1 << 19  # maps and lists in a kernel's entry, or in another value of a note
METADATA_ENTRIES = 1 << 16  # of one map or list

# First bytes of a map or a list in msgpack: fixmap, fixarray, array 16, array 32, map 16, map 32.
MAP_BYTES = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))


class FileRange(NamedTuple):
    """A range of bytes in the file."""

    start: int
    end: int


@dataclass(frozen=True)
class Note:
    """A metadata note."""

    values: dict[str, FileRange]  # by key, except the kernels
    kernels: list[FileRange] | None = None  # None if it lists none


@dataclass(frozen=True)
class Metadata:
    """Notes of a code object, read as one document."""

    data: bytes = field(repr=False)  # of the file
    values: dict[str, FileRange]  # by key, except the kernels
    kernels: dict[str, FileRange]  # by name, printable, in their order in the file

    def kernel(self, name: str) -> dict[str, Any]:
        """Returns the decoded entry of a kernel, its texts printable. Raises KeyError for another name."""
        return all_printable(_decode_value(self.data, self.kernels[name]))  # type: ignore[no-any-return]

    def document(self) -> dict[str, Any]:
        """Returns all of it decoded, its texts printable."""
        values = {key: all_printable(_decode_value(self.data, place)) for key, place in self.values.items()}
        return {**values, KERNELS: list(map(self.kernel, self.kernels))}


def read_metadata(elf: ElfFile) -> Metadata:
    """Reads the notes. Raises DecodeError if there are none, they are too large together, or a kernel has no name.

    As in AMD's runtime, the first note is the document, and the kernels of the others are added to its own. The linker
    ensures that all are for one target; the target comes from the ELF header. A note of another version, or with another
    table of printf formats, is left out. Of two kernels with one name the last counts.
    """
    found = list(_read_notes(elf))
    if not found:
        raise DecodeError("no AMDGPU metadata note: not a code object of version 3 or later")
    first = found[0]
    kernels: dict[str, FileRange] = {}
    for note in found:
        if note is first or _continues(elf.data, first, note):
            first.values.update({PRINTF: note.values[PRINTF]} if PRINTF in note.values else {})
            kernels.update((_kernel_name(elf.data, place), place) for place in note.kernels or ())
        if len(kernels) > METADATA_KERNELS:
            raise DecodeError(f"metadata of {len(kernels)} kernels, the limit is {METADATA_KERNELS}")
    return Metadata(elf.data, first.values, kernels)


def _continues(data: bytes, first: Note, note: Note) -> bool:
    """True if both notes list kernels, have equal versions, and do not have two different tables of printf formats."""
    versions, formats = ([data[slice(*each.values.get(key, (0, 0)))] for each in (first, note)] for key in (VERSION, PRINTF))
    agree = versions[0] == versions[1] != b"" and (b"" in formats or formats[0] == formats[1])
    return first.kernels is not None and note.kernels is not None and agree


def _kernel_name(data: bytes, place: FileRange) -> str:
    entry = _decode_value(data, place)
    name = entry.get(".name") if isinstance(entry, dict) else None
    if not isinstance(name, str):
        found = f"in a {type(entry).__name__}" if not isinstance(entry, dict) else f"of type {type(name).__name__}"
        raise DecodeError(f"metadata: .name of a kernel is {'absent' if name is None and isinstance(entry, dict) else found}")
    return printable(name)


def _decode_value(data: bytes, place: FileRange) -> Any:
    """Decodes a value. Its maps are counted first: an empty one has a byte in the note, and 64 bytes in Python."""
    content = data[place.start : place.end]
    maps = len(content) - len(content.translate(None, MAP_BYTES))
    if maps > METADATA_MAPS:
        raise DecodeError(f"metadata with up to {maps} maps and lists, the limit is {METADATA_MAPS}")
    return msgpack.unpackb(content, strict_map_key=False, max_array_len=METADATA_ENTRIES, max_map_len=METADATA_ENTRIES)


def _read_notes(elf: ElfFile) -> Iterator[Note]:
    """Yields the metadata notes. Raises DecodeError if they are too large together."""
    total = 0
    for place in _note_places(elf):
        total += place.end - place.start
        if total > METADATA_LIMIT:
            raise DecodeError(f"metadata of {total} bytes, the limit is {METADATA_LIMIT}")
        yield _read_note(elf.data, place)


def _read_note(data: bytes, place: FileRange) -> Note:
    """Finds the values of a note without decoding them."""
    limits = {"max_array_len": METADATA_ENTRIES, "max_map_len": METADATA_ENTRIES}
    cursor = msgpack.Unpacker(strict_map_key=False, max_buffer_size=METADATA_LIMIT, **limits)
    cursor.feed(data[place.start : place.end])

    def skip() -> FileRange:
        start = place.start + cursor.tell()
        cursor.skip()
        return FileRange(start, place.start + cursor.tell())

    values: dict[str, FileRange] = {}
    kernels = None
    for _ in range(_length(cursor.read_map_header, "the metadata note is no map")):
        key = all_printable(_decode_value(data, skip()))
        if key == KERNELS:
            kernels = [skip() for _ in range(_length(cursor.read_array_header, f"metadata: {KERNELS} is no list"))]
        else:
            values[key if isinstance(key, str) else repr(key)] = skip()
    return Note(values, kernels)


def _length(read_header: Callable[[], int], otherwise: str) -> int:
    """Returns the length of a list or map. Raises DecodeError with the message for another value, and for too many entries."""
    try:
        count = int(read_header())
    except ValueError:
        raise DecodeError(otherwise) from None
    if count > METADATA_KERNELS:
        raise DecodeError(f"metadata with a list of {count} entries, the limit is {METADATA_KERNELS}")
    return count


def _note_places(elf: ElfFile) -> Iterator[FileRange]:
    """Yields the places of the metadata notes."""
    headers = [header for header in elf.headers if header.type == PT_NOTE]
    total = sum(header.file_size for header in headers)
    if total > len(elf.data):
        raise DecodeError(f"note segments of {total} bytes together in a file of {len(elf.data)}: they overlap")
    for header in headers:
        notes, at = elf.part("a note segment", header.offset, header.file_size), 0
        while at + 12 <= len(notes):
            name_bytes, size, kind = struct.unpack_from("<III", notes, at)
            first = at + 12 + _round_up(name_bytes)
            if first + size > len(notes):
                raise DecodeError(f"a note ends at byte {first + size} of {len(notes)}: it is cut off")
            if kind == NT_AMDGPU_METADATA and notes[at + 12 : at + 12 + name_bytes].rstrip(b"\0") == b"AMDGPU":
                yield FileRange(header.offset + first, header.offset + first + size)
            at = first + _round_up(size)


def _round_up(size: int) -> int:
    return -(-size // 4) * 4
