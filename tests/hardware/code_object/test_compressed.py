"""Compressed offload bundles: from clang's bundler, with every header made by hand, and with false headers."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tracemalloc
import zlib
from itertools import product
from pathlib import Path

import pytest
import zstandard

import simgpu
from simgpu.hardware.code_object import CodeObject, compressed
from simgpu.hardware.code_object.bundle import BUNDLE_MAGIC
from simgpu.hardware.errors import DecodeError
from tests.support.kernels import KernelText, assemble

METHODS = {0: zlib.compress, 1: zstandard.compress}
NAMES = ("clang-offload-bundler", *(f"clang-offload-bundler-{number}" for number in range(18, 30)))
BUNDLER = next(filter(None, map(shutil.which, NAMES)), None)
TARGETS = ("gfx908", "gfx90a", "gfx942")


def kernel(target: str, name: str = "k") -> bytes:
    return assemble(target, KernelText(name, "s_nop 0"))


def bundle(*entries: tuple[str, bytes]) -> bytes:
    """Returns an uncompressed bundle of named device images."""
    head = len(BUNDLE_MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    table, body = b"", b""
    for name, image in entries:
        table += struct.pack("<QQQ", head + len(body), len(image), len(name)) + name.encode()
        body += image
    return BUNDLE_MAGIC + struct.pack("<Q", len(entries)) + table + body


def packed(content: bytes, version: int, method: int, size: int | None = None, total: int | None = None) -> bytes:
    """Returns the content after a header of the version. size, total: the header's fields."""
    body = METHODS.get(method, bytes)(content)
    size = len(content) if size is None else size
    length = 8 + {1: 12, 2: 16, 3: 24}.get(version, 24) + len(body)
    sizes = {1: ("<I", size), 2: ("<II", total or length, size)}.get(version, ("<QQ", total or length, size))
    return b"CCOB" + struct.pack("<HH", version, method) + struct.pack(*sizes) + bytes(8) + body


@pytest.mark.parametrize(("version", "method"), list(product((1, 2, 3), METHODS)))
def test_every_header(version: int, method: int) -> None:
    images = {target: kernel(target) for target in TARGETS}
    whole = packed(bundle(*((f"hipv4-amdgcn-amd-amdhsa--{target}", image) for target, image in images.items())), version, method)
    for target in TARGETS:
        for data in (whole, whole + bytes(100), host_file(whole)):
            assert CodeObject.parse(data, target).data == images[target]
    with pytest.raises(DecodeError, match="holds gfx908, gfx90a, gfx942; nothing for gfx950"):
        CodeObject.parse(whole, "gfx950")


def host_file(*bundles: bytes) -> bytes:
    """Returns the contents of a program: an ELF of the host, other data, bundles at page boundaries."""
    made = b"\x7fELF" + bytes(14) + struct.pack("<H", 62) + bytes(44) + b"CCOB is no bundle, nor is CCOB\1\0\7\0 one"
    for each in bundles:
        made += bytes(-len(made) % 4096) + each
    return made


@pytest.mark.skipif(BUNDLER is None, reason="no clang-offload-bundler")
@pytest.mark.parametrize("version", ["", "2", "3"])
def test_what_clang_s_bundler_makes(tmp_path: Path, version: str) -> None:
    """Reads a bundle that is compressed by zstd, or by zlib if LLVM lacks it."""
    names = ["host-x86_64-unknown-linux-gnu-"]
    (tmp_path / "host").write_bytes(b"")
    inputs = [tmp_path / "host"]
    for target in ("gfx908", "gfx90a:sramecc+:xnack-", "gfx942"):
        path = tmp_path / target.replace(":", "_")
        path.write_bytes(kernel(target.partition(":")[0]))
        names.append(f"hipv4-amdgcn-amd-amdhsa--{target}")
        inputs.append(path)
    out = tmp_path / "bundle"
    given = [f"-targets={','.join(names)}", *(f"-input={path}" for path in inputs), f"-output={out}"]
    options = {"COMPRESSED_BUNDLE_FORMAT_VERSION": version} if version else {}
    subprocess.run([str(BUNDLER), "-type=o", "-compress", *given], check=True, env=os.environ | options, timeout=300)
    data = out.read_bytes()
    assert data.startswith(compressed.MAGIC)
    for target, path in zip(TARGETS, inputs[1:], strict=True):
        assert CodeObject.parse(data, target).data == path.read_bytes()


