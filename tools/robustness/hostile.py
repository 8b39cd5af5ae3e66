"""Small files that are made to cost much time or memory: bundles, ELF tables, debug information, metadata, .npy and cache
files.

A generator draws a file from a `random.Random`; `read_all` reads everything that a code object may hold. Most cases begin as a
good file in which one part is rebuilt: its counts, sizes and offsets overlap, form cycles, or claim more than there is.
"""

from __future__ import annotations

import io
import os
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import msgpack
import numpy as np
import zstandard

from simgpu.hardware.cache import Folder
from simgpu.hardware.code_object.bundle import BUNDLE_MAGIC
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.compressed import MAGIC
from simgpu.hardware.code_object.elf import PROGRAM_HEADER, RELA, SECTION_HEADER, SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, SYMBOL, ElfFile
from simgpu.hardware.isa import disassemble
from simgpu.tools.cases.file_kernel import load_array

SIZES = (0, 1, 7, 64, 4096, 1 << 14)  # bytes of a generator's filler; one in fifty has LARGE bytes
LARGE = 1 << 18
NUMBERS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 63, (1 << 64) - 1)
TEXTS = (
    "", "k", "k.kd", "\x1b]0;owned\x07", "\x1b[2J", "[red]k[/red]", "a\\x1b", "\u202egnp", "a" * 300, "\r\n::error::k", "\0", "é",
)  # fmt: skip


class NewSection(NamedTuple):
    """A section to add: its content, or the part of the file that it claims to be."""

    name: bytes
    type: int
    content: bytes | tuple[int, int]
    flags: int = 0
    link: int = 0
    info: int = 0
    entry_size: int = 0


def rebuild(
    data: bytes, sections: Sequence[NewSection] = (), headers: Sequence[tuple[int, ...]] = (), note: bytes | None = None,
    replace: bool = False,
) -> bytes:  # fmt: skip
    """Rebuilds an ELF file with more sections and program headers, or another metadata note; its old parts lose their names.

    replace: drops its old sections except the loaded symbols.
    """
    elf, made = ElfFile(data), bytearray(data)
    programs = [list(header) for header in elf.headers]
    if note is not None:
        packed = struct.pack("<III", 7, len(note), 32) + b"AMDGPU\0\0" + note + bytes(-len(note) % 4)
        for header in programs:
            if header[0] == 4:
                header[2], header[5], header[6] = len(made), len(packed), len(packed)
        made += packed
    if headers or note is not None:
        made += bytes(-len(made) % 8)
        programs += [list(header) for header in headers]
        struct.pack_into("<Q", made, 32, len(made))
        struct.pack_into("<H", made, 56, len(programs) & 0xFFFF)
        made += b"".join(PROGRAM_HEADER.pack(*(value & 0xFFFFFFFFFFFFFFFF for value in header)) for header in programs)
    if sections:
        loaded = [section for section in elf.sections if section.type == SHT_DYNSYM]
        kept = [*loaded, *(elf.sections[section.link] for section in loaded)] if replace else elf.sections
        rows = [SECTION_HEADER.pack(0, *section[1:]) if section in kept else bytes(64) for section in elf.sections]
        names = bytearray(b"\0.names\0")
        for section in sections:
            at, size = section.content if isinstance(section.content, tuple) else (len(made), len(section.content))
            made += section.content if isinstance(section.content, bytes) else b""
            rows.append(SECTION_HEADER.pack(
                len(names), section.type, section.flags, 0, at, size, section.link, section.info, 1, section.entry_size
            ))  # fmt: skip
            names += section.name + b"\0"
        rows.append(SECTION_HEADER.pack(1, 3, 0, 0, len(made), len(names), 0, 0, 1, 0))
        made += names + bytes(-(len(made) + len(names)) % 8)
        struct.pack_into("<Q", made, 40, len(made))
        struct.pack_into("<HH", made, 60, len(rows) & 0xFFFF, (len(rows) - 1) & 0xFFFF)
        made += b"".join(rows)
    return bytes(made)


def read_all(data: bytes, target: str = "") -> None:
    """Reads all parts that a code object may hold: kernels, image, lines, calls, types, code."""
    code = CodeObject.parse(data, target)
    code.image(1 << 40)
    for kernel in list(code.kernels.values())[:4]:
        code.debug.parameters(kernel.name, len(kernel.named_arguments))
        for address in (kernel.start, kernel.start + 4, kernel.entry + kernel.code_size - 4):
            code.source_line(address)
            code.debug.frames(address)
        for _ in disassemble(code.read(kernel.entry, min(kernel.code_size, 1 << 12)), code.target):
            pass
    list(map(code.source_line, (0, -1, 1 << 64)))


