"""Emits LDS loads and stores. Offsets are checked against the workgroup's LDS size.

A lane's offset is a sum that wraps at 32 bits (LLVM, hasUsableDSOffset: since GCN 2 the offset field works with negative bases,
which compilers emit).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa import lane
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe, overwrites, row_taken, take_rows
from simgpu.machine.lane_ops import LLVMOps, element
from simgpu.machine.layout import LANES, ROW, Fault
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.values import I8, I16, I32, I64, IrValue
from simgpu.machine.wave_frame import ALL_LANES
from simgpu.memory.lane_copy import (
    ALL_FORMS,
    Addresses,
    CopyForms,
    LaneCopy,
    Narrow,
    Spill,
    StagedRows,
    first_lane,
    first_lane_fault,
    interleave_rows,
    is_inside,
    lane_numbers,
    load_narrow,
    popcount,
    read_staged,
    stage_registers,
    staging,
    store_narrow,
    write_loaded,
)
from simgpu.memory.whole_wave import direct

# Addresses past the LDS of every GPU, except negative ones. Hardware returns 0 for reads outside LDS. A wave whose lanes all read
# one address so far out wants that 0: Tensile clears its accumulators this way. Checked mode stops at all other reads outside LDS.
NO_LDS = range(1 << 18, 1 << 31)


def plan(inst: Instruction, plan: Plan) -> dict[str, OperandPlace]:
    memory = inst.spec.memory
    assert memory is not None
    places: dict[str, OperandPlace] = {}
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


def lds_base(frame: Frame) -> IrValue:
    """Returns the host pointer to the workgroup's LDS."""
    return frame.state(layout.LDS_BASE, I64).pointer()


class LDSAccess:
    """Emits checked copies between staging and LDS."""

    def __init__(self, frame: Frame, offsets: Addresses, lane_bytes: int, forms: CopyForms = ALL_FORMS) -> None:
        self.frame = frame
        self.offsets = Spill(frame, offsets)
        self.lane_bytes = lane_bytes
        self.forms = forms
        self.base = lds_base(frame)

    def check(self, lanes: IrValue) -> None:
        outside = lanes & ~self._inside()
        with self.frame.build.if_then(outside != 0, likely=False):
            first_lane_fault(self.frame, Fault.LDS, self.offsets, outside)

    def copy(self, lanes: IrValue, to_memory: bool) -> None:
        frame, offsets = self.frame, self.offsets
        copy = LaneCopy(frame, offsets, self.lane_bytes, to_memory, self.forms)
        if to_memory:
            self.check(lanes)
        else:
            lanes = self._lanes_to_read(lanes, copy)
        access = Access(
            "lds", offsets.offsets(), lanes, self.lane_bytes, not to_memory, to_memory, contiguous=copy.contiguous
        )
        if to_memory:
            overwrites(frame, access)
        copy.run(lanes, self.base.at)
        observe(frame, access)

    def _inside(self) -> IrValue:
        size = self.frame.state(layout.LDS_SIZE, I64)
        return self.offsets.lanes_with(lambda group: is_inside(group, size, self.lane_bytes))

    def _lanes_to_read(self, lanes: IrValue, copy: LaneCopy) -> IrValue:
        """Returns the lanes inside LDS, and stages zeros for the others. Unless all read one address in `NO_LDS`, keeps the record
        for a note; in checked mode faults for any lane outside."""
        frame = self.frame
        inside = self._inside()
        outside = lanes & ~inside
        with frame.build.if_then(outside != 0, likely=False):
            first = self.offsets.of(first_lane(frame, lanes))
            is_far = (first.unsigned >= NO_LDS.start) & (first.unsigned < NO_LDS.stop)
            others = lanes & self.offsets.lanes_with(lambda group: group != first)
            with frame.build.if_then((others != 0) | ~is_far, likely=False):
                with frame.build.if_then(frame.context(layout.CTX_LDS_FAULTS) != 0, likely=False):
                    first_lane_fault(frame, Fault.LDS, self.offsets, outside)
                index = frame.value(frame.slot(layout.SLOT_INDEX)).zext(I64)
                frame.context_at(layout.CTX_OUTSIDE_LDS).store(index, align=8)
            copy.clear()
        return lanes & inside


