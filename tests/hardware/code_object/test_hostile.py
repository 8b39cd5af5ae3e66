"""Files that cost more than their size end in error messages, at once. Names in files cannot control the terminal."""

from __future__ import annotations

import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Callable

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.code_object import bundle, dwarf, elf
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.names import TEXT_LIMIT, original, printable, printable_name
from simgpu.hardware.errors import DecodeError
from simgpu.tools.robustness.hostile import NewSection, rebuild
from tests.support.kernels import KernelText, assemble

MIB = 1 << 20


@pytest.fixture(scope="module")
def good() -> bytes:
    return assemble("gfx90a", KernelText("k", "s_nop 0"))


def peak(action: Callable[[], object]) -> int:
    """Returns the most bytes that Python objects used during an action."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(data: bytes, match: str) -> None:
    """Asserts a DecodeError in one line, with little more memory than the file's size."""

    def parse() -> None:
        with pytest.raises(DecodeError, match=match) as caught:
            len(CodeObject.parse(data).symbols)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 1500

    assert peak(parse) < 4 * MIB + 40 * len(data)


# -- bundles --------------------------------------------------------------------------------------


def of_entries(names: list[bytes], good: bytes) -> bytes:
    """Returns a bundle in which every entry has the same bytes."""
    place = len(bundle.BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name in names)
    table = b"".join(struct.pack("<QQQ", place, len(good), len(name)) + name for name in names)
    return bundle.BUNDLE_MAGIC + struct.pack("<Q", len(names)) + table + good


def test_entries_that_overlap_take_no_memory_until_one_is_chosen(good: bytes) -> None:
    data = of_entries([f"hip-amdgcn-amd-amdhsa--gfx90a:x{'y' * (n % 20)}+".encode() for n in range(2000)], good + bytes(MIB))
    assert peak(lambda: CodeObject.parse(data, "gfx90a")) < 10 * MIB  # it was 2 GiB before
    assert CodeObject.parse(data, "gfx90a").target == "gfx90a"


def test_tables_within_tables_are_read_once(good: bytes) -> None:
    table = (bundle.BUNDLE_MAGIC + struct.pack("<Q", 0)) * 30_000
    refused(table, "no device code")
    nested = bundle.BUNDLE_MAGIC + struct.pack("<Q", 1 << 63) + (bundle.BUNDLE_MAGIC + bytes(24)) * 20_000
    refused(nested, "cut off|has a name of")


def test_a_bundles_names(good: bytes) -> None:
    refused(of_entries([b"hip-" + b"gfx" * 5000], good), "has a name of 15004 bytes, the limit is 4096")
    refused(of_entries([b"hip-x--gfx\x1b[31m%d" % n for n in range(100)], good), r"\\x1b\[31m0, .* and 84 more: say which")


# -- ELF tables -----------------------------------------------------------------------------------


def test_sections_over_the_same_bytes(good: bytes) -> None:
    everything = (0, len(good) + MIB)
    data = good + bytes(MIB)
    tables = [NewSection(b"", elf.SHT_SYMTAB, everything)] * 1000
    refused(rebuild(data, tables), "symbol tables of type 2: an ELF file has at most one")
    again = [NewSection(b"", elf.SHT_RELA, everything, elf.SHF_ALLOC)] * 1000
    refused(rebuild(data, again), r"relocation sections of \d+ bytes together .* overlap")
    names = b"a" * (1 << 17) + b"\0"
    many = struct.pack("<IBBHQQ", 0, 2, 0, 1, 0, 0) * 5000
    last = len(elf.ElfFile(good).sections)
    sections = [NewSection(b".strtab", 3, names), NewSection(b".symtab", elf.SHT_SYMTAB, many, link=last)]
    refused(rebuild(good, sections, replace=True), "a name of 131072 characters, the limit is 65536")
    sections[0] = NewSection(b".strtab", 3, b"a" * 60_000 + b"\0")
    refused(rebuild(good, sections, replace=True), "symbols' names have over .* overlap")


