"""Time of a launch: one CU's model, with its share of L2 and memory, in rounds over the GPU, at the clock that the board holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.rates.clocks import Clock, element, sustained_clock
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.rates.sustained import sustained
from simgpu.hardware.timing_rules.issue import SLOT
from simgpu.timing import cu
from simgpu.timing.caches import Served, Shares, shares, vector_cache, written
from simgpu.timing.code import Code, code_of
from simgpu.timing.dispatch import Queue, last_queues, mixed, standing
from simgpu.timing.trace import Trace

STEPS = 12_000_000  # wave-instructions of a CU that are modelled at most; more rounds are extrapolated
MOST_QUEUED = 1 << 16  # workgroups of a launch that are dispatched one by one, where they differ
PASSES = 6  # of the fixed point of clock and load at most
STEADY_LOAD, STEADY_CLOCK = 0.04, 0.01  # that these may still move, of 1
MOST_LOAD = 0.9  # of memory: beyond, bandwidth itself holds requests back
T = TypeVar("T")
Load = tuple[float, float]  # of the Infinity Cache and of memory, 0 to MOST_LOAD


@dataclass(frozen=True)
class Resources:
    """What decides how many workgroups a CU holds: registers a lane, scalar registers, bytes of LDS, waves of a workgroup."""

    vgprs: int
    agprs: int
    sgprs: int
    lds: int
    waves: int


def resident_groups(chip: HardwareDescriptor, used: Resources) -> int:
    """Workgroups that a CU holds at once, at least 1."""
    return max(1, chip.blocks_per_cu(used.vgprs, used.agprs, used.sgprs, used.lds, used.waves))


@dataclass(frozen=True)
class Mechanisms:
    """What of the model is on; an ablation turns one off at a time."""

    coissue: bool = True
    lds: bool = True
    coalescer: bool = True
    in_flight: bool = True
    bandwidth: bool = True
    queues: bool = True
    caches: bool = True
    channels: bool = True
    code_fetch: bool = True
    rounds: bool = True
    dispatch: bool = True
    launch: bool = True
    clock: bool = True


@dataclass(frozen=True)
class Sampled:
    """A launch, by samples. whole: workgroups traced to their ends, which stand for all; beginnings: workgroups that run together
    in the first round, as far as they were traced; groups: workgroups of the launch; instructions: by number, of so many numbers;
    entry: the first one; notes: what limits the answer's worth; wider: what that adds to the band; channels: the share of memory's
    that a round keeps busy."""

    chip: HardwareDescriptor
    instructions: dict[int, Instruction]
    numbers: int
    entry: int
    whole: Sequence[Trace]
    beginnings: Sequence[Trace]
    groups: int
    used: Resources
    notes: Sequence[str] = ()
    wider: float = 0.0
    channels: float = 1.0


@dataclass(frozen=True)
class Prediction:
    """cycles: of the engine, from the first dispatch to the last end, and what starting and ending take at the clock; seconds.

    low, high: the band of seconds; shares: of the peak, by unit; limit: what limits; groups: of the launch; resident: on a CU
    at a time; per_cu: of the busiest CU; active: CUs that work; result: the modelled CU's.
    """

    cycles: float
    seconds: float
    low: float
    high: float
    clock: Clock
    shares: dict[str, float]
    limit: str
    groups: int
    resident: int
    per_cu: int
    active: int
    result: cu.CuResult
    code: Code
    traffic: Shares
    sampled: Sampled

    @property
    def notes(self) -> Sequence[str]:
        """What limits the answer's worth."""
        return self.sampled.notes


