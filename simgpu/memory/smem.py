"""Scalar memory: consecutive dwords between memory and scalar registers, atomics, clocks.

Addresses are SBASE + offset, each without its low two bits, in 64 bits. s_scratch_* scales a register offset by 64, because
private memory is interleaved by lane. A buffer resource limits its accesses to its range (ISA guides, "Scalar Memory").
"""

from __future__ import annotations

from llvmlite import ir

from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import approach, observe
from simgpu.machine.layout import Fault
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.values import I32, I64, IrValue, where
from simgpu.memory.any_lanes import field, find_allocation, mark_range
from simgpu.memory.atomics import indivisible
from simgpu.memory.lane_copy import constant, copy_bytes

DWORD = ~3 & (1 << 64) - 1
SCRATCH_LOG2 = 6  # log2 of the unit, in bytes, of the offset register of s_scratch_*
# An instruction of a wave counts as 4 cycles. The constant clock (100 MHz) is taken to be 16 times slower.
CYCLES, REAL_CYCLES_LOG2 = 4, 4


def plan(inst: Instruction, plan: Plan) -> dict[str, OperandPlace]:
    places: dict[str, OperandPlace] = {}
    for name in ("sdst", "sbase", "soffset"):
        operand = inst.args.get(name)
        if isinstance(operand, Reg):
            places[name] = plan.register(operand, 32 * operand.count)
        elif isinstance(operand, Imm):
            places[name] = plan.immediate(operand.value)
    places["offset"] = plan.immediate(int(inst.mods.get("offset", 0)))
    plan.note("glc" if inst.mods.get("glc") else "")
    return places


def emit(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    memory = inst.spec.memory
    if memory is None:
        _clock(frame, inst, places)
        return
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), constant(1))
    size = memory.bits * memory.count // 8
    immediate, register = _offsets(frame, places)
    base = frame.load(frame.operand(places["sbase"].slot), I64)
    data = frame.operand(places["sdst"].slot)
    if memory.space == "buffer":
        _buffer(frame, inst, places, base, immediate + register, size, data)
        return
    offset = (immediate & DWORD) + ((register << (SCRATCH_LOG2 if memory.space == "scratch" else 0)) & DWORD)
    address = (base & DWORD) + offset
    if memory.op == "atomic":
        _atomic(frame, inst, address, data)
    else:
        transfer(frame, address, data, size, memory.op == "store")


