"""Results by the number of host threads: the same bits without races, and always the same bits with one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simgpu
from simgpu.engine.workers.team import Team
from tests.support.exhaustive import one_in
from tests.support.host_kernels import OPERATORS, operator
from tests.support.kernels import KernelText, assemble, loaded_kernel

THREADS = (2, 3, 5)


@pytest.mark.parametrize("name", one_in(2, list(OPERATORS)))
def test_operators_give_the_same_bits_on_any_number_of_threads(name: str) -> None:
    alone = operator(name, threads=1)
    for threads in THREADS:
        assert operator(name, threads=threads) == alone, threads


# s2: workgroup, v0: lane; s[8:9] input, s[10:11] output, both of 64 dwords a workgroup; v1 = 4·(64·workgroup + lane).
START = """
s_load_dwordx4 s[8:11], s[0:1], 0x0
s_lshl_b32 s3, s2, 8
v_lshl_add_u32 v1, v0, 2, s3
v_mov_b32 v3, 0
v_mov_b32 v4, 1
s_waitcnt lgkmcnt(0)
global_load_dword v2, v1, s[8:9]
s_waitcnt vmcnt(0)
"""
# A sum over all workgroups before this one: each waits for its predecessor's running total.
LOOK_BACK = START + """
s_lshl_b32 s3, s2, 2
v_mov_b32 v5, s3
v_mov_b32 v6, 0
s_cmp_eq_u32 s2, 0
s_cbranch_scc1 first
spin:
s_sleep 1
global_load_dword v7, v5, s[10:11] offset:4092 glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s4, v7
s_cmp_eq_u32 s4, 0
s_cbranch_scc1 spin
global_load_dword v6, v5, s[10:11] offset:2044 glc
s_waitcnt vmcnt(0)
first:
v_readfirstlane_b32 s5, v2
v_add_u32 v6, s5, v6
s_mov_b64 exec, 1
global_store_dword v5, v6, s[10:11] offset:2048
s_waitcnt vmcnt(0)
v_add_u32 v5, 0x1000, v5
global_store_dword v5, v4, s[10:11]
"""
# Integers into a histogram; LDS by two waves, with a barrier in between.
HISTOGRAM = START + """
v_and_b32 v5, 0xfc, v2
global_atomic_add v5, v4, s[10:11]
global_atomic_umax v5, v2, s[10:11] offset:256
global_atomic_xor v5, v2, s[10:11] offset:512
"""
REVERSED = START + """
v_lshlrev_b32 v5, 2, v0
ds_write_b32 v5, v2
s_waitcnt lgkmcnt(0)
s_barrier
v_sub_u32 v5, 0x1fc, v5
ds_read_b32 v6, v5
ds_add_f32 v3, v2 offset:512
s_waitcnt lgkmcnt(0)
s_barrier
ds_read_b32 v7, v3 offset:512
s_waitcnt lgkmcnt(0)
v_add_f32 v6, v6, v7
global_store_dword v1, v6, s[10:11]
"""
# Kernels that depend on the order: float sums, tickets under a lock, stores to the same place.
FLOAT_SUM = START + "global_atomic_add_f32 v3, v2, s[10:11]"
LOCK = START + """
s_mov_b64 exec, 1
v_mov_b32 v8, 1
v_mov_b32 v9, 0
take:
global_atomic_cmpswap v6, v3, v[8:9], s[10:11] glc
s_waitcnt vmcnt(0)
v_readfirstlane_b32 s12, v6
s_cmp_lg_u32 s12, 0
s_cbranch_scc1 take
global_load_dword v5, v3, s[10:11] offset:4 glc
s_waitcnt vmcnt(0)
s_sleep 1
v_lshlrev_b32 v7, 2, v5
v_mov_b32 v6, s2
global_store_dword v7, v6, s[10:11] offset:256
v_add_u32 v5, 1, v5
global_store_dword v3, v5, s[10:11] offset:4
s_waitcnt vmcnt(0)
global_atomic_swap v3, v3, s[10:11]
"""
RACY = START + """
global_load_dword v6, v3, s[10:11]
s_sleep 1
s_waitcnt vmcnt(0)
v_add_u32 v6, v6, v2
global_store_dword v3, v6, s[10:11]
global_store_dword v1, v6, s[10:11] offset:1024
"""
ORDERED = {"look-back": LOOK_BACK, "histogram": HISTOGRAM, "LDS": REVERSED}
CONTENDED = {"float atomics": FLOAT_SUM, "spin lock": LOCK, "race": RACY}
FLOATS = ("LDS", "float atomics")


def run(name: str, threads: int, groups: int = 40) -> bytes:
    """Returns the output of a kernel of 40 workgroups."""
    block = 128 if name == "LDS" else 64
    lines = (ORDERED | CONTENDED)[name].replace("s2, 8", "s2, 9") if block == 128 else (ORDERED | CONTENDED)[name]
    text = KernelText("k", lines, ("buffer", "buffer"), {"group_segment_fixed_size": 1024})
    gpu = simgpu.Device("gfx90a", threads=threads, max_instructions=500_000_000)
    rng = np.random.default_rng(7)
    values = rng.standard_normal(groups * block).astype(np.float32)
    whole = rng.integers(1, 2**20, groups * block, dtype=np.uint32)
    given = gpu.upload(values if name in FLOATS else whole)
    out = gpu.upload(np.zeros(groups * block + 2048, np.uint32))
    gpu.load(assemble("gfx90a", text))["k"].launch(grid=groups, block=block, args=[given, out])
    return out.download(np.uint8).tobytes()


@pytest.mark.parametrize("name", ORDERED)
def test_ordered_kernels_give_the_same_bits_on_any_number_of_threads(name: str) -> None:
    alone = run(name, 1)
    assert any(alone)
    for threads in THREADS:
        assert run(name, threads) == alone, threads


def test_look_back_adds_up() -> None:
    whole = np.random.default_rng(7)
    whole.standard_normal(40 * 64)
    first = whole.integers(1, 2**20, 40 * 64, dtype=np.uint32)[::64]
    found = np.frombuffer(run("look-back", 3), np.uint32)[512:552]
    assert found.tolist() == np.cumsum(first, dtype=np.uint32).tolist()


@pytest.mark.parametrize("name", CONTENDED)
def test_one_thread_gives_the_same_bits_again(name: str) -> None:
    """Even results that depend on the order stay the same."""
    assert len({run(name, 1) for _ in range(5)}) == 1


def test_the_lock_lets_every_workgroup_in_once() -> None:
    """More threads have an order of their own: the tickets are those of all, each once."""
    for threads in (1, 3):
        tickets = np.frombuffer(run("spin lock", threads), np.uint32)[64:104]
        assert sorted(tickets.tolist()) == list(range(40))


@pytest.mark.parametrize("lanes", ["1", "0xff", "-1"])
@pytest.mark.parametrize("count", [2, 4])
def test_a_lane_s_load_of_two_or_four_dwords_sees_one_store(count, lanes):
    """Workgroup 0 stores (i, i) or (i, i, i, i). Workgroup 1 loads it into some lanes and counts those whose first and last dwords
    differ: look-back scans pack a value and its flag so."""
    gpu = simgpu.Device("gfx90a", threads=2)
    last = 7 + count
    lines = f"""
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v2, 0
    s_mov_b32 s10, 20000
    s_mov_b64 exec, {lanes}
    s_waitcnt lgkmcnt(0)
    s_cmp_lg_u32 s2, 0
    s_cbranch_scc1 look
    s_mov_b64 exec, 1
    put:
    v_mov_b32 v8, s10
    v_mov_b32 v9, s10
    v_mov_b32 v10, s10
    v_mov_b32 v11, s10
    global_store_dwordx{count} v1, v[8:{last}], s[8:9]
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 put
    s_endpgm
    look:
    global_load_dwordx{count} v[8:{last}], v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    v_cmp_ne_u32 vcc, v8, v{last}
    v_addc_co_u32 v2, vcc, 0, v2, vcc
    s_sub_u32 s10, s10, 1
    s_cmp_lg_u32 s10, 0
    s_cbranch_scc1 look
    global_atomic_add v1, v2, s[8:9] offset:16
    """
    k = loaded_kernel(gpu, lines, "buffer")
    memory = gpu.upload(np.zeros(8, np.uint32))
    for _ in range(5):
        k.launch(grid=2, args=[memory])
    assert memory.download(np.uint32)[4] == 0


SCALAR_LOOP = """
s_mov_b32 s4, {count}
again:
s_sub_u32 s4, s4, 1
s_cmp_lg_u32 s4, 0
s_cbranch_scc1 again
"""


@pytest.mark.parametrize("groups, count, expected", [(40, 1, 1), (40, 1400, 6), (40, 350_000, 40), (4000, 1, 2), (4000, 1400, 64)])
def test_launches_start_as_many_threads_as_pay(groups: int, count: int, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Covers a first launch, whose work is not known yet: all threads; and a second: the root of its instructions / 4,096."""
    begun: list[int] = []
    run_team = Team.run

    def counted(self: Team, workers: list[Any], work: Any) -> None:
        begun.append(len(workers))
        run_team(self, workers, work)

    monkeypatch.setattr(Team, "run", counted)
    kernel = loaded_kernel(simgpu.Device("gfx90a", threads=64), SCALAR_LOOP.format(count=count))
    for _ in range(2):
        kernel.launch(grid=groups, block=64, args=[])
    assert begun == [min(groups, 64), expected]