# -- parts that generators share ----------------------------------------------------------------------


def _size(rng: random.Random) -> int:
    return LARGE if rng.random() < 0.02 else rng.choice(SIZES)


def _fill(rng: random.Random, size: int) -> bytes:
    """Returns bytes of one value, of few values, or of any."""
    kind = rng.randrange(3)
    if kind == 0:
        return bytes([rng.randrange(256)]) * size
    some = rng.randbytes(rng.randrange(1, 9)) if kind == 1 else rng.randbytes(min(size, 4096) or 1)
    return (some * (size // len(some) + 1))[:size]


def _leb(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def scar(rng: random.Random, data: bytes) -> bytes:
    """Changes some bytes of the data, and perhaps cuts off its end."""
    made = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 1, 2, 8))):
        if made:
            at = rng.randrange(len(made))
            raw = struct.pack("<Q", rng.choice(NUMBERS))[: rng.choice((1, 2, 4, 8))]
            made[at : at + len(raw)] = raw
    return bytes(made[: rng.randrange(len(made) + 1)] if rng.random() < 0.05 else made)


# -- generators -----------------------------------------------------------------------------------


def bundle(rng: random.Random, good: bytes, target: str) -> bytes:
    """Makes an offload bundle: entries that overlap, many tables, enormous names and counts."""
    body = good if rng.random() < 0.5 else _fill(rng, _size(rng))
    if rng.random() < 0.3:  # every entry is the same good file, for more targets than there are
        names = [f"hipv4-amdgcn-amd-amdhsa--{target}{':xnack+' * (n > 0)}".encode() for n in range(rng.choice((1, 3, 3000)))]
        place = len(BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name in names)
        listed = b"".join(struct.pack("<QQQ", place, len(good), len(name)) + name for name in names)
        return BUNDLE_MAGIC + struct.pack("<Q", len(names)) + listed + good
    tables = bytearray()
    for _ in range(rng.choice((1, 1, 1, 2, 40))):
        count = rng.choice((0, 1, 1, 3, 100, 2000))
        entries = bytearray()
        for _ in range(count):
            many = "hip-" + "gfx" * rng.randrange(100)
            raw = rng.choice((f"hipv4-amdgcn-amd-amdhsa--{target}", "host-x86_64-", many, rng.choice(TEXTS))).encode()
            size = len(body) if rng.random() < 0.8 else rng.choice(NUMBERS)
            length = len(raw) if rng.random() < 0.98 else rng.choice(NUMBERS)
            entries += struct.pack("<QQQ", rng.choice((0, 32, rng.choice(NUMBERS))), size, length) + raw
        tables += BUNDLE_MAGIC + struct.pack("<Q", count if rng.random() < 0.8 else rng.choice(NUMBERS)) + entries
    host = bytes(good[:18]) + struct.pack("<H", 62) if rng.random() < 0.3 else b""
    return host + bytes(tables) + body


def compressed_bundle(rng: random.Random, good: bytes, target: str) -> bytes:
    """Makes compressed offload bundles: headers with false claims, content that expands many times or is cut off."""
    made = bytearray(bytes(good[:18]) + struct.pack("<H", 62) + bytes(44) if rng.random() < 0.3 else b"")
    count = rng.choice((1, 1, 1, 3, 40))
    for _ in range(count):
        content = bundle(rng, good, target) + bytes(rng.choice((0, 0, 0, 1 << 20, 1 << 24)) if count < 3 else 0)
        method, version = rng.choice((0, 1, 1, rng.choice((2, 9)))), rng.choice((1, 2, 3, 3, rng.choice((0, 4, 0xFFFF))))
        body = zlib.compress(content, 1) if method == 0 else zstandard.compress(content, 1)
        if rng.random() < 0.1:
            body = body[: rng.randrange(len(body) + 1)]
        size = len(content) if rng.random() < 0.8 else rng.choice(NUMBERS)
        wide = 8 if version > 2 else 4
        total = 8 + wide * (2 if version > 1 else 1) + 8 + len(body)
        total = total if rng.random() < 0.9 else rng.choice(NUMBERS)
        sizes = (size,) if version == 1 else (total, size)
        numbers = b"".join((number % (1 << 8 * wide)).to_bytes(wide, "little") for number in sizes)
        made += MAGIC + struct.pack("<HH", version, method) + numbers + bytes(8) + body
    return scar(rng, bytes(made)) if rng.random() < 0.3 else bytes(made)