def _clock(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    """Emits s_memtime and s_memrealtime: the worker's executed instructions, as cycles."""
    run = frame.slot(layout.SLOT_INDEX) - frame.state(layout.ENTRY)
    done = frame.context(layout.CTX_CLOCK) - frame.state(layout.BUDGET, I64) + run.sext(I64)
    time = done * CYCLES
    if inst.mnemonic == "s_memrealtime":
        time = time >> REAL_CYCLES_LOG2
    frame.operand(places["sdst"].slot).store(time)


def _offsets(frame: Frame, places: dict[str, OperandPlace]) -> tuple[IrValue, IrValue]:
    """Returns the signed immediate offset and a register's unsigned one, i64."""
    offset = frame.slot(places["offset"].slot).sext(I64)
    extra = places.get("soffset")
    if extra is None:
        return offset, frame.value(constant(0))
    if extra.kind == "imm":
        return offset + frame.slot(extra.slot).sext(I64), frame.value(constant(0))
    return offset, frame.operand(extra.slot).load(I32).zext(I64)


def locate(frame: Frame, address: IrValue, size: int, writes: bool) -> tuple[IrValue, IrValue, IrValue]:
    """Returns the host pointer of an address range, its allocation's entry, and its offset there.

    The emitted code faults if the range is in no allocation, or is written and read-only. size: in bytes.
    """
    build = frame.build
    entry = find_allocation(frame, address)
    base, limit = field(entry, layout.ALLOC_BASE), field(entry, layout.ALLOC_SIZE)
    offset = address - base
    end = offset + size
    with build.if_then((end.unsigned > limit) | (end.unsigned < offset), likely=False):
        frame.fault(Fault.MEMORY, address, ir.Constant(I32, -1))
    if writes:
        with build.if_then(field(entry, layout.ALLOC_WRITABLE) == 0, likely=False):
            frame.fault(Fault.READONLY, address, ir.Constant(I32, -1))
    return (address + field(entry, layout.ALLOC_DELTA)).pointer(), entry, offset


def _mark(frame: Frame, entry: IrValue, offset: IrValue, size: int, table: int) -> None:
    """Sets the bits of the touched bytes in an allocation's bitmap, if it has one. table: offset of the bitmap's field."""
    if frame.dry:
        return
    bits = field(entry, table)
    with frame.build.if_then(bits != 0):
        mark_range(frame, bits.pointer(), offset, size)


def transfer(frame: Frame, address: IrValue, registers: IrValue, size: int, to_memory: bool) -> None:
    """Copies `size` bytes between a device address and scalar registers; checks the range and marks the bytes."""
    place, entry, offset = locate(frame, address, size, to_memory)
    access = Access("scalar", offset, None, size, not to_memory, to_memory, entry=entry)
    approach(frame, access)
    source, target = (registers, place) if to_memory else (place, registers)
    for at in range(0, size, 64):
        copy_bytes(source.at(at), target.at(at), min(64, size - at))
    _mark(frame, entry, offset, size, layout.ALLOC_WRITTEN if to_memory else layout.ALLOC_READ)
    observe(frame, access)


def _atomic(frame: Frame, inst: Instruction, address: IrValue, data: IrValue) -> None:
    """Emits a read-modify-write; with glc, the old value goes to the data registers."""
    memory = inst.spec.memory
    assert memory is not None
    size = memory.bits // 8
    kind = ir.IntType(memory.bits)
    operands = len(inst.spec.params) - 1
    values = [data.at(number * size).load(kind) for number in range(operands)]
    if size > 4:  # addresses are dword aligned
        with frame.build.if_then((address & size - 1) != 0, likely=False):
            frame.fault(Fault.MISALIGNED, address, ir.Constant(I32, -1))
    place, entry, offset = locate(frame, address, size, True)
    access = Access("scalar", offset, None, size, True, True, True, entry)
    approach(frame, access)
    old = indivisible(frame, inst, place, values)
    for table in (layout.ALLOC_READ, layout.ALLOC_WRITTEN):
        _mark(frame, entry, offset, size, table)
    observe(frame, access)
    if inst.mods.get("glc"):
        data.store(old)


def _buffer(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], base: IrValue, offset: IrValue, size: int, data: IrValue
) -> None:
    """Emits an access through a resource: dwords past num_records read as 0 and are not written.

    Base and final address lose their low two bits.
    """
    memory = inst.spec.memory
    assert memory is not None
    resource = frame.operand(places["sbase"].slot)
    stride = base >> 48 & 0x3FFF
    records = resource.at(8).load(I32).zext(I64)
    limit = records * where(stride == 0, 1, stride)
    start = base & (1 << 48) - 4
    step = size if memory.op == "atomic" else 4

    def move(number: IrValue) -> tuple[()]:
        place, registers = (offset & DWORD) + number * step, data.at(number * step)
        fits = place.unsigned <= limit - step
        with frame.build.if_else((limit.unsigned >= step) & fits) as (then, otherwise):
            with then:
                if memory.op == "atomic":
                    _atomic(frame, inst, start + place, data)
                else:
                    transfer(frame, start + place, registers, 4, memory.op == "store")
            with otherwise:
                if memory.op == "load" or (memory.op == "atomic" and inst.mods.get("glc")):
                    registers.store(ir.Constant(ir.IntType(8 * step), 0))
        return ()

    frame.loop(size // step, move)
