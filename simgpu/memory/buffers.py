"""Buffer accesses: addresses through a 128-bit resource (V#) with its range rules and swizzle.

Fields and addresses: ISA guides (CDNA1 to CDNA3), "Buffer Addressing"; range rules: what AMD's rocjitsu
found on gfx950; see docs/semantics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.hardware.errors import UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import ALL_LANES, ROW32, Frame
from simgpu.machine.lane_ops import I64
from simgpu.machine.layout import LANES
from simgpu.machine.operands import Place, load_scalar
from simgpu.memory import buffer_formats
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import global_atomic, returns_old
from simgpu.memory.lane_copy import WIDE64, Rows, constant, lanes_of, read_staged, write_staged
from simgpu.memory.lds_dma import load_to_lds, store_from_lds, store_row
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct_global import DirectGlobal

# GFX9 has no element size field: swizzled elements are dwords (LLVM, getScratchRsrcWords23).
ELEMENT_LOG2 = 2


def _element() -> ir.Constant:
    return ir.Constant(WIDE64, [ELEMENT_LOG2] * LANES)


@dataclass
class Resource:
    """A decoded V#, as i64 scalars."""

    base: Any
    stride: Any
    records: Any
    swizzle: Any  # i1
    index_log2: Any  # log2 of the index stride
    add_tid: Any  # i1


def read_resource(frame: Frame, inst: Instruction, place: Place) -> Resource:
    build = frame.build
    memory = inst.spec.memory
    assert memory is not None
    pointer = frame.operand(place.slot)
    low = frame.load(pointer, I64)
    high = frame.load(frame.at(pointer, 8), I64)

    def bits(word: Any, shift: int, count: int) -> Any:
        return build.and_(build.lshr(word, constant(shift)), constant((1 << count) - 1))

    def flag(word: Any, shift: int) -> Any:
        return build.icmp_unsigned("!=", bits(word, shift, 1), constant(0))

    # An index register in a linear buffer takes the lane number's place.
    add_tid, swizzle = flag(high, 55), flag(low, 63)
    if inst.mods.get("idxen"):
        add_tid = build.and_(add_tid, swizzle)
    # With add_tid the data format field holds stride bits 17:14, where it is no format.
    more = build.select(add_tid, build.shl(bits(high, 47, 4), constant(14)), constant(0))
    if memory.format:
        more = constant(0)
    return Resource(
        base=bits(low, 0, 48),
        stride=build.or_(bits(low, 48, 14), more),
        records=bits(high, 0, 32),
        swizzle=swizzle,
        index_log2=build.add(bits(high, 53, 2), constant(3)),
        add_tid=add_tid,
    )


@dataclass
class Addressed:
    """Per-lane device addresses, and what the range rule needs."""

    addresses: Any  # <64 x i64>
    offsets: Any  # <64 x i64>, the instruction's and the register's offset, for swizzling
    indices: Any  # <64 x i64>, the index register (0 without idxen)
    resource: Resource
    structured: Any  # i1: range by index rather than by bytes
    unchecked: Any  # i1
    soffset: Any  # i64