def test_the_image_that_is_nearest_to_the_device() -> None:
    """For a device with sramecc+ and xnack-, an image for exactly that precedes one without features, which precedes others."""

    def of(*features: str) -> str:
        names = [f"hipv4-amdgcn-amd-amdhsa--gfx90a{feature}" for feature in features]
        images = [kernel("gfx90a", f"k{number}") for number in range(len(names))]
        found = CodeObject.parse(packed(bundle(*zip(names, images, strict=True)), 3, 1), "gfx90a")
        return features[images.index(found.data)]

    assert of(":xnack+", ":xnack-") == ":xnack-"
    assert of("", ":sramecc+:xnack-", ":xnack-") == ":sramecc+:xnack-"
    assert of(":sramecc-:xnack-", ":sramecc+:xnack+", "") == ""
    assert of(":xnack+") == ":xnack+"


GOOD = bundle(("hipv4-amdgcn-amd-amdhsa--gfx908", bytes(64)))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"CCOB", "header is cut off at byte 4"),
        (packed(GOOD, 3, 1)[:20], "header is cut off at byte 20"),
        (packed(GOOD, 7, 1), "has version 7; known are 1, 2, 3"),
        (packed(GOOD, 2, 5), "compressed by method 5; known are 0 .zlib. and 1 .zstd."),
        (packed(GOOD, 3, 1, total=1 << 40), "says that it has 1099511627776 bytes; the file has"),
        (packed(GOOD, 3, 1, total=3), "says that it has 3 bytes"),
        (packed(GOOD, 3, 1, size=1 << 40), "expands to 1099511627776 bytes; the limit is 8589934592"),
        (packed(GOOD, 1, 0, size=len(GOOD) - 1), f"past the {len(GOOD) - 1} bytes"),
        (packed(GOOD, 3, 1, size=1 << 21), "expands to 151 bytes where its header says 2097152: it is damaged or cut off"),
        (packed(GOOD, 1, 0)[:-9], "damaged or cut off"),
        (packed(GOOD, 1, 1)[:-9], "compressed offload bundle at byte 0"),
        (packed(GOOD, 1, 0).replace(b"\x78\x9c", b"\x78\x9d", 1), "compressed offload bundle at byte 0: Error -3"),
        (packed(packed(GOOD, 3, 0), 3, 0), "no device code"),
    ],
)  # fmt: skip
def test_damage_is_told(data: bytes, told: str) -> None:
    with pytest.raises(DecodeError, match=told) as caught:
        CodeObject.parse(data, "gfx908")
    assert "\n" not in str(caught.value)


def test_of_a_large_bundle_one_code_object_is_kept() -> None:
    """A code object after 300 MiB of other targets': Debian's programs expand to 3 GB."""
    image, other = kernel("gfx942"), 300 << 20
    head = bundle((f"hipv4-amdgcn-amd-amdhsa--{TARGETS[0]}", b""), (f"hipv4-amdgcn-amd-amdhsa--{TARGETS[2]}", b""))
    at = len(BUNDLE_MAGIC) + 8
    place = 24 + len("hipv4-amdgcn-amd-amdhsa--gfx908")
    table = bytearray(head)
    struct.pack_into("<QQ", table, at, len(head), other)
    struct.pack_into("<QQ", table, at + place, len(head) + other, len(image))
    stream = zstandard.ZstdCompressor().compressobj()
    body = b"".join([stream.compress(bytes(table)), *(stream.compress(bytes(1 << 20)) for _ in range(300))])
    body += stream.compress(image) + stream.flush()
    data = b"CCOB" + struct.pack("<HHQQQ", 3, 1, 32 + len(body), len(head) + other + len(image), 0) + body
    tracemalloc.start()
    try:
        assert CodeObject.parse(data, "gfx942").data == image
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(DecodeError, match="has a code object of 314572800 bytes; the limit is 268435456"):
        CodeObject.parse(data, "gfx908")


def test_what_expands_without_measure_stays_small() -> None:
    """A header for terabytes, and zeros that no table precedes."""
    zeros = zlib.compress(bytes(1 << 24), 9)
    head = b"CCOB" + struct.pack("<HHQQQ", 3, 0, 32 + len(zeros), (1 << 33) + 1, 0)
    with pytest.raises(DecodeError, match="the limit is 8589934592"):
        CodeObject.parse(head + zeros)
    small = b"CCOB" + struct.pack("<HHQQQ", 3, 0, 32 + len(zeros), 1 << 24, 0)
    with pytest.raises(DecodeError, match="no device code"):
        CodeObject.parse(small + zeros)


def test_a_bundle_runs() -> None:
    gpu = simgpu.Device("gfx942")
    module = gpu.load(packed(bundle(("hipv4-amdgcn-amd-amdhsa--gfx942", kernel("gfx942"))), 3, 1))
    assert module["k"].launch(grid=1).instructions > 0
