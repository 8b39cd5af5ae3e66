"""Chooses workgroups that represent a launch: one if all do the same, else evenly spread samples until the mean is known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.engine.allocations import SavedMemory
from simgpu.hardware.errors import Deadlock, LaunchError
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.sampling.values import demand_of_launch
from simgpu.sampling.workgroups import Sampling, Streams
from simgpu.timing.code import CodeColumns
from simgpu.timing.contention import GroupAtomics, atomics_of
from simgpu.timing.dispatch import spread
from simgpu.timing.native.state import ATOMIC
from simgpu.timing.trace import Trace

KEPT = 4_000_000  # most records of a workgroup, all waves together, that its streams keep; later ones are only counted
PATIENCE = 300_000  # records of a wave after which it is tested whether it waits for other workgroups
MOST_STEPS = 1 << 28  # most records that a wave of a sample executes
IN_ORDER_STEPS = 32_000_000  # most records that samples execute, all waves together, if workgroups wait for others
# Number of equal samples from which all workgroups are assumed alike: ALIKE, or MORE_ALIKE if these have at most ALIKE_STEPS
# records together.
ALIKE, MORE_ALIKE, ALIKE_STEPS = 4, 128, 300_000
LINES_DIFFER = 16  # number of samples if these execute as much but request different numbers of lines
# If workgroups differ, samples are added until the mean's relative error is NEAR, or up to these limits.
MOST_DIFFERENT, DIFFERENT_STEPS, NEAR = 1024, 16_000_000, 0.01
# If all workgroups run in one round, samples of at most FEW_KINDS kinds, each seen SEEN_KIND times, are complete. A
# kind that was not among MORE_ALIKE samples is less than 2.4 % of the workgroups (95 %: 0.976^128).
FEW_KINDS, SEEN_KIND = 4, 8
ENDS_LONGER = 2  # a first or last workgroup that executes this many times more than the longest sample counts as one of its own
FEW_BORDERS = 16  # most borders between workgroups of two kinds, in the order of dispatch, that are searched for
MATRIX_STEPS = 16  # plain instructions that the simulator runs in the time of a matrix instruction
# With fewer than FEW_ROUNDS workgroups, those of one CU may be alike although the launch's differ. The error is then at least
# TOGETHER standard deviations.
FEW_ROUNDS, TOGETHER = 16, 0.5
LONG_STEPS = 32_000_000  # if samples have more records together, two are enough
HUNGRY = 4  # if the first workgroup does this many times the work of a later one, it may have taken the later one's work
WAITED = 0.25  # wider band if workgroups wait for each other
SHARED_WORK = 0.25  # wider band if workgroups take their work from each other


@dataclass(frozen=True)
class LaunchFacts:
    """Facts that samples show about a launch, in addition to their traces."""

    notes: Sequence[str] = ()  # limits of the prediction, for people
    wider: float = 0.0  # fraction of the time that these limits add to the band
    shared_by: int = 0  # number of workgroups that share the work of the only sample; 0 if they do not
    atomics: Sequence[GroupAtomics] = ()  # of all workgroups that ran, if they ran in dispatch order
    alike: Sequence[Streams] = ()  # workgroups that the only sample represents


def choose_groups(sampling: Sampling, saved: SavedMemory, places: int) -> tuple[list[Streams], LaunchFacts]:
    """Runs workgroups that represent all, a single one if all do the same. places: workgroups that the GPU holds.

    If all workgroups run in one round, the longest one decides, so workgroups at the edges of the grid are among the samples. In
    several rounds each kind of workgroup counts by its frequency, so samples are evenly spread.
    """
    name, groups, wholes, heavy = sampling.launch.info.title, sampling.launch.groups, list[Streams](), 1.0
    rounds, sizes, words = groups > places, list[int](), list[int]()
    few = groups < FEW_ROUNDS * sampling.launch.device.descriptor.num_cus
    edges = () if rounds else ((groups - 1) // 2, 0, min(1, groups - 1), groups - 1)
    for group in dict.fromkeys((*edges, *spread(groups, MOST_DIFFERENT))):
        if _suffices(sizes, words, heavy, groups, rounds):
            break
        one = _whole_group(sampling, group)
        if one is None or (not one.complete and group and not _spins(sampling, one)):
            why = "workgroups wait for those before them, which ran first: for how long is not in the time"
            samples, atomics = _in_order(sampling, saved)
            return samples, LaunchFacts([why], WAITED, atomics=atomics)
        if one.executed > max(sizes, default=0):
            heavy = _heavy(sampling, one)
        wholes.append(one)
        sizes.append(one.executed)
        words.append(one.words)
        if not one.complete:
            if _spins(sampling, one):
                raise LaunchError(
                    f"{name}: workgroups fetch their work by an atomic in memory, and a single one, which gets all of it, "
                    f"has not ended after {MOST_STEPS:,} instruction words of a wave: time a smaller problem"
                )
            return [one], LaunchFacts()
    error = _sampling_error(sizes, groups, few)
    if not rounds and _few_kinds(sizes):
        wholes += _at_borders(sampling, wholes)
    elif rounds and sum(sizes) * heavy < DIFFERENT_STEPS:
        wholes += _longer_ends(sampling, wholes)
    sizes = [one.executed for one in wholes]
    if _alike(sizes):
        # Workgroups at the edges of a problem may execute as much but request fewer lines, because a buffer's end cuts
        # them off. If they are few, the others represent them.
        asked = sorted(one.words for one in wholes)[len(wholes) // 2]
        if abs(float(np.mean(words)) / asked - 1) > max(NEAR, _sampling_error(words, groups) if rounds else 0.0):
            return wholes, LaunchFacts()
        near = [one for one in wholes if abs(one.words - asked) <= NEAR * asked]
        return near[:1], LaunchFacts(alike=near[1:ALIKE])
    if max(sizes) == sizes[0] > HUNGRY * max(sizes[1:]):
        saved.restore()
        again = _whole_group(sampling, wholes[-1].group)
        if again is not None and again.executed * HUNGRY > sizes[0]:
            why = "workgroups take their work from memory that they share, and the first one took all: equal parts are assumed"
            return [again], LaunchFacts([why], SHARED_WORK, min(groups, places))
    said = f"workgroups differ: {len(wholes):,} of {groups:,} were run, of {min(sizes) / max(sizes):.2g} to 1 of the longest"
    # In one round: how far the longest exceed the rest, unless there are few kinds.
    longer = 0.0 if rounds or _few_kinds(sizes) else 1 - float(np.quantile(sizes, 0.9)) / max(sizes)
    return wholes, LaunchFacts([said], max(longer, error))


def _suffices(sizes: Sequence[int], words: Sequence[int], heavy: float, groups: int, rounds: bool) -> bool:
    """True if there are enough samples. sizes: their records. words: those of their streams. heavy: host time of a record, in
    plain instructions. rounds: True if there are several rounds."""
    count, total = len(sizes), sum(sizes) * heavy
    if count < ALIKE:
        return count > 1 and total > LONG_STEPS
    if _alike(sizes):
        least = LINES_DIFFER if not _alike(words) and total < LONG_STEPS else ALIKE
        return count >= MORE_ALIKE or (count >= least and sum(sizes) > ALIKE_STEPS)
    if count >= MOST_DIFFERENT or total > DIFFERENT_STEPS:
        return True
    if count < MORE_ALIKE:
        return False
    return _sampling_error(sizes, groups) < NEAR if rounds else _few_kinds(sizes)


def _alike(sizes: Sequence[int]) -> bool:
    """True if the sizes differ by less than NEAR."""
    return min(sizes) > (1 - NEAR) * max(sizes)


def _few_kinds(sizes: Sequence[int]) -> bool:
    """True if there are at most FEW_KINDS sizes, each at least SEEN_KIND times: for example if some programs have one row more."""
    _, seen = np.unique(np.round(np.array(sizes) / (NEAR * max(sizes))), return_counts=True)
    return len(seen) <= FEW_KINDS and min(seen) >= SEEN_KIND


def _at_borders(sampling: Sampling, wholes: Sequence[Streams]) -> list[Streams]:
    """Returns the workgroups at the borders between kinds, found by bisection between samples; none if kinds alternate."""
    near = NEAR * max(one.executed for one in wholes)
    known = sorted(wholes, key=lambda one: one.group)
    pairs = [(low, high) for low, high in itertools.pairwise(known) if abs(high.executed - low.executed) > near]
    found: list[Streams] = []
    for low, high in pairs if len(pairs) <= FEW_BORDERS else ():
        while high.group - low.group > 1:
            one = _whole_group(sampling, (low.group + high.group) // 2)
            if one is None or not one.complete:
                return found
            found.append(one)
            low, high = (one, high) if abs(one.executed - low.executed) <= near else (low, one)
    return found


def _longer_ends(sampling: Sampling, wholes: Sequence[Streams]) -> list[Streams]:
    """Returns the launch's first and last workgroup if they are much longer than all samples, and those at their borders."""
    ends = [_whole_group(sampling, group) for group in (0, sampling.launch.groups - 1)]
    most = ENDS_LONGER * max(one.executed for one in wholes)
    longer = [one for one in ends if one is not None and one.complete and one.executed > most]
    return longer + _at_borders(sampling, [*wholes, *longer]) if longer else []


