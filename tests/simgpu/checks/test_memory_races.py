"""Races in device memory in checked mode: each broken kernel gives its finding, its repaired twin none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from tests.support.kernels import KernelText, assemble
from tests.support.race_findings import HEAD, check, one

GLOBAL = """
v_xor_b32 v2, 0x100, v1
global_store_dword v1, v0, s[4:5]
s_waitcnt vmcnt(0)
{barrier}
global_load_dword v3, v2, s[4:5]
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("target", ["gfx908", "gfx942"])
def test_memory_of_one_workgroup(target: str) -> None:
    texts = "global_load_dword v3, v2, s[4:5]", "global_store_dword v1, v0, s[4:5]"
    found = one(check(GLOBAL.format(barrier=""), target=target), "race", *texts)
    assert "s_barrier" in found.message
    assert check(GLOBAL.format(barrier="s_barrier"), target=target) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_two_workgroups(threads: int) -> None:
    """A barrier orders the waves of one workgroup only."""
    lines = GLOBAL.format(barrier="s_barrier")
    found = check(lines, grid=6, threads=threads)
    assert {f.text for f in found} <= {"global_load_dword v3, v2, s[4:5]", "global_store_dword v1, v0, s[4:5]"}
    assert found and all("workgroup" in f.message for f in found)
    own = """
s_lshl_b32 s8, s2, 10
v_add_u32 v1, s8, v1
"""
    assert check(own + lines, grid=6, threads=threads) == []


def test_memory_is_watched_by_the_byte() -> None:
    """Bytes of a dword by different workgroups are no race."""
    lines = "v_mov_b32 v2, s2\nglobal_store_byte v2, v0, s[4:5]\ns_waitcnt vmcnt(0)"
    assert check(lines, grid=8, block=64) == []
    wide = lines.replace("store_byte", "store_short")
    assert "two writes" in check(wide, grid=8, block=64)[0].message


NARROW = {(1, True): "global_store_byte v3, v2, s[4:5]", (1, False): "global_load_ubyte v2, v3, s[4:5]",
          (2, True): "global_store_short v3, v2, s[4:5]", (2, False): "global_load_ushort v2, v3, s[4:5]"}  # fmt: skip


@pytest.fixture(scope="module")
def narrow_kernels() -> dict[tuple[int, bool, bool], simgpu.Kernel]:
    """Kernels by bytes a lane, and whether wave 0 stores and wave 1: each accesses one array at offsets from another."""
    gpu = simgpu.Device("gfx90a", check=True, threads=1)
    kernels = {}
    for size in (1, 2):
        for first, second in ((True, False), (False, True), (True, True)):
            lines = f"""
global_load_dword v3, v1, s[6:7]
s_waitcnt vmcnt(0)
v_cmp_gt_i32 vcc, 0, v3
s_andn2_b64 exec, exec, vcc
s_cmp_eq_u32 s9, 1
s_cbranch_scc1 second
{NARROW[size, first]}
s_endpgm
second:
{NARROW[size, second]}
"""
            kernels[size, first, second] = gpu.load(assemble("gfx90a", KernelText("k", HEAD + lines, ("buffer", "buffer"))))["k"]
    return kernels


@st.composite
def scattered(draw: st.DrawFn, size: int) -> np.ndarray:
    """Draws the byte offsets of 64 lanes, -1 for an inactive one: runs, repetitions, single elements."""
    offsets: list[int] = []
    while len(offsets) < 64:
        start, count = draw(st.integers(0, 300)), draw(st.integers(1, 20))
        step = draw(st.sampled_from((size, size, 0, 2 * size, -size)))
        offsets += [max(start + step * i, 0) if draw(st.integers(0, 9)) else -1 for i in range(count)]
    return np.array(offsets[:64], np.int32)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from((1, 2)), st.sampled_from(((True, False), (False, True), (True, True))))
