"""Delivers loaded data as late as the hardware may: only when the kernel waits for it.

Plain and checked mode complete a load at once. With this check its destination holds poison from issue until an s_waitcnt
certainly completes it. A kernel with enough waits gives the same results. Stores and LDS writes take effect at once.

No mode of `Device` uses this check: `simgpu.tools.robustness.mutate` and tests set `Device.checks` to it.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of, registers_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, LIMITS, SMEM, VM, awaited_counters
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.runtime import address_of, copy, load32, load64, part, runtime, store32, store64, structure
from simgpu.machine.values import I32, I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker
    from simgpu.machine.operands import Plan

(LOADS,) = context_fields("late_arrival", 1)  # address of the waves' late loads
(READY,) = wave_fields("late_arrival", 1)  # 1 if the wave's late loads are set up
POISON = 0x7FDBFDB5  # a NaN as f32 and as two f16; as an address, far outside

NOTHING, ROWS, SCALARS, IN_LDS = range(4)  # destinations: none, vector registers, scalar registers, LDS
PIECE = 16  # most bytes that a lane loads to LDS
# Queues: numbers, first entries in `LateWave.operations`, numbers of entries.
VM_QUEUE, DS_QUEUE, SMEM_QUEUE, FLAT_QUEUE = range(4)
NUMBER = {VM.name: VM_QUEUE, DS.name: DS_QUEUE, SMEM.name: SMEM_QUEUE, FLAT.name: FLAT_QUEUE}
STARTS, SIZES = (0, 64, 80, 112), (64, 16, 32, 32)


class Late(Structure):
    """An operation in flight."""

    _fields_ = (
        ("kind", c_int64),  # NOTHING, ROWS, SCALARS or IN_LDS
        ("where", c_int64),  # offset of its registers in the wave
        ("count", c_int64),  # number of registers, or bytes a lane in LDS
        ("lanes", c_int64),  # mask
        ("bits", c_int64),  # bits of each register that it writes
        ("open", c_int64),  # flat: counters not waited for, 1 vmcnt, 2 lgkmcnt
        ("unused", c_int64 * 2),
        ("offsets", c_int64 * LANES),  # offsets in LDS; data of registers begins here
        ("data", c_int64 * (PIECE // 8 * LANES)),  # data of each lane, PIECE bytes at most
    )


class LateQueue(Structure):
    """Operations of a queue: the position of the first, and their number."""

    _fields_ = (("first", c_int64), ("used", c_int64))


class LateWave(Structure):
    """Operations of a wave."""

    _fields_ = (("queues", LateQueue * len(SIZES)), ("operations", Late * sum(SIZES)))


LATE_WAVE, WAVE_BYTES = np.dtype(LateWave), sizeof(LateWave)


@part
def operations_of(wave: int) -> Any:
    """Returns the wave's `LateWave`, empty at the first call of a wave."""
    here = structure(context(wave, LOADS) + load32(wave + layout.HW_ID) * WAVE_BYTES, LATE_WAVE)
    if not load64(wave + READY):
        for queue in here.queues:
            queue.first = 0
            queue.used = 0
        store64(wave + READY, 1)
    return here


@part
def write_bits(address: int, value: int, bits: int) -> None:
    store32(address, load32(address) & ~bits | value & bits)


@part
def deliver(wave: int, late: Any) -> None:
    """Writes the data of an operation to its destination."""
    where, data = wave + late.where, address_of(late.offsets)
    if late.kind == SCALARS:
        copy(where, data, 4 * late.count)
    elif late.kind == ROWS:
        for row in range(late.count):
            for lane in range(LANES):
                if late.lanes >> lane & 1:
                    at = ROW * row + 4 * lane
                    write_bits(where + at, load32(data + at), late.bits)
    elif late.kind == IN_LDS:
        base = load64(wave + layout.LDS_BASE)
        for lane in range(LANES):
            if late.lanes >> lane & 1:
                copy(base + late.offsets[lane], address_of(late.data) + PIECE * lane, late.count)
    late.kind = NOTHING


@part
def late_of(here: Any, queue: int, position: int) -> Any:
    """Returns an operation of a queue. position: 0 for the oldest."""
    return here.operations[STARTS[queue] + (here.queues[queue].first + position) % SIZES[queue]]


@part
def drain(wave: int, here: Any, queue: int, left: int) -> None:
    """Completes the oldest operations until `left` are left."""
    held = here.queues[queue]
    while held.used > left:
        deliver(wave, late_of(here, queue, 0))
        held.first = (held.first + 1) % SIZES[queue]
        held.used -= 1


@part
def append(wave: int, queue: int) -> Any:
    """Adds an operation to a queue and returns it. If the queue is full, the oldest completes first."""
    here = operations_of(wave)
    drain(wave, here, queue, SIZES[queue] - 2)
    held = here.queues[queue]
    late = late_of(here, queue, held.used)
    held.used += 1
    late.kind = NOTHING
    late.open = 3
    return late


