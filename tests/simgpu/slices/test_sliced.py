"""Launches in slices: bytes, counters and findings of the slices in sequence, or the reason for a whole launch."""

from __future__ import annotations

import io
import re
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.hardware.errors import LaunchError, MemoryFault
from simgpu.slices import part, worker
from tests.simgpu.engine.test_device_library import SOURCE
from tests.support.device_library import compiled
from tests.support.exhaustive import examples
from tests.support.kernels import KernelText, loaded_kernel, loaded_module

# Workgroup i stores words[i] = words[from[i]] + i + 1, from a single lane; words, from: i32.
READ_AND_WRITE = """
    s_load_dwordx4 s[8:11], s[0:1], 0x0
    v_mov_b32 v1, 0
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    s_lshl_b32 s3, s2, 3
    s_add_u32 s10, s10, s3
    s_addc_u32 s11, s11, 0
    s_load_dwordx2 s[12:13], s[10:11], 0x0
    s_waitcnt lgkmcnt(0)
    s_lshl_b32 s12, s12, 2
    s_lshl_b32 s13, s13, 2
    v_mov_b32 v2, s12
    v_mov_b32 v3, s13
    global_load_dword v4, v2, s[8:9]
    s_waitcnt vmcnt(0)
    v_add_u32 v4, s2, v4
    v_add_u32 v4, 1, v4
    global_store_dword v3, v4, s[8:9]
"""
FILL = """
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_lshlrev_b32 v1, 2, v0
    s_lshl_b32 s3, s2, 8
    v_add_u32 v1, s3, v1
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[8:9]
    s_waitcnt vmcnt(0)
    v_add_u32 v2, s2, v2
"""
STORE = "global_store_dword v1, v2, s[8:9]"


@pytest.fixture(scope="module")
def pool():
    with ThreadPoolExecutor(2) as executor:
        yield executor


class Lost(Executor):
    """An executor whose workers die before they answer, the first `times` times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def submit(self, fn, /, *args, **kwargs):
        future: Future = Future()
        self.times -= 1
        if self.times >= 0:
            future.set_exception(ConnectionResetError("the worker is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def in_order(words: np.ndarray, moves: list[tuple[int, int]]) -> np.ndarray:
    words = words.copy()
    for number, (source, target) in enumerate(moves):
        words[target] = words[source] + number + 1
    return words


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=24), st.integers(1, 9))
def test_random_readers_and_writers_give_what_the_order_gives(pool, moves, slices):
    gpu = simgpu.Device("gfx90a", threads=1)
    kernel = loaded_kernel(gpu, READ_AND_WRITE, "buffer", "buffer")
    start = np.arange(31, dtype=np.int32) * 1000
    words, places = gpu.upload(start), gpu.upload(np.array(moves, np.int32))
    whole = gpu.upload(start)
    want = kernel.launch(grid=len(moves), args=[whole, places])
    run = kernel.launch(grid=len(moves), args=[words, places], executor=pool, slices=slices)
    assert (words.download() == in_order(start, moves)).all()
    assert (run.instructions, run.counters, run.profile, run.lanes) == (
        want.instructions, want.counters, want.profile, want.lanes,
    )  # fmt: skip


@pytest.mark.parametrize("check", [False, True])
def test_slices_that_do_not_meet_run_apart(pool, check):
    gpu = simgpu.Device("gfx942", check=check)
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(64 * 10, np.int32))
    run = kernel.launch(grid=10, args=[words], executor=pool, slices=4)
    assert not run.notes and not run.findings
    assert (words.download().reshape(10, 64) == np.arange(10)[:, None]).all()
    assert run.counters["unique_write_bytes"] == run.counters["unique_read_bytes"] == 2560


def test_a_slice_that_reads_what_an_earlier_one_wrote_runs_again(pool):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, READ_AND_WRITE, "buffer", "buffer")
    moves = [(0, 1), (1, 2), (2, 3)]
    words, places = gpu.upload(np.zeros(4, np.int32)), gpu.upload(np.array(moves, np.int32))
    run = kernel.launch(grid=3, args=[words, places], executor=pool, slices=3)
    assert words.download().tolist() == [0, 1, 3, 6]
    assert run.notes == tuple(
        f"slice {number} ran in the caller's process: it reads data that an earlier one wrote" for number in (1, 2)
    )


def test_variables_of_a_module_are_memory_too(pool):
    """Workgroup i adds i + 1 to a variable by an atomic, so each slice reads the previous one's writes."""
    gpu = simgpu.Device("gfx90a")
    lines = """
    s_getpc_b64 s[8:9]
    s_add_u32 s8, s8, total@rel32@lo+4
    s_addc_u32 s9, s9, total@rel32@hi+12
    v_mov_b32 v1, 0
    s_mov_b64 exec, 1
    s_add_u32 s3, s2, 1
    v_mov_b32 v2, s3
    global_atomic_add v1, v2, s[8:9]
    """
    data = ".data\n.p2align 2\n.globl total\n.protected total\n.type total,@object\n.size total, 4\ntotal: .long 5\n"
    module = loaded_module(gpu, KernelText("k", lines, (), {}, 1024), data=data)
    run = module["k"].launch(grid=9, executor=pool, slices=3)
    address, _ = module.symbol("total")
    held = gpu.memory.find(address)
    at = address - held.address
    assert held.data[at : at + 4].view(np.int32)[0] == 5 + 45
    assert len(run.notes) == 2 and run.counters["unique_write_bytes"] == 4


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("s_memtime s[4:5]\ns_waitcnt lgkmcnt(0)", "s_memtime reads a clock"),
        ("s_getreg_b32 s4, hwreg(HW_REG_HW_ID)", "s_getreg_b32 reads HW_ID, the wave's hardware slot"),
    ],
)
def test_what_tells_a_slice_from_the_launch_runs_whole(pool, lines, why):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, lines + FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(64 * 4, np.int32))
    run = kernel.launch(grid=4, args=[words], executor=pool, slices=2)
    assert run.notes == (f"the launch ran whole, not in slices: {why}",)
    assert (words.download().reshape(4, 64) == np.arange(4)[:, None]).all()


