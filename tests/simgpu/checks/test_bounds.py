"""Memory misuse in checked mode: each broken kernel gives its finding, its repaired twin none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from simgpu.hardware.errors import MemoryFault
from tests.support.kernels import KernelText, assemble

HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_mov_b32 v10, 0
s_waitcnt lgkmcnt(0)
"""
KINDS = ("out-of-bounds", "use-after-free", "misaligned", "buffer")


def check(
    lines: str, *, target: str = "gfx90a", free: bool = False, options: dict[str, int] | None = None, **how: Any
) -> list[Finding]:
    """Returns findings of memory misuse by one wave.

    v0 is the lane, v1 four times it, v10 0; s[4:5] a buffer of 1024 bytes, s[6:7] the next one, freed before the launch if
    `free`.
    """
    gpu = simgpu.Device(target, check=True, threads=1)
    text = KernelText("k", HEAD + lines, ("buffer", "buffer"), {"group_segment_fixed_size": 1024} | (options or {}))
    first, second = gpu.alloc(1024), gpu.alloc(1024)
    kernel = gpu.load(assemble(target, text))["k"]
    if free:
        gpu.free(second)
    try:
        found = kernel.launch(grid=1, block=64, args=[first, second.address], **how).findings
    except MemoryFault as error:
        found = list(error.findings)
    return [finding for finding in found if finding.kind in KINDS]


def one(found: list[Finding], kind: str, text: str) -> Finding:
    assert [(f.kind, f.text) for f in found] == [(kind, text)], [str(f) for f in found]
    return found[0]


WAIT = "\ns_waitcnt vmcnt(0) lgkmcnt(0)"


@pytest.mark.parametrize("offset, fine", [(768, True), (772, False), (4000, False), (-4, False)])
def test_past_an_allocation(offset: int, fine: bool) -> None:
    lines = f"global_load_dword v2, v1, s[4:5] offset:{offset}" + WAIT
    found = check(lines)
    if fine:
        assert found == []
        return
    finding = one(found, "out-of-bounds", f"global_load_dword v2, v1, s[4:5] offset:{offset}")
    assert "argument a0 of 1024 bytes" in finding.message and finding.lanes == ((63,) if offset == 772 else (0,))
    assert "its pointer" not in finding.message, "the array is named once"


def test_a_pointer_to_one_buffer_lands_in_another() -> None:
    """Two buffers are farther apart than every red zone."""
    lines = """
s_sub_u32 s8, s6, s4
v_add_u32 v2, {distance}, v1
global_store_dword v2, v0, {base}
"""
    text = "global_store_dword v2, v0, s[4:5]"
    finding = one(check(lines.format(distance="s8", base="s[4:5]") + WAIT), "out-of-bounds", text)
    assert "lands in a buffer" in finding.message
    assert check(lines.format(distance="0", base="s[6:7]") + WAIT) == []


def test_a_pointer_to_one_buffer_lands_past_another() -> None:
    lines = "s_sub_u32 s8, s6, s4\ns_add_u32 s8, s8, 1024\nv_add_u32 v2, s8, v1\nglobal_store_dword v2, v0, s[4:5]"
    finding = one(check(lines + WAIT), "out-of-bounds", "global_store_dword v2, v0, s[4:5]")
    assert "0 bytes past the end of a buffer" in finding.message and "is one to argument a0 of 1024 bytes" in finding.message


def test_after_free() -> None:
    lines = "global_load_dword v2, v1, s[6:7]" + WAIT
    assert check(lines) == []
    assert "freed memory" in one(check(lines, free=True), "use-after-free", "global_load_dword v2, v1, s[6:7]").message


def test_write_to_read_only_memory() -> None:
    one(check("global_store_dword v10, v0, s[0:1]" + WAIT), "out-of-bounds", "global_store_dword v10, v0, s[0:1]")


@pytest.mark.parametrize("size, fine", [(1024, True), (512, False)])
def test_lds_past_the_group_segment(size: int, fine: bool) -> None:
    lines = "ds_write_b32 v1, v0 offset:768" + WAIT
    found = check(lines, options={"group_segment_fixed_size": size})
    if fine:
        assert found == []
        # Dynamic LDS counts, too.
        assert check(lines, options={"group_segment_fixed_size": 512}, dynamic_lds=512) == []
    else:
        assert "512 bytes" in one(found, "out-of-bounds", "ds_write_b32 v1, v0 offset:768").message


@pytest.mark.parametrize("size, fine", [(32, True), (16, False)])
def test_private_memory_past_its_size(size: int, fine: bool) -> None:
    lines = "s_mov_b32 s8, 0\nscratch_store_dword off, v0, s8 offset:16" + WAIT
    found = check(lines, target="gfx942", options={"private_segment_fixed_size": size, "enable_private_segment": 1})
    if fine:
        assert found == []
    else:
        one(found, "out-of-bounds", "scratch_store_dword off, v0, s8 offset:16")


def test_private_accesses_may_be_unaligned() -> None:
    options = {"private_segment_fixed_size": 32, "enable_private_segment": 1}
    lines = "s_mov_b32 s8, 0\nscratch_store_dword off, v0, s8 offset:{at}" + WAIT
    assert check(lines.format(at=2), target="gfx942", options=options) == []


@pytest.mark.parametrize("instruction", [
    "global_atomic_add v3, v2, s[4:5]", "ds_add_u32 v3, v2", "s_load_dword s8, s[12:13], 0x0",
])  # fmt: skip
def test_misaligned_where_the_hardware_does_not_take_it(instruction: str) -> None:
    lines = """
v_add_u32 v3, {at}, v1
v_mov_b32 v2, 1
s_add_u32 s12, s4, {at}
s_mov_b32 s13, s5
""" + instruction + WAIT
    one(check(lines.format(at=2)), "misaligned", instruction)
    assert check(lines.format(at=4)) == []


