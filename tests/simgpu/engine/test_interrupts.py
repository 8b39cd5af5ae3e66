"""Interrupted launches end soon, nothing writes afterwards, and the device stays usable, in every mode."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import simgpu
from simgpu.debugger.snapshot import trace
from simgpu.hardware.errors import Deadlock, TimeLimit
from simgpu.machine import shield
from simgpu.machine.shield import run_shielded
from simgpu.tools.cli import main
from tests.support.kernels import KernelText, assemble, loaded_kernel

# An exception during Python's own cleanup is reported and lost, as usual.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SECONDS = 120  # a test that hangs ends after these: checked handlers may have to be compiled first
BEFORE = """
s_load_dwordx2 s[8:9], s[0:1], 0x0
v_mov_b32 v1, 0
v_mov_b32 v2, 1
v_and_b32 v0, 0x3ff, v0
v_lshrrev_b32 v3, 6, v0
v_readfirstlane_b32 s12, v3
s_mov_b64 exec, 1
s_waitcnt lgkmcnt(0)
global_atomic_add v1, v2, s[8:9]
s_waitcnt vmcnt(0)
"""
# Endless code, by its activity.
SPINS = {
    "a branch to itself": "spin:\ns_branch spin",
    "LDS": "spin:\nds_read_b32 v4, v1\ns_waitcnt lgkmcnt(0)\ns_branch spin",
    "device memory": "spin:\nglobal_load_dword v4, v1, s[8:9] offset:4 glc\ns_waitcnt vmcnt(0)\ns_branch spin",
    "stores": "spin:\nglobal_atomic_add v1, v2, s[8:9] offset:8\ns_branch spin",
    "sleep": "spin:\ns_sleep 1\ns_branch spin",
    "messages": "spin:\ns_sendmsg sendmsg(MSG_INTERRUPT)\ns_branch spin",
    "a computed jump": "s_getpc_b64 s[14:15]\nspin:\ns_nop 0\ns_setpc_b64 s[14:15]",
    "a barrier": "s_cmp_eq_u32 s12, 0\ns_cbranch_scc1 spin\ns_barrier\nspin:\ns_branch spin",
}
HOW = [(check, threads) for check in (False, True) for threads in (1, 2)]


class Interrupt(BaseException):
    """A test's time limit."""


@contextmanager
def interrupted_when(ready):
    """Raises Interrupt by SIGALRM once ready() holds, at any step of the thread, and again until the block ends."""
    begun = time.monotonic()

    def handle(number, frame):
        if ready() or time.monotonic() - begun > SECONDS:
            raise Interrupt

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def threads_at_work():
    """Returns the number of shielded threads that go on.

    A thread that has reported its end, or begins and has nothing to do, needs a moment more; a busy host may give it late.
    """
    until = time.monotonic() + SECONDS
    while True:
        threads = sum(outermost(frame).f_code is shield._run.__code__ for frame in sys._current_frames().values())
        if not threads or time.monotonic() > until:
            return threads
        time.sleep(1e-4)


def outermost(frame):
    while frame.f_back is not None:
        frame = frame.f_back
    return frame


def assert_ended(gpu, buffer):
    """Asserts that nothing writes to the buffer any more, and that the device runs another kernel correctly."""
    found = buffer.download("u4")
    assert found[0] > 0
    time.sleep(0.05)
    assert buffer.download("u4").tolist() == found.tolist()
    assert not threads_at_work()
    out = gpu.alloc(256)
    lines = "s_load_dwordx2 s[8:9], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v1, v0, s[8:9]"
    assert loaded_kernel(gpu, lines, "buffer").launch(grid=1, args=[out]).instructions == 5
    assert out.download("u4").tolist() == list(range(64))


