"""Models the waves of a compute unit: who issues next, why a wave waits, barriers, the begin and end of workgroups.

`run` is machine code (`simgpu.machine.runtime`), with all functions here and in `units` that it calls.
"""

from __future__ import annotations

from simgpu.hardware.timing_rules.issue import SLOT, Kind, Unit
from simgpu.machine.runtime import native, part
from simgpu.timing.native.state import (
    KEY_PRIORITY,
    KEY_TIME,
    NEVER,
    PRODUCERS,
    SIMDS,
    UNITS,
    Cu,
    CuResult,
    Stall,
    Tally,
    Work,
)  # fmt: skip
from simgpu.timing.native.units import execute, hold_for_counters, nth_last_completion, rank


@part
def fetch(cu, wave, line, time):  # type: ignore[no-untyped-def]
    """Holds a wave back until its next line of instructions arrives. Straight code streams; a jump waits for L2."""
    config, progress = cu.config[0], cu.progress[0]
    if line == wave.line or config.code_stream == 0:
        return
    wave.line = line
    if cu.code_time[line] < 0 or progress.fetched - cu.code_number[line] > config.code_lines:
        jumped = 0 if line > 0 and cu.code_time[line - 1] >= 0 else config.latency[0]
        progress.code_free = max(progress.code_free + config.code_stream, time - config.code_stream + jumped)
        cu.code_time[line], cu.code_number[line] = progress.code_free, progress.fetched
        progress.fetched += 1
    if cu.code_time[line] > wave.ready:
        wave.ready, wave.why = cu.code_time[line], Stall.NO_INSTRUCTION_AVAILABLE


@part
def order(wave, issue, index, simd, waves):  # type: ignore[no-untyped-def]
    """Returns a candidate's rank. Waves of equal priority take turns at the VALU; for other units the oldest goes first."""
    unit = wave.want - simd * UNITS
    if unit == Unit.VALU or unit == Unit.MATRIX or unit == Unit.ALONE or unit == Unit.TRANS:
        return wave.rank >> KEY_PRIORITY << KEY_PRIORITY | (index - issue.last[wave.want] - 1) % waves
    return wave.rank


@part
def arbitrate(cu):  # type: ignore[no-untyped-def]
    """Returns the SIMD that issues next, or -1, and its candidate's key. SIMDs take turns, one a clock."""
    issue, simd, key = cu.issue[0], -1, NEVER << 1
    for number in range(SIMDS):
        if issue.dirty[number]:
            low, who = NEVER << 1, -1
            for index in range(number, len(cu.waves), SIMDS):
                wave = cu.waves[index]
                if wave.ready >= NEVER:
                    continue
                when = max(wave.ready, issue.free[wave.want])
                when = ((when - number + SLOT - 1) & -SLOT) + number  # rounded up to its turn
                candidate = when << KEY_TIME | order(wave, issue, index, number, len(cu.waves))
                if candidate < low:
                    low, who = candidate, index
            issue.best[number], issue.best_wave[number], issue.dirty[number] = low, who, 0
        if issue.best[number] < key:
            key, simd = issue.best[number], number
    return simd, key


@part
def note_wait(wave, issue, result, kind, index, now, time):  # type: ignore[no-untyped-def]
    """Counts an issued instruction, and its wave's stall: first until the wave was ready, then until the unit was free."""
    result.hits[now] += 1
    result.tally[Tally.ISSUED] += 1
    stall = time - wave.came
    last = issue.last[wave.want]
    issue.last[wave.want] = index
    if stall <= 0:
        return
    held = min(stall, max(0, wave.ready - wave.came))
    result.stalls[now, wave.why] += held
    if kind == Kind.WAIT and held > 0 and wave.producer >= 0:
        for column in range(PRODUCERS):
            if result.producers[now, column] == wave.producer or result.producers[now, column] < 0:
                result.producers[now, column] = wave.producer
                result.waited[now, column] += held
                break
    if stall > held:
        result.stalls[now, Stall.ARBITER_WIN_EX_STALL if last == index or last < 0 else Stall.ARBITER_NOT_WIN] += stall - held


@part
def watch(cu, work, wave, simd, now, ready, tally):  # type: ignore[no-untyped-def]
    """Tallies the clocks in which the SIMD has a wave among the watched instructions."""
    issue, config = cu.issue[0], cu.config[0]
    before = config.watch_first <= now < config.watch_end
    after = wave.at < wave.stop and config.watch_first <= work.steps[wave.at] < config.watch_end
    if after and not before:
        if issue.inside[simd] == 0:
            issue.since[simd] = ready
        issue.inside[simd] += 1
    elif before and not after:
        issue.inside[simd] -= 1
        if issue.inside[simd] == 0:
            tally[Tally.WATCHED] += ready - issue.since[simd]


@part
def note_event(wave, progress, group, log, index, now, time, ready):  # type: ignore[no-untyped-def]
    """Writes a row of the log while it has room."""
    wave.noted = -1
    if progress.logged < len(log):
        row = log[progress.logged]
        row[0], row[1], row[2], row[3], row[4], row[5] = index, now, wave.came, time, ready, group.number
        wave.noted = progress.logged
        progress.logged += 1


