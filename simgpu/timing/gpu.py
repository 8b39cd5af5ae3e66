"""Models the GPU by one of its CUs, which has its part of L2, Infinity Cache and memory, in rounds of workgroups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.rates.sustained import sustained_rates
from simgpu.hardware.timing_rules.issue import SLOT
from simgpu.timing import cu
from simgpu.timing.caches import Shares
from simgpu.timing.code import CodeColumns
from simgpu.timing.dispatch import DispatchQueue, Sharing
from simgpu.timing.native import state
from simgpu.timing.trace import LINE_BYTES

PASSES = 6  # most steps of the fixed point of clock and load
STEADY_LOAD, STEADY_CLOCK = 0.04, 0.01  # changes of load and of the clock's ratio that count as converged
MOST_LOAD = 0.9  # most load of a level: beyond it, bandwidth itself delays requests
T = TypeVar("T")
Load = tuple[float, float]  # of the Infinity Cache and of memory, 0 to MOST_LOAD


@dataclass(frozen=True)
class Mechanisms:
    """Switches for mechanisms of the model: an ablation study turns one off at a time."""

    coissue: bool = True
    lds: bool = True
    coalescer: bool = True
    in_flight: bool = True
    bandwidth: bool = True
    queues: bool = True
    caches: bool = True
    channels: bool = True
    contention: bool = True
    code_fetch: bool = True
    rounds: bool = True
    dispatch: bool = True
    write_back: bool = True
    launch: bool = True
    clock: bool = True


@dataclass(frozen=True)
class Gpu:
    """A launch at a fixed clock, modelled by one CU."""

    chip: HardwareDescriptor
    row: Pipelines
    on: Mechanisms
    code: CodeColumns
    work: state.Work  # the CU's workgroups
    resident: int  # workgroups on the CU at a time
    traffic: Shares
    waves: int  # waves of a workgroup
    groups: int  # workgroups of the launch
    mhz: float  # engine clock
    load: Load = (0.0, 0.0)
    queue: DispatchQueue | None = None  # this CU's workgroups, dispatched one by one; None if rounds are extrapolated
    channels: float = 1.0  # fraction of memory's channels that are busy
    written: float = 0.0  # fraction of memory's bytes that are written
    changed: tuple[float, float] = (0.0, 0.0)  # fractions of L2 that are changed, and changed for memory, after many rounds
    watched: tuple[int, int] = (0, 0)  # instructions whose clocks the CU tallies: first number, end
    same_line: np.ndarray | None = None  # see `simgpu.timing.native.state.Cu`

    @property
    def active(self) -> int:
        """Number of CUs that have work."""
        return min(self.groups, self.chip.num_cus)

    @property
    def sharing(self) -> Sharing:
        """CUs that share the GPU: those with less work than this one end before it, or leave it their part of memory."""
        return self.queue.sharing if self.queue else Sharing.even(self.active)

    def with_queue(self, queue: DispatchQueue, places: int) -> Gpu:
        """Returns the same launch, modelled by the CU that runs a queue. places: workgroups that a CU holds."""
        return replace(self, queue=queue, work=self.work._replace(order=queue.order), resident=min(places, len(queue.order)))

    def clocks_alone(self, traces: int) -> np.ndarray:
        """Returns the clocks of one workgroup of each of `traces` traces, each alone on its CU."""
        traffic, work = replace(self.traffic, rounds=None), self.work._replace(order=np.arange(traces, dtype=np.int64))
        gpu = replace(self, resident=1, work=work, traffic=traffic)
        return np.diff(gpu.run(traces, Sharing.even(self.active)).ends, prepend=0)

    def steady(self, events: int = 0) -> state.CuResult:
        """Runs all full rounds of the CU, or its whole queue. events: most rows of the log."""
        count = max(1, self.groups // self.chip.num_cus) if self.queue is None else len(self.work.order)
        return self.run(count, self.sharing, events)

    def cycles(self, steady: state.CuResult) -> float:
        """Returns the launch's clocks without its overhead. steady: result of `steady`."""
        if self.queue is not None:
            return max(float(steady.clocks), self.dispatch_clocks)
        whole, rest = divmod(self.groups, self.chip.num_cus)
        made = _extrapolate(steady.ends, max(1, whole))
        if whole and rest and self.on.rounds:  # only some CUs run the last round, and share memory among them
            few = Sharing.even(rest)
            more, without = (_extrapolate(self.run(count, few).ends, count) for count in (whole + 1, whole))
            made += max(0.0, more - without)
            # If the full rounds saturated memory, that adds too little. Then the workgroups share memory evenly over
            # whole + 1 rounds.
            evenly = Sharing.even(self.groups / (whole + 1))
            made = max(made, _extrapolate(self.run(whole + 1, evenly).ends, whole + 1))
        return max(made, self.dispatch_clocks)

    @property
    def start_interval(self) -> float:
        """Clocks between the starts of two consecutive workgroups on an XCD."""
        return max(1 / self.row.groups_per_clock, self.waves / self.row.waves_per_clock) if self.on.dispatch else 0.0

    @property
    def dispatch_clocks(self) -> float:
        """Clocks that the XCDs' dispatchers take to start all workgroups; no launch is shorter."""
        return self.groups / self.chip.xcds * self.start_interval

    @property
    def memory(self) -> float:
        """HBM's bytes per second: reads and writes at separate rates, minus bus turnarounds; limited by the busy channels."""
        share, peak, part = self.channels if self.on.channels else 1.0, self.chip.hbm_bandwidth_tb * 1e12, self.written
        straight = 1 / ((1 - part) / sustained_rates(self.chip).hbm + part / (self.row.memory_write * peak))
        return min(straight * (1 - self.row.memory_turn * 4 * part * (1 - part)), share * peak)

    @property
    def mall(self) -> float:
        """Bytes per second of the Infinity Cache, or memory's if the chip has none."""
        return sustained_rates(self.chip).mall if self.chip.mall_bytes else self.memory

    def write_back_clocks(self, result: state.CuResult) -> float:
        """Returns the clocks for which L2s write back what the launch left in them, after its last workgroup.

        Several L2s must, so that other XCDs see it [LLVM, AMDGPUUsage, gfx942: a release of agent scope]. They have the Infinity
        Cache's peak, for no wave waits; its sustained rate if no peak is published. result: of the modelled CU.
        """
        if self.chip.xcds == 1 or not self.on.write_back:
            return 0.0
        used = min(self.groups, self.chip.xcds)
        left = float(result.tally[state.Tally.CHANGED_BYTES]) * self.sharing.stored
        rate = self.chip.mall_bandwidth_tb * 1e12 or self.mall
        return left / (rate * used / self.chip.xcds) * self.mhz * 1e6

    def past_l2_bytes(self, result: state.CuResult) -> float:
        """Returns the bytes that all CUs move past L2. result: of the modelled CU."""
        times = self.sharing.mall if self.queue else self.groups / len(result.ends)
        return float(result.tally[state.Tally.MALL_BYTES]) * times

    def _demand(self, result: state.CuResult) -> tuple[float, float]:
        """Returns what all CUs together ask of the Infinity Cache and of memory, as fractions of the sustained rates."""
        seconds = max(1, result.clocks) / (self.mhz * 1e6)
        mall, hbm = (float(result.tally[level]) for level in (state.Tally.MALL_BYTES, state.Tally.HBM_BYTES))
        return mall * self.sharing.mall / seconds / self.mall, hbm * self.sharing.memory / seconds / self.memory

    def load_of(self, result: state.CuResult) -> Load:
        """Returns the load that all CUs together cause, as fractions of the sustained rates. result: the modelled CU's."""
        if not self.on.queues:
            return 0.0, 0.0
        mall, hbm = self._demand(result)
        return min(MOST_LOAD, mall), min(MOST_LOAD, hbm)

    def run(self, groups: int, sharing: Sharing, events: int = 0) -> state.CuResult:
        """Runs the first `groups` of the CU's workgroups."""
        sharing = sharing.at_most(self.active)
        work = self.work._replace(order=self.work.order[:groups])
        config = quiet_config(self.row, self.on, self.mhz, self.load, self.watched)
        config["room"] = self.chip.l2_bytes * min(self.chip.xcds, sharing.work) / sharing.mall
        if len(work.order) < groups:  # the first of many rounds stand for those that find L2 full
            config["changed"] = (1.0, *self.changed)
        if self.on.bandwidth:
            self._share(config, sharing)
        if self.on.contention:
            each = self.row.atomic_clocks * sharing.work
            config["atomic_line"], config["atomic_channel"] = each, each / (self.chip.l2_bytes_per_clock / self.row.l2_line)
            config["atomic_move"] = self.row.line_move_ns * self.mhz / 1000 * sharing.work
            config["line_move"] = self.row.line_move_seconds * self.mhz * 1e6 * sharing.mall
        # Workgroups of the first round begin when the CU that gets them last does.
        each = self.active / self.chip.xcds * self.start_interval
        arrivals = np.array([each * (place + 1) for place in range(self.resident)], np.int64)
        return cu.run_cu(self.code, work, self.resident, arrivals, self.traffic, config, events, self.same_line)

    def _share(self, config: np.ndarray, sharing: Sharing) -> None:
        """Sets the bytes per clock that a CU gets from each level.

        The rate of its misses from memory is the bytes that it can have in flight, divided by the loaded latency.
        """
        chip, row, clock = self.chip, self.row, self.mhz * 1e6
        l2 = row.l2_share * chip.l2_bytes_per_clock
        # Each XCD has an L2. Even few workgroups use all of them, because workgroups go to XCDs round robin.
        near = min(float(sustained_rates(chip).rates.cache), l2 / sharing.l2)
        config["rate"] = near, self.mall / clock / sharing.mall, self.memory / clock / sharing.memory
        config["store_rate"] = min(64.0, l2 / 2 / sharing.stored)
        config["miss_rate"] = row.in_flight / (row.in_flight / row.cu_memory + row.queueing_ns(self.load[1])) * 1e9 / clock


