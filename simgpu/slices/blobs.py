"""Stores bytes by their hash, so that each worker gets them only once: from a folder that it can read, or with a task."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from simgpu.machine.host_memory import aligned_bytes

ROOM = 1 << 30  # most bytes from tasks that a worker keeps
ZEROS = ""  # the name of bytes that are all zero, which are never sent


def name_of(data: np.ndarray) -> str:
    """Returns the hash that names bytes (uint8)."""
    whole = data.size // 8 * 8
    if not data[:whole].view(np.uint64).any() and not data[whole:].any():
        return ZEROS
    return hashlib.blake2b(data.data, digest_size=20).hexdigest()


class Blobs:
    """Bytes that came with tasks and that a worker keeps: up to ROOM, or as many as a task needs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def add(self, given: Mapping[str, bytes], needed: Sequence[str]) -> None:
        """Stores the bytes of `given`. Drops least recently used bytes to make room, but none of `needed`."""
        self._kept.update(given)
        for name in needed:
            if name in self._kept:
                self._kept.move_to_end(name)
        size = sum(map(len, self._kept.values()))
        while size > ROOM and next(iter(self._kept)) not in needed:
            size -= len(self._kept.popitem(last=False)[1])

    def has(self, name: str, folder: str) -> bool:
        """True if the bytes are in this store or in the folder (`Processes.folder`)."""
        return name == ZEROS or name in self._kept or (folder != "" and Path(folder, name).is_file())

    def find(self, name: str, size: int, folder: str) -> np.ndarray:
        """Returns `size` bytes from here or from the folder, as an array (uint8) that the caller may change."""
        if name != ZEROS and name not in self._kept:
            return np.memmap(Path(folder, name), np.uint8, "c").view(np.ndarray)  # pages are copied when they are written to
        data = aligned_bytes(size)
        if name != ZEROS:
            data[:] = np.frombuffer(self._kept[name], np.uint8)
        return data


@cache
def blobs() -> Blobs:
    """Returns this process's store."""
    return Blobs()


def leave(folder: Path, name: str, data: np.ndarray) -> None:
    """Writes bytes to a file named by their hash in a folder that workers read, unless the file exists."""
    path = folder / name
    if name != ZEROS and not path.exists():
        part = path.with_suffix(".part")
        data.tofile(part)
        part.rename(path)
