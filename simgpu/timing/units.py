"""Models the units of a compute unit: how long an instruction occupies each.

Times are clocks of the engine. Each unit and queue stores the time at which it takes the next instruction. The figures and
their sources are in `hardware.rates.pipelines`, the rules in `hardware.timing_rules.issue`.

numba compiles `run` and all functions that it calls as one, and its cache depends on this file only, so all are here. `unit`
marks inlined functions. Reference counting is off: for `Cu` it would take six times as long as the rest. Nothing here allocates.
"""

from __future__ import annotations

import numba

from simgpu.hardware.timing_rules.issue import MOST_LGKM, MOST_VM, SLOT, Kind, Unit
from simgpu.timing import state
from simgpu.timing.code import AHEAD, ATOMIC, COUNTS_LGKM, COUNTS_VM, INSTANT, STORE
from simgpu.timing.state import FLIGHTS, KEY_PRIORITY, KEY_TIME, LEVELS, NEVER, PRODUCERS, SIMDS, UNITS, Stall, Tally

OPTIONS = {"nogil": True, "error_model": "numpy", "boundscheck": False, "_nrt": False}
unit = numba.njit(cache=True, forceinline=True, **OPTIONS)


@unit
def completion(cu, inst, index, now, time, end):  # type: ignore[no-untyped-def]
    """Returns the time at which a wave can use a load that ends at `end`: earlier if it is INSTANT or AHEAD."""
    if inst.flags & AHEAD:
        before, cu.earlier[index, now] = cu.earlier[index, now], end
        return before if before > 0 else end
    return time if inst.flags & INSTANT else end


@unit
def count(ring, end, now):  # type: ignore[no-untyped-def]
    """Adds an operation to a counter and returns the time at which it completes: not before the counter's earlier ones."""
    if ring.count > 0:
        end = max(end, ring.time[(ring.count - 1) % MOST_VM])
    ring.time[ring.count % MOST_VM], ring.by[ring.count % MOST_VM] = end, now
    ring.count += 1
    return end


@unit
def nth_last_completion(ring, left):  # type: ignore[no-untyped-def]
    """Returns the place in a counter's ring of the youngest operation that completes before only `left` are in flight."""
    return (ring.count - left - 1) % MOST_VM


@unit
def hold_for_counters(wave, out, after):  # type: ignore[no-untyped-def]
    """Holds a wave back until its next instruction can go: s_waitcnt, or room in a counter."""
    if after.kind == Kind.WAIT:
        bound = wave.ready
        if after.vm >= 0 and out.vm.count > after.vm:
            place = nth_last_completion(out.vm, after.vm)
            if out.vm.time[place] > bound:
                bound, wave.producer = out.vm.time[place], out.vm.by[place]
        if after.lgkm >= 0:
            if out.lds.count > after.lgkm:
                place = nth_last_completion(out.lds, after.lgkm)
                if out.lds.time[place] > bound:
                    bound, wave.producer = out.lds.time[place], out.lds.by[place]
            if out.scalar_time > bound:
                bound, wave.producer = out.scalar_time, out.scalar_by
        if bound > wave.ready:
            wave.ready, wave.why = bound, Stall.WAITCNT
    elif after.kind == Kind.VMEM and out.vm.count >= MOST_VM:
        wave.ready = max(wave.ready, out.vm.time[nth_last_completion(out.vm, MOST_VM - 1)])
    elif after.kind == Kind.LDS and out.lds.count >= MOST_LGKM:
        wave.ready = max(wave.ready, out.lds.time[nth_last_completion(out.lds, MOST_LGKM - 1)])


@unit
def take_valu(issue, slot, index, valu, matrix, alone):  # type: ignore[no-untyped-def]
    """Sets the times at which a SIMD's issue port takes the next VALU, matrix and lone instruction."""
    issue.free[slot + Unit.VALU], issue.free[slot + Unit.MATRIX], issue.free[slot + Unit.ALONE] = valu, matrix, alone
    issue.last[slot + Unit.VALU] = issue.last[slot + Unit.MATRIX] = issue.last[slot + Unit.ALONE] = index


