"""The loop of one host thread: workgroups to waves to handlers, compiled by numba.

A worker takes workgroups from a shared counter and keeps some of them resident. A wave runs until
it ends, waits at a barrier, or has used its time slice; a workgroup whose slice is over lets
others on, so that workgroups which wait for each other make progress. What needs Python (a record
to lower, a fault) is returned as a status, and the worker is called again with its state intact.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from simgpu.engine.scheduler import (  # fmt: skip
    BUSY,
    EMPTY,
    FINISHED,
    JOB_AGPRS,
    JOB_BLOCK_X,
    JOB_BLOCK_Y,
    JOB_BLOCK_Z,
    JOB_CONTEXT,
    JOB_COUNTER,
    JOB_CURRENT,
    JOB_ENTERED,
    JOB_EXHAUSTED,
    JOB_FIELDS,
    JOB_FLAT_SCRATCH,
    JOB_GRID_X,
    JOB_GRID_Y,
    JOB_GROUP_ID_MASK,
    JOB_GROUP_ID_SGPR,
    JOB_GROUPS,
    JOB_ID_MODE,
    JOB_KERNARG_SGPR,
    JOB_KERNARGS,
    JOB_LDS,
    JOB_LDS_SHADOW,
    JOB_LDS_STRIDE,
    JOB_LIMIT,
    JOB_OPEN,
    JOB_SCRATCH,
    JOB_SCRATCH_SGPR,
    JOB_SCRATCH_SHADOW,
    JOB_SCRATCH_WAVE,
    JOB_SHADOW,
    JOB_SIZE_X,
    JOB_SIZE_Y,
    JOB_SIZE_Z,
    JOB_SLOTS,
    JOB_STOP,
    JOB_TAKEN,
    JOB_TEMPLATE,
    JOB_VGPRS,
    JOB_WAVE,
    JOB_WAVE_BYTES,
    JOB_WAVE_MEMORY,
    JOB_WAVES,
    LIMIT,
    NEED_PYTHON,
    SLOT_FIELDS,
    SLOT_LEFT,
    SLOT_STATE,
    SLOT_TURNS,
    SLOT_WAITING,
    SLOT_WAVES,
    SLOT_X,
    SLOT_Y,
    SLOT_Z,
    STOPPED,
    TURNS,
)
from simgpu.machine import layout
from simgpu.machine.layout import Status
from simgpu.machine.runtime import PART, clear, copy, fill, load32, load64, pointer, runtime, store32, store64, words


@intrinsic
def call_handler(typing: Any, function: Any, wave: Any, record: Any) -> Any:
    """Call the handler at address `function` with two addresses."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        handler = ir.FunctionType(ir.VoidType(), [pointer, pointer])
        target = builder.inttoptr(args[0], handler.as_pointer())
        builder.fence("acquire")  # its record may just have been lowered by another thread
        builder.call(target, [builder.inttoptr(a, pointer) for a in args[1:]])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def take_next(typing: Any, address: Any) -> Any:
    """Fetch and add 1, indivisibly."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.int64), generate


@numba.njit(**PART)
def fill_ids(job: Any, wave: int, first: int, x_count: int, y_count: int, lanes: int) -> None:
    """Work-item ids of the wave whose first flat id is `first` into v0 (and v1, v2)."""
    v0 = wave + layout.VGPR
    x = first % x_count
    y = first // x_count % y_count
    z = first // (x_count * y_count)
    mode = job[JOB_ID_MODE]
    for lane in range(lanes):
        if mode == 3:
            store32(v0 + 4 * lane, x | y << 10 | z << 20)
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


@numba.njit(**PART)
def start_wave(job: Any, slot: Any, number: int, index: int, items: int) -> None:
    """Initial state of wave `index` of the workgroup in slot `number`, which has `items` items."""
    at = number * job[JOB_WAVES] + index
    wave = job[JOB_WAVE_MEMORY] + at * job[JOB_WAVE_BYTES]
    if job[JOB_SHADOW]:
        copy(wave + layout.WAVE_BYTES, job[JOB_SHADOW], layout.SHADOW_BEGIN)
        clear(wave + layout.WAVE_BYTES + layout.VGPR, 3 * layout.ROW)  # the work-item ids
        clear(wave + layout.SHADOW_ORIGINS, 4096)
        if job[JOB_SCRATCH_SHADOW]:
            fill(job[JOB_SCRATCH_SHADOW] + at * job[JOB_SCRATCH_WAVE], job[JOB_SCRATCH_WAVE], 0xFF)
    copy(wave, job[JOB_TEMPLATE], layout.ADDRESSES)
    clear(wave + layout.VGPR, job[JOB_VGPRS] * layout.ROW)
    clear(wave + layout.AGPR, job[JOB_AGPRS] * layout.ROW)
    sgpr = job[JOB_GROUP_ID_SGPR]
    for axis in range(3):
        if job[JOB_GROUP_ID_MASK] >> axis & 1:
            store32(wave + 4 * sgpr, slot[SLOT_X + axis])
            sgpr += 1
    scratch = job[JOB_SCRATCH] + at * job[JOB_SCRATCH_WAVE]
    if job[JOB_SCRATCH_SGPR] >= 0:
        store32(wave + 4 * job[JOB_SCRATCH_SGPR], at * job[JOB_SCRATCH_WAVE])
    if job[JOB_FLAT_SCRATCH]:
        store64(wave + 4 * 102, scratch)
    left = items - 64 * index
    store64(wave + 4 * 126, -1 if left >= 64 else (1 << left) - 1)
    store32(wave + layout.WAVE_ID, index)
    store32(wave + layout.HW_ID, at)
    store64(wave + layout.LDS_BASE, job[JOB_LDS] + number * job[JOB_LDS_STRIDE])
    entered = job[JOB_ENTERED]
    store64(entered, load64(entered) + 1)
    x_count = min(job[JOB_BLOCK_X], job[JOB_SIZE_X] - slot[SLOT_X] * job[JOB_BLOCK_X])
    y_count = min(job[JOB_BLOCK_Y], job[JOB_SIZE_Y] - slot[SLOT_Y] * job[JOB_BLOCK_Y])
    fill_ids(job, wave, 64 * index, x_count, y_count, 64)
    z_count = min(job[JOB_BLOCK_Z], job[JOB_SIZE_Z] - slot[SLOT_Z] * job[JOB_BLOCK_Z])
    partial = int(x_count < job[JOB_BLOCK_X])
    partial |= int(y_count < job[JOB_BLOCK_Y]) << 1 | int(z_count < job[JOB_BLOCK_Z]) << 2
    if partial and job[JOB_KERNARG_SGPR] >= 0:
        store64(wave + 4 * job[JOB_KERNARG_SGPR], load64(job[JOB_KERNARGS] + 8 * partial))


@numba.njit(**PART)
def open_group(job: Any, slots: Any, number: int) -> None:
    """Put the next workgroup into slot `number`, if one is left."""
    group = take_next(job[JOB_COUNTER])
    if group >= job[JOB_GROUPS]:
        job[JOB_EXHAUSTED] = 1
        return
    slot = slots[number]
    gx, gy = job[JOB_GRID_X], job[JOB_GRID_Y]
    slot[SLOT_X] = group % gx
    slot[SLOT_Y] = group // gx % gy
    slot[SLOT_Z] = group // (gx * gy)
    # The last workgroup of a dimension may be partial.
    items = 1
    items *= min(job[JOB_BLOCK_X], job[JOB_SIZE_X] - slot[SLOT_X] * job[JOB_BLOCK_X])
    items *= min(job[JOB_BLOCK_Y], job[JOB_SIZE_Y] - slot[SLOT_Y] * job[JOB_BLOCK_Y])
    items *= min(job[JOB_BLOCK_Z], job[JOB_SIZE_Z] - slot[SLOT_Z] * job[JOB_BLOCK_Z])
    waves = (items + 63) // 64
    slot[SLOT_STATE] = BUSY
    slot[SLOT_WAVES] = waves
    slot[SLOT_LEFT] = waves
    slot[SLOT_WAITING] = 0
    clear(job[JOB_LDS] + number * job[JOB_LDS_STRIDE], job[JOB_LDS_STRIDE])
    if job[JOB_LDS_SHADOW]:
        fill(job[JOB_LDS_SHADOW] + number * job[JOB_LDS_STRIDE], job[JOB_LDS_STRIDE], 0xFF)
    for index in range(waves):
        start_wave(job, slot, number, index, items)
    job[JOB_TAKEN] += 1


@numba.njit(**PART)
def release_barrier(job: Any, slots: Any, number: int) -> None:
    """All waves that have not ended wait: let them on."""
    slot = slots[number]
    first = job[JOB_WAVE_MEMORY] + number * job[JOB_WAVES] * job[JOB_WAVE_BYTES]
    for index in range(slot[SLOT_WAVES]):
        status = first + index * job[JOB_WAVE_BYTES] + layout.STATUS
        if load32(status) == Status.BARRIER:
            store32(status, Status.RUNNING)
    slot[SLOT_WAITING] = 0


@numba.njit(**PART)
def run_group(job: Any, slots: Any, number: int) -> int:
    """Run each runnable wave of a workgroup for a slice, from wave JOB_WAVE on."""
    slot = slots[number]
    first = job[JOB_WAVE_MEMORY] + number * job[JOB_WAVES] * job[JOB_WAVE_BYTES]
    while job[JOB_WAVE] < slot[SLOT_WAVES]:
        wave = first + job[JOB_WAVE] * job[JOB_WAVE_BYTES]
        status = load32(wave + layout.STATUS)
        if status == Status.RUNNING or status == Status.YIELD or status == Status.LOWER:
            turn = min(layout.SLICE, job[JOB_LIMIT])
            store64(wave + layout.BUDGET, turn)
            record = load64(wave + layout.RECORDS) + load32(wave + layout.RESUME) * layout.RECORD
            call_handler(load64(record), wave, record)
            spent = turn - load64(wave + layout.BUDGET)
            job[JOB_LIMIT] -= spent
            clock = job[JOB_CONTEXT] + layout.CTX_CLOCK
            store64(clock, load64(clock) + spent)
            status = load32(wave + layout.STATUS)
            if status == Status.ENDED:
                slot[SLOT_LEFT] -= 1
            elif status == Status.BARRIER:
                slot[SLOT_WAITING] += 1
            elif status == Status.YIELD:
                slot[SLOT_TURNS] += 1
            else:
                return NEED_PYTHON
        if slot[SLOT_LEFT] and slot[SLOT_WAITING] == slot[SLOT_LEFT]:
            release_barrier(job, slots, number)
        if job[JOB_LIMIT] < 0:
            return LIMIT
        if job[JOB_STOP]:
            return STOPPED
        job[JOB_WAVE] += 1
    job[JOB_WAVE] = 0
    if slot[SLOT_LEFT] == 0:
        slot[SLOT_STATE] = EMPTY
        job[JOB_TAKEN] -= 1
    return FINISHED


@runtime
def run_worker(job_at: int, slots_at: int, resident: int) -> int:
    """Run workgroups until none is left, or until Python is needed; the addresses of `job` and `slots`, and how many slots.

    A workgroup keeps its turn until its waves used up their slices or slept; only when all
    resident ones did is another slot opened.
    """
    job = words(job_at, JOB_FIELDS)
    slots = numba.carray(pointer(slots_at), (resident, SLOT_FIELDS), np.int64)
    while True:
        number = job[JOB_CURRENT]
        if slots[number, SLOT_STATE] == EMPTY and not job[JOB_EXHAUSTED]:
            open_group(job, slots, number)
        while slots[number, SLOT_STATE] == BUSY and slots[number, SLOT_TURNS] < TURNS:
            status = run_group(job, slots, number)
            if status != FINISHED:
                return status
        slots[number, SLOT_TURNS] = 0
        if slots[number, SLOT_STATE] == EMPTY and not job[JOB_EXHAUSTED]:
            continue
        job[JOB_CURRENT] += 1
        if job[JOB_CURRENT] == job[JOB_OPEN]:
            if job[JOB_TAKEN] == 0:
                return FINISHED
            job[JOB_CURRENT] = 0
            if job[JOB_OPEN] < job[JOB_SLOTS] and not job[JOB_EXHAUSTED]:
                job[JOB_CURRENT] = job[JOB_OPEN]
                job[JOB_OPEN] += 1
