"""Decode steps of multi-head latent attention: one query token a sequence, keys and values in pages of one token.

Arguments and grid: csrc/py_itfs_cu/asm_mla.cu, `mla_decode_stage1_asm_fwd`; the sum over splits: aiter/mla.py; a persistent
kernel's list of work: csrc/include/mla.h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu.hardware import target
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.tools.validation.aiter import ShippedLaunch
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase, relative_error, softmax

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
        kind, batch = numpy_dtype(self.dtype, target(board).arch), len(self.lengths)
        query = rng.standard_normal((batch, self.heads, WIDTH)).astype(kind)
        cache = _cache(rng, kind, self.lengths)
        inputs = {
            "Q": query, **cache,
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
        return ShippedCase(launch, inputs, results, self._error(query, cache), BOUNDS[self.dtype])

    def _error(self, query: np.ndarray, cache: Arrays) -> Callable[[Arrays], float]:
        def error(got: Arrays) -> float:
            wanted, found = [], []
            for at in range(len(query)):
                mine = _keys(cache, at)
                weights = softmax(query[at].astype(np.float64) @ mine.T * WIDTH**-0.5)
                wanted.append(weights @ mine[:, :VALUES])
                found.append(_join(got["R"][at].astype(np.float64), got["LSE"][at].astype(np.float64)))
            return relative_error(np.array(found), np.array(wanted))

        return error


@dataclass(frozen=True)
class PersistentDecode:
    """Extents of a decode step of several query tokens a sequence, whose workgroups take their work from a list. In bf16."""

    heads: int
    tokens: int  # query tokens of a sequence, its last ones: each sees the keys up to its own
    lengths: tuple[int, ...] = (100, 170)  # keys of each sequence

    def __call__(self, path: Path, board: str) -> ShippedCase:
        """Returns the launch of a code object: a workgroup for each sequence."""
        rng, kind, batch = np.random.default_rng(0), numpy_dtype("bf16"), len(self.lengths)
        query = rng.standard_normal((batch * self.tokens, self.heads, WIDTH)).astype(kind)
        cache = _cache(rng, kind, self.lengths)
        starts, first = cache["LTP"], np.arange(batch + 1, dtype=np.int32) * self.tokens
        # Sequence, -1 (it has one part), its query tokens, its keys, no offset, unused.
        work = [[at, -1, first[at], first[at + 1], starts[at], starts[at + 1], 0, 0] for at in range(batch)]
        inputs = {
            "Q": query, **cache, "QTP": first,
            "work": np.array(work, np.int32), "works": np.arange(batch + 1, dtype=np.int32),
        }  # fmt: skip
        row, shape = WIDTH * kind.itemsize, (len(query), self.heads, VALUES)
        values: list[str | int | float | None] = [
            "R", "LSE", "Q", "KV", "LTP", "LTD", "LTL", WIDTH**-0.5, self.heads, 1, self.tokens * self.heads * row, row, 0,
            "QTP", "META", "O", None, None, 1, None, None, 1, 0,
        ]  # fmt: skip
        launch = ShippedLaunch(path, "", board, (batch, 1, 1), values)
        parts = {"R": np.full(shape, np.nan, np.float32), "LSE": np.full(shape[:2], np.nan, np.float32)}
        want = np.zeros(shape)
        for at, token in np.ndindex(batch, self.tokens):
            mine = _keys(cache, at)
            mine = mine[: len(mine) - (self.tokens - 1 - token)]
            now = at * self.tokens + token
            want[now] = softmax(query[now].astype(np.float64) @ mine.T * WIDTH**-0.5) @ mine[:, :VALUES]

        def error(got: Arrays) -> float:
            return relative_error(got["O"].view(ml_dtypes.bfloat16), want)

        results = {"O": np.full(shape, 0xFFFF, np.uint16)}
        return ShippedCase(launch, inputs | parts, results, error, BOUNDS["bf16"], {"META": ("works", "work")})


def _cache(rng: np.random.Generator, kind: np.dtype, lengths: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns the arguments for keys in pages, a few of which no sequence has."""
    total = sum(lengths)
    return {
        "KV": rng.standard_normal((total + 7, WIDTH)).astype(kind),
        "LTD": rng.permutation(total + 7)[:total].astype(np.int32),
        "LTP": np.cumsum([0, *lengths]).astype(np.int32),
        "LTL": np.ones(len(lengths), np.int32),
    }


def _keys(cache: Arrays, sequence: int) -> np.ndarray:
    """Returns a sequence's keys in float64."""
    first, end = cache["LTP"][sequence : sequence + 2]
    found: np.ndarray = cache["KV"][cache["LTD"][first:end]].astype(np.float64)
    return found


def _join(parts: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Returns the result of all splits: a kernel leaves out splits without keys, as whole blocks of keys go to the first ones."""
    left_out = np.isnan(sums).all(axis=1) & np.isnan(parts).all(axis=(1, 2))
    weights = softmax(sums[~left_out].T).T
    joined: np.ndarray = (parts[~left_out] * weights[..., None]).sum(axis=0)
    return joined
