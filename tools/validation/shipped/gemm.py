"""D (m, n) = A (m, k) B (n, k)^T of fp4 elements, with an e8m0 scale for each 32 along k. D is bf16.

Arguments and grid: `aiter._fp4`. The order of the scales in memory: `shuffle_scale` of AITER's
aiter/ops/shuffle.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu.hardware.dtypes import unpack
from simgpu.tools.validation.aiter import FAMILIES
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase, ordered_weight, relative_error

GROUP = 32  # elements of a scale
SCALES = range(124, 131)  # codes of scales: 2^-3 to 2^3
BOUND = 0.01  # of bf16, and of a sum of two bf16 parts


@dataclass(frozen=True)
class MatrixProduct4:
    """Extents of a product."""

    m: int
    n: int
    k: int
    tile: tuple[int, int]
    split: int = 0  # log2 of the number of parts of k

    def __call__(self, path: Path, board: str) -> ShippedCase:
        """Returns the launch of a code object."""
        rng = np.random.default_rng(0)
        tile = {"tilem": self.tile[0], "tilen": self.tile[1], "splitk": int(self.split > 0)}
        launch = FAMILIES["f4gemm"](path, "", board, self.m, self.n, self.k, self.split, tile)
        rows, columns = (-(-size // 256) * 256 for size in (self.m, self.n))
        a, b = (rng.integers(0, 256, (size, self.k // 2), np.uint8) for size in (rows, columns))
        scales = [rng.integers(SCALES.start, SCALES.stop, (size, self.k // GROUP), np.uint8) for size in (rows, columns)]
        want = _values(a, scales[0])[: self.m] @ _values(b, scales[1])[: self.n].T
        inputs = {"A": a, "B": ordered_weight(b), "scaleA": ordered_scale(scales[0]), "scaleB": ordered_scale(scales[1])}

        def error(got: Arrays) -> float:
            return relative_error(got["D"][: self.m].view(ml_dtypes.bfloat16), want)

        return ShippedCase(launch, inputs, {"D": np.zeros((rows, self.n), np.uint16)}, error, BOUND)


def _values(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Returns a matrix in float64."""
    values, factors = (unpack(raw, name).astype(np.float64) for raw, name in ((codes, "fp4"), (scales, "e8m0")))
    scaled: np.ndarray = values * factors.repeat(GROUP, axis=1)
    return scaled


def ordered_scale(scales: np.ndarray) -> np.ndarray:
    """Returns scales (rows, k / 32) in the order of memory; rows are a multiple of 32, their scales of 8."""
    rows, width = scales.shape
    tiles = scales.reshape(rows // 32, 2, 16, width // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)
    return np.ascontiguousarray(tiles).reshape(rows, width)
