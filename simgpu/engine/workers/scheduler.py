"""Structures that the scheduler's loop (`scheduler_loop`) reads and writes, and the meaning of its counts.

A record step is one dword of executed code: an instruction of 8 bytes takes two.
"""

from __future__ import annotations

import ctypes
import random
from ctypes import c_int64, c_uint64

import numpy as np

from simgpu.machine import layout

PACKED_XY = 3  # first `id_mode` whose ids are packed in v0


class WorkerJob(ctypes.Structure):
    """A worker's part of a launch, and its progress."""

    _fields_ = (
        ("counter", c_int64),  # address of the shared next-workgroup counter
        ("groups", c_int64),  # number of the workgroup after the last one to run
        ("grid", c_int64 * 2),  # workgroups in x and y
        ("block", c_int64 * 3),  # work-items of a whole workgroup in x, y, z
        ("size", c_int64 * 3),  # work-items of the launch in x, y, z
        ("waves", c_int64),  # waves of a whole workgroup
        ("slots", c_int64),  # resident workgroups that the worker has memory for
        ("wave_memory", c_int64),  # address of the waves of slot 0
        ("wave_bytes", c_int64),  # from one wave's state to the next, including checks' extra bytes
        ("lds", c_int64),  # address of the LDS of slot 0
        ("lds_stride", c_int64),  # bytes from one slot's LDS to the next
        ("context", c_int64),  # address of the worker's context
        ("template", c_int64),  # address of the state that every wave begins with
        ("entered", c_int64),  # address of the entry record's count of entries
        ("vgprs", c_int64),  # rows to clear of the vector file
        ("agprs", c_int64),  # rows to clear of the accumulator file
        ("group_id_sgpr", c_int64),  # first SGPR of the workgroup ids
        ("group_id_mask", c_int64),  # bits for x, y, z that are passed
        ("id_mode", c_int64),  # work-item ids: 0 x, 1 x y, 2 x y z in v0..; packed in v0: 3 x y, 4 x y z
        ("scratch", c_int64),  # device address of the worker's private memory
        ("scratch_wave", c_int64),  # bytes of private memory of a wave
        ("scratch_sgpr", c_int64),  # SGPR of the wave's scratch offset, or -1
        ("flat_scratch", c_int64),  # 1 if FLAT_SCRATCH is set for the wave
        ("budget", c_int64),  # address of the launch's budget, record steps that all workers share
        ("kernarg_sgpr", c_int64),  # first SGPR of the kernarg address, or -1
        ("kernargs", c_int64),  # address of i64[8]: kernarg address by partial extents
        ("begin", c_int64),  # address of a function to call with a new wave's address and its index in the worker, or 0
        ("give_way", c_int64),  # address of a function that lets other threads of the host run first
        ("random", c_int64),  # state of the generator that chooses which wave runs, 0 if they run in order
        ("holds", c_int64),  # if not in order: a wave that pauses is held back once in 2^holds
        # The worker's own state:
        ("taken", c_int64),  # number of resident workgroups
        ("current", c_int64),  # slot that is running
        ("wave", c_int64),  # wave that is running
        ("exhausted", c_int64),  # 1 if all workgroups were taken
        ("open", c_int64),  # slots opened so far
        ("turns", c_int64),  # turns of workgroups since a slot was opened or a workgroup ended
        ("turn", c_int64),  # record steps left of the wave's turn, -1 when it is over
        ("clock", c_int64),  # record steps executed
        ("spent", c_int64),  # record steps not yet subtracted from the budget
        ("active", c_int64),  # 1 if a wave ran since the worker was last at slot 0
        ("moved", c_int64),  # 1 if a workgroup did more than poll since the worker was last at slot 0
        ("pause", c_int64),  # record steps after which the worker returns
        ("held", c_int64),  # number of the wave that is held back
        ("hold", c_int64),  # turns of others that it is still held back for
        ("stop", c_int64),  # set by another thread to make the worker return
    )


class SharedState(ctypes.Structure):
    """Data that the workers of a launch share, in separate cache lines."""

    _fields_ = (
        ("counter", c_int64),  # number of the next workgroup to begin
        ("between", c_int64 * 15),
        ("budget", c_int64),  # record steps left
        ("behind", c_int64 * 15),
    )


class Slot(ctypes.Structure):
    """Place for a resident workgroup."""

    _fields_ = (
        ("state", c_int64),  # EMPTY or BUSY
        ("waves", c_int64),
        ("left", c_int64),  # number of waves that have not ended
        ("waiting", c_int64),  # number of waves at a barrier
        ("group", c_int64 * 3),  # the workgroup's id
        ("used", c_int64),  # record steps of finished slices in this turn
        ("met", c_int64),  # 1 if its waves passed a barrier in this turn
        ("polls", c_int64),  # 1 if the last slices of its waves left their registers as the slices before had
        ("looks", c_int64),  # barriers in this turn's second half at which its registers were examined
        ("marks", c_uint64 * 2),  # fingerprints: scalar registers at the first of them; vector registers when those recurred
        ("recurs", c_int64),  # 1 if all its registers were twice the same at such barriers
        ("contends", c_int64),  # 1 if a wave spent a whole slice in a loop with atomics that return a value: it may wait for a lock
        ("haste", c_int64),  # the workgroup's turns and slices have a 2^haste-th of their usual length
        ("turns", c_int64),  # turns of the workgroup
    )

    def empty(self) -> None:
        """Drops the workgroup, and all that is known of its turns, as if none had run here."""
        self.state = EMPTY
        self.used = self.met = self.polls = self.looks = self.recurs = self.contends = self.haste = self.turns = 0


def begin_job(job: WorkerJob, slots: ctypes.Array[Slot]) -> None:
    """Resets the state of a worker that ran, except its order of waves."""
    ctypes.memmove(ctypes.addressof(job) + _STATE, _BEGINNING, len(_BEGINNING))
    ctypes.memset(slots, 0, ctypes.sizeof(slots))


def seed_job(job: WorkerJob, seed: int) -> None:
    """Makes a worker run its waves in the order of a seed, with a chance of holding one back that the seed also chooses."""
    chosen = random.Random(seed)
    job.random, job.holds = chosen.getrandbits(62) | 1, chosen.choice(HOLDS)
    job.held = job.hold = 0


_STATE = WorkerJob.taken.offset  # first field of a worker's own state
_BEGINNING = bytes(WorkerJob(open=1, turn=layout.SLICE))[_STATE:]
HOLDS = (0, 1, 3)  # choices of `WorkerJob.holds`
EMPTY, BUSY = 0, 1

TURN = 4 * layout.SLICE  # record steps of all its waves after which a workgroup lets others run, unless it has many waves
OVER = 1 << 62  # `Slot.used` of a turn that is over before
# Turns with barriers after which another workgroup becomes resident; a tile with 4096 steps of k takes three turns.
PATIENCE = 16
MOST_HASTE, LOCK_HASTE = 8, 6  # of a workgroup that polls; the least of one that contends
LOCK_LOOP = 1 << 7  # most record steps of a loop that tries to take a lock
SHORT = 3  # bits of `Slot.turns` that are 0 in whole turns, one of four; the others are short
LOOKS = 24  # of `Slot.looks`: three rounds of a loop with eight barriers
FINISHED, NEED_PYTHON, LIMIT, STOPPED, PAUSED, IDLE = range(6)


def executions(entered: np.ndarray, exited: np.ndarray) -> np.ndarray:
    """Returns how often each record ran: transfers to it or an earlier record, minus transfers away from earlier records."""
    times: np.ndarray = (entered - exited).cumsum()
    times += exited
    return times
