"""Compressed offload bundles (clang --offload-compress): a header, then a bundle compressed by zlib or zstd.

Format: llvm/include/llvm/Object/OffloadBundle.h, versions 1 to 3. The digest in the header is not checked; damage shows
when the expanded bundle is parsed. A bundle for many targets expands to gigabytes: only its table and the code object of
one target are kept.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.hardware.errors import DecodeError

MAGIC = b"CCOB"
EXPANDED_LIMIT = 1 << 33  # most expanded bytes of a bundle; Debian's tests of rocPRIM 7.2 have 3.4e9 for 14 targets
PART_LIMIT = 1 << 28  # most bytes that are kept: of a code object
PIECE = 1 << 20  # bytes that are expanded at once
NEST_LIMIT = 1 << 12  # most headers that are read in a host file: other data may hold the magic
ZLIB, ZSTD = 0, 1  # llvm::compression::Format
# For each version, the fields after magic, version and method: total size (from version 2 on), expanded size, digest.
_HEADERS = {1: struct.Struct("<4sHHIQ"), 2: struct.Struct("<4sHHIIQ"), 3: struct.Struct("<4sHHQQQ")}


@dataclass(frozen=True)
class BundleHeader:
    """Header of a compressed bundle. Positions are bytes from the start of the file."""

    start: int  # of the header
    content: int  # start of the compressed bytes
    method: int  # ZLIB or ZSTD
    total: int  # bytes of header and compressed bundle; 0 if unknown (version 1)
    size: int  # bytes of the expanded bundle

    @classmethod
    def read(cls, data: bytes, start: int) -> BundleHeader:
        """Returns the header at byte `start`. Raises DecodeError if it is damaged."""
        where = f"the compressed offload bundle at byte {start}"
        if len(data) < start + 8:
            raise DecodeError(f"{where}: its header is cut off at byte {len(data)}")
        version = int(struct.unpack_from("<H", data, start + 4)[0])
        layout = _HEADERS.get(version)
        if layout is None:
            raise DecodeError(f"{where} has version {version}; known are {', '.join(map(str, _HEADERS))}")
        if len(data) < start + layout.size:
            raise DecodeError(f"{where}: its header is cut off at byte {len(data)}")
        _, _, method, *sizes, _ = layout.unpack_from(data, start)
        total, size = (0, *sizes) if version == 1 else sizes
        if method not in (ZLIB, ZSTD):
            raise DecodeError(f"{where} is compressed by method {method}; known are {ZLIB} (zlib) and {ZSTD} (zstd)")
        if total and not layout.size <= total <= len(data) - start:
            raise DecodeError(f"{where} says that it has {total} bytes; the file has {len(data) - start} from there on")
        return cls(start, start + layout.size, method, total, size)

    @property
    def end(self) -> int:
        """First byte where another bundle may begin."""
        return self.start + self.total if self.total else self.content

    def part(self, data: bytes, start: int, size: int) -> bytes:
        """Returns `size` bytes of the expanded bundle from byte `start` on; fewer if the bundle ends before.

        Raises DecodeError if the bundle has over EXPANDED_LIMIT bytes or the part over PART_LIMIT, if it is damaged or cut off.
        """
        where = f"the compressed offload bundle at byte {self.start}"
        if self.size > EXPANDED_LIMIT:
            raise DecodeError(f"{where} expands to {self.size} bytes; the limit is {EXPANDED_LIMIT}")
        if size > PART_LIMIT:
            raise DecodeError(f"{where} has a code object of {size} bytes; the limit is {PART_LIMIT}")
        end = min(start + size, self.size)
        raw = memoryview(data)[self.content : self.start + self.total if self.total else None]
        found, at = [], 0
        for piece in _inflate(raw, where) if self.method == ZLIB else _from_zstd(raw, self.size, where):
            found.append(piece[max(start - at, 0) : end - at])
            at += len(piece)
            if at >= end:
                return b"".join(found)
        raise DecodeError(f"{where} expands to {at} bytes where its header says {self.size}: it is damaged or cut off")


def _inflate(raw: memoryview, where: str) -> Iterator[bytes]:
    """Yields the expanded pieces of zlib data."""
    stream = zlib.decompressobj()
    try:
        for at in range(0, len(raw), PIECE):
            rest: bytes | memoryview = raw[at : at + PIECE]
            while rest:
                yield stream.decompress(rest, PIECE)
                rest = stream.unconsumed_tail
    except zlib.error as error:
        raise DecodeError(f"{where}: {error}") from None


def _from_zstd(raw: memoryview, size: int, where: str) -> Iterator[bytes]:
    """Yields the expanded pieces of zstd data. size: bytes that are expected."""
    import zstandard  # few files need it

    # A frame chooses its window, which is memory: one larger than the expected content is useless.
    window = min(max(size, 1 << 10), 1 << zstandard.WINDOWLOG_MAX)
    reader = zstandard.ZstdDecompressor(max_window_size=window).stream_reader(raw)
    try:
        while piece := reader.read(PIECE):
            yield piece
    except zstandard.ZstdError as error:
        raise DecodeError(f"{where}: {' '.join(str(error).split())}") from None


def headers(data: bytes) -> Iterator[BundleHeader]:
    """Yields the headers of the compressed bundles in a file.

    Raises DecodeError for a damaged one at the start; elsewhere it is skipped, since other data may contain the magic.
    """
    start = data.find(MAGIC)
    for _ in range(NEST_LIMIT):
        if start < 0:
            return
        try:
            header = BundleHeader.read(data, start)
        except DecodeError:
            if start == 0:
                raise
            start = data.find(MAGIC, start + len(MAGIC))
            continue
        yield header
        start = data.find(MAGIC, header.end)
