"""Buffer accesses: addresses through a 128-bit resource (V#) with its range rules and swizzle.

Sources: for fields and addresses the ISA guides (CDNA1 to CDNA3), "Buffer Addressing"; for range rules AMD's rocjitsu, which
measured them on gfx950 (docs/reference/semantics.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, ROW
from simgpu.machine.operands import OperandPlace
from simgpu.machine.sources import load_scalar
from simgpu.machine.values import I1, I32, I64, IrValue, where
from simgpu.machine.wave_frame import ALL_LANES, ROW32
from simgpu.memory import buffer_formats, by_bytes, private_rows
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import global_atomic, returns_old
from simgpu.memory.lane_copy import (
    ONE_BY_ONE,
    WIDE64,
    Addresses,
    CopyForms,
    Narrow,
    StagedRows,
    constant,
    lane_numbers,
    rows_of,
    stage_registers,
    write_loaded,
)
from simgpu.memory.lds_dma import block_of, load_to_lds, store_from_lds, store_rows
from simgpu.memory.private_rows import PrivateBlock
from simgpu.memory.whole_wave import direct_global
from simgpu.memory.whole_wave.direct_global import DirectGlobal, DirectToLDS

# GFX9 has no element size field: swizzled elements are dwords (LLVM, getScratchRsrcWords23).
ELEMENT_LOG2 = 2
ELEMENT = 1 << ELEMENT_LOG2


@dataclass
class BufferResource:
    """A decoded V#, as i64 scalars."""

    base: IrValue  # device address
    stride: IrValue  # bytes
    records: IrValue  # num_records: bytes, or records if there is an index and a stride
    swizzle: IrValue  # i1: elements of lanes are interleaved
    index_log2: IrValue  # log2 of the index stride
    add_tid: IrValue  # i1


def read_resource(frame: Frame, inst: Instruction, place: OperandPlace) -> BufferResource:
    memory = inst.spec.memory
    assert memory is not None
    pointer = frame.operand(place.slot)
    low, high = pointer.load(I64), pointer.at(8).load(I64)

    def bits(word: IrValue, shift: int, count: int) -> IrValue:
        return (word >> shift) & (1 << count) - 1

    # Swizzle acts only together with add_tid. An index register in a linear buffer replaces the lane number.
    add_tid = bits(high, 55, 1) != 0
    swizzle = add_tid & (bits(low, 63, 1) != 0)
    if inst.mods.get("idxen"):
        add_tid = add_tid & swizzle
    # With add_tid, the data format field holds stride bits 17:14 and is no format.
    more = 0 if memory.format else where(add_tid, bits(high, 47, 4) << 14, 0)
    return BufferResource(
        base=bits(low, 0, 48),
        stride=bits(low, 48, 14) | more,
        records=bits(high, 0, 32),
        swizzle=swizzle,
        index_log2=bits(high, 53, 2) + 3,
        add_tid=add_tid,
    )


@dataclass
class LaneAddresses:
    """Per-lane device addresses, and the values of the range rule."""

    addresses: IrValue  # <64 x i64>
    offsets: IrValue  # <64 x i64>, the sum of the instruction's and the register's offset, for swizzling
    indices: IrValue  # <64 x i64>, the index register (0 without idxen)
    resource: BufferResource
    structured: IrValue  # i1: True if the index must be in range, instead of the bytes
    unchecked: IrValue  # i1: True if nothing is checked
    soffset: IrValue  # i64


