"""Forward attention in bf16, d = 128, as many keys as queries. Arguments and grid: `aiter.attention`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu.tools.validation import aiter
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase, relative_error, softmax

BOUND = 0.01


@dataclass(frozen=True)
class ForwardAttention:
    """Extents of a launch."""

    length: int
    heads: int
    causal: bool = False

    def __call__(self, path: Path, board: str) -> ShippedCase:
        """Returns the launch of a code object."""
        launch = aiter.attention_of(path, board, aiter.AttentionExtents(self.length, self.heads, self.causal))
        rng = np.random.default_rng(0)
        shape = self.heads, self.length, aiter.WIDTH
        inputs = {name: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for name in "QKV"}
        query, key, value = (array.astype(np.float64) for array in inputs.values())
        scores = query @ key.transpose(0, 2, 1) * aiter.WIDTH**-0.5
        if self.causal:
            scores = np.where(np.tri(self.length, dtype=bool), scores, -np.inf)
        want = softmax(scores) @ value

        def error(got: Arrays) -> float:
            return relative_error(got["O"].view(ml_dtypes.bfloat16), want)

        return ShippedCase(launch, inputs, {"O": np.full(shape, 0xFFFF, np.uint16)}, error, BOUND)
