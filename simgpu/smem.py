"""Scalar memory: s_load and s_buffer_load read consecutive dwords into scalar registers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from hardware.errors import UnsupportedInstruction
from hardware.isa.instruction import Imm, Instruction, Reg
from simgpu import layout
from simgpu.access import constant, copy_bytes, find_allocation, mark_lane
from simgpu.frame import PTR, Frame
from simgpu.lane_llvm import I32, I64
from simgpu.layout import Fault
from simgpu.operands import Place, Plan


def plan(inst: Instruction, plan: Plan) -> dict[str, Place]:
    places: dict[str, Place] = {}
    for name in ("sdst", "sbase", "soffset"):
        operand = inst.args.get(name)
        if isinstance(operand, Reg):
            places[name] = plan.register(operand, 32 * operand.count)
        elif isinstance(operand, Imm):
            places[name] = plan.immediate(operand.value)
    places["offset"] = plan.immediate(int(inst.mods.get("offset", 0)))
    return places


def emit(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    memory = inst.spec.memory
    if memory is None or "sbase" not in places:
        # Cache control has no effect in a functional model; s_memtime reads the wave's clock.
        if "sdst" in places:
            frame.store(frame.context(layout.CTX_CLOCK), frame.operand(places["sdst"].slot))
        return
    if memory.op != "load":
        raise UnsupportedInstruction(f"{inst.mnemonic}: scalar stores and atomics are not modelled")
    build = frame.build
    offset = build.sext(frame.slot(places["offset"].slot), I64)
    extra = places.get("soffset")
    if extra is not None:
        if extra.kind == "imm":
            offset = build.add(offset, build.sext(frame.slot(extra.slot), I64))
        else:
            offset = build.add(offset, build.zext(frame.load(frame.operand(extra.slot), I32), I64))
    size = memory.bits * memory.count // 8
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), constant(1))
    base = frame.load(frame.operand(places["sbase"].slot), I64)
    if memory.space == "buffer":
        _buffer_load(frame, places, base, offset, size)
    else:
        address = build.and_(build.add(base, offset), constant(~3 & (1 << 64) - 1))
        scalar_load(frame, address, frame.operand(places["sdst"].slot), size)


def scalar_load(frame: Frame, address: Any, target: Any, size: int) -> None:
    """Copy `size` bytes from a device address into scalar registers, checked and marked."""
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
    delta = frame.load(frame.at(entry, layout.ALLOC_DELTA), I64, 8)
    source = build.inttoptr(build.add(address, delta), PTR)
    for at in range(0, size, 64):
        copy_bytes(frame, frame.at(source, at), frame.at(target, at), min(64, size - at))
    table = frame.load(frame.at(entry, layout.ALLOC_READ), I64, 8)
    with build.if_then(build.icmp_unsigned("!=", table, constant(0))):
        bitmap = build.inttoptr(table, PTR)
        for at in range(0, size, 4):
            mark_lane(frame, bitmap, build.add(offset, constant(at)), 4)


def _buffer_load(frame: Frame, places: dict[str, Place], base: Any, offset: Any, size: int) -> None:
    """s_buffer_load: dwords past num_records read as 0."""
    build = frame.build
    resource = frame.operand(places["sbase"].slot)
    stride = build.and_(build.lshr(base, constant(48)), constant(0x3FFF))
    records = build.zext(frame.load(frame.at(resource, 8), I32), I64)
    unit = build.select(build.icmp_unsigned("==", stride, constant(0)), constant(1), stride)
    limit = build.mul(records, unit)
    start = build.and_(base, constant((1 << 48) - 1))
    target = frame.operand(places["sdst"].slot)
    for at in range(0, size, 4):
        place = build.and_(build.add(offset, constant(at)), constant(~3 & (1 << 64) - 1))
        fits = build.icmp_unsigned("<=", build.add(place, constant(4)), limit)
        with build.if_else(fits) as (then, otherwise):
            with then:
                scalar_load(frame, build.add(start, place), frame.at(target, at), 4)
            with otherwise:
                frame.store(ir.Constant(I32, 0), frame.at(target, at))
