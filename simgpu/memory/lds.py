"""LDS instructions: offsets into the workgroup's block, checked against its size."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.lane import Value
from simgpu.machine import layout
from simgpu.machine.frame import ALL_LANES, PTR, Frame
from simgpu.machine.hooks import Access, observe, overwrites
from simgpu.machine.lane_ops import I8, I32, I64, LLVMOps, element
from simgpu.machine.layout import LANES, ROW, Fault
from simgpu.machine.operands import Place, Plan
from simgpu.memory.lane_copy import (
    WIDE64,
    LaneCopy,
    Rows,
    constant,
    first_lane,
    inside,
    interleaved,
    lanes_of,
    popcount,
    read_staged,
    staging,
    write_staged,
)
from simgpu.memory.whole_wave import direct


def plan(inst: Instruction, plan: Plan) -> dict[str, Place]:
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, Place] = {}
    for name in ("vdst", "addr", "data0", "data1"):
        operand = inst.args.get(name)
        if not isinstance(operand, Reg):
            continue
        places[name] = plan.register(operand, 32 * operand.count)
    for name in ("offset", "offset0", "offset1"):
        places[name] = plan.immediate(int(inst.mods.get(name, 0)))
    if inst.mods.get("gds"):
        raise UnsupportedInstruction(f"{inst.mnemonic} gds: global data share is not modelled")
    return places


class LDSAccess:
    """Checked copies between staging and LDS for lanes whose i64 offsets are given."""

    def __init__(
        self, frame: Frame, offsets: Any, lane_bytes: int, narrow: tuple[Any, Any] | None = None, compact: bool = False
    ) -> None:
        self.frame = frame
        self.offsets = offsets
        self.lane_bytes = lane_bytes
        self.narrow = narrow
        self.compact = compact
        self.base = frame.build.inttoptr(frame.state(layout.LDS_BASE, I64), PTR)

    def check(self, lanes: Any) -> None:
        frame, build = self.frame, self.frame.build
        size = frame.state(layout.LDS_SIZE, I64)
        fits = lanes_of(frame, inside(frame, self.offsets, size, self.lane_bytes))
        out = build.and_(lanes, build.not_(fits))
        with build.if_then(build.icmp_unsigned("!=", out, constant(0)), likely=False):
            frame.store(self.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
            lane = first_lane(frame, out)
            at = frame.at(frame.wave, layout.ADDRESSES)
            offset = frame.load(frame.at(at, build.mul(lane, constant(8))), I64, 8)
            frame.fault(Fault.LDS, offset, build.trunc(lane, I32))

    def copy(self, lanes: Any, to_memory: bool) -> None:
        self.check(lanes)
        copy = LaneCopy(self.frame, self.offsets, self.lane_bytes, to_memory, self.narrow)
        copy.compact = self.compact
        access = Access("lds", self.offsets, lanes, self.lane_bytes, not to_memory, to_memory, contiguous=copy.contiguous)
        if to_memory:
            overwrites(self.frame, access)
        copy.run(lanes, lambda offset: self.frame.at(self.base, offset))
        observe(self.frame, access)


def offsets_of(frame: Frame, address: Place | None, offset: Place, scale: int) -> Any:
    """addr + offset·scale as <64 x i64>; the sum is 32-bit unsigned without wrap-around.

    Without an address (addtid) it is M0[15:0] + 4·lane.
    """
    build = frame.build
    if address is None:
        m0 = build.and_(frame.state(frame.scalar(isa.M0)), ir.Constant(I32, 0xFFFF))
        steps = ir.Constant(WIDE64, [4 * lane for lane in range(LANES)])
        rows = build.add(frame.splat(build.zext(m0, I64)), steps)
    else:
        rows = build.zext(frame.row(frame.operand(address.slot)), WIDE64)
    extra = build.mul(build.zext(frame.slot(offset.slot), I64), constant(scale))
    return build.add(rows, frame.splat(extra))


def emit(frame: Frame, inst: Instruction, places: dict[str, Place]) -> None:
    memory = inst.spec.memory
    assert memory is not None
    lanes = frame.exec_bits()
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))
    rows = Rows(memory.bits, memory.sign, memory.d16)
    if "addr" not in places or memory.transpose or not direct.serves(frame, rows):
        _any_lanes(frame, inst, places, rows, lanes)
        return
    build = frame.build
    spans = [_span(frame, places, name, scale, rows.lane_bytes) for name, _, scale in _parts(inst)]
    whole = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
    for span in spans:
        whole = build.and_(whole, direct.within(span))
    with build.if_else(whole) as (then, otherwise):
        with then:
            if memory.op == "load":
                direct.load(spans, frame.operand(places["vdst"].slot))
            else:
                for span, (_, data, _) in zip(spans, _parts(inst), strict=True):
                    direct.store(span, frame.operand(places[data].slot))
        with otherwise:
            _any_lanes(frame, inst, places, rows, lanes)


def _parts(inst: Instruction) -> list[tuple[str, str, int]]:
    """The one or two places of a lane: the modifier with the offset, a store's operand, what the offset counts in bytes."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.count == 1:
        return [("offset", "data0", 1)]
    scale = memory.stride * memory.bits // 8
    return [("offset0", "data0", scale), ("offset1", "data1", scale)]


