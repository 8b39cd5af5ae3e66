"""Emits accesses to private memory, which is interleaved by dword over the wave's 64 lanes.

Scratch instructions, flat addresses in the private aperture, and buffer resources with swizzle and add_tid (`buffers`) access
it. Lane l's dword d is at FLAT_SCRATCH + 256·d + 4·l (LLVM AMDGPUUsage, "Private"). An access that crosses dwords continues in
the lane's next dword.
"""

from __future__ import annotations

from llvmlite import ir

from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import Fault
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue
from simgpu.memory import by_bytes, private_rows
from simgpu.memory.any_lanes import GlobalAccess
from simgpu.memory.atomics import demand_alignment, global_atomic
from simgpu.memory.lane_copy import WIDE64, Spill, StagedRows, is_inside, lane_numbers, read_staged, rows_of, staging, write_staged
from simgpu.memory.lds_dma import store_rows
from simgpu.memory.private_rows import PrivateBlock

# Offset in the staging area at which the halves of 64-bit atomics are joined: past the bytes that `global_atomic` stages.
HALVES = 2048


def plain(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a scratch load or store."""
    offsets = _offsets(frame, places)
    if not frame.lean:
        access(frame, inst, places, offsets, lanes)
        return
    block = _block(frame)
    if frame.begins_lean:
        _leave_unusual(frame, inst, block, offsets, lanes)
    private_rows.move(frame, inst, places, block, offsets, lanes)


def leave_unusual(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Leaves a lean handler if a lane leaves its private memory, or the rows of a block do not serve."""
    _leave_unusual(frame, inst, _block(frame), _offsets(frame, places), lanes)


def _leave_unusual(frame: Frame, inst: Instruction, block: PrivateBlock, offsets: IrValue, lanes: IrValue) -> None:
    rows = rows_of(inst)
    inside = (lanes & ~_fits(frame, offsets, rows.lane_bytes)) == 0
    with frame.build.if_then(~(inside & block.serves(rows, offsets, lanes)), likely=False):
        frame.ask_for_whole()


def to_lds(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], lanes: IrValue) -> None:
    """Emits a scratch load to LDS."""
    offsets, rows = _offsets(frame, places), rows_of(inst)
    check(frame, offsets, rows.lane_bytes, lanes)
    values = by_bytes.load(frame, rows, lambda byte: addresses(frame, offsets + byte), lambda _: lanes)
    store_rows(frame, inst, places, values, lanes)


def _offsets(frame: Frame, places: dict[str, OperandPlace]) -> IrValue:
    """Returns the lanes' private offsets: vaddr + saddr + offset.

    The registers are unsigned and the sum does not wrap (CDNA guides, "Scratch": a 32-bit unsigned byte offset; LLVM,
    isFlatScratchBaseLegal).
    """
    offset = frame.slot(places["offset"].slot).sext(I64)
    if "saddr" in places:
        place = places["saddr"]
        base = frame.slot(place.slot) if place.kind == "imm" else frame.operand(place.slot).load(I32)
        offset = offset + base.zext(I64)
    offsets = frame.splat(offset)
    if "vaddr" in places:
        offsets = offsets + frame.row(frame.operand(places["vaddr"].slot)).zext(I64)
    return offsets


def addresses(frame: Frame, offsets: IrValue) -> IrValue:
    """Returns device addresses of private offsets, <64 x i64>."""
    return private_rows.distances(offsets) + _base(frame)


def check(frame: Frame, offsets: IrValue, lane_bytes: int, lanes: IrValue) -> None:
    """Faults if an active lane leaves its private memory."""
    with frame.build.if_then((lanes & ~_fits(frame, offsets, lane_bytes)) != 0, likely=False):
        frame.fault(Fault.SCRATCH, offsets[0], ir.Constant(I32, 0))


def _fits(frame: Frame, offsets: IrValue, lane_bytes: int) -> IrValue:
    """Returns an i64 mask of the lanes whose bytes are in their private memory."""
    return is_inside(offsets, frame.state(layout.SCRATCH_SIZE, I64), lane_bytes).bitcast(I64)


def access(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], offsets: IrValue, lanes: IrValue) -> None:
    """Emits a private load or store: row by row, or byte by byte if that does not serve."""
    memory, rows = inst.spec.memory, rows_of(inst)
    assert memory is not None
    check(frame, offsets, rows.lane_bytes, lanes)
    block = _block(frame)
    with frame.build.if_else(block.serves(rows, offsets, lanes), likely=True) as (whole, torn):
        with whole:
            private_rows.move(frame, inst, places, block, offsets, lanes)
        with torn:
            _by_byte(frame, rows, places, offsets, lanes, memory.op == "store")


def _base(frame: Frame) -> IrValue:
    """Returns the device address of the wave's private memory, i64."""
    return frame.at(frame.wave, frame.scalar(isa.FLAT_SCRATCH)).load(I64)


def _block(frame: Frame) -> PrivateBlock:
    return PrivateBlock(frame, _base(frame))


def _by_byte(
    frame: Frame, rows: StagedRows, places: dict[str, OperandPlace], offsets: IrValue, lanes: IrValue, store: bool
) -> None:  # fmt: skip
    registers = frame.operand(places["vdata" if store else "vdst"].slot)

    def address_of(byte: IrValue) -> IrValue:
        return addresses(frame, offsets + byte)

    if store:
        data = [frame.row(registers, number) for number in range(rows.registers)]
        by_bytes.store(frame, rows, data, address_of, lambda _: lanes)
        return
    for number, row in enumerate(by_bytes.load(frame, rows, address_of, lambda _: lanes)):
        frame.write_row(registers, number, row, frame.lanes(lanes))


def _dword(frame: Frame, offsets: IrValue, number: int) -> IrValue:
    return addresses(frame, offsets + 4 * number)


def atomic(frame: Frame, inst: Instruction, places: dict[str, OperandPlace], offsets: IrValue, lanes: IrValue) -> None:
    """Emits a flat atomic on private memory. Only its lane sees the memory, so a 64-bit one may load and store two halves."""
    memory = inst.spec.memory
    assert memory is not None
    check(frame, offsets, memory.bits // 8, lanes)
    demand_alignment(frame, Spill(frame, offsets), memory.bits // 8, lanes)
    if memory.bits == 32:
        global_atomic(frame, inst, places, addresses(frame, offsets), lanes)
        return
    halves = [GlobalAccess(frame, _dword(frame, offsets, number), 4, False) for number in (0, 1)]
    rows = []
    for half in halves:
        half.run(lanes)
        rows.append(read_staged(frame, StagedRows(32))[0])
    area = staging(frame).at(HALVES)
    area.store(rows[0].zext(I64) | rows[1].zext(I64) << 32, align=8)
    hosts = area.address() + lane_numbers(8)
    global_atomic(frame, inst, places, hosts, lanes, host_addresses=True)
    new = area.load(WIDE64, align=8)
    for number, row in enumerate((new.trunc(I32), (new >> 32).trunc(I32))):
        write_staged(frame, StagedRows(32), [row])
        GlobalAccess(frame, _dword(frame, offsets, number), 4, True).run(lanes)
