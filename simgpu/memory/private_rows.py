"""Moves whole rows of a wave's private memory: a row is a dword of each of the 64 lanes.

Only its wave accesses a row. So no bitmap counts its bytes, no other lane can race for them, and a store may write back the
columns of lanes that it does not concern.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe, overwrites
from simgpu.machine.layout import GROUP, LANES, ROW
from simgpu.machine.operands import OperandPlace
from simgpu.machine.values import I32, I64, IrValue, where
from simgpu.machine.wave_frame import ROW32
from simgpu.memory import by_bytes
from simgpu.memory.any_lanes import field, find_allocation
from simgpu.memory.lane_copy import (
    StagedRows,
    each_group,
    each_lane,
    first_lane,
    is_inside,
    lane_numbers,
    read_staged,
    rows_of,
    staging,
    write_staged,
)


class PrivateBlock:
    """Private memory of a wave, from a device address (i64) on: lane l's dword d is 256 d + 4 l bytes further."""

    def __init__(self, frame: Frame, base: IrValue) -> None:
        self.entry = find_allocation(frame, base)
        self.offset = base - field(self.entry, layout.ALLOC_BASE)
        self.host = (base + field(self.entry, layout.ALLOC_DELTA)).pointer()

    def serves(self, rows: StagedRows, offsets: IrValue, lanes: IrValue) -> IrValue:
        """Returns i1: the active lanes' data are in whole rows of memory that a launch made for private data, and no lane's
        cross more dwords than aligned ones. A kernel may point FLAT_SCRATCH or a buffer at any memory."""
        own = (self.entry.at(layout.ALLOC_PRIVATE).load(I32) != 0) & ((self.offset & ROW - 1) == 0)
        size = field(self.entry, layout.ALLOC_SIZE)
        room = size - self.offset
        own = own & (self.offset.unsigned < size) & (room.unsigned >= ROW)
        inside = (lanes & ~is_inside(offsets, room >> 6, rows.lane_bytes).bitcast(I64)) == 0
        return own & inside & ~by_bytes.any_torn(rows, offsets, lanes)


def distances(offsets: IrValue) -> IrValue:
    """Returns the bytes from a wave's private memory on to the lanes' private offsets, <64 x i64>."""
    return (offsets >> 2 << 8) + (lane_numbers(4) + (offsets & 3))


def move(
    frame: Frame, inst: Instruction, places: dict[str, OperandPlace], block: PrivateBlock, offsets: IrValue, lanes: IrValue
) -> None:
    """Emits a load or store that the block serves; see `PrivateRows`."""
    memory, registers = inst.spec.memory, frame.operand(places["vdst" if "vdst" in places else "vdata"].slot)
    assert memory is not None
    private = PrivateRows(frame, block, rows_of(inst), offsets, lanes, is_common="vaddr" not in places)
    store = memory.op == "store"
    if store:
        private.note(overwrites, store)
        private.each(lambda number: private.store(number, frame.row(registers.at(number * ROW))))
    else:
        mask = frame.lanes(lanes)
        private.each(lambda number: frame.write_row(registers.at(number * ROW), 0, private.load(number), mask))
    private.note(observe, store)


