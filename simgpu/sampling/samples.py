"""Predicts the time of a launch: runs samples of its workgroups and passes them to `simgpu.timing`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import numpy as np

from simgpu.checks.path_trace.check import PathTrace
from simgpu.engine.allocations import FIRST_ADDRESS, DeviceMemory, SavedMemory
from simgpu.engine.device import Kernel
from simgpu.engine.launch import Launch
from simgpu.engine.workers.initial_state import registers
from simgpu.hardware.code_object.arguments import Geometry, check_geometry
from simgpu.hardware.errors import Deadlock, InstructionLimit, LaunchError, SimError
from simgpu.hardware.isa.code.flow import INDIRECT
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Kind
from simgpu.sampling.kinds import MOST_STEPS, choose_groups, share
from simgpu.sampling.values import demand_of_launch, reads_left_out
from simgpu.sampling.workgroups import Sampling, Streams
from simgpu.timing.caches import Warm
from simgpu.timing.channels import busy_channels, lines_of
from simgpu.timing.code import CodeColumns
from simgpu.timing.contention import atomics_of, line_contention
from simgpu.timing.dispatch import spread
from simgpu.timing.front import Front
from simgpu.timing.history import LaunchHistory
from simgpu.timing.native.state import ATOMIC, COHERENT, STORE
from simgpu.timing.predict import GroupResources, Prediction, SampledLaunch, predict
from simgpu.timing.trace import LINE_BYTES, DistinctLines, Trace, distinct, part_of, renumber, traces_of

SMALL = 1 << 24  # smaller allocations (bytes) are always restored: flags that workgroups wait for are in these
BEGINNING_STEPS = 1_000_000  # records of all beginnings, all waves together
LEAST_STEPS = 256  # least records of a wave's beginning
MOST_BEGINNINGS = 1024  # most workgroups of a round that begin
# Most rounds, except the one around the longest workgroup, whose memory channels are examined. The search stops once the rounds
# together keep this fraction of the channels busy.
MOST_ROUNDS, ALL_CHANNELS = 16, 0.9
# Earlier workgroups that are run so that L2 is as they leave it: until they have requested REMEMBERED times L2's lines.
MOST_EARLIER, REMEMBERED = 4096, 1.25
FRONT_STEPS = 4_000_000  # most records of a round whose workgroups are traced to their ends
UNKNOWN_LOOP = 0.05  # wider band if a trace ends before its workgroup
ENDLESS = 0.5  # wider band if a workgroup has not ended after MOST_STEPS


def sample(kernel: Kernel, geometry: Geometry, args: Sequence[object], restore: bool = True) -> SampledLaunch:
    """Runs samples of a launch. Raises the errors of a launch.

    Matrix instructions whose results reach only stored data are left out. If a load that decides something may have read such data,
    or the launch failed, it runs again with all of its instructions.

    restore: True restores all of the device's memory afterwards. False restores only small allocations, unless samples may run
    again.
    """
    check_geometry(kernel.info, geometry)
    kernel.check_buffers(args)
    sampling = Sampling(_traced_kernel(kernel, False), geometry, args)
    try:
        found = _sample(sampling, kernel, restore)
        if not reads_left_out(sampling.code, [*found.whole, *found.beginnings], demand_of_launch(sampling.launch)):
            return found
    except SimError:
        if not demand_of_launch(sampling.launch).unneeded:
            raise
    return _sample(Sampling(_traced_kernel(kernel, True), geometry, args), kernel, restore)


def _sample(sampling: Sampling, kernel: Kernel, restore: bool) -> SampledLaunch:
    device, chip = kernel.module.device, kernel.module.device.descriptor
    launch, saved = sampling.launch, SavedMemory([])
    try:
        sampling.begin()
        saved = SavedMemory.of(device.memory, None if restore or _may_run_again(sampling) else SMALL)
        used = _resources(launch)
        together = min(launch.groups, chip.num_cus * used.resident(chip), MOST_BEGINNINGS)
        places = chip.num_cus * used.resident(chip)
        wholes, told = choose_groups(sampling, saved, places)
        steps, cut = _steps_of_beginnings(wholes, launch, together, places)
        # Around the longest workgroup, because those at the edges of the launch may have less to do.
        longest = max(wholes, key=lambda one: one.executed).group
        after = min(together, max(0, launch.groups - places)) if cut and not told.shared_by else 0  # workgroups of the next round
        last = launch.groups - (places + after if after else together)
        begun = min(max(0, longest - together // 2), last) // chip.xcds * chip.xcds
        beginnings = _round(sampling, begun, together, steps)
        later = _next_round(sampling, begun + places, after, steps)
        channels = _channels(sampling, beginnings, steps)
        front = None if told.shared_by else _extend(sampling, beginnings, places, steps)
        instructions, code = dict(launch.program.instructions), sampling.code
    except Deadlock as error:
        raise LaunchError(f"{kernel.title}: a single workgroup never ends, it waits for others: not modelled ({error})") from None
    finally:
        launch.end(False)
        saved.restore()
    both = [*wholes, *beginnings, *later, *(told.alike if cut else ())]
    ran = traces_of(
        code, [one.streams for one in both], launch.entry,
        [*(one.complete for one in wholes), *(False for _ in both[len(wholes) :])], [one.group for one in both],
        [*(one.executed / max(1, one.kept) for one in wholes), *(1.0 for _ in both[len(wholes) :])],
    )  # fmt: skip
    traces, pages = renumber(ran)
    end = len(wholes) + len(beginnings)
    whole, first, after_these = traces[: len(wholes)], traces[len(wholes) : end], traces[end : end + len(later)]
    notes, wider = list(told.notes), told.wider
    if told.shared_by:
        whole = [part_of(code, whole[0], share(code, whole[0], told.shared_by))]
    if not all(trace.complete for trace in whole):
        notes.append(f"a wave went on past {MOST_STEPS:,} instruction words: its rest is not included in the time")
        wider += ENDLESS
    if any(trace.stretch > 1.01 for trace in whole):
        stretch = max(trace.stretch for trace in whole)
        notes.append(f"waves run up to {stretch:.3g} times as long as was traced: the rest is extrapolated")
        wider += UNKNOWN_LOOP
    atomics = [*told.atomics, *(atomics_of(code, trace) for trace in ran[:end])]
    contention = line_contention(code, atomics, launch.groups, pipelines(chip.arch).l2_line, chip.xcds)
    whole.sort(key=len, reverse=True)
    chosen = code.flags & (STORE | ATOMIC) != 0
    loads, stores = (_allocations_of(device.memory, code, ran[: len(wholes)], of) for of in (~chosen, chosen))
    return SampledLaunch(
        chip, instructions, code, launch.entry, _base_of(launch), whole, first, launch.groups, used, notes, wider, channels,
        contention, front, after_these, traces[end + len(later) :],
        reachable=float(sum((loads | stores).values())), loads=loads, stores=stores, grid=launch.geometry.groups, pages=pages,
        all_traced=len(beginnings) == launch.groups and not told.shared_by and all(one.complete for one in beginnings),
        functions=_functions_of(launch),
    )


def _functions_of(launch: Launch) -> dict[int, str]:
    """Returns `SampledLaunch.functions`."""
    code, info, base = launch.kernel.module.code, launch.kernel.info, _base_of(launch)
    outside = (number for number in launch.program.instructions if base + 4 * number not in info)
    return {number: code.address_name(info, base + 4 * number) for number in outside} if code.functions else {}


def _base_of(launch: Launch) -> int:
    """Returns `SampledLaunch.base`."""
    return launch.program.base - launch.kernel.module.bias


def _may_run_again(sampling: Sampling) -> bool:
    """True if a sample may need memory as it was before the samples: workgroups may wait for others or take their work from
    memory, or a load may decide something by data that were left out. Kernel arguments, which scalar loads read, do not change."""
    code, demand = sampling.code, demand_of_launch(sampling.launch)
    shared = code.flags & (ATOMIC | COHERENT) != 0
    indirect = any(inst.spec.control in INDIRECT for inst in sampling.launch.program.instructions.values())
    decides = any(code.kind[number] != Kind.SMEM for number in demand.deciding)
    return bool(shared.any()) or indirect or (decides and bool(demand.doubtful))


def _allocations_of(memory: DeviceMemory, code: CodeColumns, traces: Sequence[Trace], chosen: np.ndarray) -> dict[int, int]:
    """Returns the first lines and the bytes of the allocations that instructions of some workgroups access. chosen: True for
    these."""
    lines = distinct(np.concatenate([trace.lines_of(code, chosen & code.accesses) for trace in traces]))
    # Traces count lines from FIRST_ADDRESS, in 32 bits.
    first = np.array([(one.base - FIRST_ADDRESS) // LINE_BYTES for one in memory.allocations]) % (1 << 32)
    sizes = np.array([one.data.size for one in memory.allocations])
    accessed = np.searchsorted(lines, first) < np.searchsorted(lines, first + sizes // LINE_BYTES)
    return dict(zip(first[accessed].tolist(), sizes[accessed].tolist(), strict=True))


def _steps_of_beginnings(wholes: Sequence[Streams], launch: Launch, together: int, places: int) -> tuple[int, bool]:
    """Returns the records of a wave that are traced in a round's workgroups: all, if there are several short rounds. True if
    waves execute more."""
    longest = max(one.executed for one in wholes)
    if launch.groups > places and all(one.complete for one in wholes) and longest * together <= FRONT_STEPS:
        return longest, False
    steps = max(LEAST_STEPS, BEGINNING_STEPS // (together * launch.waves))
    return steps, steps * launch.waves < longest


def _round(sampling: Sampling, first: int, together: int, steps: int) -> list[Streams]:
    """Runs the beginnings of `together` consecutive workgroups from `first` on, each wave for `steps` records."""
    return [sampling.sample(group, steps) for group in range(first, first + together)]


def _next_round(sampling: Sampling, first: int, count: int, steps: int) -> list[Streams]:
    """Runs the beginnings of `count` workgroups from `first` on; none if they wait for others."""
    try:
        return _round(sampling, first, count, steps)
    except Deadlock:
        return []


def _extend(sampling: Sampling, beginnings: list[Streams], places: int, steps: int) -> Front | None:
    """Adds workgroups beside those of `beginnings`, until the last ones find L2 as earlier rounds leave it.

    Returns None, and adds none, if the launch has one round only, or if a workgroup is not traced to its end. places: workgroups
    that the GPU holds.
    """
    launch = sampling.launch
    chip = launch.device.descriptor
    if launch.groups <= places or not all(one.complete for one in beginnings):
        return None
    wanted = REMEMBERED * chip.l2_bytes * chip.xcds / LINE_BYTES
    made, known, counted = list(beginnings), DistinctLines(), set[int]()
    while len(made) < min(launch.groups, 2 * places + MOST_EARLIER):
        earlier = [one for one in made[: -2 * places] if one.group not in counted]
        counted.update(one.group for one in earlier)
        known.add(lines_of([one.streams for one in earlier]))
        if known.count >= wanted:
            break
        first, after = made[0].group, made[-1].group + 1
        more = min(max(chip.xcds, places // 2), launch.groups - after or first)
        begin = after if after < launch.groups else first - more
        try:
            added = _round(sampling, begin, more, steps)
        except Deadlock:  # they wait for others
            return None
        if not all(one.complete for one in added):
            return None
        made = made + added if begin == after else added + made
    beginnings[:] = made
    return Front(places, launch.groups / places)


def _channels(sampling: Sampling, beginnings: Sequence[Streams], steps: int) -> float:
    """Returns the fraction of memory's channels that are busy: 1 if the chip's channels do not depend on the address.

    Otherwise it is the fraction in one round, `beginnings`, and in rounds from all over the launch.
    """
    launch = sampling.launch
    row, together = pipelines(launch.device.arch), len(beginnings)
    if not row.memory_channels:
        return 1.0
    rounds = [lines_of([one.streams for one in beginnings])]
    for first in islice(spread(launch.groups - together + 1, MOST_ROUNDS), MOST_ROUNDS):
        rounds.append(lines_of([one.streams for one in _round(sampling, first, together, steps)]))
        if sum(map(bool, map(len, rounds))) > 1 and busy_channels(rounds, row) > ALL_CHANNELS:
            break
    return busy_channels(rounds, row)


def _traced_kernel(kernel: Kernel, values: bool) -> Kernel:
    """Returns the kernel on a device that shares the memory and traces paths. values: as for `PathTrace`. Cached by module."""
    module = kernel.module
    kept = module.device.shadows.setdefault("timed", {})
    key = id(module), values
    if key not in kept:
        kept[key] = module.on(module.device.sharing([PathTrace(values)])), module
    return Kernel(kept[key][0], kernel.info)


def _resources(launch: Launch) -> GroupResources:
    descriptor = launch.info.descriptor
    vgprs, agprs = registers(descriptor, launch.device.arch)
    return GroupResources(vgprs, agprs, descriptor.sgprs, launch.lds_bytes, launch.waves)


def time_launch(
    kernel: Kernel, geometry: Geometry, args: Sequence[object], *, mhz: float | None = None, warm: Warm | LaunchHistory = False,
    events: int = 0, restore: bool = True,
) -> Prediction:  # fmt: skip
    """Predicts the time of a launch; restore: as for `sample`; the others: see `simgpu.timing.predict.predict`."""
    if mhz is not None and not 0 < mhz < math.inf:
        raise LaunchError(f"mhz={mhz}: give the engine's clock in MHz, more than 0, or None for the clock that the board sustains")
    if not isinstance(warm, LaunchHistory) and warm not in (False, True, "last", "stored"):
        text = "give True if caches hold an earlier launch's lines, 'last' if the last cache does, 'stored' if it stored them"
        raise LaunchError(f"warm={warm!r}: {text}")
    try:
        sampled = sample(kernel, geometry, args, restore)
    except InstructionLimit as error:
        raise LaunchError(f"{kernel.title}: {error}; a workgroup that waits for others cannot be timed on its own") from None
    return predict(sampled, mhz=mhz, warm=warm, events=events)