def lane_addresses(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> LaneAddresses:
    """Computes the lanes' addresses: base + soffset + linear or swizzled offset (ISA guides, "Buffer Addressing")."""
    resource = read_resource(frame, inst, places["srsrc"])
    offset = frame.splat(frame.slot(places["offset"].slot))
    register = frame.value(ir.Constant(WIDE64, [0] * LANES))
    indexed = bool(inst.mods.get("idxen"))
    if "vaddr" in places:
        pointer = frame.operand(places["vaddr"].slot)
        if indexed:
            register = frame.row(pointer).zext(I64)
        if inst.mods.get("offen"):
            offset = offset + frame.row(pointer, int(indexed))
    offset = offset.zext(I64)  # only this sum wraps at 32 bits
    index = register + where(resource.add_tid, lane_numbers(), 0)
    soffset = _soffset(frame, places["soffset"])
    stride = frame.splat(resource.stride)
    linear = index * stride + offset
    start = resource.base + soffset
    group = frame.splat(resource.index_log2)
    index_high = index >> group
    index_low = index - (index_high << group)
    offset_high, offset_low = offset >> ELEMENT_LOG2, offset & ELEMENT - 1
    block = (index_high * stride + (offset_high << ELEMENT_LOG2)) << group
    swizzled = block + (index_low << ELEMENT_LOG2) + offset_low
    chosen = where(resource.swizzle, swizzled, linear)
    never = frame.value(ir.Constant(I1, 0))
    return LaneAddresses(
        addresses=frame.splat(start) + chosen,
        offsets=offset,
        indices=register,
        resource=resource,
        structured=resource.stride != 0 if indexed else never,
        unchecked=never if indexed else resource.add_tid,
        soffset=soffset,
    )


def raw_addresses(frame: Frame, inst: Instruction, places: dict[str, OperandPlace]) -> LaneAddresses:
    """Computes the lanes' addresses in a raw buffer: no index, no swizzle, an offset register."""
    with frame.hoist():
        resource, soffset = read_resource(frame, inst, places["srsrc"]), _soffset(frame, places["soffset"])
    offsets = _raw_offsets(frame, places).zext(I64)
    never, none = (frame.value(ir.Constant(kind, 0)) for kind in (I1, I64))
    start = frame.splat(resource.base + soffset)
    return LaneAddresses(start + offsets, offsets, frame.splat(none), resource, never, never, soffset)


def _raw_offsets(frame: Frame, places: dict[str, OperandPlace]) -> IrValue:
    """Returns the sums of the offset register and the instruction's offset, i32 a lane."""
    return frame.row(frame.operand(places["vaddr"].slot)) + frame.slot(places["offset"].slot)


def is_raw(inst: Instruction) -> bool:
    """True if a buffer instruction has an offset register (offen) and no index."""
    return bool(inst.mods.get("offen")) and not inst.mods.get("idxen")


def leave_unusual(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Leaves a lean handler if the buffer is swizzled or adds lane numbers, or a lane is only partly in range. Without an offset
    register, leaves it if the buffer is not the wave's private memory."""
    unusual = _is_unusual(frame, inst, places, lanes) if is_raw(inst) else ~_private(frame, inst, places, lanes).serves
    with frame.build.if_then(unusual, likely=False):
        frame.ask_for_whole()


def _is_unusual(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> IrValue:
    resource, size = read_resource(frame, inst, places["srsrc"]), rows_of(inst).lane_bytes
    unusual = resource.swizzle | resource.add_tid
    if size <= ELEMENT:
        return unusual
    # A lane is partly in range if its offset is at least `low` and at most `high`.
    room = resource.records - _soffset(frame, places["soffset"])
    low, high = room - (size - 1), room - ELEMENT
    low = where(low.signed < 0, 0, low)
    first, span = low.trunc(I32), (high - low).trunc(I32)
    partly = lanes & frame.mask_by_groups(lambda: (_raw_offsets(frame, places) - first).unsigned <= span)
    return unusual | (high.signed >= low) & (partly != 0)


def _soffset(frame: Frame, place: OperandPlace) -> IrValue:
    return load_scalar(frame, place).zext(I64)


def in_range(access: LaneAddresses, at: int | IrValue, size: int | IrValue) -> IrValue:
    """Returns an i64 mask of the lanes in range, see `is_in_range`."""
    return is_in_range(access, at, size).bitcast(I64)


def is_in_range(access: LaneAddresses, at: int | IrValue, size: int | IrValue) -> IrValue:
    """Returns i1 a lane: the bytes at..at+size of its access are within the resource.

    With an index register and a stride, the index must be in range, in records; otherwise the offsets and soffset, in bytes.
    Nothing is checked if the lane number is the index.
    """
    end = access.offsets + (size + at)
    records = access.resource.records
    raw = (end + access.soffset).unsigned <= records
    record = access.indices.unsigned < records
    return where(access.structured, record, raw) | access.unchecked


def atomic(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits an atomic: lanes out of range do nothing and return 0."""
    memory, access = inst.spec.memory, lane_addresses(frame, inst, places)
    assert memory is not None
    fits = lanes & in_range(access, 0, memory.bits // 8)
    global_atomic(frame, inst, places, access.addresses, fits)
    if returns_old(inst):
        outside = frame.lanes(lanes & ~fits)
        for part in range(memory.bits // 32):
            frame.write_row(frame.operand(places["vdata"].slot), part, ir.Constant(ROW32, None), outside)


def from_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a store from LDS: lanes out of range are dropped."""
    access = lane_addresses(frame, inst, places)
    store_from_lds(frame, inst, places, access.addresses, lanes & in_range(access, 0, rows_of(inst).lane_bytes))


def to_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a load to LDS: 0 for lanes out of range."""
    access = lane_addresses(frame, inst, places)
    load_to_lds(frame, inst, places, access.addresses, lanes, in_range(access, 0, rows_of(inst).lane_bytes))


def whole_wave_to_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a load to LDS for a raw buffer with every lane in range, or else for any buffer."""
    rows = rows_of(inst)
    block, fits = block_of(frame, inst, places, rows.lane_bytes)
    access, plain = _as_raw(frame, inst, rows, places, DirectToLDS)
    access.run((lanes == ALL_LANES) & plain & fits, block, otherwise=lambda: to_lds(frame, inst, places, lanes))


def _no_failure(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Clears the register after the data with tfe (gfx908): nothing failed."""
    if inst.mods.get("tfe"):
        last = places["vdata"].bits // 32 - 1
        registers = frame.operand(places["vdata"].slot)
        frame.write_row(registers, last, ir.Constant(ROW32, None), frame.lanes(lanes))


def access_by_format(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a load or store of elements by a format."""
    memory, access = inst.spec.memory, lane_addresses(frame, inst, places)
    assert memory is not None
    if inst.mods.get("lds") and (memory.op != "load" or memory.format > 1 or memory.d16):
        raise UnsupportedInstruction(f"{inst.mnemonic} lds: only a dword a lane goes to LDS")
    if memory.space == "tbuffer":
        form = buffer_formats.instruction_format(frame, int(inst.mods.get("format", 0)))
    else:
        form = buffer_formats.resource_format(frame, places["srsrc"])
    size = form.size.zext(I64)
    fits = lanes & in_range(access, 0, size)
    fits = where(size == 0, 0, fits)
    element = buffer_formats.Element(lanes, fits, lambda number: _addresses(access, 4 * number))
    if inst.mods.get("lds"):
        store_rows(frame, inst, places, buffer_formats.convert(frame, memory, form, element)[:1], lanes)
    else:
        move = buffer_formats.store if memory.op == "store" else buffer_formats.load
        move(frame, inst, form, element, frame.operand(places["vdata"].slot))
    _no_failure(frame, inst, places, lanes)


def raw(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a plain load or store for a raw buffer with every lane in range, or else for any buffer."""
    memory, build, rows = inst.spec.memory, frame.build, rows_of(inst)
    assert memory is not None
    store = memory.op == "store"
    resource = read_resource(frame, inst, places["srsrc"])
    offset = frame.slot(places["offset"].slot).zext(I64)
    row = frame.operand(places["vaddr"].slot)
    soffset = _soffset(frame, places["soffset"])
    past = offset + soffset + rows.lane_bytes
    fits = frame.mask_by_groups(lambda: (frame.row(row).zext(I64) + past).unsigned <= resource.records)
    everyone = (lanes & fits) == ALL_LANES
    plain = everyone & ~(resource.swizzle | resource.add_tid)
    with build.if_else(plain) as (then, otherwise):
        with then:
            start = resource.base + soffset + offset
            registers = frame.operand(places["vdata"].slot)
            narrow = CopyForms(Narrow(row, start))
            access = GlobalAccess(frame, lambda: frame.row(row).zext(I64) + start, rows.lane_bytes, store, narrow)
            if store:
                stage_registers(frame, rows, registers)
            access.run(frame.value(constant(ALL_LANES)))
            if not store:
                write_loaded(frame, rows, registers, None)
        with otherwise:
            _other_cases(frame, inst, places, lanes)
    _no_failure(frame, inst, places, lanes)


def whole_wave(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a plain load or store, straight between memory and registers if possible, else for any buffer."""
    rows = rows_of(inst)
    access, plain = _as_raw(frame, inst, rows, places, direct_global.kind_of(rows))
    access.run(
        (lanes == ALL_LANES) & plain,
        frame.operand(places["vdata"].slot),
        otherwise=lambda: _other_cases(frame, inst, places, lanes),
    )
    _no_failure(frame, inst, places, lanes)


def any_resource(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits a plain load or store with any resource and mask: out-of-range loads give 0, stores are dropped. A lean handler
    serves private memory only."""
    if not frame.lean:
        _any_resource(frame, inst, places, lanes)
    else:
        private = _private(frame, inst, places, lanes)
        if frame.begins_lean:
            with frame.build.if_then(~private.serves, likely=False):
                frame.ask_for_whole()
        private_rows.move(frame, inst, places, private.block, private.offsets, lanes)
    _no_failure(frame, inst, places, lanes)


def _other_cases(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    """Emits the access for any resource or, in a lean handler, for a raw one with each lane wholly in range or out of it."""
    if not frame.lean:
        _any_resource(frame, inst, places, lanes)
        return
    if frame.begins_lean:
        leave_unusual(frame, inst, places, lanes)
    memory, rows = inst.spec.memory, rows_of(inst)
    assert memory is not None
    access = partial(raw_addresses, frame, inst, places)
    fits = lanes & frame.mask_by_groups(lambda: is_in_range(access(), 0, rows.lane_bytes))
    _copy_whole(frame, rows, places["vdata"], lambda: access().addresses, lanes, fits, memory.op == "store")


def _as_raw(
    frame: Frame, inst: Instruction, rows: StagedRows, places: dict[str, OperandPlace], kind: type[DirectGlobal]
) -> tuple[DirectGlobal, IrValue]:
    """Returns the access as that of a raw buffer, and i1: True if the buffer is raw."""
    memory = inst.spec.memory
    assert memory is not None
    resource = read_resource(frame, inst, places["srsrc"])
    offset = frame.slot(places["offset"].slot).zext(I64) + _soffset(frame, places["soffset"])
    room = resource.records - offset - rows.lane_bytes
    access = kind(frame, resource.base + offset, frame.operand(places["vaddr"].slot), rows, memory.op == "store", room)
    return access, ~(resource.swizzle | resource.add_tid)


def _any_resource(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    if inst.mods.get("idxen"):
        _by_address(frame, inst, places, lanes)
        return
    private = _private(frame, inst, places, lanes)
    with frame.build.if_else(private.serves) as (own, other):
        with own:
            private_rows.move(frame, inst, places, private.block, private.offsets, lanes)
        with other:
            _by_address(frame, inst, places, lanes)


class PrivateAccess(NamedTuple):
    """Access without an index, if its resource is that of private memory."""

    block: PrivateBlock
    offsets: IrValue  # of the lanes in the block, <64 x i64>
    serves: IrValue  # i1: the resource is such a one, and the block's rows serve the access


def _private(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> PrivateAccess:
    resource = read_resource(frame, inst, places["srsrc"])
    offset = frame.splat(frame.slot(places["offset"].slot))
    if "vaddr" in places:
        offset = offset + frame.row(frame.operand(places["vaddr"].slot))
    block, offsets = PrivateBlock(frame, resource.base + _soffset(frame, places["soffset"])), offset.zext(I64)
    shape = resource.swizzle & (resource.stride == 0) & (resource.index_log2 == LANES.bit_length() - 1)
    return PrivateAccess(block, offsets, shape & block.serves(rows_of(inst), offsets, lanes))


def _by_address(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: Any) -> None:
    memory, rows = inst.spec.memory, rows_of(inst)
    assert memory is not None
    access, store = lane_addresses(frame, inst, places), memory.op == "store"
    whole = lanes & in_range(access, 0, rows.lane_bytes)
    if rows.lane_bytes == 1:
        _copy_whole(frame, rows, places["vdata"], access.addresses, lanes, whole, store)
        return
    # A swizzled access at no multiple of the element's bytes: bytes go one by one.
    torn = access.resource.swizzle & by_bytes.any_torn(rows, access.offsets, lanes)
    with frame.build.if_else(torn, likely=False) as (then, otherwise):
        with then:
            _by_byte(frame, rows, places["vdata"], access, lanes, store)
        with otherwise:
            _by_element(frame, rows, places["vdata"], access, lanes, whole, store)


def _by_element(
    frame: Frame, rows: StagedRows, vdata: OperandPlace, access: LaneAddresses, lanes: Any, whole: Any, store: bool
) -> None:
    if rows.lane_bytes <= ELEMENT:
        _copy_whole(frame, rows, vdata, access.addresses, lanes, whole, store)
        return
    # Dwords go one by one in lanes of which only some are in range. A swizzled buffer has them apart in all lanes.
    at_once = where(access.resource.swizzle, 0, whole)
    _copy_whole(frame, rows, vdata, access.addresses, lanes, at_once, store)
    rest = lanes & in_range(access, 0, ELEMENT) & ~at_once
    with frame.build.if_then(rest != 0, likely=False):
        _by_dword(frame, rows, vdata, access, rest, store)


def _copy_whole(
    frame: Frame, rows: StagedRows, vdata: OperandPlace, addresses: Addresses, lanes: Any, fits: Any, store: bool
) -> None:
    registers = frame.operand(vdata.slot)
    copy = GlobalAccess(frame, addresses, rows.lane_bytes, store, ONE_BY_ONE)
    if store:
        stage_registers(frame, rows, registers)
    copy.run(fits)
    if not store:  # 0 for active lanes that were out of range
        write_loaded(frame, rows, registers, lanes, fits)


def _by_dword(frame: Frame, rows: StagedRows, vdata: OperandPlace, access: LaneAddresses, lanes: Any, store: bool) -> None:
    part = StagedRows(32)
    registers = frame.operand(vdata.slot)

    def copy_dword(number: IrValue) -> tuple[()]:
        register, byte = registers.at(number * ROW), number * 4
        fits = lanes & in_range(access, byte, 4)
        copy = GlobalAccess(frame, _addresses(access, byte), 4, store, ONE_BY_ONE)
        if store:
            stage_registers(frame, part, register)
        copy.run(fits)
        if not store:
            write_loaded(frame, part, register, lanes, fits)
        return ()

    frame.loop(rows.registers, copy_dword)


def _by_byte(frame: Frame, rows: StagedRows, vdata: OperandPlace, access: LaneAddresses, lanes: Any, store: bool) -> None:
    registers = frame.operand(vdata.slot)

    def address_of(byte: IrValue) -> IrValue:
        return _addresses(access, byte)

    def lanes_of(byte: IrValue | int) -> IrValue:
        return in_range(access, byte & ~3, min(4, rows.lane_bytes)) & lanes

    if store:
        data = [frame.row(registers, number) for number in range(rows.registers)]
        by_bytes.store(frame, rows, data, address_of, lanes_of)
        return
    mask = frame.lanes(lanes)
    for number, row in enumerate(by_bytes.load(frame, rows, address_of, lanes_of)):
        frame.write_row(registers, number, where(frame.lanes(lanes_of(4 * number)), row, 0), mask)


def _addresses(access: LaneAddresses, at: IrValue | int) -> IrValue:
    """Returns addresses of byte `at` of each lane's access: swizzled ones jump at element ends."""
    group = access.resource.index_log2.splat(LANES)
    here = access.offsets & ELEMENT - 1  # within the lane's first element
    moved = here + at
    blocks, inner = moved >> ELEMENT_LOG2, moved & ELEMENT - 1
    jumped = blocks << ELEMENT_LOG2 << group
    swizzled = access.addresses + jumped - here + inner
    return where(access.resource.swizzle, swizzled, access.addresses + at)


