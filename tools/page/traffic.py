"""Which bytes of each buffer a launch read and wrote, as pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simgpu.tools.page.watching import Touched

EDGE = 96  # cells of a picture's side at most


def traffic_document(
    touched: Sequence[Touched], names: Mapping[int, str], shapes: Mapping[int, tuple[int, int]]
) -> list[dict[str, Any]]:
    """A picture a buffer. names: of arguments, by address; shapes: rows and bytes of a row, by address, where a buffer is a matrix.

    Cells hold the share, 0 to 255, of their bytes that were read only, written only, and both, in that order.
    """
    return [
        _picture(one, names.get(one.address, one.label or hex(one.address)), shapes.get(one.address))
        for one in sorted(touched, key=lambda one: (one.address not in names, one.address))
        if one.nbytes and (one.address in names or one.read.any() or one.written.any())
    ]


def _picture(one: Touched, name: str, shape: tuple[int, int] | None) -> dict[str, Any]:
    if shape is None or shape[0] * shape[1] > one.nbytes or not shape[0] * shape[1]:
        width = max(64, 1 << ((one.nbytes - 1).bit_length() + 1) // 2)
        shape = (-(-one.nbytes // width), width)
    kinds = one.read & ~one.written, one.written & ~one.read, one.read & one.written
    totals = [int(np.bitwise_count(kind).sum(dtype=np.int64)) for kind in kinds]
    unit = 8 if shape[1] % 8 == 0 else 1  # bytes that count as one: of a row of whole bytes of bits, those
    counts = [_counts(kind, shape, unit) for kind in kinds]
    cells = np.stack([_cells(each, unit) for each in counts], axis=-1)
    return {
        "name": name, "bytes": one.nbytes, "rows": shape[0], "row_bytes": shape[1], "unit": unit, "read": totals[0] + totals[2],
        "written": totals[1] + totals[2], "both": totals[2], "never": one.nbytes - sum(totals),
        "behind": sum(totals) - sum(int(each.sum(dtype=np.int64)) for each in counts),
        "cells": cells.reshape(-1).tolist(), "across": cells.shape[1], "down": cells.shape[0],
    }  # fmt: skip


def _counts(bits: np.ndarray, shape: tuple[int, int], unit: int) -> np.ndarray:
    """uint8 (rows, units of a row): how many bytes of each unit are set."""
    rows, width = shape
    counts = np.bitwise_count(bits) if unit == 8 else np.unpackbits(bits, bitorder="little")
    room = np.zeros(rows * width // unit, np.uint8)
    room[: min(len(counts), room.size)] = counts[: room.size]
    return room.reshape(rows, -1)


def _cells(counts: np.ndarray, unit: int) -> np.ndarray:
    """(down, across), 0 to 255: the share of bytes set in each cell; what is not 0 is at least 1."""
    rows, width = counts.shape
    down, across = min(rows, EDGE), min(width, EDGE)
    tops, lefts = (np.arange(count) * extent // count for count, extent in ((down, rows), (across, width)))
    starts = (np.arange(rows)[:, None] * width + lefts).reshape(-1)
    by_row = np.add.reduceat(counts.reshape(-1), starts, dtype=np.uint32).reshape(rows, across)
    sums = np.add.reduceat(by_row, tops, axis=0, dtype=np.int64)
    area = unit * np.diff(np.append(tops, rows))[:, None] * np.diff(np.append(lefts, width))[None]
    return np.ceil(255 * sums / area).astype(np.int64)
