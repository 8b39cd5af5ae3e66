"""The memory of a program's devices, as their launches see it."""

from __future__ import annotations

import os

import numpy as np
import pytest

from simgpu.hip.gpus import GPUs
from simgpu.hip.memory import Arena
from simgpu.hip.options import Options

BASE, NBYTES = 0x100000000000, 1 << 24


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_a_launch_counts_bytes_only_as_they_are_requested(check: bool) -> None:
    """To count each byte once takes bitmaps of all memory, and time by the launch: no report of HIP programs has that."""
    files = [os.memfd_create(name) for name in ("arena", "shadow")]
    for file in files:
        os.ftruncate(file, NBYTES)
    gpus = GPUs(Options(("mi300x",), check=check), Arena(*files, BASE, NBYTES, 1 << 20))
    device = gpus.gpus[0].checking
    buffer = device.upload(np.arange(64, dtype=np.uint32))
    _, table = device.memory.table()
    assert len(table) >= 2 and table.bitmaps is None
    assert buffer.nbytes == 256
    for file in files:
        os.close(file)
