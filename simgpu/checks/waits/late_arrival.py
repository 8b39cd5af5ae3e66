"""The adversarial completion order: what a load brings arrives only when it is waited for.

Plain and checked mode complete a load at once. Here its destination holds poison from issue until an
s_waitcnt makes certain that it is complete, in the order that the hardware guarantees and no earlier.
A kernel whose waits are enough gives the same results. Not a check that a user meets: `simgpu.tools.robustness.mutate`
and tests set `Device.checks` to it. Stores and LDS writes take effect at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of, registers_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, LIMITS, SMEM, VM, waited
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.runtime import clear, copy, load32, load64, part, runtime, store32, store64
from simgpu.machine.values import I32, I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker
    from simgpu.machine.operands import Plan

(LOADS,) = context_fields("late_arrival", 1)  # address of the waves' late loads
(READY,) = wave_fields("late_arrival", 1)  # whether the wave's are set up
POISON = 0x7FDBFDB5  # a NaN as f32 and as two f16, far outside as an address

# An operation in flight: what it is, where its data goes (offset in the wave), registers or bytes a
# lane, lanes, bits of each register that it writes, counters not waited for; then the data.
KIND, WHERE, COUNT, MASK, BITS, OPEN = range(6)
NOTHING, ROWS, SCALARS, IN_LDS = range(4)
DATA, ENTRY = 64, 64 + 512 + 16 * LANES
# Queues: number, first entry, entries. A wave's operations: per queue (first, used), then the entries.
VM_QUEUE, DS_QUEUE, SMEM_QUEUE, FLAT_QUEUE = range(4)
NUMBER = {VM.name: VM_QUEUE, DS.name: DS_QUEUE, SMEM.name: SMEM_QUEUE, FLAT.name: FLAT_QUEUE}
STARTS, SIZES = (0, 64, 80, 112), (64, 16, 32, 32)
HEADER = 64
WAVE_STRIDE = HEADER + 144 * ENTRY


@part
def operations_of(wave: int) -> int:
    """Address of the wave's operations, empty at its start."""
    here = context(wave, LOADS) + load32(wave + layout.HW_ID) * WAVE_STRIDE
    if not load64(wave + READY):
        clear(here, HEADER)
        store64(wave + READY, 1)
    return here


@part
def write_bits(address: int, value: int, bits: int) -> None:
    store32(address, load32(address) & ~bits | value & bits)


@part
def deliver(wave: int, entry: int) -> None:
    """The data arrives."""
    kind, where = load64(entry), wave + load64(entry + 8 * WHERE)
    count, mask, bits = (load64(entry + 8 * COUNT), load64(entry + 8 * MASK), load64(entry + 8 * BITS))
    data = entry + DATA
    if kind == SCALARS:
        copy(where, data, 4 * count)
    elif kind == ROWS:
        for row in range(count):
            for lane in range(LANES):
                if mask >> lane & 1:
                    at = ROW * row + 4 * lane
                    write_bits(where + at, load32(data + at), bits)
    elif kind == IN_LDS:
        base = load64(wave + layout.LDS_BASE)
        for lane in range(LANES):
            if mask >> lane & 1:
                copy(base + load64(data + 8 * lane), data + 512 + 16 * lane, count)
    store64(entry, NOTHING)


@part
def entry_of(here: int, queue: int, position: int) -> int:
    first = load64(here + 16 * queue)
    size = SIZES[queue]
    return here + HEADER + ENTRY * (STARTS[queue] + (first + position) % size)


@part
def drain(wave: int, here: int, queue: int, left: int) -> None:
    """The oldest operations complete until `left` are left."""
    used = load64(here + 16 * queue + 8)
    while used > left:
        deliver(wave, entry_of(here, queue, 0))
        store64(here + 16 * queue, (load64(here + 16 * queue) + 1) % SIZES[queue])
        used -= 1
    store64(here + 16 * queue + 8, used)


@part
def append(wave: int, queue: int) -> int:
    """A new entry at the queue's end; a full queue stalls until the oldest is complete."""
    here = operations_of(wave)
    drain(wave, here, queue, SIZES[queue] - 2)
    used = load64(here + 16 * queue + 8)
    store64(here + 16 * queue + 8, used + 1)
    entry = entry_of(here, queue, used)
    store64(entry, NOTHING)
    store64(entry + 8 * OPEN, 3)
    return entry


@runtime
def issue(wave: int, queue: int, where: int, count: int, bits: int) -> None:
    """An operation whose `count` registers from offset `where` are written, and not yet there."""
    entry = append(wave, queue)
    if count == 0:
        return
    data, registers = entry + DATA, wave + where
    store64(entry, SCALARS if queue == SMEM_QUEUE else ROWS)
    store64(entry + 8 * WHERE, where)
    store64(entry + 8 * COUNT, count)
    store64(entry + 8 * BITS, bits)
    if queue == SMEM_QUEUE:
        copy(data, registers, 4 * count)
        for i in range(count):
            store32(registers + 4 * i, POISON)
        return
    mask = load64(wave + 4 * 126)
    store64(entry + 8 * MASK, mask)
    copy(data, registers, ROW * count)
    for row in range(count):
        for lane in range(LANES):
            if mask >> lane & 1:
                write_bits(registers + ROW * row + 4 * lane, POISON, bits)


@runtime
def issue_lds(wave: int, lanes: int, size: int, offsets: int) -> None:
    """A load to LDS: `size` bytes of each of the lanes at their offsets."""
    entry = append(wave, VM_QUEUE)
    store64(entry, IN_LDS)
    store64(entry + 8 * COUNT, size)
    store64(entry + 8 * MASK, lanes)
    copy(entry + DATA, offsets, 8 * LANES)
    base = load64(wave + layout.LDS_BASE)
    for lane in range(LANES):
        if lanes >> lane & 1:
            place = base + load64(offsets + 8 * lane)
            copy(entry + DATA + 512 + 16 * lane, place, size)
            for at in range(0, size, 4):
                store32(place + at, POISON)


@runtime
def complete(wave: int, vm: int, lgkm: int) -> None:
    """Deliver what an s_waitcnt completes: at most so many operations are left of each counter."""
    here = operations_of(wave)
    drain(wave, here, VM_QUEUE, vm)
    drain(wave, here, DS_QUEUE, lgkm)
    if lgkm == 0:
        drain(wave, here, SMEM_QUEUE, 0)
    closed = (vm == 0) | (lgkm == 0) << 1
    for position in range(load64(here + 16 * FLAT_QUEUE + 8)):
        entry = entry_of(here, FLAT_QUEUE, position)
        still = load64(entry + 8 * OPEN) & ~closed
        store64(entry + 8 * OPEN, still)
        if not still:
            deliver(wave, entry)
    if closed == 3:
        drain(wave, here, FLAT_QUEUE, 0)


class LateArrival(Check):
    """Calls `issue` behind loads and `complete` at waits."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.control is ControlKind.WAITCNT or effect_of(inst).queue is not None

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """(queue, registers, bits) with their slots of an operation, or the slots of a wait's counts."""
        immediate = inst.args.get("simm16")
        if inst.spec.control is ControlKind.WAITCNT and isinstance(immediate, Imm):
            counts = LIMITS | waited(immediate.value)
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
        memory = aligned_bytes(len(worker.slots) * launch.waves * WAVE_STRIDE)
        worker.checks["late"] = memory
        worker.set_context(LOADS, memory.ctypes.data)


def _destination(inst: Instruction, effect: Effect) -> tuple[int, int, int]:
    """Offset in the wave, registers, and the bits of each that the operation writes; count 0: none."""
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
