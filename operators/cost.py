"""Seconds of one launch of a tiled kernel in closed form: the one cost by which tiles are derived, compared, ranked and
searched.

It is the model of `simgpu time` (`simgpu.timing`) without its events: the same constants (`hardware.rates`), the same clock,
the same rounds of one CU. A CU runs n workgroups, `resident` at a time. j of them that run together take

    fill + steps * max(j * units + bare/j, j * level ..., wait) + drain      clocks

    units   the busiest of matrix units, LDS, vector cache and VALU (fields `matrix` and `units`)
    level   a step's bytes, and its part of the results, over the CU's part of what L2, the Infinity Cache and HBM sustain
    wait    a step waits for its last load: the latency of memory and the clocks in which the step's loads leave the CU, and
            at least the time of one CU's misses. The latency grows with memory's load r by queue_ns/2 * r/(1 - r). A step whose
            loads depend on each other's room in LDS waits again for each (`again`), for L2 if it has the data (`near`)
    fill    kernel arguments, first loads, first LDS write and read
    drain   results, at half of L2's rate, and the last store's latency

Waves that use a unit that serves one wave at a time spend `apart` clocks a step outside it. N of them that need it for s clocks
each take T = apart + R,  R^2 + R*(apart - N*s) - s*apart = 0  (P. J. Schweitzer, 1979), and a step takes at least that.

C(n, a) is the time of a CU that runs n workgroups while `a` CUs are active. A launch of W workgroups on C CUs takes, with
n = floor(W/C) and r = W - n*C,

    max(C(n, C) + C(n+1, r) - C(n, r), C(n+1, W/(n+1)))    and at least the dispatch of W workgroups

Workgroups of different lengths are dispatched in `series`: the last from its longest to its shortest, the others in turn the other
way. They end almost together: C(n, C) + r/C * (C(n+1, C) - C(n, C)) for the mean length. The longest one of the last series begins
when W - W/series workgroups are dispatched and those that still run have 2/3 of the mean length to do (lengths from 0 to twice the
mean). If all workgroups begin at once, no CU takes work from another: the one with the most steps counts (`slowest`).

The dispatch of a CU's first workgroup and the fetch of cold code are added. The clock depends on the duty
(`hardware.rates.clocks`), in a launch of one round on that of the loops, which coincide. The clock and memory's load are found by
iteration. The launch's time is computed for each term of a step (`KernelCost.terms`), and the longest counts. The last r CUs may
have another longest term: latency in place of HBM. If a reduction is split, a second kernel adds its parts: `second_pass`. Fields
may be numbers or numpy arrays that broadcast: one call prices all tiles of a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np

from simgpu.hardware.rates.clocks import POWER_US, clock_falls, clock_line
from simgpu.hardware.rates.sustained import LDS_CLOCKS, STORE_BYTES, SustainedRates

_PASSES = 2  # iterations of the fixed point of clock and memory's load
_MOST_LOAD = 0.9  # memory's largest load in the queueing term: beyond it, bandwidth limits requests (`simgpu.timing.gpu`)
# Taken branches to code that is not in the instruction cache: 4 to 6 in emitted GEMMs, each an instruction fetch from L2.
_JUMPS = 4
_UNDER_WAY = 2 / 3  # of the mean length: what running workgroups of lengths from 0 to twice the mean have still to do
_WAVES_A_CU = 32  # waves of a CU in a second pass, which needs few registers
_WAVE_ELEMENTS = 256  # elements that a wave of a second pass adds: 64 work-items of four
TOGETHER = 8  # parts that a work-item of a second pass loads before it adds them, so that their latencies overlap
# Memory latencies of a wave of a second pass: for TOGETHER parts, and for arguments, addresses and the store. By the model of
# time, of emitted kernels for 2 to 32 parts on MI325X and MI355X.
_TOGETHER_LATENCIES, _WAVE_LATENCIES = 1.5, 2.2


@dataclass(frozen=True)
class KernelCost:
    """Cost of one launch. Clocks and bytes of a step are for one workgroup."""

    rates: SustainedRates
    workgroups: Any  # number of workgroups
    resident: Any  # workgroups of a CU at a time, by registers, LDS and wave slots
    steps: Any  # iterations of a workgroup's loop; the mean, if workgroups have different ones
    element: str = ""  # type of the matrix instructions, as `clocks.element` names it
    matrix: Any = 0.0  # clocks of the matrix units a step
    units: Any = 0.0  # clocks a step of the busiest other unit of the CU: LDS, vector cache, VALU
    bare: Any = 0.0  # clocks a step in which a lone workgroup has no instruction to issue: barrier, first LDS read
    burst: Any = 0.0  # clocks in which a step's loads pass the vector cache
    flight: Any = 0.0  # bytes of a workgroup's loads in flight
    asked: Any = 0.0  # bytes a step that loads request from L2, in whole cache lines
    repeated: Any = 0.0  # bytes of these in lines that the step before requested, so that L2 has them
    missed_bytes: Any = 0.0  # bytes of the launch's loads that miss L2
    hbm_bytes: Any = 0.0  # bytes of these that miss the Infinity Cache
    written_bytes: Any = 0.0  # bytes that the launch writes
    stored: Any = 0.0  # bytes that a workgroup stores at its end
    code_lines: Any = 0.0  # lines of 64 bytes of code that a workgroup executes
    longest: Any = 0.0  # iterations of the longest workgroups, if they differ
    slowest: Any = 0.0  # iterations of all workgroups of the CU that has most, if they differ and all begin at once; else 0
    series: Any = 1  # series of workgroups in the order of dispatch, the last from its longest to its shortest
    waves: int = 4  # waves of a workgroup
    once: Any = 0.0  # clocks of a workgroup outside its steps: loads to the ends of rows
    again: Any = 0.0  # waits of a step for loads, after the first
    near: Any = 0.0  # fraction of these loads that hit L2
    # Clocks of a step in which a wave uses no unit that serves one wave at a time, and clocks in which it does.
    alone: tuple[Any, Any] = (0.0, 0.0)
    # Clocks a step of VALU, and of LDS beyond a product's (`clocks.LDS_OF_PRODUCTS`): they lower the engine's clock.
    drawn: tuple[Any, Any] = (0.0, 0.0)

    def with_prefetch(self, ahead: int) -> KernelCost:
        """Returns the kernel with each `ahead` steps as one, so that their loads are waited for once."""
        if ahead == 1:
            return self
        names = ("matrix", "units", "bare", "burst", "flight", "asked", "repeated")
        trips = {name: -(-getattr(self, name) // ahead) for name in ("steps", "longest")}
        return replace(self, **trips, **{name: ahead * getattr(self, name) for name in names})

    def terms(self) -> dict[str, Any]:
        """Returns seconds by term, each with fill and drain: "CU", "loads", "L2", "Infinity Cache", "HBM".

        Other keys: "launch", the host's overhead; "total", the longest term plus "launch"; "MHz", the clock.
        """
        chip, row = self.rates.descriptor, self.rates.row
        cus, whole = chip.num_cus, largest(1, self.workgroups // chip.num_cus)
        active, rest = minimum(self.workgroups, cus), self.workgroups % cus
        idle, full = clock_line(chip, self.element)
        falls = [(idle - full, self.matrix), *zip(clock_falls(chip), self.drawn, strict=True)]
        dispatch = largest(1 / row.groups_per_clock, self.waves / row.waves_per_clock) / chip.xcds
        mhz, load = chip.clock_mhz * 1.0, 0.0
        one_round = (self.workgroups <= cus * self.resident) & (self.matrix > 0)
        for _ in range(_PASSES):
            at = _ClockedLaunch(self, mhz, load)
            busiest = reduce(largest, at.cycles(whole, active).values())
            alone = busiest + dispatch * active
            loop = minimum(alone, largest(busiest - at.outside(whole, active), POWER_US * mhz))
            steps = whole * self.steps / choose(one_round, loop, alone)
            moved = (self.hbm_bytes + self.written_bytes) * whole * active / self.workgroups
            load = (load + minimum(_MOST_LOAD, moved * 1e6 * mhz / (alone * self.rates.hbm))) / 2
            mhz = idle - sum(fall * minimum(1.0, steps * clocks) for fall, clocks in falls) * active / cus
        at = _ClockedLaunch(self, mhz, load)
        found = at.cycles(whole, active)
        more = (self.workgroups > cus) & (rest > 0)
        if np.any(more):
            one_more, without = (reduce(largest, at.cycles(count, rest).values()) for count in (whole + 1, whole))
            spread = at.cycles(whole + 1, self.workgroups / (whole + 1))
            for name, first in found.items():
                found[name] = choose(more, largest(first + largest(0.0, one_more - without), spread[name]), first)
        if np.any(self.longest > self.steps):
            found = at.uneven_cycles(found, whole, active)
        found = {
            name: largest(first + dispatch * active, self.workgroups * dispatch) / (1e6 * mhz) for name, first in found.items()
        }
        total = self.rates.launch + reduce(largest, found.values())
        return {**found, "launch": self.rates.launch, "total": total, "MHz": mhz}


_NUMBERS = tuple(each.name for each in fields(KernelCost) if each.name not in ("rates", "element", "waves"))


class _ClockedLaunch:
    """Times of a launch at a given clock and load of memory."""

    def __init__(self, cost: KernelCost, mhz: Any, load: Any) -> None:
        row, rates, steps = cost.rates.row, cost.rates, cost.workgroups * cost.steps
        self.cost, hertz = cost, 1e6 * mhz
        queue = row.queueing_ns(load)
        self.memory = (row.memory_ns + queue) * 1e-3 * mhz
        draw = 1e3 / mhz / (1 / row.cu_memory + queue / row.in_flight)  # bytes a clock of one CU's misses
        self.l2 = row.l2_share * rates.descriptor.l2_bytes_per_clock
        later = cost.near * row.l2_latency + (1 - cost.near) * self.memory
        self.again = cost.again * (later + row.barrier + row.lds_latency)
        self.last = self.memory + cost.burst + row.barrier + row.lds_latency + self.again
        self.drawn = largest((cost.asked - cost.repeated) / draw, cost.flight / row.in_flight * self.memory)
        self.busy = largest(cost.matrix, cost.units)
        self.start = row.start + cost.code_lines * row.code_stream + _JUMPS * row.l2_latency
        # Clocks of a step per active CU.
        self.levels = {
            "L2": cost.asked / self.l2,
            "Infinity Cache": (cost.missed_bytes + cost.written_bytes) / steps * hertz / rates.mall,
            "HBM": (cost.hbm_bytes + cost.written_bytes) / steps * hertz / rates.hbm,
        }

    def cycles(self, count: Any, active: Any, steps: Any = None) -> dict[str, Any]:
        """Returns clocks, by term, of a CU that runs `count` workgroups while `active` CUs do the same: C(count, active).

        steps: of a workgroup; None for the mean.
        """
        cost = self.cost
        full, rest = count // cost.resident, count % cost.resident
        steps = cost.steps if steps is None else steps
        found = self._concurrent_clocks(cost.resident, active, steps)
        last = self._concurrent_clocks(largest(1, rest), active, steps) if np.any(rest > 0) else found
        return {name: self.start + full * each + choose(rest > 0, last[name], 0.0) for name, each in found.items()}

    def outside(self, j: Any, active: Any) -> Any:
        """Returns the clocks of j workgroups that run together before and after their loops."""
        return self.start + self._fill + self._drain(j, active)

    def uneven_cycles(self, even: dict[str, Any], whole: Any, active: Any) -> dict[str, Any]:
        """Returns `even`, the clocks by term of a launch of W even workgroups on C CUs, with those of uneven launches replaced.

        whole: W/C without remainder, at least 1. active: the least of W and C.
        """
        cost, cus = self.cost, self.cost.rates.descriptor.num_cus
        last_round, longest = largest(0.0, cost.workgroups / cus - whole), largest(cost.longest, cost.steps)
        full, more = self.cycles(whole, active), self.cycles(whole + 1, active)
        alone = self.cycles(1, active * cost.steps / longest, longest)
        earlier = cost.workgroups * (1 - 1 / cost.series) / cus
        begin = largest(0.0, earlier - _UNDER_WAY * cost.resident) / whole
        together = {name: full[name] + last_round * (more[name] - full[name]) for name in even}
        if np.any(cost.slowest > 0):
            most = -(-cost.workgroups // cus)
            slowest = largest(cost.slowest, most * cost.steps)
            at_once = self.cycles(most, cost.workgroups * cost.steps / slowest, slowest / most)
            together = {name: choose(cost.slowest > 0, at_once[name], clocks) for name, clocks in together.items()}
        return {
            name: choose(longest > cost.steps, largest(together[name], begin * full[name] + alone[name]), clocks)
            for name, clocks in even.items()
        }

    def in_turn(self, clocks: tuple[Any, Any], j: Any) -> Any:
        """Returns the clocks of a step of j workgroups whose waves share a unit that serves one wave at a time.

        clocks: of a wave, (outside the unit, in the unit). Schweitzer's approximation of mean value analysis: the number of waves
        queued at the unit is proportional to the time that a wave spends there.
        """
        apart, served = clocks
        more = j * self.cost.waves * served - apart
        return apart + (more + (more * more + 4 * apart * served) ** 0.5) / 2

    def _concurrent_clocks(self, j: Any, active: Any, steps: Any) -> dict[str, Any]:
        """Returns clocks, by term, of j workgroups of `steps` steps that run together."""
        cost, fill, drain = self.cost, self._fill, self._drain(j, active)
        step = largest(j * self.busy, self.in_turn(cost.alone, j)) + cost.bare / j
        fill, waited = fill + cost.once, largest(self.last, j * self.drawn)  # the first step's first loads are part of the fill
        return {
            "CU": fill + steps * step + drain,
            "loads": fill + self._late(j) + (steps - 1) * waited + largest(step, self.again) + drain,
            **{name: fill + steps * j * each * active + drain for name, each in self.levels.items()},
        }

    @property
    def _fill(self) -> Any:
        row = self.cost.rates.row
        return row.l2_latency + self.memory + self.cost.burst + 2 * LDS_CLOCKS + row.barrier

    def _drain(self, j: Any, active: Any) -> Any:
        rate = minimum(STORE_BYTES, self.l2 / 2 / largest(1, active))
        return j * self.cost.stored / rate + self.cost.rates.row.l2_latency

    def _late(self, j: Any) -> Any:
        """Returns the clocks by which the first loads of j workgroups, if a step waits more than once, outlast the fill."""
        return choose(self.cost.again > 0, largest(0.0, j * self.drawn - self.memory - self.cost.burst), 0.0)


def stack_costs(kernels: Sequence[KernelCost]) -> KernelCost:
    """Concatenates launches of the same board, matrix type and number of waves into one launch with array fields."""
    first = kernels[0]
    sizes = [np.size(kernel.workgroups) for kernel in kernels]
    total, ends = sum(sizes), np.cumsum(sizes)

    def stack_column(values: list[Any]) -> np.ndarray:
        column = np.empty(total)
        for value, size, end in zip(values, sizes, ends, strict=True):
            column[end - size : end] = value
        return column

    made: dict[str, Any] = {}
    for name in _NUMBERS:
        values = [getattr(kernel, name) for kernel in kernels]
        pairs = isinstance(values[0], tuple)
        made[name] = tuple(stack_column([value[i] for value in values]) for i in (0, 1)) if pairs else stack_column(values)
    return KernelCost(first.rates, element=first.element, waves=first.waves, **made)


def second_pass(rates: SustainedRates, parts: Any, elements: Any, partial: float, result: float) -> Any:
    """Returns seconds of the kernel that adds `parts` partial results; 0 for one part.

    elements: number of results. partial, result: bytes of one part, and of the results. A work-item loads TOGETHER parts, then
    adds them. Lines of other XCDs move while the kernel is prepared (`Pipelines.profiled_us`), and after that.
    """
    d = rates.descriptor
    waves = -(-elements // _WAVE_ELEMENTS)
    rounds = -(-waves // (d.num_cus * _WAVES_A_CU))
    chain = rounds * (_TOGETHER_LATENCIES * -(-parts // TOGETHER) + _WAVE_LATENCIES) * rates.memory_latency
    drawn = min(d.num_cus, waves) * rates.memory_of_cu
    spilt = largest(0.0, parts * partial - d.mall_bytes)
    moved = largest((parts * partial + result) / min(rates.mall, drawn), (spilt + result) / min(rates.hbm, drawn))
    crossing = _crossing_seconds(rates, parts * partial) - rates.row.profiled_us * 1e-6
    return choose(parts > 1, rates.launch + largest(largest(chain, crossing), moved), 0.0)


def _crossing_seconds(rates: SustainedRates, nbytes: Any) -> Any:
    """Returns seconds for which lines of `nbytes`, evenly spread over XCDs, move to where they are loaded."""
    return rates.row.loads_move * rates.row.line_move_seconds * nbytes * (1 - 1 / rates.descriptor.xcds)


def seconds_a_part(rates: SustainedRates, partial: float) -> float:
    """Returns seconds that each part adds to a second pass. partial: bytes of one part of all results."""
    latency = _TOGETHER_LATENCIES / TOGETHER * rates.memory_latency
    return max(latency, partial / rates.hbm, float(_crossing_seconds(rates, partial)))


def parts_of(steps: Any, split: Any) -> tuple[Any, Any]:
    """Returns (blocks per tile, steps per block) for `steps` split over at most `split` blocks; the last block may have fewer."""
    each = -(-steps // split)
    return -(-steps // each), each


def largest(one: Any, other: Any) -> Any:
    """Returns the larger of two numbers; elementwise if one is an array."""
    return np.maximum(one, other) if isinstance(one, np.ndarray) or isinstance(other, np.ndarray) else max(one, other)


def minimum(one: Any, other: Any) -> Any:
    """Returns the smaller of two numbers; elementwise if one is an array."""
    return np.minimum(one, other) if isinstance(one, np.ndarray) or isinstance(other, np.ndarray) else min(one, other)


def choose(condition: Any, one: Any, other: Any) -> Any:
    """Returns `one` if the condition holds, else `other`; elementwise if the condition is an array."""
    return np.where(condition, one, other) if isinstance(condition, np.ndarray) else (one if condition else other)
