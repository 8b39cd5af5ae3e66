"""Memory of a program's devices, as their launches see it."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from simgpu.hip.gpus import GPUs, LaunchShape
from simgpu.hip.memory import Arena
from simgpu.hip.options import Options
from simgpu.hip.order import WorkOrder
from simgpu.hip.protocol import ENTRY, LAUNCH, AllocationKind, Change
from simgpu.hip.server import Server
from simgpu.timing.history import LaunchHistory
from tests.support.device_library import compiled

BASE, NBYTES = 0x100000000000, 1 << 32
MALLOC = """
__kernel void allocate(__global ulong *out, uint n) {
  uint i = n * 64 + lane;
  __global uint *p = (__global uint *)__ockl_dm_alloc(16);
  p[0] = i;
  out[i] = (ulong)p;
}
__kernel void look(__global ulong *out, uint n) {
  for (uint i = lane; i < n * 64; i += 64) out[i] = *(__global uint *)out[i];
}
"""


@contextmanager
def gpus_with(options: Options) -> Iterator[GPUs]:
    files = [os.memfd_create(name) for name in ("arena", "shadow")]
    for file in files:
        os.ftruncate(file, NBYTES)
    yield GPUs(options, Arena(*files, BASE, NBYTES, NBYTES // 2))
    for file in files:
        os.close(file)


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_a_launch_counts_bytes_only_as_they_are_requested(check: bool) -> None:
    """Counting each byte once takes bitmaps of all memory and time in each launch; no report of HIP programs has that."""
    with gpus_with(Options(("mi300x",), check=check)) as gpus:
        device = gpus.gpus[0].checking
        buffer = device.upload(np.arange(64, dtype=np.uint32))
        _, table = device.memory.table()
        assert len(table) >= 2 and table.bitmaps is None
        assert buffer.nbytes == 256


@pytest.mark.parametrize("first", [False, True], ids=["unchecked first", "checked first"])
def test_what_kernels_allocate_lives_on_in_launches_that_are_checked_and_that_are_not(first: bool) -> None:
    entry = np.zeros((), ENTRY)
    entry["kind"], entry["memory"], entry["address"], entry["bytes"] = Change.ALLOCATE, AllocationKind.DEVICE, BASE, 8 * 3 * 64
    with gpus_with(Options(("mi300x",), check=True, skip=1)) as gpus:
        gpus.change(entry, 0)
        module, _ = gpus.load(0, compiled("gfx942", MALLOC))
        for n, name in enumerate(("allocate", "allocate", "allocate", "look")):
            function = gpus.functions[gpus.function(module, name)[0]]
            arguments, checked = struct.pack("<QI", BASE, n), n % 2 != first
            shape = LaunchShape((64, 1, 1), (64, 1, 1), 0, False)
            ((count, run, _),) = gpus.launches(function, shape, [arguments], checked, io.StringIO())
            assert count == 1 and run.findings == []
        assert gpus.arena.view(BASE, 8 * 3 * 64).view(np.uint64).tolist() == list(range(3 * 64))


def test_each_entry_of_the_log_is_read_once() -> None:
    """Launches of several threads come with positions in any order."""
    server = object.__new__(Server)
    seen: list[int] = []
    server._log, server._read, server._order = np.zeros(9, ENTRY), 0, WorkOrder()
    server._log["kind"], server._log["number"] = Change.ALLOCATE, range(9)
    server._options = SimpleNamespace(pad=0)  # type: ignore[assignment]
    server._gpus = SimpleNamespace(  # type: ignore[assignment]
        change=lambda entry, pad: seen.append(int(entry["number"])), want_footprints=lambda on: None
    )
    for position in (2, 1, 2, 5, 3, 9, 4):
        server._read_log(position)
    assert seen == list(range(9))


def test_a_kernel_is_timed_after_each_kernel_that_ran_before_it() -> None:
    """Kernels 1 and 2 run on one GPU and kernel 3 on another: each pair is predicted once, with what the first one left."""
    server, asked = object.__new__(Server), list[tuple[int, object]]()
    server._times, server._left, server._before = {}, {}, {}
    functions = {number: SimpleNamespace(number=number, device=number == 3) for number in (1, 2, 3)}

    def predict(function: SimpleNamespace, shape: LaunchShape, arguments: bytes, before: LaunchHistory | None) -> SimpleNamespace:
        asked.append((function.number, before and before.stores))
        sampled = SimpleNamespace(all_traced=False, loads={}, stores={function.number: 64}, lines=({}, {}))
        return SimpleNamespace(seconds=len(asked), sampled=sampled)

    server._gpus = SimpleNamespace(functions=functions, predict=predict)  # type: ignore[assignment]
    shape = LaunchShape((64, 1, 1), (64, 1, 1), 0, False)
    times = [server._modelled_seconds(number, shape, b"") for number in (1, 2, 3, 1, 2, 1, 1)]
    assert asked == [(1, None), (2, {1}), (3, None), (1, {2}), (1, {1})]
    assert times == [1, 2, 3, 4, 2, 4, 5]


def test_launches_run_together_that_differ_in_their_arguments_only() -> None:
    """All of them see the memory of the first: launches after a later entry of the log wait."""
    server = object.__new__(Server)
    server._read = 7
    def message(block: int, position: int, argument: bytes = b"abc") -> bytes:
        return LAUNCH.pack(5, 512, 1, 1, block, 1, 1, 0, 0, len(argument), position, 1, 0, 1, 1) + argument

    batch = [message(64, 3), message(64, 7, b"xyz"), message(64, 7), message(128, 7), message(64, 7)]
    assert server._count_alike(batch) == 3
    assert server._count_alike([message(64, 7), message(64, 8)]) == 1
    assert server._count_alike([message(64, 7), message(64, 7, b"abcd")]) == 1
