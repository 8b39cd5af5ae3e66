"""Kernels timed by the model: samples of a launch's workgroups run, and `simgpu.timing` says how long all would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.path_trace import ENDED, USED, PathTrace, Storage
from simgpu.engine.allocations import Saved
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.initial_state import registers
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import Deadlock, InstructionLimit, LaunchError
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.timing.code import code_of
from simgpu.timing.predict import Prediction, Resources, Sampled, predict, resident_groups
from simgpu.timing.trace import renumbered, trace_of

WHOLE_STEPS = 4_000_000  # records that a wave of a whole sample steps over at most
PATIENCE = 300_000  # after so many, what a wave may be waiting for is run first
MOST_IN_ORDER = 4096  # workgroups of a launch of which some wait for others
SMALL = 1 << 24  # bytes of an allocation that is always restored: flags that workgroups wait for lie in small ones
BEGINNING_STEPS = 1_000_000  # records of all waves of the beginnings together
LEAST_STEPS = 256  # of a wave
MOST_BEGINNINGS = 1024
ALIKE = 4  # samples that tell that all workgroups do the same
PARTS = 5  # of a launch of several rounds, from each of which comes a sample
WITHIN = 0.618  # where in its part it lies: at no simple fraction of the launch, where an edge of the grid may be


class _Sampling(Launch):
    """A launch of chosen workgroups, one at a time, each wave as far as is asked."""

    fuse = False
    stopped = False  # whether a wave of the workgroup went as far as it shall

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        super().__init__(kernel, geometry, args)
        self.workers = 1

    def _serve(self, worker: Worker) -> None:
        if current_wave(worker).status != Status.PATH:
            super()._serve(worker)
            return
        # The other waves go on, until they went as far or wait for this one.
        wave_of(worker, *place_of_wave(worker)).status = Status.WAITING
        worker.job.turn, self.stopped = -1, True

    def begin(self) -> list[Worker]:
        (self.worker,) = workers = super().begin()
        return workers

    def sample(self, group: int, steps: int) -> tuple[list[np.ndarray], bool]:
        """The streams of a workgroup's waves, of which each steps over so many records; whether all ended."""
        worker, storage = self.worker, self.worker.checks["path_trace"]
        assert isinstance(storage, Storage)
        storage.begin(self.entry, steps)
        job = worker.job
        job.taken = job.current = job.wave = 0
        job.turn = layout.SLICE
        job.open = 1
        for slot in worker.slots:
            slot.state = scheduler.EMPTY
        self.stopped = False
        try:
            self._run_groups([worker], group, group + 1)
        except Deadlock:
            if not self.stopped:
                raise
            worker.error = None
        used = np.minimum(storage.tallies[:, USED], storage.streams.shape[1])
        streams = [stream[:count].copy() for stream, count in zip(storage.streams, used, strict=True)]
        # A wave that a partial workgroup lacks executes nothing.
        return streams, bool((storage.tallies[:, ENDED] | (used == 0)).all())


@dataclass(frozen=True)
class _Streams:
    """A workgroup's number, the streams of its waves, and whether all of them ended."""

    group: int
    streams: list[np.ndarray]
    complete: bool


