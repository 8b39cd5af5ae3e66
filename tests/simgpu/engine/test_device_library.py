"""Kernels that call ROCm's device library: printf on several threads, malloc and free, grids that synchronise."""

from __future__ import annotations

import io
import re
import tracemalloc

import numpy as np
import pytest

import simgpu
from simgpu.engine.allocations import DeviceMemory, SavedMemory
from simgpu.engine.hostcall.heap import SLAB, Heap
from simgpu.hardware.errors import Deadlock, LaunchError, UnsupportedInstruction
from tests.support.device_library import compiled
from tests.support.kernels import loaded_kernel

TARGETS = ("gfx908", "gfx90a", "gfx942")
SOURCE = """
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
__kernel void print(uint n) {
  uint i = group * 64 + lane;
  if (i % 32 == n) {
    char text[] = "item %u of %s\\n", name[] = "ab";
    ulong message = __ockl_printf_append_string_n(__ockl_printf_begin(0), text, sizeof text, 0);
    message = __ockl_printf_append_args(message, 1, i, 0, 0, 0, 0, 0, 0, 0);
    __ockl_printf_append_string_n(message, name, sizeof name, 1);
  }
}
__kernel void allocate(__global ulong *out, uint size) {
  uint i = group * 64 + lane;
  __global uint *p = (__global uint *)__ockl_dm_alloc(size);
  if (p) { p[0] = i; p[size / 4 - 1] = ~i; }
  out[i] = (ulong)p;
}
__kernel void look(__global ulong *in, __global uint *out, uint size) {
  uint i = group * 64 + lane;
  __global uint *p = (__global uint *)in[i];
  out[i] = p ? p[0] + p[size / 4 - 1] : 0;
}
__kernel void release(__global ulong *in) { __ockl_dm_dealloc(in[group * 64 + lane]); }
__kernel void scratch(__global ulong *in) { ((__global uint *)in[lane])[0] = 7; }
__kernel void meet(__global uint *out, uint rounds) {
  for (uint r = 0; r < rounds; r++) {
    if (lane == 0) add(&out[r], 1);
    __ockl_grid_sync();
    if (lane == 0) out[rounds + group * rounds + r] = load(&out[r]);
  }
}
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_printed_is_the_same_on_any_number_of_threads(target: str, threads: int) -> None:
    gpu = simgpu.Device(target, threads=threads)
    gpu.stdout = io.StringIO()
    kernel = gpu.load(compiled(target, SOURCE))["print"]
    for _ in range(2):
        kernel.launch(grid=90, args=[3])
    assert gpu.stdout.getvalue() == 2 * "".join(f"item {i} of ab\n" for i in range(90 * 64) if i % 32 == 3)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [16, 100, 3000, 5000])
def test_memory_of_kernels(target: str, size: int) -> None:
    """Blocks do not overlap, live from launch to launch, and can be freed by another kernel."""
    gpu = simgpu.Device(target, threads=2)
    module = gpu.load(compiled(target, SOURCE))
    out, sums = gpu.alloc(8 * 256), gpu.alloc(4 * 256)
    for _ in range(2):
        module["allocate"].launch(grid=4, args=[out, size])
        places = np.sort(out.download("u8"))
        assert places[0] > 0 and (np.diff(places) >= size).all()
        module["look"].launch(grid=4, args=[out, sums, size])
        assert (sums.download("u4") == 0xFFFFFFFF).all()
        held = gpu.heap.used_bytes()
        module["release"].launch(grid=4, args=[out])
    assert held >= 256 * size if size > 3072 else held >= SLAB
    assert gpu.heap.used_bytes() <= held - 256 * size if size > 3072 else gpu.heap.used_bytes() == held


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("check", [False, True])
def test_kernels_that_ask_the_host_for_memory_themselves(version: int, check: bool) -> None:
    """As malloc of HIP 5.2's headers does, in code objects of version 4. Later ones have a heap if they use it."""
    source = """
__kernel void ask(__global uint *out) {
  ulong p = __ockl_devmem_request(0, 64);
  *(__global uint *)p = lane + 5;
  out[lane] = *(__global uint *)p;
  __ockl_devmem_request(p, 0);
}
"""
    gpu = simgpu.Device("gfx90a", check=check)
    kernel, out = gpu.load(compiled("gfx90a", source, version=version))["ask"], gpu.alloc(4 * 64)
    if version == 5:
        with pytest.raises(UnsupportedInstruction, match="service 3, memory, but has no hidden_heap_v1"):
            kernel.launch(grid=1, args=[out])
        return
    assert kernel.launch(grid=1, args=[out]).findings == []
    assert out.download("u4").tolist() == list(range(5, 69)) and gpu.heap.used_bytes() == 0