def test_bytes_that_two_waves_access(
    narrow_kernels: dict[tuple[int, bool, bool], simgpu.Kernel], data: st.DataObject, size: int, writes: tuple[bool, bool]
) -> None:
    """Two waves race if they have a byte in common, and the finding names lanes and an address that have one."""
    kernel = narrow_kernels[size, *writes]
    offsets = [data.draw(scattered(size)) for _ in range(2)]
    held = [{int(at) + i for at in lanes[lanes >= 0] for i in range(size)} for lanes in offsets]
    gpu = kernel.module.device
    array, places = gpu.zeros(1024, "u1"), gpu.upload(np.concatenate(offsets))
    found = [f for f in kernel.launch(grid=1, block=128, args=[array, places]).findings if f.kind == "race"]
    both = held[0] & held[1]
    if not both:
        assert found == []
        return
    finding = next(f for f in found if f.wave in (0, 1) and f.other_text in NARROW.values())
    address = int(finding.place.split()[1], 16) - array.address
    assert {address + i for i in range(4 if address % 4 == 0 else 1)} & both
    dwords = {at // 4 for at in both}
    touching = {lane for lanes in offsets for lane, at in enumerate(lanes) if at >= 0 and {at // 4, (at + size - 1) // 4} & dwords}
    assert set(finding.lanes) <= touching


# By bytes a lane; wave 0 does one, wave 1 the other, one of them with two lanes only.
STORES = {4: "global_store_dword v1, v0, s[4:5]", 16: "global_store_dwordx4 v1, v[20:23], s[4:5]"}
LOADS = {4: "global_load_dword v3, v1, s[4:5]", 16: "global_load_dwordx4 v[4:7], v1, s[4:5]"}


@pytest.mark.parametrize("size", [4, 16])
@pytest.mark.parametrize("whole_first", [True, False])
@pytest.mark.parametrize("writes", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("swizzle", [0, 0x30, 0x4000])
def test_whole_lines_and_parts_of_them(size: int, whole_first: bool, writes: tuple[bool, bool], swizzle: int) -> None:
    """Lines that are accessed whole have one cell: findings do not depend on the access' alignment.

    swizzle: value XORed with the lanes' offsets, which permutes them within their lines, or 0x4000: every other line is apart.
    """
    texts = [(STORES if store else LOADS)[size] for store in writes]
    few = "s_mov_b64 exec, 0x60"
    lines = f"""
v_and_b32 v0, 63, v0
v_lshlrev_b32 v1, {2 if size == 4 else 4}, v0
v_lshlrev_b32 v2, 8, v1
v_and_b32 v2, 0x4000, v2
v_xor_b32 v1, {swizzle & 0xFF}, v1
{"v_add_u32 v1, v2, v1" if swizzle > 0xFF else ""}
v_add_u32 v1, {{start}}, v1
s_cmp_eq_u32 s9, 1
s_cbranch_scc1 second
{"" if whole_first else few}
{texts[0]}
s_mov_b64 exec, -1
s_waitcnt vmcnt(0)
{{before}}
s_branch done
second:
{{between}}
{few if whole_first else ""}
{texts[1]}
s_waitcnt vmcnt(0)
done:
"""
    seen = []
    for start in (0, 4, 64):
        racing = check(lines.format(start=start, before="", between=""), block=128)
        found = one(racing, "race", *texts)
        seen.append((found.pc, found.lanes, found.count, found.wave, int(found.place.split()[1], 16) % 256 - start))
        ordered = lines.format(start=start, before="s_barrier", between="s_barrier")
        assert [f for f in check(ordered, block=128) if f.kind == "race"] == []
    assert seen[0] == seen[1] == seen[2]


LAST_BLOCK = """
s_lshl_b32 s8, s2, 10
v_add_u32 v2, s8, v1
global_store_dword v2, v0, s[4:5]
s_waitcnt vmcnt(0)
s_barrier
s_mov_b64 s[20:21], exec
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
{count}
s_mov_b64 exec, s[20:21]
s_barrier
ds_read_b32 v5, v10
s_waitcnt lgkmcnt(0)
v_readfirstlane_b32 s8, v5
s_cmp_eq_u32 s8, 3
s_cbranch_scc0 done
global_load_dword v6, v1, s[4:5]
global_load_dword v6, v1, s[4:5] offset:1024
global_load_dword v6, v1, s[4:5] offset:2048
global_load_dword v6, v1, s[4:5] offset:3072
done:
s_waitcnt vmcnt(0)
"""
COUNT = """
global_atomic_add v4, v10, v11, s[6:7] {returns}
s_waitcnt vmcnt(0)
ds_write_b32 v10, v4
s_waitcnt lgkmcnt(0)
"""


@pytest.mark.parametrize("target, returns", [("gfx908", "glc"), ("gfx942", "sc0")])
def test_the_last_workgroup_may_read_what_the_others_wrote(target: str, returns: str) -> None:
    assert check(LAST_BLOCK.format(count=COUNT.format(returns=returns)), target=target, grid=4) == []
    # Without the counter, a workgroup that thinks it is the last one reads too early.
    blind = "v_mov_b32 v4, s2\nds_write_b32 v10, v4\ns_waitcnt lgkmcnt(0)"
    found = check(LAST_BLOCK.format(count=blind), target=target, grid=4)
    assert found and {f.other_text for f in found} == {"global_store_dword v2, v0, s[4:5]"}


SPIN = """
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
{take}
global_load_dword v5, v10, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v5, 1, v5
global_store_dword v10, v5, s[4:5]
s_waitcnt vmcnt(0)
{give}
s_waitcnt vmcnt(0)
"""
TAKE = """
v_mov_b32 v2, 1
v_mov_b32 v3, 0
again:
s_sleep 1
global_atomic_cmpswap v4, v10, v[2:3], s[6:7] {returns}
s_waitcnt vmcnt(0)
v_cmp_ne_u32 vcc, 0, v4
s_cbranch_vccnz again
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("give", ["global_store_dword v10, v10, s[6:7]", "global_atomic_swap v10, v10, s[6:7]"])
def test_a_spin_lock_orders_what_it_guards(give: str, threads: int) -> None:
    take = TAKE.format(returns="glc")
    assert check(SPIN.format(take=take, give=give), grid=12, threads=threads, block=64) == []
    assert len(check(SPIN.format(take="", give=""), grid=12, threads=threads, block=64)) >= 1


# Workgroup 0 stores a word, then compares and swaps another; workgroup 1 does the same after it.
SWAPS = """
{lanes}
v_mov_b32 v2, 5
v_mov_b32 v3, {compare}
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 first
s_sleep 100
global_atomic_cmpswap v4, v10, v[2:3], s[6:7] glc
s_waitcnt vmcnt(0)
first:
global_store_dword v10, v11, s[4:5]
s_waitcnt vmcnt(0)
global_atomic_cmpswap v4, v10, v[2:3], s[6:7] glc
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("lanes", ["s_mov_b64 exec, 1", "s_mov_b64 exec, 0xff"])
def test_a_compare_and_swap_that_stores_nothing_releases_nothing(lanes: str) -> None:
    assert check(SWAPS.format(lanes=lanes, compare=0), grid=2, block=64) == []
    assert len(check(SWAPS.format(lanes=lanes, compare=9), grid=2, block=64)) == 1


LOOK_BACK = """
v_cmp_eq_u32 vcc, 0, v0
s_and_b64 exec, exec, vcc
s_lshl_b32 s8, s2, 2
v_mov_b32 v2, s8
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 first
spin:
s_sleep 1
global_load_dword v4, v2, s[6:7] offset:-4 {coherent}
s_waitcnt vmcnt(0)
v_cmp_eq_u32 vcc, 0, v4
s_cbranch_vccnz spin
global_load_dword v5, v2, s[4:5] offset:-4
first:
s_waitcnt vmcnt(0)
global_store_dword v2, v0, s[4:5]
s_waitcnt vmcnt(0)
global_store_dword v2, v11, s[6:7]
s_waitcnt vmcnt(0)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_look_back_through_flags(threads: int) -> None:
    """Plain flag stores, as gfx90a's compilers write atomic ones, read by coherent loads."""
    assert check(LOOK_BACK.format(coherent="glc"), grid=12, threads=threads, block=64) == []
    assert check(LOOK_BACK.format(coherent=""), grid=12, threads=threads, block=64) != []


def test_histogram_by_atomics_is_silent_and_by_stores_is_not() -> None:
    lines = "v_and_b32 v2, 0x3c, v1\n{add}\ns_waitcnt vmcnt(0)"
    assert check(lines.format(add="global_atomic_add v2, v11, s[4:5]"), grid=4, threads=2) == []
    found = check(lines.format(add="global_store_dword v2, v11, s[4:5]"), grid=4, threads=2)
    assert "same value" in one(found, "race", *["global_store_dword v2, v11, s[4:5]"] * 2).message


def test_scalar_and_buffer_accesses_are_watched() -> None:
    lines = """
s_mov_b32 s12, s4
s_and_b32 s13, s5, 0xffff
s_mov_b32 s14, 0x10000
s_mov_b32 s15, 0x27000
buffer_store_dword v0, v1, s[12:15], 0 offen
s_waitcnt vmcnt(0)
{barrier}
s_load_dword s20, s[4:5], 0x100
s_waitcnt lgkmcnt(0)
"""
    one(check(lines.format(barrier="")), "race", "s_load_dword s20, s[4:5], 0x100", "buffer_store_dword v0, v1, s[12:15], 0 offen")
    assert check(lines.format(barrier="s_barrier")) == []
