"""Grouped GEMM: one launch multiplies the rows of each group by the group's own matrix, as in a mixture of experts.

The kernel reads the number of rows of each group from memory: `group_rows`, int32. The groups' rows are consecutive in A, C and
the residual. B, the bias and B's scales have a leading dimension of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from simgpu.operators.gemm.epilogue import GemmArrays
from simgpu.operators.gemm.problem import MX_BLOCK, GemmProblem


def parts(problem: GemmProblem, given: GemmArrays) -> Iterator[tuple[GemmProblem, GemmArrays]]:
    """Yields each group that has rows as a GEMM of its own."""
    assert given.group_rows is not None
    ends = np.cumsum(given.group_rows)
    for number, (end, rows) in enumerate(zip(ends, given.group_rows, strict=True)):
        if rows:
            places = {name: number if name in ("b", "bias", "scale_b") else slice(end - rows, end) for name in given.arrays}
            if problem.scales == "tensor":
                places["scale_a"] = slice(None)
            del places["group_rows"]
            one = replace(problem, m=int(rows), groups=0)
            arrays = {name: given.arrays[name][place] for name, place in places.items()}
            if problem.scales == "mx":  # adjacent rows, padded
                scales = np.zeros((problem.k // MX_BLOCK, one.mx_rows[0]), given.arrays["scale_a"].dtype)
                scales[:, :rows] = given.arrays["scale_a"][:, end - rows : end]
                arrays["scale_a"] = scales
            yield one, GemmArrays(**arrays)