def offsets_of(frame: Frame, address: OperandPlace | None, offset: OperandPlace, scale: int) -> IrValue:
    """Returns addr + offset·scale modulo 2^32 of the lanes that code is emitted for, as i64.

    Without an address (addtid) it is M0[15:0] + offset + 4·lane, of all 64 lanes.
    """
    start = frame.slot(offset.slot) * scale
    if address is None:
        return (start + (frame.state(frame.scalar(isa.M0)) & 0xFFFF)).zext(I64) + lane_numbers(4)
    return (frame.row(frame.operand(address.slot)) + start).zext(I64)


def emit(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> None:
    memory = inst.spec.memory
    assert memory is not None
    lanes = frame.exec_bits()
    frame.count(layout.CTX_LANES, frame.slot(layout.SLOT_INDEX), popcount(frame, lanes))
    rows = StagedRows(memory.bits, memory.sign, memory.d16)
    in_rows = frame.hooks and memory.bits == direct.CHUNK * 8 and take_rows(frame)
    staged = memory.op == "store" and frame.hooks and not in_rows  # the hooks read the staged data
    if "addr" in places and direct.serves_narrow(frame, rows):
        _narrow(frame, inst, places, rows, lanes)
        return
    if "addr" not in places or memory.transpose or staged or not direct.serves(frame, rows):
        _any_lanes(frame, inst, places, rows, lanes)
        return
    spans = spans_of(frame, inst, places)
    whole = lanes == ALL_LANES
    for span in spans:
        whole = whole & direct.all_in_bounds(span)
    if not in_rows:
        _whole_or_not(frame, inst, places, rows, lanes, spans, whole)
        return
    taken = frame.emit_and(whole & direct.in_a_row(spans[0]), lambda: row_taken(frame, direct.first_offset(spans[0])))
    with frame.build.if_else(taken) as (then, otherwise):
        with then:
            if memory.op == "load":
                direct.load_lines(spans, frame.operand(places["vdst"].slot))
            else:
                direct.store_lines(spans[0], frame.operand(places["data0"].slot))
        with otherwise:
            if memory.op == "load":
                _whole_or_not(frame, inst, places, rows, lanes, spans, whole)
            else:
                _any_lanes(frame, inst, places, rows, lanes)


def _narrow(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], rows: StagedRows, lanes: IrValue) -> None:
    """Emits a load or store below 32 bits: at once if 64 lanes are consecutive, else through staging."""
    (span,) = spans_of(frame, inst, places)
    first = direct.first_offset(span)
    fits = (first + LANES * rows.lane_bytes).unsigned <= frame.state(layout.LDS_SIZE, I64)
    with frame.build.if_else((lanes == ALL_LANES) & fits & direct.in_a_row(span)) as (then, otherwise):
        with then:
            place = lds_base(frame).at(first)
            if "vdst" in places:
                frame.write_row(frame.operand(places["vdst"].slot), 0, load_narrow(frame, rows, place), None)
            else:
                store_narrow(rows, place, frame.row(frame.operand(places["data0"].slot)))
        with otherwise:
            _any_lanes(frame, inst, places, rows, lanes)


def _whole_or_not(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], rows: StagedRows, lanes: IrValue,
    spans: list[direct.LaneSpan], whole: IrValue
) -> None:
    """Emits copies straight between LDS and registers if `whole`, else through staging."""
    with frame.build.if_else(whole) as (then, otherwise):
        with then:
            if "vdst" in places:
                _direct_load(frame, inst, places, spans)
            else:
                for span, (_, data, _) in zip(spans, _parts(inst), strict=True):
                    direct.store(span, frame.operand(places[data].slot))
        with otherwise:
            _any_lanes(frame, inst, places, rows, lanes)


