"""Launching: geometry, arguments, and a kernel's initial state."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import simgpu
from simgpu.hardware.errors import LaunchError, MemoryFault
from tests.support.kernels import loaded_kernel

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")


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
    return loaded_kernel(gpu, lines, "buffer", *["i32"] * 5, **ALL_IDS)


def expected_ids(size, block):
    """Returns local and group ids, packed x | y << 10 | z << 20, indexed [z, y, x]."""
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


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("check", [False, True])
def test_v0_has_no_ids_that_the_kernel_does_not_ask_for(mode, check):
    """A wave of a block of (4, 4, 4): lane 63 is (3, 3, 3). LLVM reads v0 without a mask if a kernel asks for x alone."""
    gpu = simgpu.Device("gfx942", check=check)
    lines = """
    v_readlane_b32 s4, v0, 63
    s_load_dwordx2 s[6:7], s[0:1], 0x0
    v_mov_b32 v1, s4
    v_mov_b32 v2, 0
    s_waitcnt lgkmcnt(0)
    global_store_dword v2, v1, s[6:7]
    """
    out = gpu.upload(np.zeros(1, np.uint32))
    loaded_kernel(gpu, lines, "buffer", system_vgpr_workitem_id=mode).launch(grid=1, block=(4, 4, 4), args=[out])
    assert out.download(np.uint32)[0] == (3, 3 | 3 << 10, 3 | 3 << 10 | 3 << 20)[mode]


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
        loaded_kernel(gpu, "s_nop 0").launch(**given)


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
    k = loaded_kernel(gpu, copy_from(0), *args)
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
        ([0, np.zeros(3)], "pass a number, not an array"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args, words):
    gpu = simgpu.Device("gfx90a")
    k = loaded_kernel(gpu, "s_nop 0", "buffer", "i32")
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
    k = loaded_kernel(gpu, "s_mov_b64 exec, 0xffff\nv_mbcnt_lo_u32_b32 v0, -1, 0\n" + copy_from(0), *HIDDEN)
    assert [argument.name for argument in k.arguments] == ["a0"]
    out = gpu.alloc(64 * 4)
    k.launch(global_size=(64 + 40, 3, 1), block=(64, 2, 1), args=[out], dynamic_lds=96)
    layout = "<QIIIHHHHHHqHxxI"
    found = struct.unpack_from(layout, out.download(np.uint8).tobytes())[1:]
    # A last workgroup that is partial in x and y finds its own extents as the group's.
    assert found[3:6] in {(64, 2, 1), (40, 2, 1), (64, 1, 1), (40, 1, 1)}
    assert found[:3] == (1, 1, 1)
    assert found[6:9] == (40, 1, 0)
    assert found[9:] == (0, 3, 96)


def test_a_partial_workgroup_reads_its_own_size():
    """Lane 0 of each workgroup writes hidden_group_size_x (docs/reference/semantics.md)."""
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
    k = loaded_kernel(gpu, lines, "buffer", "hidden_group_size_x:2", "hidden_group_size_y:2")
    out = gpu.alloc(16)
    k.launch(global_size=100, block=32, args=[out])
    assert out.download(np.uint32).tolist() == [32, 32, 32, 4]


def test_dispatch_packet():
    gpu = simgpu.Device("gfx90a")
    lines = copy_from(0).replace("s[0:1], 0x0", "s[2:3], 0x0")
    options = {"user_sgpr_dispatch_ptr": 1, "group_segment_fixed_size": 128, "private_segment_fixed_size": 32}
    k = loaded_kernel(gpu, lines, "buffer", **options)
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
    k = loaded_kernel(gpu, lines.replace("0x7c", "0x3fc"), group_segment_fixed_size=960)
    k.launch(grid=1, dynamic_lds=64)
    refused = r"LDS offset 0x3fc is outside the 508 bytes of the workgroup, for which the chip reserves 512 \(.*lane 0"
    k = loaded_kernel(gpu, lines.replace("0x7c", "0x3fc"), group_segment_fixed_size=448)
    with pytest.raises(MemoryFault, match=refused):
        k.launch(grid=1, dynamic_lds=60)


@pytest.mark.parametrize(("target", "granule"), [("gfx90a", 512), ("gfx950", 1280)])
def test_lds_is_reserved_in_granules(target, granule):
    """Bytes past the requested ones are there, as on the chip; checked mode names the access."""
    lines = f"""
    v_mov_b32 v1, {granule - 4:#x}
    v_mov_b32 v2, 7
    s_mov_b32 m0, -1
    ds_write_b32 v1, v2
    ds_read_b32 v3, v1
    s_waitcnt lgkmcnt(0)
    """
    simple = loaded_kernel(simgpu.Device(target), lines, group_segment_fixed_size=64)
    simple.launch(grid=2)
    checked = loaded_kernel(simgpu.Device(target, check=True), lines, group_segment_fixed_size=64)
    with pytest.raises(MemoryFault, match="is outside the 64 bytes of the workgroup \\("):
        checked.launch(grid=1)


def test_lds_starts_clear_and_is_the_workgroups_own():
    """Each workgroup adds 1 to each of 64 words and writes their old values: always 0."""
    gpu = simgpu.Device("gfx90a", threads=2)
    lines = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    v_mov_b32 v2, 1
    ds_add_rtn_u32 v3, v1, v2
    s_waitcnt lgkmcnt(0)
    global_atomic_add v1, v3, s[8:9]
    """
    k = loaded_kernel(gpu, lines, "buffer", group_segment_fixed_size=256)
    out = gpu.alloc(256)
    k.launch(grid=150, args=[out])
    assert not out.download(np.uint32).any()


def test_a_descriptor_that_asks_for_too_many_registers():
    gpu = simgpu.Device("gfx90a")
    k = loaded_kernel(gpu, "s_nop 0", private_segment_fixed_size=200_000)
    with pytest.raises(LaunchError, match="200000 bytes of private memory"):
        k.launch(grid=1)
