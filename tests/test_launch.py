"""Launching: geometry, arguments, state that a kernel finds, scheduling, and errors in words."""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest

import simgpu
from hardware.errors import (
    Deadlock,
    InstructionLimit,
    LaunchError,
    MemoryFault,
    SimError,
    UnsupportedInstruction,
)
from tests.kernels import KernelText, assemble

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


def module(gpu, *kernels, data=""):
    return gpu.load(assemble(gpu.arch, *kernels, data=data))


def kernel(gpu, lines, *args, **options):
    max_block = options.pop("max_block", 1024)
    text = KernelText("k", lines, args, options, max_block)
    return module(gpu, text)["k"]


# -- geometry ------------------------------------------------------------------------------------

# args: out, block x y z (12..), extents x y; a work-item writes ids at its linear place.
IDS = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
s_load_dwordx2 s[10:11], s[0:1], 0x8
s_load_dword s12, s[0:1], 0x10
s_load_dwordx2 s[14:15], s[0:1], 0x14
{unpack}
s_waitcnt lgkmcnt(0)
s_mul_i32 s10, s10, s2
s_mul_i32 s11, s11, s3
s_mul_i32 s12, s12, s4
v_add_u32 v6, s10, v3
v_add_u32 v7, s11, v4
v_add_u32 v8, s12, v5
v_mul_lo_u32 v9, v8, s15
v_add_u32 v9, v9, v7
v_mul_lo_u32 v9, v9, s14
v_add_u32 v9, v9, v6
v_lshlrev_b32 v9, 3, v9
v_lshlrev_b32 v10, 10, v4
v_or_b32 v10, v10, v3
v_lshlrev_b32 v11, 20, v5
v_or_b32 v10, v10, v11
s_lshl_b32 s5, s3, 10
s_or_b32 s5, s5, s2
s_lshl_b32 s6, s4, 20
s_or_b32 s5, s5, s6
v_mov_b32 v11, s5
global_store_dwordx2 v9, v[10:11], s[8:9]
"""
UNPACK = {
    "gfx908": "v_mov_b32 v3, v0\nv_mov_b32 v4, v1\nv_mov_b32 v5, v2",
    "packed": "v_and_b32 v3, 0x3ff, v0\nv_bfe_u32 v4, v0, 10, 10\nv_bfe_u32 v5, v0, 20, 10",
}
ALL_IDS = {
    "system_sgpr_workgroup_id_y": 1, "system_sgpr_workgroup_id_z": 1, "system_vgpr_workitem_id": 2,
}  # fmt: skip


def ids_kernel(gpu):
    lines = IDS.format(unpack=UNPACK.get(gpu.arch, UNPACK["packed"]))
    return kernel(gpu, lines, "buffer", *["i32"] * 5, **ALL_IDS)


def expected_ids(size, block):
    """Local and group ids, packed x | y << 10 | z << 20, indexed [z, y, x]."""
    z, y, x = np.indices(size[::-1])
    local = x % block[0] | y % block[1] << 10 | z % block[2] << 20
    group = x // block[0] | y // block[1] << 10 | z // block[2] << 20
    return np.stack([local, group], -1).astype(np.uint32)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("size", "block"),
    [
        ((64, 1, 1), (64, 1, 1)),
        ((1000, 1, 1), (256, 1, 1)),
        ((7, 5, 3), (4, 2, 2)),
        ((5, 33, 2), (3, 32, 1)),
        ((1, 1, 70), (1, 1, 64)),
        ((1024, 2, 1), (1024, 1, 1)),
        ((17, 9, 10), (8, 8, 16)),
    ],
)
def test_every_work_item_runs_once_with_its_ids(target, size, block):
    gpu = simgpu.Device(target, threads=2)
    want = expected_ids(size, block)
    out = gpu.upload(np.full(want.shape, 0xDEAD, np.uint32))
    ids_kernel(gpu).launch(global_size=size, block=block, args=[out, *block, size[0], size[1]])
    np.testing.assert_array_equal(out.download(np.uint32, want.shape), want)


def test_grid_counts_workgroups_and_takes_fewer_dimensions():
    gpu = simgpu.Device("gfx942")
    k = ids_kernel(gpu)
    for grid, block, size in (
        (3, 64, (192, 1, 1)),
        ((3,), (64,), (192, 1, 1)),
        ((3, 2), 64, (192, 2, 1)),
        ((2, 2, 2), (4, 4), (8, 8, 2)),
        (np.int64(2), (np.int32(8), 8), (16, 8, 1)),
    ):
        padded = (*np.atleast_1d(block).tolist(), 1, 1)[:3]
        want = expected_ids(size, padded)
        out = gpu.upload(np.zeros(want.shape, np.uint32))
        k.launch(grid=grid, block=block, args=[out, *padded, size[0], size[1]])
        np.testing.assert_array_equal(out.download(np.uint32, want.shape), want)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(), "either grid"),
        (dict(grid=1, global_size=64), "either grid"),
        (dict(grid=0), "at least 1"),
        (dict(grid=(1, -2)), "at least 1"),
        (dict(grid=1.5), "one to three integers"),
        (dict(grid=(1, 1, 1, 1)), "one to three integers"),
        (dict(grid="a"), "one to three integers"),
        (dict(grid=1, block=0), "block"),
        (dict(grid=1, block=1025), "1025 work-items"),
        (dict(grid=1, block=(32, 33)), "1056 work-items"),
        (dict(grid=1, dynamic_lds=-1), "dynamic_lds=-1"),
        (dict(grid=1, dynamic_lds=1 << 20), "bytes of LDS"),
        (dict(global_size=1 << 32), "2\\^32-1"),
        (dict(global_size=((1 << 32) - 1,) * 3, block=1), "workgroups"),
    ],
)
def test_geometry_that_cannot_be(given, words):
    gpu = simgpu.Device("gfx90a")
    with pytest.raises(LaunchError, match=words):
        kernel(gpu, "s_nop 0").launch(**given)


# -- arguments and initial state -----------------------------------------------------------------

COPY = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v0, 2, v0
s_waitcnt lgkmcnt(0)
global_load_dword v1, v0, s[{source}:{last}]
s_waitcnt vmcnt(0)
global_store_dword v0, v1, s[8:9]
"""