@pytest.mark.covering(1)
@pytest.mark.parametrize("spin", SPINS)
@pytest.mark.parametrize(("check", "threads"), HOW)
def test_a_signal_s_exception_ends_a_launch(check, threads, spin):
    gpu = simgpu.Device("gfx90a", check=check, threads=threads)
    kernel = loaded_kernel(gpu, BEFORE + SPINS[spin], "buffer", group_segment_fixed_size=64)
    buffer = gpu.upload(np.zeros(64, np.uint32))
    for _ in range(2):
        begun = time.monotonic()
        with pytest.raises(Interrupt), interrupted_when(lambda: buffer.download("u4")[0] > 0):
            kernel.launch(grid=4, block=128, args=[buffer])
        assert time.monotonic() - begun < SECONDS
        assert_ended(gpu, buffer)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_exception_set_in_the_thread_ends_a_launch(threads):
    """pytest's and IPython's time limits do so, without a signal: the thread must wake up by itself."""
    gpu = simgpu.Device("gfx942", threads=threads)
    kernel = loaded_kernel(gpu, BEFORE + SPINS["stores"], "buffer")
    buffer = gpu.upload(np.zeros(64, np.uint32))
    ended = []

    def launch():
        try:
            kernel.launch(grid=4, args=[buffer])
        except Interrupt:
            ended.append(True)

    thread = threading.Thread(target=launch)
    thread.start()
    while not buffer.download("u4")[0]:
        time.sleep(0.01)
    for _ in range(SECONDS // 10):  # again, if it struck in Python's own cleanup, where exceptions are reported and lost
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupt))
        thread.join(10)
        if ended:
            break
    assert ended
    assert_ended(gpu, buffer)


@pytest.mark.parametrize("threads", [1, 2])
def test_interrupts_at_every_moment_leave_the_device_whole(threads):
    """Many interrupts strike at different moments: while things are compiled, begun, run and freed."""
    gpu = simgpu.Device("gfx90a", threads=threads)
    lines = "s_movk_i32 s10, 2000\nagain:\ns_sub_u32 s10, s10, 1\ns_cmp_lg_u32 s10, 0\ns_cbranch_scc1 again"
    wanted = 8 * (2 + 3 * 2000 + 1)

    def interrupt(number, frame):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    ended = []
    try:
        for number in range(150):
            if number % 10 == 0:  # something to compile
                kernel = loaded_kernel(gpu, f"s_add_u32 s{number // 5 + 20}, s11, 5\n" + lines)
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + number * 2e-5)
                ended.append(kernel.launch(grid=8).instructions)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupt:
                pass
            assert not threads_at_work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert set(ended) <= {wanted} and len(ended) < 150
    assert kernel.launch(grid=8).instructions == wanted


class StruckAt:
    """Raises Interrupt at the end of the n-th call that this thread makes in the block, of Python's or C's functions.

    Python looks for signals only after calls, where a function begins and at the end of loops.
    """

    def __init__(self, n):
        self.left = n

    def __enter__(self):
        sys.setprofile(self.look)

    def look(self, frame, event, argument):
        if event in ("call", "c_return"):
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                raise Interrupt

    def __exit__(self, *raised):
        sys.setprofile(None)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("check", "threads"), HOW)
def test_an_interrupt_after_any_call_leaves_the_device_whole(check, threads):
    n, struck = 1, True
    while struck:
        gpu = simgpu.Device("gfx90a", check=check, threads=threads)
        kernel, kept = loaded_kernel(gpu, "s_add_u32 s20, s11, 5", "buffer"), gpu.alloc(64)
        kernel.launch(grid=4, args=[kept])
        at = StruckAt(n)
        try:
            with at:
                buffer = gpu.alloc(64)
                assert kernel.launch(grid=4, args=[buffer]).instructions == 8
                gpu.free(buffer)
        except Interrupt:
            pass
        assert not threads_at_work()
        assert kernel.launch(grid=4, args=[kept]).instructions == 8
        struck = at.left <= 0
        n += 13
    assert n > 300  # calls of a launch: else not all of it was struck


CHILD = """
import signal, sys, threading, numpy as np, simgpu
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where the tests run in the background of a shell
gpu = simgpu.Device("gfx90a", check={check}, threads={threads})
kernel = gpu.load(sys.argv[1])["k"]
buffer = gpu.upload(np.zeros(64, np.uint32))
def tell():
    while not buffer.download("u4")[0]:
        threading.Event().wait(0.01)
    print("spinning", flush=True)
threading.Thread(target=tell, daemon=True).start()
try:
    kernel.launch(grid=4, block=128, args=[buffer])
except KeyboardInterrupt:
    print("interrupted", buffer.download("u4")[0] > 0, flush=True)
"""


