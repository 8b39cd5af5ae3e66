"""Private memory: a lane's own bytes, interleaved by dword over the wave's 64 lanes.

Reached by scratch instructions, by flat addresses in the private aperture, and by buffer
resources with swizzle and add_tid (buffers). Lane l's dword d lies at FLAT_SCRATCH + 256·d + 4·l
(LLVM AMDGPUUsage, "Private").
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.operands import Place
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import global_atomic
from simgpu.memory.lane_copy import WIDE64, Rows, constant, inside, lanes_of, read_staged, staging, write_staged
from simgpu.memory.lds_dma import load_to_lds

# Where a 64-bit atomic puts both halves together: past what `global_atomic` stages.
HALVES = 2048


def scratch(frame: Frame, inst: Instruction, places: dict[str, Place], lanes: Any) -> None:
    """A scratch instruction: vaddr + saddr + offset is the lane's private offset."""
    memory = inst.spec.memory
    assert memory is not None
    build = frame.build
    offset = build.sext(frame.slot(places["offset"].slot), I64)
    if "saddr" in places:
        place = places["saddr"]
        immediate = place.kind == "imm"
        base = frame.slot(place.slot) if immediate else frame.load(frame.operand(place.slot), I32)
        offset = build.add(offset, build.sext(base, I64))
    offsets = frame.splat(offset)
    if "vaddr" in places:
        offsets = build.add(offsets, build.zext(frame.row(frame.operand(places["vaddr"].slot)), WIDE64))
    if memory.lds or inst.mods.get("lds"):
        check(frame, offsets, memory.bits // 8, lanes)
        load_to_lds(frame, inst, places, addresses(frame, offsets), lanes)
    else:
        access(frame, inst, places, offsets, lanes)


def addresses(frame: Frame, offsets: Any) -> Any:
    """Device addresses of private offsets, <64 x i64>."""
    build = frame.build
    base = frame.load(frame.at(frame.wave, frame.scalar(isa.FLAT_SCRATCH)), I64)
    dword = build.lshr(offsets, ir.Constant(WIDE64, [2] * LANES))
    within = build.and_(offsets, ir.Constant(WIDE64, [3] * LANES))
    lane = ir.Constant(WIDE64, [4 * lane for lane in range(LANES)])
    scaled = build.shl(dword, ir.Constant(WIDE64, [8] * LANES))
    return build.add(build.add(frame.splat(base), scaled), build.add(lane, within))


def check(frame: Frame, offsets: Any, lane_bytes: int, lanes: Any) -> None:
    """A fault where an active lane leaves its private memory."""
    build = frame.build
    size = frame.state(layout.SCRATCH_SIZE, I64)
    fits = lanes_of(frame, inside(frame, offsets, size, lane_bytes))
    outside = build.and_(lanes, build.not_(fits))
    with build.if_then(build.icmp_unsigned("!=", outside, constant(0)), likely=False):
        first = build.extract_element(offsets, ir.Constant(I32, 0))
        frame.fault(Fault.SCRATCH, first, ir.Constant(I32, 0))


def access(frame: Frame, inst: Instruction, places: dict[str, Place], offsets: Any, lanes: Any) -> None:
    """A private load or store, one dword at a time as memory has it."""
    memory = inst.spec.memory
    assert memory is not None
    rows = Rows(memory.bits * memory.count, memory.sign, memory.d16)
    check(frame, offsets, rows.lane_bytes, lanes)
    part = rows if rows.bits < 32 else Rows(32)
    mask = frame.lanes(lanes)
    store = memory.op == "store"
    registers = frame.operand(places["vdata" if store else "vdst"].slot)
    for number in range(rows.registers):
        piece = GlobalAccess(frame, _dword(frame, offsets, number), part.lane_bytes, store)
        if store:
            write_staged(frame, part, [frame.row(registers, number)])
            piece.run(lanes)
        else:
            piece.run(lanes)
            old = frame.row(registers) if rows.d16 else None
            frame.write_row(registers, number, read_staged(frame, part, old)[0], mask)


def _dword(frame: Frame, offsets: Any, number: int) -> Any:
    step = ir.Constant(WIDE64, [4 * number] * LANES)
    return addresses(frame, frame.build.add(offsets, step))


def atomic(frame: Frame, inst: Instruction, places: dict[str, Place], offsets: Any, lanes: Any) -> None:
    """An atomic on private memory (flat): nobody else sees it, so halves may be put together."""
    memory = inst.spec.memory
    assert memory is not None
    check(frame, offsets, memory.bits // 8, lanes)
    if memory.bits == 32:
        global_atomic(frame, inst, places, addresses(frame, offsets), lanes)
        return
    build = frame.build
    halves = [GlobalAccess(frame, _dword(frame, offsets, number), 4, False) for number in (0, 1)]
    rows = []
    for half in halves:
        half.run(lanes)
        rows.append(read_staged(frame, Rows(32), None)[0])
    area = frame.at(staging(frame), HALVES)
    wide = ir.VectorType(I64, LANES)
    shift = ir.Constant(wide, [32] * LANES)
    whole = build.or_(build.zext(rows[0], wide), build.shl(build.zext(rows[1], wide), shift))
    frame.store(whole, area, align=8)
    steps = ir.Constant(wide, [8 * lane for lane in range(LANES)])
    hosts = build.add(frame.splat(build.ptrtoint(area, I64)), steps)
    global_atomic(frame, inst, places, hosts, lanes, host_addresses=True)
    new = frame.load(area, wide, align=8)
    kind = ir.VectorType(I32, LANES)
    parts = [build.trunc(new, kind), build.trunc(build.lshr(new, shift), kind)]
    for number, row in enumerate(parts):
        write_staged(frame, Rows(32), [row])
        GlobalAccess(frame, _dword(frame, offsets, number), 4, True).run(lanes)