def sample(kernel: Kernel, geometry: Geometry, args: Sequence[object], restore: bool = True) -> Sampled:
    """Runs samples of a launch; restore: whether all of the device's memory is as before afterwards,
    or only small allocations. Raises what a launch raises."""
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    traced = _traced(kernel)
    device, chip = kernel.module.device, kernel.module.device.descriptor
    row = pipelines(chip.arch)
    saved = Saved.of(device.memory, None if restore else SMALL)
    launch = _Sampling(traced, geometry, args)
    try:
        launch.begin()
        used = _resources(launch)
        together = min(launch.groups, chip.num_cus * resident_groups(chip, used), MOST_BEGINNINGS)
        wholes = _wholes(launch, saved, launch.groups > together)
        steps = max(LEAST_STEPS, BEGINNING_STEPS // (together * launch.waves))
        # Around the longest: those at the edges of the launch may have less to do.
        longest = max(wholes, key=lambda one: sum(map(len, one.streams))).group
        begun = min(max(0, longest - together // 2), launch.groups - together) // chip.xcds * chip.xcds
        beginnings = [launch.sample(group, steps)[0] for group in range(begun, begun + together)]
        instructions = dict(launch.program.instructions)
        numbers = launch.program.count + 1
    except Deadlock as error:
        raise LaunchError(f"{kernel.name}: a workgroup alone never ends, it waits for others: no time is told ({error})") from None
    finally:
        launch.end(False)
        saved.restore()
    code = code_of(instructions, numbers, row)
    whole = [trace_of(code, one.streams, launch.entry, one.complete, one.group) for one in wholes]
    first = [trace_of(code, stream, launch.entry, False, group) for group, stream in enumerate(beginnings, start=begun)]
    traces = renumbered([*whole, *first])
    whole, first = traces[: len(whole)], traces[len(whole) :]
    whole.sort(key=len, reverse=True)  # the launch ends with its longest
    notes, wider = [], 0.0
    if not all(trace.complete for trace in whole):
        notes.append(f"a wave went on past {WHOLE_STEPS:,} instructions: its rest is not in the time")
        wider += 0.5
    lengths = [len(trace) for trace in whole]
    if min(lengths) < max(lengths):
        notes.append(f"workgroups differ: {len(whole)} were sampled, of {min(lengths):,} to {max(lengths):,} wave-instructions")
        wider += 0.1
    return Sampled(chip, instructions, numbers, launch.entry, whole, first, launch.groups, used, notes, wider)


def _wholes(launch: _Sampling, saved: Saved, rounds: bool) -> list[_Streams]:
    """Workgroups that stand for all: the middle one alone where the first ones of these do the same.

    All of one round run at once, and the longest decides, so edges are looked at. Of several rounds each kind of workgroup counts
    as often as there are such: samples lie evenly.
    """
    found: list[_Streams] = []
    last = launch.groups - 1
    chosen = [last // 2, 0, min(1, last), last, last // 4, 3 * last // 4]
    if rounds:
        chosen = [int((part + WITHIN) * launch.groups / PARTS) for part in (PARTS // 2, *range(PARTS))]
    for group in dict.fromkeys(chosen):
        streams, complete = launch.sample(group, PATIENCE)
        if not complete and launch.groups <= MOST_IN_ORDER:
            in_order = _in_order(launch, saved)
            if in_order:
                return in_order
        if not complete:
            streams, complete = launch.sample(group, WHOLE_STEPS)
        found.append(_Streams(group, streams, complete))
        if not complete:
            break
        if len(found) == ALIKE and len({tuple(map(len, one.streams)) for one in found}) == 1:
            return found[:1]
    return found


def _in_order(launch: _Sampling, saved: Saved) -> list[_Streams]:
    """Samples where workgroups wait for those before them: all run once, in the order of dispatch. None where one never ends."""
    saved.restore()
    wanted = {0, launch.groups // 2, launch.groups - 1}
    found = []
    for group in range(launch.groups):
        streams, complete = launch.sample(group, PATIENCE)
        if not complete:
            return []
        if group in wanted:
            found.append(_Streams(group, streams, complete))
    return found


def _traced(kernel: Kernel) -> Kernel:
    """The kernel on a device that traces paths and shares the memory; kept for the next time."""
    module = kernel.module
    kept = module.device.shadows.setdefault("timed", {})
    if id(module) not in kept:
        kept[id(module)] = module.on(module.device.sharing([PathTrace()])), module
    return Kernel(kept[id(module)][0], kernel.info)


def _resources(launch: Launch) -> Resources:
    descriptor = launch.info.descriptor
    vgprs, agprs = registers(descriptor, launch.device.arch)
    return Resources(vgprs, agprs, descriptor.sgprs, launch.lds_bytes, launch.waves)


def time_launch(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], *, mhz: float | None = None, warm: bool = False, events: int = 0
) -> Prediction:
    """The time of a launch by the model; see `simgpu.timing.predict.predict` for the arguments."""
    try:
        sampled = sample(kernel, geometry, args)
    except InstructionLimit as error:
        raise LaunchError(f"{kernel.name}: {error}; a workgroup that waits for others has no time of its own") from None
    return predict(sampled, mhz=mhz, warm=warm, events=events)