def copy_from(pair):
    return COPY.format(source=pair, last=pair + 1)


def test_arguments_lie_where_the_metadata_says():
    gpu = simgpu.Device("gfx90a")
    args = ("buffer", "i32", "f32", "i16", "i64", "f64")
    k = kernel(gpu, copy_from(0), *args)
    out = gpu.alloc(64 * 4)
    k.launch(grid=1, block=10, args=[out, -5, 1.5, 0x1234, -(1 << 40), 0.1])
    got = out.download(np.uint8)[:40].tobytes()
    assert got == struct.pack("<QifHxxxxxxqd", out.address, -5, 1.5, 0x1234, -(1 << 40), 0.1)[:40]
    k.launch(grid=1, block=10, args=[out.address, np.uint32(7), np.float16(0.5), b"ab", np.int8(-1), 2])
    got = out.download(np.uint8)[:40].tobytes()
    assert got == struct.pack("<QIf2sxxxxxxqd", out.address, 7, 0.5, b"ab", -1, 2.0)[:40]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "takes 2 arguments, got 0"),
        ([0, 1, 2], "takes 2 arguments, got 3"),
        ([0, 1 << 32], "does not fit 32 bits"),
        ([0, -(1 << 31) - 1], "does not fit 32 bits"),
        ([0, 1.5], "a1"),
        ([1.5, 0], "a0"),
        ([0, "x"], "got str"),
        ([None, 0], "got NoneType"),
        ([0, b"abc"], "got 3 bytes"),
        ([0, np.zeros(3)], "got ndarray"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args, words):
    gpu = simgpu.Device("gfx90a")
    k = kernel(gpu, "s_nop 0", "buffer", "i32")
    with pytest.raises(LaunchError, match=words) as error:
        k.launch(grid=1, args=args)
    assert "k" in str(error.value) and "\n" not in str(error.value)


HIDDEN = (
    "buffer", "hidden_block_count_x:4", "hidden_block_count_y:4", "hidden_block_count_z:4",
    "hidden_group_size_x:2", "hidden_group_size_y:2", "hidden_group_size_z:2",
    "hidden_remainder_x:2", "hidden_remainder_y:2", "hidden_remainder_z:2",
    "hidden_global_offset_x:8", "hidden_grid_dims:2", "hidden_dynamic_lds_size:4",
)  # fmt: skip