def _direct_load(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], spans: list[direct.LaneSpan]) -> None:
    size, every = spans[0].lane_bytes, ir.Constant(I64, ALL_LANES)
    # Before the load, which may overwrite the addresses.
    offsets = [offsets_of(frame, places["addr"], places[name], scale) for name, _, scale in _parts(inst) if frame.hooks]
    direct.load(spans, frame.operand(places["vdst"].slot))
    for each in offsets:
        straight = (each == each[0] + lane_numbers(size)).bitcast(I64) == ALL_LANES
        observe(frame, Access("lds", each, every, size, True, False, contiguous=straight))


def _parts(inst: Instruction) -> list[tuple[str, str, int]]:
    """Returns for the one or two accesses of a lane: modifier with the offset, operand of a store, bytes of an offset unit."""
    memory = inst.spec.memory
    assert memory is not None
    if memory.count == 1:
        return [("offset", "data0", 1)]
    scale = memory.stride * memory.bits // 8
    return [("offset0", "data0", scale), ("offset1", "data1", scale)]


def spans_of(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], block: Any = None) -> list[direct.LaneSpan]:
    """Returns the one or two spans that a load or store accesses, in LDS or in a block of the same size at pointer `block`."""
    memory = inst.spec.memory
    assert memory is not None
    base = lds_base(frame) if block is None else block
    lane_bytes = memory.bits // 8
    room = frame.state(layout.LDS_SIZE, I64) - lane_bytes
    distances = frame.operand(places["addr"].slot)
    offsets = [frame.slot(places[name].slot) * scale for name, _, scale in _parts(inst)]
    return [direct.LaneSpan(frame, distances, base.at(offset), room, lane_bytes, offset) for offset in offsets]


def _any_lanes(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], rows: StagedRows, lanes: Any) -> None:
    """Emits an access with any mask and offsets: through staging."""
    memory = inst.spec.memory
    assert memory is not None
    straight = bool(frame.hooks) or frame.dry or rows.bits == 96  # elsewhere `emit` serves consecutive lanes
    results: list[Any] = []
    for name, data, scale in _parts(inst):
        address = places.get("addr")
        narrow = None
        if address:  # offsets in bounds are signed ones, because the immediate has fewer than 31 bits
            start = frame.slot(places[name].slot).zext(I64) * scale
            narrow = Narrow(frame.operand(address.slot), start, signed=True)
        make = partial(offsets_of, frame, address, places[name], scale)
        offsets: Addresses = make if address else make()
        access = LDSAccess(frame, offsets, rows.lane_bytes, CopyForms(narrow, straight, not direct.serves(frame, rows)))
        if memory.op == "store":
            stage_registers(frame, rows, frame.operand(places[data].slot))
            access.copy(lanes, True)
            continue
        access.copy(lanes, False)
        if memory.transpose:
            transpose(frame, memory.bits, memory.transpose)
        if memory.count == 1:
            write_loaded(frame, rows, frame.operand(places["vdst"].slot), lanes)
        else:  # the registers may hold the addresses
            results.extend(read_staged(frame, rows))
    for number, row in enumerate(results):
        frame.write_row(frame.operand(places["vdst"].slot), number, row, frame.lanes(lanes))