def test_only_a_register_that_tells_the_place_is_one():
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, "s_getreg_b32 s4, hwreg(HW_REG_MODE)" + FILL + STORE, "buffer")
    with ThreadPoolExecutor(1) as pool:
        run = kernel.launch(grid=4, args=[gpu.upload(np.zeros(256, np.int32))], executor=pool, slices=2)
    assert not run.notes


def test_what_is_known_before_it_runs(pool):
    cooperative = loaded_kernel(simgpu.Device("gfx90a"), FILL + STORE, "buffer")
    words = cooperative.module.device.upload(np.zeros(256, np.int32))
    run = cooperative.launch(grid=4, args=[words], executor=pool, slices=2, cooperative=True)
    assert "it is cooperative" in run.notes[0]
    for options, why in (({"check": "performance"}, "performance"), ({"unique_bytes": False}, "unique_bytes=False")):
        gpu = simgpu.Device("gfx90a", **options)
        run = loaded_kernel(gpu, FILL + STORE, "buffer").launch(
            grid=4, args=[gpu.upload(np.zeros(256, np.int32))], executor=pool, slices=2
        )
        assert why in run.notes[-1]


@pytest.mark.parametrize(("first", "notes"), [(0, 1), (1, 1)])
def test_a_slice_that_waits_for_another_ends(pool, monkeypatch, first, notes):
    """first 0: workgroup 0 waits for the last, so all run together; 1: the last waits for workgroup 0."""
    monkeypatch.setattr(part, "PATIENCE", 1 << 16)
    gpu = simgpu.Device("gfx90a", threads=2)
    lines = f"""
    s_load_dwordx2 s[8:9], s[0:1], 0x0
    v_mov_b32 v1, 0
    v_mov_b32 v3, 1
    s_mov_b64 exec, 1
    s_waitcnt lgkmcnt(0)
    s_cmp_eq_u32 s2, {7 * (1 - first)}
    s_cbranch_scc1 tell
    s_cmp_lg_u32 s2, {7 * first}
    s_cbranch_scc1 over
    spin:
    global_load_dword v2, v1, s[8:9] glc
    s_waitcnt vmcnt(0)
    v_readfirstlane_b32 s12, v2
    s_cmp_eq_u32 s12, 0
    s_cbranch_scc1 spin
    s_branch over
    tell:
    global_atomic_add v1, v3, s[8:9]
    over:
    """
    flag = gpu.upload(np.zeros(1, np.int32))
    run = loaded_kernel(gpu, lines, "buffer").launch(grid=8, args=[flag], executor=pool, slices=4)
    assert flag.download()[0] == 1
    assert len(run.notes) == notes and "InstructionLimit" in run.notes[0]


