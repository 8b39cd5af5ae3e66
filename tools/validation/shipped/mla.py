"""Decode steps of multi-head latent attention: one query token a sequence, keys and values in pages of one token.

Arguments and grid: csrc/py_itfs_cu/asm_mla.cu, `mla_decode_stage1_asm_fwd`, not persistent; the sum over splits: aiter/mla.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu.tools.validation.aiter import ShippedLaunch
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase, fp8_of, relative_error, softmax

WIDTH, VALUES = 576, 512  # elements of a key, and of a value: the key's first ones
BOUNDS = {"bf16": 0.005, "fp8": 0.06}  # fp8: the weights of keys are rounded to 4 bits


@dataclass(frozen=True)
class Decode:
    """Extents of a decode step."""

    heads: int  # query heads, which share keys
    rows: int  # heads of a workgroup (`sub_Q` of the host code)
    dtype: str = "bf16"  # "bf16" or "fp8"
    splits: int = 2  # parts of the keys
    lengths: tuple[int, ...] = (100, 170)  # keys of each sequence

    def __call__(self, path: Path, board: str) -> ShippedCase:
        """Returns the launch of a code object."""
        rng = np.random.default_rng(0)
        kind, batch, total = _kind(self.dtype, board), len(self.lengths), sum(self.lengths)
        query = rng.standard_normal((batch, self.heads, WIDTH)).astype(kind)
        keys = rng.standard_normal((total + 7, WIDTH)).astype(kind)
        pages, starts = rng.permutation(total + 7)[:total].astype(np.int32), np.cumsum([0, *self.lengths]).astype(np.int32)
        inputs = {
            "Q": query, "KV": keys, "LTP": starts, "LTD": pages, "LTL": np.ones(batch, np.int32),
            "QTP": np.arange(batch + 1, dtype=np.int32), "STP": np.arange(batch + 1, dtype=np.int32) * self.splits,
            "one": np.ones(1, np.float32),
        }  # fmt: skip
        shape, row, scale = (batch, self.splits, self.heads), WIDTH * kind.itemsize, "one" if self.dtype == "fp8" else None
        values: list[str | int | float | None] = [
            "R", "LSE", "Q", "KV", "LTP", "LTD", "LTL", WIDTH**-0.5, self.heads, self.splits, self.heads * row, row, 0,
            "QTP", "STP", None, scale, scale, int(self.splits == 1), None, None, 1, 0,
        ]  # fmt: skip
        launch = ShippedLaunch(path, "", board, (-(-self.heads // self.rows), batch, self.splits), values)
        results = {"R": np.full((*shape, VALUES), np.nan, np.float32), "LSE": np.full(shape, np.nan, np.float32)}
        return ShippedCase(launch, inputs, results, self._error(query, keys, pages, starts), BOUNDS[self.dtype])

    def _error(self, query: np.ndarray, keys: np.ndarray, pages: np.ndarray, starts: np.ndarray) -> Callable[[Arrays], float]:
        def error(got: Arrays) -> float:
            wanted, found = [], []
            for at in range(len(query)):
                mine = keys[pages[starts[at] : starts[at + 1]]].astype(np.float64)
                weights = softmax(query[at].astype(np.float64) @ mine.T * WIDTH**-0.5)
                wanted.append(weights @ mine[:, :VALUES])
                found.append(_joined(got["R"][at].astype(np.float64), got["LSE"][at].astype(np.float64)))
            return relative_error(np.array(found), np.array(wanted))

        return error


def _joined(parts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Returns the result of all splits: a kernel leaves out splits without keys, as whole blocks of keys go to the first ones."""
    left_out = np.isnan(sums).all(axis=1) & np.isnan(parts).all(axis=(1, 2))
    weights = softmax(sums[~left_out].T).T
    joined: np.ndarray = (parts[~left_out] * weights[..., None]).sum(axis=0)
    return joined


def _kind(dtype: str, board: str) -> np.dtype:
    if dtype == "bf16":
        return np.dtype(ml_dtypes.bfloat16)
    return fp8_of(board)
