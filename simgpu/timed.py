"""Kernels timed by the model: samples of a launch's workgroups run, and `simgpu.timing` says how long all would take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from simgpu.checks.path_trace import CLOSED, ENDED, LIMIT, STEPS, USED, PathTrace, Storage
from simgpu.engine.allocations import Saved
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.engine.workers import scheduler
from simgpu.engine.workers.initial_state import registers
from simgpu.engine.workers.worker import Worker, current_wave, place_of_wave, wave_of
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import Deadlock, InstructionLimit, LaunchError
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Kind, Unit
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.timing.channels import busy_channels, lines_of
from simgpu.timing.code import ATOMIC, STORE, Code, code_of
from simgpu.timing.dispatch import spread
from simgpu.timing.predict import Prediction, Resources, Sampled, predict, resident_groups
from simgpu.timing.trace import Trace, part_of, renumbered, trace_of

KEPT = 4_000_000  # records of all waves of a workgroup whose traces are kept; what they go on for is counted
PATIENCE = 300_000  # records of a wave after which it is looked at whether it waits for others
MOST_STEPS = 1 << 28  # records that a wave of a whole sample steps over at most
IN_ORDER_STEPS = 32_000_000  # of all waves of a launch of which some wait for others
SMALL = 1 << 24  # bytes of an allocation that is always restored: flags that workgroups wait for lie in small ones
BEGINNING_STEPS = 1_000_000  # records of all waves of the beginnings together
LEAST_STEPS = 256  # of a wave
MOST_BEGINNINGS = 1024
# Rounds of which memory's channels are looked at beside the one around the longest workgroup: one, where so many are busy.
MOST_ROUNDS, ALL_CHANNELS = 16, 0.9
# Samples that tell that all workgroups do the same: so many at least, and more while they take few records.
ALIKE, MORE_ALIKE, ALIKE_STEPS = 4, 128, 300_000
# Where they do not, samples go on until the mean is known as well as NEAR, of 1, or as far as these go.
MOST_DIFFERENT, DIFFERENT_STEPS, NEAR = 1024, 16_000_000, 0.01
# Of one round, samples of at most so many kinds, each of which came so often, are known: one that did not come among MORE_ALIKE is
# of less than 2.4 % of the workgroups (95 %: 0.976^128).
FEW_KINDS, SEEN_KIND = 4, 8
FEW_BORDERS = 16  # between workgroups of two kinds in the order of dispatch, of which each is looked for
MATRIX_STEPS = 16  # plain instructions that a matrix instruction takes as long as, run
FEW_ROUNDS, TOGETHER = 16, 0.5  # workgroups of a CU that may be alike though they differ, and standard deviations that they then do
LONG_STEPS = 32_000_000  # of samples, from which on two have to do
LOOKED_AT, POLLING = 256, 32  # last accesses of a wave that tell whether it waits; instructions for each if it does
COMPUTING = (Unit.VALU, Unit.MATRIX, Unit.ALONE)
HUNGRY = 4  # times the work of a workgroup that runs later, by which the one that runs first may have taken it away
UNKNOWN_LOOP = 0.05  # wider band where a trace ends before its workgroup
ENDLESS = 0.5  # wider band where a workgroup has not ended after MOST_STEPS
WAITED = 0.25  # wider band where workgroups wait for each other
SHARED_WORK = 0.25  # wider band where workgroups take their work from each other


@dataclass(frozen=True)
class _Streams:
    """A workgroup's number, the streams of its waves, whether all of them ended; records: executed, and those in the streams."""

    group: int
    streams: list[np.ndarray]
    complete: bool
    executed: int
    kept: int

    @property
    def words(self) -> int:
        """Of the streams: more, the more lines of memory its waves ask for."""
        return sum(map(len, self.streams))


class _AllStopped(Exception):
    """All waves of a workgroup went as far as they shall, or ended."""


