"""Code object reading: the manifest's figures, bundles, relocations, and damaged files."""

from __future__ import annotations

import io
import json
import random
import struct

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.code_object.bundle import BUNDLE_MAGIC
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.elf import ElfFile, Relocation, relocate
from simgpu.hardware.errors import DecodeError
from tests.support.exhaustive import examples
from tests.support.kernels import KernelText
from tests.support.kernels import assemble as assembled
from tests.support.places import CORPUS

MANIFEST = CORPUS / "manifest.json"
CASES = json.loads(MANIFEST.read_text())["cases"] if MANIFEST.exists() else []
corpus = pytest.mark.skipif(not CASES, reason="the corpus of compiled kernels is not here")
GRANULE = {"gfx908": 4, "gfx90a": 8, "gfx942": 8, "gfx950": 8}


def read(name):
    return (CORPUS / name).read_bytes()


def bundle(*entries):
    """Returns an offload bundle of (entry id, code) pairs, in the layout of clang-offload-bundler."""
    size = 32 + sum(24 + len(name) for name, _ in entries)
    head, body = BUNDLE_MAGIC + struct.pack("<Q", len(entries)), b""
    for name, code in entries:
        head += struct.pack("<QQQ", size + len(body), len(code), len(name)) + name.encode()
        body += code
    return head + body


@corpus
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_kernels_of_the_corpus(case):
    code = CodeObject.parse(read(case["hsaco"]))
    kernel = code.kernels[case["entry"]]
    descriptor = kernel.descriptor
    assert code.target == case["target"]
    assert (code.xnack, code.sramecc) == ("any", "any")
    assert kernel.group_segment_size == descriptor.group_segment_size == case["static_lds_bytes"]
    assert kernel.private_segment_size == case["private_segment_fixed_size"]
    assert kernel.vgpr_count == case["vgpr_count"]
    granule = GRANULE[code.target]
    assert descriptor.vgprs - granule < max(case["vgpr_count"], 1) <= descriptor.vgprs
    if code.target == "gfx908":
        widest = max(case["vgpr_count"] - case["agpr_count"], case["agpr_count"], 1)
        assert descriptor.vgprs >= widest and descriptor.accum_offset == 0
    else:
        assert 0 < descriptor.accum_offset <= descriptor.vgprs
    assert descriptor.sgprs >= case["sgpr_count"]
    assert kernel.uses_dynamic_stack == case["uses_dynamic_stack"]
    explicit = [arg for arg in case["args"] if arg["kind"] != "hidden-value"]
    assert [(a.offset, a.size) for a in kernel.explicit_arguments] == [
        (arg["offset"], arg["size"]) for arg in explicit
    ]
    assert kernel.start % 256 == 0 and kernel.code_size % 4 == 0
    assert code.read(kernel.entry, kernel.code_size)
    image, base = code.image()
    assert image[kernel.entry - base :][:64] == code.read(kernel.entry, 64)
    assert not case["line_table"] or any(
        code.source_line(pc) for pc in range(kernel.start, kernel.entry + kernel.code_size, 4)
    )


@corpus
def test_line_table_is_what_addr2line_says():
    """Compares with what llvm-symbolizer prints for this object's first instruction."""
    code = CodeObject.parse(read("cl_atomics_f64.gfx90a.hsaco"))
    kernel = code.kernels["atomics_f64"]
    assert code.source_line(kernel.start) == "src/atomics_f64.cl:7"
    assert code.source_line(0) is None
    assert code.source_line(1 << 40) is None


def test_generic_code_serves_the_gpus_of_its_family():
    own = assembled("gfx942", KernelText("k", ""))
    generic = bytearray(own)
    generic[8] = 4  # code object version 6
    struct.pack_into("<I", generic, 48, 0x0100055F)  # e_flags of clang -mcpu=gfx9-4-generic
    assert CodeObject.parse(generic).target == "gfx942"
    for target in ("gfx942", "gfx950"):
        data = bundle(("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", bytes(generic)))
        assert CodeObject.parse(data, target).target == target
    both = bundle(("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", bytes(generic)), ("hipv4-amdgcn-amd-amdhsa--gfx942", own))
    assert CodeObject.parse(both, "gfx942").data == own
    assert CodeObject.parse(both, "gfx950").data == generic
    with pytest.raises(DecodeError, match="gfx9-4-generic; nothing for gfx90a"):
        CodeObject.parse(data, "gfx90a")


