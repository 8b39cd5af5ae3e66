"""Clang offload bundles and HIP fat binaries: containers with one code object per target.

Format: clang "ClangOffloadBundler" documentation, uncompressed layout.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from simgpu.hardware.errors import DecodeError

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED_MAGIC = b"CCOB"
DEVICE_KINDS = ("hip-", "hipv4-", "openmp-")


@dataclass(frozen=True)
class BundleEntry:
    """One code object of a bundle."""

    entry_id: str  # as the bundle names it: hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-
    target: str  # its target id: gfx90a:xnack-
    data: bytes

    @property
    def processor(self) -> str:
        """The target id without features: gfx90a."""
        return self.target.split(":")[0]


def entries(data: bytes) -> list[BundleEntry]:
    """The device entries of every bundle in `data`. Raises DecodeError where a bundle is damaged."""
    found: list[BundleEntry] = []
    start = data.find(BUNDLE_MAGIC)
    while start >= 0:
        found += _read_bundle(data, start)
        start = data.find(BUNDLE_MAGIC, start + len(BUNDLE_MAGIC))
    return found


def _read_bundle(data: bytes, start: int) -> list[BundleEntry]:
    cursor = start + len(BUNDLE_MAGIC)
    found: list[BundleEntry] = []
    try:
        (count,) = struct.unpack_from("<Q", data, cursor)
        cursor += 8
        for _ in range(min(count, len(data))):
            offset, size, id_size = struct.unpack_from("<QQQ", data, cursor)
            cursor += 24
            entry_id = data[cursor : cursor + id_size].decode("ascii", "replace")
            cursor += id_size
            if start + offset + size > len(data):
                raise DecodeError(
                    f"offload bundle entry {entry_id!r} ends at byte {start + offset + size}, "
                    f"past the {len(data)} bytes of the file: it is cut off"
                )
            if entry_id.startswith(DEVICE_KINDS) and size:
                code = data[start + offset : start + offset + size]
                found.append(BundleEntry(entry_id, _target_id(entry_id), code))
    except struct.error:
        raise DecodeError(
            f"offload bundle at byte {start}: the table of entries is cut off at byte {len(data)}"
        ) from None
    return found


def _target_id(entry_id: str) -> str:
    """The target id in an entry's name: gfx90a:xnack- of hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-."""
    match = re.search(r"gfx[0-9a-z-]+?(:[a-z]+[+-])*$", entry_id)
    return match.group() if match else entry_id


def select(found: list[BundleEntry], target: str) -> BundleEntry:
    """The entry for the processor `target`; where that is empty, for the only processor there is.

    Of several for one processor, the entry that names fewest features wins. Raises DecodeError if none fits.
    """
    names = ", ".join(entry.target for entry in found) or "no device code"
    fitting = [entry for entry in found if not target or entry.processor == target]
    if not fitting:
        raise DecodeError(f"the offload bundle holds {names}; nothing for {target or 'a GPU'}")
    if len({entry.processor for entry in fitting}) > 1:
        raise DecodeError(f"the offload bundle holds {names}: say which target to load")
    return min(fitting, key=lambda entry: entry.target.count(":"))
