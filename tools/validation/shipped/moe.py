"""A layer of experts in one kernel: fp8 tokens and weights with a scale for each row, silu(gate) * up, then down. Result in bf16.

Arguments and grid: csrc/py_itfs_cu/asm_fmoe.cu, `fmoe_g1u1`. Sorted tokens: op_tests/test_moe_sorting.py of AITER.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

from simgpu.hardware import target
from simgpu.hardware.dtypes import numpy_dtype
from simgpu.tools.validation.aiter import ShippedLaunch
from simgpu.tools.validation.shipped.case import Arrays, ShippedCase, ordered_weight, relative_error

BLOCK = 32  # rows of a workgroup, all of one expert
BOUND = 0.06  # the products of gate and up are rounded to fp8


@dataclass(frozen=True)
class ExpertLayer:
    """Extents of a layer."""

    tile: int  # inner columns of a workgroup
    tokens: int = 40
    width: int = 512  # a multiple of 512: the kernels take pairs of 256 columns
    inner: int = 0  # inner columns (default: of one workgroup)
    experts: int = 4
    top: int = 2  # experts of a token
    persistent: int = 0  # workgroups of a `_ps_` object, which share the blocks; 0: one for each block and tile

    def __call__(self, path: Path, board: str) -> ShippedCase:
        """Returns the launch of a code object."""
        rng, kind, inner = np.random.default_rng(0), numpy_dtype("fp8", target(board).arch), self.inner or self.tile
        tokens, experts, width = self.tokens, self.experts, self.width
        shapes = {"X": (tokens, width), "GU": (experts, 2 * inner, width), "D": (experts, width, inner)}
        given = {name: rng.standard_normal(shape).astype(kind) for name, shape in shapes.items()}
        scales = {f"{name}Q": (rng.uniform(0.5, 1.5, shape[:-1]) / 16).astype(np.float32) for name, shape in shapes.items()}
        chosen = np.argsort(rng.random((tokens, experts)))[:, : self.top]
        weights = rng.uniform(0.1, 1, chosen.shape).astype(np.float32)
        sorting = self._sort(chosen, weights)
        parts = inner // self.tile
        values: list[str | int | float | None] = [
            "O", "X", "GU", "XC", "D", "XQ", "GUQ", "DQ", None, "STP", "SW", "SEP", width, inner, tokens, experts,
            width, width, inner, 2 * width, 2 * inner * width, inner * width, 8 * inner, 4 * width, 4 * inner,
            self.top, self.persistent // parts * parts, parts,
        ]  # fmt: skip
        grid = (self.persistent, 1, 1) if self.persistent else (parts, len(sorting["SEP"]), 1)
        launch = ShippedLaunch(path, "", board, grid, values)
        whole = {name: given[name].astype(np.float64) * scales[f"{name}Q"][..., None] for name in shapes}
        want = np.zeros((tokens, width))
        for token, place in np.ndindex(chosen.shape):
            expert = chosen[token, place]
            both = whole["GU"][expert] @ whole["X"][token]
            gate, up = both[:inner], both[inner:]
            want[token] += weights[token, place] * (whole["D"][expert] @ (gate / (1 + np.exp(-gate)) * up))
        ordered = {name: ordered_weight(given[name].view(np.uint8)) for name in ("GU", "D")}
        inputs = {"X": given["X"], **ordered, **scales, **sorting}

        def error(got: Arrays) -> float:
            return relative_error(got["O"].view(ml_dtypes.bfloat16), want)

        return ShippedCase(launch, inputs, {"O": np.zeros((tokens, width), np.uint16)}, error, BOUND)

    def _sort(self, experts: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Returns tokens by expert, each expert's padded to whole blocks: token | place << 24, weight; the expert of each block."""
        tokens, of_tokens, blocks = [], [], []
        for expert in range(self.experts):
            mine = np.argwhere(experts == expert)
            count = -(-len(mine) // BLOCK) * BLOCK
            filled = np.full(count, self.top << 24 | self.tokens, np.int32)
            filled[: len(mine)] = mine[:, 1] << 24 | mine[:, 0]
            tokens.append(filled)
            of_tokens.append(np.pad(weights[experts == expert], (0, count - len(mine))))
            blocks += [expert] * (count // BLOCK)
        valid = np.array([len(blocks) * BLOCK, self.tokens], np.int32)
        return {
            "STP": np.concatenate(tokens), "SW": np.concatenate(of_tokens), "SEP": np.array(blocks, np.int32), "XC": valid,
        }  # fmt: skip