@corpus
def test_bundles_unwrap_to_the_matching_entry():
    one, two = read("cl_saxpy_O0.gfx908.hsaco"), read("cl_saxpy_O0.gfx950.hsaco")
    data = bundle(
        ("host-x86_64-unknown-linux-gnu-", b""),
        ("hipv4-amdgcn-amd-amdhsa--gfx908", one),
        ("hipv4-amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-", two),
    )
    assert CodeObject.parse(data, "gfx908").target == "gfx908"
    assert CodeObject.parse(data, "gfx950").target == "gfx950"
    with pytest.raises(DecodeError, match=r"gfx908, gfx950.*say which"):
        CodeObject.parse(data)
    with pytest.raises(DecodeError, match="nothing for gfx942"):
        CodeObject.parse(data, "gfx942")
    for cut in range(30, len(data) - len(two), 97):
        with pytest.raises(DecodeError):
            CodeObject.parse(data[:cut], "gfx950")
    host = bytearray(one[:64])
    struct.pack_into("<H", host, 18, 62)  # EM_X86_64: a fat binary carries bundles in a section
    assert CodeObject.parse(bytes(host) + data, "gfx908").target == "gfx908"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "nothing"),
        (b"hello, world", "not a code object"),
        (b"CCOB" + bytes(40), "compressed offload bundle at byte 0 has version 0; known are 1, 2, 3"),
        (b"\x7fELF", "cut off"),
        (BUNDLE_MAGIC, "cut off"),
        (bundle(("host-x86_64-unknown-linux-gnu-", b"")), "no device code"),
    ],
)
def test_what_is_no_code_object(data, message):
    with pytest.raises(DecodeError, match=message) as caught:
        CodeObject.parse(data)
    assert "\n" not in str(caught.value)


@corpus
def test_every_truncation_is_one_line():
    data = read("cl_calls.gfx908.hsaco")
    for cut in (*range(0, 700, 13), *range(700, len(data), 211)):
        try:
            CodeObject.parse(data[:cut]).image()
        except DecodeError as error:
            assert "\n" not in str(error) and len(str(error)) < 400
        else:
            pytest.fail(f"accepted {cut} of {len(data)} bytes")


@corpus
@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_flipped_bytes_raise_nothing_but_decode_errors(seed, flips):
    data = bytearray(read("cl_calls.gfx908.hsaco"))
    source = random.Random(seed)
    interesting = [*range(0x700), *range(0xFC0, len(data))]
    for _ in range(flips):
        data[source.choice(interesting)] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
    try:
        code = CodeObject.parse(bytes(data))
        code.image(0x7F0000000000)
        for kernel in code.kernels.values():
            code.source_line(kernel.start)
    except DecodeError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (1, 0x0000_2010),
        (2, 0x0000_7F00),
        (3, 0x7F00_0000_2010),
        (4, 0x1010 & 0xFFFFFFFF),
        (5, 0x1010),
        (6, 0x0000_2010),
        (10, 0x1010),
        (11, 0),
        (13, 0x7F00_0000_0010),
    ],
)
def test_relocation_formulas(kind, expected):
    """S + A for absolutes, S + A - P for relatives, B + A for RELATIVE64 (AMDGPUUsage)."""
    base, load = 0x1000, 0x7F00_0000_1000
    value = 0 if kind == 13 else 0x2000
    entry = Relocation(place=0x1000, kind=kind, symbol="s", value=value, addend=0x10)
    memory = bytearray(16)
    relocate(memory, base, load - base, entry)
    size = 8 if kind in (3, 5, 13) else 4
    assert int.from_bytes(memory[:size], "little") == expected
    assert not any(memory[size:])
    with pytest.raises(DecodeError, match="outside"):
        relocate(memory, base, 0, Relocation(0x1000 + 13, 3, "s", 0, 0))


def test_symbols_are_those_of_pyelftools():
    """Names, addresses, sizes, types and definitions, of symbols of every type that the assembler writes."""
    places = {"function": ".data", "object": ".data", "notype": ".data", "tls_object": '.section .tdata,"awT"'}
    own = [
        f"{place}\n.type {kind}_symbol,@{kind}\n.globl {kind}_symbol\n{kind}_symbol:\n.long 1\n.size {kind}_symbol,4"
        for kind, place in places.items()
    ]
    data = assemble("\n".join((".file \"a.s\"", *own, ".data", ".quad elsewhere", "")), "gfx942")
    elf = ElfFile(data)
    found = {number: elf.symbols(kind) for kind, number in elf.symbol_sections.items()}
    theirs = {
        number: [
            (one.name, one["st_value"], one["st_size"], one["st_info"]["type"], one["st_shndx"] != "SHN_UNDEF")
            for one in section.iter_symbols()
        ]
        for number, section in enumerate(ELFFile(io.BytesIO(data)).iter_sections())
        if isinstance(section, SymbolTableSection)
    }
    ours = {
        number: [(one.name, one.address, one.size, f"STT_{one.kind.upper()}", one.defined) for one in symbols]
        for number, symbols in found.items()
    }
    assert ours == theirs
    assert {kind for symbols in ours.values() for *_, kind, _ in symbols} >= {"STT_FUNC", "STT_OBJECT", "STT_NOTYPE", "STT_TLS"}
