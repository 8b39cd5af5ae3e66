"""Clang offload bundles and HIP fat binaries: containers with one code object per target.

Format: clang "ClangOffloadBundler" documentation. Of a compressed bundle, the table is expanded, and an entry when it is read
(`compressed`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from simgpu.hardware.code_object import compressed
from simgpu.hardware.code_object.elf import SERVED_BY
from simgpu.hardware.code_object.names import printable, printable_name
from simgpu.hardware.errors import DecodeError

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
DEVICE_KINDS = ("hip-", "hipv4-", "openmp-")
ID_LIMIT = 1 << 12  # most bytes of an entry's name: kind, triple and target id have some 60
TABLE_LIMIT = 1 << 20  # most bytes of a compressed bundle's table
NAMED = 16  # most targets in a message
# The boards' default settings: ECC in the register files on, retry of page faults off (LLVM AMDGPUUsage, "Target Features";
# amdgpu's noretry). The simulator executes code for other settings equally well.
FEATURES = frozenset({"sramecc+", "xnack-"})


@dataclass(frozen=True)
class BundleEntry:
    """A code object of a bundle."""

    entry_id: str  # as the bundle names it: hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-
    target: str  # target id: gfx90a:xnack-
    read: Callable[[], memoryview | bytes]  # returns the code object's bytes, a part of the file or expanded

    @property
    def processor(self) -> str:
        """Target id without features: gfx90a."""
        return self.target.split(":")[0]


def holds_bundle(data: bytes) -> bool:
    """True if a file contains the magic of a bundle, compressed or not."""
    return BUNDLE_MAGIC in data or compressed.MAGIC in data


def entries(data: bytes) -> list[BundleEntry]:
    """Returns the device entries of all bundles in a file, compressed or not. Raises DecodeError for a damaged bundle."""
    plain = [] if data.startswith(compressed.MAGIC) else _entries(data)
    return [*plain, *(entry for header in compressed.headers(data) for entry in _compressed_entries(data, header))]


def _compressed_entries(data: bytes, header: compressed.BundleHeader) -> list[BundleEntry]:
    """Returns the device entries of a compressed bundle: only its table is expanded."""
    table = header.part(data, 0, TABLE_LIMIT)
    places = _read_bundle(table, 0, header.size)[0] if table.startswith(BUNDLE_MAGIC) else []
    return [BundleEntry(name, _target_id(name), partial(header.part, data, start, size)) for name, start, size in places]


def _entries(data: bytes) -> list[BundleEntry]:
    """Returns the device entries of the uncompressed bundles."""
    found: list[BundleEntry] = []
    view = memoryview(data)  # entries may overlap: nothing is copied before one is selected
    start = data.find(BUNDLE_MAGIC)
    while start >= 0:
        places, end = _read_bundle(data, start, len(data))
        found += [BundleEntry(name, _target_id(name), partial(_slice, view, at, size)) for name, at, size in places]
        start = data.find(BUNDLE_MAGIC, end)  # after the table, so that nothing is read twice
    return found


def _slice(view: memoryview, start: int, size: int) -> memoryview:
    return view[start : start + size]


def _read_bundle(data: bytes, start: int, length: int) -> tuple[list[tuple[str, int, int]], int]:
    """Returns name, start and bytes of each device entry of the bundle at byte `start`, and the byte after its table of entries.

    data: at least the table; length: bytes of the file, or of the expanded bundle
    """
    cursor = start + len(BUNDLE_MAGIC)
    found: list[tuple[str, int, int]] = []
    try:
        (count,) = struct.unpack_from("<Q", data, cursor)
        cursor += 8
        for _ in range(count):
            offset, size, id_size = struct.unpack_from("<QQQ", data, cursor)
            cursor += 24
            if id_size > ID_LIMIT:
                raise DecodeError(f"an offload bundle entry has a name of {id_size} bytes, the limit is {ID_LIMIT}")
            entry_id = printable(data[cursor : cursor + id_size].decode("ascii", "replace"))
            cursor += id_size
            if start + offset + size > length:
                raise DecodeError(
                    f"offload bundle entry {printable_name(entry_id)} ends at byte {start + offset + size}, "
                    f"past the {length} bytes of the file: it is cut off"
                )
            if entry_id.startswith(DEVICE_KINDS) and size:
                found.append((entry_id, start + offset, size))
    except struct.error:
        raise DecodeError(
            f"offload bundle at byte {start}: the table of entries is cut off at byte {len(data)}"
        ) from None
    return found, cursor


def _target_id(entry_id: str) -> str:
    """Returns the target id in an entry's name: gfx90a:xnack- of hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-."""
    _, known, tail = entry_id.rpartition("-gfx")
    return f"gfx{tail}" if known and re.fullmatch(r"[0-9a-z-]+(:[a-z]+[+-])*", tail) else entry_id


def select(found: list[BundleEntry], target: str) -> BundleEntry:
    """Returns the entry for the processor `target`, or else a generic one that it runs; if that is empty, for the only processor.

    Among several, it is the one with the fewest settings outside FEATURES, then the most in FEATURES. Raises DecodeError
    if none fits, or if `target` is empty and there are several processors.
    """
    targets = list(dict.fromkeys(entry.target for entry in found))
    more = f" and {len(targets) - NAMED} more" if len(targets) > NAMED else ""
    names = ", ".join(map(printable_name, targets[:NAMED])) + more or "no device code"
    fitting = [entry for entry in found if not target or entry.processor == target]
    fitting = fitting or [entry for entry in found if target in SERVED_BY.get(entry.processor, ())]
    if not fitting:
        raise DecodeError(f"the offload bundle holds {names}; nothing for {target or 'a GPU'}")
    if len({entry.processor for entry in fitting}) > 1:
        raise DecodeError(f"the offload bundle holds {names}: say which target to load")
    return min(fitting, key=_distance)


def _distance(entry: BundleEntry) -> tuple[int, int]:
    """Returns the rank of an entry, the best lowest: number of settings outside FEATURES, minus the number in it."""
    named = set(entry.target.split(":")[1:])
    return len(named - FEATURES), -len(named & FEATURES)