def test_hidden_arguments():
    gpu = simgpu.Device("gfx942")
    k = kernel(gpu, "s_mov_b64 exec, 0xffff\nv_mbcnt_lo_u32_b32 v0, -1, 0\n" + copy_from(0), *HIDDEN)
    assert [argument.name for argument in k.arguments] == ["a0"]
    out = gpu.alloc(64 * 4)
    k.launch(global_size=(64 + 40, 3, 1), block=(64, 2, 1), args=[out], dynamic_lds=96)
    layout = "<QIIIHHHHHHqHxxI"
    found = struct.unpack_from(layout, out.download(np.uint8).tobytes())[1:]
    # The last workgroup is partial in x and y: it finds its own extents as the group's.
    assert found[3:6] in {(64, 2, 1), (40, 2, 1), (64, 1, 1), (40, 1, 1)}
    assert found[:3] == (1, 1, 1)
    assert found[6:9] == (40, 1, 0)
    assert found[9:] == (0, 3, 96)


def test_a_partial_workgroup_reads_its_own_size():
    """Lane 0 of each workgroup writes hidden_group_size_x (docs/semantics.md)."""
    gpu = simgpu.Device("gfx90a")
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    s_load_dword s10, s[0:1], 0x8
    v_mov_b32 v1, s2
    v_lshlrev_b32 v1, 2, v1
    s_waitcnt lgkmcnt(0)
    s_and_b32 s10, s10, 0xffff
    v_mov_b32 v2, s10
    s_mov_b64 exec, 1
    global_store_dword v1, v2, s[8:9]
    """
    k = kernel(gpu, lines, "buffer", "hidden_group_size_x:2", "hidden_group_size_y:2")
    out = gpu.alloc(16)
    k.launch(global_size=100, block=32, args=[out])
    assert out.download(np.uint32).tolist() == [32, 32, 32, 4]


def test_dispatch_packet():
    gpu = simgpu.Device("gfx90a")
    lines = copy_from(0).replace("s[0:1], 0x0", "s[2:3], 0x0")
    options = {"user_sgpr_dispatch_ptr": 1, "group_segment_fixed_size": 128, "private_segment_fixed_size": 32}
    k = kernel(gpu, lines, "buffer", **options)
    out = gpu.alloc(64)
    k.launch(global_size=(40, 6), block=(16, 2), args=[out], dynamic_lds=64)
    packet = struct.unpack("<HHHHHHIIIIIQQQQ", out.download(np.uint8).tobytes())
    assert packet[1] & 3 == 2
    assert packet[2:5] == (16, 2, 1)
    assert packet[6:9] == (40, 6, 1)
    assert packet[9:11] == (32, 192)
    assert packet[12] != 0


def test_dynamic_lds_adds_to_static():
    gpu = simgpu.Device("gfx90a")
    lines = """
    v_mov_b32 v1, 0x7c
    v_mov_b32 v2, 7
    s_mov_b32 m0, -1
    ds_write_b32 v1, v2
    """
    k = kernel(gpu, lines, group_segment_fixed_size=64)
    k.launch(grid=1, dynamic_lds=64)
    with pytest.raises(MemoryFault, match=r"LDS offset 0x7c is outside the 124 bytes .*lane 0"):
        k.launch(grid=1, dynamic_lds=60)


def test_lds_starts_clear_and_is_the_workgroups_own():
    """Each workgroup adds 1 to each of 64 words and writes what was there before: always 0."""
    gpu = simgpu.Device("gfx90a", threads=2)
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 1
    ds_add_rtn_u32 v3, v1, v2
    s_waitcnt lgkmcnt(0)
    global_atomic_add v1, v3, s[8:9]
    """
    k = kernel(gpu, lines, "buffer", group_segment_fixed_size=256)
    out = gpu.alloc(256)
    k.launch(grid=150, args=[out])
    assert not out.download(np.uint32).any()


def test_a_descriptor_that_asks_for_too_many_registers():
    gpu = simgpu.Device("gfx90a")
    k = kernel(gpu, "s_nop 0", private_segment_fixed_size=200_000)
    with pytest.raises(LaunchError, match="200000 bytes of private memory"):
        k.launch(grid=1)


# -- modules and buffers -------------------------------------------------------------------------

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
    m = module(gpu, *kernels, data=VARIABLES)
    other = module(gpu, *kernels, data=VARIABLES)
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
    k = kernel(gpu, lines, "buffer")
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


