"""Modules and their variables; buffers; launches that share them."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError, MemoryFault
from tests.support.kernels import KernelText, assemble, loaded_kernel, loaded_module

SET = """
s_load_dword s10, s[0:1], 0x0
s_getpc_b64 s[4:5]
s_add_u32 s4, s4, {name}@rel32@lo+4
s_addc_u32 s5, s5, {name}@rel32@hi+12
v_mov_b32 v1, 0
s_waitcnt lgkmcnt(0)
v_mov_b32 v2, s10
s_mov_b64 exec, 1
global_store_dword v1, v2, s[4:5]
"""
GET = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_getpc_b64 s[4:5]
s_add_u32 s4, s4, pointer@rel32@lo+4
s_addc_u32 s5, s5, pointer@rel32@hi+12
s_load_dwordx2 s[4:5], s[4:5], 0x0
s_waitcnt lgkmcnt(0)
s_load_dword s6, s[4:5], 0x0
s_waitcnt lgkmcnt(0)
v_mov_b32 v1, 0
v_mov_b32 v2, s6
s_mov_b64 exec, 1
global_store_dword v1, v2, s[8:9]
"""
VARIABLES = """
.data
.p2align 3
.type variable,@object
variable: .long 11
.size variable, 4
.p2align 3
.type pointer,@object
pointer: .quad variable
.size pointer, 8
.section .rodata
.p2align 2
.type constant,@object
constant: .long 5
.size constant, 4
"""


def test_several_kernels_share_global_variables():
    gpu = simgpu.Device("gfx942")
    kernels = (
        KernelText("put", SET.format(name="variable"), ("i32",)),
        KernelText("get", GET, ("buffer",)),
        KernelText("spoil", SET.format(name="constant"), ("i32",)),
    )
    m = loaded_module(gpu, *kernels, data=VARIABLES)
    other = loaded_module(gpu, *kernels, data=VARIABLES)
    assert list(m) == ["put", "get", "spoil"] and len(m) == 3
    out = gpu.alloc(4)

    def read(from_module):
        from_module["get"].launch(grid=1, args=[out])
        return int(out.download(np.uint32)[0])

    assert read(m) == 11
    m["put"].launch(grid=1, args=[1234])
    assert read(m) == 1234
    assert read(other) == 11, "each loaded module has its own variables"
    with pytest.raises(MemoryFault, match="write to read-only memory"):
        m["spoil"].launch(grid=1, args=[1])
    with pytest.raises(KeyError, match="put, get, spoil"):
        m["missing"]


def test_launches_on_the_same_buffers():
    gpu = simgpu.Device("gfx908")
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    s_lshl_b32 s10, s2, 8
    v_lshlrev_b32 v1, 2, v0
    v_add_u32 v1, s10, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[8:9]
    s_waitcnt vmcnt(0)
    v_mul_lo_u32 v2, v2, 3
    global_store_dword v1, v2, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer")
    data = np.arange(64 * 5, dtype=np.uint32)
    buffer = gpu.upload(data)
    for _ in range(4):
        run = k.launch(grid=5, args=[buffer])
    np.testing.assert_array_equal(buffer.download(np.uint32), data * 81)
    assert run.counters["unique_read_bytes"] == run.counters["unique_write_bytes"] == data.nbytes
    assert run.instructions == run.counters["instructions"] == 5 * 10


def test_wrong_target_and_bad_files(tmp_path):
    code = assemble("gfx90a", KernelText("k", "s_nop 0"))
    with pytest.raises(LaunchError, match="is for gfx90a, this device is gfx942"):
        simgpu.Device("gfx942").load(code)
    with pytest.raises(LaunchError, match="cannot read"):
        simgpu.Device("gfx942").load(tmp_path / "absent.co")
    (tmp_path / "k.co").write_bytes(code)
    assert list(simgpu.Device("gfx90a").load(tmp_path / "k.co")) == ["k"]


def test_download_and_write_check_sizes():
    gpu = simgpu.Device("gfx90a")
    buffer = gpu.upload(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert buffer.nbytes == 24
    np.testing.assert_array_equal(buffer.download(np.float32, (3, 2)), [[0, 1], [2, 3], [4, 5]])
    np.testing.assert_array_equal(buffer.download(np.float32, 2), [0, 1])
    for dtype, shape in ((np.float64, 4), (np.float32, (7,)), (np.float32, (-1, 2)), (np.uint8, (5, 5))):
        with pytest.raises(LaunchError, match="the buffer has 24"):
            buffer.download(dtype, shape)
    with pytest.raises(LaunchError, match="do not fit"):
        buffer.write(np.zeros(25, np.uint8))
    with pytest.raises(LaunchError, match="negative"):
        gpu.alloc(-1)