def test_a_heap_that_is_used_up_gives_null() -> None:
    gpu = simgpu.Device("gfx942")
    gpu.heap_bytes = 8 * SLAB
    module = gpu.load(compiled("gfx942", SOURCE))
    out = gpu.alloc(8 * 64)
    module["allocate"].launch(grid=1, args=[out, 1 << 20])
    assert np.count_nonzero(out.download("u8")) == 16


def test_memory_of_kernels_is_checked() -> None:
    """Formally, the library's own accesses race: no finding mentions them."""
    gpu = simgpu.Device("gfx90a", check=True)
    module = gpu.load(compiled("gfx90a", SOURCE))
    out = gpu.alloc(8 * 256)
    assert module["allocate"].launch(grid=4, args=[out, 64]).findings == []


def test_the_heap_s_pages() -> None:
    heap = Heap(DeviceMemory(), 4 * SLAB)
    base = heap.blocks.address
    assert base % SLAB == 0
    small = [heap.request(0, 5000) for _ in range(3)]
    assert small == [base, base + 8192, base + 16384]
    slab = heap.request(0, SLAB)
    assert slab == base + SLAB and heap.request(0, 3 * SLAB) == 0
    assert heap.request(small[1], 0) == heap.request(12, 0) == 0 and heap.used_bytes() == 2 * 8192 + SLAB
    assert heap.request(0, 8192) == small[1]
    for place in (*small, slab):
        heap.request(place, 0)
    assert heap.request(0, 4 * SLAB) == base
    heap.clear()
    assert heap.used_bytes() == 0 and heap.request(0, 4 * SLAB) == base


def test_a_sample_leaves_the_heap_as_it_was() -> None:
    """Blocks that a sample requests are freed, and those that it writes have their contents again."""
    gpu = simgpu.Device("gfx942")
    module = gpu.load(compiled("gfx942", SOURCE))
    out, others, sums = gpu.alloc(8 * 64), gpu.alloc(8 * 64), gpu.alloc(4 * 64)
    module["allocate"].launch(grid=1, args=[out, 5000])
    held = gpu.heap.used_bytes()
    for _ in range(3):
        module["allocate"].time(grid=1, args=[others, 5000])
        module["scratch"].time(grid=1, args=[out])
    assert gpu.heap.used_bytes() == held
    module["look"].launch(grid=1, args=[out, sums, 5000])
    assert (sums.download("u4") == 0xFFFFFFFF).all()
    module["allocate"].launch(grid=1, args=[others, 5000])
    assert not set(out.download("u8")) & set(others.download("u8")) and gpu.heap.used_bytes() > held


def test_a_heap_is_saved_where_it_was_handed_out() -> None:
    gpu = simgpu.Device("gfx942")
    given = [gpu.heap.request(0, size) for size in (5000, 3 << 20)]
    tracemalloc.start()
    saved = SavedMemory.of(gpu.memory)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 3 << 20 <= most < 4 << 20 < gpu.heap_bytes
    gpu.heap.request(given[0], 0)
    assert gpu.heap.request(0, 8192) == given[0]
    saved.restore()
    assert gpu.heap.used_bytes() == 8192 + (3 << 20)


