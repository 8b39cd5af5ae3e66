"""Scalar memory: consecutive dwords between memory and scalar registers, atomics, clocks.

Addresses: SBASE + offset, dword aligned; s_scratch_* scales a register offset by 64, as private
memory is interleaved by lane; a buffer resource has its range (ISA guides, "Scalar Memory").
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Imm, Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.frame import PTR, Frame
from simgpu.machine.hooks import Access, observe
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import Fault
from simgpu.machine.operands import Place, Plan
from simgpu.memory.any_lanes import find_allocation, mark_lane
from simgpu.memory.atomics import indivisible
from simgpu.memory.lane_copy import constant, copy_bytes

DWORD = ~3 & (1 << 64) - 1
# A wave instruction every 4 cycles; the constant clock is slower by about 16 (100 MHz).
CYCLES, REAL_CYCLES_LOG2 = 4, 4


def plan(inst: Instruction, plan: Plan) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for name in ("sdst", "sbase", "soffset"):
        operand = inst.args.get(name)
        if isinstance(operand, Reg):
            places[name] = plan.register(operand, 32 * operand.count)
        elif isinstance(operand, Imm):
            places[name] = plan.immediate(operand.value)
    places["offset"] = plan.immediate(int(inst.mods.get("offset", 0)))
    plan.note("glc" if inst.mods.get("glc") else "")
    return places


def emit(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    memory = inst.spec.memory
    if memory is None:
        _clock(frame, inst, places)
        return
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), constant(1))
    size = memory.bits * memory.count // 8
    offset = _offset(frame, places, 6 if memory.space == "scratch" else 0)
    base = frame.load(frame.operand(places["sbase"].slot), I64)
    data = frame.operand(places["sdst"].slot)
    if memory.space == "buffer":
        _buffer(frame, inst, places, base, offset, size, data)
        return
    address = frame.build.and_(frame.build.add(base, offset), constant(DWORD))
    if memory.op == "atomic":
        _atomic(frame, inst, address, data)
    else:
        transfer(frame, address, data, size, memory.op == "store")


def _clock(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    """s_memtime and s_memrealtime: instructions that the worker executed, as cycles."""
    build = frame.build
    run = build.sub(frame.slot(layout.SLOT_INDEX), frame.state(layout.ENTRY))
    slice_ = build.sub(constant(layout.SLICE), frame.state(layout.BUDGET, I64))
    done = build.add(build.add(slice_, build.sext(run, I64)), frame.context(layout.CTX_CLOCK))
    time = build.mul(done, constant(CYCLES))
    if inst.mnemonic == "s_memrealtime":
        time = build.lshr(time, constant(REAL_CYCLES_LOG2))
    frame.store(time, frame.operand(places["sdst"].slot))


def _offset(frame: Frame, places: dict[str, Place], register_log2: int) -> Any:
    """Signed immediate offset plus unsigned register offset, i64."""
    build = frame.build
    offset = build.sext(frame.slot(places["offset"].slot), I64)
    extra = places.get("soffset")
    if extra is None:
        return offset
    if extra.kind == "imm":
        return build.add(offset, build.sext(frame.slot(extra.slot), I64))
    register = build.zext(frame.load(frame.operand(extra.slot), I32), I64)
    return build.add(offset, build.shl(register, constant(register_log2)))


def located(frame: Frame, address: Any, size: int, writes: bool) -> tuple[Any, Any, Any]:
    """Host pointer, allocation and offset of a checked address range; a fault outside."""
    build = frame.build
    entry = find_allocation(frame, address)
    base = frame.load(frame.at(entry, layout.ALLOC_BASE), I64, 8)
    limit = frame.load(frame.at(entry, layout.ALLOC_SIZE), I64, 8)
    offset = build.sub(address, base)
    end = build.add(offset, constant(size))
    outside = build.or_(
        build.icmp_unsigned(">", end, limit), build.icmp_unsigned("<", end, offset)
    )
    with build.if_then(outside, likely=False):
        frame.fault(Fault.MEMORY, address, ir.Constant(I32, -1))
    if writes:
        writable = frame.load(frame.at(entry, layout.ALLOC_WRITABLE), I64, 8)
        with build.if_then(build.icmp_unsigned("==", writable, constant(0)), likely=False):
            frame.fault(Fault.READONLY, address, ir.Constant(I32, -1))
    delta = frame.load(frame.at(entry, layout.ALLOC_DELTA), I64, 8)
    return build.inttoptr(build.add(address, delta), PTR), entry, offset


def _mark(frame: Frame, entry: Any, offset: Any, size: int, table: int) -> None:
    """Set the bits of the bytes touched in one of the allocation's bitmaps, if it has them."""
    if frame.dry:
        return
    build = frame.build
    bits = frame.load(frame.at(entry, table), I64, 8)
    with build.if_then(build.icmp_unsigned("!=", bits, constant(0))):
        bitmap = build.inttoptr(bits, PTR)
        for at in range(0, size, 4):
            mark_lane(frame, bitmap, build.add(offset, constant(at)), 4)