@runtime
def issue(wave: int, queue: int, where: int, count: int, bits: int) -> None:
    """Issues an executed load: saves its `count` registers from offset `where` of the wave on, and poisons them until it
    completes. bits: bits of each register that it writes."""
    late = append(wave, queue)
    if count == 0:
        return
    data, registers = address_of(late.offsets), wave + where
    late.kind = SCALARS if queue == SMEM_QUEUE else ROWS
    late.where = where
    late.count = count
    late.bits = bits
    if queue == SMEM_QUEUE:
        copy(data, registers, 4 * count)
        for i in range(count):
            store32(registers + 4 * i, POISON)
        return
    lanes = load64(wave + 4 * 126)
    late.lanes = lanes
    copy(data, registers, ROW * count)
    for row in range(count):
        for lane in range(LANES):
            if lanes >> lane & 1:
                write_bits(registers + ROW * row + 4 * lane, POISON, bits)


@runtime
def issue_lds(wave: int, lanes: int, size: int, offsets: int) -> None:
    """Issues an executed load to LDS: saves and poisons `size` bytes at each lane's offset."""
    late = append(wave, VM_QUEUE)
    late.kind = IN_LDS
    late.count = size
    late.lanes = lanes
    copy(address_of(late.offsets), offsets, 8 * LANES)
    base = load64(wave + layout.LDS_BASE)
    for lane in range(LANES):
        if lanes >> lane & 1:
            place = base + late.offsets[lane]
            copy(address_of(late.data) + PIECE * lane, place, size)
            for at in range(0, size, 4):
                store32(place + at, POISON)


@runtime
def complete(wave: int, vm: int, lgkm: int) -> None:
    """Delivers the operations that an s_waitcnt completes. vm, lgkm: its counts."""
    here = operations_of(wave)
    drain(wave, here, VM_QUEUE, vm)
    drain(wave, here, DS_QUEUE, lgkm)
    if lgkm == 0:
        drain(wave, here, SMEM_QUEUE, 0)
    closed = (vm == 0) | (lgkm == 0) << 1
    for position in range(here.queues[FLAT_QUEUE].used):
        late = late_of(here, FLAT_QUEUE, position)
        late.open &= ~closed
        if not late.open:
            deliver(wave, late)
    if closed == 3:
        drain(wave, here, FLAT_QUEUE, 0)


class LateArrival(Check):
    """Calls `issue` after loads and `complete` at waits."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.control is ControlKind.WAITCNT or effect_of(inst).queue is not None

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """Returns (queue, slot of the registers, count, bits) for an operation, or the slots of a wait's counts."""
        immediate = inst.args.get("simm16")
        if inst.spec.control is ControlKind.WAITCNT and isinstance(immediate, Imm):
            counts = LIMITS | awaited_counters(immediate.value)
            return [plan.immediate(counts[name]).slot for name in ("vmcnt", "lgkmcnt")]
        effect = effect_of(inst)
        if effect.queue is None or effect.queue.name not in NUMBER:
            return None
        where, count, bits = _destination(inst, effect)
        plan.note("late", count, bits)
        return NUMBER[effect.queue.name], plan.immediate(where).slot, count, bits

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if isinstance(planned, list):
            complete.call(frame.build, frame.wave, *(frame.build.zext(frame.slot(slot, I32), I64) for slot in planned))

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if isinstance(planned, tuple) and not (effect_of(inst).dma and effect_of(inst).lds == "write"):
            queue, slot, count, bits = planned
            where = frame.build.zext(frame.slot(slot, I32), I64)
            issue.call(frame.build, frame.wave, queue, where, count, bits)

    def access(self, frame: Frame, access: Access) -> None:
        assert frame.inst is not None
        effect = effect_of(frame.inst)
        if access.space == "lds" and effect.dma and access.writes:
            where = frame.at(frame.wave, layout.ADDRESSES)
            frame.store(access.offsets, where, align=8)
            issue_lds.call(frame.build, frame.wave, access.lanes, access.size, where)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        memory = aligned_bytes(len(worker.slots) * launch.waves * WAVE_BYTES)
        worker.checks["late"] = memory
        worker.set_context(LOADS, memory.ctypes.data)


def _destination(inst: Instruction, effect: Effect) -> tuple[int, int, int]:
    """Returns a load's destination: offset in the wave, number of registers, and the bits of each that it writes; all 0 if it
    loads no register."""
    for name in ("vdst", "vdata", "sdst", "sdata"):
        reg = inst.args.get(name)
        if not effect.pending or not isinstance(reg, Reg) or not effect.pending <= registers_of(reg):
            continue
        if reg.file == "s":
            return layout.SGPR + 4 * reg.index, reg.count, 0xFFFFFFFF
        memory = inst.spec.memory
        half = memory.d16 if memory is not None and memory.count == 1 else ""
        bits = {"lo": 0xFFFF, "hi": 0xFFFF0000}.get(half, 0xFFFFFFFF)
        return layout.vector_register(reg.file, reg.index), len(effect.pending), bits
    return 0, 0, 0
