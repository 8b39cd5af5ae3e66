"""Atomic loads and stores of agent scope: look-back and compare-and-swap loops are no races, plain accesses next to them are."""

from __future__ import annotations

import numpy as np
import pytest

import simgpu
from tests.support.device_library import compiled
from tests.support.kernels import KernelText, assemble

TARGETS = ("gfx908", "gfx90a", "gfx942", "gfx950")
SOURCE = r"""
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable

uint summed(uint value) {
  for (int d = 32; d > 0; d >>= 1) value += __builtin_amdgcn_ds_bpermute(((lane + d) & 63) << 2, value);
  return __builtin_amdgcn_readfirstlane(value);
}
float as_f(uint bits) { float f; __builtin_memcpy(&f, &bits, 4); return f; }
uint as_u(float f) { uint bits; __builtin_memcpy(&bits, &f, 4); return bits; }
bool swapped(__global uint *p, uint *expected, uint wanted) {
  return __opencl_atomic_compare_exchange_strong((__global atomic_uint *)p, expected, wanted, 0, 0, 2);
}

// Sums before each block, by decoupled look-back: a state is a flag (1 the block's sum, 2 all up to it) above a value.
__kernel void look_back(__global uint *in, __global uint *out, __global ulong *state, __global uint *ticket) {
  uint b = 0;
  if (lane == 0) b = add(ticket, 1);
  b = __builtin_amdgcn_readfirstlane(b);
  uint total = summed(in[b * 64 + lane]), before = 0;
  if (lane == 0) store64(&state[b], (b ? 1ul : 2ul) << 32 | total);
  if (b) {
    int at = (int)b - 1 - (int)lane;
    for (;; at -= 64) {
      ulong s;
      do { s = at >= 0 ? load64(&state[at]) : 2ul << 32; } while (__builtin_amdgcn_ballot_w64(s >> 32 == 0));
      ulong done = __builtin_amdgcn_ballot_w64(s >> 32 == 2);
      before += summed(lane > (done ? __builtin_ctzl(done) : 63) ? 0 : (uint)s);
      if (done) break;
    }
    if (lane == 0) store64(&state[b], 2ul << 32 | (before + total));
  }
  if (lane == 0) out[b] = before;
}
// The same, from block to block, with plain values beside flags that release and acquire.
__kernel void beside(__global uint *in, __global uint *out, __global uint *flag, __global uint *value, __global uint *ticket) {
  uint b = 0;
  if (lane == 0) b = add(ticket, 1);
  b = __builtin_amdgcn_readfirstlane(b);
  uint total = summed(in[b * 64 + lane]);
  if (lane == 0) {
    uint before = 0;
    if (b) {
      while (load(&flag[b - 1]) == 0);
      __builtin_amdgcn_fence(2, "agent");
      before = value[b - 1];
    }
    value[b] = before + total;
    __builtin_amdgcn_fence(3, "agent");
    store(&flag[b], 1);
    out[b] = before;
  }
}
__kernel void add_float(__global uint *sums, __global float *in) {
  __global uint *p = &sums[lane % 7];
  uint old = *p;
  while (!swapped(p, &old, as_u(as_f(old) + in[group * 64 + lane])));
}
__kernel void greatest(__global uint *found, __global float *in) {
  __global uint *p = &found[lane % 7];
  float mine = in[group * 64 + lane];
  uint old = load(p);
  while (as_f(old) < mine && !swapped(p, &old, as_u(mine)));
}
__kernel void flags(__global uint *a, __global uint *out) {
  uint i = group * 64 + lane;
  store(&a[i % 5], 1);
  out[i] = load(&a[i % 5]);
}

__kernel void plain_load(__global uint *a, __global uint *out) {
  uint i = group * 64 + lane;
  if (group % 2) store(&a[lane % 5], group);
  else out[i] = a[(lane + 1) % 5];
}
__kernel void plain_store(__global uint *a, __global uint *out) { a[lane % 5] = group; }
__kernel void plain_store_and_add(__global uint *a, __global uint *out) {
  if (group % 2) add(&a[lane % 5], 1);
  else a[lane % 5] = 1;
}
"""
GROUPS = 40


def launched(target: str, name: str, threads: int) -> tuple[list[simgpu.Finding], list[np.ndarray]]:
    """Returns findings of a kernel of SOURCE on fresh buffers, and their contents."""
    rng = np.random.default_rng(1)
    gpu = simgpu.Device(target, check=True, threads=threads)

    def zeros(count: int, kind: str = "u4") -> np.ndarray:
        return np.zeros(count, kind)

    numbers, floats = rng.integers(0, 100, 64 * GROUPS).astype("u4"), rng.integers(1, 100, 64 * GROUPS).astype("f4")
    given = {
        "look_back": [numbers, zeros(GROUPS), zeros(GROUPS, "u8"), zeros(1)],
        "beside": [numbers, zeros(GROUPS), zeros(GROUPS), zeros(GROUPS), zeros(1)],
        "add_float": [zeros(7), floats],
        "greatest": [zeros(7), floats],
    }.get(name, [zeros(5), zeros(64 * GROUPS)])
    buffers = [gpu.upload(array) for array in given]
    run = gpu.load(compiled(target, SOURCE, library=False))[name].launch(grid=GROUPS, args=buffers)
    return run.findings, [buffer.download(array.dtype) for buffer, array in zip(buffers, given, strict=True)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["look_back", "beside"])
def test_look_back(target: str, threads: int, name: str) -> None:
    found, (numbers, before, *_) = launched(target, name, threads)
    assert found == []
    assert np.array_equal(before, np.concatenate([[0], np.cumsum(numbers.reshape(GROUPS, 64).sum(axis=1))[:-1]]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2])
def test_compare_and_swap_loops(target: str, threads: int) -> None:
    by_place = [np.arange(64) % 7 == place for place in range(7)]
    found, (sums, floats) = launched(target, "add_float", threads)
    rows = floats.reshape(GROUPS, 64)
    assert found == [] and np.array_equal(sums.view("f4"), [rows[:, at].sum() for at in by_place])
    found, (greatest, _) = launched(target, "greatest", threads)
    assert found == [] and np.array_equal(greatest.view("f4"), [rows[:, at].max() for at in by_place])


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_stores_past_the_caches_are_atomic_among_themselves(target: str) -> None:
    """Before gfx942 the stores are plain ones, and look like `plain_store`."""
    assert launched(target, "flags", 1)[0] == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["plain_load", "plain_store", "plain_store_and_add"])
def test_plain_accesses_race(target: str, threads: int, name: str) -> None:
    found, _ = launched(target, name, threads)
    assert {finding.kind for finding in found} == {"race"}


STORE = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 2, v0
s_waitcnt lgkmcnt(0)
global_store_dword v1, v0, s[4:5] {how}
s_waitcnt vmcnt(0)
"""


def test_handlers_tell_stores_past_the_caches_from_plain_ones() -> None:
    """Instructions of a kind share a handler: neither gets the other's, whichever was compiled first."""
    ways = {"plain": "", "past": "sc1", "both": "sc0 sc1"}
    texts = [KernelText(name, STORE.format(how=how), ("buffer",)) for name, how in ways.items()]
    gpu = simgpu.Device("gfx942", check=True)
    module, out = gpu.load(assemble("gfx942", *texts)), gpu.alloc(256)
    kinds = {name: {finding.kind for finding in module[name].launch(grid=4, args=[out]).findings} for name in ways}
    assert kinds == {"plain": {"race"}, "past": set(), "both": set()}