def _start(frame: Frame, offset: Place, scale: int) -> Any:
    return frame.build.mul(frame.build.zext(frame.slot(offset.slot), I64), constant(scale))


def _span(frame: Frame, places: dict[str, Place], name: str, scale: int, lane_bytes: int) -> direct.Span:
    build = frame.build
    start = _start(frame, places[name], scale)
    base = build.inttoptr(frame.state(layout.LDS_BASE, I64), PTR)
    room = build.sub(build.sub(frame.state(layout.LDS_SIZE, I64), start), constant(lane_bytes))
    return direct.Span(frame, frame.operand(places["addr"].slot), frame.at(base, start), room, lane_bytes)


def _any_lanes(frame: Frame, inst: Instruction, places: dict[str, Place], rows: Rows, lanes: Any) -> None:
    """Any mask, any offsets: through staging."""
    memory = inst.spec.memory
    assert memory is not None
    mask = frame.lanes(lanes)
    results: list[Any] = []
    for name, data, scale in _parts(inst):
        address = places.get("addr")
        narrow = (frame.operand(address.slot), _start(frame, places[name], scale)) if address else None
        offsets = offsets_of(frame, address, places[name], scale)
        access = LDSAccess(frame, offsets, rows.lane_bytes, narrow, compact=direct.serves(frame, rows))
        if memory.op == "store":
            source = frame.operand(places[data].slot)
            write_staged(frame, rows, [frame.row(source, i) for i in range(rows.registers)])
            access.copy(lanes, True)
        else:
            access.copy(lanes, False)
            if memory.transpose:
                transpose(frame, memory.bits, memory.transpose)
            old = frame.row(frame.operand(places["vdst"].slot)) if memory.d16 else None
            results.extend(read_staged(frame, rows, old))
    if memory.op == "load":
        target = frame.operand(places["vdst"].slot)
        for number, row in enumerate(results):
            frame.write_row(target, number, row, mask)


