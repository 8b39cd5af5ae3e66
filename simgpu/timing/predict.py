"""Predicts the time of a launch from its samples, at the clock that the board holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.rates.clocks import POWER_US, Busy, Clock, element, sustained_clock
from simgpu.hardware.rates.pipelines import Pipelines, pipelines
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.timing.band import PredictionFacts, doubts
from simgpu.timing.caches import (
    LaterLoads,
    NextRound,
    ServedAccesses,
    Shares,
    Warm,
    first_caches,
    remembered_share,
    shares,
)  # fmt: skip
from simgpu.timing.code import CodeColumns, code_of
from simgpu.timing.contention import LineContention
from simgpu.timing.dispatch import Sharing, last_queues, mix_samples, nearest_samples
from simgpu.timing.footprint import reach_of
from simgpu.timing.front import Front, Timetable, timetable
from simgpu.timing.gpu import Gpu, Load, Mechanisms, quiet_config, settle
from simgpu.timing.history import EarlierLines, LaunchHistory, Lines, lines_by_xcd
from simgpu.timing.lives import lives_of
from simgpu.timing.moved import MovedBytes, work_of
from simgpu.timing.native import state
from simgpu.timing.native.state import STORE
from simgpu.timing.trace import Trace, updated_fraction
from simgpu.timing.without import NOTHING, Without

STEPS = 12_000_000  # most wave-instructions of a CU that are modelled; more rounds are extrapolated
STAGED_ROUNDS = 8  # rounds of a CU from which it is known when waves access memory
MOST_QUEUED = 1 << 16  # most workgroups of a launch that are dispatched one by one if they differ


@dataclass(frozen=True)
class GroupResources:
    """Resources of a workgroup that decide how many a CU holds."""

    vgprs: int  # VGPRs of a lane
    agprs: int  # AccVGPRs of a lane
    sgprs: int  # SGPRs of a wave
    lds: int  # bytes of LDS
    waves: int

    def resident(self, chip: HardwareDescriptor) -> int:
        """Returns the number of workgroups that a CU holds at once, at least 1."""
        return max(1, chip.blocks_per_cu(self.vgprs, self.agprs, self.sgprs, self.lds, self.waves))


@dataclass(frozen=True)
class SampledLaunch:
    """Samples of a launch."""

    chip: HardwareDescriptor
    instructions: dict[int, Instruction]  # by number
    code: CodeColumns  # of these, with the architecture's figures
    entry: int  # number of the first instruction
    base: int  # address in the code object of instruction 0; others are 4 bytes a number further on
    whole: Sequence[Trace]  # traces of whole workgroups, which represent all workgroups
    beginnings: Sequence[Trace]  # first parts of the workgroups of one round, which run together
    groups: int  # workgroups of the launch
    used: GroupResources
    notes: Sequence[str] = ()  # limits of the prediction, for people
    wider: float = 0.0  # fraction of the time that these limits add to the band on either side
    channels: float = 1.0  # fraction of memory's channels that a round keeps busy
    atomics: LineContention | None = None  # how atomics meet on lines; None if there are none
    front: Front | None = None  # how `beginnings` follow each other; None: they begin together
    later: Sequence[Trace] = ()  # first parts of workgroups of the round after `beginnings`, if these are not whole
    alike: Sequence[Trace] = ()  # more whole workgroups, which one of `whole` represents, if `beginnings` are not whole
    reachable: float = math.inf  # bytes of the allocations that it accesses
    loads: Mapping[int, int] = field(default_factory=dict)  # first lines of allocations that it loads from, with their bytes
    stores: Mapping[int, int] = field(default_factory=dict)  # those that it stores to
    pages: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint32))  # numbers before `trace.renumber`
    all_traced: bool = False  # `beginnings` are all workgroups, from begin to end
    grid: Sequence[int] = ()  # workgroups in x, y and z
    # Addresses of instructions in functions that the kernel calls, by number, as users read them: `helper+0x98`
    functions: Mapping[int, str] = field(default_factory=dict)
    # Results of `_replay` by the workgroups on a CU, `warm` and the figures of units.
    replays: dict[tuple[int, Warm | LaunchHistory, Pipelines], tuple[list[ServedAccesses], Shares]] = field(
        default_factory=dict, compare=False
    )

    @cached_property
    def lines(self) -> tuple[Lines, Lines]:
        """See `simgpu.timing.history.lines_by_xcd`. Two launches of a chain need them, this one and the next."""
        return lines_by_xcd(self)

    def stand_ins(self) -> np.ndarray:
        """Returns for each workgroup the one of `whole` that represents it, as an index; for MOST_QUEUED workgroups at most."""
        numbers, sizes = [trace.group for trace in self.whole], [trace.stretch * len(trace) for trace in self.whole]
        return nearest_samples(numbers, min(self.groups, MOST_QUEUED), sizes, self.grid)


@dataclass(frozen=True)
class Prediction:
    """A predicted time, with the model's result."""

    cycles: float  # engine clocks from the first dispatch to the last end, including the launch's overhead
    seconds: float
    profiled: float  # seconds between a profiler's timestamps of the kernel, which leave out a part of the launch
    between_events: float  # seconds between two events that the host records before and after the launch
    low: float  # lower end of the band, seconds
    high: float  # upper end of the band, seconds
    clock: Clock
    shares: dict[str, float]  # fraction of its peak that each unit reaches
    limit: str  # the limit of the launch: a unit of `shares`, "launch", "dispatch", "atomics on one line", or a reason to wait
    groups: int  # workgroups of the launch
    resident: int  # workgroups on a CU at a time
    per_cu: int  # workgroups of the busiest CU
    active: int  # CUs that work
    result: state.CuResult  # result of the modelled CU
    past_l2_bytes: float  # bytes between all L2s and the levels after them
    code: CodeColumns
    traffic: Shares
    sampled: SampledLaunch
    notes: Sequence[str] = ()  # limits of the prediction, for people
    before: LaunchHistory = field(default_factory=LaunchHistory)  # launches before it

    @property
    def left(self) -> LaunchHistory:
        """Chain of launches that ends with this one: pass it as `warm` of the next."""
        return self.before.after(self.sampled)

    def __repr__(self) -> str:
        us = [f"{1e6 * seconds:.4g}" for seconds in (self.seconds, self.low, self.high)]
        return f"<Prediction {us[0]} us ({us[1]} to {us[2]}), limited by {self.limit}>"