class _Sampling(Launch):
    """A launch of chosen workgroups, one at a time, each wave as far as is asked."""

    fuse = False
    stopped = 0  # waves of the workgroup that went as far as they shall
    waited = False  # whether that was because it waits for others
    further = 0  # records that waves go on to, where they do not wait for others

    def __init__(self, kernel: Kernel, geometry: Geometry, args: Sequence[object]) -> None:
        super().__init__(kernel, geometry, args)
        self.workers = 1

    def _serve(self, worker: Worker) -> None:
        if current_wave(worker).status != Status.PATH:
            super()._serve(worker)
            return
        wave, storage = wave_of(worker, *place_of_wave(worker)), worker.checks["path_trace"]
        assert isinstance(storage, Storage)
        if self.further > storage.block[LIMIT] and not self._waits(storage.stream(wave.wave_id)):
            storage.block[LIMIT], wave.status = self.further, Status.RUNNING
            return
        # The other waves go on, until they went as far or wait for this one.
        wave.status = Status.WAITING
        worker.job.turn, self.stopped = -1, self.stopped + 1
        if self.stopped + int(storage.tallies[:, ENDED].sum()) == worker.slots[worker.job.current].waves:
            raise _AllStopped

    @property
    def code(self) -> Code:
        """The instructions that were executed so far."""
        return code_of(dict(self.program.instructions), self.program.count + 1, pipelines(self.device.arch))

    def path(self, stream: np.ndarray) -> tuple[Code, Trace]:
        """What one wave did, by its stream."""
        code = self.code
        return code, trace_of(code, [stream], self.entry, False, 0)

    def _waits(self, stream: np.ndarray) -> bool:
        """Whether a wave only asks for the same lines again and again, in a short loop, and stores nothing."""
        code, trace = self.path(stream)
        last = trace.steps[-POLLING * LOOKED_AT :]
        if (code.kind[last] == Kind.SMEM).any() and not (code.accesses[last] | np.isin(code.unit[last], COMPUTING)).any():
            self.waited = True  # scalar loads alone, and nothing that is done with them but to look at them
            return True
        places = np.flatnonzero(code.accesses[trace.steps])[-LOOKED_AT:]
        numbers = trace.steps[places]
        if len(places) < LOOKED_AT or len(trace) - places[0] > POLLING * LOOKED_AT:
            return False
        if (code.flags[numbers] & (STORE | ATOMIC) == STORE).any():
            return False
        asked: dict[int, set[tuple[int, ...]]] = {}
        for number, (_, first, count) in zip(numbers.tolist(), trace.accesses[-LOOKED_AT:].tolist(), strict=True):
            asked.setdefault(number, set()).add(tuple(trace.lines[first : first + count].tolist()))
        self.waited = all(len(lines) == 1 for lines in asked.values())
        return self.waited

    def begin(self) -> list[Worker]:
        (self.worker,) = workers = super().begin()
        return workers

    def sample(self, group: int, steps: int, keep: int | None = None, further: int = 0) -> _Streams:
        """A workgroup, each wave over so many records, and up to `further` where it does not wait for others then; keep: those
        after which its stream ends (default: all)."""
        worker, storage = self.worker, self.worker.checks["path_trace"]
        assert isinstance(storage, Storage)
        storage.begin(self.entry, steps if keep is None else keep, steps)
        job = worker.job
        job.taken = job.current = job.wave = 0
        job.turn = layout.SLICE
        job.open = 1
        for slot in worker.slots:
            slot.state = scheduler.EMPTY
        self.stopped, self.waited, self.further = 0, False, further
        try:
            self._run_groups([worker], group, group + 1)
        except _AllStopped:
            worker.error = None
        except Deadlock:  # where others wait for those that stopped
            if not self.stopped:
                raise
            worker.error = None
        tallies = storage.tallies
        streams = [storage.stream(wave).copy() for wave in range(len(tallies))]
        executed = tallies[:, STEPS]
        kept = np.where(tallies[:, CLOSED] > 0, tallies[:, CLOSED], executed)
        # A wave that a partial workgroup lacks executes nothing.
        complete = bool((tallies[:, ENDED] | (tallies[:, USED] == 0)).all())
        return _Streams(group, streams, complete, int(executed.sum()), int(kept.sum()))


