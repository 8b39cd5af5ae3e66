"""Scheduling loop of one host thread, compiled to machine code at its first use.

A worker takes workgroups from a shared counter and keeps some of them resident. A wave runs until it ends, sleeps, waits at a
barrier or an s_waitcnt, or has used its time slice. A workgroup whose turn is over lets others run, so workgroups that wait for
each other make progress.

A slice runs in pieces. Between pieces the worker checks the launch's budget and whether it must stop. If a wave needs Python (a
record to lower, a fault), the loop returns a status. The next call continues from the same state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from simgpu.engine.workers.scheduler import (
    BUSY,
    EMPTY,
    FINISHED,
    IDLE,
    LIMIT,
    LOCK_HASTE,
    LOCK_LOOP,
    LOOKS,
    MOST_HASTE,
    NEED_PYTHON,
    OVER,
    PACKED_XY,
    PATIENCE,
    PAUSED,
    SHORT,
    STOPPED,
    TURN,
    Slot,
    WorkerJob,
)
from simgpu.machine import layout
from simgpu.machine.layout import Status, Wave
from simgpu.machine.runtime import builtin, clear, copy, load64, part, records, runtime, store32, store64, structure
from simgpu.machine.values import Builder, IrValue
from simgpu.machine.wave_frame import HANDLER

# Dtypes of the structures.
JOB, SLOT, WAVE = np.dtype(WorkerJob), np.dtype(Slot), np.dtype(Wave)


@builtin
def call(build: Builder, function: IrValue, first: IrValue, second: IrValue) -> None:
    """Calls the function at an address, with two addresses as a handler's arguments."""
    build.fence("acquire")  # another thread may just have lowered its record
    target = build.inttoptr(function, ir.PointerType(HANDLER))
    build.call(target, [first.pointer(), second.pointer()])


@builtin
def fetch_add(build: Builder, address: IrValue, amount: IrValue) -> IrValue:
    """Atomically adds to the i64 at an address; returns its old value."""
    before: IrValue = build.atomic_rmw("add", address.pointer(), amount, "monotonic")
    return before


@part
def fill_ids(job: Any, wave: int, first: int, x_count: int, y_count: int, lanes: int) -> None:
    """Writes the work-item ids of the wave whose first flat id is `first` to v0 (and v1, v2, by `id_mode`)."""
    v0 = wave + layout.VGPR
    x = first % x_count
    y = first // x_count % y_count
    z = first // (x_count * y_count)
    mode = job.id_mode
    for lane in range(lanes):
        if mode >= PACKED_XY:
            store32(v0 + 4 * lane, x | y << 10 | (z << 20 if mode > PACKED_XY else 0))
        else:
            store32(v0 + 4 * lane, x)
            if mode >= 1:
                store32(v0 + layout.ROW + 4 * lane, y)
            if mode >= 2:
                store32(v0 + 2 * layout.ROW + 4 * lane, z)
        x += 1
        if x == x_count:
            x = 0
            y += 1
            if y == y_count:
                y = 0
                z += 1


@part
def extent(job: Any, slot: Any, axis: int) -> int:
    """Returns the number of work-items of a slot's workgroup along an axis; the last workgroup of an axis may be partial."""
    return min(job.block[axis], job.size[axis] - slot.group[axis] * job.block[axis])


