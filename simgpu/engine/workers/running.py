"""The way into the scheduler's loop, `scheduler_loop`.

Its machine code is kept with the handlers' (`jit`), so that only the first launch of an installation translates it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from simgpu.engine.workers.scheduler import Slot, WorkerJob
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import compiler

LOOP = "scheduler"  # the loop's key among the handlers


def loop_source(name: str) -> ModuleSource:
    """The loop's source."""
    from simgpu.engine.workers import scheduler_loop  # imported where it is translated

    return scheduler_loop.run_worker.source(name)


@functools.cache
def _entry() -> Callable[[int, int, int], int]:
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    return signature(compiler().address_of_source(LOOP, loop_source))


def run_worker(job: WorkerJob, slots: ctypes.Array[Slot]) -> int:
    """Run a worker's workgroups, without the GIL, until FINISHED (none is left), NEED_PYTHON, LIMIT, STOPPED, PAUSED or
    IDLE (all waves wait for other workers').

    It may be called again after each of them but FINISHED, and goes on where it was.
    """
    return _entry()(ctypes.addressof(job), ctypes.addressof(slots), len(slots))
