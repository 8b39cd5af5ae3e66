"""Device memory for a whole wave: `direct` within the allocation that the record hit last.

Around the copying lie what `access` has for any lanes: the allocation's bounds, and the bitmaps of bytes read
and written. Memory is mostly read again and again: the bitmap is looked at before it is written to, a word
of it for a line of memory where the lanes share lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.frame import ALL_LANES, PTR, Frame
from simgpu.machine.lane_ops import I1, I32, I64
from simgpu.machine.layout import LANES, ROW
from simgpu.memory.any_lanes import hinted, mark_lane
from simgpu.memory.lane_copy import constant, each_lane
from simgpu.memory.whole_wave import contiguous, direct
from simgpu.memory.whole_wave.direct import BLOCK, GROUP, LINE, Span
from simgpu.memory.whole_wave.prefetch import Queue

WIDE = ir.VectorType(I64, GROUP)


class DirectGlobal:
    """One load or store of `lane_bytes` a lane at device address `start` + dword l of `distances`.

    to_memory: a store; room: i64 or None, a bound on the distances besides the allocation's; streams: whether
    the start moves from one time to the next, so that fetching ahead makes sense.
    """

    def __init__(
        self,
        frame: Frame,
        start: Any,
        distances: Any,
        lane_bytes: int,
        to_memory: bool,
        room: Any = None,
        streams: bool = True,
    ) -> None:
        build = frame.build
        self.frame = frame
        self.start = start
        self.to_memory = to_memory
        self.streams = streams
        self.entry = hinted(frame)
        base, size, delta = (
            frame.load(frame.at(self.entry, field), I64, 8)
            for field in (layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_DELTA)
        )
        self.offset = build.sub(start, base)  # of distance 0 in the allocation
        here = build.icmp_unsigned("<", self.offset, size)
        if to_memory:
            writable = frame.load(frame.at(self.entry, layout.ALLOC_WRITABLE), I64, 8)
            here = build.and_(here, build.icmp_unsigned("!=", writable, constant(0)))
        left = build.sub(build.sub(size, constant(lane_bytes)), self.offset)
        left = build.select(here, left, constant(-1))
        if room is not None:
            left = build.select(build.icmp_signed("<", room, left), room, left)
        self.span = Span(frame, distances, build.inttoptr(build.add(start, delta), PTR), left, lane_bytes)

    def run(self, active: Any, registers: Any, otherwise: Callable[[], None]) -> None:
        """Move the registers where all is as it should be and the i1 `active` holds, else do what `otherwise` emits."""
        build = self.frame.build
        aligned = build.icmp_unsigned("==", build.and_(self._first(), constant(7)), constant(0))
        run = self.frame.both(build.and_(active, aligned), lambda: contiguous.follow(self.span))
        with build.if_else(run) as (whole, apart):
            with whole:
                self._run_whole(registers)
            with apart:
                self._run_apart(active, registers, otherwise)

    def _first(self) -> Any:
        """i64: the first lane's place in the allocation."""
        return self.frame.build.add(self.offset, self.frame.build.zext(self.frame.load(self.span.distances, I32), I64))

    def _run_whole(self, registers: Any) -> None:
        build, run, first = self.frame.build, contiguous.Run.of(self.span), self._first()
        table = self._table()
        marked = build.icmp_unsigned("!=", table, constant(0))
        with build.if_then(marked):
            run.mark(table, first)
        if self.to_memory:
            direct.store_lines(run, registers)
            return
        if self.streams and run.lane_bytes == direct.CHUNK:
            run.look_ahead(table, first, self._stride(build.ptrtoint(run.start, I64)))
        direct.load_lines([run], registers)

    def _run_apart(self, active: Any, registers: Any, otherwise: Callable[[], None]) -> None:
        build = self.frame.build
        with build.if_else(build.and_(active, direct.within(self.span))) as (then, general):
            with then:
                self._mark()
                if self.to_memory:
                    direct.store(self.span, registers)
                else:
                    if self.streams:
                        self._look_ahead()
                    direct.load([self.span], registers)
            with general:
                otherwise()

    def _stride(self, start: Any) -> Any:
        """How far `start` lies behind that of last time, which the wave remembers by the instruction's place in the code."""
        frame, build = self.frame, self.frame.build
        number = build.lshr(frame.slot(layout.SLOT_INDEX), ir.Constant(I32, 1))  # they are two dwords long
        which = build.and_(number, ir.Constant(I32, layout.STREAM_COUNT - 1))
        memory = frame.at(frame.at(frame.wave, layout.STREAMS), build.shl(which, ir.Constant(I32, 3)))
        stride = build.sub(start, frame.load(memory, I64, 8))
        frame.store(start, memory, 8)
        return stride

    def _look_ahead(self) -> None:
        """Have fetched what this load will want next time, if it goes on with the stride that it has now.

        One of every four lanes, another each time, stands for its neighbours: mostly they share a line, or other waves'
        loads touch it.
        """
        frame, build = self.frame, self.frame.build
        stride = self._stride(self.start)
        queue = Queue(frame)
        turn = build.and_(build.lshr(queue.count(queue.tail), constant(4)), constant(3))
        distances = build.zext(self._fourth(turn), WIDE)
        host = build.add(build.ptrtoint(self.span.start, I64), stride)
        queue.leave(build.add(distances, frame.splat(host, GROUP)))
        self._look_ahead_in_bitmap(queue, build.add(distances, frame.splat(build.add(self.offset, stride), GROUP)), stride)

    def _look_ahead_in_bitmap(self, queue: Queue, offsets: Any, stride: Any) -> None:
        """Have the words fetched that hold the bits of these bytes of the allocation, where they begin another line."""
        frame, build = self.frame, self.frame.build
        places = build.add(build.lshr(offsets, ir.Constant(WIDE, [3] * GROUP)), frame.splat(self._table(), GROUP))
        inner = build.and_(build.extract_element(places, ir.Constant(I32, 0)), constant(LINE - 1))
        with build.if_then(build.icmp_unsigned("<", inner, build.lshr(stride, constant(3)))):
            queue.leave(places)

    def _fourth(self, turn: Any) -> Any:
        """Distances of lanes `turn` (i64, below 4), `turn` + 4 and so on (<16 x i32>)."""
        kind = ir.VectorType(I32, LANES - 3)
        part = self.frame.load(self.frame.at(self.span.distances, self.frame.build.shl(turn, constant(2))), kind)
        order = ir.Constant(BLOCK, list(range(0, LANES, 4)))
        return self.frame.build.shuffle_vector(part, ir.Constant(kind, ir.Undefined), order)

    # -- bytes touched -----------------------------------------------------------------------------

    def _table(self) -> Any:
        """i64: host address of the bitmap of bytes read, or written; 0 where there is none."""
        field = layout.ALLOC_WRITTEN if self.to_memory else layout.ALLOC_READ
        return self.frame.load(self.frame.at(self.entry, field), I64, 8)

    def _mark(self) -> None:
        build = self.frame.build
        table = self._table()
        with build.if_then(build.icmp_unsigned("!=", table, constant(0))):
            # Bits from a whole word of the bitmap on: the allocation's line in which `start` lies.
            words = build.inttoptr(build.add(table, build.shl(build.lshr(self.offset, constant(6)), constant(3))), PTR)
            inner = build.trunc(build.and_(self.offset, constant(LINE - 1)), I32)
            marks = Marks(self.span, words, inner)
            with build.if_then(build.not_(marks.set())):
                marks.write()