def predict(
    sampled: Sampled, *, mhz: float | None = None, warm: bool = False, on: Mechanisms | None = None, events: int = 0,
    row: Pipelines | None = None,
) -> Prediction:  # fmt: skip
    """The time of a launch. mhz: a clock to take as it is; warm: whether caches hold what a launch before left; events: of the CU
    to keep; row: other figures than the architecture's. LaunchError without a whole workgroup to go by."""
    chip, on = sampled.chip, on or Mechanisms()
    row = row or pipelines(chip.arch)
    if not sampled.whole:
        raise LaunchError("no workgroup was traced to its end: there is nothing to predict a time from")
    code = code_of(sampled.instructions, sampled.numbers, row)
    if not on.coissue:
        code = replace(code, shadow=np.where(code.shadow > 0, code.clocks, 0).astype(np.int32))
    per_cu = math.ceil(sampled.groups / chip.num_cus)
    places = resident_groups(chip, sampled.used)
    resident = min(places, per_cu)
    served = [vector_cache(trace, code, row, resident) for trace in sampled.whole]
    together = [vector_cache(trace, code, row, resident) for trace in sampled.beginnings]
    traffic = shares(sampled.beginnings, together, code, chip, row, resident, warm)
    if not on.caches:
        traffic = replace(traffic, past=np.ones_like(traffic.past), late=np.ones_like(traffic.late))
    length = max(1.0, float(np.mean([len(trace) for trace in sampled.whole])))
    most = max(2 * resident, int(STEPS / length))  # workgroups that are modelled
    stand = standing([trace.group for trace in sampled.whole], min(sampled.groups, MOST_QUEUED))
    work = _work(sampled.whole, served, mixed(stand, min(per_cu, most)))
    if not on.lds or not on.coalescer:
        _free_accesses(work, code, sampled.whole, on)
    active = min(sampled.groups, chip.num_cus)
    dtype = _matrix_type(sampled)
    clock = Clock(mhz or chip.clock_mhz, 0.05, "given")
    first = Gpu(
        chip, row, on, code, work, resident, traffic, sampled.used.waves, sampled.groups, clock.mhz, channels=sampled.channels,
        written=written(sampled.whole, served, code, traffic, row),
    )  # fmt: skip
    gpus = [first]
    if len(sampled.whole) > 1 and on.rounds and sampled.groups <= MOST_QUEUED and per_cu <= most:
        stretch = np.array([trace.stretch for trace in sampled.whole])
        clocks, sizes = first.alone(len(stretch)) * stretch, np.array([len(trace) for trace in sampled.whole]) * stretch
        gpus = [first.queued(queue, places) for queue in last_queues(clocks, sizes, stand, chip.num_cus, chip.xcds, places)]

    def run(load: Load) -> tuple[tuple[Gpu, cu.CuResult], Load, float]:
        nonlocal clock
        now, before = [replace(gpu, mhz=clock.mhz, load=load) for gpu in gpus], clock.mhz
        gpu, result = max(((gpu, gpu.steady(events)) for gpu in now), key=lambda pair: pair[1].clocks)
        if mhz is None:
            duty = result.tally[cu.MATRIX_CLOCKS] / max(1, result.clocks * chip.simds_per_cu)
            held = sustained_clock(chip, float(duty), gpu.sharing / chip.num_cus, dtype)
            clock = held if on.clock else replace(held, mhz=chip.clock_mhz)
        return (gpu, result), gpu.load_of(result), abs(clock.mhz / before - 1)

    model, result = settled(run)
    cycles = max(model.cycles(result) * _stretch(sampled.whole, model.work.order), model.dispatched)
    overhead = row.launch_us * 1e-6 if on.launch else 0.0
    seconds = cycles / (clock.mhz * 1e6) + overhead
    band = clock.band + sampled.wider
    reached = _shares(result, chip, clock.mhz, model.sharing)
    limit = "dispatch" if cycles == model.dispatched else _limit(reached, result, seconds, overhead)
    return Prediction(
        cycles + overhead * clock.mhz * 1e6, seconds, seconds * (1 - band), seconds * (1 + band), clock, reached, limit,
        sampled.groups, resident, per_cu, active, result, code, traffic, sampled,
    )  # fmt: skip


def settled(run: Callable[[Load], tuple[T, Load, float]]) -> T:
    """What `run` gives at the load that it makes itself, as near as PASSES come.

    `run` returns what it found, the load that this makes, and how far the clock moved, of 1.
    """
    load, low, high = (0.0, 0.0), [0.0, 0.0], [MOST_LOAD, MOST_LOAD]
    for _ in range(PASSES):
        found, made, moved = run(load)
        if moved <= STEADY_CLOCK and all(abs(new - old) <= STEADY_LOAD for new, old in zip(made, load, strict=True)):
            break
        for at, (new, old) in enumerate(zip(made, load, strict=True)):
            (low if new > old else high)[at] = old
        # Halfway between what was too little and too much, but no further up than what the GPU asked for.
        load = _nearer(made[0], low[0], high[0]), _nearer(made[1], low[1], high[1])
    return found


