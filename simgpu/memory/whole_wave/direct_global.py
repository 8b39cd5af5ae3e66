"""Device memory for a whole wave: `direct` within the allocation that the instruction accessed last.

Like `any_lanes.access`, this adds the allocation's bounds and the bitmaps of bytes read and written. Most bytes are touched more
than once, so the bitmap is written only if a bit is missing. If lanes share a line of memory, one test of a 64-bit word of the
bitmap serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.hooks import observe, overwrites
from simgpu.machine.layout import GROUP, LANES, ROW
from simgpu.machine.values import I1, I32, I64, IrValue, where
from simgpu.machine.wave_frame import ALL_LANES, ROW32
from simgpu.memory.any_lanes import field, hinted_entry, mark_lane, note_page
from simgpu.memory.lane_copy import StagedRows, constant, each_lane, load_narrow, store_narrow
from simgpu.memory.whole_wave import contiguous, direct
from simgpu.memory.whole_wave.direct import BLOCK, LINE, LaneSpan
from simgpu.memory.whole_wave.prefetch import PrefetchQueue


class DirectGlobal:
    """A load or store of rows: lane l's bytes are at device address `start` + dword l of `distances`.

    to_memory: True for a store. room: i64 or None, a bound on the distances in addition to the allocation's. streams: True if
    the start may move between executions, so that prefetching is of use.
    """

    def __init__(
        self,
        frame: Frame,
        start: IrValue,
        distances: IrValue,
        rows: StagedRows,
        to_memory: bool,
        room: IrValue | None = None,
        streams: bool = True,
    ) -> None:
        self.frame = frame
        self.rows = rows
        self.start = start
        self.to_memory = to_memory
        self.streams = streams
        self.entry = hinted_entry(frame)
        base, size, delta = (field(self.entry, which) for which in (layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_DELTA))
        self.offset = start - base  # of distance 0 in the allocation
        here = self.offset.unsigned < size
        if to_memory:
            here = here & (field(self.entry, layout.ALLOC_WRITABLE) != 0)
        left = where(here, size - rows.lane_bytes - self.offset, -1)
        if room is not None:
            left = where(room.signed < left, room, left)
        self.span = LaneSpan(frame, distances, (start + delta).pointer(), left, rows.lane_bytes)

    def run(self, active: IrValue, registers: IrValue, otherwise: Callable[[], None]) -> None:
        """Loads or stores the registers if `active` (i1: all lanes) holds and all lanes are in bounds.

        Otherwise runs the code that `otherwise` emits.
        """
        frame = self.frame
        aligned = (self._first() & 7) == 0
        run = frame.emit_and(active & aligned, lambda: contiguous.is_one_range(self.span))
        offsets = self._offsets() if frame.hooks else None  # a load may overwrite the distances

        def run_whole() -> ir.Constant:
            self._run_whole(registers)
            return ir.Constant(I1, 1)

        def general() -> ir.Constant:
            otherwise()
            return ir.Constant(I1, 0)

        served = frame.emit_choice(run, run_whole, lambda: self._elsewhere(active, registers, general))
        if frame.hooks:
            with frame.build.if_then(served):
                access = Access(
                    "global", offsets, ir.Constant(I64, ALL_LANES), self.span.lane_bytes, not self.to_memory, self.to_memory,
                    entry=self.entry, contiguous=run,
                )  # fmt: skip
                if self.to_memory:
                    overwrites(frame, access)
                observe(frame, access)

    def _offsets(self) -> IrValue:
        """Returns the lanes' offsets in the allocation: <64 x i64>."""
        return self.span.distances.load(ROW32).zext(I64) + self.offset

    def _first(self) -> IrValue:
        """Returns i64: the first lane's offset in the allocation."""
        return self.offset + self.span.distances.load(I32).zext(I64)

    def _run_whole(self, registers: IrValue) -> None:
        run, first = contiguous.LaneRange.of(self.span), self._first()
        table = self._table()
        with self.frame.build.if_then(table != 0):
            run.mark(table, first)
        if not self.to_memory and self.streams and run.lane_bytes == direct.CHUNK:
            run.look_ahead(table, first, self._stride(run.start.address()))
        self._move_lines(run, registers)

    def _elsewhere(self, active: IrValue, registers: IrValue, general: Callable[[], ir.Constant]) -> IrValue | ir.Constant:
        """Serves lanes that are not consecutive, if all are in bounds. Returns i1: True if it did."""
        return self.frame.emit_choice(active & direct.all_in_bounds(self.span), lambda: self._run_apart(registers), general)

    def _run_apart(self, registers: IrValue) -> ir.Constant:
        self._mark()
        if not self.to_memory and self.streams:
            self._look_ahead()
        self._move(registers)
        return ir.Constant(I1, 1)

    def _move_lines(self, span: LaneSpan, registers: IrValue) -> None:
        """Loads or stores the registers; the lanes that share a line must be consecutive."""
        if self.to_memory:
            direct.store_lines(span, registers)
        else:
            direct.load_lines([span], registers)

    def _move(self, registers: IrValue) -> None:
        """Loads or stores the registers; the lanes' bytes may be anywhere in the allocation."""
        if self.to_memory:
            direct.store(self.span, registers)
        else:
            direct.load([self.span], registers)

    def _stride(self, start: IrValue) -> IrValue:
        """Returns `start` minus the wave's last one for this instruction, and remembers it. Instructions may share an entry."""
        number = self.frame.slot(layout.SLOT_INDEX) >> 1  # these instructions are two dwords long
        which = number & layout.STREAM_COUNT - 1
        memory = self.frame.at(self.frame.wave, layout.STREAMS).at(which << 3)
        stride = start - memory.load(I64, 8)
        memory.store(start, 8)
        return stride

    def _look_ahead(self) -> None:
        """Queues the lines that this load will need next, if its stride stays the same, for prefetching.

        Only every fourth lane's: its neighbours mostly share its line, or other waves' loads bring theirs. The choice among the
        four changes from time to time.
        """
        stride = self._stride(self.start)
        queue = PrefetchQueue(self.frame)
        turn = queue.count(queue.tail) >> 4 & 3
        distances = self._fourth(turn).zext(I64)
        queue.leave(distances + (self.span.start.address() + stride))
        self._look_ahead_in_bitmap(queue, distances + (self.offset + stride), stride)

    def _look_ahead_in_bitmap(self, queue: PrefetchQueue, offsets: IrValue, stride: IrValue) -> None:
        """Queues the bitmap's words for 16 offsets in the allocation, if the first is in another line than at the last stride."""
        places = (offsets >> 3) + self._table()
        inner = places[0] & LINE - 1
        with self.frame.build.if_then(inner.unsigned < stride >> 3):
            queue.leave(places)

    def _fourth(self, turn: IrValue) -> IrValue:
        """Returns distances of lanes `turn` (i64, below 4), `turn` + 4 and so on (<16 x i32>)."""
        part = self.span.distances.at(turn << 2).load(ir.VectorType(I32, LANES - 3))
        return part.shuffle(range(0, LANES, 4))

    # -- bytes touched -----------------------------------------------------------------------------

    def _table(self) -> IrValue:
        """Returns i64: host address of the bitmap of bytes read, or written; 0 if there is none."""
        return field(self.entry, layout.ALLOC_WRITTEN if self.to_memory else layout.ALLOC_READ)

    def _mark(self) -> None:
        build = self.frame.build
        table = self._table()
        with build.if_then(table != 0):
            # The bitmap from the 64-bit word on that has the bit of distance 0.
            words = (table + (self.offset >> 6 << 3)).pointer()
            marks = Marks(self.span, words, (self.offset & LINE - 1).trunc(I32))
            with build.if_then(~marks.set()):
                marks.write()