def addressed(frame: Frame, inst: Instruction, places: dict[str, Place]) -> Addressed:
    """Addresses of the lanes: base + soffset + linear or swizzled offset."""
    build = frame.build
    resource = read_resource(frame, inst, places["srsrc"])
    offset = frame.splat(frame.slot(places["offset"].slot))
    register: Any = ir.Constant(WIDE64, [0] * LANES)
    indexed = bool(inst.mods.get("idxen"))
    if "vaddr" in places:
        pointer = frame.operand(places["vaddr"].slot)
        if indexed:
            register = build.zext(frame.row(pointer), WIDE64)
        if inst.mods.get("offen"):
            offset = build.add(offset, frame.row(pointer, int(indexed)))
    offset = build.zext(offset, WIDE64)  # this sum alone is one of 32 bits
    lane = ir.Constant(WIDE64, list(range(LANES)))
    zero = ir.Constant(WIDE64, [0] * LANES)
    index = build.add(register, build.select(frame.splat(resource.add_tid), lane, zero))
    soffset = _soffset(frame, places["soffset"])
    stride = frame.splat(resource.stride)
    linear = build.add(build.mul(index, stride), offset)
    start = build.add(resource.base, soffset)
    element, group = _element(), frame.splat(resource.index_log2)
    one = ir.Constant(WIDE64, [1] * LANES)
    index_high = build.lshr(index, group)
    index_low = build.sub(index, build.shl(index_high, group))
    offset_high = build.lshr(offset, element)
    offset_low = build.and_(offset, build.sub(build.shl(one, element), one))
    block = build.shl(build.add(build.mul(index_high, stride), build.shl(offset_high, element)), group)
    swizzled = build.add(build.add(block, build.shl(index_low, element)), offset_low)
    chosen = build.select(frame.splat(resource.swizzle), swizzled, linear)
    never = ir.Constant(ir.IntType(1), 0)
    return Addressed(
        addresses=build.add(frame.splat(start), chosen),
        offsets=offset,
        indices=register,
        resource=resource,
        structured=build.icmp_unsigned("!=", resource.stride, constant(0)) if indexed else never,
        unchecked=never if indexed else resource.add_tid,
        soffset=soffset,
    )


def _soffset(frame: Frame, place: Place) -> Any:
    return frame.build.zext(load_scalar(frame, place), I64)


def in_range(frame: Frame, where: Addressed, at: int, size: Any) -> Any:
    """i64 mask of lanes whose bytes at..at+size (int or i64) of the access are within the resource.

    With an index register and a stride the index counts, in records; else the offsets and soffset, in
    bytes; nothing where the lane number is the index.
    """
    build = frame.build
    count = constant(size) if isinstance(size, int) else size
    end = build.add(where.offsets, frame.splat(build.add(count, constant(at))))
    records = frame.splat(where.resource.records)
    raw = build.icmp_unsigned("<=", build.add(end, frame.splat(where.soffset)), records)
    record = build.icmp_unsigned("<", where.indices, records)
    within = build.select(frame.splat(where.structured), record, raw)
    return lanes_of(frame, build.or_(within, frame.splat(where.unchecked)))


