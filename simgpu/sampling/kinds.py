"""Which workgroups stand for all of a launch: one where all do the same, else samples that lie evenly, as many as tell the mean."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.engine.allocations import Saved
from simgpu.hardware.errors import Deadlock, LaunchError
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.sampling.workgroups import Sampling, Streams
from simgpu.timing.code import ATOMIC, CodeColumns
from simgpu.timing.dispatch import spread
from simgpu.timing.trace import Trace

KEPT = 4_000_000  # records of all waves of a workgroup whose traces are kept; what they go on for is counted
PATIENCE = 300_000  # records of a wave after which it is looked at whether it waits for others
MOST_STEPS = 1 << 28  # records that a wave of a whole sample steps over at most
IN_ORDER_STEPS = 32_000_000  # of all waves of a launch of which some wait for others
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
HUNGRY = 4  # times the work of a workgroup that runs later, by which the one that runs first may have taken it away
WAITED = 0.25  # wider band where workgroups wait for each other
SHARED_WORK = 0.25  # wider band where workgroups take their work from each other


@dataclass(frozen=True)
class LaunchFacts:
    """What samples say of a launch beside their traces. shared_by: workgroups that do the one sample's work together."""

    notes: Sequence[str] = ()
    wider: float = 0.0
    shared_by: int = 0


