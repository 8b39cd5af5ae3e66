"""Memory of the caller: placed, labelled, removed, defined; modules in it; and traces of one launch in another."""

from __future__ import annotations

import mmap
import os
import random
from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.engine.workers.kept import KEPT_BYTES, ReusePool
from simgpu.hardware.errors import LaunchError, MemoryFault
from tests.support.kernels import KernelText, assemble, loaded_kernel

ARENA = 0x1000_0000_0000
# out[x] = in[x] + 1, for 64 work-items; args: in, out.
ADD_ONE = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 1, v2
global_store_dword v1, v2, s[6:7]
s_waitcnt vmcnt(0)
"""


def sparse(nbytes: int) -> np.ndarray:
    """Makes a mapping that takes memory at first touch, as an arena of two processes does."""
    if not hasattr(os, "memfd_create"):
        pytest.skip("a host without memfd_create")
    file = os.memfd_create("arena")
    try:
        os.ftruncate(file, nbytes)
        return np.frombuffer(mmap.mmap(file, nbytes), np.uint8)
    finally:
        os.close(file)


def add_one(gpu: Any) -> Any:
    return loaded_kernel(gpu, ADD_ONE, "buffer", "buffer")


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
@pytest.mark.parametrize("check", [False, True])
def test_an_arena_s_parts_are_device_memory(target: str, check: bool) -> None:
    arena = sparse(1 << 40)
    gpu = simgpu.Device(target, check=check)
    far = (1 << 39) + 4096
    source = gpu.place(ARENA, arena[:256], defined=True)
    result = gpu.place(ARENA + far, arena[far : far + 256])
    arena[:256].view("u4")[:] = np.arange(64)
    run = add_one(gpu).launch(grid=1, args=[ARENA, result])
    assert source.address == ARENA and result.address == ARENA + far and not run.findings
    assert (arena[far : far + 256].view("u4") == np.arange(1, 65)).all()
    assert run.counters["unique_read_bytes"] == run.counters["unique_write_bytes"] == 256


def test_faults_name_the_label() -> None:
    memory = np.zeros(1024, np.uint8)
    gpu = simgpu.Device("gfx942")
    kernel, good = add_one(gpu), gpu.alloc(256)
    short = gpu.place(ARENA, memory[:100], label="hipMalloc 7 (main.hip:12)")
    with pytest.raises(MemoryFault, match=r"hipMalloc 7 \(main.hip:12\) of 100 bytes at 0x100000000000"):
        kernel.launch(grid=1, args=[short, good])
    gpu.free(short)
    with pytest.raises(MemoryFault, match=r"inside freed memory \(hipMalloc 7 \(main.hip:12\) of 100 bytes\)"):
        kernel.launch(grid=1, args=[ARENA, good])
    const = gpu.place(ARENA + 4096, memory[256:512], writable=False, label="constants")
    with pytest.raises(MemoryFault, match="read-only"):
        kernel.launch(grid=1, args=[good, const])


def test_the_end_of_a_dword_that_was_not_asked_for() -> None:
    """Checked mode knows the requested number of bytes; plain mode and the host have whole dwords."""
    gpu = simgpu.Device("gfx942", check=True)
    buffer = gpu.place(ARENA, np.zeros(256, np.uint8), nbytes=254, label="odd", defined=True)
    run = add_one(gpu).launch(grid=1, args=[buffer, gpu.alloc(256)])
    assert buffer.nbytes == 254 and [finding.kind for finding in run.findings] == ["out-of-bounds"]
    assert "odd of 254 bytes" in run.findings[0].message


def test_what_the_host_defined() -> None:
    gpu = simgpu.Device("gfx90a", check=True)
    memory = np.zeros(512, np.uint8)
    first, second = gpu.place(ARENA, memory[:256]), gpu.place(ARENA + 256, memory[256:])
    kernel = loaded_kernel(gpu, ADD_ONE.replace("v_add_u32 v2, 1, v2", "v_cmp_gt_u32 vcc, 1, v2\nv_cndmask_b32 v2, 0, 1, vcc"),
                           "buffer", "buffer")  # fmt: skip
    assert gpu.memory.undefined_bytes(ARENA, 256) == 256
    assert "uninitialized" in {finding.kind for finding in kernel.launch(grid=1, args=[first, second]).findings}
    gpu.memory.define(ARENA - 64, 128)
    assert gpu.memory.undefined_bytes(ARENA, 256) == 192 and gpu.memory.undefined_bytes(ARENA, 64) == 0
    gpu.memory.define(ARENA, 512)
    assert gpu.memory.undefined_bytes(ARENA + 256, 256) == 0
    assert kernel.launch(grid=1, args=[first, second]).findings == []


@pytest.mark.parametrize(
    ("address", "data", "nbytes", "told"),
    [
        (ARENA + 2, np.zeros(8, np.uint8), 8, "at a multiple of 4"),
        (ARENA, np.zeros(7, np.uint8), 7, "whole dwords"),
        (ARENA, np.zeros(8, np.uint8), 3, "whole dwords"),
        (ARENA, np.zeros(8, np.uint32), 8, "contiguous bytes"),
        (ARENA, np.zeros(16, np.uint8)[::2], 8, "contiguous bytes"),
        (0, np.zeros(8, np.uint8), 8, "within 63 bits"),
        (1 << 63, np.zeros(8, np.uint8), 8, "within 63 bits"),
        (ARENA - 4, np.zeros(8, np.uint8), 8, "overlaps the device's own memory"),
    ],
)
def test_what_cannot_be_placed(address: int, data: np.ndarray, nbytes: int, told: str) -> None:
    gpu = simgpu.Device("gfx942")
    gpu.place(ARENA, np.zeros(4, np.uint8))
    with pytest.raises(LaunchError, match=told):
        gpu.place(address, data, nbytes=nbytes)


def test_a_module_in_the_caller_s_memory() -> None:
    """Its variables are the caller's bytes: read and written without a call."""
    text = KernelText("k", """
s_getpc_b64 s[4:5]
s_add_u32 s4, s4, word@rel32@lo+4
s_addc_u32 s5, s5, word@rel32@hi+12
s_load_dword s6, s[4:5], 0x0
v_mov_b32 v0, 0
s_waitcnt lgkmcnt(0)
s_add_u32 s6, s6, 5
v_mov_b32 v1, s6
global_store_dword v0, v1, s[4:5]
s_waitcnt vmcnt(0)
""")  # fmt: skip
    data = ".data\n.globl word\n.protected word\n.type word,@object\n.size word, 4\n.p2align 2\nword: .long 37\n"
    gpu, arena = simgpu.Device("gfx942"), sparse(1 << 30)
    asked: list[int] = []

    def place(nbytes: int) -> tuple[int, np.ndarray]:
        asked.append(nbytes)
        return ARENA + (1 << 20), arena[1 << 20 :][:nbytes]

    module = gpu.load(assemble("gfx942", text, data=data), place)
    address, size = module.symbol("word")
    word = arena[address - ARENA :][:4].view("u4")
    assert len(asked) == 1 and ARENA + (1 << 20) <= address < ARENA + (1 << 20) + asked[0] and size == 4 and word[0] == 37
    module["k"].launch(grid=1)
    assert word[0] == 42
    word[0] = 1
    module["k"].launch(grid=1)
    assert word[0] == 6
    with pytest.raises(KeyError, match="no symbol 'other'"):
        module.symbol("other")
    gpu.unload(module)
    with pytest.raises(LaunchError, match="was unloaded"):
        module["k"].launch(grid=1)
    with pytest.raises(LaunchError, match="unloaded before"):
        gpu.unload(module)
    gpu.load(assemble("gfx942", text, data=data), place)["k"].launch(grid=1)
    assert word[0] == 42


