"""Slices of compilers' kernels (../shared/corpus) give the bytes of one thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import simgpu
from simgpu.tools.robustness.corpus import cases
from tests.support.exhaustive import one_in
from tests.support.places import CORPUS

CASES = cases(str(CORPUS)) if CORPUS.is_dir() else []

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not CASES, reason="../shared/corpus is not here")]
# Atomics of all workgroups on the same words: each slice reads the previous one's writes.
AGAIN = "ran in the caller's process: it reads data that an earlier one wrote"


@pytest.mark.parametrize("case", one_in(3, CASES), ids=lambda case: case.name)
def test_slices_give_the_bytes_of_one_thread(case):
    gpu = simgpu.Device(case.target, threads=1)
    kernel = gpu.load(case.code)[case.entry]
    run, want = case.launch(gpu, kernel)
    with ThreadPoolExecutor(1) as pool:
        for slices in (2, 3, 7):
            again, found = case.launch(gpu, kernel, executor=pool, slices=slices)
            assert [one.tobytes() for one in found] == [one.tobytes() for one in want]
            assert (again.instructions, again.counters, again.profile) == (run.instructions, run.counters, run.profile)
            assert all(AGAIN in note for note in again.notes[len(run.notes) :])
