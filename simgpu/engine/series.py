"""Launches that differ only in their arguments, one after another, as programs enqueue them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from simgpu.engine.device import Kernel
from simgpu.engine.faults import outside_lds
from simgpu.engine.launch import Launch
from simgpu.engine.result import Run, summarise
from simgpu.hardware.code_object.arguments import Geometry, assumptions, fill


def launches(kernel: Kernel, geometry: Geometry, calls: Sequence[Sequence[object]]) -> Iterator[tuple[int, Run]]:
    """Runs a launch for the arguments of each call, in order. Yields numbers of launches, each with the sum of their runs.

    A launch that fails raises the errors of `Kernel.launch`, after the runs of earlier launches. Arguments that the kernel does not
    take may raise errors before any launch.
    """
    done = 0
    while done < len(calls):
        kept = Launch.again(kernel, geometry, calls[done], None)
        if kept is None or not _is_plain(kept):
            runs: Iterator[tuple[int, Run]] = iter([(1, (kept or Launch(kernel, geometry, calls[done])).run())])
        else:
            runs = _repeat(kept, calls[done:])
        for count, run in runs:
            done += count
            yield count, run


def _is_plain(launch: Launch) -> bool:
    """True if a kept launch runs on this thread, and if nothing attends it."""
    preloads, device = launch.info.descriptor.preload_length, launch.device
    return launch.workers == 1 and not preloads and device.shown is None and device.profiler is None


def _repeat(launch: Launch, calls: Sequence[Sequence[object]]) -> Iterator[tuple[int, Run]]:
    """Runs a kept launch, which has the arguments of the first call, for each call.

    A launch that the scheduler's loop cannot finish at once ends them: it may fail, or lower code that others do not have.
    """
    well = False
    try:
        workers = launch.begin()
        (worker,), places, memory = workers, launch.accounts.places, launch.arguments_memory(workers[0])
        hidden = launch.kernel.hidden_segment(launch.geometry)
        segments = [fill(launch.info, args, hidden) for args in calls]
        executed, counts = np.zeros(len(places), np.int64), worker.counts.reshape(-1)
        done, begun = 0, time.perf_counter()
        for segment in segments:
            if done:
                memory[:] = segment
                launch.begin_again(worker)
            # A record step is an instruction or half of one, so a launch of few steps has few instructions.
            if not launch.team.attempt(worker) or worker.job.clock > launch.max_instructions:
                break
            executed += counts.take(places)
            counts[places] = 0
            done += 1
        if done:
            run = summarise(launch, executed, time.perf_counter() - begun, None, None, {})
            launch.note_work(run, done)
            notes = dict.fromkeys(note for args in calls[:done] for note in assumptions(launch.info, args))
            yield done, replace(run, notes=(*notes, *outside_lds(launch, workers)))
        if done < len(calls):
            launch.args = list(calls[done])
            yield 1, launch.ran(workers, lambda: launch.finish(workers))
        well = True
    finally:
        launch.close(well)