def transpose(frame: Frame, bits: int, element_bits: int) -> None:
    """ds_read_*_tr_*: in each 16 lanes the staged elements, as rows of 16, become columns.

    Lane i of the 16 gets as element j what was element 16·j + i of the group (8 and 16 bits: checked
    against kernels that a compiler made; the guide gives no formula). 6-bit elements lie packed from the
    lowest bit on, as the matrix instructions take them.
    """
    build, base = frame.build, staging(frame)
    count = bits // element_bits  # elements a lane
    staged = read_staged(frame, Rows(bits), None)
    lanes = ir.VectorType(I32, LANES * len(staged))

    def finish(value: Any) -> None:
        """Lane after lane back to staged rows."""
        dwords = build.bitcast(value, lanes)
        for part in range(len(staged)):
            picks = ir.Constant(ir.VectorType(I32, LANES), [lane * len(staged) + part for lane in range(LANES)])
            row = build.shuffle_vector(dwords, ir.Constant(lanes, ir.Undefined), picks)
            frame.store(row, frame.at(base, part * ROW), 64)

    whole = interleaved(frame, staged)
    if element_bits in (8, 16):
        picks = []
        for lane in range(LANES):
            for j in range(count):
                picks.append(lane // 16 * 16 * count + 16 * j + lane % 16)
        kind = ir.VectorType(ir.IntType(element_bits), LANES * count)
        order = ir.Constant(ir.VectorType(I32, LANES * count), picks)
        finish(build.shuffle_vector(build.bitcast(whole, kind), ir.Constant(kind, ir.Undefined), order))
        return
    if element_bits == 6:
        finish(_transposed_sixes(frame, whole))
        return
    kind = ir.VectorType(ir.IntType(8), LANES * 8)
    value = build.bitcast(whole, kind)

    def nibbles(odd: int) -> Any:
        """For output byte p of lane i: nibble i of the group's lane 2·p + odd."""
        picks, shifts = [], []
        for lane in range(LANES):
            for p in range(8):
                source = lane // 16 * 16 + 2 * p + odd
                picks.append(source * 8 + lane % 16 // 2)
                shifts.append(4 * (lane % 2))
        order = ir.Constant(ir.VectorType(I32, LANES * 8), picks)
        moved = build.shuffle_vector(value, ir.Constant(kind, ir.Undefined), order)
        return build.and_(build.lshr(moved, ir.Constant(kind, shifts)), ir.Constant(kind, [15] * LANES * 8))

    high = build.shl(nibbles(1), ir.Constant(kind, [4] * LANES * 8))
    finish(build.or_(nibbles(0), high))


def _transposed_sixes(frame: Frame, whole: Any) -> Any:
    """16 x 16 elements of 6 bits in each 16 lanes of 12 bytes, transposed."""
    build, count = frame.build, 16
    value = build.bitcast(whole, ir.VectorType(I8, LANES * 12))

    def picked(value: Any, picks: list[int], shifts: list[int], left: bool) -> Any:
        kind = ir.VectorType(I8, len(picks))
        order = ir.Constant(ir.VectorType(I32, len(picks)), picks)
        moved = build.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), order)
        return (build.shl if left else build.lshr)(moved, ir.Constant(kind, shifts))

    # Element i of lane j, which becomes element j of lane i: from its first byte and the one after it.
    places = [(group + j, i) for group in range(0, LANES, 16) for i in range(16) for j in range(count)]
    first = [lane * 12 + 6 * i // 8 for lane, i in places]
    after = [min(at + 1, LANES * 12 - 1) for at in first]
    low = picked(value, first, [6 * i % 8 for _, i in places], False)
    high = picked(value, after, [min(8 - 6 * i % 8, 7) for _, i in places], True)
    sixes = build.and_(build.or_(low, high), ir.Constant(low.type, [63] * len(places)))
    # Byte b of a lane: the element where it starts, and the next one above it.
    bytes_ = [(lane * count, 8 * b) for lane in range(LANES) for b in range(12)]
    starts = [base + bit // 6 for base, bit in bytes_]
    below = picked(sixes, starts, [bit % 6 for _, bit in bytes_], False)
    above = picked(sixes, [at + 1 for at in starts], [6 - bit % 6 for _, bit in bytes_], True)
    return build.or_(below, above)


def typed_scalar(ops: LLVMOps, frame: Frame, type_: Any, raw: Any) -> Any:
    if type_.kind == "pair":
        half = ir.IntType(16)
        low = frame.build.trunc(raw, half)
        high = frame.build.trunc(frame.build.lshr(raw, ir.Constant(raw.type, 16)), half)
        return tuple(Value(ops, type_.element, part) for part in (low, high))
    wanted = element(type_)
    if raw.type != wanted:
        raw = frame.build.bitcast(raw, wanted)
    return Value(ops, type_, raw)


def joined_scalar(frame: Frame, result: Any, kind: ir.IntType) -> Any:
    """A body's scalar result, or pair of halves, as bits."""
    build = frame.build
    if isinstance(result, tuple):
        low, high = (build.zext(half.raw, kind) for half in result)
        return build.or_(low, build.shl(high, ir.Constant(kind, 16)))
    raw = result.raw if isinstance(result, Value) else result
    return raw if raw.type == kind else build.bitcast(raw, kind)


def stage_operand(frame: Frame, pointer: Any, bits: int, at: int) -> None:
    """Put a 32- or 64-bit operand of every lane at byte `at` of staging, lane after lane."""
    raw = frame.read_wide(pointer, bits)
    frame.store(raw, frame.at(staging(frame), at), align=8)
