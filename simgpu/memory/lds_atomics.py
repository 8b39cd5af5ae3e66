"""Atomics on LDS: one active lane after another, ascending; and what else changes LDS in place.

A workgroup runs on one host thread, so a read, the instruction's body and a write are one step.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.machine import layout
from simgpu.machine.frame import ROW32, Frame
from simgpu.machine.hooks import Access, observe
from simgpu.machine.lane_ops import I32, I64, LLVMOps
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.operands import Place
from simgpu.memory.lane_copy import WIDE64, constant, each_lane, popcount, staging
from simgpu.memory.lds import LDSAccess, joined_scalar, offsets_of, stage_operand, typed_scalar


def emit(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    """An atomic with one place a lane, or two (ds_wrxchg2), or from LDS to LDS (src2)."""
    memory = inst.spec.memory
    assert memory is not None
    lanes = frame.exec_bits()
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))
    if Flag.SRC2 in inst.spec.flags:
        _between(frame, inst, places, lanes)
    elif memory.count > 1:
        _exchange2(frame, inst, places, lanes)
    else:
        offsets = offsets_of(frame, places["addr"], places["offset"], 1)
        names = [name for name in ("data0", "data1") if name in places]
        result = _each(frame, inst, offsets, [places[name] for name in names], lanes)
        if "vdst" in places:
            frame.write_wide(frame.operand(places["vdst"].slot), result, frame.lanes(lanes))


def step(frame: Frame, inst: Instruction, place: Any, data: list[Any]) -> Any:
    """old = [place]; [place] = body(old, *data): on scalars of the instruction's type."""
    spec, build = inst.spec, frame.build
    assert spec.body is not None
    ops = LLVMOps(build, 1)
    types = [param.type for param in spec.params]
    kind = ir.IntType(types[0].bits)
    old = build.load(place, align=1, typ=kind)
    values = [typed_scalar(ops, frame, type_, raw) for type_, raw in zip(types, [old, *data], strict=True)]
    build.store(joined_scalar(frame, spec.body(*values), kind), place, align=1)
    return old


def _each(frame: Frame, inst: Instruction, offsets: Any, data: list[Place], lanes: Any) -> Any:
    """The step of each active lane at its offset; returns the old values, one element a lane."""
    memory = inst.spec.memory
    assert memory is not None
    build, bits = frame.build, memory.bits
    kind = ir.IntType(bits)
    area = LANES * bits // 8
    access = LDSAccess(frame, offsets, bits // 8)
    access.check(lanes)
    spilled = frame.at(frame.wave, layout.ADDRESSES)
    frame.store(offsets, spilled, align=8)
    for number, place in enumerate(data):
        stage_operand(frame, frame.operand(place.slot), bits, number * area)
    returned = frame.at(staging(frame), len(data) * area)

    def one(lane: Any) -> None:
        offset = frame.load(frame.at(spilled, build.mul(lane, constant(8))), I64, 8)
        mine = build.mul(lane, constant(bits // 8))
        staged = [frame.at(staging(frame), number * area) for number in range(len(data))]
        values = [frame.load(frame.at(part, mine), kind, align=4) for part in staged]
        old = step(frame, inst, frame.at(access.base, offset), values)
        frame.store(old, frame.at(returned, mine), align=4)

    each_lane(frame, lanes, one)
    observe(frame, Access("lds", offsets, lanes, bits // 8, True, True, True))
    return frame.load(returned, ir.VectorType(kind, LANES), align=4)


def _exchange2(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """ds_wrxchg2: data0 at offset0, data1 at offset1, in units of the element (times 64)."""
    memory = inst.spec.memory
    assert memory is not None
    scale = memory.stride * memory.bits // 8
    results = []
    for offset, data in (("offset0", "data0"), ("offset1", "data1")):
        offsets = offsets_of(frame, places["addr"], places[offset], scale)
        results.append(_each(frame, inst, offsets, [places[data]], lanes))
    target = frame.operand(places["vdst"].slot)
    for number, result in enumerate(results):
        part = frame.at(target, number * (memory.bits // 32) * layout.ROW)
        frame.write_wide(part, result, frame.lanes(lanes))


def _between(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """[A] = body([A], [B]) with B = A + 4·distance (Vega ISA guide, DS_ADD_SRC2_U32).

    distance: the 15 offset bits, signed; or, where offset bit 15 is set, the address's bits
    31:17, signed, A then being the address's low 17 bits.
    """
    memory = inst.spec.memory
    assert memory is not None
    build, bits = frame.build, memory.bits
    address = frame.row(frame.operand(places["addr"].slot))
    offset = frame.slot(places["offset"].slot)
    near = build.ashr(build.shl(offset, ir.Constant(I32, 17)), ir.Constant(I32, 17))
    packed = build.icmp_unsigned("!=", build.and_(offset, ir.Constant(I32, 0x8000)), ir.Constant(I32, 0))
    far = build.ashr(address, ir.Constant(ROW32, [17] * LANES))
    distance = build.select(frame.splat(packed), far, frame.splat(near))
    low = build.and_(address, ir.Constant(ROW32, [0x1FFFF] * LANES))
    first = build.select(frame.splat(packed), low, address)
    second = build.add(first, build.shl(distance, ir.Constant(ROW32, [2] * LANES)))
    wide = [build.zext(row, WIDE64) for row in (first, second)]
    base = LDSAccess(frame, wide[0], bits // 8).base
    places_at = [frame.at(frame.wave, layout.ADDRESSES), staging(frame)]
    for offsets in wide:
        LDSAccess(frame, offsets, bits // 8).check(lanes)
    for offsets, place in zip(wide, places_at, strict=True):
        frame.store(offsets, place, align=8)

    def one(lane: Any) -> None:
        at = build.mul(lane, constant(8))
        target, source = (frame.at(base, frame.load(frame.at(place, at), I64, 8)) for place in places_at)
        step(frame, inst, target, [build.load(source, align=1, typ=ir.IntType(bits))])

    each_lane(frame, lanes, one)
    observe(frame, Access("lds", wide[1], lanes, bits // 8, True, False))
    observe(frame, Access("lds", wide[0], lanes, bits // 8, True, True, True))


def count(frame: Frame, places: dict[str, Place], control: ControlKind) -> None:
    """ds_append and ds_consume: add or take off the number of active lanes at LDS M0 + offset.

    vdst gets the old value in every active lane. M0[15:0] is the address (LLVM lowers a pointer
    to it unshifted).
    """
    build = frame.build
    m0 = build.and_(frame.state(frame.scalar(isa.M0)), ir.Constant(I32, 0xFFFF))
    offset = build.zext(build.add(m0, frame.slot(places["offset"].slot)), I64)
    size = frame.state(layout.LDS_SIZE, I64)
    outside = build.icmp_unsigned(">", build.add(offset, constant(4)), size)
    with build.if_then(outside, likely=False):
        frame.fault(Fault.LDS, offset, ir.Constant(I32, -1))
    access = LDSAccess(frame, frame.splat(offset), 4)
    place = frame.at(access.base, offset)
    lanes = frame.exec_bits()
    old = build.load(place, align=1, typ=I32)
    amount = build.trunc(popcount(frame, lanes), I32)
    new = build.add(old, amount) if control is ControlKind.APPEND else build.sub(old, amount)
    build.store(new, place, align=1)
    observe(frame, Access("lds", access.offsets, constant(1), 4, True, True, True))
    frame.write_row(frame.operand(places["vdst"].slot), 0, frame.splat(old), frame.lanes(lanes))
