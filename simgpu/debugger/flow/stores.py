"""Finds the last store to some bytes before an access."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simgpu.debugger.flow.traces import AccessNote


class Stores:
    """Stores of all waves, by dword and in order. All accesses are to LDS, or none."""

    def __init__(self, accesses: Iterable[AccessNote]) -> None:
        self._accesses = [one for one in accesses if one.writes]
        rows: list[np.ndarray] = []
        for number, one in enumerate(self._accesses):
            lanes = np.flatnonzero(np.unpackbits(np.array([one.lanes], np.uint64).view(np.uint8), bitorder="little"))
            first, last = one.addresses[lanes] >> 2, (one.addresses[lanes] + one.size - 1) >> 2
            for part in range(int((last - first).max(initial=0)) + 1):
                held = first + part <= last
                dwords = (first + part)[held]
                rows.append(np.stack([dwords, np.full(len(dwords), one.order), np.full(len(dwords), number), lanes[held]], axis=1))
        table = np.concatenate(rows) if rows else np.zeros((0, 4), np.int64)
        self._dwords, ids = np.unique(table[:, 0], return_inverse=True)
        self._keys = ids.astype(np.int64) << 32 | table[:, 1]
        order = np.lexsort((table[:, 3], self._keys))  # if several lanes write the same dword, the highest wins
        self._keys, self._table = self._keys[order], table[order]

    def whole_before(self, address: int, nbytes: int, order: int) -> tuple[AccessNote, int] | bool:
        """Returns the last store to a dword before an access, and the lane, if it wrote all the given bytes of the dword.

        Returns False if no store wrote to the dword, True if the bytes must be looked up one by one (`last_store`). order: the
        access's position.
        """
        dword = int(np.searchsorted(self._dwords, address >> 2))
        if dword == len(self._dwords) or self._dwords[dword] != address >> 2:
            return False
        at = int(np.searchsorted(self._keys, dword << 32 | order)) - 1
        if at < 0 or self._keys[at] >> 32 != dword:
            return False
        one, lane = self._accesses[int(self._table[at, 2])], int(self._table[at, 3])
        first = one.addresses[lane]
        return (one, lane) if first <= address and address + nbytes <= first + one.size else True

    def last_store(self, address: int, order: int) -> tuple[AccessNote, int] | None:
        """Returns the last store of a byte before an access, and the lane that wrote it; None if there is none."""
        dword = int(np.searchsorted(self._dwords, address >> 2))
        if dword == len(self._dwords) or self._dwords[dword] != address >> 2:
            return None
        at = int(np.searchsorted(self._keys, dword << 32 | order)) - 1
        while at >= 0 and self._keys[at] >> 32 == dword:
            one, lane = self._accesses[int(self._table[at, 2])], int(self._table[at, 3])
            if one.addresses[lane] <= address < one.addresses[lane] + one.size:
                return one, lane
            at -= 1
        return None
