"""Checked access to device memory: the allocations that the lanes touch, and the bytes they do.

The copying itself is `lanes.LaneCopy`; here is what lies around it: finding the allocation of an
address, the bounds of every lane, faults, and the bitmaps of bytes read and written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.frame import ALL_LANES, PTR, Frame
from simgpu.machine.hooks import Access, observe
from simgpu.machine.lane_ops import I8, I32, I64
from simgpu.machine.layout import LANES, Fault
from simgpu.memory.lane_copy import WIDE64, LaneCopy, constant, each_lane, first_lane, inside, lanes_of


class GlobalAccess:
    """Checked access to device memory, one allocation at a time.

    A mask's lanes usually lie in one allocation: the first lane's is looked up (the record
    remembers the last one) and all lanes inside it are served; what is left takes another turn.
    """

    def __init__(
        self,
        frame: Frame,
        addresses: Any,
        lane_bytes: int,
        to_memory: bool,
        narrow: tuple[Any, Any] | None = None,
        unrolled: bool = True,
        compact: bool = False,
    ) -> None:
        self.frame = frame
        self.addresses = addresses
        self.lane_bytes = lane_bytes
        self.to_memory = to_memory
        self.narrow = narrow
        self.unrolled = unrolled
        self.compact = compact or frame.dry

    def run(self, lanes: Any) -> None:
        """Serve the lanes of the i64 mask, or return from the handler with a fault."""
        copy = LaneCopy(self.frame, self.addresses, self.lane_bytes, self.to_memory, self.narrow)
        copy.unrolled = self.unrolled
        copy.compact = self.compact
        if self.frame.dry and not self.to_memory:
            copy.clear()

        def serve(mask: Any, base: Any, delta: Any, entry: Any) -> None:
            build = self.frame.build

            def host_of(address: Any) -> Any:
                return build.inttoptr(build.add(address, delta), PTR)

            if self.frame.dry and not self.to_memory:
                unknown = self.frame.load(self.frame.at(entry, layout.ALLOC_UNDEFINED), I64, 8)
                with build.if_then(build.icmp_unsigned("!=", unknown, constant(0)), likely=False):
                    copy.run(mask, host_of)
                return
            copy.run(mask, host_of)
            offsets = build.sub(self.addresses, self.frame.splat(base))
            mark(self.frame, entry, offsets, mask, copy, self.lane_bytes, self.to_memory)
            observe(self.frame, Access(
                "global", offsets, mask, self.lane_bytes, not self.to_memory, self.to_memory,
                entry=entry, contiguous=copy.contiguous,
            ))  # fmt: skip

        per_allocation(self.frame, self.addresses, lanes, self.lane_bytes, self.to_memory, serve)


def per_allocation(
    frame: Frame,
    addresses: Any,
    lanes: Any,
    lane_bytes: int,
    writes: bool,
    serve: Callable[[Any, Any, Any, Any], None],
) -> None:
    """Call `serve(mask, base, delta, entry)` for each allocation that the lanes touch."""
    build = frame.build
    spilled = frame.at(frame.wave, layout.ADDRESSES)
    before = build.block
    head = build.append_basic_block("turn")
    after = build.append_basic_block("served")
    build.cbranch(build.icmp_unsigned("!=", lanes, constant(0)), head, after)
    build.position_at_end(head)
    left = build.phi(I64)
    left.add_incoming(lanes, before)
    lane = first_lane(frame, left)
    frame.store(addresses, spilled, align=8)
    address = frame.load(frame.at(spilled, build.mul(lane, constant(8))), I64, align=8)
    entry = find_allocation(frame, address)
    base = frame.load(frame.at(entry, layout.ALLOC_BASE), I64, 8)
    size = frame.load(frame.at(entry, layout.ALLOC_SIZE), I64, 8)
    delta = frame.load(frame.at(entry, layout.ALLOC_DELTA), I64, 8)
    offsets = build.sub(addresses, frame.splat(base))
    mask = build.and_(left, lanes_of(frame, inside(frame, offsets, size, lane_bytes)))
    mine = build.and_(build.lshr(mask, lane), constant(1))
    outside = build.icmp_unsigned("==", mine, constant(0))
    with build.if_then(outside, likely=False):
        frame.fault(Fault.MEMORY, address, build.trunc(lane, I32))
    if writes:
        writable = frame.load(frame.at(entry, layout.ALLOC_WRITABLE), I64, 8)
        locked = build.icmp_unsigned("==", writable, constant(0))
        with build.if_then(locked, likely=False):
            frame.fault(Fault.READONLY, address, build.trunc(lane, I32))
    serve(mask, base, delta, entry)
    rest = build.and_(left, build.not_(mask))
    left.add_incoming(rest, build.block)
    build.cbranch(build.icmp_unsigned("!=", rest, constant(0)), head, after)
    build.position_at_end(after)


def hinted(frame: Frame) -> Any:
    """Pointer to the table entry that this record hit last; entry 0 at first."""
    build = frame.build
    table = build.inttoptr(frame.context(layout.CTX_ALLOCATIONS), PTR)
    hint = build.zext(frame.load(frame.at(frame.record, 4 * layout.SLOT_HINT), I32), I64)
    valid = build.icmp_unsigned("<", hint, frame.context(layout.CTX_COUNT))
    return frame.at(table, build.mul(build.select(valid, hint, constant(0)), constant(layout.ALLOC_BYTES)))


def find_allocation(frame: Frame, address: Any) -> Any:
    """Pointer to the table entry with the greatest base <= address (entry 0 if there is none).

    The table is sorted and its entry 0 is an empty allocation at address 0, so that a miss ends
    in an entry whose bounds check fails.
    """
    build = frame.build
    table = build.inttoptr(frame.context(layout.CTX_ALLOCATIONS), PTR)
    count = frame.context(layout.CTX_COUNT)
    hint_place = frame.at(frame.record, 4 * layout.SLOT_HINT)
    guess = hinted(frame)
    distance = build.sub(address, frame.load(frame.at(guess, layout.ALLOC_BASE), I64, 8))
    size = frame.load(frame.at(guess, layout.ALLOC_SIZE), I64, 8)
    hit = build.icmp_unsigned("<", distance, size)
    start = build.block
    search = build.append_basic_block("search")
    step = build.append_basic_block("step")
    found = build.append_basic_block("found")
    end = build.append_basic_block("allocation")
    build.cbranch(hit, end, search)
    build.position_at_end(search)
    low = build.phi(I64)
    high = build.phi(I64)
    low.add_incoming(constant(0), start)
    high.add_incoming(count, start)
    span = build.sub(high, low)
    build.cbranch(build.icmp_unsigned(">", span, constant(1)), step, found)
    build.position_at_end(step)
    middle = build.add(low, build.lshr(span, constant(1)))
    entry = frame.at(table, build.mul(middle, constant(layout.ALLOC_BYTES)))
    base = frame.load(frame.at(entry, layout.ALLOC_BASE), I64, 8)
    below = build.icmp_unsigned("<=", base, address)
    low.add_incoming(build.select(below, middle, low), step)
    high.add_incoming(build.select(below, high, middle), step)
    build.branch(search)
    build.position_at_end(found)
    frame.store(build.trunc(low, I32), hint_place)
    searched = frame.at(table, build.mul(low, constant(layout.ALLOC_BYTES)))
    build.branch(end)
    build.position_at_end(end)
    result = build.phi(PTR)
    result.add_incoming(guess, start)
    result.add_incoming(searched, found)
    return result


def mark(frame: Frame, entry: Any, offsets: Any, mask: Any, copy: LaneCopy, lane_bytes: int, writes: bool) -> None:
    """Set the bits of the bytes touched in the allocation's bitmap, where it has one."""
    if frame.dry:
        return
    build = frame.build
    table = frame.load(frame.at(entry, layout.ALLOC_WRITTEN if writes else layout.ALLOC_READ), I64, 8)
    wanted = build.icmp_unsigned("!=", table, constant(0))
    with build.if_then(wanted):
        bitmap = build.inttoptr(table, PTR)
        if not copy.unrolled:
            frame.store(offsets, frame.at(frame.wave, layout.ADDRESSES), align=64)
            _mark_each(frame, bitmap, frame.at(frame.wave, layout.ADDRESSES), mask, lane_bytes)
            return
        first = build.extract_element(offsets, ir.Constant(I32, 0))
        aligned = build.icmp_unsigned("==", build.and_(first, constant(7)), constant(0))
        everyone = build.icmp_unsigned("==", mask, constant(ALL_LANES))
        straight = build.and_(build.and_(everyone, copy.contiguous), aligned)
        with build.if_else(straight) as (then, otherwise):
            with then:
                target = frame.at(bitmap, build.lshr(first, constant(3)))
                _fill_ones(frame, target, lane_bytes * LANES // 8)
            with otherwise:
                spilled = frame.at(frame.wave, layout.ADDRESSES)
                if lane_bytes % 8 == 0:
                    odd = build.and_(offsets, ir.Constant(WIDE64, [7] * LANES))
                    some = build.icmp_unsigned("!=", odd, ir.Constant(WIDE64, None))
                    even = build.icmp_unsigned("==", lanes_of(frame, some), constant(0))
                    with build.if_else(build.and_(everyone, even)) as (whole, pieces):
                        with whole:
                            bytes_ = build.lshr(offsets, ir.Constant(WIDE64, [3] * LANES))
                            frame.store(bytes_, spilled, align=64)
                            _mark_whole(frame, bitmap, spilled, lane_bytes)
                        with pieces:
                            frame.store(offsets, spilled, align=64)
                            _mark_each(frame, bitmap, spilled, mask, lane_bytes)
                else:
                    frame.store(offsets, spilled, align=64)
                    _mark_each(frame, bitmap, spilled, mask, lane_bytes)


def _mark_whole(frame: Frame, bitmap: Any, places: Any, lane_bytes: int) -> None:
    """All lanes, whole bytes of the bitmap each (i64 places): plain stores of ones."""
    kind = ir.IntType(lane_bytes)
    for lane in range(LANES):
        target = frame.at(bitmap, frame.load(frame.at(places, 8 * lane), I64, align=8))
        frame.store(ir.Constant(kind, (1 << lane_bytes) - 1), target, align=1)


def _mark_each(frame: Frame, bitmap: Any, offsets: Any, mask: Any, lane_bytes: int) -> None:
    def one(lane: Any) -> None:
        at = frame.build.mul(lane, constant(8))
        mark_lane(frame, bitmap, frame.load(frame.at(offsets, at), I64, align=8), lane_bytes)

    each_lane(frame, mask, one)


def _fill_ones(frame: Frame, target: Any, count: int) -> None:
    done = 0
    while done < count:
        step = next(n for n in (64, 32, 16, 8) if n <= count - done)
        kind = ir.VectorType(I8, step)
        frame.store(ir.Constant(kind, [0xFF] * step), frame.at(target, done), align=1)
        done += step


def mark_lane(frame: Frame, bitmap: Any, offset: Any, lane_bytes: int) -> None:
    """Set `lane_bytes` bits from bit `offset`; other threads may set neighbours at once."""
    build = frame.build
    place = frame.at(bitmap, build.lshr(offset, constant(3)))
    shift = build.trunc(build.and_(offset, constant(7)), I32)
    ones = (1 << lane_bytes) - 1
    wanted = build.shl(ir.Constant(I32, ones), shift)
    for part in range(0, lane_bytes + 7, 8):
        byte = build.trunc(build.lshr(wanted, ir.Constant(I32, part)), I8)
        target = frame.at(place, part // 8)
        have = build.load(target, align=1, typ=I8)
        missing = build.icmp_unsigned("!=", build.and_(build.not_(have), byte), ir.Constant(I8, 0))
        with build.if_then(missing, likely=False):
            build.atomic_rmw("or", target, byte, "monotonic")