def sample(kernel: Kernel, geometry: Geometry, args: Sequence[object], restore: bool = True) -> Sampled:
    """Runs samples of a launch; restore: whether all of the device's memory is as before afterwards,
    or only small allocations. Raises what a launch raises."""
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    traced = _traced(kernel)
    device, chip = kernel.module.device, kernel.module.device.descriptor
    saved = Saved.of(device.memory, None if restore else SMALL)
    launch = _Sampling(traced, geometry, args)
    try:
        launch.begin()
        used = _resources(launch)
        together = min(launch.groups, chip.num_cus * resident_groups(chip, used), MOST_BEGINNINGS)
        wholes, told = _wholes(launch, saved, chip.num_cus * resident_groups(chip, used))
        steps = max(LEAST_STEPS, BEGINNING_STEPS // (together * launch.waves))
        # Around the longest: those at the edges of the launch may have less to do.
        longest = max(wholes, key=lambda one: one.executed).group
        begun = min(max(0, longest - together // 2), launch.groups - together) // chip.xcds * chip.xcds
        beginnings = _round(launch, begun, together, steps)
        channels = _channels(launch, beginnings, steps)
        instructions, code = dict(launch.program.instructions), launch.code
    except Deadlock as error:
        raise LaunchError(f"{kernel.name}: a workgroup alone never ends, it waits for others: no time is told ({error})") from None
    finally:
        launch.end(False)
        saved.restore()
    traces = renumbered([
        *(trace_of(code, one.streams, launch.entry, one.complete, one.group, one.executed / max(1, one.kept)) for one in wholes),
        *(trace_of(code, one.streams, launch.entry, False, one.group) for one in beginnings),
    ])  # fmt: skip
    whole, first = traces[: len(wholes)], traces[len(wholes) :]
    notes, wider = list(told.notes), told.wider
    if told.shared_by:
        whole = [part_of(code, whole[0], _share(code, whole[0], told.shared_by))]
    if not all(trace.complete for trace in whole):
        notes.append(f"a wave went on past {MOST_STEPS:,} instruction words: its rest is not in the time")
        wider += ENDLESS
    if any(trace.stretch > 1.01 for trace in whole):
        notes.append(f"waves go on past what was traced, up to {max(trace.stretch for trace in whole):.3g} times: as until there")
        wider += UNKNOWN_LOOP
    whole.sort(key=len, reverse=True)
    return Sampled(chip, instructions, len(code.unit), launch.entry, whole, first, launch.groups, used, notes, wider, channels)


def _round(launch: _Sampling, first: int, together: int, steps: int) -> list[_Streams]:
    """The beginnings of workgroups that run together, from `first` on."""
    return [launch.sample(group, steps) for group in range(first, first + together)]


def _channels(launch: _Sampling, beginnings: Sequence[_Streams], steps: int) -> float:
    """The share of memory's channels that are busy, by one round and others all over the launch, if it is not the same in two."""
    row, together = pipelines(launch.device.arch), len(beginnings)
    rounds = [lines_of([one.streams for one in beginnings])]
    others = islice(spread(launch.groups - together + 1, MOST_ROUNDS), MOST_ROUNDS if row.memory_channels else 0)
    for first in others:
        rounds.append(lines_of([one.streams for one in _round(launch, first, together, steps)]))
        if sum(map(bool, map(len, rounds))) > 1 and busy_channels(rounds, row) > ALL_CHANNELS:
            break
    return busy_channels(rounds, row)


@dataclass(frozen=True)
class _Told:
    """What samples say of a launch beside their traces. shared_by: workgroups that do the one sample's work together."""

    notes: Sequence[str] = ()
    wider: float = 0.0
    shared_by: int = 0


def _wholes(launch: _Sampling, saved: Saved, places: int) -> tuple[list[_Streams], _Told]:
    """Workgroups that stand for all, one alone where all do the same; places: of the GPU, for workgroups.

    Those of one round run at once, and the longest decides, so edges of the grid are among them. Of several rounds each kind of
    workgroup counts as often as there are such: samples lie evenly.
    """
    groups, wholes, heavy = launch.groups, list[_Streams](), 1.0
    rounds, sizes = groups > places, list[int]()
    few = groups < FEW_ROUNDS * launch.device.descriptor.num_cus
    edges = () if rounds else ((groups - 1) // 2, 0, min(1, groups - 1), groups - 1)
    for group in dict.fromkeys((*edges, *spread(groups, MOST_DIFFERENT))):
        if _enough(sizes, heavy, groups, rounds):
            break
        one = _whole(launch, group)
        if one is None or (not one.complete and group and not _taken(launch, one)):
            why = "workgroups wait for those before them, which ran first: for how long is not in the time"
            return _in_order(launch, saved), _Told([why], WAITED)
        if one.executed > max(sizes, default=0):
            heavy = _heavy(launch, one)
        wholes.append(one)
        sizes.append(one.executed)
        if not one.complete:
            if _taken(launch, one):
                raise LaunchError(
                    f"{launch.info.name}: workgroups take their work by an atomic in memory, and one alone, which gets all of it, "
                    f"has not ended after {MOST_STEPS:,} instruction words of a wave: no time is told; time a smaller problem"
                )
            return [one], _Told()
    if not rounds and _few_kinds(sizes):
        wholes += _at_borders(launch, wholes)
        sizes = [one.executed for one in wholes]
    if min(sizes) > (1 - NEAR) * max(sizes):
        # Those at the edges of a problem may execute as much, and ask for fewer lines, which a buffer's end cuts off.
        words = sorted(one.words for one in wholes)
        asked = words[len(words) // 2 if rounds else -1]
        return [next(one for one in wholes if abs(one.words - asked) <= NEAR * asked)], _Told()
    if max(sizes) == sizes[0] > HUNGRY * max(sizes[1:]):
        saved.restore()
        again = _whole(launch, wholes[-1].group)
        if again is not None and again.executed * HUNGRY > sizes[0]:
            why = "workgroups take their work from memory that they share, the first one alone all: each is taken to have its part"
            return [again], _Told([why], SHARED_WORK, min(groups, places))
    said = f"workgroups differ: {len(wholes):,} of {groups:,} were run, of {min(sizes) / max(sizes):.2g} to 1 of the longest"
    return wholes, _Told([said], _sampling_error(sizes, groups, rounds, few))


def _enough(sizes: Sequence[int], heavy: float, groups: int, rounds: bool) -> bool:
    """Whether samples of these sizes, each record as slow as `heavy` plain ones, tell what all workgroups do."""
    count, total = len(sizes), sum(sizes) * heavy
    if count < ALIKE:
        return count > 1 and total > LONG_STEPS
    if min(sizes) > (1 - NEAR) * max(sizes):
        return count >= MORE_ALIKE or sum(sizes) > ALIKE_STEPS
    if count >= MOST_DIFFERENT or total > DIFFERENT_STEPS:
        return True
    if count < MORE_ALIKE:
        return False
    return _sampling_error(sizes, groups, rounds) < NEAR if rounds else _few_kinds(sizes)


def _few_kinds(sizes: Sequence[int]) -> bool:
    """Whether samples are of few sizes, each of which came often: as where some programs have a row more than others."""
    _, seen = np.unique(np.round(np.array(sizes) / (NEAR * max(sizes))), return_counts=True)
    return len(seen) <= FEW_KINDS and min(seen) >= SEEN_KIND


def _at_borders(launch: _Sampling, wholes: Sequence[_Streams]) -> list[_Streams]:
    """The workgroups where one kind ends and another begins, found by halves between samples; none where they alternate."""
    near = NEAR * max(one.executed for one in wholes)
    known = sorted(wholes, key=lambda one: one.group)
    pairs = [(low, high) for low, high in itertools.pairwise(known) if abs(high.executed - low.executed) > near]
    found: list[_Streams] = []
    for low, high in pairs if len(pairs) <= FEW_BORDERS else ():
        while high.group - low.group > 1:
            one = _whole(launch, (low.group + high.group) // 2)
            if one is None or not one.complete:
                return found
            found.append(one)
            low, high = (one, high) if abs(one.executed - low.executed) <= near else (low, one)
    return found


def _heavy(launch: _Sampling, one: _Streams) -> float:
    """Plain instructions that one of this workgroup takes as long as to run, on average; so does a word of a stream."""
    code, trace = launch.path(one.streams[0])
    steps = trace.steps
    return 1 + (MATRIX_STEPS - 1) * float(np.mean(code.kind[steps] == Kind.MATRIX)) + len(one.streams[0]) / len(steps)


def _sampling_error(sizes: Sequence[int], groups: int, rounds: bool, few: bool = False) -> float:
    """Relative error that is likely as not all workgroups are known: two standard errors of their mean, and of one round how far
    the longest stand out, unless kinds are few; few: whether a CU has so few workgroups that, by their order, they may be alike."""
    unknown = 1 - len(sizes) / groups
    if unknown == 0:
        return 0.0
    deviation = float(np.std(sizes, ddof=1) / np.mean(sizes))
    alike = TOGETHER * deviation * unknown if few else 0.0
    longer = 0.0 if rounds or _few_kinds(sizes) else 1 - float(np.quantile(sizes, 0.9)) / max(sizes)
    return max(alike, longer, 2 * deviation * math.sqrt(unknown / len(sizes)))


def _whole(launch: _Sampling, group: int) -> _Streams | None:
    """A workgroup as far as MOST_STEPS go; None for one that waits for others."""
    try:
        one = launch.sample(group, PATIENCE, KEPT // launch.waves, MOST_STEPS)
    except Deadlock:
        return None
    return None if launch.stopped and launch.waited else one


def _share(code: Code, trace: Trace, groups: int) -> float:
    """The part of a workgroup's work that one of `groups` does: a whole number of what it took, by its atomics but the last."""
    taken = max(1, round(_atomics(code, trace) * trace.stretch) - 1)
    return math.ceil(taken / groups) / taken if taken > 1 else 1 / groups


def _taken(launch: _Sampling, one: _Streams) -> bool:
    """Whether a workgroup executes an atomic of its first wave again and again."""
    return _atomics(*launch.path(one.streams[0])) > 2


def _atomics(code: Code, trace: Trace) -> int:
    """How often the first wave executes the atomic that it executes most."""
    numbers = trace.steps[: trace.starts[1]]
    return int(np.bincount(numbers[code.flags[numbers] & ATOMIC > 0], minlength=1).max())


def _in_order(launch: _Sampling, saved: Saved) -> list[_Streams]:
    """Samples where workgroups wait for those before them: the first ones run once, in the order of dispatch. LaunchError where one
    never ends all the same."""
    saved.restore()
    kept: list[_Streams] = []
    executed, wanted = 0, {0, launch.groups // 2, launch.groups - 1}
    for group in range(launch.groups):
        whole = _whole(launch, group)
        if whole is None or not whole.complete:
            raise LaunchError(
                f"{launch.info.name}: workgroup {group} waits for others and does not end, though all before it have: it waits for "
                "some that run beside it, or for ever; no time is told"
            )
        executed += whole.executed
        if executed > IN_ORDER_STEPS:
            return [*kept[-2:], whole]
        if group in wanted or group & group - 1 == 0:  # a power of two
            kept.append(whole)
    return [one for one in kept if one.group in wanted]


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
    kernel: Kernel, geometry: Geometry, args: Sequence[object], *, mhz: float | None = None, warm: bool = False, events: int = 0,
    restore: bool = True,
) -> Prediction:  # fmt: skip
    """The time of a launch by the model; restore: as for `sample`; see `simgpu.timing.predict.predict` for the others."""
    if mhz is not None and not 0 < mhz < math.inf:
        raise LaunchError(f"mhz={mhz}: give the engine's clock in MHz, more than 0, or None for what the board holds")
    try:
        sampled = sample(kernel, geometry, args, restore)
    except InstructionLimit as error:
        raise LaunchError(f"{kernel.name}: {error}; a workgroup that waits for others has no time of its own") from None
    return predict(sampled, mhz=mhz, warm=warm, events=events)
