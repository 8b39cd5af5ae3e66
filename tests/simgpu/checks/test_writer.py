"""Writer of an address: of several workgroups the last in the order of dispatch, whichever ran last."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import simgpu
from simgpu.checks.writer import writer_of
from simgpu.hardware.code_object.arguments import Geometry
from tests.support.kernels import KernelText, assemble

GRID = (4, 3, 1)
# Workgroup (x, y) writes dword x + y of the buffer, or adds to it.
TEXT = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_add_i32 s6, s2, s3
s_lshl_b32 s6, s6, 2
v_mov_b32 v1, s6
v_mov_b32 v2, 1
s_waitcnt lgkmcnt(0)
{store} v1, v2, s[4:5]
"""
WIDEST = GRID[0] + GRID[1] - 2  # the last dword that is written


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("store", ["global_store_dword", "global_atomic_add"])
def test_the_last_of_several_in_the_order_of_dispatch(store: str, threads: int) -> None:
    gpu = simgpu.Device("gfx90a", threads=threads)
    text = KernelText("k", TEXT.format(store=store), ("buffer",), {"system_sgpr_workgroup_id_y": 1})
    kernel, buffer = gpu.load(assemble("gfx90a", text))["k"], gpu.zeros(16, np.uint32)
    geometry = Geometry.of(GRID, 64)
    for dword in range(WIDEST + 2):
        writers = [(x, y, 0) for y, x in itertools.product(range(GRID[1]), range(GRID[0])) if x + y == dword]
        for byte in (0, 3):
            found = writer_of(kernel, geometry, [buffer], buffer.address + 4 * dword + byte)
            assert found == (writers[-1] if writers else None)


def test_memory_is_as_after_the_launch() -> None:
    gpu = simgpu.Device("gfx942")
    text = KernelText("k", TEXT.format(store="global_atomic_add"), ("buffer",), {"system_sgpr_workgroup_id_y": 1})
    kernel, buffer = gpu.load(assemble("gfx942", text))["k"], gpu.zeros(8, np.uint32)
    writer_of(kernel, Geometry.of(GRID, 64), [buffer], buffer.address)
    assert buffer.download().tolist() == [64, 128, 192, 192, 128, 64, 0, 0]