@unit
def issue_plain(issue, inst, slot, index, time, tally):  # type: ignore[no-untyped-def]
    """Issues a vector or scalar ALU instruction, or s_nop, which occupies no unit. Returns when the wave goes on."""
    until = time + inst.clocks
    if inst.unit == Unit.VALU or inst.unit == Unit.ALONE:
        matrix, alone = issue.free[slot + Unit.MATRIX], issue.free[slot + Unit.ALONE]
        take_valu(issue, slot, index, until, max(matrix, until), max(alone, until))
        tally[Tally.VALU_CLOCKS] += inst.clocks
        return max(time + SLOT, until)
    if inst.unit == Unit.NONE:
        return until
    issue.free[slot + inst.unit] = time + SLOT
    return time + SLOT


@unit
def lds_access(lds, config, pair, clocks, port, time):  # type: ignore[no-untyped-def]
    """Sends an access through a pair's port and the banks. Returns when it is done, and when the port's queue has room."""
    begin = max(time, lds.port_free[pair])
    lds.bank_free = max(begin, lds.bank_free) + clocks
    done = max(begin + port, lds.bank_free)
    lds.port_free[pair] = done
    at = lds.fifo_at[pair]
    lds.fifo[pair, at] = done
    at = 0 if at + 1 == config.lds_fifo else at + 1
    lds.fifo_at[pair] = at
    return done, lds.fifo[pair, at]


@unit
def issue_lds(cu, work, inst, index, now, time, simd, tally):  # type: ignore[no-untyped-def]
    """Issues an LDS instruction. Both SIMDs of its port then wait for room in the port's queue."""
    wave, issue, config, clocks = cu.waves[index], cu.issue[0], cu.config[0], work.accesses[cu.waves[index].access, 0]
    wave.access += 1
    done, room = lds_access(cu.lds[0], config, simd >> 1, clocks, inst.port, time)
    tally[Tally.LDS_CLOCKS] += clocks
    issue.free[simd * UNITS + Unit.LDS] = max(time + SLOT, room)
    other = (simd ^ 1) * UNITS + Unit.LDS
    issue.free[other] = max(issue.free[other], room)
    if inst.flags & COUNTS_LGKM:
        count(cu.outstanding[index].lds, completion(cu, inst, index, now, time, done + config.lds_latency), now)


@unit
def wait_for_room(vmem, config, nbytes, begin):  # type: ignore[no-untyped-def]
    """Returns when a load of `nbytes` may begin: the CU limits the bytes of loads in flight."""
    while vmem.flying > 0 and vmem.flight_end[vmem.first % FLIGHTS] <= begin:
        vmem.flying -= vmem.flight_bytes[vmem.first % FLIGHTS]
        vmem.first += 1
    while vmem.flying > 0 and (vmem.flying + nbytes > config.in_flight or vmem.last - vmem.first >= FLIGHTS):
        begin = max(begin, vmem.flight_end[vmem.first % FLIGHTS])
        vmem.flying -= vmem.flight_bytes[vmem.first % FLIGHTS]
        vmem.first += 1
    return begin


@unit
def coalesce(vmem, issue, config, begin, through):  # type: ignore[no-untyped-def]
    """Occupies the address coalescer; all SIMDs wait for room in its queue."""
    vmem.coalescer_free = begin + through
    vmem.queue[vmem.queue_at] = begin
    vmem.queue_at = 0 if vmem.queue_at + 1 == config.vmem_queue else vmem.queue_at + 1
    room = vmem.queue[vmem.queue_at]
    for place in range(Unit.VMEM, SIMDS * UNITS, UNITS):
        issue.free[place] = max(issue.free[place], room)


@unit
def move(cu, now, begin, through, moved, is_store, tally):  # type: ignore[no-untyped-def]
    """Moves `moved` bytes through L2, and their part through later levels. Returns the clocks of delay by the slowest level.

    A store does not wait for later levels as long as L2 has room for it.
    """
    vmem, config = cu.vmem[0], cu.config[0]
    delay, amount = 0.0, float(moved)
    for level in range(LEVELS):
        if level > 0:
            cu.owed[level, now] += amount * cu.past[level - 1, now]
            amount = cu.owed[level, now]
            if amount < config.line:
                break
            cu.owed[level, now] = 0.0
        rate = config.store_rate if is_store and level == 0 else config.rate[level]
        ahead = config.burst / config.rate[level]
        vmem.level_free[level] = max(vmem.level_free[level], begin - ahead) + amount / rate
        room = config.room / config.rate[level] if is_store and level > 0 else 0.0
        delay = max(delay, vmem.level_free[level] - begin - through - room)
        tally[Tally.L2_BYTES + level] += amount
    return delay