# -- grids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("groups", "threads"), [(1, 2), (9, 2), (9, 1), (200, 3)])
@pytest.mark.parametrize("check", [False, True])
def test_all_workgroups_of_a_cooperative_launch_meet(target: str, groups: int, threads: int, check: bool) -> None:
    gpu = simgpu.Device(target, threads=threads, check=check)
    rounds = 3
    out = gpu.upload(np.zeros(rounds * (groups + 1), np.uint32))
    kernel = gpu.load(compiled(target, SOURCE))["meet"]
    for _ in range(2):
        out.write(np.zeros(rounds * (groups + 1), np.uint32))
        run = kernel.launch(grid=groups, args=[out, rounds], cooperative=True)
        assert (out.download("u4") == groups).all() and run.findings == []


def test_more_workgroups_than_reside_at_once_are_refused() -> None:
    gpu = simgpu.Device("mi210")
    kernel = gpu.load(compiled("gfx90a", SOURCE))["meet"]
    room = kernel.resident_groups(64)
    assert room == 104 * 32 and kernel.resident_groups(1024) == 104 * 2
    with pytest.raises(LaunchError, match=f"cooperative launch of {room + 1} workgroups; {room} reside at once on 104 CUs"):
        kernel.launch(grid=room + 1, args=[gpu.alloc(64), 1], cooperative=True)


BARRIER = """
v_mov_b32 v2, {data}
s_mov_b32 m0, {m0}
s_nop 1
{before}
ds_gws_barrier v2 offset:{offset} gds
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
def test_a_barrier_that_some_never_reach_is_a_deadlock(target: str) -> None:
    gpu = simgpu.Device(target, threads=2)
    kernel = loaded_kernel(gpu, BARRIER.format(data=3, m0=0, offset=0, before="s_cmp_eq_u32 s2, 2\ns_cbranch_scc1 end") + "end:\n")
    with pytest.raises(Deadlock, match=r"all remaining waves wait for others.*\(pc .*not all workgroups reach"):
        kernel.launch(grid=4, cooperative=True)


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
@pytest.mark.parametrize(("m0", "offset"), [(0, 5), (3 << 16, 2), (63 << 16, 6)])
def test_resources_by_m0_and_offset(target: str, m0: int, offset: int) -> None:
    """Last of four waves initialises resource 5 for itself and the next."""
    gpu = simgpu.Device(target, threads=2)
    text = BARRIER.format(data=0, m0=m0, offset=offset, before=f"ds_gws_init v2 offset:{offset} gds\ns_waitcnt lgkmcnt(0)")
    assert loaded_kernel(gpu, text).launch(grid=1).instructions == 8
    with pytest.raises(Deadlock):
        loaded_kernel(gpu, text.replace("v_mov_b32 v2, 0", "v_mov_b32 v2, 1")).launch(grid=1)


# Wave 0 waits three times; the others let it on with {post}; args: out, in the order of going on.
SEMAPHORE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_mov_b32 m0, 0x70000
v_mov_b32 v2, 3
s_waitcnt lgkmcnt(0)
s_cmp_lg_u32 s2, 0
s_cbranch_scc1 others
{waits}
s_branch done
others:
{post}
s_waitcnt lgkmcnt(0)
done:
v_mov_b32 v3, 0
v_mov_b32 v4, 1
s_and_b64 exec, exec, 1
global_atomic_add v3, v4, s[4:5]
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize(
    ("waits", "post", "groups"), [(3, "ds_gws_sema_v gds", 4), (3, "ds_gws_sema_br v2 gds", 2), (1, "ds_gws_sema_v gds", 5)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_semaphores(waits: int, post: str, groups: int, threads: int) -> None:
    gpu = simgpu.Device("gfx908", threads=threads)
    text = SEMAPHORE.format(waits="ds_gws_sema_p gds\ns_waitcnt lgkmcnt(0)\n" * waits, post=post)
    out = gpu.upload(np.zeros(1, np.uint32))
    loaded_kernel(gpu, text, "buffer").launch(grid=groups, args=[out])
    assert out.download("u4")[0] == groups
    with pytest.raises(Deadlock, match=re.escape("ds_gws")):
        loaded_kernel(gpu, text, "buffer").launch(grid=1, args=[out])
