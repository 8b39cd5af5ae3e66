"""A compute unit, event by event: when each wave issues each instruction, and what it waits for until then.

Four SIMDs take turns, one a clock; in its turn a SIMD issues at most one instruction of a wave and one a unit: VALU with matrix,
scalar, vector memory, LDS, branch. Every unit and queue is known by the time at which it takes the next instruction, so a wave's
next issue is the later of two times, and the model goes from issue to issue. Between waves that could go at the same time,
priority decides, then age. Times are clocks of the engine. Sources of the figures: `hardware.rates.pipelines`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from simgpu.hardware.timing_rules.issue import MOST_LGKM, MOST_VM, SLOT, Kind, Unit
from simgpu.timing.code import ATOMIC, COUNTS_LGKM, COUNTS_VM, STORE, Code

SIMDS, UNITS = 4, 8
# PC sampling's names (rocm-systems, pc_sampling.h), in the columns of `CuResult.stalls`.
REASONS = (
    "NO_INSTRUCTION_AVAILABLE", "ALU_DEPENDENCY", "WAITCNT", "INTERNAL_INSTRUCTION", "BARRIER_WAIT", "ARBITER_NOT_WIN",
    "ARBITER_WIN_EX_STALL", "OTHER_WAIT", "SLEEP_WAIT",
)  # fmt: skip
NO_INSTRUCTION, _ALU, WAITCNT, INTERNAL, BARRIER, NOT_WIN, EX_STALL, OTHER, SLEEP = range(len(REASONS))
PRODUCERS = 8  # loads that a wait tells apart
# What was counted. WATCHED: clocks in which a SIMD has a wave among the watched instructions, of all SIMDs.
MATRIX_CLOCKS, VALU_CLOCKS, LDS_CLOCKS, VMEM_CLOCKS, L2_BYTES, MALL_BYTES, HBM_BYTES, ISSUED, WATCHED, TALLIES = range(10)
# Integer parameters, in this order.
(
    FIFO, LDS_LATENCY, VMEM_QUEUE, IN_FLIGHT, CACHE_LATENCY, L2_LATENCY, MALL_LATENCY, MEMORY_LATENCY, SCALAR_HIT, BRANCH_CLOCKS,
    BARRIER_CLOCKS, CODE_LINE, CODE_STREAM, START, LINE, STORE_LINE, MOST_EVENTS, WATCH_FIRST, WATCH_END, PARAMETERS,
) = range(20)  # fmt: skip
# Float parameters: bytes a clock that this CU has of each level behind its vector cache, of L2 for stores, and the bytes it may be
# ahead, and of L2 that stores may fill. Tallies and latencies of the levels stand in the same order.
L2_RATE, MALL_RATE, HBM_RATE, STORE_RATE, MISS_RATE, BURST, ROOM, RATES = range(8)
LEVELS = 3
NEVER = 1 << 60
KEY_TIME, KEY_PRIORITY = 24, 22  # a candidate's key: time, then priority, then age
LOG = 6  # of an event: wave, number, when the wave was ready for it, issue, until, workgroup


@dataclass(frozen=True)
class CuResult:
    """ends: clock at which each workgroup ended, in the order of dispatch; clocks: of the whole.

    By an instruction's number: hits; latency: clocks from when waves came to it until they went on; stalls: (n, 9), of these by
    reason; producers, waited: (n, 8), the loads that a wait waited for and the clocks. tally: see the names above. log: the first
    events, (n, 6).
    """

    clocks: int
    ends: np.ndarray
    hits: np.ndarray
    latency: np.ndarray
    stalls: np.ndarray
    producers: np.ndarray
    waited: np.ndarray
    tally: np.ndarray
    log: np.ndarray


@dataclass(frozen=True)
class Work:
    """What a CU runs: traces one behind the other, and which of them each of its workgroups follows.

    steps: int64; starts, ends, access_starts: of each trace's waves, all traces with as many; accesses: int32 (n, 3): clocks,
    requests of lines, of these not in the vector cache. order: the trace of each workgroup, in the order of dispatch.
    """

    steps: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    accesses: np.ndarray
    access_starts: np.ndarray
    waves: int
    order: np.ndarray


def run_cu(
    code: Code, work: Work, resident: int, arrivals: np.ndarray, past: np.ndarray, late: np.ndarray, parameters: np.ndarray,
    rates: np.ndarray,
) -> CuResult:  # fmt: skip
    """Runs the workgroups, `resident` at a time; arrivals: clocks at which the first ones may begin.

    past, late: float64 (2, n), by number; see `simgpu.timing.caches.Shares`.
    """
    count = len(code.unit)
    hits, latency = np.zeros(count, np.int64), np.zeros(count, np.int64)
    stalls = np.zeros((count, len(REASONS)), np.int64)
    producers, waited = np.full((count, PRODUCERS), -1, np.int32), np.zeros((count, PRODUCERS), np.int64)
    tally, ends = np.zeros(TALLIES, np.float64), np.zeros(len(work.order), np.int64)
    log = np.zeros((int(parameters[MOST_EVENTS]), LOG), np.int64)
    logged = _run(
        code.unit, code.kind, code.clocks, code.shadow, code.vm, code.lgkm, code.flags, code.port, code.step, code.lane_bytes,
        work.steps, work.starts, work.ends, work.accesses, work.access_starts, work.waves, work.order, resident, arrivals,
        past, late, parameters, rates, hits, latency, stalls, producers, waited, tally, ends, log,
    )  # fmt: skip
    return CuResult(int(ends.max(initial=0)), ends, hits, latency, stalls, producers, waited, tally, log[:logged])


@numba.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False)
def _run(  # type: ignore[no-untyped-def]
    unit, kind, clocks, shadow, vm, lgkm, flags, port, step, lane_bytes, steps, starts, stops, accesses, access_starts, waves,
    order, resident, arrivals, past, late, parameters, rates, hits, latency, stalls, producers, waited, tally, ends, log,
):
    total = resident * waves
    places = (total + SIMDS - 1) // SIMDS * SIMDS  # wave p runs on SIMD p % 4
    at, stop, access = np.zeros(places, np.int64), np.zeros(places, np.int64), np.zeros(places, np.int64)
    own, came = np.full(places, NEVER, np.int64), np.zeros(places, np.int64)
    why, whom = np.zeros(places, np.int64), np.full(places, -1, np.int64)
    held_back = np.zeros(places, np.int64)  # `own` of a wave at a barrier
    noted = np.full(places, -1, np.int64)  # its row in the log
    want = np.zeros(places, np.int64)  # place in `free` of the unit that its next instruction takes
    rank = np.zeros(places, np.int64)  # priority and age, as in a key
    priority, age = np.zeros(places, np.int64), np.zeros(places, np.int64)
    place_of = np.arange(places) // waves
    line = np.full(places, -1, np.int64)
    vm_time, vm_by = np.zeros((places, MOST_VM), np.int64), np.zeros((places, MOST_VM), np.int32)
    lds_time, lds_by = np.zeros((places, MOST_LGKM), np.int64), np.zeros((places, MOST_LGKM), np.int32)
    vm_count, lds_count = np.zeros(places, np.int64), np.zeros(places, np.int64)
    scalar_time, scalar_by = np.zeros(places, np.int64), np.full(places, -1, np.int32)
    free = np.zeros(SIMDS * UNITS, np.int64)
    last = np.full(SIMDS * UNITS, -1, np.int64)  # the wave that took it last
    port_free, bank_free = np.zeros(2, np.int64), 0
    fifo_size, queue_size = parameters[FIFO], parameters[VMEM_QUEUE]
    fifo, fifo_at = np.zeros((2, fifo_size), np.int64), np.zeros(2, np.int64)
    queue, queue_at, coalescer_free = np.zeros(queue_size, np.int64), 0, 0
    flights = 1024
    flight_end, flight_bytes = np.zeros(flights, np.int64), np.zeros(flights, np.int64)
    flight_first, flight_last, flying = 0, 0, 0
    level_free, miss_free = np.zeros(LEVELS), 0.0
    owed, waits = np.zeros((LEVELS, len(unit))), np.zeros((LEVELS, len(unit)))  # bytes, requests not yet passed on
    group_of, live, arrived = np.zeros(resident, np.int64), np.zeros(resident, np.int64), np.zeros(resident, np.int64)
    seen_scalar = np.zeros(len(unit), np.uint8)
    code_line = max(1, parameters[CODE_LINE] // 4)
    line_of = np.arange(len(unit)) // code_line
    code_time, code_free = np.full(len(unit) // code_line + 2, -1, np.int64), 0
    best, best_wave = np.full(SIMDS, NEVER << 1, np.int64), np.full(SIMDS, -1, np.int64)
    dirty = np.ones(SIMDS, np.uint8)
    groups, begun, ages, logged = len(order), 0, 0, 0
    pending = np.full(resident, -1, np.int64)  # when a place for a workgroup takes the next one
    for place in range(min(resident, groups)):
        pending[place] = arrivals[place]
    inside, since_inside = np.zeros(SIMDS, np.int64), np.zeros(SIMDS, np.int64)  # waves among the watched instructions
    left, waiting = groups, True
    while left > 0:
        again = False
        # Workgroups that begin: their waves stand at their first instruction.
        for place in range(resident if waiting else 0):
            if pending[place] < 0:
                continue
            begin, number = pending[place], begun
            pending[place] = -1
            if number >= groups:
                continue
            begun += 1
            trace = order[number]
            group_of[place], live[place], arrived[place] = number, waves, 0
            for index in range(waves):
                wave = place * waves + index
                at[wave], stop[wave] = starts[trace * waves + index], stops[trace * waves + index]
                access[wave] = access_starts[trace * waves + index]
                vm_count[wave] = lds_count[wave] = scalar_time[wave] = priority[wave] = 0
                scalar_by[wave], line[wave] = -1, -1
                age[wave], ages = ages, ages + 1
                rank[wave] = 3 << KEY_PRIORITY | age[wave] & ((1 << KEY_PRIORITY) - 1)
                ready = begin + parameters[START]
                if at[wave] >= stop[wave]:
                    own[wave] = NEVER
                    live[place] -= 1
                    continue
                now = steps[at[wave]]
                own[wave], came[wave], why[wave] = ready, ready, OTHER
                want[wave] = wave % SIMDS * UNITS + unit[now]
                dirty[wave % SIMDS] = 1
            if live[place] == 0:
                ends[number] = begin
                left -= 1
                pending[place], again = begin, True
        waiting = again
        # The SIMD that issues next.
        simd = -1
        key = NEVER << 1
        for number in range(SIMDS):
            if dirty[number]:
                low, who = NEVER << 1, -1
                for wave in range(number, places, SIMDS):
                    if own[wave] >= NEVER:
                        continue
                    when = max(own[wave], free[want[wave]])
                    when = (when - number + SLOT - 1 & -SLOT) + number  # its turn, of the clocks that it has
                    candidate = when << KEY_TIME | rank[wave]
                    if candidate < low:
                        low, who = candidate, wave
                best[number], best_wave[number], dirty[number] = low, who, 0
            if best[number] < key:
                key, simd = best[number], number
        if simd < 0:
            if waiting:
                continue
            break  # waves wait for each other for ever
        wave = best_wave[simd]
        time = key >> KEY_TIME
        if free[want[wave]] > time:  # another SIMD took what they share
            dirty[simd] = 1
            continue
        now = steps[at[wave]]
        what, flag = kind[now], flags[now]
        ready = time + SLOT
        slot = simd * UNITS
        place = place_of[wave]
        # What it waited for.
        hits[now] += 1
        stall = time - came[wave]
        if stall > 0:
            held = min(stall, max(0, own[wave] - came[wave]))
            stalls[now, why[wave]] += held
            if what == Kind.WAIT and held > 0 and whom[wave] >= 0:
                for index in range(PRODUCERS):
                    if producers[now, index] == whom[wave] or producers[now, index] < 0:
                        producers[now, index] = whom[wave]
                        waited[now, index] += held
                        break
            if stall > held:
                stalls[now, EX_STALL if last[want[wave]] == wave or last[want[wave]] < 0 else NOT_WIN] += stall - held
        last[want[wave]] = wave
        tally[ISSUED] += 1
        if what == Kind.PLAIN:
            taken_unit = unit[now]
            if taken_unit == Unit.VALU or taken_unit == Unit.ALONE:
                until = time + clocks[now]
                free[slot + Unit.VALU] = until
                free[slot + Unit.MATRIX] = max(free[slot + Unit.MATRIX], until)
                free[slot + Unit.ALONE] = max(free[slot + Unit.ALONE], until)
                last[slot + Unit.VALU] = last[slot + Unit.MATRIX] = last[slot + Unit.ALONE] = wave
                tally[VALU_CLOCKS] += clocks[now]
                ready = max(ready, until)
            elif taken_unit == Unit.NONE:
                ready = time + clocks[now]
            else:
                free[slot + taken_unit] = time + SLOT
        elif what == Kind.MATRIX:
            free[slot + Unit.VALU] = time + shadow[now]
            free[slot + Unit.MATRIX] = free[slot + Unit.ALONE] = time + clocks[now]
            last[slot + Unit.VALU] = last[slot + Unit.MATRIX] = last[slot + Unit.ALONE] = wave
            tally[MATRIX_CLOCKS] += clocks[now]
        elif what == Kind.LDS:
            pair = simd >> 1
            begin = max(time, port_free[pair])
            bank = max(begin, bank_free)
            bank_free = bank + accesses[access[wave], 0]
            done = max(begin + port[now], bank_free)
            tally[LDS_CLOCKS] += accesses[access[wave], 0]
            access[wave] += 1
            port_free[pair] = done
            fifo[pair, fifo_at[pair]] = done
            fifo_at[pair] += 1
            if fifo_at[pair] == fifo_size:
                fifo_at[pair] = 0
            room = fifo[pair, fifo_at[pair]]
            free[slot + Unit.LDS] = max(time + SLOT, room)
            other = (simd ^ 1) * UNITS + Unit.LDS
            free[other] = max(free[other], room)
            end = done + parameters[LDS_LATENCY]
            if flag & COUNTS_LGKM:
                ring = lds_count[wave] % MOST_LGKM
                if lds_count[wave] > 0:
                    end = max(end, lds_time[wave, (lds_count[wave] - 1) % MOST_LGKM])
                lds_time[wave, ring], lds_by[wave, ring] = end, now
                lds_count[wave] += 1
        elif what == Kind.VMEM:
            begin = max(time, coalescer_free)
            nbytes = lane_bytes[now] * 64
            requests, missed = accesses[access[wave], 1], accesses[access[wave], 2]
            through = max(accesses[access[wave], 0], min(port[now], requests * parameters[LINE] // 64 + 1))
            access[wave] += 1
            if requests == 0:
                nbytes = 0
            if not flag & STORE:
                while flying > 0 and (flight_end[flight_first % flights] <= begin):
                    flying -= flight_bytes[flight_first % flights]
                    flight_first += 1
                while flying > 0 and (flying + nbytes > parameters[IN_FLIGHT] or flight_last - flight_first >= flights):
                    begin = max(begin, flight_end[flight_first % flights])
                    flying -= flight_bytes[flight_first % flights]
                    flight_first += 1
            coalescer_free = begin + through
            tally[VMEM_CLOCKS] += through
            queue[queue_at] = begin
            queue_at += 1
            if queue_at == queue_size:
                queue_at = 0
            for number in range(SIMDS):
                free[number * UNITS + Unit.VMEM] = max(free[number * UNITS + Unit.VMEM], queue[queue_at])
            free[slot + Unit.VMEM] = max(free[slot + Unit.VMEM], time + SLOT)
            end = begin + through + parameters[CACHE_LATENCY]
            if missed > 0:
                moved = missed * (parameters[STORE_LINE] if flag & STORE else parameters[LINE])
                delay, level, amount = 0.0, 0, float(moved)
                while True:
                    rate = rates[STORE_RATE] if flag & STORE and level == 0 else rates[level]
                    ahead = rates[BURST] / rates[level]
                    level_free[level] = max(level_free[level], begin - ahead) + amount / rate
                    # A store waits for L2 only, as long as that has room for it.
                    room = rates[ROOM] / rates[level] if flag & STORE and level > 0 else 0.0
                    delay = max(delay, level_free[level] - begin - through - room)
                    tally[L2_BYTES + level] += amount
                    level += 1
                    if level == LEVELS:
                        break
                    owed[level, now] += amount * past[level - 1, now]
                    amount = owed[level, now]
                    if amount < parameters[LINE]:
                        break
                    owed[level, now] = 0.0
                # Its lines are as old as each other: all of them wait, or none.
                level = 0
                while not flag & STORE and level + 1 < LEVELS:
                    waits[level + 1, now] += missed * late[level, now]
                    if waits[level + 1, now] < missed:
                        break
                    level += 1
                    waits[level, now] -= missed
                base = parameters[L2_LATENCY + level]
                if level + 1 == LEVELS:
                    ahead = rates[BURST] / rates[MISS_RATE]
                    miss_free = max(miss_free, begin - ahead) + moved / rates[MISS_RATE]
                    delay = max(delay, miss_free - begin - through)
                end = begin + through + base + int(delay)
            if flag & ATOMIC and missed > 0:
                end = max(end, begin + through + parameters[L2_LATENCY])
            if flag & COUNTS_VM:
                ring = vm_count[wave] % MOST_VM
                if vm_count[wave] > 0:
                    end = max(end, vm_time[wave, (vm_count[wave] - 1) % MOST_VM])
                vm_time[wave, ring], vm_by[wave, ring] = end, now
                vm_count[wave] += 1
            if flag & COUNTS_LGKM:
                scalar_time[wave], scalar_by[wave] = max(scalar_time[wave], end), now
            if not flag & STORE and nbytes > 0:
                flight_end[flight_last % flights], flight_bytes[flight_last % flights] = end, nbytes
                flight_last += 1
                flying += nbytes
        elif what == Kind.SMEM:
            free[slot + Unit.SCALAR] = time + SLOT
            delay = parameters[SCALAR_HIT]
            if seen_scalar[now] == 0:
                delay, seen_scalar[now] = parameters[L2_LATENCY], 1
            if flag & COUNTS_LGKM and time + delay > scalar_time[wave]:
                scalar_time[wave], scalar_by[wave] = time + delay, now
        elif what == Kind.BRANCH:
            free[slot + Unit.BRANCH] = time + SLOT
            if at[wave] + 1 < stop[wave] and steps[at[wave] + 1] != now + step[now]:
                ready = time + parameters[BRANCH_CLOCKS]
        elif what == Kind.SLEEP:
            ready = time + clocks[now]
            stalls[now, SLEEP] += clocks[now] - SLOT
        elif what == Kind.PRIORITY:
            priority[wave] = clocks[now]
            rank[wave] = (3 - priority[wave]) << KEY_PRIORITY | age[wave] & ((1 << KEY_PRIORITY) - 1)
        latency[now] += ready - came[wave]
        if logged < len(log):
            log[logged, 0], log[logged, 1], log[logged, 2], log[logged, 3] = wave, now, came[wave], time
            log[logged, 4], log[logged, 5] = ready, group_of[place]
            noted[wave] = logged
            logged += 1
        else:
            noted[wave] = -1
        # On to the next instruction.
        at[wave] += 1
        dirty[simd] = 1
        if parameters[WATCH_END] > 0:
            before = parameters[WATCH_FIRST] <= now < parameters[WATCH_END]
            behind = at[wave] < stop[wave] and parameters[WATCH_FIRST] <= steps[at[wave]] < parameters[WATCH_END]
            if behind and not before:
                if inside[simd] == 0:
                    since_inside[simd] = ready
                inside[simd] += 1
            elif before and not behind:
                inside[simd] -= 1
                if inside[simd] == 0:
                    tally[WATCHED] += ready - since_inside[simd]
        if what == Kind.END or at[wave] >= stop[wave]:
            own[wave] = NEVER
            live[place] -= 1
            finish = time
            if vm_count[wave] > 0:
                finish = max(finish, vm_time[wave, (vm_count[wave] - 1) % MOST_VM])
            ends[group_of[place]] = max(ends[group_of[place]], finish)
            if live[place] == 0:
                left -= 1
                if begun < groups:  # its place is free when L2 has its stores
                    pending[place], waiting = ends[group_of[place]], True
        else:
            came[wave] = ready
            why[wave], whom[wave] = OTHER, -1
            after = steps[at[wave]]
            own[wave] = ready
            here = line_of[after]
            if here != line[wave]:
                line[wave] = here
                if parameters[CODE_STREAM] > 0:
                    if code_time[here] < 0:
                        jumped = 0 if here > 0 and code_time[here - 1] >= 0 else parameters[L2_LATENCY]
                        code_free = max(code_free + parameters[CODE_STREAM], time - parameters[CODE_STREAM] + jumped)
                        code_time[here] = code_free
                    if code_time[here] > own[wave]:
                        own[wave], why[wave] = code_time[here], NO_INSTRUCTION
            then = kind[after]
            if then == Kind.WAIT:
                bound = own[wave]
                if vm[after] >= 0 and vm_count[wave] > vm[after]:
                    ring = (vm_count[wave] - vm[after] - 1) % MOST_VM
                    if vm_time[wave, ring] > bound:
                        bound, whom[wave] = vm_time[wave, ring], vm_by[wave, ring]
                if lgkm[after] >= 0:
                    if lds_count[wave] > lgkm[after]:
                        ring = (lds_count[wave] - lgkm[after] - 1) % MOST_LGKM
                        if lds_time[wave, ring] > bound:
                            bound, whom[wave] = lds_time[wave, ring], lds_by[wave, ring]
                    if scalar_time[wave] > bound:
                        bound, whom[wave] = scalar_time[wave], scalar_by[wave]
                if bound > own[wave]:
                    own[wave], why[wave] = bound, WAITCNT
            elif then == Kind.VMEM and vm_count[wave] >= MOST_VM:
                own[wave] = max(own[wave], vm_time[wave, vm_count[wave] % MOST_VM])
            elif then == Kind.LDS and lds_count[wave] >= MOST_LGKM:
                own[wave] = max(own[wave], lds_time[wave, lds_count[wave] % MOST_LGKM])
            want[wave] = slot + unit[after]
            if what == Kind.BARRIER:
                arrived[place] += 1
                held_back[wave], own[wave] = own[wave], NEVER + time
        if arrived[place] > 0 and arrived[place] >= live[place]:
            arrived[place] = 0
            for index in range(place * waves, (place + 1) * waves):
                if own[index] >= NEVER and own[index] != NEVER:
                    since = own[index] - NEVER
                    came[index] = time + parameters[BARRIER_CLOCKS]
                    own[index] = max(held_back[index], came[index])
                    behind = steps[at[index] - 1]
                    stalls[behind, BARRIER] += time - since
                    latency[behind] += time - since
                    if noted[index] >= 0:
                        log[noted[index], 3] += time - since
                        log[noted[index], 4] += time - since
                    dirty[index % SIMDS] = 1
    return logged