@unit
def level_of(cu, now, missed):  # type: ignore[no-untyped-def]
    """Returns the level that a load waits for. Its lines are equally old, so all of them wait or none."""
    level = 0
    while level + 1 < LEVELS:
        cu.waits[level + 1, now] += missed * cu.late[level, now]
        if cu.waits[level + 1, now] < missed:
            break
        level += 1
        cu.waits[level, now] -= missed
    return level


@unit
def queue_atomic(cu, now, begin, missed):  # type: ignore[no-untyped-def]
    """Returns the clocks until L2 has served an atomic and those of all other CUs: a line, or a channel, serves one at a time."""
    vmem, config = cu.vmem[0], cu.config[0]
    took = max(missed * config.atomic_channel, cu.same_line[now] * config.atomic_line)
    vmem.atomic_free = max(vmem.atomic_free, begin) + took
    return vmem.atomic_free - begin


@unit
def serve(cu, inst, now, begin, through, missed, tally):  # type: ignore[no-untyped-def]
    """Returns when requests that missed the first cache are served. through: clocks that they took to coalesce."""
    vmem, config, is_store = cu.vmem[0], cu.config[0], inst.flags & STORE != 0
    short = inst.kind == Kind.SMEM or inst.flags & (STORE | ATOMIC)
    moved = missed * (config.store_line if short else config.line)
    delay = move(cu, now, begin, through, moved, is_store, tally)
    if inst.flags & ATOMIC:
        delay = max(delay, queue_atomic(cu, now, begin, missed) - through)
    level = 0 if is_store else level_of(cu, now, missed)
    if level + 1 == LEVELS:
        ahead = config.burst / config.miss_rate
        vmem.miss_free = max(vmem.miss_free, begin - ahead) + moved / config.miss_rate
        delay = max(delay, vmem.miss_free - begin - through)
    return begin + through + config.latency[level] + int(delay)


