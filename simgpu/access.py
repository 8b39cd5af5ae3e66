"""Memory accesses of 64 lanes: rows staged, lanes copied in order, every byte checked.

One routine serves every space. A load copies each active lane's bytes to a staging area of the
wave and reads it as rows; a store does the reverse, lane by lane in ascending order, so that the
highest lane wins as on hardware. Lanes whose addresses follow each other take a straight copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu import layout
from simgpu.frame import ALL_LANES, MASK, PTR, ROW32, Frame
from simgpu.lane_llvm import I8, I16, I32, I64
from simgpu.layout import LANES, ROW, Fault

WIDE64 = ir.VectorType(I64, LANES)


def constant(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def each_lane(frame: Frame, bits: Any, body: Callable[[Any], None]) -> None:
    """Run `body(lane)` (an i64) for each set bit of `bits`, ascending."""
    build = frame.build
    before = build.block
    head = build.append_basic_block("lane")
    after = build.append_basic_block("done")
    build.cbranch(build.icmp_unsigned("!=", bits, constant(0)), head, after)
    build.position_at_end(head)
    left = build.phi(I64)
    left.add_incoming(bits, before)
    lane = build.call(_cttz(frame), [left, ir.Constant(ir.IntType(1), 0)])
    body(lane)
    rest = build.and_(left, build.sub(left, constant(1)))
    left.add_incoming(rest, build.block)
    build.cbranch(build.icmp_unsigned("!=", rest, constant(0)), head, after)
    build.position_at_end(after)


def _cttz(frame: Frame) -> Any:
    name = "llvm.cttz.i64"
    signature = ir.FunctionType(I64, [I64, ir.IntType(1)])
    return frame.module.globals.get(name) or ir.Function(frame.module, signature, name)


def popcount(frame: Frame, bits: Any) -> Any:
    name = "llvm.ctpop.i64"
    function = frame.module.globals.get(name) or ir.Function(
        frame.module, ir.FunctionType(I64, [I64]), name
    )
    return frame.build.call(function, [bits])


def staging(frame: Frame) -> Any:
    return frame.at(frame.wave, layout.STAGING)


def copy_bytes(frame: Frame, source: Any, target: Any, count: int) -> None:
    """Copy `count` bytes (1..64) between unaligned places."""
    done = 0
    while done < count:
        step = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= count - done)
        kind = ir.IntType(8 * step) if step <= 8 else ir.VectorType(I8, step)
        value = frame.load(frame.at(source, done), kind, align=1)
        frame.store(value, frame.at(target, done), align=1)
        done += step


@dataclass(frozen=True)
class Rows:
    """How staged bytes relate to registers: `count` elements of `bits` a lane.

    sign: sign-extend a narrow element; d16: lo or hi half that a 16-bit element goes to (or comes
    from); bits is 8, 16 or a multiple of 32, and only a narrow element has sign or d16.
    """

    bits: int
    sign: bool = False
    d16: str = ""

    @property
    def lane_bytes(self) -> int:
        return self.bits // 8

    @property
    def registers(self) -> int:
        return max(1, self.bits // 32)


def read_staged(frame: Frame, rows: Rows, old: Any | None) -> list[Any]:
    """Staged registers as <64 x i32> rows; `old` is the register a d16 load merges into."""
    build, base = frame.build, staging(frame)
    if rows.bits >= 32:
        parts = range(rows.registers)
        return [frame.load(frame.at(base, part * ROW), ROW32, align=4) for part in parts]
    narrow = frame.load(base, ir.VectorType(ir.IntType(rows.bits), LANES), align=1)
    extend = build.sext if rows.sign else build.zext
    if not rows.d16:
        return [extend(narrow, ROW32)]
    half = extend(narrow, ir.VectorType(I16, LANES)) if rows.bits < 16 else narrow
    wide = build.zext(half, ROW32)
    assert old is not None
    if rows.d16 == "lo":
        kept = build.and_(old, ir.Constant(ROW32, [0xFFFF0000] * LANES))
        return [build.or_(kept, wide)]
    kept = build.and_(old, ir.Constant(ROW32, [0xFFFF] * LANES))
    return [build.or_(kept, build.shl(wide, ir.Constant(ROW32, [16] * LANES)))]


def write_staged(frame: Frame, rows: Rows, registers: list[Any]) -> None:
    """Register rows as staged bytes, lane after lane."""
    build, base = frame.build, staging(frame)
    if rows.bits >= 32:
        value = interleaved(frame, registers)
        frame.store(value, base, align=4)
        return
    row = registers[0]
    if rows.d16 == "hi":
        row = build.lshr(row, ir.Constant(ROW32, [16] * LANES))
    narrow = build.trunc(row, ir.VectorType(ir.IntType(rows.bits), LANES))
    frame.store(narrow, base, align=1)


def interleaved(frame: Frame, registers: list[Any]) -> Any:
    """Registers r0, r1.. as one vector r0[0], r1[0].., r0[1], ..."""
    if len(registers) == 1:
        return registers[0]
    build, count = frame.build, len(registers)
    padded = registers + [registers[-1]] * (4 - count if count == 3 else 0)
    pairs = [_joined(frame, padded[i], padded[i + 1]) for i in range(0, len(padded), 2)]
    whole = pairs[0] if len(pairs) == 1 else _joined(frame, pairs[0], pairs[1])
    picks = [part * LANES + lane for lane in range(LANES) for part in range(count)]
    return build.shuffle_vector(
        whole, ir.Constant(whole.type, ir.Undefined), ir.Constant(ir.VectorType(I32, len(picks)), picks)
    )


def _joined(frame: Frame, a: Any, b: Any) -> Any:
    size = a.type.count + b.type.count
    order = ir.Constant(ir.VectorType(I32, size), list(range(size)))
    return frame.build.shuffle_vector(a, b, order)


class LaneCopy:
    """Copies between staging and memory for the lanes of a mask.

    addresses: <64 x i64>, device addresses (or LDS offsets). A store finds its bytes staged lane
    after lane; a load leaves registers row after row (`read_staged`). narrow: where the addresses
    are a common start plus a register row of 32-bit offsets, that row and the start: the lanes'
    places then need no 64-bit address each.
    """

    def __init__(
        self,
        frame: Frame,
        addresses: Any,
        lane_bytes: int,
        to_memory: bool,
        narrow: tuple[Any, Any] | None = None,
    ) -> None:
        self.frame = frame
        self.addresses = addresses
        self.lane_bytes = lane_bytes
        self.to_memory = to_memory
        self.narrow = narrow
        # False for rare accesses: a loop over the lanes, which is quick to compile.
        self.unrolled = True
        self.streams = False
        build = frame.build
        steps = ir.Constant(WIDE64, [lane * lane_bytes for lane in range(LANES)])
        self.first = build.extract_element(addresses, ir.Constant(I32, 0))
        expected = build.add(frame.splat(self.first), steps)
        same = build.icmp_unsigned("==", addresses, expected)
        packed = build.bitcast(same, I64)
        self.contiguous = build.icmp_unsigned("==", packed, constant(ALL_LANES))

    def run(self, lanes: Any, host_of: Callable[[Any], Any]) -> None:
        """Copy the lanes of the i64 mask; `host_of(i64 address)` is its host pointer."""
        frame, build = self.frame, self.frame.build
        if not self.unrolled:
            self._some(lanes, host_of)
            return
        everyone = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
        straight = build.and_(everyone, self.contiguous)
        with build.if_else(straight) as (then, otherwise):
            with then:
                self._straight(host_of(self.first))
            with otherwise:
                if self.lane_bytes in (4, 8, 16):
                    with build.if_else(everyone) as (all_lanes, some_lanes):
                        with all_lanes:
                            places = self._places(host_of)
                            self._all(places)
                            if self.streams and self.narrow is not None:
                                prefetch(frame, self.narrow[1], places)
                        with some_lanes:
                            self._some(lanes, host_of)
                else:
                    self._some(lanes, host_of)

    def _some(self, lanes: Any, host_of: Callable[[Any], Any]) -> None:
        self._spill()
        each_lane(self.frame, lanes, lambda lane: self._one(lane, host_of))

    def _places(self, host_of: Callable[[Any], Any]) -> list[Any]:
        """Host pointers of the 64 lanes."""
        frame, build = self.frame, self.frame.build
        if self.narrow is None:
            self._spill()
            return [host_of(self._address(lane)) for lane in range(LANES)]
        row, start = self.narrow
        base = host_of(start)
        offsets = [frame.load(frame.at(row, 4 * lane), I32, align=4) for lane in range(LANES)]
        return [frame.at(base, build.zext(offset, I64)) for offset in offsets]

    def _spill(self) -> None:
        self.frame.store(self.addresses, self._spilled(), align=64)

    def _spilled(self) -> Any:
        return self.frame.at(self.frame.wave, layout.ADDRESSES)

    def _address(self, lane: Any) -> Any:
        offset = 8 * lane if isinstance(lane, int) else self.frame.build.mul(lane, constant(8))
        return self.frame.load(self.frame.at(self._spilled(), offset), I64, align=8)

    def _straight(self, place: Any) -> None:
        """Lane after lane in memory: whole vectors at once."""
        frame, stage = self.frame, staging(self.frame)
        count = self.lane_bytes // 4
        if self.to_memory or count <= 1:
            source, target = (stage, place) if self.to_memory else (place, stage)
            for at in range(0, self.lane_bytes * LANES, 64):
                copy_bytes(frame, frame.at(source, at), frame.at(target, at), 64)
            return
        if count == 4:
            self._gathered([frame.at(place, 16 * lane) for lane in range(LANES)], transposed)
            return
        whole = ir.VectorType(I32, count * LANES)
        value = frame.load(place, whole, align=1)
        for part in range(count):
            picks = ir.Constant(ROW32, [lane * count + part for lane in range(LANES)])
            row = frame.build.shuffle_vector(value, ir.Constant(whole, ir.Undefined), picks)
            frame.store(row, frame.at(stage, part * ROW), align=64)

    def _one(self, lane: Any, host_of: Callable[[Any], Any]) -> None:
        """One lane's bytes, at a place of its own."""
        frame, build, stage = self.frame, self.frame.build, staging(self.frame)
        place = host_of(self._address(lane))
        if self.to_memory or self.lane_bytes <= 4:
            mine = frame.at(stage, build.mul(lane, constant(self.lane_bytes)))
            source, target = (mine, place) if self.to_memory else (place, mine)
            copy_bytes(frame, source, target, self.lane_bytes)
            return
        column = frame.at(stage, build.mul(lane, constant(4)))
        for part in range(self.lane_bytes // 4):
            copy_bytes(frame, frame.at(place, 4 * part), frame.at(column, part * ROW), 4)

    def _all(self, places: list[Any]) -> None:
        """Every lane active, places anywhere: unrolled, without a loop over a mask."""
        frame, stage = self.frame, staging(self.frame)
        if not self.to_memory and self.lane_bytes > 4:
            self._gathered(places, transposed if self.lane_bytes == 16 else paired)
            return
        for lane, place in enumerate(places):
            mine = frame.at(stage, lane * self.lane_bytes)
            source, target = (mine, place) if self.to_memory else (place, mine)
            copy_bytes(frame, source, target, self.lane_bytes)

    def _gathered(self, places: list[Any], gather: Callable[[Frame, list[Any]], list[Any]]) -> None:
        """Staged rows from the dwords at 64 places, 16 lanes at a time."""
        frame = self.frame
        for first in range(0, LANES, 16):
            for part, row in enumerate(gather(frame, places[first : first + 16])):
                frame.store(row, frame.at(staging(frame), part * ROW + first * 4), align=64)


def prefetch(frame: Frame, start: Any, places: list[Any]) -> None:
    """Fetch what this load will want next time, if it goes on with the stride that it has now.

    Waves take turns and tiles are rows far apart, which a host's own prefetchers do not follow; the
    wave remembers where a load began by the low bits of its record's index.
    """
    build = frame.build
    which = build.and_(frame.slot(layout.SLOT_INDEX), ir.Constant(I32, 15))
    memory = frame.at(frame.at(frame.wave, layout.STREAMS), build.shl(which, ir.Constant(I32, 3)))
    stride = build.sub(start, frame.load(memory, I64, 8))
    frame.store(start, memory, 8)
    name = "llvm.prefetch.p0"
    signature = ir.FunctionType(ir.VoidType(), [PTR, I32, I32, I32])
    function = frame.module.globals.get(name) or ir.Function(frame.module, signature, name)
    hints = [ir.Constant(I32, value) for value in (0, 2, 1)]  # a read, into the L2, data
    for place in places[::4]:
        build.call(function, [frame.at(place, stride), *hints])


def paired(frame: Frame, places: list[Any]) -> list[Any]:
    """Two dwords from each of 16 places, as two <16 x i32>."""
    build = frame.build
    vectors = [frame.load(place, ir.VectorType(I32, 2), align=1) for place in places]
    while len(vectors) > 2:
        size = 2 * vectors[0].type.count
        order = ir.Constant(ir.VectorType(I32, size), list(range(size)))
        vectors = [build.shuffle_vector(a, b, order) for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
    kind = ir.VectorType(I32, 16)
    return [
        build.shuffle_vector(*vectors, ir.Constant(kind, [2 * lane + part for lane in range(16)]))
        for part in (0, 1)
    ]


def transposed(frame: Frame, places: list[Any]) -> list[Any]:
    """Four dwords from each of 16 places, as four <16 x i32>: dword p of every place.

    Quarter q of vector j holds place 4·q + j, so that a 4 x 4 transpose within the quarters
    leaves the places in order.
    """
    build = frame.build
    quad, octet, full = (ir.VectorType(I32, n) for n in (4, 8, 16))
    vectors = []
    for j in range(4):
        loads = [frame.load(places[4 * q + j], quad, align=1) for q in range(4)]
        halves = [
            build.shuffle_vector(a, b, ir.Constant(octet, list(range(8))))
            for a, b in ((loads[0], loads[1]), (loads[2], loads[3]))
        ]
        vectors.append(build.shuffle_vector(*halves, ir.Constant(full, list(range(16)))))

    def mixed(a: Any, b: Any, pattern: tuple[int, int, int, int]) -> Any:
        picks = [4 * q + p if p < 4 else 16 + 4 * q + p - 4 for q in range(4) for p in pattern]
        return build.shuffle_vector(a, b, ir.Constant(full, picks))

    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    ab = [mixed(vectors[0], vectors[1], pattern) for pattern in (low, high)]
    cd = [mixed(vectors[2], vectors[3], pattern) for pattern in (low, high)]
    first, second = (0, 1, 4, 5), (2, 3, 6, 7)
    return [mixed(ab[h], cd[h], pattern) for h in (0, 1) for pattern in (first, second)]


def lanes_of(frame: Frame, condition: Any) -> Any:
    """<64 x i1> to i64."""
    return frame.build.bitcast(condition, I64)


def inside(frame: Frame, offsets: Any, limit: Any, lane_bytes: int) -> Any:
    """<64 x i1>: offset + lane_bytes <= limit, for i64 offsets that may have wrapped."""
    build = frame.build
    room = build.sub(limit, constant(lane_bytes))
    enough = build.icmp_unsigned(">=", limit, constant(lane_bytes))
    fits = build.icmp_unsigned("<=", offsets, frame.splat(room))
    return build.select(frame.splat(enough), fits, ir.Constant(MASK, None))


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
    ) -> None:
        self.frame = frame
        self.addresses = addresses
        self.lane_bytes = lane_bytes
        self.to_memory = to_memory
        self.narrow = narrow
        self.unrolled = unrolled

    def run(self, lanes: Any) -> None:
        """Serve the lanes of the i64 mask, or return from the handler with a fault."""
        copy = LaneCopy(self.frame, self.addresses, self.lane_bytes, self.to_memory, self.narrow)
        copy.streams = not self.to_memory
        copy.unrolled = self.unrolled

        def serve(mask: Any, base: Any, delta: Any, entry: Any) -> None:
            build = self.frame.build

            def host_of(address: Any) -> Any:
                return build.inttoptr(build.add(address, delta), PTR)

            copy.run(mask, host_of)
            offsets = build.sub(self.addresses, self.frame.splat(base))
            mark(self.frame, entry, offsets, mask, copy, self.lane_bytes, self.to_memory)

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
    lane = build.call(_cttz(frame), [left, ir.Constant(ir.IntType(1), 0)])
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


def find_allocation(frame: Frame, address: Any) -> Any:
    """Pointer to the table entry with the greatest base <= address (entry 0 if there is none).

    The table is sorted and its entry 0 is an empty allocation at address 0, so that a miss ends
    in an entry whose bounds check fails.
    """
    build = frame.build
    table = build.inttoptr(frame.context(layout.CTX_ALLOCATIONS), PTR)
    hint_place = frame.at(frame.record, 4 * layout.SLOT_HINT)
    hint = build.zext(frame.load(hint_place, I32), I64)
    count = frame.context(layout.CTX_COUNT)
    valid = build.icmp_unsigned("<", hint, count)
    hint = build.select(valid, hint, constant(0))
    guess = frame.at(table, build.mul(hint, constant(layout.ALLOC_BYTES)))
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


def mark(
    frame: Frame, entry: Any, offsets: Any, mask: Any, copy: LaneCopy, lane_bytes: int, writes: bool
) -> None:
    """Set the bits of the bytes touched in the allocation's bitmap, where it has one."""
    build = frame.build
    table = frame.load(
        frame.at(entry, layout.ALLOC_WRITTEN if writes else layout.ALLOC_READ), I64, 8
    )
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