def test_headers_that_count_or_claim_too_much(good: bytes) -> None:
    size = len(good)
    refused(rebuild(good, headers=[(elf.PT_LOAD, 4, 0, 0, 0, size, size, 1)] * 200), "program headers, the limit is 128")
    refused(rebuild(good, headers=[(elf.PT_NOTE, 4, 0, 0, 0, size, size, 1)] * 100), "note segments of .* overlap")
    refused(rebuild(good, headers=[(elf.PT_LOAD, 4, 0, 1 << 40, 0, 0, 1 << 62, 1)]), "span .* more than the limit of 268435456")
    refused(rebuild(good, headers=[(elf.PT_LOAD, 5, 0, 1 << 20, 0, 0, 1 << 27, 1)]), "134217728 bytes of code are not in the file")
    for at, name in ((54, "program"), (58, "section")):
        entry = bytearray(good)
        struct.pack_into("<H", entry, at, 0)
        refused(bytes(entry), f"{name} headers of 0 bytes each")
    counted = bytearray(good)
    struct.pack_into("<H", counted, 60, 0)
    struct.pack_into("<Q", counted, struct.unpack_from("<Q", good, 40)[0] + 32, 1 << 58)
    refused(bytes(counted), "table of section headers ends at .* cut off")


def test_zeros_that_only_memory_holds_stay_possible(good: bytes) -> None:
    """Device arrays are such zeros: no file contains them."""
    code = CodeObject.parse(rebuild(good, headers=[(elf.PT_LOAD, 6, 0, 1 << 20, 0, 0, 1 << 24, 1)]))
    image, base = code.image()
    assert base == 0 and len(image) == (1 << 20) + (1 << 24) and not any(image[1 << 20 :: 4096])


# -- metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("note", "match"),
    [
        (b"\xc6\x04\0\0\0" + bytes(1 << 26), "metadata of 67108869 bytes, the limit is 67108864"),
        (b"\x81\xaeamdhsa.kernels\x91\xdd\x00\x0f\x42\x40" + b"\x80" * 1_000_000, "1000001 maps and lists, the limit is 524288"),
        (b"\x81\xaeamdhsa.kernels\xdd\x00\x08\x00\x00" + b"\xc0" * (1 << 19), "a list of 524288 entries, the limit is 65536"),
        (b"\x81\xaeamdhsa.kernels\x91\xdd\x00\x08\x00\x00" + b"\xc0" * (1 << 19), "524288 exceeds max_array_len"),
        (b"\xdd\x00\x00\xff\xff" * 60_000, "the metadata note is no map"),
        (b"\x81\xa1k" + b"\xdd\x00\x00\xff\xff" * 60_000, "damaged"),
        (b"\x81\xa0" * 400_000, "damaged"),
        (msgpack.packb({"amdhsa.kernels": [{".name": "x" * (TEXT_LIMIT + 1)}]}), "a name of 65537 characters, the limit is 65536"),
        (msgpack.packb({"amdhsa.kernels": [{".name": "k", ".reqd_workgroup_size": [1] * 4000}]}), "a list of 4000, not of three"),
        (msgpack.packb({"amdhsa.kernels": [{".name": f"k{n}"} for n in range(65536)]}), "symbol k0.kd is not in the file"),
    ],
    ids=["bytes", "maps", "kernels", "entries", "a list", "lists in lists", "maps in maps", "name", "workgroup size", "symbols"],
)  # fmt: skip
def test_metadata_that_asks_for_too_much(good: bytes, note: bytes, match: str) -> None:
    data = rebuild(good, note=note)
    with pytest.raises(DecodeError, match=match):
        list(CodeObject.parse(data).kernels.values())


# -- debug information ----------------------------------------------------------------------------


