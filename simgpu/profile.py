"""Profiles launches by opcode: samples the time that workers spend in each opcode's handlers.

A thread signals every worker about 5,000 times a second. The signal's handler, also machine code, stores the
instruction pointer that it interrupted. A pointer into an opcode's handlers counts for that opcode. Nothing is added
to the measured code. An opcode's fraction of the samples is its fraction of the workers' processor time.
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

INTERVAL = 2e-4  # mean seconds between samples
SHORT = 1e-3  # a launch with fewer seconds of processor time, summed over its workers, is too short for a fair sample
YIELD = 2e-5  # seconds between samples in which the lock is free, so that workers can register
ROOM = 1 << 22  # most samples kept: more than five minutes of two workers
# Bytes from the start of ucontext_t to the instruction pointer that Linux interrupted (arch/*/include/uapi/asm:
# sigcontext.h, ucontext.h).
POINTER = {"x86_64": 168, "aarch64": 440}
SYSTEM_CALL = {"x86_64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}  # syscall; svc #0
# siginfo_t on 64-bit Linux: si_code and si_value of a queued signal; SI_QUEUE (asm-generic/siginfo.h).
CODE, VALUE, QUEUED = 8, 24, -1
# struct sigaction of glibc: sa_handler, sa_mask (128 bytes), sa_flags, sa_restorer; SA_SIGINFO | SA_RESTART.
ACTION, FLAGS, IGNORED = "P128siP", 0x10000004, 1
UNKNOWN = "other machine code"  # includes functions that checks call
WAITING = "system calls"


@dataclass(frozen=True)
class Opcode:
    """A row of the profile: one opcode."""

    mnemonic: str
    executions: int  # wave-instructions
    samples: int  # samples in its handlers
    seconds: float  # of the workers' processor time

    @property
    def nanoseconds(self) -> float:
        """Nanoseconds of a worker for each execution; 0 if there were none."""
        return 1e9 * self.seconds / self.executions if self.executions else 0.0


@dataclass(frozen=True)
class Profile:
    """Times of the launches that a `Profiler` sampled.

    Samples of launches below a millisecond are few and favour one part of the launch: see `is_fair`.
    """

    opcodes: tuple[Opcode, ...]  # executed opcodes, most time first
    others: dict[str, float]  # seconds of other code that workers executed, by name: the scheduler's loop, libraries
    seconds: float  # the workers' processor time, summed
    samples: int  # all samples, except those in system calls
    launches: int

    @property
    def is_fair(self) -> bool:
        """True if the launches took at least a millisecond each on average: long enough for a fair sample."""
        return self.seconds >= SHORT * self.launches


class Profiler:
    """Samples the launches of the devices that it watches while its `with` block runs; `profile` returns the result.

    seconds: the workers' processor time so far. Raises LaunchError if the host is not Linux with glibc on x86-64 or
    aarch64.

    >>> from simgpu import Device
    >>> with Profiler() as profiler:
    ...     profiler.watch(Device("mi300x"))
    >>> profiler.profile().launches
    0
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
        # A signal may be on its way. Ignoring it first drops it; the default action would end the process.
        self._exchange(struct.pack(ACTION, IGNORED, b"", 0, 0))
        self._exchange(self._before)

    def _exchange(self, action: bytes) -> bytes:
        """Sets the action of SIGPROF; returns the action before."""
        before = ctypes.create_string_buffer(len(action))
        if self._libc.sigaction(signal.SIGPROF, action, before):
            raise OSError(ctypes.get_errno(), "sigaction")
        return before.raw

    def watch(self, device: Device) -> None:
        """Samples the device's launches from now on."""
        device.profiler = self

    @contextmanager
    def working(self) -> Iterator[None]:
        """Registers the calling thread while it works on a launch: it is signalled only here, where it certainly exists."""
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
        """Samples until the `with` block ends. Machine code waits and signals, because this thread would get the GIL back
        only when a worker releases it, as a launch begins. Waits have random lengths, so that every moment of a short launch
        is equally likely."""
        signals = SIGNALS(compiler().address_of_source("signalling", _signals))
        calls = [ctypes.cast(call, ctypes.c_void_p) for call in (self._libc.usleep, self._libc.pthread_sigqueue)]
        while not self._ended.wait(YIELD):
            with self._lock:
                threads = (ctypes.c_ulong * max(len(self._threads), 1))(*self._threads)
                wait = round(1e6 * min(random.expovariate(1 / INTERVAL), 1.0))
                signals(threads, len(self._threads), self._notes.ctypes.data, wait, *calls)

    def after_launch(self, launch: Dispatch, run: Run) -> None:
        """Counts the executions of a launch."""
        self._launches += 1
        for offset, times in run.profile.items():
            inst = launch.instruction(launch.entry + offset // 4)
            assert inst is not None
            self._executions[inst.mnemonic] += times

    def profile(self) -> Profile:
        """Returns the profile of all launches so far."""
        samples = places(compiler(), self._notes[2 : 2 + min(int(self._notes[0]), ROOM)])
        del samples[WAITING]  # mostly waits for the GIL, which take no processor time
        count = samples.total()
        each = self.seconds / max(count, 1)
        opcodes = [Opcode(name, times, samples[name], samples[name] * each) for name, times in self._executions.items()]
        others = {name: times * each for name, times in samples.most_common() if name not in self._executions}
        return Profile(tuple(sorted(opcodes, key=lambda row: -row.samples)), others, self.seconds, count, self._launches)


class _Symbol(ctypes.Structure):
    """Dl_info of dladdr(3)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]


def places(compiler: Compiler, pointers: np.ndarray) -> Counter[str]:
    """Returns the number of instruction pointers by the code they point to: a mnemonic, another compiled function's key, or a
    library's file name."""
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
        return WAITING  # after the call, or at it if it starts again
    symbol = _Symbol()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(pointer), ctypes.byref(symbol))
    return os.path.basename(os.fsdecode(symbol.file)) if symbol.file else UNKNOWN


SIGNALS = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p
)


def _signals(name: str) -> ModuleSource:
    """Returns LLVM IR that waits for some microseconds, then signals each thread (i64 pthread_t) with the notes' address."""
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
    """Returns LLVM IR of the signal's handler: it appends the instruction pointer to the notes at the signal's address.

    Notes are i64: their number, the number that fits, and then the notes.
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