def test_long_workgroups_are_not_taken_for_waiting_ones(pool, monkeypatch):
    monkeypatch.setattr(part, "PATIENCE", 1 << 16)
    gpu = simgpu.Device("gfx90a", threads=1)
    lines = "s_movk_i32 s4, 0x2000\nagain:\ns_sub_u32 s4, s4, 1\ns_cmp_lg_u32 s4, 0\ns_cbranch_scc1 again\n"
    run = loaded_kernel(gpu, lines).launch(grid=64, executor=pool, slices=2)
    assert run.instructions > 20 * part.PATIENCE and not run.notes


def test_a_fault_is_the_launchs_own(pool):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(64 * 3, np.int32))
    with pytest.raises(MemoryFault) as whole:
        kernel.launch(grid=4, args=[words])
    words.write(np.zeros(64 * 3, np.int32))
    with pytest.raises(MemoryFault) as sliced:
        kernel.launch(grid=4, args=[words], executor=pool, slices=4)
    assert str(whole.value) == str(sliced.value)
    assert (words.download().reshape(3, 64) == np.arange(3)[:, None]).all()


def test_findings_of_slices_are_those_of_the_launch(pool):
    gpu = simgpu.Device("gfx90a", check=True, threads=1)
    kernel = loaded_kernel(gpu, FILL.replace("s_waitcnt vmcnt(0)", "") + STORE, "buffer")
    words = gpu.empty(64 * 10, np.int32)
    whole = kernel.launch(grid=10, args=[words])
    again = gpu.empty(64 * 10, np.int32)
    run = kernel.launch(grid=10, args=[again], executor=pool, slices=3)
    assert {f.kind for f in run.findings} >= {"missing-wait"} and not run.notes
    assert [replace(f, message="", place="") for f in run.findings] == [replace(f, message="", place="") for f in whole.findings]


@pytest.mark.parametrize(
    ("moves", "note"),
    [
        ([(0, 1), (2, 3), (3, 2)], "slices 1 and 2 ran together in the caller's process: they touch the same bytes"),
        ([(4, 5), (2, 3), (4, 6), (7, 3)], "slices 1 and 3 ran together"),
        ([(0, 1), (2, 1), (3, 4), (5, 4)], "slices 0 and 1 ran together"),  # and 2 and 3
        ([(0, 1), (2, 1)], "the launch ran whole, not in slices: every slice touches bytes of another"),
    ],
)
def test_a_race_between_slices_is_named(pool, moves, note):
    """Only slices that conflict run again; findings, bytes and counters are those of the whole launch."""
    gpu = simgpu.Device("gfx90a", check=True, threads=1)
    kernel = loaded_kernel(gpu, READ_AND_WRITE, "buffer", "buffer")
    start = np.arange(8, dtype=np.int32)
    words, whole, places = gpu.upload(start), gpu.upload(start), gpu.upload(np.array(moves, np.int32))
    want = kernel.launch(grid=len(moves), args=[whole, places])
    run = kernel.launch(grid=len(moves), args=[words, places], executor=pool, slices=len(moves))
    assert any(f.kind == "race" for f in run.findings)
    assert note in run.notes[0]
    assert {(f.kind, f.pc, f.other_pc) for f in run.findings} == {(f.kind, f.pc, f.other_pc) for f in want.findings}
    assert (words.download() == whole.download()).all() and run.counters == want.counters


def test_a_fault_of_slices_that_run_together_is_the_launchs(pool):
    """Workgroup 1 reads at workgroup 0's address: far outside, but only if both run together."""
    gpu = simgpu.Device("gfx90a", check=True, threads=1)
    kernel = loaded_kernel(gpu, "v_mov_b32 v6, v5\n" + READ_AND_WRITE, "buffer", "buffer")
    moves = np.array([8, 2, 0, 9, 10, 11, 12, 13] + [1 << 24] * 6, np.int32)  # words, too: workgroup 0 writes over 1's `from`
    faults = []
    for options in ({}, {"executor": pool, "slices": 4}):
        words = gpu.upload(moves)
        with pytest.raises(MemoryFault) as caught:
            kernel.launch(grid=4, args=[words, words], **options)
        faults.append({(finding.kind, finding.pc) for finding in caught.value.findings})
    assert faults[0] == faults[1] and faults[0]


