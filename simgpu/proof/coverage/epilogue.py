"""Operands of an epilogue: which elements of other buffers a result has, and that they are those of its row and column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.values import (
    ANY_COLUMN,
    ANY_ROW,
    BESIDE,
    COLUMN,
    NOTHING,
    RESULT,
    UNKNOWN,
    ZEROS,
    Array,
    Cells,
    same,
)  # fmt: skip

GATED = 1  # bit of a result that is made of a pair of columns; the bits above it are for `Pointed.number`
LOW_BITS = {"v_cvt_f32_f16": 16, "v_cvt_f32_fp8": 8, "v_cvt_f32_bf8": 8, "v_cvt_f32_ubyte0": 8}  # that a conversion takes


def merge(mnemonic: str, words: Sequence[Cells], gated: bool) -> Cells | None:
    """Returns the result of an operation of floats; None if it is unknown.

    gated: results of columns 2j and 2j + 1 become one of column j, in lanes that have both. Other lanes may lack operands, and
    their results are unknown.

    Raises Violation for an operand of another row or column.
    """
    shape = max((each.code.shape for each in words), default=(0, 0))
    kinds = [each.kind for each in words]
    if any(np.all(kind == RESULT) for kind in kinds):
        words = [each for each, kind in zip(words, kinds, strict=True) if not np.all(kind == NOTHING)]
    elif any(np.any(kind == NOTHING) for kind in kinds):
        return Cells(np.full(shape, NOTHING))
    known = RESULT, BESIDE, ZEROS
    unknown = [~np.isin(each.kind, known) for each in words]
    partly = [gated and np.any(np.isin(each.kind, (RESULT, BESIDE))) for each in words]
    if not words or any(np.any(each) and not some for each, some in zip(unknown, partly, strict=True)):
        return None
    beside = [_element(each, LOW_BITS.get(mnemonic, 32)) for each in words if np.any(each.kind == BESIDE)]
    results = [each for each in words if np.any(each.kind == RESULT)]
    if len(beside) + len(results) < len(words) or any(each is None for each in beside):
        return None
    if len(results) > 1 and same(each.code for each in results):
        results = results[:1]
    made, *others = [*results, *(each for each in beside if each is not None)]
    for other in others:
        made = _join(made, other, gated)
    return Cells(np.where(np.logical_or.reduce(unknown), UNKNOWN, made.code))


def _element(word: Cells, bits: int) -> Cells | None:
    """Returns the element in the low bits of a word, in each of its pieces. Lanes whose word is unknown get that of any other."""
    pieces = word.code.shape[1]
    low = word.code[:, : bits * pieces // 32]
    kinds = low & 7
    if not np.all(np.isin(kinds, (BESIDE, ZEROS, UNKNOWN))):
        return None
    lost = np.any(kinds == UNKNOWN, axis=1)
    element = Cells.of(BESIDE, 0, Cells(low).outer, Cells(low).k).code
    chosen = np.max(np.where(kinds == BESIDE, element, -1), axis=1)
    chosen = np.where(lost, np.max(chosen), chosen)
    if np.any((kinds == BESIDE) & (element != chosen[:, None]) & ~lost[:, None]) or np.any(chosen < 0):
        return None
    return Cells(np.repeat(chosen[:, None], pieces, axis=1))


def _join(one: Cells, two: Cells, gated: bool) -> Cells:
    """Returns what a result, or an operand, is with another one."""
    row, right_row = _either(one.outer, two.outer, ANY_ROW)
    column, right_column = _either(one.column, two.column, ANY_COLUMN)
    operands = one.operands | two.operands
    both = (one.kind == RESULT) & (two.kind == RESULT)
    if gated:
        pair = both & (one.column ^ 1 == two.column) & (operands & GATED == 0)
        column = np.where(pair, one.column >> 1, column)
        operands, right_column = np.where(pair, operands | GATED, operands), right_column | pair
    elif not np.all(right_row & right_column):
        raise Violation("C: an operand of the epilogue is that of another row or column")
    if np.any((one.operands & two.operands != 0) & ~both):
        raise Violation("C: an operand of the epilogue is taken twice")
    result = np.where((one.kind == RESULT) | (two.kind == RESULT), RESULT, BESIDE)
    part = np.where(one.kind == RESULT, one.part, two.part)
    made = Cells.of(0, part, row, column | operands << COLUMN).code + result
    return Cells(np.where(right_row & right_column, made, UNKNOWN))


def _either(one: Array, two: Array, unset: int) -> tuple[Array, Array]:
    """Returns numbers of which one may be unset, and whether they agree."""
    return np.where(one == unset, two, one), (one == unset) | (two == unset) | (one == two)
