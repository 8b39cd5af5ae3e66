"""Late mode: loads and LDS writes take effect when the kernel waits for them, or at an earlier moment that a seed chooses.

Plain and checked mode complete an operation at once. In late mode its registers, or its bytes of LDS, hold their old values until
it completes: at the latest at an s_waitcnt that certainly completes it, in order within a queue that is in order. A wave's own LDS
reads see its earlier LDS writes, because its LDS operations execute in order, flat ones included; other waves see them when they
complete. Stores and atomics take effect at once. A kernel with enough waits gives the same results under every seed.

`Device(late=seed)` is the mode. Without a seed, as in `simgpu.tools.robustness.mutate` and tests, which set `Device.checks`,
operations complete as late as possible, and their destinations hold poison before.
"""

from __future__ import annotations

import random
from ctypes import Structure, addressof, c_int64, sizeof
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from simgpu.alu.control import ENDS
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context, slot_of, waves_of
from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of, registers_of
from simgpu.hardware.timing_rules.waits import DS, FLAT, LIMITS, SMEM, VM, awaited_counters
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.runtime import address_of, copy, draw, load32, load64, part, runtime, store32, store64, structure
from simgpu.machine.values import I32, I64

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker
    from simgpu.machine.operands import Plan

(LOADS,) = context_fields("late_arrival", 1)  # address of the waves' late loads
(READY,) = wave_fields("late_arrival", 1)  # 1 if the wave's late loads are set up
POISON = 0x7FDBFDB5  # a NaN as f32 and as two f16; as an address, far outside

NOTHING, ROWS, SCALARS, IN_LDS = range(4)  # destinations: none, vector registers, scalar registers, LDS
PIECE = 16  # most bytes of a lane in LDS
DATA = 5 * ROW  # bytes of the most rows that an operation loads
NO_LDS, READ, WRITE, ATOMIC = range(4)  # uses of LDS by an operation; ATOMIC: all other instructions that change it
# Odd multipliers: they spread a wave's place and the seed over the generator's state.
SPREAD, SPREAD_SEED = 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85
# The seed chooses one for `LateBlock.advance`; with the last one nearly all operations complete at their waits.
ADVANCE = (1, 2, 3, 5, 30)
# Queues: numbers, first entries in `LateWave.operations`, numbers of entries.
VM_QUEUE, DS_QUEUE, SMEM_QUEUE, FLAT_QUEUE = range(4)
NUMBER = {VM.name: VM_QUEUE, DS.name: DS_QUEUE, SMEM.name: SMEM_QUEUE, FLAT.name: FLAT_QUEUE}
STARTS, SIZES = (0, 64, 80, 112), (64, 16, 32, 32)
QUEUES = len(SIZES)


