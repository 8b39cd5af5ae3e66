"""Causes for which lines access LDS and memory slowly, each with what the model leaves out to answer for the time without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import chain
from operator import or_

import numpy as np

from simgpu.advice.chains import chained_loads
from simgpu.advice.costs import Cost, LineCost, by_number
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import Prediction
from simgpu.timing.without import NOTHING, Without

LEAST_SHARE = 0.01  # fraction of all waves' clocks from which a cause is examined
WASTE = 1.2  # ratio of clocks, or of lines, to the fewest from which an access wastes
UNIFORM = 0.99  # fraction of accesses to one address from which a load is uniform
PART = 0.05  # fraction of a line's waiting from which a load is one of those that it waits for
LOOP = 1.5  # executions a wave from which a load is in a loop


@dataclass(frozen=True)
class Cause:
    """Why a launch takes longer, and how to ask the model for its time without that."""

    kind: str  # see docs/reference/advice.md
    place: str  # the source line, see `LineCost.place`; "" for the whole launch
    why: str  # what happens there
    change: str  # what to do about it
    without: Without = NOTHING
    beyond: Without = NOTHING  # other causes on the same instructions: this one is what remains without them
    mechanisms: Mechanisms = field(default_factory=Mechanisms)
    bound: bool = False  # True if a change can come near the time without it, but not reach it


@dataclass(frozen=True)
class Scene:
    """A timed launch and its costs."""

    prediction: Prediction
    lines: Sequence[LineCost]
    unneeded_barriers: Callable[[], frozenset[int]] = frozenset  # finds offsets of barriers that order nothing

    @property
    def clocks(self) -> int:
        """Clocks that all waves spend."""
        return max(1, sum(line.latency for line in self.lines))

    @property
    def waves(self) -> int:
        """Waves of the modelled CU."""
        return len(self.prediction.result.ends) * self.prediction.sampled.used.waves

    def matters(self, clocks: float) -> bool:
        """True if these are enough of all waves' clocks."""
        return clocks >= LEAST_SHARE * self.clocks

    @cached_property
    def _places(self) -> dict[int, str]:
        return {cost.number: line.place for line in self.lines if line.known for cost in line.costs}

    def name(self, cost: Cost) -> str:
        """Returns the source line of an instruction, or its address."""
        return self._places.get(cost.number, cost.line.at)


def conflicts(scene: Scene) -> Iterator[Cause]:
    """Yields the LDS accesses with bank conflicts, at the line that loses most: another layout changes all of them."""
    lost = {line: [c for c in line.costs if c.lost and c.taken > WASTE * c.least] for line in scene.lines}
    found = sorted((line for line in scene.lines if lost[line]), key=lambda line: -sum(cost.lost for cost in lost[line]))
    if not found:
        return
    guilty = [cost for line in found for cost in lost[line]]
    taken, least = (sum(getattr(cost, name) * cost.line.hits for cost in guilty) for name in ("taken", "least"))
    hits = sum(cost.line.hits for cost in guilty)
    why = f"{taken / hits:.3g} clocks of LDS an access; without bank conflicts {least / hits:.3g}"
    if len(found) > 1:
        why += f"; also at {', '.join(scene.name(lost[line][0]).rpartition('/')[2] for line in found[1:4])}"
    change = "pad or swizzle the array: `simgpu lds` finds the least"
    yield Cause("bank-conflict", found[0].place, why, change, Without(smooth=_numbers(guilty)))


def scattered_accesses(scene: Scene) -> Iterator[Cause]:
    """Yields lines whose lanes access more cache lines of memory than they need."""
    for line in scene.lines:
        guilty = [cost for cost in line.costs if cost.kind is Kind.VMEM and not cost.atomic and _wastes(cost)]
        if not guilty:
            continue
        hits = sum(cost.line.hits for cost in guilty)
        touched, needed = (sum(getattr(cost, name) * cost.line.hits for cost in guilty) / hits for name in ("touched", "needed"))
        taken, least = (sum(getattr(cost, name) * cost.line.hits for cost in guilty) / hits for name in ("taken", "least"))
        what = "stores to" if all(cost.store for cost in guilty) else "loads from"
        why = f"{what} {touched:.3g} lines of 64 bytes an access; consecutive lanes need {needed:.3g}"
        if touched <= WASTE * needed:
            why = f"{taken:.3g} clocks of address coalescing an access; consecutive lanes need {least:.3g}"
        change = "let consecutive lanes access consecutive addresses"
        yield Cause("uncoalesced", line.place, why, change, Without(smooth=_numbers(guilty)))


def _wastes(cost: Cost) -> bool:
    return cost.accesses > 0 and (cost.touched > WASTE * cost.needed or cost.taken > 2 * WASTE * cost.least)


def uniform_loads(scene: Scene) -> Iterator[Cause]:
    """Yields lines whose vector loads want one address for all lanes."""
    for line in scene.lines:
        guilty = [c for c in line.costs if c.kind is Kind.VMEM and not c.store and not c.atomic and c.uniform > UNIFORM]
        if guilty:
            yield Cause(
                "uniform-load", line.place, "all lanes load one address through the vector cache",
                "load it once a wave: a uniform index, __restrict__ const", Without(scalar=_numbers(guilty)),
            )