def transfer(frame: Frame, address: Any, registers: Any, size: int, to_memory: bool) -> None:
    """Copy `size` bytes between a device address and scalar registers, checked and marked."""
    place, entry, offset = located(frame, address, size, to_memory)
    source, target = (registers, place) if to_memory else (place, registers)
    for at in range(0, size, 64):
        copy_bytes(frame, frame.at(source, at), frame.at(target, at), min(64, size - at))
    _mark(frame, entry, offset, size, layout.ALLOC_WRITTEN if to_memory else layout.ALLOC_READ)
    observe(frame, Access("scalar", offset, None, size, not to_memory, to_memory, entry=entry))


def _atomic(frame: Frame, inst: Instruction, address: Any, data: Any) -> None:
    """Read-modify-write; the old value into the data registers with glc."""
    memory = inst.spec.memory
    assert memory is not None
    size = memory.bits // 8
    kind = ir.IntType(memory.bits)
    operands = len(inst.spec.params) - 1
    values = [frame.load(frame.at(data, number * size), kind) for number in range(operands)]
    if size > 4:  # addresses are dword aligned
        low = frame.build.and_(address, constant(size - 1))
        with frame.build.if_then(frame.build.icmp_unsigned("!=", low, constant(0)), likely=False):
            frame.fault(Fault.MISALIGNED, address, ir.Constant(I32, -1))
    place, entry, offset = located(frame, address, size, True)
    old = indivisible(frame, inst, place, values)
    for table in (layout.ALLOC_READ, layout.ALLOC_WRITTEN):
        _mark(frame, entry, offset, size, table)
    observe(frame, Access("scalar", offset, None, size, True, True, True, entry))
    if inst.mods.get("glc"):
        frame.store(old, data)


def _buffer(
    frame: Frame, inst: Instruction, places: dict[str, Place], base: Any, offset: Any, size: int, data: Any
) -> None:
    """Through a resource: dwords past num_records read as 0 and are not written."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    resource = frame.operand(places["sbase"].slot)
    stride = build.and_(build.lshr(base, constant(48)), constant(0x3FFF))
    records = build.zext(frame.load(frame.at(resource, 8), I32), I64)
    unit = build.select(build.icmp_unsigned("==", stride, constant(0)), constant(1), stride)
    limit = build.mul(records, unit)
    start = build.and_(base, constant((1 << 48) - 1))
    step = size if memory.op == "atomic" else 4
    for at in range(0, size, step):
        place = build.and_(build.add(offset, constant(at)), constant(DWORD))
        room = build.icmp_unsigned(">=", limit, constant(step))
        fits = build.icmp_unsigned("<=", place, build.sub(limit, constant(step)))
        with build.if_else(build.and_(room, fits)) as (then, otherwise):
            with then:
                address = build.add(start, place)
                if memory.op == "atomic":
                    _atomic(frame, inst, address, data)
                else:
                    transfer(frame, address, frame.at(data, at), 4, memory.op == "store")
            with otherwise:
                if memory.op == "load":
                    frame.store(ir.Constant(I32, 0), frame.at(data, at))
                elif memory.op == "atomic" and inst.mods.get("glc"):
                    frame.store(ir.Constant(ir.IntType(memory.bits), 0), data)
