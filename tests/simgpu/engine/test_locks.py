"""Workgroups that take locks in loops."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from tests.support.kernels import loaded_kernel


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
    k = loaded_kernel(gpu, lines, "buffer")
    state = gpu.upload(np.zeros(2, np.uint32))
    k.launch(grid=300, args=[state])
    assert state.download(np.uint32).tolist() == [0, 300]


# Workgroup 0 takes a lock, looks at a flag, gives the lock back, and again until the flag is set. All branches that it takes are
# where it has the lock. Workgroup 1 sets the flag with the lock. Words: the lock, the flag.
LOOKS_WITH_THE_LOCK = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
v_mov_b32 v3, 0
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
s_cmp_lg_u32 s2, 0
s_cbranch_scc1 sets
s_branch take
has:
global_load_dword v5, v1, s[8:9] offset:4 glc
s_waitcnt vmcnt(0)
global_atomic_swap v1, v3, s[8:9]
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s13, v5
s_cmp_lg_u32 s13, 0
s_cbranch_scc1 done
take:
global_atomic_cmpswap v4, v1, v[2:3], s[8:9] glc
s_waitcnt vmcnt(0)
{}
v_readfirstlane_b32 s12, v4
s_cmp_eq_u32 s12, 0
s_cbranch_scc1 has
s_branch take
sets:
global_atomic_cmpswap v4, v1, v[2:3], s[8:9] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s12, v4
s_cmp_lg_u32 s12, 0
s_cbranch_scc1 sets
global_store_dword v1, v2, s[8:9] offset:4
s_waitcnt vmcnt(0)
global_atomic_swap v1, v3, s[8:9]
done:
"""


@pytest.mark.parametrize("counts", ["", "s_add_u32 s14, s14, 1"], ids=["polls", "counts"])
def test_a_lock_that_a_loop_has_at_each_branch_is_free_in_some_turns(counts):
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=20_000_000)
    state = gpu.upload(np.zeros(2, np.uint32))
    loaded_kernel(gpu, LOOKS_WITH_THE_LOCK.format(counts), "buffer").launch(grid=2, args=[state])
    assert state.download(np.uint32).tolist() == [0, 1]


# Each workgroup takes a lock, looks whether it is its turn, and gives the lock back. It tries again after a delay that it draws, so
# that no registers recur. Words: the lock, the number of the workgroup whose turn it is.
TURNS = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
v_mov_b32 v3, 0
s_mov_b64 exec, 1
s_add_u32 s10, s2, 77
s_sub_u32 s11, 31, s2
s_waitcnt lgkmcnt(0)
take:
s_mul_i32 s10, s10, 0x19660d
s_add_u32 s10, s10, 0x3c6ef35f
s_cmp_lt_i32 s10, 0
s_cbranch_scc1 take
global_atomic_cmpswap v4, v1, v[2:3], s[8:9] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s12, v4
s_cmp_lg_u32 s12, 0
s_cbranch_scc1 take
global_load_dword v5, v1, s[8:9] offset:4 glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s13, v5
s_cmp_eq_u32 s13, s11
s_cbranch_scc0 give
v_add_u32 v5, 1, v5
global_store_dword v1, v5, s[8:9] offset:4
s_waitcnt vmcnt(0)
global_atomic_swap v1, v3, s[8:9]
s_endpgm
give:
global_atomic_swap v1, v3, s[8:9]
s_branch take
"""


def test_workgroups_that_try_to_take_a_lock_have_short_turns():
    """In turns of 65,536 instructions they need more than 1,000 million."""
    gpu = simgpu.Device("gfx90a", threads=1, max_instructions=200_000_000)
    state = gpu.upload(np.zeros(2, np.uint32))
    loaded_kernel(gpu, TURNS, "buffer").launch(grid=32, args=[state])
    assert state.download(np.uint32).tolist() == [0, 32]