class Late(Structure):
    """An operation in flight."""

    _fields_ = (
        ("kind", c_int64),  # NOTHING, ROWS, SCALARS or IN_LDS
        ("where", c_int64),  # offset of its registers in the wave
        ("count", c_int64),  # number of registers, or bytes a lane and piece in LDS
        ("bits", c_int64),  # bits of each register that it writes
        ("open", c_int64),  # flat: counters not waited for, 1 vmcnt, 2 lgkmcnt
        ("pieces", c_int64),  # in LDS: number of addresses a lane, 2 for ds_write2
        ("lanes", c_int64 * 2),  # mask, for each piece
        ("offsets", c_int64 * (2 * LANES)),  # in LDS, for each piece
        ("data", c_int64 * (DATA // 8)),  # rows of registers, or PIECE bytes a lane in LDS
        ("old", c_int64 * (DATA // 8)),  # the same before the operation
    )  # fmt: skip


class LateQueue(Structure):
    """Operations of a queue: the position of the first, and their number."""

    _fields_ = (("first", c_int64), ("used", c_int64))


class LateWave(Structure):
    """Operations of a wave."""

    _fields_ = (("random", c_int64 * 1), ("queues", LateQueue * QUEUES), ("operations", Late * sum(SIZES)))


class LateBlock(Structure):
    """Memory of late mode, as handlers find it."""

    _fields_ = (
        ("waves", c_int64),  # address of a `LateWave` for each wave
        ("seed", c_int64),  # -1: operations complete only at waits, and poison fills their destinations
        ("advance", c_int64),  # chance that the oldest operation of a queue completes early, at each event: 1 in 2^advance
    )


BLOCK, LATE_WAVE, WAVE_BYTES = np.dtype(LateBlock), np.dtype(LateWave), sizeof(LateWave)


@part
def operations_of(wave: int) -> Any:
    """Returns the wave's `LateWave`, empty at the first call of a wave."""
    block = structure(context(wave, LOADS), BLOCK)
    here = structure(block.waves + load32(wave + layout.HW_ID) * WAVE_BYTES, LATE_WAVE)
    if not load64(wave + READY):
        group = slot_of(wave).group
        place = ((group[2] << 20) + group[1] << 20) + group[0] << 5
        here.random[0] = (place + load32(wave + layout.HW_ID) % waves_of(wave)) * SPREAD + block.seed * SPREAD_SEED
        for queue in here.queues:
            queue.first = 0
            queue.used = 0
        store64(wave + READY, 1)
    return here


@part
def poisons(wave: int) -> bool:
    """True without a seed."""
    return structure(context(wave, LOADS), BLOCK).seed < 0


@part
def write_bits(address: int, value: int, bits: int) -> None:
    store32(address, load32(address) & ~bits | value & bits)


@part
def write_registers(wave: int, late: Any, source: int) -> None:
    """Writes a load's registers."""
    where = wave + late.where
    if late.kind == SCALARS:
        copy(where, source, 4 * late.count)
        return
    for row in range(late.count):
        for lane in range(LANES):
            if late.lanes[0] >> lane & 1:
                at = ROW * row + 4 * lane
                write_bits(where + at, load32(source + at), late.bits)


@part
def copy_lds(wave: int, late: Any, there: int, first: int, end: int, writes: bool) -> None:
    """Copies bytes of pieces first..end between LDS and `there`."""
    base = load64(wave + layout.LDS_BASE)
    for piece in range(first, end):
        for lane in range(LANES):
            if late.lanes[piece] >> lane & 1:
                place = base + late.offsets[LANES * piece + lane]
                mine = there + PIECE * lane + PIECE // 2 * piece
                if writes:
                    copy(place, mine, late.count)
                else:
                    copy(mine, place, late.count)


@part
def deliver(wave: int, late: Any) -> None:
    """Writes the data of an operation to its destination."""
    if late.kind == IN_LDS:
        copy_lds(wave, late, address_of(late.data), 0, late.pieces, True)
    elif late.kind != NOTHING:
        write_registers(wave, late, address_of(late.data))
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
def advance(wave: int, here: Any) -> None:
    """Completes operations early, as chance has it."""
    block = structure(context(wave, LOADS), BLOCK)
    if block.seed < 0:
        return
    for queue in range(QUEUES):
        while here.queues[queue].used and draw(address_of(here.random)) & (1 << block.advance) - 1 == 0:
            drain(wave, here, queue, here.queues[queue].used - 1)


@part
def next_of(wave: int, queue: int) -> Any:
    """Returns the place of the operation that a queue gets next."""
    here = operations_of(wave)
    return late_of(here, queue, here.queues[queue].used)


@runtime
def begin(wave: int, queue: int, where: int, count: int, bits: int, lds: int) -> None:
    """Prepares an operation before it executes. If the queue is full, the oldest operation completes first.

    where, count: its registers, at an offset in the wave. bits: bits of each register that it writes. lds: its use of LDS
    """
    here = operations_of(wave)
    drain(wave, here, queue, SIZES[queue] - 2)
    if lds == ATOMIC:
        drain(wave, here, DS_QUEUE, 0)
    elif lds == READ:
        for position in range(here.queues[DS_QUEUE].used):
            late = late_of(here, DS_QUEUE, position)
            if late.kind == IN_LDS:
                copy_lds(wave, late, address_of(late.old), 0, late.pieces, False)
                copy_lds(wave, late, address_of(late.data), 0, late.pieces, True)
    late = late_of(here, queue, here.queues[queue].used)
    late.kind, late.open, late.pieces = NOTHING, 3, 0
    late.where, late.count, late.bits = where, count, bits
    if count:
        late.kind = SCALARS if queue == SMEM_QUEUE else ROWS
        copy(address_of(late.old), wave + where, (4 if queue == SMEM_QUEUE else ROW) * count)


@runtime
def overwrite_lds(wave: int, queue: int, lanes: int, size: int, offsets: int) -> None:
    """Saves the bytes of LDS that the operation of `begin` is about to overwrite: `size` bytes at each lane's offset."""
    late = next_of(wave, queue)
    piece = late.pieces
    late.kind, late.count, late.pieces = IN_LDS, size, piece + 1
    late.lanes[piece] = lanes
    copy(address_of(late.offsets) + 8 * LANES * piece, offsets, 8 * LANES)
    copy_lds(wave, late, address_of(late.old), piece, piece + 1, False)


@runtime
def issue(wave: int, queue: int, lds: int) -> None:
    """Issues the operation of `begin`, which has executed: saves its results, and restores their destinations."""
    here = operations_of(wave)
    if lds == READ:
        for back in range(here.queues[DS_QUEUE].used):
            earlier = late_of(here, DS_QUEUE, here.queues[DS_QUEUE].used - 1 - back)
            if earlier.kind == IN_LDS:
                copy_lds(wave, earlier, address_of(earlier.old), 0, earlier.pieces, True)
    late = late_of(here, queue, here.queues[queue].used)
    data, old = address_of(late.data), address_of(late.old)
    if poisons(wave):
        for at in range(0, DATA, 4):
            store32(old + at, POISON)
    if late.kind == IN_LDS:
        copy_lds(wave, late, data, 0, late.pieces, False)
        copy_lds(wave, late, old, 0, late.pieces, True)
    elif late.kind == SCALARS:
        copy(data, wave + late.where, 4 * late.count)
        write_registers(wave, late, old)
    elif late.kind == ROWS:
        late.lanes[0] = load64(wave + 4 * 126)
        copy(data, wave + late.where, ROW * late.count)
        write_registers(wave, late, old)
    here.queues[queue].used += 1
    advance(wave, here)


@runtime
def complete(wave: int, vm: int, lgkm: int) -> None:
    """Completes the operations that an s_waitcnt waits for. vm, lgkm: its counts."""
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
    advance(wave, here)


class Operation(NamedTuple):
    """An instruction's operation, for `begin`."""

    queue: int
    slot: int  # of the offset of its registers
    registers: int
    bits: int
    lds: int  # its use of LDS


class LateArrival(Check):
    """Calls `begin` and `issue` around operations, and `complete` at waits."""

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.control in (ControlKind.WAITCNT, *ENDS) or effect_of(inst).queue is not None

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """Returns the `Operation`, or the slots of a wait's counts."""
        immediate = inst.args.get("simm16")
        if inst.spec.control is ControlKind.WAITCNT and isinstance(immediate, Imm):
            counts = LIMITS | awaited_counters(immediate.value)
            return [plan.immediate(counts[name]).slot for name in ("vmcnt", "lgkmcnt")]
        effect = effect_of(inst)
        if effect.queue is None or effect.queue.name not in NUMBER:
            return None
        where, count, bits = _destination(inst, effect)
        lds = _lds_use(inst, effect)
        plan.note("late", count, bits, lds)
        return Operation(NUMBER[effect.queue.name], plan.immediate(where).slot, count, bits, lds)

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if isinstance(planned, list):
            complete.call(frame.build, frame.wave, *(frame.build.zext(frame.slot(slot, I32), I64) for slot in planned))
        elif planned is not None:
            where = frame.build.zext(frame.slot(planned.slot, I32), I64)
            begin.call(frame.build, frame.wave, planned.queue, where, planned.registers, planned.bits, planned.lds)

    def overwrite(self, frame: Frame, access: Access) -> None:
        planned = frame.planned.get(self.kind)
        if access.space == "lds" and isinstance(planned, Operation) and planned.lds == WRITE:
            where = frame.at(frame.wave, layout.ADDRESSES)
            frame.store(access.offsets, where, align=8)
            overwrite_lds.call(frame.build, frame.wave, planned.queue, access.lanes, access.size, where)

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if isinstance(planned, Operation):
            issue.call(frame.build, frame.wave, planned.queue, planned.lds)

    def end(self, frame: Frame, index: Any) -> None:
        complete.call(frame.build, frame.wave, 0, 0)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        memory = aligned_bytes(len(worker.slots) * launch.waves * WAVE_BYTES)
        block = LateBlock(waves=memory.ctypes.data, seed=-1)
        if launch.late is not None:
            block.seed, block.advance = launch.late, random.Random(launch.late).choice(ADVANCE)
        worker.checks["late"] = block, memory
        worker.set_context(LOADS, addressof(block))


def _lds_use(inst: Instruction, effect: Effect) -> int:
    """Returns how an operation uses LDS. Flat ones may; LLVM has no wait between a wave's LDS writes and them."""
    memory = inst.spec.memory
    if effect.queue is FLAT:
        return READ if memory is not None and memory.op == "load" else ATOMIC
    if effect.queue is VM:
        return WRITE if effect.dma and effect.lds == "write" else NO_LDS
    if effect.queue is not DS or not effect.lds:
        return NO_LDS
    return {"load": READ, "store": WRITE}.get(memory.op if memory is not None else "", ATOMIC)


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
