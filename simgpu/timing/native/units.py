"""Models the units of a compute unit: how long an instruction occupies each.

Times are clocks of the engine. Each unit and queue stores the time at which it takes the next instruction. The figures and
their sources are in `hardware.rates.pipelines`, the rules in `hardware.timing_rules.issue`.

They become machine code with `simgpu.timing.native.waves`, which calls them.
"""

from __future__ import annotations

from simgpu.hardware.timing_rules.issue import MOST_LGKM, MOST_VM, SLOT, Kind, Unit
from simgpu.machine.runtime import part
from simgpu.timing.native.state import (
    AHEAD,
    ATOMIC,
    COUNTS_LGKM,
    COUNTS_VM,
    FLIGHTS,
    INSTANT,
    KEY_PRIORITY,
    LEVELS,
    SIMDS,
    STORE,
    UNITS,
    Stall,
    Tally,
)  # fmt: skip


@part
def completion(cu, inst, index, now, time, end):  # type: ignore[no-untyped-def]
    """Returns the time at which a wave can use a load that ends at `end`: earlier if it is INSTANT or AHEAD."""
    if inst.flags & AHEAD:
        before, cu.earlier[index, now] = cu.earlier[index, now], end
        return before if before > 0 else end
    return time if inst.flags & INSTANT else end


@part
def count(ring, end, now):  # type: ignore[no-untyped-def]
    """Adds an operation to a counter and returns the time at which it completes: not before the counter's earlier ones."""
    if ring.count > 0:
        end = max(end, ring.time[(ring.count - 1) % MOST_VM])
    ring.time[ring.count % MOST_VM], ring.by[ring.count % MOST_VM] = end, now
    ring.count += 1
    return end


@part
def nth_last_completion(ring, left):  # type: ignore[no-untyped-def]
    """Returns the place in a counter's ring of the youngest operation that completes before only `left` are in flight."""
    return (ring.count - left - 1) % MOST_VM


@part
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


@part
def take_valu(issue, slot, index, valu, matrix, alone):  # type: ignore[no-untyped-def]
    """Sets the times at which a SIMD's port takes the next VALU, matrix and lone instruction. Transcendentals wait for VALU too."""
    issue.free[slot + Unit.VALU], issue.free[slot + Unit.MATRIX], issue.free[slot + Unit.ALONE] = valu, matrix, alone
    issue.free[slot + Unit.TRANS] = max(issue.free[slot + Unit.TRANS], valu)
    issue.last[slot + Unit.VALU] = issue.last[slot + Unit.MATRIX] = index
    issue.last[slot + Unit.ALONE] = issue.last[slot + Unit.TRANS] = index


@part
def issue_plain(issue, inst, slot, index, time, tally):  # type: ignore[no-untyped-def]
    """Issues a vector or scalar ALU instruction, or s_nop, which occupies no unit. Returns when the wave goes on."""
    until = time + inst.clocks
    if inst.unit == Unit.VALU or inst.unit == Unit.ALONE or inst.unit == Unit.TRANS:
        held = inst.shadow if inst.unit == Unit.TRANS else inst.clocks  # clocks of the VALU
        matrix, alone = issue.free[slot + Unit.MATRIX], issue.free[slot + Unit.ALONE]
        take_valu(issue, slot, index, time + held, max(matrix, time + held), max(alone, time + held))
        issue.free[slot + Unit.TRANS] = max(issue.free[slot + Unit.TRANS], until)
        tally[Tally.VALU_CLOCKS] += held
        return time + held
    if inst.unit == Unit.NONE:
        return until
    issue.free[slot + inst.unit] = time + SLOT
    return time + SLOT


@part
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


@part
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


@part
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


@part
def coalesce(vmem, issue, config, begin, through):  # type: ignore[no-untyped-def]
    """Occupies the address coalescer; all SIMDs wait for room in its queue."""
    vmem.coalescer_free = begin + through
    vmem.queue[vmem.queue_at] = begin
    vmem.queue_at = 0 if vmem.queue_at + 1 == config.vmem_queue else vmem.queue_at + 1
    room = vmem.queue[vmem.queue_at]
    for place in range(Unit.VMEM, SIMDS * UNITS, UNITS):
        issue.free[place] = max(issue.free[place], room)


@part
def move(cu, now, stage, begin, through, moved, is_store, tally):  # type: ignore[no-untyped-def]
    """Moves `moved` bytes through L2, and their part through later levels. Returns the clocks of delay by the slowest level.

    L2 keeps what a store changes, until another line needs its place. So later levels then get the bytes of earlier stores.
    """
    vmem, config = cu.vmem[0], cu.config[0]
    delay, amount, replaced = 0.0, float(moved), 0.0
    for level in range(LEVELS):
        served = amount
        if level > 0:
            cu.owed[level, now] += amount * cu.past[stage, level - 1, now]
            amount = cu.owed[level, now] if cu.owed[level, now] >= config.line else 0.0
            cu.owed[level, now] -= amount
            if level == 1:
                replaced = place_lines(vmem, config, amount)
            vmem.changed[level] += amount if is_store else 0.0
            back = vmem.changed[level] * replaced
            vmem.changed[level] -= back
            served = back + (0.0 if is_store else amount)
        rate = config.store_rate if is_store and level == 0 else config.rate[level]
        ahead = config.burst / config.rate[level]
        vmem.level_free[level] = max(vmem.level_free[level], begin - ahead) + served / rate
        if level == 1:  # its channels serve nothing else while they fetch a line from another XCD
            vmem.level_free[level] += amount * cu.moved[now] * config.line_move
        if served > 0:
            delay = max(delay, vmem.level_free[level] - begin - through)
        tally[Tally.L2_BYTES + level] += amount
    return delay