def predict(
    sampled: SampledLaunch, *, mhz: float | None = None, warm: Warm | LaunchHistory = False, on: Mechanisms | None = None,
    events: int = 0, row: Pipelines | None = None, watched: tuple[int, int] = (0, 0), without: Without = NOTHING,
) -> Prediction:  # fmt: skip
    """Predicts the time of a launch.

    mhz: a fixed clock (default: the board's). warm: see `simgpu.timing.caches.shares`, or the launches before this one. events:
    most events to log; row: other figures of units; watched: see `Gpu`; without: causes of waiting to leave out. Raises
    LaunchError without a whole workgroup.
    """
    chip, on, row = sampled.chip, on or Mechanisms(), row or pipelines(sampled.chip.arch)
    if not sampled.whole:
        raise LaunchError("no workgroup was traced to its end: there is nothing to predict a time from")
    sampled, code = _without(sampled, _code(sampled, row, on), without)
    before, warm = warm if isinstance(warm, LaunchHistory) else LaunchHistory(), warm_of(warm, sampled)
    per_cu, places = math.ceil(sampled.groups / chip.num_cus), sampled.used.resident(chip) + without.groups
    resident = min(places, per_cu)
    served, moved, traffic = _caches(sampled, code, row, resident, warm, on, without)
    most, stand = _modelled_groups(sampled, resident), sampled.stand_ins()
    work = _work(sampled.whole, served, mix_samples(stand, min(per_cu, most)))
    _free_accesses(work, code, sampled.whole, on)
    dtype, clock = _matrix_type(sampled), Clock(mhz or chip.clock_mhz, 0.05, "given")
    first = _gpu(sampled, row, on, code, work, resident, moved, traffic, clock.mhz, watched)
    queued = len(sampled.whole) > 1 and on.rounds and sampled.groups <= MOST_QUEUED and per_cu <= most
    gpus = _with_queues(first, sampled.whole, served, stand, places) if queued else [first]

    def run(load: Load) -> tuple[tuple[Gpu, state.CuResult], Load, float]:
        nonlocal clock
        now, before = [replace(gpu, mhz=clock.mhz, load=load) for gpu in gpus], clock.mhz
        gpu, result = max(((gpu, gpu.steady(events)) for gpu in now), key=lambda pair: pair[1].clocks)
        if mhz is None:
            busy = _loop_busy(result, chip, gpu.mhz) if sampled.groups <= chip.num_cus * places else _busy(result, chip)
            held = sustained_clock(chip, busy, min(gpu.active, gpu.sharing.work) / chip.num_cus, dtype)
            clock = held if on.clock else replace(held, mhz=chip.clock_mhz)
        return (gpu, result), gpu.load_of(result), abs(clock.mhz / before - 1)

    model, result = settle(run)
    longer = _stretch(sampled.whole, model.work.order)
    atomics, contended = _clocks_on_one_line(sampled.atomics, row, clock.mhz) if on.contention and sampled.atomics else (0.0, 0.0)
    dispatch, overhead = model.dispatch_clocks, row.launch_us * 1e-6 * on.launch
    back = model.write_back_clocks(result)
    cycles = max(model.cycles(result) * longer + _longer_last(model, sampled), dispatch, contended) + back
    past_l2 = model.past_l2_bytes(result) * longer
    seconds = cycles / (clock.mhz * 1e6) + overhead
    profiled, between = (seconds + (us - row.launch_us) * 1e-6 * on.launch for us in (row.profiled_us, row.events_us))
    reached = _shares(result, chip, clock.mhz, model.sharing, back)
    limit = _limit(reached, result, {"dispatch": dispatch, "atomics on one line": contended / NEAR}, cycles, seconds, overhead)
    told = PredictionFacts(
        chip, reached, seconds, dtype if mhz is None else None, sampled.channels, atomics, traffic.remembered, limit == WAITS,
        moved.of_other_xcds(traffic.moved) * sampled.groups * row.line_move_seconds / seconds,
        updated_fraction(sampled.whole, code), max(model.load_of(result)),
    )
    unknown = list(doubts(told))
    band = clock.band + sampled.wider + sum(doubt.wider for doubt in unknown)
    return Prediction(
        cycles + overhead * clock.mhz * 1e6, seconds, profiled, between, seconds * max(0.0, 1 - band), seconds * (1 + band), clock,
        reached, limit, sampled.groups, resident, per_cu, model.active, result, past_l2, code, traffic, sampled,
        (*sampled.notes, *(doubt.note for doubt in unknown)), before,
    )  # fmt: skip