def chosen(sampling: Sampling, saved: Saved, places: int) -> tuple[list[Streams], LaunchFacts]:
    """Workgroups that stand for all, one alone where all do the same; places: of the GPU, for workgroups.

    Those of one round run at once, and the longest decides, so edges of the grid are among them. Of several rounds each kind of
    workgroup counts as often as there are such: samples lie evenly.
    """
    name, groups, wholes, heavy = sampling.launch.info.title, sampling.launch.groups, list[Streams](), 1.0
    rounds, sizes = groups > places, list[int]()
    few = groups < FEW_ROUNDS * sampling.launch.device.descriptor.num_cus
    edges = () if rounds else ((groups - 1) // 2, 0, min(1, groups - 1), groups - 1)
    for group in dict.fromkeys((*edges, *spread(groups, MOST_DIFFERENT))):
        if _enough(sizes, heavy, groups, rounds):
            break
        one = _whole(sampling, group)
        if one is None or (not one.complete and group and not _taken(sampling, one)):
            why = "workgroups wait for those before them, which ran first: for how long is not in the time"
            return _in_order(sampling, saved), LaunchFacts([why], WAITED)
        if one.executed > max(sizes, default=0):
            heavy = _heavy(sampling, one)
        wholes.append(one)
        sizes.append(one.executed)
        if not one.complete:
            if _taken(sampling, one):
                raise LaunchError(
                    f"{name}: workgroups take their work by an atomic in memory, and one alone, which gets all of it, "
                    f"has not ended after {MOST_STEPS:,} instruction words of a wave: no time is told; time a smaller problem"
                )
            return [one], LaunchFacts()
    if not rounds and _few_kinds(sizes):
        wholes += _at_borders(sampling, wholes)
        sizes = [one.executed for one in wholes]
    if min(sizes) > (1 - NEAR) * max(sizes):
        # Those at the edges of a problem may execute as much, and ask for fewer lines, which a buffer's end cuts off.
        words = sorted(one.words for one in wholes)
        asked = words[len(words) // 2 if rounds else -1]
        return [next(one for one in wholes if abs(one.words - asked) <= NEAR * asked)], LaunchFacts()
    if max(sizes) == sizes[0] > HUNGRY * max(sizes[1:]):
        saved.restore()
        again = _whole(sampling, wholes[-1].group)
        if again is not None and again.executed * HUNGRY > sizes[0]:
            why = "workgroups take their work from memory that they share, the first one alone all: each is taken to have its part"
            return [again], LaunchFacts([why], SHARED_WORK, min(groups, places))
    said = f"workgroups differ: {len(wholes):,} of {groups:,} were run, of {min(sizes) / max(sizes):.2g} to 1 of the longest"
    # Of one round, how far the longest stand out, unless kinds are few.
    longer = 0.0 if rounds or _few_kinds(sizes) else 1 - float(np.quantile(sizes, 0.9)) / max(sizes)
    return wholes, LaunchFacts([said], max(longer, _sampling_error(sizes, groups, few)))


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
    return _sampling_error(sizes, groups) < NEAR if rounds else _few_kinds(sizes)


def _few_kinds(sizes: Sequence[int]) -> bool:
    """Whether samples are of few sizes, each of which came often: as where some programs have a row more than others."""
    _, seen = np.unique(np.round(np.array(sizes) / (NEAR * max(sizes))), return_counts=True)
    return len(seen) <= FEW_KINDS and min(seen) >= SEEN_KIND


def _at_borders(sampling: Sampling, wholes: Sequence[Streams]) -> list[Streams]:
    """The workgroups where one kind ends and another begins, found by halves between samples; none where they alternate."""
    near = NEAR * max(one.executed for one in wholes)
    known = sorted(wholes, key=lambda one: one.group)
    pairs = [(low, high) for low, high in itertools.pairwise(known) if abs(high.executed - low.executed) > near]
    found: list[Streams] = []
    for low, high in pairs if len(pairs) <= FEW_BORDERS else ():
        while high.group - low.group > 1:
            one = _whole(sampling, (low.group + high.group) // 2)
            if one is None or not one.complete:
                return found
            found.append(one)
            low, high = (one, high) if abs(one.executed - low.executed) <= near else (low, one)
    return found


def _heavy(sampling: Sampling, one: Streams) -> float:
    """Plain instructions that one of this workgroup takes as long as to run, on average; so does a word of a stream."""
    code, trace = sampling.path(one.streams[0])
    steps = trace.steps
    return 1 + (MATRIX_STEPS - 1) * float(np.mean(code.kind[steps] == Kind.MATRIX)) + len(one.streams[0]) / len(steps)


def _sampling_error(sizes: Sequence[int], groups: int, few: bool = False) -> float:
    """Relative error that is likely as not all workgroups are known: two standard errors of their mean; few: whether a CU has so
    few workgroups that, by their order, they may be alike."""
    unknown = 1 - len(sizes) / groups
    if unknown == 0:
        return 0.0
    deviation = float(np.std(sizes, ddof=1) / np.mean(sizes))
    alike = TOGETHER * deviation * unknown if few else 0.0
    return max(alike, 2 * deviation * math.sqrt(unknown / len(sizes)))


def _whole(sampling: Sampling, group: int) -> Streams | None:
    """A workgroup as far as MOST_STEPS go; None for one that waits for others."""
    try:
        one = sampling.sample(group, PATIENCE, KEPT // sampling.launch.waves, MOST_STEPS)
    except Deadlock:
        return None
    return None if sampling.stopped and sampling.waited else one


def share(code: CodeColumns, trace: Trace, groups: int) -> float:
    """The part of a workgroup's work that one of `groups` does: a whole number of what it took, by its atomics but the last."""
    taken = max(1, round(_atomics(code, trace) * trace.stretch) - 1)
    return math.ceil(taken / groups) / taken if taken > 1 else 1 / groups


def _taken(sampling: Sampling, one: Streams) -> bool:
    """Whether a workgroup executes an atomic of its first wave again and again."""
    return _atomics(*sampling.path(one.streams[0])) > 2


def _atomics(code: CodeColumns, trace: Trace) -> int:
    """How often the first wave executes the atomic that it executes most."""
    numbers = trace.steps[: trace.starts[1]]
    return int(np.bincount(numbers[code.flags[numbers] & ATOMIC > 0], minlength=1).max())


def _in_order(sampling: Sampling, saved: Saved) -> list[Streams]:
    """Samples where workgroups wait for those before them: the first ones run once, in the order of dispatch. LaunchError where one
    never ends all the same."""
    saved.restore()
    name, groups = sampling.launch.info.title, sampling.launch.groups
    kept: list[Streams] = []
    executed, wanted = 0, {0, groups // 2, groups - 1}
    for group in range(groups):
        whole = _whole(sampling, group)
        if whole is None or not whole.complete:
            raise LaunchError(
                f"{name}: workgroup {group} waits for others and does not end, though all before it have: it waits for "
                "some that run beside it, or for ever; no time is told"
            )
        executed += whole.executed
        if executed > IN_ORDER_STEPS:
            return [*kept[-2:], whole]
        if group in wanted or group & group - 1 == 0:  # a power of two
            kept.append(whole)
    return [one for one in kept if one.group in wanted]
