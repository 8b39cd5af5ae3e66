"""A worker's job as the scheduler's loop knows it, and the way into that loop.

The loop itself is `scheduler_loop`, numba code. Its machine code is kept with the handlers' (`jit`), so
that only the first launch of an installation imports numba, which takes longer than most kernels.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np

from simgpu.machine.jit import compiler

# Indices into a worker's `job` array (int64).
(
    JOB_COUNTER,  # address of the shared next-workgroup counter
    JOB_GROUPS,  # workgroups of the launch
    JOB_GRID_X,
    JOB_GRID_Y,
    JOB_WAVES,  # waves of a whole workgroup
    JOB_SLOTS,  # resident workgroups that the worker has memory for
    JOB_WAVE_MEMORY,  # address of the waves of slot 0, JOB_WAVE_BYTES each
    JOB_LDS,  # address of the LDS of slot 0
    JOB_LDS_STRIDE,
    JOB_CONTEXT,  # address of the worker's context
    JOB_TEMPLATE,  # address of the state that every wave begins with
    JOB_ENTERED,  # address of the entry record's count of entries
    JOB_VGPRS,  # rows to clear of the vector and of the accumulator file
    JOB_AGPRS,
    JOB_GROUP_ID_SGPR,  # first SGPR of the workgroup ids
    JOB_GROUP_ID_MASK,  # which of x, y, z are passed
    JOB_BLOCK_X,
    JOB_BLOCK_Y,
    JOB_BLOCK_Z,
    JOB_ID_MODE,  # work-item ids: 0 x, 1 x y, 2 x y z in v0.., 3 packed in v0
    JOB_SIZE_X,  # work-items of the launch in x, y, z
    JOB_SIZE_Y,
    JOB_SIZE_Z,
    JOB_SCRATCH,  # device address of the worker's private memory
    JOB_SCRATCH_WAVE,  # bytes a wave
    JOB_SCRATCH_SGPR,  # SGPR of the wave's scratch offset, or -1
    JOB_FLAT_SCRATCH,  # whether FLAT_SCRATCH is set for the wave
    JOB_LIMIT,  # instruction budget left (in record steps)
    JOB_KERNARG_SGPR,  # first SGPR of the kernarg address, or -1
    JOB_KERNARGS,  # address of i64[8]: kernarg address by which extents are partial
    JOB_WAVE_BYTES,  # from one wave's state to the next: its shadow block lies between
    JOB_SHADOW,  # address of the shadow block that every wave begins with
    JOB_LDS_SHADOW,  # address of the undefined bits of JOB_LDS
    JOB_SCRATCH_SHADOW,  # host address of those of JOB_SCRATCH, or 0
    # The worker's own state:
    JOB_TAKEN,  # workgroups resident
    JOB_CURRENT,  # slot being run
    JOB_WAVE,  # wave being run
    JOB_EXHAUSTED,  # whether all workgroups were taken
    JOB_OPEN,  # slots opened so far
    JOB_STOP,  # set by another thread to make the worker return
    JOB_FIELDS,
) = range(41)

# Per resident workgroup (int64): state, waves, waves left and waiting, id, slices used up.
SLOT_STATE, SLOT_WAVES, SLOT_LEFT, SLOT_WAITING, SLOT_X, SLOT_Y, SLOT_Z, SLOT_TURNS, SLOT_FIELDS = range(9)
EMPTY, BUSY = 0, 1

TURNS = 4  # slices after which a workgroup lets others on
FINISHED, NEED_PYTHON, LIMIT, STOPPED = range(4)


LOOP = "scheduler"  # the loop's key among the handlers
# The child's whole program: where modules are found, the function's name, and its object file to the standard output.
# It ends soon, so garbage may stay; numba imports SciPy where it finds it, for nothing that the loop needs.
CHILD = """import gc, sys
gc.disable()
sys.path[:], sys.modules["scipy"] = {path!r}, None
from simgpu.engine import scheduler
sys.stdout.buffer.write(scheduler.object_code({name!r}))
"""


def object_code(name: str) -> bytes:
    """The loop compiled, as function `name`; takes numba, and two seconds."""
    from simgpu.engine import scheduler_loop

    return scheduler_loop.run_worker.object_code(name)


@functools.cache
def begin() -> subprocess.Popen[bytes] | None:
    """Where the loop is not kept yet, a process that compiles it while this one compiles handlers."""
    alone = os.cpu_count() == 1
    if alone or compiler().is_kept(LOOP) or not sys.executable or getattr(sys, "frozen", False):
        return None
    program = CHILD.format(path=sys.path, name=compiler().name(LOOP))
    nothing = subprocess.DEVNULL
    try:
        return subprocess.Popen([sys.executable, "-c", program], stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
    except OSError:
        return None


def _made(name: str) -> bytes:
    """What the process gave, or else compiled here."""
    child = begin()
    code = child.communicate()[0] if child else b""
    return code if child and child.returncode == 0 else object_code(name)


@functools.cache
def _entry() -> Callable[[int, int, int], int]:
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    return signature(compiler().address_of_object(LOOP, _made))


def run_worker(job: np.ndarray, slots: np.ndarray) -> int:
    """Run a worker's workgroups until none is left, or until Python is needed; without the GIL.

    job: int64 (JOB_FIELDS,); slots: int64 (resident workgroups, SLOT_FIELDS). Returns FINISHED,
    NEED_PYTHON, LIMIT or STOPPED.
    """
    return _entry()(job.ctypes.data, slots.ctypes.data, len(slots))


def executions(entered: np.ndarray, exited: np.ndarray) -> np.ndarray:
    """How often each record ran: transfers to it and before it, less those away before it."""
    return np.cumsum(entered) - np.cumsum(exited) + exited