# -- scheduling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_workgroups_that_wait_for_later_ones_finish(threads):
    """Workgroup i spins until the counter is n - 1 - i: the last one must run first."""
    gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=500_000_000)
    lines = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v3, 1
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    s_sub_u32 s10, s10, s2
    s_sub_u32 s10, s10, 1
    spin:
    global_load_dword v2, v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s12, v2
    s_cmp_lg_u32 s12, s10
    s_cbranch_scc1 spin
    global_atomic_add v1, v3, s[8:9]
    """
    k = kernel(gpu, lines, "buffer", "i32")
    counter = gpu.upload(np.zeros(1, np.uint32))
    k.launch(grid=16, args=[counter, 16])
    assert counter.download(np.uint32)[0] == 16


@pytest.mark.parametrize("threads", [1, 2])
def test_a_spin_lock_excludes_and_finishes(threads):
    """300 workgroups add 1 to a word without an atomic, each inside the lock."""
    gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=500_000_000)
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    v_mov_b32 v3, 0
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    take:
    global_atomic_cmpswap v4, v1, v[2:3], s[8:9] glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s12, v4
    s_cmp_lg_u32 s12, 0
    s_cbranch_scc1 take
    global_load_dword v5, v1, s[8:9] offset:4 glc
    s_waitcnt vmcnt(0)
    s_sleep 1
    v_add_u32 v5, 1, v5
    global_store_dword v1, v5, s[8:9] offset:4
    s_waitcnt vmcnt(0)
    global_atomic_swap v1, v3, s[8:9]
    """
    k = kernel(gpu, lines, "buffer")
    state = gpu.upload(np.zeros(2, np.uint32))
    k.launch(grid=300, args=[state])
    assert state.download(np.uint32).tolist() == [0, 300]


def test_barriers_order_the_waves_of_a_workgroup():
    """16 waves hand a word round through LDS, eight times: each adds its turn's value."""
    gpu = simgpu.Device("gfx90a")
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_and_b32 v0, 0x3ff, v0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, v0
    s_mov_b32 s10, 8
    turn:
    ds_write_b32 v1, v2
    s_waitcnt lgkmcnt(0)
    s_barrier
    v_add_u32 v3, 0x100, v1
    v_and_b32 v3, 0xfff, v3
    ds_read_b32 v2, v3
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 turn
    global_store_dword v1, v2, s[8:9]
    """
    k = kernel(gpu, lines, "buffer", group_segment_fixed_size=4096)
    out = gpu.alloc(4096)
    k.launch(grid=3, block=1024, args=[out])
    np.testing.assert_array_equal(out.download(np.uint32), (np.arange(1024) + 8 * 64) % 1024)


WAVE_ID = """
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v1, 6, v0
v_readfirstlane_b32 s12, v1
s_cmp_eq_u32 s12, 0
"""


def test_ended_waves_do_not_hold_a_barrier():
    gpu = simgpu.Device("gfx90a", max_instructions=1_000_000)
    k = kernel(gpu, WAVE_ID + "s_cbranch_scc1 done\ns_barrier\ns_barrier\ndone:")
    run = k.launch(grid=2, block=256)
    assert run.instructions == 2 * (6 + 3 * 8)


def test_a_wave_that_never_reaches_the_barrier_is_a_deadlock():
    gpu = simgpu.Device("gfx90a", max_instructions=1_000_000)
    k = kernel(gpu, WAVE_ID + "s_cbranch_scc1 spin\ns_barrier\ns_endpgm\nspin:\ns_branch spin")
    with pytest.raises(Deadlock) as error:
        k.launch(grid=1, block=128)
    message = str(error.value)
    assert re.search(r"wave 1 waits at the barrier", message)
    assert re.search(r"wave 0 never reaches one and is at k\+0x\w+ .*`s_branch", message)
    assert "1000000" in message


def test_a_runaway_kernel_hits_its_budget():
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=10_000)
    counted = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 1
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    again:
    global_atomic_add v1, v2, s[8:9]
    s_branch again
    """
    k = kernel(gpu, counted, "buffer")
    out = gpu.upload(np.zeros(1, np.uint32))
    with pytest.raises(InstructionLimit, match=r"k\+0x\w+ .*still running after 10000 instructions"):
        k.launch(grid=1, args=[out])
    # The budget counts record steps: an instruction of 8 bytes is two.
    assert 10_000 / 3 - 100 < out.download(np.uint32)[0] <= 10_000 / 2
    # The device stays usable.
    assert kernel(gpu, "s_nop 0").launch(grid=1).instructions == 2


