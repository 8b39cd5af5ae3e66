"""Where the time of launches goes, by opcode: handlers run as they always do, and are looked at now and then.

A thread signals every worker some thousand times a second; the signal's handler, machine code as theirs, notes the instruction
pointer that it interrupted. An address in the code of an opcode's handlers counts for that opcode. So nothing is added to what is
measured, chains that run as one included, and an opcode's share of the samples is its share of the workers' processor time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import signal
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.lowering.handlers import mnemonic_of
from simgpu.hardware.errors import LaunchError
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import compiler

if TYPE_CHECKING:
    from simgpu.engine.device import Device
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.result import Run
    from simgpu.machine.jit import Compiler

INTERVAL = 2e-4  # seconds between samples, in the mean
SHORT = 1e-3  # seconds of a launch, of its workers together
YIELD = 2e-5  # seconds in which workers may come and go, before the next
ROOM = 1 << 22  # samples that are kept, in memory that fills as they come: more than five minutes of two workers
# Where Linux puts the interrupted instruction pointer, bytes into ucontext_t (arch/*/include/uapi/asm: sigcontext.h, ucontext.h).
POINTER = {"x86_64": 168, "aarch64": 440}
SYSTEM_CALL = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}  # syscall; svc #0
# siginfo_t on 64-bit Linux: si_code and si_value of a queued signal; SI_QUEUE (asm-generic/siginfo.h).
CODE, VALUE, QUEUED = 8, 24, -1
# struct sigaction of glibc: sa_handler, sa_mask (128 bytes), sa_flags, sa_restorer; SA_SIGINFO | SA_RESTART.
ACTION, FLAGS, IGNORED = "P128siP", 0x10000004, 1
UNKNOWN = "other machine code"  # what checks call, among it
WAITING = "system calls"


@dataclass(frozen=True)
class Opcode:
    """One row. executions: wave-instructions; samples: of those taken, in its handlers; seconds: of the workers' processor time."""

    mnemonic: str
    executions: int
    samples: int
    seconds: float

    @property
    def nanoseconds(self) -> float:
        """Of a worker, each execution; 0 where there were none."""
        return 1e9 * self.seconds / self.executions if self.executions else 0.0


@dataclass(frozen=True)
class Profile:
    """opcodes: those that were executed, the most time first; others: seconds of what else the workers executed, the
    scheduler's loop and libraries by name; seconds: the workers' processor time, all together; samples: all that were taken.

    Samples of launches below a millisecond are few and lean to one part of them: see `even`.
    """

    opcodes: tuple[Opcode, ...]
    others: dict[str, float]
    seconds: float
    samples: int
    launches: int

    @property
    def even(self) -> bool:
        """Whether launches were long enough for a fair sample."""
        return self.seconds >= SHORT * self.launches