@part
def start_wave(job: Any, slot: Any, number: int, index: int, items: int) -> None:
    """Initialises wave `index` of the workgroup in slot `number`, which has `items` work-items."""
    at = number * job.waves + index
    wave = job.wave_memory + at * job.wave_bytes
    copy(wave, job.template, layout.ADDRESSES)
    clear(wave + layout.VGPR, job.vgprs * layout.ROW)
    clear(wave + layout.AGPR, job.agprs * layout.ROW)
    state, sgpr = structure(wave, WAVE), job.group_id_sgpr
    for axis in range(3):
        if job.group_id_mask >> axis & 1:
            state.sgprs[sgpr] = slot.group[axis]
            sgpr += 1
    scratch = job.scratch + at * job.scratch_wave
    if job.scratch_sgpr >= 0:
        state.sgprs[job.scratch_sgpr] = at * job.scratch_wave
    if job.flat_scratch:
        store64(wave + 4 * 102, scratch)
    left = items - 64 * index
    store64(wave + 4 * 126, -1 if left >= 64 else (1 << left) - 1)
    state.wave_id = index
    state.hw_id = at
    state.lds_base = job.lds + number * job.lds_stride
    entered = job.entered
    store64(entered, load64(entered) + 1)
    fill_ids(job, wave, 64 * index, extent(job, slot, 0), extent(job, slot, 1), 64)
    partial = 0
    for axis in range(3):
        partial |= int(extent(job, slot, axis) < job.block[axis]) << axis
    if partial and job.kernarg_sgpr >= 0:
        store64(wave + 4 * job.kernarg_sgpr, load64(job.kernargs + 8 * partial))
    if job.begin:
        call(job.begin, wave, at)


@part
def open_group(job: Any, slots: Any, number: int) -> None:
    """Puts the next workgroup into slot `number`, if one is left."""
    group = fetch_add(job.counter, 1)
    if group >= job.groups:
        job.exhausted = 1
        return
    slot = slots[number]
    gx, gy = job.grid[0], job.grid[1]
    slot.group[0] = group % gx
    slot.group[1] = group // gx % gy
    slot.group[2] = group // (gx * gy)
    items = extent(job, slot, 0) * extent(job, slot, 1) * extent(job, slot, 2)
    waves = (items + 63) // 64
    slot.state = BUSY
    slot.waves = waves
    slot.left = waves
    slot.waiting = 0
    slot.met = 0
    slot.turns = 0
    job.turn = layout.SLICE >> slot.haste
    clear(job.lds + number * job.lds_stride, job.lds_stride)
    for index in range(waves):
        start_wave(job, slot, number, index, items)
    job.taken += 1


@part
def release_barrier(job: Any, slots: Any, number: int) -> None:
    """Releases all waves of a workgroup at its barrier."""
    slot = slots[number]
    first = job.wave_memory + number * job.waves * job.wave_bytes
    for index in range(slot.waves):
        state = structure(first + index * job.wave_bytes, WAVE)
        if state.status == Status.BARRIER:
            state.status = Status.RUNNING
    slot.waiting = 0
    slot.met = 1


@part
def run_piece(job: Any, wave: int, state: Any) -> int:
    """Runs a wave for a piece of its turn. Returns the status with which it came back."""
    job.active = 1
    record = state.records + state.resume * layout.RECORD
    handler = load64(record)
    if handler == 0:  # no code near the record was lowered yet: a check stopped the wave during its jump there
        state.status = Status.LOWER
        return state.status
    # Pieces end at the same places of a turn wherever a stop interrupts them, so a stop does not change the execution.
    given = min(job.turn & (layout.PIECE - 1), load64(job.budget) - job.spent)
    state.budget = given
    store64(job.context + layout.CTX_CLOCK, job.clock + given)
    call(handler, wave, record)
    steps = given - state.budget
    job.turn -= steps
    job.clock += steps
    job.spent += steps
    job.pause -= steps
    if job.spent >= layout.PIECE:
        fetch_add(job.budget, -job.spent)
        job.spent = 0
    status = state.status
    if status == Status.ENDED or (status == Status.YIELD and state.budget >= 0):
        job.turn = -1  # it ended or sleeps
    return status


@part
def fingerprint(start: int, size: int, found: int) -> int:
    """Returns the fingerprint of `size` bytes. found: the first term."""
    for at in range(0, size, 8):
        found += load64(start + at) * (at | 1)
    return found


@part
def has_fingerprint(state: Any, number: int, start: int, size: int, found: int) -> bool:
    """Returns whether a wave's fingerprint was that of `size` bytes, which it is from now on. found: the first term."""
    found = fingerprint(start, size, found)
    before = state.fingerprints[number]
    state.fingerprints[number] = found
    return found == before