def tables(rng: random.Random, good: bytes, target: str) -> bytes:
    """Makes an ELF file whose sections and program headers overlap."""
    spare = _fill(rng, _size(rng))
    size = len(good) + len(spare)
    places = ((0, size), (len(good), len(spare)), (rng.choice(NUMBERS), rng.choice(NUMBERS)), (0, len(good)))
    kinds = (SHT_SYMTAB, SHT_DYNSYM, SHT_RELA, 3, 8, rng.getrandbits(32))
    sections = [
        NewSection(
            b".x", rng.choice(kinds), rng.choice(places), rng.choice((0, 2, 0x800, rng.getrandbits(64))), rng.randrange(20),
            rng.randrange(20), rng.choice((0, RELA.size, SYMBOL.size)),
        )
        for _ in range(rng.choice((0, 1, 2, 5, 300)))
    ]  # fmt: skip
    headers = [
        (rng.choice((1, 1, 4, rng.getrandbits(32))), rng.randrange(8), *rng.choice(places)[:1], rng.choice((*NUMBERS, 1 << 20)), 0,
         rng.choice((size, 0, rng.choice(NUMBERS))), rng.choice((size, 1 << 27, rng.choice(NUMBERS))), 1)
        for _ in range(rng.choice((0, 0, 1, 3, 200)))
    ]  # fmt: skip
    made = bytearray(rebuild(good + spare, sections, headers, replace=rng.random() < 0.2))
    if rng.random() < 0.3:  # counts and entry sizes of the tables
        struct.pack_into("<H", made, rng.choice((54, 56, 58, 60, 62)), rng.choice((0, 1, 56, 64, 0xFFFF)))
    if rng.random() < 0.1:  # the count of sections in the first of them
        struct.pack_into("<H", made, 60, 0)
        at = struct.unpack_from("<Q", made, 40)[0] + 32
        if at + 8 <= len(made):
            struct.pack_into("<Q", made, at, rng.choice(NUMBERS))
    return scar(rng, bytes(made)) if rng.random() < 0.3 else bytes(made)


def debug(rng: random.Random, good: bytes, target: str) -> bytes:
    """Makes a file with invented debug sections, some of them compressed many times over."""
    kernel = next(iter(CodeObject.parse(good).kernels)).encode() + b"\0"  # entries may name it, and its parameters are read
    parts = {
        b".debug_line": _line_program(rng), b".debug_info": _units(rng), b".debug_abbrev": _abbreviations(rng),
        b".debug_str": rng.choice((kernel, b"")) + _fill(rng, _size(rng)), b".debug_line_str": _fill(rng, _size(rng)),
        b".debug_ranges": _fill(rng, _size(rng)), b".debug_rnglists": _fill(rng, _size(rng)), b".debug_addr": _fill(rng, 64),
    }  # fmt: skip
    if rng.random() < 0.3:
        parts |= {b".debug_info": _functions(rng, kernel), b".debug_abbrev": FUNCTIONS}
    sections = []
    for name, content in parts.items():
        drawn = rng.random()
        if drawn < 0.1:
            claimed = rng.choice((len(content), *NUMBERS))
            header = struct.pack("<IIQQ", rng.choice((1, 1, 1, 1, 1, 2, 9)), 0, claimed, 1)
            sections.append(NewSection(name, 1, header + zlib.compress(content + bytes(rng.choice((0, 1 << 22)))), 0x800))
        elif drawn < 0.15:
            sections.append(NewSection(b".z" + name[1:], 1, b"ZLIB" + bytes(8) + zlib.compress(content)))
        else:
            sections.append(NewSection(name, 1, content))
    return rebuild(good, sections, replace=False)