def _gpu(
    sampled: SampledLaunch, row: Pipelines, on: Mechanisms, code: CodeColumns, work: state.Work, resident: int,
    moved: MovedBytes, traffic: Shares, mhz: float, watched: tuple[int, int],
) -> Gpu:  # fmt: skip
    """Returns the launch modelled by one of its CUs."""
    return Gpu(
        sampled.chip, row, on, code, work, resident, traffic, sampled.used.waves, sampled.groups, mhz, channels=sampled.channels,
        written=moved.written, watched=watched, changed=moved.changed,
        same_line=np.stack((sampled.atomics.share, sampled.atomics.moved)) if sampled.atomics else None,
    )  # fmt: skip


def warm_of(warm: Warm | LaunchHistory, sampled: SampledLaunch) -> Warm | LaunchHistory:
    """Returns what caches have of a chain of launches, or `warm` itself."""
    return warm.warm(sampled) if isinstance(warm, LaunchHistory) else warm


def _without_gap(
    sampled: SampledLaunch, moved: MovedBytes, code: CodeColumns, traffic: Shares, row: Pipelines, on: Mechanisms
) -> Shares:
    """Returns the traffic without the lines that move before the launch begins.

    Stores of the launch before sent the probes, and no wave waits for these. So they go on while the launch is prepared.
    """
    earlier = code.flags & STORE == 0  # stores take lines from workgroups of this launch
    nbytes = moved.of_other_xcds(np.where(earlier, traffic.moved, 0.0)) * sampled.groups
    seconds = nbytes * row.line_move_seconds
    left = 1 - row.profiled_us * 1e-6 * on.launch / seconds if seconds else 1.0
    return replace(traffic, moved=np.where(earlier, traffic.moved * max(0.0, left), traffic.moved))


def _clocks_on_one_line(met: LineContention, row: Pipelines, mhz: float) -> tuple[float, float]:
    """Returns the atomics on the line with most of them, and the clocks that they take one after another."""
    return met.requests, max(met.requests * row.atomic_clocks, met.moves * row.line_move_ns * mhz / 1000)