def _nearer(made: float, low: float, high: float) -> float:
    return max(low, min(made, (low + high) / 2))


@dataclass(frozen=True)
class Gpu:
    """A launch on the GPU at a clock, by one of its CUs. waves: of a workgroup; groups: of the launch; load: of the Infinity Cache
    and of memory, 0 to 1; queue: all that this CU runs, where workgroups differ (None: any, in all rounds); channels: the share of
    memory's that are busy; written: the share of memory's bytes that is."""

    chip: HardwareDescriptor
    row: Pipelines
    on: Mechanisms
    code: Code
    work: cu.Work
    resident: int
    traffic: Shares
    waves: int
    groups: int
    mhz: float
    load: Load = (0.0, 0.0)
    queue: Queue | None = None
    channels: float = 1.0
    written: float = 0.0

    @property
    def active(self) -> int:
        """CUs that work."""
        return min(self.groups, self.chip.num_cus)

    @property
    def sharing(self) -> float:
        """CUs that work at a time, on average: those with little to do end before this one."""
        return self.active * (self.queue.busy if self.queue else 1.0)

    def queued(self, queue: Queue, places: int) -> Gpu:
        """By a CU that runs a queue, with so many places for workgroups."""
        return replace(self, queue=queue, work=replace(self.work, order=queue.order), resident=min(places, len(queue.order)))

    def alone(self, traces: int) -> np.ndarray:
        """Clocks that the workgroups of so many traces take, each alone on its CU."""
        gpu = replace(self, resident=1, work=replace(self.work, order=np.arange(traces, dtype=np.int64)))
        return np.diff(gpu.run(traces, self.active).ends, prepend=0)

    def steady(self, events: int = 0) -> cu.CuResult:
        """A CU of those that work through all full rounds."""
        return self.run(len(self.work.order) if self.queue else max(1, self.groups // self.chip.num_cus), self.sharing, events)

    def cycles(self, steady: cu.CuResult) -> float:
        """Of the launch, from what `steady` gave."""
        if self.queue:
            return max(float(steady.clocks), self.dispatched)
        whole, rest = divmod(self.groups, self.chip.num_cus)
        made = _extrapolated(steady.ends, max(1, whole))
        if whole and rest and self.on.rounds:  # one more on some CUs, which have the memory to themselves
            more, without = (_extrapolated(self.run(count, rest).ends, count) for count in (whole + 1, whole))
            made += max(0.0, more - without)
            # Where the rounds before left memory no rest, that adds too little: all want as much as this CU, in its time.
            made = max(made, _extrapolated(self.run(whole + 1, self.groups / (whole + 1)).ends, whole + 1))
        return max(made, self.dispatched)

    @property
    def dispatched(self) -> float:
        """Clocks in which the dispatchers of all XCDs start the launch's workgroups: it takes no less."""
        return self.groups / self.chip.xcds * _apart(self.row, self.waves) if self.on.dispatch else 0.0

    @property
    def memory(self) -> float:
        """Bytes a second of HBM, each direction at its own rate, less what turning the bus takes; or of those of its channels that
        are busy."""
        share, peak, part = self.channels if self.on.channels else 1.0, self.chip.hbm_bandwidth_tb * 1e12, self.written
        straight = 1 / ((1 - part) / sustained(self.chip).hbm + part / (self.row.memory_write * peak))
        return min(straight * (1 - self.row.memory_turn * 4 * part * (1 - part)), share * peak)

    @property
    def mall(self) -> float:
        """Bytes a second of the Infinity Cache; memory's where there is none."""
        return sustained(self.chip).mall if self.chip.mall_bytes else self.memory

    def load_of(self, result: cu.CuResult) -> Load:
        """How busy all CUs together keep the Infinity Cache and memory, of what these sustain."""
        if not self.on.queues:
            return 0.0, 0.0
        seconds = max(1, result.clocks) / (self.mhz * 1e6)
        mall, hbm = (float(result.tally[which]) * self.sharing / seconds for which in (cu.MALL_BYTES, cu.HBM_BYTES))
        return min(MOST_LOAD, mall / self.mall), min(MOST_LOAD, hbm / self.memory)

    def run(self, groups: int, sharing: float, events: int = 0) -> cu.CuResult:
        """So many workgroups, or as many as are modelled, while `sharing` CUs want memory."""
        work = replace(self.work, order=self.work.order[:groups])
        rates = _rates(self.chip, self.row, self.mhz, sharing, self.load, self.on, self.mall, self.memory)
        arrivals = _arrivals(self.chip, self.row, self.active, self.waves, self.resident, self.on)
        return cu.run_cu(
            self.code, work, self.resident, arrivals, self.traffic.past, self.traffic.late,
            _parameters(self.row, self.on, self.mhz, self.load, events), rates,
        )  # fmt: skip


def _stretch(traces: Sequence[Trace], order: np.ndarray) -> float:
    """What workgroups of this order execute over what their traces hold."""
    sizes, whole = (np.array(column) for column in zip(*((len(one), len(one) * one.stretch) for one in traces), strict=True))
    return float(whole[order].sum() / max(1, sizes[order].sum()))


def _work(traces: Sequence[Trace], served: Sequence[Served], order: np.ndarray) -> cu.Work:
    steps = np.cumsum([0, *(len(trace.steps) for trace in traces)])
    rows = np.cumsum([0, *(len(one.accesses) for one in served)])
    starts = np.concatenate([trace.starts[:-1] + at for trace, at in zip(traces, steps[:-1], strict=True)])
    ends = np.concatenate([trace.starts[1:] + at for trace, at in zip(traces, steps[:-1], strict=True)])
    access_starts = np.concatenate([trace.access_starts[:-1] + at for trace, at in zip(traces, rows[:-1], strict=True)])
    return cu.Work(
        np.concatenate([trace.steps for trace in traces]).astype(np.int64), starts, ends,
        np.concatenate([one.accesses for one in served]), access_starts, traces[0].waves,
        order,
    )  # fmt: skip


def _free_accesses(work: cu.Work, code: Code, traces: Sequence[Trace], on: Mechanisms) -> None:
    """Takes clocks of LDS conflicts or of the coalescer out."""
    numbers = np.concatenate([trace.steps[code.accesses[trace.steps]] for trace in traces])
    lds = code.lane_bytes[numbers] > 0
    lds &= code.kind[numbers] == cu.Kind.LDS
    if not on.lds:
        work.accesses[lds, 0] = 0
    if not on.coalescer:
        work.accesses[~lds, 0] = 0


def _queued(row: Pipelines, load: float) -> float:
    """Nanoseconds that a request waits for others: half the service of each, as long as the queue of a server with even service."""
    return row.queue_ns / 2 * load / (1 - load)


def _rates(
    chip: HardwareDescriptor, row: Pipelines, mhz: float, sharing: float, load: Load, on: Mechanisms, mall: float, memory: float
) -> np.ndarray:
    """Bytes a clock that a CU has of each level, if `sharing` of them want it; mall, memory: bytes a second of all; what its misses
    draw from memory is the bytes that it can have in flight over their latency, loaded."""
    rates = np.full(cu.RATES, 1e9)
    if on.bandwidth:
        have = sustained(chip)
        clock = mhz * 1e6
        l2 = row.l2_share * chip.l2_bytes_per_clock
        # L2s are their XCDs' own: few workgroups still reach all of them, round robin.
        rates[cu.L2_RATE] = min(float(have.rates.cache), l2 / sharing)
        rates[cu.STORE_RATE] = min(64.0, l2 / 2 / sharing)
        rates[cu.MALL_RATE] = mall / clock / sharing
        rates[cu.HBM_RATE] = memory / clock / sharing
        rates[cu.MISS_RATE] = row.in_flight / (row.in_flight / row.cu_memory + _queued(row, load[1])) * 1e9 / clock
    rates[cu.BURST], rates[cu.ROOM] = row.burst, chip.l2_bytes * chip.xcds / chip.num_cus
    return rates


def _apart(row: Pipelines, waves: int) -> float:
    """Clocks from the start of a workgroup of so many waves on an XCD to the next one's."""
    return max(1 / row.groups_per_clock, waves / row.waves_per_clock)


def _arrivals(chip: HardwareDescriptor, row: Pipelines, active: int, waves: int, resident: int, on: Mechanisms) -> np.ndarray:
    """Clocks at which the workgroups of the first round begin on the CU that gets them last."""
    each = active / chip.xcds * _apart(row, waves) if on.dispatch else 0.0
    return np.array([each * (place + 1) for place in range(resident)], np.int64)


def _parameters(row: Pipelines, on: Mechanisms, mhz: float, load: Load, events: int) -> np.ndarray:
    made = np.zeros(cu.PARAMETERS, np.int64)
    made[cu.FIFO] = row.lds_fifo + 1
    made[cu.LDS_LATENCY] = row.lds_latency
    made[cu.VMEM_QUEUE] = row.vmem_queue + 1
    made[cu.IN_FLIGHT] = row.in_flight if on.in_flight else 1 << 40
    made[cu.CACHE_LATENCY], made[cu.L2_LATENCY] = row.cache_latency, row.l2_latency
    for place, ns, busy in ((cu.MALL_LATENCY, row.mall_ns, load[0]), (cu.MEMORY_LATENCY, row.memory_ns, load[1])):
        made[place] = round((ns + _queued(row, busy)) * mhz / 1000)
    made[cu.SCALAR_HIT], made[cu.BRANCH_CLOCKS] = row.scalar_hit, row.branch_slots * SLOT
    made[cu.BARRIER_CLOCKS], made[cu.CODE_LINE] = row.barrier, row.code_line
    made[cu.CODE_STREAM] = row.code_stream if on.code_fetch else 0
    made[cu.START] = row.start if on.dispatch else 0
    made[cu.LINE], made[cu.STORE_LINE] = row.cache_line, 64
    made[cu.MOST_EVENTS] = events
    return made


def _extrapolated(ends: np.ndarray, per_cu: int) -> float:
    """The end of the busiest CU's last workgroup, from those that were modelled."""
    ends = np.sort(ends)
    count = len(ends)
    if per_cu <= count:
        return float(ends[-1])
    half = count // 2
    each = float(ends[-1] - ends[half - 1]) / max(1, count - half)
    return float(ends[-1]) + each * (per_cu - count)


def _matrix_type(sampled: Sampled) -> str:
    """The type of the matrix instructions that the workgroup executed most."""
    found = np.bincount(sampled.whole[0].steps, minlength=sampled.numbers)
    matrix = {n: int(found[n]) for n, inst in sampled.instructions.items() if inst.spec.kind == "matrix"}
    most = max(matrix, key=lambda n: matrix[n], default=None)
    if most is None:
        return ""
    inst = sampled.instructions[most]
    return element(inst.mnemonic, [int(inst.mods.get(name, 0)) for name in ("cbsz", "blgp")])


def _shares(result: cu.CuResult, chip: HardwareDescriptor, mhz: float, active: float) -> dict[str, float]:
    """What a CU reaches of its peaks, and all that are active together of L2's and memory's."""
    clocks, tally = max(1, result.clocks), result.tally
    hbm = chip.hbm_bandwidth_tb * 1e6 / mhz
    made = {
        "matrix": tally[cu.MATRIX_CLOCKS] / (clocks * chip.simds_per_cu),
        "VALU": tally[cu.VALU_CLOCKS] / (clocks * chip.simds_per_cu),
        "LDS": tally[cu.LDS_CLOCKS] / clocks,
        "vector cache": tally[cu.VMEM_CLOCKS] / clocks,
        "L2": tally[cu.L2_BYTES] / clocks * active / chip.l2_bytes_per_clock,
        "HBM": tally[cu.HBM_BYTES] / clocks * active / hbm,
    }
    return {name: float(value) for name, value in made.items()}


LITTLE = 0.05  # of the clocks of all waves: what they wait for less than this does not limit
NEAR = 0.7  # share of its peak from which on a unit is what limits
LATENCY = {
    "WAITCNT": "latency of memory and LDS", "BARRIER_WAIT": "barriers", "NO_INSTRUCTION_AVAILABLE": "instruction fetch",
    "ARBITER_NOT_WIN": "issue", "ARBITER_WIN_EX_STALL": "busy units", "OTHER_WAIT": "wait states", "SLEEP_WAIT": "s_sleep",
}  # fmt: skip


def _limit(reached: dict[str, float], result: cu.CuResult, seconds: float, overhead: float) -> str:
    if overhead > seconds / 2:
        return "launch"
    best = max(reached, key=lambda name: reached[name])
    if reached[best] >= NEAR:
        return best
    by_reason = result.stalls.sum(0)
    if by_reason.max() < LITTLE * result.latency.sum():
        return "issue"
    return LATENCY.get(cu.REASONS[int(by_reason.argmax())], "issue")