def _line_program(rng: random.Random) -> bytes:
    version = rng.choice((2, 3, 4, 5, 5, 9))
    begin = struct.pack("<BBbBB", 1, 1, -5, rng.choice((14, 14, 1, 0)), rng.choice((13, 13, 10, 1)))
    operands = bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1))
    if version >= 5:
        formats = [(rng.choice((1, 2, 3)), rng.choice((8, 0x0B, 0x0F, 0x1F, 0x19, 0x21, 9))) for _ in range(rng.randrange(3))]
        if rng.random() < 0.5:
            formats = [(1, 8), (2, 0x0B)]
        table = bytes([len(formats)]) + b"".join(_leb(kind) + _leb(form) for kind, form in formats)
        table += _leb(rng.choice((3, 3, 3, 0, rng.choice(NUMBERS)))) + b"a.c\0\x01" * 3
        files = table * 2
    else:
        files = b"dir\0\0" + b"a.c\0\x01\0\0" * rng.choice((1, 3, 500)) + b"\0"
    start = b"\0\x09\x02" + struct.pack("<Q", rng.choice((0, 0x1000, 0x1900, rng.choice(NUMBERS))))
    program = start + _fill(rng, _size(rng)) + rng.choice((b"", b"\0\x01\x01"))
    head = begin[:1] + (b"\1" if version >= 4 else b"") + begin[1:] + operands + files
    body = struct.pack("<H", version) + (b"\x08\0" if version >= 5 else b"") + struct.pack("<I", len(head)) + head + program
    length = len(body) if rng.random() < 0.9 else rng.choice(NUMBERS) & 0xFFFFFFFF
    return (struct.pack("<I", length) + body) * rng.choice((1, 1, 3))


FORMS = (*range(0x01, 0x1C), 0x1E, 0x1F, 0x21, 0x23)
ATTRIBUTES = (0x01, 0x03, 0x10, 0x11, 0x12, 0x55, 0x58, 0x59, 0x73, 0x74, 0x31, 0x49, 0x0B, 0x3E, 0x6E, 0x72)
TAGS = (0x11, 0x1D, 0x1D, 0x1D, 0x2E, 0x2E, 0x05, 0x05, 0x16, 0x26, 0x24, 0x04)


def _abbreviations(rng: random.Random) -> bytes:
    made = bytearray()
    for code in range(1, rng.choice((2, 3, 6, 40))):
        made += _leb(code) + _leb(rng.choice(TAGS)) + bytes([rng.randrange(2)])
        for _ in range(rng.choice((0, 1, 3, 6, 6, 2000 if rng.random() < 0.05 else 5))):
            form = rng.choice((0x19, 0x21)) if rng.random() < 0.2 else rng.choice(FORMS)
            made += _leb(rng.choice(ATTRIBUTES)) + _leb(form) + (_leb(rng.choice(NUMBERS)) if form == 0x21 else b"")
        made += b"\0\0"
    return bytes(made) + rng.choice((b"\0", b""))


def _units(rng: random.Random) -> bytes:
    made = bytearray()
    for _ in range(rng.choice((1, 1, 2, 200))):
        version = rng.choice((3, 4, 5))
        place = rng.choice((0, 0, 0, 1, 7))
        head = struct.pack("<BBI", rng.randrange(1, 7), 8, place) if version == 5 else struct.pack("<IB", place, 8)
        entries = bytes(rng.choice((1, 2, 3)) for _ in range(rng.randrange(9)))
        entries += rng.choice((b"", bytes(99), _fill(rng, _size(rng))))
        body = struct.pack("<H", version) + head + entries
        made += struct.pack("<I", len(body) if rng.random() < 0.95 else rng.getrandbits(32)) + body
    return bytes(made)


# Abbreviations: 1 a unit, 2 a function with a name, 3 a parameter with a type, 4 a typedef, 5 a base type, 6 a parameter with its
# origin.
FUNCTIONS = (
    b"\1\x11\1\0\0" b"\2\x2E\1\3\x08\0\0" b"\3\5\0\x49\x13\0\0" b"\4\x16\0\x49\x13\0\0" b"\5\x24\0\x3E\x0B\x0B\x0B\0\0"
    b"\6\5\0\x31\x10\0\0\0"
)  # fmt: skip


def _functions(rng: random.Random, name: bytes) -> bytes:
    """Makes a unit of functions of one name. A parameter's type is any entry, even the parameter itself, or none."""
    made, places = bytearray(b"\1"), [11]  # after the header
    for _ in range(rng.choice((3, 10, 100, 10_000))):
        place = struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF if rng.random() < 0.01 else rng.choice(places))
        base = bytes((5, rng.choice((2, 4, 5, 7, 9)), rng.choice((0, 2, 4, 4, 4, 8, 16))))
        places.append(11 + len(made))
        made += rng.choice((b"\2" + name + b"\3" + place, b"\3" + place, b"\4" + place, base, b"\6" + place, b"\0"))
        places = places[-rng.choice((1, 100)) :] if rng.random() < 0.1 else places
    body = struct.pack("<HIB", 4, 0, 8) + made
    return struct.pack("<I", len(body)) + body