def _heavy(sampling: Sampling, one: Streams) -> float:
    """Returns the mean host time of this workgroup's records, in plain instructions. A word of a stream counts as one."""
    code, trace = sampling.path(one.streams[0])
    steps, computed = trace.steps, code.kind == Kind.MATRIX
    computed[list(demand_of_launch(sampling.launch).unneeded)] = False
    return 1 + (MATRIX_STEPS - 1) * float(np.mean(computed[steps])) + len(one.streams[0]) / len(steps)


def _sampling_error(sizes: Sequence[int], groups: int, few: bool = False) -> float:
    """Returns the relative error from workgroups that were not sampled: two standard errors of their mean.

    few: True if a CU has so few workgroups that they may be alike, because consecutive workgroups are.
    """
    unknown = 1 - len(sizes) / groups
    if unknown == 0:
        return 0.0
    deviation = float(np.std(sizes, ddof=1) / np.mean(sizes))
    alike = TOGETHER * deviation * unknown if few else 0.0
    return max(alike, 2 * deviation * math.sqrt(unknown / len(sizes)))


def _whole_group(sampling: Sampling, group: int) -> Streams | None:
    """Runs a workgroup, each wave for at most MOST_STEPS records. Returns None if it waits for others."""
    try:
        one = sampling.sample(group, PATIENCE, KEPT // sampling.launch.waves, MOST_STEPS)
    except Deadlock:
        return None
    return None if sampling.stopped and sampling.waited else one


def share(code: CodeColumns, trace: Trace, groups: int) -> float:
    """Returns the fraction of the traced workgroup's work that each of `groups` workgroups does if they share it.

    It is a whole number of the portions that the workgroup took. Each atomic except the last takes one.
    """
    taken = max(1, round(_atomics(code, trace) * trace.stretch) - 1)
    return math.ceil(taken / groups) / taken if taken > 1 else 1 / groups


def _spins(sampling: Sampling, one: Streams) -> bool:
    """True if a workgroup's first wave executes an atomic more than twice."""
    return _atomics(*sampling.path(one.streams[0])) > 2


def _atomics(code: CodeColumns, trace: Trace) -> int:
    """Returns how often the first wave executes its most frequent atomic."""
    numbers = trace.steps[: trace.starts[1]]
    return int(np.bincount(numbers[code.flags[numbers] & ATOMIC > 0], minlength=1).max())


def _in_order(sampling: Sampling, saved: SavedMemory) -> tuple[list[Streams], list[GroupAtomics]]:
    """Returns samples of a launch whose workgroups wait for earlier ones, and the atomics of all workgroups that ran.

    Runs workgroups from the first on, in dispatch order.

    Raises LaunchError if one does not end although all before it have ended.
    """
    saved.restore()
    name, groups = sampling.launch.info.title, sampling.launch.groups
    kept, atomics = list[Streams](), list[GroupAtomics]()
    executed, wanted = 0, {0, groups // 2, groups - 1}
    for group in range(groups):
        whole = _whole_group(sampling, group)
        if whole is None or not whole.complete:
            raise LaunchError(
                f"{name}: workgroup {group} waits for others and does not end, although all earlier ones have ended: it waits for "
                "workgroups that run at the same time, or forever; its time cannot be modelled"
            )
        atomics.append(atomics_of(*sampling.group_path(whole)))
        executed += whole.executed
        if executed > IN_ORDER_STEPS:
            return [*kept[-2:], whole], atomics
        if group in wanted or group & group - 1 == 0:
            kept.append(whole)
    return [one for one in kept if one.group in wanted], atomics
