"""Attention of long sequences against float64: blocks of rows spread over all rows, since S does not fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simgpu.operators import reference
from simgpu.operators.attention.plan import AttentionProblem
from simgpu.operators.tree import Extent

BLOCK, BLOCKS = 64, 16  # rows in a block, and number of blocks: 1,024 rows


@dataclass(frozen=True)
class RowsVerdict:
    """Error of some rows of a result against float64."""

    rows: int  # rows that were compared
    wrong: int  # elements outside the bound
    max_error: float

    @property
    def passed(self) -> bool:
        return not self.wrong


def row_blocks(rows: int) -> list[Extent]:
    """Returns blocks spread from the first to the last row; all rows if there are few."""
    if rows <= BLOCK * BLOCKS:
        return [Extent.whole(rows)]
    starts = [number * (rows - BLOCK) // (BLOCKS - 1) for number in range(BLOCKS)]
    return [Extent(start, start + BLOCK, BLOCK) for start in starts]


def compare_rows(problem: AttentionProblem, q: np.ndarray, k: np.ndarray, v: np.ndarray, result: np.ndarray) -> RowsVerdict:
    """Compares one head's result (lq,d) with float64, in the rows of `row_blocks`."""
    q, k, v = (x[None, None] for x in (q, k, v))
    rows = wrong = 0
    largest = 0.0
    for block in row_blocks(problem.lq):
        error = np.abs(result[block.slice] - reference.attention(problem, q, k, v, queries=block)[0, 0])
        np.nan_to_num(error, copy=False, nan=np.inf)
        wrong += int((error > reference.attention_error_bound(problem, q, k, v, queries=block)[0, 0]).sum())
        rows, largest = rows + len(block), max(largest, float(error.max()))
    return RowsVerdict(rows, wrong, largest)
