"""The memory of a program's devices, as their launches see it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest

from simgpu.hip.gpus import GPUs
from simgpu.hip.memory import Arena
from simgpu.hip.options import Options
from simgpu.hip.server import Server

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


def test_each_entry_of_the_log_is_read_once() -> None:
    """Launches of several threads come with positions in any order."""
    server = object.__new__(Server)
    seen: list[int] = []
    server._log, server._read = np.arange(9), 0  # type: ignore[assignment]
    server._options = SimpleNamespace(pad=0)  # type: ignore[assignment]
    server._gpus = SimpleNamespace(change=lambda entry, pad: seen.append(int(entry)))  # type: ignore[assignment]
    for position in (2, 1, 2, 5, 3, 9, 4):
        server._read_log(position)
    assert seen == list(range(9))