def warned(data: bytes) -> str:
    """Returns the warnings about debug information that is too large. Everything else is still read."""
    code = CodeObject.parse(data)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert peak(lambda: code.source_line(code.kernels["k"].start)) < 400 * MIB
        code.debug.frames(code.kernels["k"].start)
        assert len(caught) <= 1
    return "".join(str(one.message) for one in caught)


def compressed(content: bytes) -> bytes:
    return struct.pack("<IIQQ", 1, 0, len(content), 1) + zlib.compress(content)


@pytest.mark.slow
def test_sections_that_grow_when_they_are_expanded(good: bytes) -> None:
    one = NewSection(b".debug_str", 1, compressed(bytes(dwarf.SECTION_LIMIT + 1)), dwarf.SHF_COMPRESSED)
    data = rebuild(good, [one], replace=True)
    assert len(data) < MIB
    assert "source lines are left out: debug sections have over 67108864 bytes, the limit" in warned(data)
    old = NewSection(b".zdebug_str", 1, b"ZLIB" + bytes(8) + zlib.compress(bytes(dwarf.SECTION_LIMIT + 1)))
    assert "left out" in warned(rebuild(good, [old], replace=True))
    zstd = NewSection(b".debug_str", 1, struct.pack("<IIQQ", 2, 0, 1, 1) + b"?", dwarf.SHF_COMPRESSED)
    assert "section .debug_str is compressed by method 2" in warned(rebuild(good, [zstd], replace=True))


def line_table(program: bytes, tables: bytes = b"\0a.c\0\0\0\0\0", version: int = 4) -> bytes:
    head = b"\x01\x01\x01\xfb\x0e\x0d" + bytes((0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1)) + tables
    body = struct.pack("<H", version) + (b"\x08\0" if version == 5 else b"") + struct.pack("<I", len(head)) + head + program
    return struct.pack("<I", len(body)) + body


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 16, pytest.param(1 << 21, marks=pytest.mark.exhaustive)])
def test_tables_that_take_too_many_steps(good: bytes, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dwarf.STEP_LIMIT == 1 << 21
    monkeypatch.setattr(dwarf, "STEP_LIMIT", limit)
    rows = line_table(b"\x01" * (limit + 1))
    assert f"over {limit} steps" in warned(rebuild(good, [NewSection(b".debug_line", 1, compressed(rows), 0x800)], replace=True))
    unit = struct.pack("<IHIB", 7 + limit * 3 // 2, 4, 0, 8) + b"\x01" * (limit * 3 // 2)
    for abbreviation in (b"\x01\x1d\x01\0\0\0", b"\x01\x1d\x01" + b"\x59\x21\x05" * 5000 + b"\0\0\0"):
        sections = [NewSection(b".debug_info", 1, compressed(unit), 0x800), NewSection(b".debug_abbrev", 1, abbreviation)]
        assert f"over {limit} steps" in warned(rebuild(good, [*sections, NewSection(b".debug_line", 1, b"")], replace=True))


def test_tables_without_an_end_count_as_absent(good: bytes) -> None:
    endless = line_table(b"", bytes((0,)) + b"\xff" * 9 + b"\x01", 5)  # entries of no bytes, 2^63 of them
    forms = line_table(b"", b"\x01\x01\x19" + b"\xff" * 8 + b"\x7f", 5)  # a form that uses no bytes
    for section in (endless, forms):
        assert warned(rebuild(good, [NewSection(b".debug_line", 1, section)], replace=True)) == ""


# -- names ----------------------------------------------------------------------------------------


@given(st.text())
def test_names_are_printable_and_never_the_same(text: str) -> None:
    assert printable(text).isprintable() and original(printable(text)) == text
    if text.isprintable() and "\\" not in text:
        assert printable(text) == text


def test_long_names_are_cut_in_messages() -> None:
    assert printable_name("k" * 1000) == f"{'k' * 200}… (1000 characters)" and printable_name("\x1b" * 2) == r"\x1b\x1b"
    with pytest.raises(DecodeError, match="a name of 65537"):
        printable("\x1b" * (TEXT_LIMIT + 1))