def _with_queues(
    first: Gpu, traces: Sequence[Trace], served: Sequence[ServedAccesses], stand: np.ndarray, places: int
) -> list[Gpu]:  # fmt: skip
    """Returns the launch modelled by the CUs that decide it if workgroups differ."""
    chip, clocks = first.chip, first.clocks_alone(len(traces)) * np.array([trace.stretch for trace in traces])
    works = work_of(traces, served, first.code, first.traffic, first.row)
    queues = last_queues(clocks, works, stand, chip.num_cus, chip.xcds, places, first.start_interval)
    return [first.with_queue(queue, places) for queue in queues]


def _longer_last(model: Gpu, sampled: SampledLaunch) -> float:
    """Returns the clocks for which the last workgroup goes on after all others, if workgroups are not dispatched one by one."""
    numbers = np.array([trace.group for trace in sampled.whole])
    last = numbers == sampled.groups - 1
    if model.queue or last.all() or not last.any():
        return 0.0
    clocks = model.clocks_alone(len(numbers)) * np.array([trace.stretch for trace in sampled.whole])
    return max(0.0, float(clocks[last].max() - clocks[~last].max()))


def _code(sampled: SampledLaunch, row: Pipelines, on: Mechanisms) -> CodeColumns:
    usual = row == pipelines(sampled.chip.arch)
    code = sampled.code if usual else code_of(sampled.instructions, len(sampled.code.unit), row)
    return code if on.coissue else replace(code, shadow=np.where(code.shadow > 0, code.clocks, 0).astype(np.int32))


def _without(sampled: SampledLaunch, code: CodeColumns, without: Without) -> tuple[SampledLaunch, CodeColumns]:
    """Returns the samples and the code without some causes of waiting."""
    if without.scalar:
        sampled = replace(sampled, replays={})
    if without.groups and sampled.front:  # more workgroups begin together and find empty caches
        places = sampled.chip.num_cus * (sampled.used.resident(sampled.chip) + without.groups)
        front = Front(places, sampled.groups / places) if sampled.groups > places else None
        sampled = replace(sampled, front=front, replays={})
    if sampled.atomics and without.removed:
        sampled = replace(sampled, atomics=sampled.atomics.without(without.removed, sampled.used.waves))
    return sampled, without.columns(code)


def _caches(
    sampled: SampledLaunch, code: CodeColumns, row: Pipelines, resident: int, warm: Warm | LaunchHistory, on: Mechanisms,
    without: Without,
) -> tuple[list[ServedAccesses], MovedBytes, Shares]:
    """Returns the accesses of the whole workgroups, the bytes that these move, and what each cache level passes on."""
    known = resident, warm, row
    if known not in sampled.replays:
        sampled.replays[known] = _replay(sampled, code, row, resident, warm)
    found, traffic = sampled.replays[known]
    if not on.caches:
        traffic = replace(traffic, past=np.ones_like(traffic.past), late=np.ones_like(traffic.late), rounds=None)
    served = [without.accesses(trace, one, code, row) for trace, one in zip(sampled.whole, found, strict=True)]
    traffic = without.traffic(traffic, sampled.whole, found, served, code)
    moved = MovedBytes.of(sampled.whole, served, code, traffic, row)
    return served, moved, _without_gap(sampled, moved, code, traffic, row, on)


def _replay(
    sampled: SampledLaunch, code: CodeColumns, row: Pipelines, resident: int, warm: Warm | LaunchHistory
) -> tuple[list[ServedAccesses], Shares]:
    """Replays the samples' lines through the caches, as `_caches` returns them."""
    traces = [*sampled.whole, *sampled.beginnings, *sampled.later]
    served = first_caches(traces, code, row, resident, _neighbours(traces))
    wholes, end = len(sampled.whole), len(sampled.whole) + len(sampled.beginnings)
    found, together = served[:wholes], served[wholes:end]
    places = sampled.chip.num_cus * resident
    several = len(sampled.later) > 0 and sampled.groups > places
    after = NextRound(sampled.later, served[end:], places, sampled.groups / places) if several else None
    whole = tuple(zip(sampled.whole, found, strict=True))
    how = EarlierLines(warm, sampled) if isinstance(warm, LaunchHistory) else warm
    same = sampled.all_traced or not (how or after)
    reach = reach_of(sampled.groups, sampled.whole, sampled.beginnings, code, row.l2_line, sampled.reachable, same)
    replay = partial(shares, sampled.beginnings, together, code, sampled.chip, row, resident, how, whole, reach=reach)
    traffic = replay(sampled.front, after=after, late_loads=_late_loads(sampled, whole, code, row, resident, how))
    if sampled.front:
        later = replay(replace(sampled.front, table=_timetable(sampled, code, row, resident, found, traffic)))
        traffic = replace(later, remembered=remembered_share(later.past_share, traffic.past_share))
    return found, traffic