def metadata(rng: random.Random, good: bytes, target: str) -> bytes:
    """Makes a file with another metadata note: values of other types, too many, too deep, with names that move a cursor."""
    document: Any = CodeObject.parse(good).metadata.document()
    drawn = rng.random()
    if drawn < 0.7:
        document = mutate(rng, document, rng.choice((0.02, 0.1, 0.3)))
        note = msgpack.packb(document, strict_types=False)
        return rebuild(good, note=scar(rng, note) if rng.random() < 0.3 else note)
    count = _size(rng)
    deep, wide = (b"\x81\xa0", b"\x91", b"\xdd\xff\xff\xff\xff", b"\xdc\xff\xff"), (b"\x80", b"\xa1k", b"\x81\xa0\x80")
    one, counted = rng.choice((*deep, *wide)), b"\xdd" + struct.pack(">I", count)
    head = rng.choice((b"", counted, b"\x81\xaeamdhsa.kernels" + counted))
    return rebuild(good, note=head + one * count)


def mutate(rng: random.Random, value: Any, share: float) -> Any:
    """Replaces a fraction of the document's values."""
    if rng.random() < share:
        return rng.choice((
            rng.choice(TEXTS), rng.choice(NUMBERS), -1, None, True, 1.5, [], {}, [value] * rng.choice((1, 3, 500)),
            {text: value for text in TEXTS}, rng.choice(TEXTS) * rng.choice((1, 100)), b"\xff",
        ))  # fmt: skip
    if isinstance(value, dict):
        return {key: mutate(rng, entry, share) for key, entry in value.items()}
    if isinstance(value, list):
        return [mutate(rng, entry, share) for entry in value] * rng.choice((1, 1, 1, 1, 30))
    return value


GENERATORS: dict[str, Callable[[random.Random, bytes, str], bytes]] = {
    "bundle": bundle, "compressed": compressed_bundle, "tables": tables, "debug": debug, "metadata": metadata,
}  # fmt: skip


# -- files that are read back ---------------------------------------------------------------------


def damage_cache(rng: random.Random) -> None:
    """Damages a file of the cache. Raises AssertionError if it is believed, or is not replaced."""
    content = _fill(rng, rng.choice((0, 1, 100, 5000)))
    with tempfile.TemporaryDirectory() as place, mock.patch.dict(os.environ, SIMGPU_CACHE_DIR=place):
        folder, path = Folder("handlers"), Path(place, "handlers", "name")
        folder.store("name", content)
        before = path.read_bytes()
        after = scar(rng, before) if rng.random() < 0.8 else _fill(rng, len(before))
        path.write_bytes(after)
        found = folder.load("name")
        assert found == (content if after == before else None), "a damaged file of the cache was believed"
        folder.store("name", content)
        assert folder.load("name") == content, "a damaged file of the cache was not replaced"


def read_array(rng: random.Random) -> None:
    """Reads an .npy file with a false header, as `--arg` does."""
    file = io.BytesIO()
    np.save(file, np.arange(rng.choice((0, 3, 100)), dtype=rng.choice(("f4", "i1", "c16"))))
    data = file.getvalue()
    if rng.random() < 0.6:
        kind = rng.choice(("<f4", "|O", "V0", "V9", "<U999999999", "[('a','<f4')]", "<f4" * 2000, "M8[ns]", "|b1"))
        shape = tuple(rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 2, 40))))
        good = f"{{'descr': {kind!r}, 'fortran_order': {rng.random() < 0.5}, 'shape': {shape}, }}"
        said = rng.choice((good, good, good, "(" * 9000, "{" * 300, "1" * 5000))
        said += " " * (-(len(said) + 11) % 64) + "\n"
        head = b"\x93NUMPY" + bytes((rng.choice((1, 1, 2, 3, 9)), 0)) + struct.pack("<H", len(said) & 0xFFFF)
        data = head + said.encode() + data[128:]
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "in.npy")
        path.write_bytes(scar(rng, data))
        load_array(str(path), f"--arg {path}")