# -- counts stay those of one launch ------------------------------------------------------------------


# Stores of `width` dwords a lane to out + offsets[lane], in random places; args: offsets, out.
SCATTER = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
global_store_{what} v2, {data}, s[6:7]
s_waitcnt vmcnt(0)
"""
WIDTHS = {"byte": (1, "v3"), "short": (2, "v3"), "dword": (4, "v3"), "dwordx2": (8, "v[4:5]"), "dwordx4": (16, "v[4:7]")}


@pytest.mark.parametrize("what", WIDTHS)
def test_unique_bytes_of_random_launches(what: str) -> None:
    """A Python set is the reference: places near and far, edges of bitmap pages, allocations made and freed between."""
    rng = random.Random(what)
    size, data = WIDTHS[what]
    gpu = simgpu.Device("gfx942", threads=2)
    kernel = loaded_kernel(gpu, SCATTER.format(what=what, data=data), "buffer", "buffer")
    extent = 3 << 18
    out, others = gpu.alloc(extent), [gpu.alloc(rng.randrange(1, 9000)) for _ in range(50)]
    for _ in range(30):
        kind = rng.randrange(4)
        start = rng.choice((0, (1 << 15) - 8 * size, rng.randrange(0, extent - 64 * size, size), extent - 64 * size)) // size * size
        places = {
            0: [start + size * lane for lane in range(64)],
            1: [rng.randrange(0, extent, size) for _ in range(64)],
            2: [start] * 64,
            3: [(start + rng.randrange(300) * size) % extent for _ in range(64)],
        }[kind]
        places = [min(place, extent - size) // size * size for place in places]
        offsets = gpu.upload(np.array(places, np.uint32))
        run = kernel.launch(grid=1, args=[offsets, out])
        assert run.counters["unique_write_bytes"] == len({byte for place in places for byte in range(place, place + size)})
        assert run.counters["unique_read_bytes"] == 256
        if rng.random() < 0.5:
            gpu.free(offsets)
            gpu.free(others.pop())
            others.append(gpu.alloc(rng.randrange(1, 9000)))


def test_nobody_need_count_unique_bytes() -> None:
    gpu = simgpu.Device("gfx942", unique_bytes=False)
    data = gpu.upload(np.arange(64, dtype="u4"))
    run = add_one(gpu).launch(grid=1, args=[data, data])
    assert "unique_read_bytes" not in run.counters and run.counters["global_read_bytes"] == 256
    assert (data.download("u4") == np.arange(1, 65)).all()


@pytest.mark.parametrize("check", [False, True])
def test_launches_do_not_see_one_another_s_counts(check: bool) -> None:
    """Two kernels of a module take turns, and one fails half the time: their counts stay those of the first launch."""
    gpu = simgpu.Device("gfx942", check=check, threads=2)
    loop = "s_mov_b32 s4, 9\nl{}:\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 l{}\n"
    texts = KernelText("one", ADD_ONE, ("buffer", "buffer")), KernelText("two", loop.format(0, 0) + ADD_ONE, ("buffer", "buffer"))
    module = gpu.load(assemble("gfx942", *texts))
    data, short = gpu.upload(np.arange(64, dtype="u4")), gpu.upload(np.zeros(8, "u1"))
    first = {name: module[name].launch(grid=7, args=[data, data]) for name in ("one", "two")}
    assert first["two"].instructions - first["one"].instructions == 7 * (1 + 9 * 3)
    for _ in range(3):
        for name in ("two", "one"):
            with pytest.raises(MemoryFault):
                module[name].launch(grid=3, args=[short, data])
            run = module[name].launch(grid=7, args=[data, data])
            assert run.counters == first[name].counters and run.profile == first[name].profile and run.lanes == first[name].lanes


def test_code_that_a_register_leads_to_counts() -> None:
    """A function that only s_swappc reaches, far from its caller, on the first launch and on the second."""
    call = """
s_getpc_b64 s[4:5]
s_add_u32 s4, s4, function@rel32@lo+4
s_addc_u32 s5, s5, function@rel32@hi+12
s_swappc_b64 s[6:7], s[4:5]
"""
    far = ".text\n.fill 9000, 4, 0xbf800000\n.type function,@function\nfunction:\ns_nop 0\ns_nop 0\ns_setpc_b64 s[6:7]\n"
    module = simgpu.Device("gfx942").load(assemble("gfx942", KernelText("k", call), data=far))
    assert [module["k"].launch(grid=2).instructions for _ in range(2)] == [2 * 8, 2 * 8]


def test_what_is_kept_has_a_limit() -> None:
    kept, dropped = ReusePool(), list[int]()
    for number in range(10):
        kept.give_back("a", number, KEPT_BYTES // 4, dropped.append)
    assert dropped == [0, 1, 2, 3, 4, 5]
    assert sorted(kept.take("a", lambda: -1) for _ in range(5)) == [-1, 6, 7, 8, 9]
    assert kept.take("b", lambda: "new") == "new"