def _late_loads(
    sampled: SampledLaunch, whole: Sequence[tuple[Trace, ServedAccesses]], code: CodeColumns, row: Pipelines, resident: int,
    warm: Warm | EarlierLines,
) -> LaterLoads | None:  # fmt: skip
    """Returns loads that go on after the beginnings, by the whole workgroups; None if there are none, or these do not show it."""
    if sampled.front or sampled.all_traced or not all(trace.stretch == 1 and trace.complete for trace, _ in whole):
        return None
    chip, rounds = sampled.chip, [sampled.beginnings, sampled.later]
    lives = lives_of(whole, sampled.alike, rounds, sampled.stand_ins(), code, sampled.pages, row.l2_line, chip.xcds)
    return lives.replay(code, chip, row, resident, warm if isinstance(warm, EarlierLines) else None) if lives else None


def _neighbours(traces: Sequence[Trace]) -> list[int]:
    """Returns for each workgroup the number of the one traced before it, or after the first: the scalar cache may have its lines.
    -1 if there is no other."""
    known = {trace.group: at for at, trace in enumerate(traces)}
    order = sorted(known)
    if len(order) < 2:
        return [-1] * len(traces)
    near = {group: known[order[at - 1 if at else 1]] for at, group in enumerate(order)}
    return [near[trace.group] for trace in traces]


def _timetable(
    sampled: SampledLaunch, code: CodeColumns, row: Pipelines, resident: int, found: Sequence[ServedAccesses], traffic: Shares
) -> Timetable | None:
    """Returns when waves access memory, by a CU in the middle of the launch."""
    chip, on = sampled.chip, Mechanisms()
    groups = min(STAGED_ROUNDS * resident, _modelled_groups(sampled, resident))
    stand = sampled.stand_ins()
    work = _work(sampled.whole, found, mix_samples(stand, groups))
    quiet = Gpu(chip, row, on, code, work, resident, traffic, sampled.used.waves, sampled.groups, chip.clock_mhz)

    def run(load: Load) -> tuple[tuple[Load, state.CuResult], Load, float]:
        gpu = replace(quiet, load=load)
        result = gpu.run(groups, gpu.sharing, events=groups * max(map(len, sampled.whole)))
        return (load, result), gpu.load_of(result), 0.0

    load, result = settle(run)
    latency = float(quiet_config(row, on, chip.clock_mhz, load)["latency"][0, -1])
    return timetable(result.log, result.ends, code, sampled.used.waves, resident, latency)


def _modelled_groups(sampled: SampledLaunch, resident: int) -> int:
    """Returns the most workgroups of a CU that are modelled."""
    length = max(1.0, float(np.mean([len(trace) for trace in sampled.whole])))
    return max(2 * resident, int(STEPS / length))


def _stretch(traces: Sequence[Trace], order: np.ndarray) -> float:
    """Returns the ratio of records that the workgroups execute to those in their traces. order: trace of each workgroup."""
    sizes, whole = (np.array(column) for column in zip(*((len(one), len(one) * one.stretch) for one in traces), strict=True))
    return float(whole[order].sum() / max(1, sizes[order].sum()))


def _work(traces: Sequence[Trace], served: Sequence[ServedAccesses], order: np.ndarray) -> state.Work:
    steps = np.cumsum([0, *(len(trace.steps) for trace in traces)])
    rows = np.cumsum([0, *(len(one.accesses) for one in served)])
    starts = np.concatenate([trace.starts[:-1] + at for trace, at in zip(traces, steps[:-1], strict=True)])
    ends = np.concatenate([trace.starts[1:] + at for trace, at in zip(traces, steps[:-1], strict=True)])
    access_starts = np.concatenate([trace.access_starts[:-1] + at for trace, at in zip(traces, rows[:-1], strict=True)])
    return state.Work(
        np.concatenate([trace.steps for trace in traces]).astype(np.int64), starts, ends,
        np.concatenate([one.accesses for one in served]), access_starts, traces[0].waves,
        order,
    )  # fmt: skip