@part
def is_unchanged(job: Any, wave: int, state: Any) -> bool:
    """Returns whether a wave has the registers that it had when its slice was last over: a loop that polls memory does."""
    scalars = has_fingerprint(state, 0, wave, layout.STATUS, state.resume)
    vectors = has_fingerprint(state, 1, wave + layout.VGPR, job.vgprs * layout.ROW, 0)  # taken anew even if scalars changed
    return scalars and vectors


@part
def examine_slice(job: Any, slot: Any, wave: int, state: Any, steps: int) -> None:
    """Examines a wave that has used a whole slice of `steps`: whether it polls memory, or may try to take a lock."""
    if job.taken == 1 or not is_unchanged(job, wave, state):
        slot.polls = 0
    slot.contends |= int(state.atomics * LOCK_LOOP >= steps)
    state.atomics = 0


@part
def turn_steps(slot: Any) -> int:
    """Returns the record steps of a workgroup's turn: those of two slices of each wave that can run, at least TURN.

    The second slices show if the waves poll, even if a flag that one of them polls was set since the turn before.
    """
    return max(TURN, 2 * (slot.left - slot.waiting) * layout.SLICE) >> slot.haste


@part
def group_fingerprint(job: Any, slot: Any, number: int, start: int, size: int) -> int:
    """Returns the fingerprint of the places at which a workgroup's waves are, and of `size` bytes of each."""
    found = 0
    for index in range(slot.waves):
        wave = job.wave_memory + (number * job.waves + index) * job.wave_bytes
        found = fingerprint(wave + start, size, 3 * found + structure(wave, WAVE).resume)
    return found


@part
def look_for_poll(job: Any, slot: Any, number: int) -> None:
    """Examines the registers of a workgroup at a barrier, where a loop that polls memory has them again and again.

    It does so in the second half of a turn, if there are other workgroups. Vector registers are read only if scalar ones recur:
    those of most loops count.
    """
    if slot.looks >= LOOKS or 2 * slot.used < turn_steps(slot) or (job.taken == 1 and job.exhausted):
        return
    scalars = group_fingerprint(job, slot, number, layout.SGPR, layout.STATUS)
    if slot.looks == 0:
        slot.marks[0] = scalars
        slot.marks[1] = 0
    elif scalars == slot.marks[0]:
        vectors = group_fingerprint(job, slot, number, layout.VGPR, job.vgprs * layout.ROW) | 1
        if vectors == slot.marks[1]:
            slot.recurs = 1
        slot.marks[1] = vectors
    slot.looks += 1


@part
def is_short(slot: Any) -> int:
    """Returns 1 if a workgroup's turn is short: a wave runs to its next wait at most.

    A wave that takes a lock in a loop may have it wherever its slices end, at a branch. At one of the waits after that it has
    given it back.
    """
    return int(slot.turns & SHORT != 0)


@part
def begin_round(job: Any, slot: Any) -> int:
    """Prepares a workgroup's waves to run once each, or the rest of them after a stop. Returns 1 if their turn is short."""
    short = is_short(slot)
    in_step = job.context + layout.CTX_IN_STEP
    store64(in_step, load64(in_step) & 1 | short << 1)
    if job.wave == 0 and not short:
        slot.polls = 1
    return short