class PrivateRows:
    """Rows that an access moves, each lane's dword in its column. All lanes mostly access one row at a time.

    offsets: the lanes' private offsets, <64 x i64>. lanes: i64 mask. is_common: True if all lanes have one offset
    """

    def __init__(
        self, frame: Frame, block: PrivateBlock, rows: StagedRows, offsets: IrValue, lanes: IrValue, is_common: bool
    ) -> None:
        self.frame, self.block, self.rows = frame, block, rows
        self.offsets, self.lanes, self.is_common = offsets, lanes, is_common
        starts = offsets >> 2 << 8
        self._distances = frame.at(frame.wave, layout.ADDRESSES)
        found = starts[0]
        if not is_common:
            self._distances.store(starts, align=64)
            found = self._distances.at((first_lane(frame, lanes) & LANES - 1) << 3).load(I64, align=8)
        self._first = where(lanes != 0, found, 0)
        if not is_common:
            # Inactive lanes, whose offsets may be anything, get the first active lane's row.
            chosen = where(frame.lanes(lanes), starts, self._first.splat(LANES))
            self._common = (chosen != self._first).bitcast(I64) == 0
            self._distances.store(chosen + lane_numbers(4), align=64)

    def each(self, body: Callable[[IrValue | int], None]) -> None:
        """Emits `body` for the number of each register that the access loads or stores."""

        def step(number: IrValue) -> tuple[()]:
            body(number)
            return ()

        if self.rows.registers == 1:
            body(0)
        else:
            self.frame.loop(self.rows.registers, step)

    def load(self, number: IrValue | int) -> IrValue:
        """Loads register `number`, <64 x i32>: the lanes' dwords, or one narrow element of each."""
        row = self._load_dwords(number)
        if self.rows.bits >= 32:
            return row
        write_staged(self.frame, StagedRows(self.rows.bits), [row >> self._bits_before()])
        return read_staged(self.frame, self.rows)[0]

    def store(self, number: IrValue | int, register: IrValue) -> None:
        """Stores register `number`: dwords, or a narrow element of each lane."""
        if self.rows.bits < 32:
            data = register >> 16 if self.rows.d16 == "hi" else register
            ours, shift = (1 << self.rows.bits) - 1, self._bits_before()
            kept = ~(self.frame.value(ir.Constant(ROW32, [ours] * LANES)) << shift)
            register = self._load_dwords(number) & kept | (data & ours) << shift
        if self.is_common:
            self._store_row(number, register)
            return
        with self.frame.build.if_else(self._common) as (together, apart):
            with together:
                self._store_row(number, register)
            with apart:
                staged = staging(self.frame)
                staged.store(register, align=64)
                each_lane(self.frame, self.lanes, lambda lane: self._place(number, lane).store(staged.at(lane << 2).load(I32)))

    def note(self, call: Callable[[Frame, Access], None], store: bool) -> None:
        """Calls hooks for each row, if there are any."""
        if not self.frame.hooks:
            return
        size = min(self.rows.lane_bytes, 4)
        columns = distances(self.offsets) + self.block.offset

        def note_row(number: IrValue | int) -> None:
            access = Access(
                "global", columns + number * ROW, self.lanes, size, not store, store, entry=self.block.entry, private=True
            )  # fmt: skip
            call(self.frame, access)

        self.each(note_row)

    def _bits_before(self) -> IrValue:
        """Returns the bits before each lane's element in its dword, <64 x i32>."""
        return ((self.offsets & 3) << 3).trunc(I32)

    def _row(self, number: IrValue | int) -> IrValue:
        """Returns a pointer to the row that is common to all lanes."""
        return self.block.host.at(self._first + number * ROW)

    def _place(self, number: IrValue | int, lane: IrValue) -> IrValue:
        """Returns a pointer to a lane's dword. lane: i64"""
        return self.block.host.at(self._distances.at(lane << 3).load(I64, align=8) + number * ROW)

    def _store_row(self, number: IrValue | int, register: IrValue) -> None:
        self.frame.write_row(self._row(number), 0, register, self.frame.lanes(self.lanes))

    def _load_dwords(self, number: IrValue | int) -> IrValue:
        if self.is_common:
            return self._row(number).load(ROW32, align=64)
        build, staged = self.frame.build, staging(self.frame)
        with build.if_else(self._common) as (together, apart):
            with together:
                row, after_row = self._row(number).load(ROW32, align=64), build.block
            with apart:

                def gather(group: IrValue) -> None:
                    for lane in range(GROUP):
                        which = group * GROUP + lane
                        staged.at(which << 2).store(self._place(number, which).load(I32))

                each_group(self.frame, gather)
                gathered, after_gather = staged.load(ROW32, align=64), build.block
        loaded = build.phi(ROW32)
        loaded.add_incoming(row, after_row)
        loaded.add_incoming(gathered, after_gather)
        return loaded