def buffer_access(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """A buffer load, store or atomic: out-of-range loads give 0, stores are dropped."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    to_lds = memory.lds or inst.mods.get("lds")
    if memory.op in ("load", "store") and not (to_lds or memory.format):
        _access(frame, inst, places, lanes)
        _no_failure(frame, inst, places, lanes)
        return
    where = addressed(frame, inst, places)
    if memory.format:
        _formatted(frame, inst, places, where, lanes, bool(to_lds))
        _no_failure(frame, inst, places, lanes)
        return
    if memory.op == "atomic":
        fits = build.and_(lanes, in_range(frame, where, 0, memory.bits // 8))
        global_atomic(frame, inst, places, where.addresses, fits)
        if returns_old(inst):
            outside = frame.lanes(build.and_(lanes, build.not_(fits)))
            for part in range(memory.bits // 32):
                zero = ir.Constant(ROW32, None)
                frame.write_row(frame.operand(places["vdata"].slot), part, zero, outside)
        return
    fits = in_range(frame, where, 0, memory.bits * memory.count // 8)
    if memory.op == "store":
        store_from_lds(frame, inst, places, where.addresses, build.and_(lanes, fits))
    else:
        load_to_lds(frame, inst, places, where.addresses, lanes, fits)


def _no_failure(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """tfe (gfx908): the register after the data says that nothing failed."""
    if inst.mods.get("tfe"):
        last = places["vdata"].bits // 32 - 1
        registers = frame.operand(places["vdata"].slot)
        frame.write_row(registers, last, ir.Constant(ROW32, None), frame.lanes(lanes))


def _formatted(
    frame: Frame, inst: Instruction, places: dict[str, Place], where: Addressed, lanes: Any, to_lds: bool
) -> None:
    memory = inst.spec.memory
    assert memory is not None
    if to_lds and (memory.op != "load" or memory.format > 1 or memory.d16):
        raise UnsupportedInstruction(f"{inst.mnemonic} lds: only a dword a lane goes to LDS")
    build = frame.build
    if memory.space == "tbuffer":
        form = buffer_formats.instruction_format(int(inst.mods.get("format", 0)))
    else:
        form = buffer_formats.resource_format(frame, places["srsrc"])
    size = build.zext(form.size, I64)
    fits = build.and_(lanes, in_range(frame, where, 0, size))
    fits = build.select(build.icmp_unsigned("==", size, constant(0)), constant(0), fits)
    element = buffer_formats.Element(
        lanes, fits, lambda number: _dword_addresses(frame, inst, places, where, number)
    )
    if to_lds:
        store_row(frame, places, buffer_formats.converted(frame, memory, form, element)[0], lanes)
        return
    move = buffer_formats.store if memory.op == "store" else buffer_formats.load
    move(frame, inst, form, element, frame.operand(places["vdata"].slot))


def _access(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """A plain load or store: raw buffers with every lane in range first, for speed."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    rows = Rows(memory.bits * memory.count, memory.sign, memory.d16)
    store = memory.op == "store"
    if inst.mods.get("idxen") or not inst.mods.get("offen"):
        _general(frame, inst, rows, places, lanes)
        return
    if direct.serves(frame, rows):
        _direct(frame, inst, rows, places, lanes)
        return
    resource = read_resource(frame, inst, places["srsrc"])
    offset = build.zext(frame.slot(places["offset"].slot), I64)
    row = frame.operand(places["vaddr"].slot)
    offsets = build.add(build.zext(frame.row(row), WIDE64), frame.splat(offset))
    end = build.add(offsets, ir.Constant(WIDE64, [rows.lane_bytes] * LANES))
    soffset = _soffset(frame, places["soffset"])
    past = build.add(end, frame.splat(soffset))
    fits = lanes_of(frame, build.icmp_unsigned("<=", past, frame.splat(resource.records)))
    everyone = build.icmp_unsigned("==", build.and_(lanes, fits), constant(ALL_LANES))
    special = build.or_(resource.swizzle, resource.add_tid)
    plain = build.and_(everyone, build.not_(special))
    with build.if_else(plain) as (then, otherwise):
        with then:
            start = build.add(build.add(resource.base, soffset), offset)
            rest = build.sub(offsets, frame.splat(offset))
            addresses = build.add(rest, frame.splat(start))
            narrow = (row, start)
            registers = frame.operand(places["vdata"].slot)
            access = GlobalAccess(frame, addresses, rows.lane_bytes, store, narrow)
            if store:
                write_staged(frame, rows, [frame.row(registers, i) for i in range(rows.registers)])
            access.run(constant(ALL_LANES))
            if not store:
                old = frame.row(registers) if rows.d16 else None
                for number, loaded in enumerate(read_staged(frame, rows, old)):
                    frame.write_row(registers, number, loaded, None)
        with otherwise:
            _general(frame, inst, rows, places, lanes)


def _direct(frame: Frame, inst: Instruction, rows: Rows, places: dict[str, Place], lanes: Any) -> None:
    """A raw buffer's every lane in range, or else anything."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    resource = read_resource(frame, inst, places["srsrc"])
    offset = build.add(build.zext(frame.slot(places["offset"].slot), I64), _soffset(frame, places["soffset"]))
    special = build.or_(resource.swizzle, resource.add_tid)
    whole = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
    room = build.sub(build.sub(resource.records, offset), constant(rows.lane_bytes))
    start = build.add(resource.base, offset)
    access = DirectGlobal(frame, start, frame.operand(places["vaddr"].slot), rows.lane_bytes, memory.op == "store", room)
    access.run(
        build.and_(whole, build.not_(special)),
        frame.operand(places["vdata"].slot),
        otherwise=lambda: _general(frame, inst, rows, places, lanes),
    )


def _general(frame: Frame, inst: Instruction, rows: Rows, places: dict[str, Place], lanes: Any) -> None:
    """Any resource, any mask."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    where = addressed(frame, inst, places)
    whole = build.and_(lanes, in_range(frame, where, 0, rows.lane_bytes))
    # A swizzled access may cross an element: then, and where only some dwords are in range,
    # dwords go one by one.
    crossing = build.and_(
        where.resource.swizzle,
        build.icmp_unsigned("<", constant(1 << ELEMENT_LOG2), constant(rows.lane_bytes)),
    )
    some = build.and_(lanes, in_range(frame, where, 0, min(4, rows.lane_bytes)))
    split = build.or_(crossing, build.icmp_unsigned("!=", some, whole))
    if rows.lane_bytes <= 4:
        _whole(frame, rows, places["vdata"], where, lanes, whole, memory.op == "store")
        return
    with build.if_else(split, likely=False) as (then, otherwise):
        with then:
            _by_dword(frame, inst, rows, places, where, lanes, memory.op == "store")
        with otherwise:
            _whole(frame, rows, places["vdata"], where, lanes, whole, memory.op == "store")


def _whole(
    frame: Frame, rows: Rows, vdata: Place, where: Addressed, lanes: Any, fits: Any, store: bool
) -> None:
    registers = frame.operand(vdata.slot)
    access = GlobalAccess(frame, where.addresses, rows.lane_bytes, store, unrolled=False)
    if store:
        write_staged(frame, rows, [frame.row(registers, i) for i in range(rows.registers)])
        access.run(fits)
        return
    access.run(fits)
    _write_loaded(frame, rows, registers, 0, lanes, fits)


def _write_loaded(frame: Frame, rows: Rows, registers: Any, part: int, lanes: Any, fits: Any) -> None:
    """Loaded rows into registers: 0 for active lanes that were out of range."""
    build = frame.build
    mask, valid = frame.lanes(lanes), frame.lanes(fits)
    old = frame.row(registers, part) if rows.d16 else None
    for number, row in enumerate(read_staged(frame, rows, old)):
        zero = ir.Constant(row.type, None)
        frame.write_row(registers, part + number, build.select(valid, row, zero), mask)


def _by_dword(
    frame: Frame,
    inst: Instruction,
    rows: Rows,
    places: dict[str, Place],
    where: Addressed,
    lanes: Any,
    store: bool,
) -> None:
    build = frame.build
    part = Rows(32)
    registers = frame.operand(places["vdata"].slot)
    for number in range(rows.registers):
        moved = dict(places)
        fits = build.and_(lanes, in_range(frame, where, 4 * number, 4))
        step = _dword_addresses(frame, inst, moved, where, number)
        access = GlobalAccess(frame, step, 4, store, unrolled=False)
        if store:
            write_staged(frame, part, [frame.row(registers, number)])
            access.run(fits)
        else:
            access.run(fits)
            _write_loaded(frame, part, registers, number, lanes, fits)


def _dword_addresses(
    frame: Frame, inst: Instruction, places: dict[str, Place], where: Addressed, number: int
) -> Any:
    """Addresses of dword `number` of each lane's access: swizzled ones jump at element ends."""
    build = frame.build
    step = ir.Constant(WIDE64, [4 * number] * LANES)
    element, group = _element(), frame.splat(where.resource.index_log2)
    one = ir.Constant(WIDE64, [1] * LANES)
    low = build.sub(build.shl(one, element), one)
    here = build.and_(where.offsets, low)
    moved = build.add(here, step)
    blocks = build.lshr(moved, element)
    inner = build.and_(moved, low)
    jumped = build.shl(build.shl(blocks, element), group)
    swizzled = build.add(build.sub(build.add(where.addresses, jumped), here), inner)
    linear = build.add(where.addresses, step)
    return build.select(frame.splat(where.resource.swizzle), swizzled, linear)