@part
def run_group(job: Any, slots: Any, number: int) -> int:
    """Runs each runnable wave of a workgroup for a slice, from wave `job.wave` on. Returns FINISHED, or why it stopped before."""
    slot = slots[number]
    slice_steps = layout.SLICE >> slot.haste
    short = begin_round(job, slot)
    before = job.clock if job.turn >= 0 else -1  # a turn that is over: one of its waves has just run
    first = job.wave_memory + number * job.waves * job.wave_bytes
    while True:
        if job.turn < 0:  # here and not at its end: a caller that returned in between continues with the next wave
            job.turn = slice_steps
            job.wave += 1
        if job.wave >= slot.waves:
            break
        wave = first + job.wave * job.wave_bytes
        state = structure(wave, WAVE)
        status = state.status
        if status == Status.RUNNING or status == Status.YIELD or status == Status.LOWER:
            status = run_piece(job, wave, state)
            if status == Status.ENDED:
                slot.left -= 1
                slot.polls = 0
            elif status == Status.BARRIER or status == Status.WAITS:
                slot.used += slice_steps - job.turn
                job.turn = -1
                if status == Status.BARRIER:
                    slot.waiting += 1
                    slot.polls = 0
                else:
                    state.status = Status.RUNNING
                    slot.polls &= short
            elif status == Status.YIELD:
                if job.turn < 0:
                    slot.used += slice_steps
                    if not short:
                        examine_slice(job, slot, wave, state, slice_steps)
            else:
                return NEED_PYTHON
        else:
            job.turn = -1
        if slot.left and slot.waiting == slot.left:
            look_for_poll(job, slot, number)
            release_barrier(job, slots, number)
        if load64(job.budget) < job.spent:
            return LIMIT
        if job.stop:
            return STOPPED
        if job.pause < 0:
            return PAUSED
    job.wave = 0
    if job.clock == before:
        slot.polls = slot.haste = slot.turns = 0  # none of its waves can run: that is no short turn
        slot.used = OVER
    elif short or slot.polls or slot.recurs:
        slot.used = OVER  # all its waves wait for other workgroups, or had a short turn
    if slot.left == 0:
        slot.state = EMPTY
        job.taken -= 1
    return FINISHED


@part
def end_turn(job: Any, slot: Any) -> None:
    """Ends a workgroup's turn, and counts the turns since a slot was opened or a workgroup ended.

    The next turn of a workgroup that polls is short: many such workgroups would take the time of the one that they wait for. A
    long turn without a barrier makes the count PATIENCE at once: the workgroup may wait for one that has not begun. Short turns
    show neither.

    Turns of a workgroup that may wait for a lock are not as short as that: a loop with a random delay never polls.
    """
    short = is_short(slot)
    slot.turns += 1
    if short and slot.state == BUSY:
        slot.used = 0
        if slot.haste < MOST_HASTE:
            job.moved = 1
        return
    if slot.state == EMPTY:
        job.turns = 0
    elif slot.met or slot.haste:
        job.turns += 1
    else:
        job.turns = PATIENCE
    if (slot.polls or slot.recurs) and slot.state == BUSY:
        slot.haste = MOST_HASTE
    else:
        slot.haste = max(slot.haste - 2, LOCK_HASTE * slot.contends)
        job.moved = 1
    slot.used = slot.met = slot.looks = slot.recurs = slot.contends = 0


@runtime
def run_worker(job_at: int, slots_at: int, resident: int) -> int:
    """Runs workgroups until none is left, or until it must return to Python. resident: number of slots.

    A workgroup's turn ends when its waves have used TURN record steps together (a sleep counts as a whole slice), or when all
    wait for other workgroups. Then another slot is opened, unless the workgroup passed a barrier in this turn: it makes progress,
    or polls in a loop with a barrier. So the resident workgroups have PATIENCE turns first. If all of them poll, another thread
    of the host may run: the worker that they wait for may need this one's processor.
    """
    job, slots = structure(job_at, JOB), records(slots_at, resident, SLOT)
    while True:
        number = job.current
        if slots[number].state == EMPTY and not job.exhausted:
            open_group(job, slots, number)
        # A caller that returned in between first ends the round of its workgroup's waves.
        while slots[number].state == BUSY and (job.wave or job.turn < 0 or slots[number].used < turn_steps(slots[number])):
            status = run_group(job, slots, number)
            if status != FINISHED:
                return status
        end_turn(job, slots[number])
        if slots[number].state == EMPTY and not job.exhausted:
            continue
        if job.turns >= PATIENCE and job.open < job.slots and not job.exhausted:
            job.turns = 0
            slots[job.open].haste = slots[job.current].haste  # what joins those that poll most likely polls, too
            job.current = job.open
            job.open += 1
            continue
        job.current += 1
        if job.current == job.open:
            if job.taken == 0:
                return FINISHED
            job.current = 0
            if not job.active:
                return IDLE
            job.active = 0
            if not job.moved:
                call(job.give_way, job.context, job.context)
            job.moved = 0
        job.turn = layout.SLICE >> slots[job.current].haste