def _free_accesses(work: state.Work, code: CodeColumns, traces: Sequence[Trace], on: Mechanisms) -> None:
    """Removes the clocks of LDS accesses, of the coalescer, or of both, as `on` says."""
    if on.lds and on.coalescer:
        return
    numbers = np.concatenate([trace.access_numbers(code) for trace in traces])
    lds = code.lane_bytes[numbers] > 0
    lds &= code.kind[numbers] == Kind.LDS
    if not on.lds:
        work.accesses[lds, 0] = 0
    if not on.coalescer:
        work.accesses[~lds, 0] = 0


def _matrix_type(sampled: SampledLaunch) -> str:
    """Returns the element type of the matrix instruction that the first workgroup executed most, "" without any."""
    found = np.bincount(sampled.whole[0].steps, minlength=len(sampled.code.unit))
    matrix = {n: int(found[n]) for n, inst in sampled.instructions.items() if inst.spec.kind == "matrix"}
    most = max(matrix, key=lambda n: matrix[n], default=None)
    if most is None:
        return ""
    inst = sampled.instructions[most]
    return element(inst.mnemonic, [int(inst.mods.get(name, 0)) for name in ("cbsz", "blgp")])


def _busy(result: state.CuResult, chip: HardwareDescriptor) -> Busy:
    clocks, tally = max(1, result.clocks), result.tally
    matrix, valu = (float(tally[each]) / chip.simds_per_cu for each in (state.Tally.MATRIX_CLOCKS, state.Tally.VALU_CLOCKS))
    return Busy(matrix / clocks, valu / clocks, float(tally[state.Tally.LDS_CLOCKS]) / clocks)


def _loop_busy(result: state.CuResult, chip: HardwareDescriptor, mhz: float) -> Busy:
    """Returns the fractions between the first and the last matrix instruction, as `hardware.rates.clocks` has duties of loops.

    In a launch of one round the loops of all CUs coincide, and the board holds their clock, unless they last less than POWER_US.
    """
    busy, tally = _busy(result, chip), result.tally
    if not tally[state.Tally.MATRIX_CLOCKS]:
        return busy
    loop = max(float(tally[state.Tally.MATRIX_END] - tally[state.Tally.MATRIX_BEGIN]), POWER_US * mhz)
    longer = max(1.0, result.clocks / loop)
    return Busy(busy.matrix * longer, busy.valu * longer, busy.lds * longer)


def _shares(result: state.CuResult, chip: HardwareDescriptor, mhz: float, sharing: Sharing, back: float) -> dict[str, float]:
    """Returns the fractions of their peaks that the units of a CU, and L2 and HBM for all CUs, reach.

    back: clocks for which L2s write back afterwards. HBM has no more than its peak: the Infinity Cache may hold the rest.
    """
    clocks, tally = max(1, result.clocks), result.tally
    busy, hbm = _busy(result, chip), chip.hbm_bandwidth_tb * 1e6 / mhz
    made = {
        "matrix": busy.matrix,
        "VALU": busy.valu,
        "LDS": busy.lds,
        "vector cache": tally[state.Tally.VMEM_CLOCKS] / clocks,
        "L2": tally[state.Tally.L2_BYTES] / clocks * sharing.l2 / chip.l2_bytes_per_clock,
        "HBM": min(1.0, tally[state.Tally.HBM_BYTES] / (clocks + back) * sharing.memory / hbm),
    }
    return {name: float(value) for name, value in made.items()}


LITTLE = 0.05  # fraction of all waves' clocks below which a wait does not limit
NEAR = 0.7  # fraction of its peak from which a unit limits
WAITS = "latency of memory and LDS"
LATENCY = {
    "WAITCNT": WAITS, "BARRIER_WAIT": "barriers", "NO_INSTRUCTION_AVAILABLE": "instruction fetch",
    "ARBITER_NOT_WIN": "issue", "ARBITER_WIN_EX_STALL": "busy units", "OTHER_WAIT": "wait states", "SLEEP_WAIT": "s_sleep",
}  # fmt: skip


def _limit(
    reached: dict[str, float], result: state.CuResult, floors: dict[str, float], cycles: float, seconds: float, overhead: float
) -> str:  # fmt: skip
    for name, least in floors.items():
        if least >= cycles:
            return name
    if overhead > seconds / 2:
        return "launch"
    best = max(reached, key=lambda name: reached[name])
    if reached[best] >= NEAR:
        return best
    by_reason = result.stalls.sum(0)
    if by_reason.max() < LITTLE * result.latency.sum():
        return "issue"
    return LATENCY.get(state.Stall(by_reason.argmax()).name, "issue")
