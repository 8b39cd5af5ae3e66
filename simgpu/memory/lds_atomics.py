"""Emits atomics on LDS, one active lane after another in ascending order; also append and consume.

A workgroup runs on one host thread, so a plain read, the instruction's body and a plain write are atomic.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.operands import OperandPlace
from simgpu.machine.rounding import ops_of
from simgpu.machine.values import I32, I64, IrValue, where
from simgpu.memory.lane_copy import constant, each_lane, popcount, staging
from simgpu.memory.lds import LDSAccess, joined_scalar, lds_base, offsets_of, stage_operand, typed_scalar


def emit(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    """Emits an atomic with one location a lane, with two (ds_wrxchg2), or from LDS to LDS (src2)."""
    memory = inst.spec.memory
    assert memory is not None
    lanes = frame.exec_bits()
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))
    if Flag.SRC2 in inst.spec.flags:
        _combine_pairs(frame, inst, places, lanes)
    elif memory.count > 1:
        _exchange2(frame, inst, places, lanes)
    else:
        offsets = offsets_of(frame, places["addr"], places["offset"], 1)
        names = [name for name in ("data0", "data1") if name in places]
        result = _each_lane(frame, inst, offsets, [places[name] for name in names], lanes)
        if "vdst" in places:
            frame.write_wide(frame.operand(places["vdst"].slot), result, frame.lanes(lanes))


def step(frame: Frame, inst: Instruction, place: IrValue, data: list[IrValue]) -> IrValue:
    """Emits old = [place]; [place] = body(old, *data), on scalars of the instruction's type."""
    spec = inst.spec
    assert spec.body is not None
    ops = ops_of(frame)
    types = [param.type for param in spec.params]
    kind = ir.IntType(types[0].bits)
    old = place.load(kind, align=1)
    values = [typed_scalar(ops, type_, raw) for type_, raw in zip(types, [old, *data], strict=True)]
    place.store(joined_scalar(frame, spec.body(*values), kind), align=1)
    return old


def _each_lane(frame: Frame, inst: Instruction, offsets: Any, data: list[OperandPlace], lanes: Any) -> Any:
    """Emits `step` for each active lane at its offset. Returns the old values, <64 x iN>."""
    memory = inst.spec.memory
    assert memory is not None
    bits = memory.bits
    kind = ir.IntType(bits)
    area = LANES * bits // 8
    access = LDSAccess(frame, offsets, bits // 8)
    access.check(lanes)
    for number, place in enumerate(data):
        stage_operand(frame, frame.operand(place.slot), bits, number * area)
    returned = staging(frame).at(len(data) * area)

    def update_lane(lane: IrValue) -> None:
        offset = access.offsets.of(lane)
        mine = lane * (bits // 8)
        staged = [staging(frame).at(number * area) for number in range(len(data))]
        values = [part.at(mine).load(kind) for part in staged]
        old = step(frame, inst, access.base.at(offset), values)
        returned.at(mine).store(old)

    each_lane(frame, lanes, update_lane)
    observe(frame, Access("lds", offsets, lanes, bits // 8, True, True, True))
    return returned.load(ir.VectorType(kind, LANES))


def _exchange2(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits ds_wrxchg2: data0 at offset0, data1 at offset1, in units of the element (times 64)."""
    memory = inst.spec.memory
    assert memory is not None
    scale = memory.stride * memory.bits // 8
    results = []
    for offset, data in (("offset0", "data0"), ("offset1", "data1")):
        offsets = offsets_of(frame, places["addr"], places[offset], scale)
        results.append(_each_lane(frame, inst, offsets, [places[data]], lanes))
    target = frame.operand(places["vdst"].slot)
    for number, result in enumerate(results):
        part = target.at(number * (memory.bits // 32) * layout.ROW)
        frame.write_wide(part, result, frame.lanes(lanes))


def _combine_pairs(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits [A] = body([A], [B]) with B = A + 4·distance (Vega ISA guide, DS_ADD_SRC2_U32).

    distance: the 15 offset bits, signed. If offset bit 15 is set, it is the address's bits 31:17, signed, and A is the
    address's low 17 bits.
    """
    memory = inst.spec.memory
    assert memory is not None
    bits = memory.bits
    address = frame.row(frame.operand(places["addr"].slot))
    offset = frame.slot(places["offset"].slot)
    near = (offset << 17).ashr(17)
    packed = (offset & 0x8000) != 0
    distance = where(packed, address.ashr(17), near)
    first = where(packed, address & 0x1FFFF, address)
    second = first + (distance << 2)
    wide = [row.zext(I64) for row in (first, second)]
    base = lds_base(frame)
    places_at = [frame.at(frame.wave, layout.ADDRESSES), staging(frame)]
    for offsets in wide:
        LDSAccess(frame, offsets, bits // 8).check(lanes)
    for offsets, place in zip(wide, places_at, strict=True):
        place.store(offsets, align=8)

    def update_pair(lane: IrValue) -> None:
        at = lane * 8
        target, source = (base.at(place.at(at).load(I64, 8)) for place in places_at)
        step(frame, inst, target, [source.load(ir.IntType(bits), align=1)])

    each_lane(frame, lanes, update_pair)
    observe(frame, Access("lds", wide[1], lanes, bits // 8, True, False))
    observe(frame, Access("lds", wide[0], lanes, bits // 8, True, True, True))


def count(frame: Frame, places: dict[str, OperandPlace], control: ControlKind) -> None:
    """Emits ds_append and ds_consume: adds or subtracts the number of active lanes at LDS M0 + offset.

    vdst gets the old value in every active lane. M0[15:0] is the address (LLVM lowers a pointer to it unshifted).
    """
    m0 = frame.state(frame.scalar(isa.M0)) & 0xFFFF
    offset = (m0 + frame.slot(places["offset"].slot)).zext(I64)
    size = frame.state(layout.LDS_SIZE, I64)
    with frame.build.if_then((offset + 4).unsigned > size, likely=False):
        frame.fault(Fault.LDS, offset, ir.Constant(I32, -1))
    place = lds_base(frame).at(offset)
    lanes = frame.exec_bits()
    old = place.load(I32, align=1)
    amount = popcount(frame, lanes).trunc(I32)
    place.store(old + amount if control is ControlKind.APPEND else old - amount, align=1)
    observe(frame, Access("lds", frame.splat(offset), constant(1), 4, True, True, True))
    frame.write_row(frame.operand(places["vdst"].slot), 0, frame.splat(old), frame.lanes(lanes))
