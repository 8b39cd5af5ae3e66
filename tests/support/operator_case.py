"""An operator's kernels in checked mode, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np

import simgpu
from simgpu import asm
from simgpu.tools.cases.execute import execute
from simgpu.tools.cases.operators import workload
from simgpu.tools.shared.inputs import INPUTS


def assert_right_in_checked_mode(tree: Any, board: str) -> None:
    """Asserts that all results are finite and within their bounds, that nothing else is written, and that nothing is found."""
    work, kernel = workload(tree, tree.descriptor.arch, 0), asm.emit(tree)
    (after, *beside), runs = execute(simgpu.Device(board, check=True), kernel, work)
    assert [finding for one in runs for finding in one.findings] == []
    verdicts = [work.compare(after, kernel.operands[work.result]), *work.compare_beside(beside, kernel.operands)]
    assert all(verdict.passed for verdict in verdicts), (tree.problem, board, verdicts)
    assert all(np.isfinite(want()).all() for want in (work.want, *(each.want for each in work.beside)))


def assert_right_for_all_inputs(tree: Any) -> None:
    """Asserts that the result is within its bound for each distribution of inputs: large, tiny, subnormal, ties, one-hot rows."""
    gpu, kernel = simgpu.Device(tree.descriptor), asm.emit(tree)
    for name in INPUTS:
        work = workload(tree, tree.descriptor.arch, 0, name)
        buffers = [gpu.upload(array) for array in work.arrays]
        asm.launch(kernel, gpu, *buffers)
        flat = work.operands[work.result].flat
        assert work.compare(buffers[work.result].download(flat.dtype, flat.shape), kernel.operands[work.result]).passed, name
