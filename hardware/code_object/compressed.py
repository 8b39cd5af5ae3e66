"""Compressed offload bundles (clang --offload-compress): a header, then a bundle compressed by zlib or zstd.

Format: llvm/include/llvm/Object/OffloadBundle.h, versions 1 to 3. The digest in the header is not checked; damage shows
when the expanded bundle is parsed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from simgpu.hardware.errors import DecodeError

MAGIC = b"CCOB"
EXPANDED_LIMIT = 1 << 28  # most expanded bytes of all bundles of a file
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

    def expand(self, data: bytes, room: int) -> bytes:
        """Returns the expanded bundle. Raises DecodeError if it has over `room` bytes, is damaged or is cut off."""
        where = f"the compressed offload bundle at byte {self.start}"
        if self.size > room:
            raise DecodeError(f"{where} expands to {self.size} bytes; the limit is {EXPANDED_LIMIT} for all of a file")
        raw = memoryview(data)[self.content : self.start + self.total if self.total else None]
        content = _inflate(raw, self.size, where) if self.method == ZLIB else _from_zstd(raw, self.size, where)
        if len(content) != self.size:
            raise DecodeError(
                f"{where} expands to {len(content)} bytes where its header says {self.size}: it is damaged or cut off"
            )
        return content


def _inflate(raw: memoryview, size: int, where: str) -> bytes:
    """Returns expanded zlib data, at most `size` + 1 bytes."""
    try:
        return zlib.decompressobj().decompress(raw, size + 1)
    except zlib.error as error:
        raise DecodeError(f"{where}: {error}") from None


def _from_zstd(raw: memoryview, size: int, where: str) -> bytes:
    """Returns expanded zstd data, at most `size` + 1 bytes."""
    import zstandard  # few files need it

    # A frame chooses its window, which is memory: one larger than the expected content is useless.
    reader = zstandard.ZstdDecompressor(max_window_size=max(size, 1 << 10)).stream_reader(raw)
    try:
        return bytes(reader.read(size + 1))
    except zstandard.ZstdError as error:
        raise DecodeError(f"{where}: {' '.join(str(error).split())}") from None


def _headers(data: bytes) -> Iterator[BundleHeader]:
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


def expand_bundles(data: bytes) -> list[bytes]:
    """Returns the expanded bundles of a file. Raises DecodeError if one is damaged, or all have over EXPANDED_LIMIT bytes."""
    room, found = EXPANDED_LIMIT, []
    for header in _headers(data):
        found.append(header.expand(data, room))
        room -= len(found[-1])
    return found