def atomics(scene: Scene) -> Iterator[Cause]:
    """Yields lines with atomics, together with the reduction over a wave's lanes that compilers put before them."""
    for line in scene.lines:
        guilty = [cost for cost in line.costs if cost.atomic or (cost.kind is Kind.LDS and _is_atomic(cost))]
        if not guilty:
            continue
        times = sum(cost.line.hits for cost in guilty) / max(1, scene.waves)
        where = "LDS" if all(cost.kind is Kind.LDS for cost in guilty) else "memory"
        one = where == "memory" and _on_one_line(scene, _numbers(guilty))
        around = [cost for cost in line.costs if cost.kind in (Kind.PLAIN, Kind.BRANCH)]
        yield Cause(
            "atomic", line.place, f"{times:.3g} atomics on {where} a wave"
            + (", of all waves on one cache line: how long they wait for each other is uncertain" if one else ""),
            "add up in registers or LDS first; one atomic at the end", Without(removed=_numbers([*guilty, *around])),
            bound=times < LOOP,
        )  # fmt: skip


def _on_one_line(scene: Scene, numbers: frozenset[int]) -> bool:
    """True if all sampled workgroups access only one cache line by these instructions."""
    code, touched = scene.prediction.code, set[int]()
    for trace in scene.prediction.sampled.whole:
        owners = trace.access_numbers(code)
        for _, first, count, *_ in trace.accesses[np.isin(owners, list(numbers))].tolist():
            touched.update(trace.lines[first : first + count].tolist())
            if len(touched) > 1:
                return False
    return bool(touched)


def _is_atomic(cost: Cost) -> bool:
    memory = cost.inst.spec.memory
    return memory is not None and memory.op == "atomic"


NAMES = {Kind.VMEM: "memory", Kind.LDS: "LDS", Kind.SMEM: "scalar memory"}


def latencies(scene: Scene) -> Iterator[Cause]:
    """Yields lines that wait for loads.

    A load in a loop could be issued a pass earlier, unless its address needs the result of the pass before. For others the bound
    is a load that takes no time.
    """
    costs, batches = by_number(scene.lines), _batches(scene)
    of_line = {line.place: _awaited_accesses(scene, line, costs) for line in scene.lines}
    chained = _waits_in_chain(scene, {cost.number for found in of_line.values() for cost in found}, batches)
    special = [cause.without for cause in chain(*(search(scene) for search in (conflicts, scattered_accesses, uniform_loads)))]
    found: set[frozenset[int]] = set()
    for line in sorted(scene.lines, key=lambda line: -line.stall):
        awaited = of_line[line.place]
        if not awaited or not scene.matters(line.reasons.get("WAITCNT", 0)):
            continue
        first = awaited[0]
        loads: frozenset[int] = frozenset().union(*(batches.get(cost.number, {cost.number}) for cost in awaited))
        if loads in found:  # an earlier line waits for the same ones
            continue
        found.add(loads)
        waits = line.reasons["WAITCNT"] / max(1, sum(c.line.hits for c in line.costs if c.kind is Kind.WAIT))
        places = ", ".join(dict.fromkeys(scene.name(cost).rpartition("/")[2] for cost in awaited[:3]))
        verb = "its store" if first.store else "its load" if scene.name(first) == line.place else "the load"
        why = f"waits {waits:,.0f} clocks for {NAMES[first.kind]}: {verb} at {places}"
        cause = Cause("latency", line.place, why, "issue it earlier; let a wave do more in the meantime", bound=True)
        if first.number in chained:
            why = f"{why}, whose address comes from the load before"
            cause = replace(cause, kind="dependent-loads", why=why, change="follow several chains at once, or run more waves")
        elif first.line.hits > LOOP * scene.waves and not first.store:
            cause = replace(cause, change="load for the next pass before computing this one", bound=False)
        beyond = reduce(or_, (each for each in special if each.numbers & loads), NOTHING)
        yield replace(cause, without=Without(instant=loads) if cause.bound else Without(ahead=loads), beyond=beyond)


def _awaited_accesses(scene: Scene, line: LineCost, costs: Mapping[int, tuple[LineCost, Cost]]) -> list[Cost]:
    """Returns the loads and stores for which a line waits, longest first."""
    entry, whole = scene.prediction.sampled.entry, sum(line.waits.values())
    found = [costs[entry + offset // 4][1] for offset, clocks in line.waits.items() if clocks >= PART * whole]
    return [cost for cost in found if cost.kind in NAMES]


def _batches(scene: Scene) -> dict[int, frozenset[int]]:
    """Returns for each load the loads of its kind that are issued with it: no wait or jump is between them."""
    made: dict[int, frozenset[int]] = {}
    open_batches: dict[Kind, list[int]] = {kind: [] for kind in NAMES}

    def close() -> None:
        for held in open_batches.values():
            made.update(dict.fromkeys(held, frozenset(held)))
            held.clear()

    for number, (_, cost) in by_number(scene.lines).items():
        if cost.kind in NAMES:
            open_batches[cost.kind].append(number)
        elif cost.kind in (Kind.WAIT, Kind.BRANCH, Kind.BARRIER):
            close()
    close()
    return made


def _waits_in_chain(scene: Scene, loads: set[int], batches: Mapping[int, frozenset[int]]) -> frozenset[int]:
    trace = max(scene.prediction.sampled.whole, key=len)
    longest = int(np.argmax(np.diff(trace.starts)))
    steps = trace.steps[trace.starts[longest] : trace.starts[longest + 1]]
    return chained_loads(sorted(loads), steps, scene.prediction.sampled.instructions, batches)


def _numbers(costs: Sequence[Cost]) -> frozenset[int]:
    return frozenset(cost.number for cost in costs)
