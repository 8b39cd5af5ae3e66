"""Mostly unfilled buffers above 4 GiB: accesses on both sides of 2 and 4 GiB, and past the end."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.checks.races.storage import lazy_zeros
from simgpu.hardware.errors import MemoryFault
from simgpu.machine.host_memory import aligned_bytes
from tests.support.kernels import KernelText, assemble

NBYTES = 5 << 30
# Adds 1 to 64 dwords at a byte offset, by a global access and by a flat one.
BODY = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v2, 2, v0
  s_waitcnt lgkmcnt(0)
  s_add_u32 s4, s4, s6
  s_addc_u32 s5, s5, s7
  v_mov_b32 v5, s5
  v_add_co_u32 v4, vcc, s4, v2
  s_nop 1
  v_addc_co_u32 v5, vcc, 0, v5, vcc
  global_load_dword v8, v[4:5], off
  s_waitcnt vmcnt(0)
  v_add_u32 v3, 1, v8
  global_store_dword v[4:5], v3, off
  s_waitcnt vmcnt(0)
  flat_load_dword v9, v[4:5]
  s_waitcnt vmcnt(0) lgkmcnt(0)
  v_add_u32 v9, 1, v9
  flat_store_dword v[4:5], v9
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    return assemble("gfx942", KernelText("k", BODY, ("buffer", "i32", "i32")))


@pytest.mark.parametrize(("check", "offset", "nbytes"), [
    (False, (1 << 31) - 128, NBYTES), (False, (1 << 32) - 128, NBYTES), (False, NBYTES - 256, NBYTES),
    (True, (1 << 31) - 128, NBYTES), (True, (1 << 32) - 128, NBYTES),
])  # fmt: skip
def test_both_sides_of_a_boundary(code: bytes, check: bool, offset: int, nbytes: int) -> None:
    gpu = simgpu.Device("gfx942", check=check, threads=1)
    # As the host's writes of all bytes: shadow memory that is written in whole takes seconds a gigabyte.
    held = gpu.memory.allocate(nbytes, data=aligned_bytes(nbytes))
    if held.undefined is not None:
        held.undefined[:256] = 0xFF  # so that accesses look at it
    held.data[offset : offset + 256].view(np.uint32)[:] = np.arange(64)
    below = [offset - (1 << bits) for bits in (31, 32) if offset >= 1 << bits]  # targets of an address cut short
    for place in below:
        held.data[place : place + 256] = 0xA5
    run = gpu.load(code)["k"].launch(grid=1, block=64, args=[held.address, offset & 0x7FFFFFFF | -(offset & 1 << 31), offset >> 32])
    assert [finding for finding in run.findings if finding.kind != "uninitialized"] == []
    assert (held.data[offset : offset + 256].view(np.uint32) == np.arange(64) + 2).all()
    assert all((held.data[place : place + 256] == 0xA5).all() for place in below)


def test_one_dword_past_the_end(code: bytes) -> None:
    gpu = simgpu.Device("gfx942", threads=1)
    buffer = gpu.alloc(NBYTES)
    offset = NBYTES - 252
    with pytest.raises(MemoryFault, match=r"lane.* 63\b"):
        gpu.load(code)["k"].launch(grid=1, block=64, args=[buffer, offset & 0x7FFFFFFF, offset >> 32])


@pytest.mark.skipif(sys.platform != "linux", reason="another system's rules")
def test_shadows_of_checked_mode_may_be_larger_than_the_host_s_memory() -> None:
    """Kernels touch a small part of them. Linux refuses such a mapping unless it is told that this is meant."""
    if Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "2":
        pytest.skip("this host counts mappings in full")
    total = sum(map(int, re.findall(r"(?:Mem|Swap)Total: *(\d+) kB", Path("/proc/meminfo").read_text())))
    found = lazy_zeros(2048 * total)
    found[-1] = 7
    assert (found[0], found[-1], found.nbytes) == (0, 7, 2048 * total)