@pytest.mark.parametrize("scalar", [True, False])
def test_past_the_kernel_arguments(scalar: bool) -> None:
    lines = "s_load_dword s8, s[0:1], {at:#x}" if scalar else "global_load_dword v2, v10, s[0:1] offset:{at}"
    finding = one(check(lines.format(at=16) + WAIT), "out-of-bounds", lines.format(at=16))
    assert "16 bytes" in finding.message
    assert check(lines.format(at=12) + WAIT) == []
    # A wide load may reach past the end, as compilers' do.
    assert check("s_load_dwordx4 s[8:11], s[0:1], 0x8" + WAIT) == []


RESOURCE = """
s_mov_b32 s12, s4
s_and_b32 s13, s5, 0xffff
s_mov_b32 s14, {records}
s_mov_b32 s15, 0x27000
v_lshlrev_b32 v2, {shift}, v0
buffer_load_dword v3, v2, s[12:15], 0 offen
"""
LOAD = "buffer_load_dword v3, v2, s[12:15], 0 offen"


def test_buffer_resources() -> None:
    assert check(RESOURCE.format(records=1024, shift=2) + WAIT) == []
    # Out of range loads give 0: that is the purpose of range checks.
    assert check(RESOURCE.format(records=1024, shift=6) + WAIT) == []
    assert "num_records 0" in one(check(RESOURCE.format(records=0, shift=2) + WAIT), "buffer", LOAD).message
    one(check(RESOURCE.format(records=4096, shift=6) + WAIT), "buffer", LOAD)
    # More records than bytes are harmless if no lane goes there: masked loads are written so.
    assert check(RESOURCE.format(records="0x7ffffffe", shift=2) + WAIT) == []


def test_swizzle_that_reads_outside() -> None:
    """64 records of 16 bytes are the buffer; of 48 bytes they reach past its end."""
    lines = """
s_mov_b32 s12, s4
s_and_b32 s13, s5, 0xffff
s_or_b32 s13, s13, {word1:#x}
s_mov_b32 s14, {records}
s_mov_b32 s15, 0x27000
buffer_load_dword v3, v0, s[12:15], 0 idxen
"""
    swizzled = 1 << 31 | 16 << 16
    assert check(lines.format(word1=swizzled, records=64) + WAIT) == []
    one(check(lines.format(word1=1 << 31 | 48 << 16, records=64) + WAIT), "buffer", "buffer_load_dword v3, v0, s[12:15], 0 idxen")


HALF = "v_mov_b32 v2, 0\nv_mov_b32 v3, 0\ns_mov_b64 exec, 1\n"
SWAP = "global_atomic_cmpswap v4, v10, v[2:3], s[4:5] glc" + WAIT


@pytest.mark.parametrize("line, text", [
    ("global_load_ushort v2, v10, s[4:5]", ""),
    ("global_load_short_d16_hi v2, v10, s[4:5]", ""),
    ("global_store_short v10, v2, s[4:5]", ""),
    ("global_atomic_add v10, v2, s[4:5]", ""),
    ("global_atomic_pk_add_f16 v10, v2, s[4:5]", ""),
    ("global_load_dword v2, v10, s[4:5]" + WAIT + "\n" + SWAP, ""),  # LLVM's loop around an atomic of 16 bits begins so
    ("global_load_dword v2, v10, s[4:5]", "global_load_dword v2, v10, s[4:5]"),
    ("flat_load_dword v2, v[12:13]", "flat_load_dword v2, v[12:13]"),
    ("global_load_ubyte v2, v10, s[4:5] offset:2", "global_load_ubyte v2, v10, s[4:5] offset:2"),
    ("global_store_dword v10, v2, s[4:5]", "global_store_dword v10, v2, s[4:5]"),
    ("s_load_dword s20, s[4:5], 0x0", "s_load_dword s20, s[4:5], 0x0"),
])  # fmt: skip
def test_the_dword_of_two_bytes(line: str, text: str) -> None:
    """Atomics may reach all of it; plain accesses only the two bytes, in checked mode."""
    lines = HEAD + "v_mov_b32 v12, s4\nv_mov_b32 v13, s5\n" + HALF + line + WAIT
    for mode in (False, True):
        gpu = simgpu.Device("gfx90a", check=mode, threads=1)
        kernel = gpu.load(assemble("gfx90a", KernelText("k", lines, ("buffer", "buffer"), {})))["k"]
        half = gpu.upload(np.array([0x3C00], np.uint16))
        run = kernel.launch(grid=1, block=64, args=[half, gpu.alloc(64)])
        found = [f for f in run.findings if f.kind in KINDS]
        if mode and text:
            assert "of 2 bytes" in one(found, "out-of-bounds", text).message
        else:
            assert found == [], str(found[0])
        assert run.counters["unique_read_bytes"] <= 2 and run.counters["unique_write_bytes"] <= 2


@pytest.mark.parametrize("mode", [False, True])
def test_past_the_dword_of_two_bytes(mode: bool) -> None:
    gpu = simgpu.Device("gfx90a", check=mode, threads=1)
    text = KernelText("k", HEAD + HALF + "global_load_ubyte v2, v10, s[4:5] offset:4" + WAIT, ("buffer", "buffer"), {})
    kernel = gpu.load(assemble("gfx90a", text))["k"]
    with pytest.raises(MemoryFault, match="2 bytes past the end of argument a0 of 2 bytes"):
        kernel.launch(grid=1, block=64, args=[gpu.alloc(2), gpu.alloc(64)])