@part
def place_lines(vmem, config, nbytes):  # type: ignore[no-untyped-def]
    """Places lines of `nbytes` in the CU's part of L2. Returns the fraction of all its lines that have to leave."""
    total = vmem.held + nbytes
    vmem.held = min(total, config.room)
    return 1.0 - vmem.held / total if total > 0 else 0.0


@part
def level_of(cu, now, stage, missed):  # type: ignore[no-untyped-def]
    """Returns the level that a load waits for. Its lines are equally old, so all of them wait or none."""
    level = 0
    while level + 1 < LEVELS:
        cu.waits[level + 1, now] += missed * cu.late[stage, level, now]
        if cu.waits[level + 1, now] < missed:
            break
        level += 1
        cu.waits[level, now] -= missed
    return level


@part
def queue_atomic(cu, now, begin, missed):  # type: ignore[no-untyped-def]
    """Returns the clocks until L2 has served an atomic and those of all other CUs: a line, or a channel, serves one at a time.

    A line that moves between XCDs delays only the atomics on it. Others pass meanwhile.
    """
    vmem, config = cu.vmem[0], cu.config[0]
    took = max(missed * config.atomic_channel, cu.same_line[0, now] * config.atomic_line)
    vmem.atomic_free = max(vmem.atomic_free, begin) + took
    return max(vmem.atomic_free - begin, cu.same_line[1, now] * config.atomic_move)


@part
def stage_of(cu, work, index):  # type: ignore[no-untyped-def]
    """Returns 0 if a wave's workgroup is in the CU's first round, and 1 in later ones."""
    return 0 if cu.groups[index // work.waves].number < len(cu.groups) else 1


@part
def serve(cu, inst, now, stage, begin, through, missed, tally):  # type: ignore[no-untyped-def]
    """Returns when requests that missed the first cache are served. stage: see `stage_of`; through: clocks that they took to
    coalesce."""
    vmem, config, is_store = cu.vmem[0], cu.config[0], inst.flags & STORE != 0
    short = inst.kind == Kind.SMEM or inst.flags & (STORE | ATOMIC)
    moved = missed * (config.store_line if short else config.line)
    delay = move(cu, now, stage, begin, through, moved, is_store, tally)
    if inst.flags & ATOMIC:
        delay = max(delay, queue_atomic(cu, now, begin, missed) - through)
    level = 0 if is_store else level_of(cu, now, stage, missed)
    if level + 1 == LEVELS:
        ahead = config.burst / config.miss_rate
        vmem.miss_free = max(vmem.miss_free, begin - ahead) + moved / config.miss_rate
        delay = max(delay, vmem.miss_free - begin - through)
    return begin + through + config.latency[level] + int(delay)


@part
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
        end = serve(cu, inst, now, stage_of(cu, work, index), begin, through, missed, tally)
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


@part
def issue_smem(cu, work, inst, index, now, time, slot, tally):  # type: ignore[no-untyped-def]
    """Issues a scalar load. The CU's first execution of an instruction always waits for L2."""
    wave, out, config, missed = cu.waves[index], cu.outstanding[index], cu.config[0], work.accesses[cu.waves[index].access, 2]
    wave.access += 1
    end = time + (config.scalar_hit if cu.scalar_seen[now] else config.latency[0])
    cu.issue[0].free[slot + Unit.SCALAR], cu.scalar_seen[now] = time + SLOT, 1
    if missed > 0:
        end = serve(cu, inst, now, stage_of(cu, work, index), time, 0, missed, tally)
        tally[Tally.SCALAR_BYTES] += missed * config.store_line
    known = completion(cu, inst, index, now, time, end)
    if inst.flags & COUNTS_LGKM and known > out.scalar_time:
        out.scalar_time, out.scalar_by = known, now


@part
def rank(priority, age):  # type: ignore[no-untyped-def]
    """Returns a candidate's rank among those of the same time: higher priority first, then greater age. The lowest rank wins."""
    return (3 - priority) << KEY_PRIORITY | age & ((1 << KEY_PRIORITY) - 1)


@part
def execute(cu, work, inst, index, now, time, simd, tally):  # type: ignore[no-untyped-def]
    """Issues an instruction; returns when its wave may go on."""
    wave, issue, slot, kind = cu.waves[index], cu.issue[0], simd * UNITS, inst.kind
    ready = time + SLOT
    if kind == Kind.PLAIN:
        ready = issue_plain(issue, inst, slot, index, time, tally)
    elif kind == Kind.MATRIX:
        take_valu(issue, slot, index, time + inst.shadow, time + inst.clocks, time + inst.clocks)
        tally[Tally.MATRIX_CLOCKS] += inst.clocks
        tally[Tally.MATRIX_BEGIN] = min(tally[Tally.MATRIX_BEGIN], time)
        tally[Tally.MATRIX_END] = max(tally[Tally.MATRIX_END], time + inst.clocks)
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
