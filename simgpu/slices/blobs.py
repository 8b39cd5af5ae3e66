"""Bytes by their hash: each worker gets what it lacks once, through a folder that it can see or with a task."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from simgpu.machine.host_memory import aligned_bytes

ROOM = 1 << 30  # bytes that a worker keeps of what it got with tasks
ZEROS = ""  # the name of bytes that are all zero, which nobody sends


def name_of(data: np.ndarray) -> str:
    """The hash by which bytes (uint8) are known."""
    whole = data.size // 8 * 8
    if not data[:whole].view(np.uint64).any() and not data[whole:].any():
        return ZEROS
    return hashlib.blake2b(data.data, digest_size=20).hexdigest()


class Blobs:
    """What a worker keeps of the bytes that came with tasks: ROOM of them, or what a task needs."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def add(self, given: Mapping[str, bytes], needed: Sequence[str]) -> None:
        """Keep these, and what is needed now; what was used longest ago makes room for them."""
        self._kept.update(given)
        for name in needed:
            if name in self._kept:
                self._kept.move_to_end(name)
        size = sum(map(len, self._kept.values()))
        while size > ROOM and next(iter(self._kept)) not in needed:
            size -= len(self._kept.popitem(last=False)[1])

    def has(self, name: str, folder: str) -> bool:
        """Whether the bytes are here, or in the folder; see `Processes`."""
        return name == ZEROS or name in self._kept or (folder != "" and Path(folder, name).is_file())

    def find(self, name: str, size: int, folder: str) -> np.ndarray:
        """So many bytes that are here, or in the folder, as an array (uint8) that is the caller's to change."""
        if name != ZEROS and name not in self._kept:
            return np.memmap(Path(folder, name), np.uint8, "c").view(np.ndarray)  # pages are copied where they are written to
        data = aligned_bytes(size)
        if name != ZEROS:
            data[:] = np.frombuffer(self._kept[name], np.uint8)
        return data


@cache
def blobs() -> Blobs:
    """This process's."""
    return Blobs()


def leave(folder: Path, name: str, data: np.ndarray) -> None:
    """Put bytes into a folder where workers look; what is there has the same hash, so the same bytes."""
    path = folder / name
    if name != ZEROS and not path.exists():
        part = path.with_suffix(".part")
        data.tofile(part)
        part.rename(path)