MIXED = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_lshl_b32 s12, s2, 9
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_add_u32 v2, s12, v1
s_waitcnt lgkmcnt(0)
global_load_dword v3, v2, s[8:9]
s_waitcnt vmcnt(0)
ds_write_b32 v1, v3
s_waitcnt lgkmcnt(0)
s_barrier
v_xor_b32 v4, 0x1fc, v1
ds_read_b32 v5, v4
s_waitcnt lgkmcnt(0)
v_mul_f32 v5, v5, v3
global_store_dword v2, v5, s[10:11]
v_mov_b32 v6, 0
v_mov_b32 v7, 1
global_atomic_add v6, v7, s[10:11] offset:-4
"""


def test_results_do_not_depend_on_the_number_of_threads():
    data = np.random.default_rng(1).standard_normal(128 * 97).astype(np.float32)
    found = []
    for threads in (1, 2, 3, 7):
        gpu = simgpu.Device("gfx942", threads=threads)
        k = kernel(gpu, MIXED, "buffer", "buffer", group_segment_fixed_size=512)
        given, out = gpu.upload(data), gpu.alloc(data.nbytes + 4)
        run = k.launch(grid=97, block=128, args=[given, out.address + 4])
        counters = {name: value for name, value in run.counters.items() if "seconds" not in name}
        found.append((out.download(np.uint32).tobytes(), run.instructions, counters, run.profile))
    want = data.reshape(97, 128) * data.reshape(97, 128)[:, ::-1]
    got = np.frombuffer(found[0][0], np.uint32)
    np.testing.assert_array_equal(got[1:].view(np.float32), want.ravel())
    assert got[0] == data.size
    assert all(other == found[0] for other in found[1:])


# -- faults --------------------------------------------------------------------------------------

STORE = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[8:9]
"""


def test_a_memory_fault_says_what_where_and_who():
    gpu = simgpu.Device("gfx942")
    k = kernel(gpu, STORE, "buffer")
    out = gpu.alloc(4 * 100)
    with pytest.raises(MemoryFault) as error:
        k.launch(grid=1, block=128, args=[out])
    message = str(error.value)
    assert message.startswith("k+0x")
    assert "`global_store_dword v1, v0, s[8:9]`" in message
    assert re.search(r"pc 0x[0-9a-f]+", message)
    assert re.search(r"at kernel\.s:\d+", message)
    assert f"{out.address + 400:#x}, 0 bytes past the end of a buffer of 400 bytes" in message
    assert "workgroup (0, 0, 0), wave 1, lane 36" in message
    assert out.download(np.uint32)[:64].tolist() == list(range(64)), "wave 0 had stored"


def test_use_after_free_is_named():
    gpu = simgpu.Device("gfx942")
    k = kernel(gpu, STORE, "buffer")
    out = gpu.alloc(256)
    k.launch(grid=1, args=[out])
    gpu.free(out)
    with pytest.raises(MemoryFault, match="inside freed memory"):
        k.launch(grid=1, args=[out])
    with pytest.raises(SimError, match="freed before"):
        gpu.free(out)


FAULTS = {
    "null": ("v_mov_b32 v2, 0\nv_mov_b32 v3, 0\nglobal_load_dword v3, v[2:3], off", MemoryFault, "access to 0x0"),
    "scalar": ("s_mov_b64 s[4:5], 64\ns_load_dword s6, s[4:5], 0x0", MemoryFault, "access to 0x40"),
    "lds": ("v_mov_b32 v1, 0x4000\nds_read_b32 v2, v1", MemoryFault, "LDS offset 0x4000 .*256 bytes"),
    "misaligned": (
        "v_lshlrev_b32 v1, 2, v0\nds_add_u32 v1, v0\ns_mov_b64 s[4:5], 0x1003\nv_mov_b32 v1, 0\n"
        "global_atomic_add v1, v0, s[4:5]", MemoryFault, "atomic at 0x1003, which is no multiple"
    ),
    "scratch": (
        "s_movk_i32 s4, 0x4000\nscratch_load_dword v2, off, s4", MemoryFault, "private offset 0x4000"
    ),
    "jump": ("s_mov_b64 s[4:5], 0\ns_setpc_b64 s[4:5]", MemoryFault, "jump to 0x0"),
    "branch": ("s_branch 0x7000", MemoryFault, "jump|the code ends"),
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
        kernel(gpu, lines, **options).launch(grid=1)
    assert "k+0x" in str(raised.value) and "\n" not in str(raised.value)
    assert "workgroup (0, 0, 0), wave 0" in str(raised.value)


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
        kernel(gpu, lines).launch(grid=16)


def test_what_is_never_executed_does_not_matter():
    gpu = simgpu.Device("gfx908")
    lines = "s_mov_b32 s4, 0\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 over\nds_add_u32 v0, v1 gds\nover:"
    run = kernel(gpu, lines).launch(grid=1)
    assert run.instructions == 4


@pytest.mark.parametrize("given", [{"threads": 0}, {"max_instructions": 0}])
def test_device_settings(given):
    with pytest.raises(LaunchError, match="at least one"):
        simgpu.Device("gfx90a", **given)
