"""A grid's barrier in checked mode: it orders accesses before and after it, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.hip.options import HipSource
from simgpu.tools.shared.hiprtc import compile_source, device_library

# Each round reads what other workgroups wrote in the one before. All threads but those of round SKIPPED meet after it.
SOURCE = """extern "C" __global__ void k(int *a, int n) {
    auto grid = cooperative_groups::this_grid();
    for (int round = 0; round < 4; ++round, a += n) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) a[n + i] = a[(i * 7 + 1) % n] + 1;
        if (round != SKIPPED) grid.sync();
    }
}"""
# By ds_gws_barrier on the first two, by atomics on the grid's memory on the others.
TARGETS = ["gfx908", "gfx90a", "gfx942", "gfx950"]


def launched(target: str, skipped: int, threads: int = 1) -> tuple[np.ndarray, list[str]]:
    """Returns the last round's numbers and the kinds of the findings."""
    if device_library() is None:
        pytest.skip("no ocml.bc and ockl.bc: neither ROCm nor the triton wheel is installed")
    code, log = compile_source(HipSource(SOURCE, target, (f"-DSKIPPED={skipped}",), file="k.hip"))
    assert code is not None, log
    gpu, n = simgpu.Device(target, check=True, threads=threads), 1000
    numbers = np.zeros(5 * n, np.int32)
    numbers[:n] = np.arange(n)
    memory = gpu.upload(numbers)
    run = gpu.load(code)["k"].launch(grid=5, block=128, args=[memory, n], cooperative=True)
    return memory.download(np.int32, (5, n))[4], [finding.kind for finding in run.findings]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", TARGETS)
def test_the_grid_meets_after_each_round(target: str, threads: int) -> None:
    want = np.arange(1000)
    for _ in range(4):
        want = want[(np.arange(1000) * 7 + 1) % 1000] + 1
    numbers, found = launched(target, -1, threads)
    assert np.array_equal(numbers, want) and found == []


@pytest.mark.parametrize("target", TARGETS)
def test_rounds_without_a_barrier_between_them_race(target: str) -> None:
    assert set(launched(target, 1)[1]) == {"race"}