@unit
def issue_vmem(cu, work, inst, index, now, time, simd, tally):  # type: ignore[no-untyped-def]
    """Issues a vector memory instruction: coalescer, vector cache and later levels."""
    wave, out, issue, vmem, config = cu.waves[index], cu.outstanding[index], cu.issue[0], cu.vmem[0], cu.config[0]
    clocks, requests, missed = work.accesses[wave.access, 0], work.accesses[wave.access, 1], work.accesses[wave.access, 2]
    wave.access += 1
    is_store, nbytes, begin = inst.flags & STORE != 0, inst.lane_bytes * 64 if requests else 0, max(time, vmem.coalescer_free)
    if not is_store:
        begin = wait_for_room(vmem, config, nbytes, begin)
    through = max(clocks, min(inst.port, requests * config.line // 64 + 1))
    coalesce(vmem, issue, config, begin, through)
    tally[Tally.VMEM_CLOCKS] += through
    issue.free[simd * UNITS + Unit.VMEM] = max(issue.free[simd * UNITS + Unit.VMEM], time + SLOT)
    end = begin + through + config.cache_latency
    if missed > 0:
        end = serve(cu, inst, now, begin, through, missed, tally)
    known = completion(cu, inst, index, now, time, end)
    if inst.flags & COUNTS_VM:
        known = count(out.vm, known, now)
    if inst.flags & COUNTS_LGKM:
        out.scalar_time, out.scalar_by = max(out.scalar_time, known), now
    end = end if inst.flags & (INSTANT | AHEAD) else known
    if not is_store and nbytes > 0:
        vmem.flight_end[vmem.last % FLIGHTS], vmem.flight_bytes[vmem.last % FLIGHTS] = end, nbytes
        vmem.last += 1
        vmem.flying += nbytes


@unit
def issue_smem(cu, work, inst, index, now, time, slot, tally):  # type: ignore[no-untyped-def]
    """Issues a scalar load. The CU's first execution of an instruction always waits for L2."""
    wave, out, config, missed = cu.waves[index], cu.outstanding[index], cu.config[0], work.accesses[cu.waves[index].access, 2]
    wave.access += 1
    end = time + (config.scalar_hit if cu.scalar_seen[now] else config.latency[0])
    cu.issue[0].free[slot + Unit.SCALAR], cu.scalar_seen[now] = time + SLOT, 1
    if missed > 0:
        end = serve(cu, inst, now, time, 0, missed, tally)
        tally[Tally.SCALAR_BYTES] += missed * config.store_line
    known = completion(cu, inst, index, now, time, end)
    if inst.flags & COUNTS_LGKM and known > out.scalar_time:
        out.scalar_time, out.scalar_by = known, now


@unit
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


@unit
def execute(cu, work, inst, index, now, time, simd, tally):  # type: ignore[no-untyped-def]
    """Issues an instruction; returns when its wave may go on."""
    wave, issue, slot, kind = cu.waves[index], cu.issue[0], simd * UNITS, inst.kind
    ready = time + SLOT
    if kind == Kind.PLAIN:
        ready = issue_plain(issue, inst, slot, index, time, tally)
    elif kind == Kind.MATRIX:
        take_valu(issue, slot, index, time + inst.shadow, time + inst.clocks, time + inst.clocks)
        tally[Tally.MATRIX_CLOCKS] += inst.clocks
    elif kind == Kind.LDS:
        issue_lds(cu, work, inst, index, now, time, simd, tally)
    elif kind == Kind.VMEM:
        issue_vmem(cu, work, inst, index, now, time, simd, tally)
    elif kind == Kind.SMEM:
        issue_smem(cu, work, inst, index, now, time, slot, tally)
    elif kind == Kind.BRANCH:
        issue.free[slot + Unit.BRANCH] = time + SLOT
        # Taken: the next instruction executed is not the next in code.
        if wave.at + 1 < wave.stop and work.steps[wave.at + 1] != now + inst.step:
            ready = time + cu.config[0].branch
    elif kind == Kind.SLEEP:
        ready = time + inst.clocks
    elif kind == Kind.PRIORITY:
        wave.rank = rank(inst.clocks, wave.age)
    return ready


@unit
def rank(priority, age):  # type: ignore[no-untyped-def]
    """Returns a candidate's rank among those of the same time: higher priority first, then greater age. The lowest rank wins."""
    return (3 - priority) << KEY_PRIORITY | age & ((1 << KEY_PRIORITY) - 1)


@unit
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
                candidate = when << KEY_TIME | wave.rank
                if candidate < low:
                    low, who = candidate, index
            issue.best[number], issue.best_wave[number], issue.dirty[number] = low, who, 0
        if issue.best[number] < key:
            key, simd = issue.best[number], number
    return simd, key


@unit
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


@unit
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


@unit
def note_event(wave, progress, group, log, index, now, time, ready):  # type: ignore[no-untyped-def]
    """Writes a row of the log while it has room."""
    wave.noted = -1
    if progress.logged < len(log):
        row = log[progress.logged]
        row[0], row[1], row[2], row[3], row[4], row[5] = index, now, wave.came, time, ready, group.number
        wave.noted = progress.logged
        progress.logged += 1


@unit
def begin_wave(cu, work, group, index, source, begin):  # type: ignore[no-untyped-def]
    """Begins a wave at clock `begin`. source: index of a trace's wave in `work.starts`."""
    wave, out, progress = cu.waves[index], cu.outstanding[index], cu.progress[0]
    wave.at, wave.stop, wave.access = work.starts[source], work.ends[source], work.access_starts[source]
    wave.line, wave.producer, wave.why = -1, -1, Stall.OTHER_WAIT
    out.vm.count, out.lds.count, out.scalar_time, out.scalar_by = 0, 0, 0, -1
    cu.earlier[index] = 0
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


@unit
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


@unit
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


@unit
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


@unit
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


@numba.njit(cache=True, **OPTIONS)
def run(cu, work, result):  # type: ignore[no-untyped-def]
    """Runs the workgroups from issue to issue and fills `result`; returns the number of events in the log."""
    # The arguments are plain tuples: numba's cache would name classes, and be unreadable if another version renames them.
    cu, work, result = state.Cu(*cu), state.Work(*work), state.CuResult(*result)
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