@part
def begin_wave(cu, work, group, index, source, begin):  # type: ignore[no-untyped-def]
    """Begins a wave at clock `begin`. source: index of a trace's wave in `work.starts`."""
    wave, out, progress = cu.waves[index], cu.outstanding[index], cu.progress[0]
    wave.at, wave.stop, wave.access = work.starts[source], work.ends[source], work.access_starts[source]
    wave.line, wave.producer, wave.why = -1, -1, Stall.OTHER_WAIT
    out.vm.count, out.lds.count, out.scalar_time, out.scalar_by = 0, 0, 0, -1
    cu.earlier[index][:] = 0
    wave.age = progress.ages
    progress.ages += 1
    wave.rank = rank(0, wave.age)
    if wave.at >= wave.stop:
        wave.ready = NEVER
        group.live -= 1
        return
    wave.ready = wave.came = begin + cu.config[0].start
    wave.want = index % SIMDS * UNITS + cu.code[work.steps[wave.at]].unit
    cu.issue[0].dirty[index % SIMDS] = 1


@part
def begin_groups(cu, work, ends):  # type: ignore[no-untyped-def]
    """Begins a workgroup at each place that waits for one."""
    progress, again = cu.progress[0], 0
    for place in range(len(cu.groups) if progress.waiting else 0):
        group = cu.groups[place]
        begin, number, group.pending = group.pending, progress.begun, -1
        if begin < 0 or number >= len(work.order):
            continue
        progress.begun += 1
        group.number, group.live, group.arrived = number, work.waves, 0
        for index in range(work.waves):
            begin_wave(cu, work, group, place * work.waves + index, work.order[number] * work.waves + index, begin)
        if group.live == 0:
            ends[number] = begin
            progress.left -= 1
            group.pending, again = begin, 1
    progress.waiting = again


@part
def end_wave(cu, work, wave, out, group, time, ends):  # type: ignore[no-untyped-def]
    """Ends a wave. After the last wave of a workgroup, its place is free once its memory operations are complete."""
    progress, wave.ready = cu.progress[0], NEVER
    group.live -= 1
    finish = max(time, out.scalar_time)
    if out.vm.count > 0:
        finish = max(finish, out.vm.time[nth_last_completion(out.vm, 0)])
    ends[group.number] = max(ends[group.number], finish)
    if group.live == 0:
        progress.left -= 1
        if progress.begun < len(work.order):
            group.pending, progress.waiting = ends[group.number], 1


@part
def release_barrier(cu, work, result, place, time):  # type: ignore[no-untyped-def]
    """Releases the waves of a workgroup when all its live waves have arrived at the barrier."""
    cu.groups[place].arrived = 0
    for index in range(place * work.waves, (place + 1) * work.waves):
        wave = cu.waves[index]
        if wave.ready < NEVER or wave.ready == NEVER:
            continue
        waited, wave.came = time - (wave.ready - NEVER), time + cu.config[0].barrier
        wave.ready = max(wave.held, wave.came)
        step = work.steps[wave.at - 1]
        result.stalls[step, Stall.BARRIER_WAIT] += waited
        result.latency[step] += waited
        if wave.noted >= 0:
            result.log[wave.noted, 3] += waited
            result.log[wave.noted, 4] += waited
        cu.issue[0].dirty[index % SIMDS] = 1


@part
def go_on(cu, work, index, inst, time, ready, ends, code_line):  # type: ignore[no-untyped-def]
    """Moves a wave to its next instruction, or ends it. Sets the time at which the wave is ready for that instruction."""
    wave, out, group = cu.waves[index], cu.outstanding[index], cu.groups[index // work.waves]
    if inst.kind == Kind.END or wave.at >= wave.stop:
        end_wave(cu, work, wave, out, group, time, ends)
        return
    step = work.steps[wave.at]
    after = cu.code[step]
    wave.ready = wave.came = ready
    wave.why, wave.producer = Stall.OTHER_WAIT, -1
    fetch(cu, wave, step // code_line, time)
    hold_for_counters(wave, out, after)
    wave.want = index % SIMDS * UNITS + after.unit
    if inst.kind == Kind.BARRIER:
        group.arrived += 1
        wave.held, wave.ready = wave.ready, NEVER + time


@native
def run(cu: Cu, work: Work, result: CuResult) -> int:
    """Runs the workgroups from issue to issue and fills `result`; returns the number of events in the log."""
    config, issue, progress = cu.config, cu.issue[0], cu.progress[0]
    code_line, watches = max(1, config[0].code_line // 4), config[0].watch_end > 0
    while progress.left > 0:
        begin_groups(cu, work, result.ends)
        simd, key = arbitrate(cu)
        if simd < 0:
            if progress.waiting:
                continue
            break  # waves wait for each other forever
        index, time = issue.best_wave[simd], key >> KEY_TIME
        wave = cu.waves[index]
        issue.dirty[simd] = 1
        if issue.free[wave.want] > time:  # another SIMD took a unit that they share
            continue
        now, place = work.steps[wave.at], index // work.waves
        inst = cu.code[now]
        note_wait(wave, issue, result, inst.kind, index, now, time)
        ready = execute(cu, work, inst, index, now, time, simd, result.tally)
        if inst.kind == Kind.SLEEP:
            result.stalls[now, Stall.SLEEP_WAIT] += inst.clocks - SLOT
        result.latency[now] += ready - wave.came
        note_event(wave, progress, cu.groups[place], result.log, index, now, time, ready)
        wave.at += 1
        if watches:
            watch(cu, work, wave, simd, now, ready, result.tally)
        go_on(cu, work, index, inst, time, ready, result.ends, code_line)
        group = cu.groups[place]
        if group.arrived > 0 and group.arrived >= group.live:
            release_barrier(cu, work, result, place, time)
    return progress.logged
