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
    matrix = shape[0] * shape[1]
    kinds = one.read & ~one.written, one.written & ~one.read, one.read & one.written
    totals = [int(kind.sum()) for kind in kinds]
    cells = np.stack([_cells(kind, shape) for kind in kinds], axis=-1)
    inside = sum(int(kind[:matrix].sum()) for kind in kinds)
    return {
        "name": name, "bytes": one.nbytes, "rows": shape[0], "row_bytes": shape[1], "read": totals[0] + totals[2],
        "written": totals[1] + totals[2], "both": totals[2], "never": one.nbytes - sum(totals), "behind": sum(totals) - inside,
        "cells": cells.reshape(-1).tolist(), "across": cells.shape[1], "down": cells.shape[0],
    }  # fmt: skip


def _cells(bits: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """(down, across), 0 to 255: the share of bytes set in each cell; what is not 0 is at least 1."""
    rows, width = shape
    room = np.zeros(rows * width, bool)
    room[: min(len(bits), room.size)] = bits[: room.size]
    down, across = min(rows, EDGE), min(width, EDGE)
    tops, lefts = (np.arange(count) * extent // count for count, extent in ((down, rows), (across, width)))
    sums = np.add.reduceat(np.add.reduceat(room.reshape(rows, width), tops, axis=0, dtype=np.int64), lefts, axis=1)
    area = np.diff(np.append(tops, rows))[:, None] * np.diff(np.append(lefts, width))[None]
    return np.ceil(255 * sums / area).astype(np.int64)
