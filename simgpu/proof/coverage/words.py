"""Words that loads bring from a matrix: which elements their pieces are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.proof.coverage.claims import CHUNK, Violation
from simgpu.proof.coverage.forms import Form, of_panel
from simgpu.proof.coverage.pieces import WORD
from simgpu.proof.coverage.values import ANY_COLUMN, ANY_ROW, BESIDE, COLUMN, ZEROS, Array, Cells


@dataclass(frozen=True)
class Pointed:
    """A matrix by the kernel's arguments: its pointer, the stride from row to row, the distance to the next matrix of a batch."""

    kind: int  # A, B, RESULT, or BESIDE for an operand of the epilogue
    axes: tuple[str, str]  # of a vector: ("", its axis)
    stride: str
    batch: str
    bits: int  # of an element
    number: int = 0  # of an operand of the epilogue, from 1 on; of C, that of its old elements
    panel: int = 0  # rows of a panel of a preshuffled matrix; 0: it is not preshuffled


def whole_elements(matrix: Pointed, rows: Form, column: Form) -> tuple[Form, Form]:
    """Returns row and column of the element at a distance: rows · stride + bytes. Raises Violation."""
    row, place = (form.times(8).quotient(matrix.bits) for form in (rows, column))
    if row is not None and place is not None:
        found = of_panel(row, place, matrix.panel, 8 * CHUNK // matrix.bits) if matrix.panel else (row, place)
        if found is not None:
            return found
    raise Violation("an address that is not that of an element")


def pieces(matrix: Pointed, column: Array, word: int, count: int) -> tuple[Array, Array]:
    """Returns columns of a word's pieces, and the pieces' numbers in their elements. column: in bits. count: of pieces."""
    bits = WORD // count
    places = column[:, None] + WORD * word + bits * np.arange(count)
    return places // matrix.bits, places % matrix.bits // bits


def operand(matrix: Pointed, part: Any, row: Any = ANY_ROW, column: Any = ANY_COLUMN) -> Cells:
    """Returns pieces of an operand of the epilogue."""
    return Cells.of(BESIDE, part, row, column + (1 << matrix.number + COLUMN))


def load_word(matrix: Pointed, row: Array, column: Array, word: int, bits: int, count: int) -> Cells:
    """Returns a word of a load of `bits` bits. column: in bits. count: pieces of a word."""
    columns, parts = pieces(matrix, column, word, count)
    rows = np.broadcast_to(row[:, None], columns.shape)
    if matrix.number:
        along: dict[str, Any] = dict(zip(matrix.axes, (rows, columns), strict=True))
        cells = operand(matrix, parts, along.get("m", ANY_ROW), along.get("n", along.get("n/2", ANY_COLUMN)))
    else:
        k, outer = (rows, columns) if matrix.axes[0] == "k" else (columns, rows)
        cells = Cells.of(matrix.kind, parts, outer, k)
    codes = np.broadcast_to(cells.code, columns.shape).copy()
    codes[:, bits * count // WORD :] = ZEROS
    return Cells(codes)