def settle(run: Callable[[Load], tuple[T, Load, float]]) -> T:
    """Returns the result of `run` at the load that it causes itself: a fixed point, found in at most PASSES steps.

    run: called with a load; returns its result, the load that this causes, and the relative change of the clock
    """
    load, low, high = (0.0, 0.0), [0.0, 0.0], [MOST_LOAD, MOST_LOAD]
    for _ in range(PASSES):
        found, made, moved = run(load)
        if moved <= STEADY_CLOCK and all(abs(new - old) <= STEADY_LOAD for new, old in zip(made, load, strict=True)):
            break
        for at, (new, old) in enumerate(zip(made, load, strict=True)):
            (low if new > old else high)[at] = old
        # Halfway between loads that were too low and too high, but at most the load that the GPU caused.
        load = _between_bounds(made[0], low[0], high[0]), _between_bounds(made[1], low[1], high[1])
    return found


def _between_bounds(made: float, low: float, high: float) -> float:
    return max(low, min(made, (low + high) / 2))


def quiet_config(
    row: Pipelines, on: Mechanisms, mhz: float, load: Load = (0.0, 0.0), watched: tuple[int, int] = (0, 0)
) -> np.ndarray:
    """Returns one `state.CONFIG` with unlimited bandwidth."""
    made = np.zeros(1, state.CONFIG)
    mall, memory = (round((ns + row.queueing_ns(busy)) * mhz / 1000) for ns, busy in zip((row.mall_ns, row.memory_ns), load))
    values = {
        "lds_fifo": row.lds_fifo + 1, "lds_latency": row.lds_latency, "vmem_queue": row.vmem_queue + 1,
        "in_flight": row.in_flight if on.in_flight else 1 << 40, "cache_latency": row.cache_latency,
        "latency": (row.l2_latency, mall, memory), "line": row.cache_line, "store_line": LINE_BYTES,
        "scalar_hit": row.scalar_hit, "branch": row.branch_slots * SLOT, "barrier": row.barrier,
        "start": row.start if on.dispatch else 0, "code_line": row.code_line, "code_stream": row.code_stream * on.code_fetch,
        "code_lines": row.code_bytes // row.code_line,
        "watch_first": watched[0], "watch_end": watched[1], "burst": row.burst,
        "rate": 1e9, "store_rate": 1e9, "miss_rate": 1e9, "room": 1e18,
    }  # fmt: skip
    for name, value in values.items():
        made[name] = value
    return made


def _extrapolate(ends: np.ndarray, per_cu: int) -> float:
    """Returns the clock at which the last of `per_cu` workgroups ends, extrapolated from the ends of the modelled ones."""
    ends = np.sort(ends)
    count = len(ends)
    if per_cu <= count:
        return float(ends[-1])
    half = count // 2
    each = float(ends[-1] - ends[half - 1]) / max(1, count - half)
    return float(ends[-1]) + each * (per_cu - count)