def of_addresses(
    frame: Frame, addresses: Any, offset: Any, lane_bytes: int, to_memory: bool
) -> tuple[DirectGlobal, Any]:
    """An access at 64-bit addresses, in two registers, plus an i64; and i1: they are within 4 GiB of the allocation's begin.

    The distances from there are put where the wave keeps addresses.
    """
    build = frame.build
    base = frame.load(frame.at(hinted(frame), layout.ALLOC_BASE), I64, 8)
    origin = build.sub(base, offset)
    low = frame.splat(build.trunc(origin, I32), GROUP)
    high = frame.splat(build.trunc(build.lshr(origin, constant(32)), I32), GROUP)
    distances = frame.at(frame.wave, layout.ADDRESSES)
    far = []
    for group in range(LANES // GROUP):
        ours, theirs = (frame.load(frame.at(addresses, part * ROW + group * LINE), BLOCK, align=4) for part in (0, 1))
        frame.store(build.sub(ours, low), frame.at(distances, group * LINE), align=64)
        borrow = build.zext(build.icmp_unsigned("<", ours, low), BLOCK)
        far.append(build.sub(build.sub(theirs, high), borrow))
    return DirectGlobal(frame, base, distances, lane_bytes, to_memory, streams=False), direct.none(frame, far)


class Marks:
    """The bits of a span's bytes: lane l's from bit `inner` + distance l on, counted from pointer `words`."""

    def __init__(self, span: Span, words: Any, inner: Any) -> None:
        self.span = span
        self.frame = span.frame
        self.build = span.frame.build
        self.words = words
        self.inner = inner
        self.bits = [self.build.add(span.block(group), self.frame.splat(inner, GROUP)) for group in range(LANES // GROUP)]

    def set(self) -> Any:
        """i1: all are set."""
        build, span = self.build, self.span
        straddles = [build.and_(block, ir.Constant(BLOCK, [span.lane_bytes - 1] * GROUP)) for block in self.bits]
        rows = [build.xor(block, direct.heads(self.frame, block, span.sharing)) for block in self.bits]
        columns = [build.xor(block, self.bits[0]) for block in self.bits[1:]]
        return self._chosen(
            self._of_one_line(rows, straddles),
            lambda: self._words(range(0, LANES, span.sharing)),
            lambda: self._chosen(self._of_one_line(columns, straddles), lambda: self._words(range(GROUP)), self._exactly),
        )

    def _of_one_line(self, differences: Sequence[Any], straddles: Sequence[Any]) -> Any:
        """i1: no difference reaches beyond a line, and no lane's bytes lie in two."""
        line = ir.Constant(BLOCK, [0x1_0000_0000 - LINE] * GROUP)
        return direct.none(self.frame, [*(self.build.and_(block, line) for block in differences), *straddles])

    def _chosen(self, condition: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
        build = self.build
        results = []
        with build.if_else(condition) as (first, second):
            for branch, make in ((first, then), (second, otherwise)):
                with branch:
                    results.append((make(), build.block))
        merged = build.phi(I1)
        for value, block in results:
            merged.add_incoming(value, block)
        return merged

    def _bit(self, lane: int | Any) -> Any:
        """i64: where a lane's bits begin."""
        at = 4 * lane if isinstance(lane, int) else self.build.mul(lane, constant(4))
        distance = self.frame.load(self.frame.at(self.span.distances, at), I32)
        return self.build.zext(self.build.add(distance, self.inner), I64)

    def _words(self, lanes: Sequence[int]) -> Any:
        """i1: the bits of the lines in which the lanes' bytes lie are set, all of them."""
        build = self.build
        every = constant(-1)
        for lane in lanes:
            place = self.frame.at(self.words, build.shl(build.lshr(self._bit(lane), constant(6)), constant(3)))
            every = build.and_(every, self.frame.load(place, I64, 8))
        return build.icmp_unsigned("==", every, constant(-1))

    def _exactly(self) -> Any:
        build = self.build
        start = self.frame.splat(build.ptrtoint(self.words, I64), GROUP)
        wide = start.type
        missing = []
        for block in self.bits:
            places = build.add(start, build.zext(build.lshr(block, ir.Constant(BLOCK, [3] * GROUP)), wide))
            have = build.lshr(direct.gathered(self.frame, places), build.and_(block, ir.Constant(BLOCK, [7] * GROUP)))
            missing.append(build.and_(build.not_(have), ir.Constant(BLOCK, [(1 << self.span.lane_bytes) - 1] * GROUP)))
        return direct.none(self.frame, missing)

    def write(self) -> None:
        """Set them; other threads may set neighbours at once, so that only whole bytes are simply stored."""
        build, span = self.build, self.span
        firsts = ir.Constant(BLOCK, [7 if lane % span.sharing == 0 else 0 for lane in range(GROUP)])
        even = direct.none(self.frame, [build.and_(block, firsts) for block in self.bits])
        with build.if_else(build.and_(even, direct.in_runs(span))) as (together, apart):
            with together:
                for lane in range(0, LANES, span.sharing):
                    self._store_ones(self._bit(lane), LINE)
            with apart:
                each_lane(self.frame, constant(ALL_LANES), self._one)

    def _one(self, lane: Any) -> None:
        build, size = self.build, self.span.lane_bytes
        bit = self._bit(lane)
        if size < 8:
            mark_lane(self.frame, self.words, bit, size)
            return
        even = build.icmp_unsigned("==", build.and_(bit, constant(7)), constant(0))
        with build.if_else(even) as (whole, parts):
            with whole:
                self._store_ones(bit, size)
            with parts:
                mark_lane(self.frame, self.words, bit, size)

    def _store_ones(self, bit: Any, count: int) -> None:
        kind = ir.IntType(count)
        ones = ir.Constant(kind, (1 << count) - 1)
        self.frame.store(ones, self.frame.at(self.words, self.build.lshr(bit, constant(3))), align=1)
