"""`simgpu.profile`: executions match the launches, and times match kernels that have only one opcode."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
from collections import Counter

import numpy as np
import pytest

import simgpu
from simgpu.asm.builder.toolchain import assemble
from simgpu.hardware.errors import LaunchError, ToolchainError
from simgpu.profile import POINTER, Profile, Profiler
from simgpu.tools.matrix.kernel import NAME, kernel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in POINTER or not hasattr(ctypes.CDLL(None), "pthread_sigqueue"),
    reason="profiling needs Linux and glibc",
)
SLOW, QUICK = "v_rsq_f64 v[10:11], v[12:13]", "v_add_u32 v7, v5, v6"
ENOUGH = 0.25  # seconds of processor time


def looping(gpu: simgpu.Device, lines: list[str], times: int = 20_000) -> simgpu.Kernel:
    """Makes a kernel that executes the lines `times` times."""
    body = [f"s_mov_b32 s20, {times}", "loop:", *lines, "s_sub_u32 s20, s20, 1", "s_cmp_lg_u32 s20, 0", "s_cbranch_scc1 loop"]
    try:
        return gpu.load(assemble(kernel(gpu.arch, body), gpu.arch))[NAME]
    except ToolchainError as error:
        if "no clang" not in str(error):
            raise
        pytest.skip(str(error))


def profiled(gpu: simgpu.Device, entry: simgpu.Kernel, enough: float = ENOUGH) -> tuple[Profile, list[simgpu.Run], float]:
    """Launches until the workers have used enough processor time; also returns the runs and the process's time."""
    out = gpu.alloc(4096)
    entry.launch(grid=2, args=[out, out])
    with Profiler() as profiler:
        profiler.watch(gpu)
        began, runs = time.process_time(), []
        while profiler.seconds < enough:
            runs.append(entry.launch(grid=2, args=[out, out]))
        took = time.process_time() - began
    gpu.profiler = None
    return profiler.profile(), runs, took


def nanoseconds(profile: Profile) -> dict[str, float]:
    return {row.mnemonic: row.nanoseconds for row in profile.opcodes}


@pytest.mark.parametrize("threads", [1, 2])
def test_executions_are_the_launches_and_the_parts_make_the_whole(threads: int) -> None:
    gpu = simgpu.Device("gfx90a", threads=threads)
    entry = looping(gpu, [SLOW] * 3 + [QUICK])
    profile, runs, took = profiled(gpu, entry)
    executed = {row.mnemonic: row.executions for row in profile.opcodes}
    assert sum(executed.values()) == sum(run.instructions for run in runs)
    assert executed["v_rsq_f64"] == 3 * executed["v_add_u32"] == 3 * 20_000 * 2 * len(runs)
    assert sum(row.samples for row in profile.opcodes) <= profile.samples
    parts = sum(row.seconds for row in profile.opcodes) + sum(profile.others.values())
    assert parts == pytest.approx(profile.seconds)
    # Long kernels spend their time in handlers, and the workers' time is within the process's.
    assert sum(row.seconds for row in profile.opcodes) > 0.8 * profile.seconds > 0
    assert profile.seconds <= 1.05 * took + 0.02


@pytest.mark.slow
def test_opcodes_take_in_a_mix_what_they_take_alone() -> None:
    """Clocks are the oracle: kernels with many of one opcode in a loop."""
    gpu = simgpu.Device("gfx90a", threads=1)
    alone = {}
    for line in (SLOW, QUICK):
        entry, out = looping(gpu, [line] * 60), gpu.alloc(4096)
        entry.launch(grid=1, args=[out, out])
        taken = []
        for _ in range(5):
            began = time.thread_time()
            run = entry.launch(grid=1, args=[out, out])
            taken.append((time.thread_time() - began) / run.instructions)
        alone[line.split()[0]] = 1e9 * min(taken)
    assert alone["v_rsq_f64"] > 3 * alone["v_add_u32"]  # else the test would prove nothing
    mix = nanoseconds(profiled(gpu, looping(gpu, [SLOW] * 20 + [QUICK] * 200, 5000))[0])
    slower = {mnemonic: mix[mnemonic] / each for mnemonic, each in alone.items()}  # all are, if others use the machine, too
    assert all(1 / 4 < factor < 4 for factor in slower.values()), slower
    assert max(slower.values()) < 2 * min(slower.values()), slower


def test_chains_that_run_as_one_are_shared_by_their_members() -> None:
    gpu = simgpu.Device("gfx90a", threads=1)
    entry = looping(gpu, ["v_mfma_f32_32x32x2f32 v[32:47], v5, v6, v[32:47]"] * 4, 3000)
    profile, runs, _ = profiled(gpu, entry, 0.1)
    assert any(program.fused for program in entry.module.programs)
    (row,) = [row for row in profile.opcodes if row.mnemonic.startswith("v_mfma")]
    assert row is profile.opcodes[0] and row.executions == 4 * 3000 * 2 * len(runs)


def test_the_signal_is_given_back_and_results_are_the_same() -> None:
    gpu = simgpu.Device("gfx90a", threads=2)
    data = np.arange(64, dtype=np.uint32)
    seen: list[int] = []
    before = signal.signal(signal.SIGPROF, lambda number, frame: seen.append(number))
    try:
        load, store = "global_load_dword v2, v1, s[4:5]", "global_store_dword v1, v2, s[4:5]"
        entry = looping(gpu, [load, "s_waitcnt vmcnt(0)", "v_add_u32 v2, 1, v2", store], 5000)
        source = gpu.upload(data)
        with Profiler() as profiler:
            profiler.watch(gpu)
            run = entry.launch(grid=1, args=[source, source])
        assert not seen
        assert (source.download(np.uint32) == data + 5000).all()
        assert Counter({row.mnemonic: row.executions for row in profiler.profile().opcodes}).total() == run.instructions
        os.kill(os.getpid(), signal.SIGPROF)
        assert seen == [signal.SIGPROF]
    finally:
        signal.signal(signal.SIGPROF, before)


def test_a_host_without_the_signal_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(LaunchError, match="x86-64 or aarch64"):
        Profiler()
