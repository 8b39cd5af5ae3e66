"""Entry to the scheduler's loop, `scheduler_loop`.

Its machine code is cached with the handlers' (`jit`), so only the first launch of an installation compiles it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from simgpu.engine.workers.scheduler import Slot, WorkerJob
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import compiler

LOOP, SEEDED_LOOP = "scheduler", "seeded scheduler"  # the loops' keys among the handlers


def loop_source(name: str) -> ModuleSource:
    """Returns the loop's source."""
    from simgpu.engine.workers import scheduler_loop  # imported only where it is compiled

    return scheduler_loop.run_worker.source(name)


def _seeded_source(name: str) -> ModuleSource:
    """Returns the source of the loop of weak mode."""
    from simgpu.engine.workers import seeded_loop

    return seeded_loop.run_seeded_worker.source(name)


@functools.cache
def _entry(key: str) -> Callable[[int, int, int], int]:
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    return signature(compiler().address_of_source(key, loop_source if key == LOOP else _seeded_source))


def run_worker(job: WorkerJob, slots: ctypes.Array[Slot]) -> int:
    """Runs a worker's workgroups, without the GIL, and returns a status.

    The status is FINISHED (none is left), NEED_PYTHON (the current wave needs service), LIMIT (the budget is used up), STOPPED,
    PAUSED, or IDLE (all waves wait for waves of other workers). After any status except FINISHED, another call continues.
    """
    return _entry(SEEDED_LOOP if job.random else LOOP)(ctypes.addressof(job), ctypes.addressof(slots), len(slots))