class Profiler:
    """Samples the launches of the devices that it watches, while it is entered; `profile` says what they did.

    seconds: the workers' processor time so far. Raises LaunchError where the host is not Linux with glibc on x86-64 or aarch64.
    """

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None, use_errno=True)
        if sys.platform != "linux" or platform.machine() not in POINTER or not hasattr(self._libc, "pthread_sigqueue"):
            raise LaunchError("profiling samples threads by signals: it needs Linux with glibc, on x86-64 or aarch64")
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._notes = np.zeros(2 + ROOM, np.int64)
        self._notes[1] = ROOM
        self._executions: Counter[str] = Counter()
        self._launches = 0
        self.seconds = 0.0
        self._before = bytes(struct.calcsize(ACTION))

    def __enter__(self) -> Profiler:
        address = compiler().address_of_source("sampling", _handler)
        self._before = self._exchange(struct.pack(ACTION, address, b"", FLAGS, 0))
        self._sampler.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._ended.set()
        self._sampler.join()
        # A signal may be on its way: ignoring it first drops it, where the default would end the process.
        self._exchange(struct.pack(ACTION, IGNORED, b"", 0, 0))
        self._exchange(self._before)

    def _exchange(self, action: bytes) -> bytes:
        """Set what SIGPROF does; returns what it did."""
        before = ctypes.create_string_buffer(len(action))
        if self._libc.sigaction(signal.SIGPROF, action, before):
            raise OSError(ctypes.get_errno(), "sigaction")
        return before.raw

    def watch(self, device: Device) -> None:
        """Sample the device's launches from now on."""
        device.profiler = self

    @contextmanager
    def working(self) -> Iterator[None]:
        """While the calling thread works on a launch: it is signalled only here, where it lives for certain."""
        began, thread = time.thread_time(), threading.get_ident()
        with self._lock:
            self._threads.add(thread)
        try:
            yield
        finally:
            with self._lock:
                self._threads.discard(thread)
                self.seconds += time.thread_time() - began

    def _sample(self) -> None:
        """Waits and signals in machine code: Python could go on only when a worker lets go of the GIL, which is where it begins a
        launch. Waits of random lengths, so that a place in a short launch is as likely as any other."""
        signals = SIGNALS(compiler().address_of_source("signalling", _signals))
        calls = [ctypes.cast(call, ctypes.c_void_p) for call in (self._libc.usleep, self._libc.pthread_sigqueue)]
        while not self._ended.wait(YIELD):
            with self._lock:
                threads = (ctypes.c_ulong * max(len(self._threads), 1))(*self._threads)
                wait = round(1e6 * min(random.expovariate(1 / INTERVAL), 1.0))
                signals(threads, len(self._threads), self._notes.ctypes.data, wait, *calls)

    def finished(self, launch: Dispatch, run: Run) -> None:
        """Count what a launch executed."""
        self._launches += 1
        for offset, times in run.profile.items():
            inst = launch.instruction(launch.entry + offset // 4)
            assert inst is not None
            self._executions[inst.mnemonic] += times

    def profile(self) -> Profile:
        """Of all launches so far."""
        samples = places(compiler(), self._notes[2 : 2 + min(int(self._notes[0]), ROOM)])
        del samples[WAITING]  # for the GIL, mostly: that is no processor time
        count = samples.total()
        each = self.seconds / max(count, 1)
        opcodes = [Opcode(name, times, samples[name], samples[name] * each) for name, times in self._executions.items()]
        others = {name: times * each for name, times in samples.most_common() if name not in self._executions}
        return Profile(tuple(sorted(opcodes, key=lambda row: -row.samples)), others, self.seconds, count, self._launches)


class _Symbol(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def places(compiler: Compiler, pointers: np.ndarray) -> Counter[str]:
    """Instruction pointers by what their code is: a mnemonic, the key of another function of ours, a library."""
    starts = np.array(sorted(compiler.code), np.int64)
    sizes = np.array([compiler.code[int(start)][1] for start in starts])
    at = np.searchsorted(starts, pointers, "right") - 1
    ours = (at >= 0) & (pointers - starts[at] < sizes[at])
    found: Counter[str] = Counter()
    for start, times in zip(*np.unique(starts[at[ours]], return_counts=True), strict=True):
        key = compiler.code[int(start)][0]
        found[mnemonic_of(key) or key] += int(times)
    for pointer, times in zip(*np.unique(pointers[~ours], return_counts=True), strict=True):
        found[_library(int(pointer))] += int(times)
    return found


def _library(pointer: int) -> str:
    call = SYSTEM_CALL[platform.machine()]
    if call in (ctypes.string_at(pointer - len(call), len(call)), ctypes.string_at(pointer, len(call))):
        return WAITING  # behind it, or at it where it starts again
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(pointer), ctypes.byref(symbol))
    return os.path.basename(os.fsdecode(symbol.file)) if symbol.file else UNKNOWN


SIGNALS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p
)


def _signals(name: str) -> ModuleSource:
    """LLVM IR: waits so many microseconds, then sends the notes' address to each of the threads (i64 pthread_t)."""
    return ModuleSource(f"""
        define void @{name}(ptr %threads, i64 %count, ptr %notes, i32 %wait, ptr %usleep, ptr %sigqueue) {{
        entry:
            call i32 %usleep(i32 %wait)
            br label %next
        next:
            %number = phi i64 [ 0, %entry ], [ %following, %send ]
            %more = icmp ult i64 %number, %count
            br i1 %more, label %send, label %done
        send:
            %place = getelementptr i64, ptr %threads, i64 %number
            %thread = load i64, ptr %place
            call i32 %sigqueue(i64 %thread, i32 {int(signal.SIGPROF)}, ptr %notes)
            %following = add i64 %number, 1
            br label %next
        done:
            ret void
        }}
    """)


def _handler(name: str) -> ModuleSource:
    """LLVM IR of the signal's handler: appends the instruction pointer to the notes whose address the signal brings.

    Notes are i64: how many there are, how many there is room for, and then they.
    """
    return ModuleSource(f"""
        define void @{name}(i32 %signal, ptr %info, ptr %context) {{
        entry:
            %code_at = getelementptr i8, ptr %info, i64 {CODE}
            %code = load i32, ptr %code_at
            %ours = icmp eq i32 %code, {QUEUED}
            br i1 %ours, label %take, label %done
        take:
            %value_at = getelementptr i8, ptr %info, i64 {VALUE}
            %notes = load ptr, ptr %value_at
            %pointer_at = getelementptr i8, ptr %context, i64 {POINTER[platform.machine()]}
            %pointer = load i64, ptr %pointer_at
            %number = atomicrmw add ptr %notes, i64 1 monotonic
            %room_at = getelementptr i64, ptr %notes, i64 1
            %room = load i64, ptr %room_at
            %fits = icmp ult i64 %number, %room
            br i1 %fits, label %note, label %done
        note:
            %place = add i64 %number, 2
            %note_at = getelementptr i64, ptr %notes, i64 %place
            store i64 %pointer, ptr %note_at
            br label %done
        done:
            ret void
        }}
    """)
