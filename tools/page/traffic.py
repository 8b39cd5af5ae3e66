"""Pictures of the bytes of each buffer that a launch read and wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.tools.page.watching import TouchedAllocation

EDGE = 96  # cells on a picture's side at most


@dataclass(frozen=True)
class Outside:
    """An instruction's accesses beyond a buffer."""

    address: int  # in the buffer, or the accessed one outside it
    row: int  # of the code
    lanes: int = 0  # lanes that a buffer resource clips: their loads give 0, their stores are dropped
    wrong: str = ""  # checked mode's message, if the access is an error


def traffic_document(
    touched: Sequence[TouchedAllocation], names: Mapping[int, str],
    shapes: Mapping[int, tuple[int, int]], outside: Sequence[Outside] = ()
) -> list[dict[str, Any]]:
    """Returns one picture per buffer. names: of arguments, by address; shapes: a matrix's rows and bytes of a row, by address.

    Cells hold the fraction, 0 to 255, of their bytes that were only read, only written, and both, in that order. `times`: the
    average number of reads of those bytes of a cell that were read, in tenths.
    """
    shown = [one for one in touched if one.nbytes and (one.address in names or one.read.any() or one.written.any())]
    owners = {id(entry): _owner(shown, entry.address) for entry in outside}
    return [
        _picture(one, names.get(one.address, one.label or hex(one.address)), shapes.get(one.address))
        | {"clipped": [[e.row, e.lanes] for e in outside if e.lanes and owners[id(e)] == one.address]}
        | {"wrong": [[e.row, e.wrong] for e in outside if e.wrong and owners[id(e)] == one.address]}
        for one in sorted(shown, key=lambda one: (one.address not in names, one.address))
    ]


def _owner(buffers: Sequence[TouchedAllocation], address: int) -> int | None:
    """Returns the address of the last buffer that begins at or before an address, else of the first; None without buffers."""
    addresses = sorted(one.address for one in buffers)
    return max((first for first in addresses if first <= address), default=addresses[0] if addresses else None)


def _picture(one: TouchedAllocation, name: str, shape: tuple[int, int] | None) -> dict[str, Any]:
    if shape is None or shape[0] * shape[1] > one.nbytes or not shape[0] * shape[1]:
        width = max(64, 1 << ((one.nbytes - 1).bit_length() + 1) // 2)
        shape = (-(-one.nbytes // width), width)
    kinds = one.read & ~one.written, one.written & ~one.read, one.read & one.written
    totals = [int(np.bitwise_count(kind).sum(dtype=np.int64)) for kind in kinds]
    unit = 8 if shape[1] % 8 == 0 else 1  # bytes that count as one: 8 if a row's bits fill whole bytes
    counts = [_counts(kind, shape, unit) for kind in kinds]
    sums = [_cells(each) for each in counts]
    rows, columns = _edges(shape[0]), _edges(shape[1] // unit)
    area = unit * np.diff(rows)[:, None] * np.diff(columns)[None]
    cells = np.ceil(255 * np.stack(sums, axis=-1) / area[..., None]).astype(np.int64)  # nonzero counts become at least 1
    return {
        "name": name, "bytes": one.nbytes, "rows": shape[0], "row_bytes": shape[1], "unit": unit, "read": totals[0] + totals[2],
        "written": totals[1] + totals[2], "both": totals[2], "never": one.nbytes - sum(totals),
        "behind": sum(totals) - sum(int(each.sum(dtype=np.int64)) for each in counts),
        "cells": cells.reshape(-1).tolist(), "across": cells.shape[1], "down": cells.shape[0],
        **({} if one.times is None else _rereads(one.times, shape, unit, sums[0] + sums[2])),
    }  # fmt: skip


def _rereads(times: np.ndarray, shape: tuple[int, int], unit: int, read: np.ndarray) -> dict[str, Any]:
    """Returns how often bytes were read: the most, the number read more than once, and the average of each cell in tenths.

    read: bytes by cell.
    """
    room = np.zeros(shape[0] * shape[1], np.uint16)
    room[: min(len(times), room.size)] = times[: room.size]
    sums = _cells(np.add.reduceat(room, np.arange(0, room.size, unit), dtype=np.uint32).reshape(shape[0], -1))
    average = np.rint(10 * sums / np.maximum(read, 1)).astype(np.int64)
    return {
        "again": int((times > 1).sum()), "most": int(times.max(initial=0)), "asked": int(times.sum(dtype=np.int64)),
        "times": average.reshape(-1).tolist(),
    }  # fmt: skip


def _edges(extent: int) -> np.ndarray:
    """Returns the start of each cell of a side, and the side's end."""
    count = min(extent, EDGE)
    return np.arange(count + 1) * extent // count


def _counts(bits: np.ndarray, shape: tuple[int, int], unit: int) -> np.ndarray:
    """Returns uint8 (rows, units of a row): the number of set bytes in each unit."""
    rows, width = shape
    counts = np.bitwise_count(bits) if unit == 8 else np.unpackbits(bits, bitorder="little")
    room = np.zeros(rows * width // unit, np.uint8)
    room[: min(len(counts), room.size)] = counts[: room.size]
    return room.reshape(rows, -1)


def _cells(counts: np.ndarray) -> np.ndarray:
    """Returns int64 (down, across): the sum of `counts` (rows, units of a row) in each cell."""
    rows, width = counts.shape
    tops, lefts = _edges(rows)[:-1], _edges(width)[:-1]
    starts = (np.arange(rows)[:, None] * width + lefts).reshape(-1)
    by_row = np.add.reduceat(counts.reshape(-1), starts, dtype=np.int64).reshape(rows, len(lefts))
    return np.add.reduceat(by_row, tops, axis=0)
