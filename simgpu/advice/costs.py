"""Cost of each instruction of a timed launch, joined by source line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.issue import Kind, Unit
from simgpu.timing.lines import TimedLine, lines
from simgpu.timing.native.state import ATOMIC, STORE
from simgpu.timing.native.streams import CLOCKS, COUNT, LEAST_CLOCKS, LEAST_LINES, UNIFORM
from simgpu.timing.predict import Prediction

Place = Callable[[int], str]  # returns the `file:line` of a code offset, "" if unknown


@dataclass(frozen=True)
class Cost:
    """An instruction of the modelled CU, with means of its accesses in the sampled workgroups."""

    line: TimedLine
    inst: Instruction
    unit: Unit
    kind: Kind
    clocks: int  # that it occupies its unit
    store: bool
    atomic: bool
    accesses: int = 0  # to LDS or memory, in the samples
    taken: float = 0.0  # clocks of LDS banks, or of address coalescing, an access
    least: float = 0.0  # the same without conflicts, or with consecutive addresses
    touched: float = 0.0  # 64-byte lines an access
    needed: float = 0.0  # the same with consecutive addresses
    uniform: float = 0.0  # fraction of accesses in which all lanes want one address

    @property
    def number(self) -> int:
        """See `simgpu.timing.code.CodeColumns`."""
        return self.line.number

    @property
    def busy(self) -> int:
        """Clocks that all executions occupy the unit."""
        return self.clocks * self.line.hits

    @property
    def lost(self) -> float:
        """Clocks that all executions lose to LDS bank conflicts."""
        return (self.taken - self.least) * self.line.hits if self.kind is Kind.LDS else 0.0


@dataclass(frozen=True, eq=False)
class LineCost:
    """Instructions of a source line; of a single instruction if its line is unknown."""

    place: str  # `file:line`; without source lines, the instruction's offset and text
    costs: tuple[Cost, ...]
    known: bool = True  # False without source lines

    @cached_property
    def numbers(self) -> frozenset[int]:
        """Numbers of its instructions."""
        return frozenset(cost.number for cost in self.costs)

    @cached_property
    def stall(self) -> int:
        """Clocks in which waves stall here, of all waves of the modelled CU."""
        return sum(cost.line.stall + cost.line.idle for cost in self.costs)

    @cached_property
    def latency(self) -> int:
        """Clocks that waves spend here."""
        return sum(cost.line.latency for cost in self.costs)

    @cached_property
    def hits(self) -> int:
        """Wave-instructions."""
        return sum(cost.line.hits for cost in self.costs)

    @cached_property
    def reasons(self) -> dict[str, int]:
        """Stalled clocks by reason, most first."""
        found: dict[str, int] = {}
        for cost in self.costs:
            for reason, clocks in cost.line.reasons.items():
                found[reason] = found.get(reason, 0) + clocks
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    @cached_property
    def waits(self) -> dict[int, int]:
        """Clocks that it waits for each load, by the load's offset, most first."""
        found: dict[int, int] = {}
        for cost in self.costs:
            for wait in cost.line.waits:
                found[wait.offset] = found.get(wait.offset, 0) + wait.clocks
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def line_costs(prediction: Prediction, place: Place) -> list[LineCost]:
    """Returns the executed source lines, in the order of the code. An instruction of no line counts for the line before it.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> timed = run.time()
    >>> sum(line.hits for line in line_costs(timed, lambda offset: "k.s:1")) == int(timed.result.hits.sum())
    True
    """
    means = _means(prediction)
    lined: dict[tuple[str, bool], list[Cost]] = {}
    known = ""
    for line in lines(prediction):
        cost = _cost(prediction, line, means)
        known = place(line.offset) or known
        lined.setdefault((known or f"{line.at} {line.text}", bool(known)), []).append(cost)
    return [LineCost(name, tuple(costs), sourced) for (name, sourced), costs in lined.items()]


def _means(prediction: Prediction) -> np.ndarray:
    """Returns float64 (n, 6) by number: accesses, then means of an access: clocks, least clocks, lines, least lines, uniform."""
    code = prediction.code
    sums = np.zeros((len(code.unit), 6))
    for trace in prediction.sampled.whole:
        numbers = trace.access_numbers(code)
        sums[:, 0] += np.bincount(numbers, minlength=len(sums))
        for at, column in enumerate((CLOCKS, LEAST_CLOCKS, COUNT, LEAST_LINES, UNIFORM), start=1):
            sums[:, at] += np.bincount(numbers, trace.accesses[:, column], len(sums))
    sums[:, 1:] /= np.maximum(1, sums[:, :1])
    return sums


def _cost(prediction: Prediction, line: TimedLine, means: np.ndarray) -> Cost:
    code, number = prediction.code, line.number
    accesses, *mean = means[number].tolist()
    flags = int(code.flags[number])
    return Cost(
        line, prediction.sampled.instructions[number], Unit(int(code.unit[number])), Kind(int(code.kind[number])),
        int(code.clocks[number]), bool(flags & STORE), bool(flags & ATOMIC), int(accesses), *mean,
    )  # fmt: skip


def by_number(found: Sequence[LineCost]) -> dict[int, tuple[LineCost, Cost]]:
    """Returns each instruction with its line, by number, in the order of the code."""
    return dict(sorted((cost.number, (line, cost)) for line in found for cost in line.costs))
