"""Faults of a launch: each is a sentence that names its place."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import simgpu
from simgpu.engine.positions import element
from simgpu.hardware.errors import LaunchError, MemoryFault, SimError, UnsupportedInstruction
from tests.support.kernels import loaded_kernel

STORE = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[8:9]
"""


def test_a_memory_fault_says_what_where_and_who():
    gpu = simgpu.Device("gfx942")
    k = loaded_kernel(gpu, STORE, "buffer")
    out = gpu.alloc(4 * 100)
    with pytest.raises(MemoryFault) as error:
        k.launch(grid=1, block=128, args=[out])
    message = str(error.value)
    assert message.startswith("k+0x")
    assert "`global_store_dword v1, v0, s[8:9]`" in message
    assert re.search(r"pc 0x[0-9a-f]+", message)
    assert re.search(r"at kernel\.s:\d+", message)
    assert f"{out.address + 400:#x}, 0 bytes past the end of argument a0 of 400 bytes" in message
    assert "workgroup (0, 0, 0), wave 1, lane 36" in message
    assert out.download(np.uint32)[:64].tolist() == list(range(64)), "wave 0 had stored"


def test_use_after_free_is_named():
    gpu = simgpu.Device("gfx942")
    k = loaded_kernel(gpu, STORE, "buffer")
    out = gpu.alloc(256)
    k.launch(grid=1, args=[out])
    gpu.free(out)
    with pytest.raises(MemoryFault, match="inside freed memory"):
        k.launch(grid=1, args=[out.address])
    with pytest.raises(SimError, match="freed before"):
        gpu.free(out)


FAULTS = {
    "null": ("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v3, v[2:3], off", MemoryFault, "access to 0x0"),
    "scalar": ("s_mov_b64 s[4:5], 64\ns_load_dword s6, s[4:5], 0x0", MemoryFault, "access to 0x40"),
    "lds": ("v_mov_b32 v1, 0x4000\nds_write_b32 v1, v2", MemoryFault, "LDS offset 0x4000 .*256 bytes"),
    "misaligned": (
        "v_lshlrev_b32 v1, 2, v0\nds_add_u32 v1, v0\ns_mov_b64 s[4:5], 0x1003\nv_mov_b32 v1, 0\n"
        "global_atomic_add v1, v0, s[4:5]", MemoryFault, "atomic at 0x1003, which is no multiple"
    ),
    "scratch": (
        "s_movk_i32 s4, 0x4000\nscratch_load_dword v2, off, s4", MemoryFault, "private offset 0x4000"
    ),
    "jump": ("s_mov_b64 s[4:5], 0\ns_setpc_b64 s[4:5]", MemoryFault, r"`s_setpc_b64.*jump to 0x0, .* outside the code, 0x1"),
    "branch": (
        "s_branch 0x7000", MemoryFault,
        r"k\+0x0 .*`s_branch 28672`.*: jump to 0x1\w+, \+0x1c004 bytes from here, outside the code, 0x1\w+ to 0x1",
    ),
    "branch back": ("s_branch 0x8000", MemoryFault, r"`s_branch 32768`.*: jump to 0x\w+, -0x1fffc bytes from here, outside"),
    "conditional branch": ("s_cmp_eq_u32 s0, s0\ns_cbranch_scc1 0x7000", MemoryFault, r"`s_cbranch_scc1 28672`.*: jump to 0x1\w+"),
    "call": ("s_call_b64 s[4:5], 0x7000", MemoryFault, r"`s_call_b64 s\[4:5\], 28672`.*: jump to 0x1\w+, "),
    "jump between": ("s_getpc_b64 s[4:5]\ns_add_u32 s4, s4, 2\ns_setpc_b64 s[4:5]", MemoryFault, "no multiple of 4, in the code"),
    "trap": ("s_trap 2", SimError, "trap"),
    "undefined": (".long 0xbf7f0000\n.long 0xffffffff", SimError, "ffffffff|0000"),
    "image": (".long 0xf0000000\n.long 0", SimError, "k\\+0x"),
    "gds": ("ds_add_u32 v0, v1 gds", UnsupportedInstruction, "gds|GDS"),
}
FAULT_TARGET = {"gds": "gfx908"}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_words(name):
    lines, error, words = FAULTS[name]
    gpu = simgpu.Device(FAULT_TARGET.get(name, "gfx90a"), max_instructions=100_000)
    options = {"group_segment_fixed_size": 256, "private_segment_fixed_size": 64}
    with pytest.raises(error, match=words) as raised:
        loaded_kernel(gpu, lines, **options).launch(grid=1)
    assert "k+0x" in str(raised.value) and "\n" not in str(raised.value)
    assert "workgroup (0, 0, 0), wave 0" in str(raised.value)


def test_a_wave_that_runs_on_past_the_end_of_the_code_is_told_where():
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, "s_nop 3")
    end = kernel.module.code.kernels["k"].code_size - 4
    kernel.module.patch(kernel.info.start + end, bytes.fromhex("000080bf"))  # s_nop 0 for s_endpgm
    with pytest.raises(MemoryFault, match=r"k\+0x4 .*`s_nop 0`.*: the wave ran on past the end of the code, 0x1\w+ to"):
        kernel.launch(grid=1)


def test_a_fault_on_one_thread_stops_the_others():
    gpu = simgpu.Device("gfx90a", threads=2)
    lines = """
    s_cmp_eq_u32 s2, 5
    s_cbranch_scc1 bad
    spin:
    s_sleep 1
    s_branch spin
    bad:
    v_mov_b32 v2, 0
    v_mov_b32 v3, 0
    global_load_dword v3, v[2:3], off
    """
    with pytest.raises(MemoryFault, match=r"workgroup \(5, 0, 0\)"):
        loaded_kernel(gpu, lines).launch(grid=16)


def test_what_is_never_executed_does_not_matter():
    gpu = simgpu.Device("gfx908")
    lines = "s_mov_b32 s4, 0\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 over\nds_add_u32 v0, v1 gds\nover:"
    run = loaded_kernel(gpu, lines).launch(grid=1)
    assert run.instructions == 4


@pytest.mark.parametrize("given", [{"threads": 0}, {"max_instructions": 0}])
def test_device_settings(given):
    with pytest.raises(LaunchError, match="at least one"):
        simgpu.Device("gfx90a", **given)


def test_an_argument_and_its_element_are_named():
    """Messages use the array that the buffer was made for; without an array they use the byte."""
    gpu = simgpu.Device("gfx942")
    k = loaded_kernel(gpu, STORE, "buffer")
    with pytest.raises(MemoryFault, match=r"0 bytes past the end of argument a0 \(uint32 10x10\) of 400 bytes"):
        k.launch(grid=1, block=128, args=[gpu.zeros((10, 10), np.uint32)])
    launch = SimpleNamespace(memory=gpu.memory, info=k.info, args=[gpu.zeros((3, 5), np.float16)])
    at = launch.args[0].address
    assert element(launch, at) == " (a0[0, 0])" and element(launch, at + 2 * 7) == " (a0[1, 2])"
    assert element(launch, at + 2 * 14 + 1) == " (a0[2, 4], byte 1)"
    launch.args = [gpu.alloc(64)]
    assert element(launch, launch.args[0].address + 9) == " (a0, byte 0x9)" and element(launch, at) == ""