@pytest.mark.covering(1)
@pytest.mark.parametrize(("check", "threads"), HOW)
def test_ctrl_c_ends_a_launch_of_a_process(tmp_path, check, threads):
    path = tmp_path / "k.co"
    path.write_bytes(assemble("gfx90a", KernelText("k", BEFORE + SPINS["a branch to itself"], ("buffer",))))
    command = [sys.executable, "-c", CHILD.format(check=check, threads=threads), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "spinning\n"
            child.send_signal(signal.SIGINT)
            assert child.communicate(timeout=SECONDS)[0] == "interrupted True\n"
            assert child.returncode == 0
        finally:
            child.kill()


@pytest.mark.covering(1)
@pytest.mark.parametrize("spin", SPINS)
@pytest.mark.parametrize(("check", "threads"), HOW)
def test_the_time_of_a_launch_is_kept(check, threads, spin):
    gpu = simgpu.Device("gfx90a", check=check, threads=threads)
    kernel = loaded_kernel(gpu, BEFORE + SPINS[spin], "buffer", group_segment_fixed_size=64)
    buffer = gpu.upload(np.zeros(64, np.uint32))
    gpu.timeout = 0.15
    waits = spin == "a barrier"
    with pytest.raises(Deadlock if waits else TimeLimit, match=r"k\+0x.*after 0.15 s \(timeout\)|no wave ran yet after 0.15 s"):
        kernel.launch(grid=1 if waits else 4, block=128, args=[buffer])
    gpu.timeout = None
    buffer.write(np.ones(1, np.uint32))
    assert_ended(gpu, buffer)


@pytest.mark.parametrize("spin", ["a branch to itself", "messages", "sleep"])
def test_a_traced_launch_keeps_its_time_and_budget(spin):
    for limits, wanted in (({"timeout": 0.15}, TimeLimit), ({"max_instructions": 3000}, simgpu.InstructionLimit)):
        gpu = simgpu.Device("gfx90a", **limits)
        kernel = loaded_kernel(gpu, BEFORE + SPINS[spin], "buffer")
        with pytest.raises(wanted):
            trace(kernel, [8], args=[gpu.alloc(256)], hits=2)
        loop = kernel.module.code.kernels["k"].code_size - 8  # its branch, before s_endpgm
        with pytest.raises(wanted):
            trace(kernel, [loop], args=[gpu.alloc(256)], skip=10**9)


@pytest.mark.covering(1)
@pytest.mark.parametrize("spin", SPINS)
@pytest.mark.parametrize(("check", "threads"), HOW)
def test_the_budget_is_kept(check, threads, spin):
    waits = spin == "a barrier"
    most = 300_000 if waits else 50_000
    gpu = simgpu.Device("gfx90a", check=check, threads=threads, max_instructions=most)
    kernel = loaded_kernel(gpu, BEFORE + SPINS[spin], "buffer", group_segment_fixed_size=64)
    with pytest.raises(Deadlock if waits else simgpu.InstructionLimit, match=f"after {most} instructions"):
        kernel.launch(grid=1 if waits else 4, block=128, args=[gpu.upload(np.zeros(64, np.uint32))])


@pytest.mark.slow
def test_the_commands_take_a_time(tmp_path, capsys):
    path = tmp_path / "k.co"
    path.write_bytes(assemble("gfx90a", KernelText("k", BEFORE + SPINS["a branch to itself"], ("buffer",))))
    launch = ["--arg", "zeros:u32:64", "--grid", "2", "--timeout", "0.2"]
    for command in (["exec", str(path)], ["check", str(path)], ["trace", str(path), "--at", "0x0", "--hits", "2"]):
        assert main([*command, *launch]) == 1
        assert "TimeLimit" in capsys.readouterr().err
        assert main([*command, *launch[:-1], "-1"]) == 2
        assert "above 0" in capsys.readouterr().err


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_time_that_is_none_is_refused(timeout):
    with pytest.raises(simgpu.LaunchError, match="timeout"):
        simgpu.Device("gfx90a", timeout=timeout)


def test_what_is_shielded_ends_before_an_exception_does():
    done = []

    def slow():
        time.sleep(0.3)
        done.append(True)

    with pytest.raises(Interrupt), interrupted_when(lambda: True):
        run_shielded(slow)
    assert done
    with pytest.raises(ZeroDivisionError):
        run_shielded(lambda: 1 // 0)
    assert run_shielded(lambda: run_shielded(lambda: 5)) == 5