def transpose(frame: Frame, bits: int, element_bits: int) -> None:
    """Transposes staged elements for ds_read_*_tr_*, in each group of 16 lanes.

    Lane i of a group gets element 16·j + i of the group, counted lane by lane, as its element j. For 8 and 16 bits this was
    checked against kernels from a compiler; the guide gives no formula. 6-bit elements are packed from the lowest bit on, as the
    matrix instructions read them.
    """
    base = staging(frame)
    count = bits // element_bits  # elements a lane
    staged = read_staged(frame, StagedRows(bits))

    def finish(value: IrValue) -> None:
        """Converts lane after lane back to staged rows."""
        dwords = value.bitcast(ir.VectorType(I32, LANES * len(staged)))
        for part in range(len(staged)):
            row = dwords.shuffle([lane * len(staged) + part for lane in range(LANES)])
            base.at(part * ROW).store(row, align=64)

    whole = interleave_rows(staged)
    if element_bits in (8, 16):
        elements = whole.bitcast(ir.VectorType(ir.IntType(element_bits), LANES * count))
        finish(elements.shuffle([lane // 16 * 16 * count + 16 * j + lane % 16 for lane in range(LANES) for j in range(count)]))
        return
    if element_bits == 6:
        finish(_transposed_sixes(whole))
        return
    kind = ir.VectorType(I8, LANES * 8)
    value = whole.bitcast(kind)
    shifts = ir.Constant(kind, [4 * (lane % 2) for lane in range(LANES) for _ in range(8)])

    def nibbles(odd: int) -> IrValue:
        """Returns for output byte p of lane i: nibble i of the group's lane 2·p + odd."""
        picks = [(lane // 16 * 16 + 2 * p + odd) * 8 + lane % 16 // 2 for lane in range(LANES) for p in range(8)]
        return value.shuffle(picks) >> shifts & 15

    high = nibbles(1) << 4
    finish(nibbles(0) | high)


def _transposed_sixes(whole: IrValue) -> IrValue:
    """Transposes 16 x 16 elements of 6 bits in each 16 lanes of 12 bytes."""
    count = 16
    value = whole.bitcast(ir.VectorType(I8, LANES * 12))

    def bits(shifts: list[int]) -> ir.Constant:
        return ir.Constant(ir.VectorType(I8, len(shifts)), shifts)

    # Element i of lane j, which becomes element j of lane i: from its first byte and the next.
    places = [(group + j, i) for group in range(0, LANES, 16) for i in range(16) for j in range(count)]
    first = [lane * 12 + 6 * i // 8 for lane, i in places]
    after = [min(at + 1, LANES * 12 - 1) for at in first]
    low = value.shuffle(first) >> bits([6 * i % 8 for _, i in places])
    high = value.shuffle(after) << bits([min(8 - 6 * i % 8, 7) for _, i in places])
    sixes = (low | high) & 63
    # Byte b of a lane: the element where it starts, and the next one above it.
    bytes_ = [(lane * count, 8 * b) for lane in range(LANES) for b in range(12)]
    starts = [base + bit // 6 for base, bit in bytes_]
    below = sixes.shuffle(starts) >> bits([bit % 6 for _, bit in bytes_])
    above = sixes.shuffle([at + 1 for at in starts]) << bits([6 - bit % 6 for _, bit in bytes_])
    return below | above


def typed_scalar(ops: LLVMOps, type_: Any, raw: IrValue) -> Any:
    """Returns bits as a body takes them: a scalar, or a pair of halves."""
    if type_.kind == "pair":
        return tuple(lane.Value(ops, type_.element, part) for part in (raw.trunc(I16), (raw >> 16).trunc(I16)))
    wanted = element(type_)
    return lane.Value(ops, type_, raw if raw.type == wanted else raw.bitcast(wanted))


def joined_scalar(frame: Frame, result: Any, kind: ir.IntType) -> IrValue:
    """Returns a body's scalar result, or pair of halves, as bits."""
    if isinstance(result, tuple):
        low, high = (frame.value(half.raw).zext(kind) for half in result)
        return low | high << 16
    raw = frame.value(result.raw if isinstance(result, lane.Value) else result)
    return raw if raw.type == kind else raw.bitcast(kind)


def stage_operand(frame: Frame, pointer: Any, bits: int, at: int) -> None:
    """Stages a 32- or 64-bit operand of every lane at byte `at`, lane after lane."""
    raw = frame.read_wide(pointer, bits)
    staging(frame).at(at).store(raw, align=8)