def test_undefined_bytes_travel_both_ways(pool):
    """A checked slice finds unwritten bytes; bytes that slices wrote are defined for later ones."""
    gpu = simgpu.Device("gfx90a", check=True)
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.empty(256, np.int32)
    fill = loaded_kernel(gpu, FILL.replace("global_load_dword v2, v1, s[8:9]", "v_mov_b32 v2, 0") + STORE, "buffer")
    assert not fill.launch(grid=2, args=[words], executor=pool, slices=2).findings
    assert gpu.memory.undefined_bytes(words.address, 1024) == 512
    assert not kernel.launch(grid=2, args=[words], executor=pool, slices=2).findings
    assert kernel.launch(grid=4, args=[words], executor=pool, slices=2).findings


@pytest.mark.parametrize("times", [1, 2, 99])
def test_lost_slices_run_again_or_here(times):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(64 * 4, np.int32))
    run = kernel.launch(grid=4, args=[words], executor=Lost(times), slices=2)
    assert (words.download().reshape(4, 64) == np.arange(4)[:, None]).all()
    assert [("the worker is gone" in note) for note in run.notes] == ([True, True] if times == 99 else [])


def test_an_executor_that_is_shut_down_leaves_the_launch_here():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    gpu = simgpu.Device("gfx90a")
    words = gpu.upload(np.zeros(128, np.int32))
    run = loaded_kernel(gpu, FILL + STORE, "buffer").launch(grid=2, args=[words], executor=pool, slices=2)
    assert words.download()[64:].tolist() == [1] * 64 and len(run.notes) == 2


def test_another_version_is_refused(pool, monkeypatch):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    monkeypatch.setattr("simgpu.slices.sliced.version", lambda: "0.0 (another)")
    with pytest.raises(LaunchError, match=r"a worker has simgpu .*, the caller has 0.0 \(another\): install the same"):
        kernel.launch(grid=2, args=[gpu.upload(np.zeros(128, np.int32))], executor=pool, slices=2)


def test_slices_without_an_executor_and_none_at_all(pool):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(128, np.int32))
    with pytest.raises(LaunchError, match="slices=2: give the executor"):
        kernel.launch(grid=2, args=[words], slices=2)
    with pytest.raises(LaunchError, match="slices=-1: at least one"):
        kernel.launch(grid=2, args=[words], executor=pool, slices=-1)


def test_the_code_is_what_is_in_memory_now(pool):
    gpu = simgpu.Device("gfx90a")
    kernel = loaded_kernel(gpu, FILL + STORE, "buffer")
    words = gpu.upload(np.zeros(128, np.int32))
    kernel.launch(grid=2, args=[words], executor=pool, slices=2)
    other = loaded_kernel(gpu, FILL.replace("v_add_u32 v2", "v_sub_u32 v2") + STORE, "buffer")
    start = kernel.info.start
    kernel.module.patch(start, bytes(gpu.memory.find(other.info.start + other.module.bias).data[: 4 * 16]))
    kernel.launch(grid=2, args=[words], executor=pool, slices=2)
    assert words.download()[64:].tolist() == [0] * 64


def test_workers_answer_a_task_of_another_version_without_running_it():
    task = worker.Task("x", "gfx90a", False, 1, None, 1, "", 0, (), (), "k", None, (), range(1))
    assert "a worker has simgpu" in worker.run_slice(task).refused


@pytest.mark.parametrize("size", [16, 5000])
def test_kernels_that_allocate_or_print_run_whole(pool, size):
    gpu = simgpu.Device("gfx90a", threads=1)
    gpu.stdout = io.StringIO()
    module = gpu.load(compiled("gfx90a", SOURCE))
    options = {"executor": pool, "slices": 3}
    out, sums = gpu.alloc(8 * 256), gpu.alloc(4 * 256)
    run = module["allocate"].launch(grid=4, args=[out, size], **options)
    assert re.search("share the heap|calls the host", run.notes[-1])
    module["look"].launch(grid=4, args=[out, sums, size], **options)
    assert (sums.download("u4") == 0xFFFFFFFF).all()
    assert "calls the host" in module["print"].launch(grid=9, args=[3], **options).notes[-1]
    assert gpu.stdout.getvalue() == "".join(f"item {i} of ab\n" for i in range(9 * 64) if i % 32 == 3)