class DirectToLDS(DirectGlobal):
    """A load to LDS: the lanes' bytes, one lane after the other, go to the host pointer that `run` gets as `registers`."""

    def _move_lines(self, span: LaneSpan, registers: IrValue) -> None:
        direct.copy_lines(span, registers)

    def _move(self, registers: IrValue) -> None:
        direct.copy(self.span, registers)


class DirectNarrow(DirectGlobal):
    """A load or store of 1 or 2 bytes a lane; only consecutive lanes."""

    def _elsewhere(self, active: IrValue, registers: IrValue, general: Callable[[], ir.Constant]) -> IrValue | ir.Constant:
        return general()

    def _move_lines(self, span: LaneSpan, registers: IrValue) -> None:
        if self.to_memory:
            store_narrow(self.rows, span.place(0), self.frame.row(registers))
        else:
            self.frame.write_row(registers, 0, load_narrow(self.frame, self.rows, span.place(0)), None)


def kind_of(rows: StagedRows) -> type[DirectGlobal]:
    """Returns the class for loads and stores of these rows."""
    return DirectNarrow if rows.bits < 32 else DirectGlobal


def of_addresses(
    frame: Frame, addresses: IrValue, offset: IrValue, rows: StagedRows, to_memory: bool, kind: type[DirectGlobal]
) -> tuple[DirectGlobal, IrValue]:
    """Returns an access at 64-bit addresses plus `offset` (i64); and i1: all are at most 4 GiB past the allocation's start.

    addresses: pointer to two registers, low and high dwords. The distances are stored in the wave's ADDRESSES. kind: the access's.
    """
    base = field(hinted_entry(frame), layout.ALLOC_BASE)
    origin = base - offset
    low = origin.trunc(I32).splat(GROUP)
    high = (origin >> 32).trunc(I32).splat(GROUP)
    distances = frame.at(frame.wave, layout.ADDRESSES)
    far = []
    for group in range(LANES // GROUP):
        ours, theirs = (addresses.at(part * ROW + group * LINE).load(BLOCK) for part in (0, 1))
        distances.at(group * LINE).store(ours - low, align=64)
        borrow = (ours.unsigned < low).zext(I32)
        far.append(theirs - high - borrow)
    return kind(frame, base, distances, rows, to_memory, streams=False), direct.no_bit(far)


class Marks:
    """Bits of a span's bytes: lane l's from bit `inner` + distance l on, counted from pointer `words`."""

    def __init__(self, span: LaneSpan, words: IrValue, inner: IrValue) -> None:
        self.span = span
        self.frame = span.frame
        self.build = span.frame.build
        self.words = words
        self.inner = inner
        self.bits = [span.block(group) + inner for group in range(LANES // GROUP)]

    def set(self) -> IrValue:
        """Returns i1: all bits are set."""
        span = self.span
        straddles = [block & span.lane_bytes - 1 for block in self.bits]
        rows = [block ^ direct.first_of_each(block, span.sharing) for block in self.bits]
        columns = [block ^ self.bits[0] for block in self.bits[1:]]
        return self.frame.emit_choice(
            self._of_one_line(rows, straddles),
            lambda: self._words(range(0, LANES, span.sharing)),
            lambda: self.frame.emit_choice(
                self._of_one_line(columns, straddles), lambda: self._words(range(GROUP)), self._all_marked
            ),
        )

    def _of_one_line(self, differences: Sequence[IrValue], straddles: Sequence[IrValue]) -> IrValue:
        """Returns i1: all differences of bit numbers stay within a line's 64, and no lane's bytes are in two lines."""
        return direct.no_bit([*(block & 0x1_0000_0000 - LINE for block in differences), *straddles])

    def _bit(self, lane: int | IrValue) -> IrValue:
        """Returns i64: a lane's first bit."""
        distance = self.span.distances.at(lane * 4).load(I32)
        return (distance + self.inner).zext(I64)

    def _words(self, lanes: range) -> IrValue:
        """Returns i1: all 64 bits of each line with one of these lanes' bytes are set."""

        def and_words(lane: IrValue, every: IrValue) -> list[IrValue]:
            return [every & self.words.at(self._bit(lane) >> 6 << 3).load(I64, 8)]

        (every,) = self.frame.loop(lanes.stop, and_words, [constant(-1)], step=lanes.step)
        return self.frame.value(every) == -1

    def _all_marked(self) -> IrValue:
        start = self.words.address().splat(GROUP)

        def look(group: IrValue, missing: IrValue) -> list[IrValue]:
            block = self.span.group(group).block(0) + self.inner
            have = direct.gather(start + (block >> 3).zext(I64)) >> (block & 7)
            return [missing | ~have & (1 << self.span.lane_bytes) - 1]

        (missing,) = self.frame.loop(LANES // GROUP, look, [ir.Constant(BLOCK, None)])
        return direct.no_bit([self.frame.value(missing)])

    def write(self) -> None:
        """Sets the bits. Other threads may set bits of the same byte at the same time, so only whole bytes are plainly stored."""
        span = self.span
        firsts = ir.Constant(BLOCK, [7 if lane % span.sharing == 0 else 0 for lane in range(GROUP)])
        even = direct.no_bit([block & firsts for block in self.bits])
        with self.build.if_else(even & direct.in_runs(span)) as (together, apart):
            with together:
                self.frame.loop(LANES, self._line, step=span.sharing)
            with apart:
                each_lane(self.frame, constant(ALL_LANES), self._mark_one)

    def _line(self, lane: IrValue) -> tuple[()]:
        self._store_ones(self._bit(lane), LINE)
        return ()

    def _mark_one(self, lane: IrValue) -> None:
        size, bit = self.span.lane_bytes, self._bit(lane)
        if size < 8:
            mark_lane(self.frame, self.words, bit, size)
            return
        with self.build.if_else((bit & 7) == 0) as (whole, parts):
            with whole:
                self._store_ones(bit, size)
            with parts:
                mark_lane(self.frame, self.words, bit, size)

    def _store_ones(self, bit: IrValue, count: int) -> None:
        ones = ir.Constant(ir.IntType(count), (1 << count) - 1)
        place = self.words.at(bit >> 3)
        place.store(ones, align=1)
        note_page(self.frame, place)
