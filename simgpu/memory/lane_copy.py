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

from simgpu.machine import intrinsics, layout
from simgpu.machine.frame import ALL_LANES, MASK, ROW32, Frame
from simgpu.machine.lane_ops import I8, I16, I32, I64
from simgpu.machine.layout import LANES, ROW

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
    lane = first_lane(frame, left)
    body(lane)
    rest = build.and_(left, build.sub(left, constant(1)))
    left.add_incoming(rest, build.block)
    build.cbranch(build.icmp_unsigned("!=", rest, constant(0)), head, after)
    build.position_at_end(after)


def first_lane(frame: Frame, lanes: Any) -> Any:
    """Number (i64) of the lowest lane of some."""
    return intrinsics.call(frame.build, "llvm.cttz.i64", I64, [lanes, ir.Constant(ir.IntType(1), 0)])


def popcount(frame: Frame, bits: Any) -> Any:
    return intrinsics.call(frame.build, "llvm.ctpop.i64", I64, [bits])


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
    return build.shuffle_vector(whole, ir.Constant(whole.type, ir.Undefined), ir.Constant(ir.VectorType(I32, len(picks)), picks))


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
        # True where compiling matters more than lanes far apart: those then take the loop.
        self.compact = False
        build = frame.build
        steps = ir.Constant(WIDE64, [lane * lane_bytes for lane in range(LANES)])
        self.first = build.extract_element(addresses, ir.Constant(I32, 0))
        expected = build.add(frame.splat(self.first), steps)
        same = build.icmp_unsigned("==", addresses, expected)
        packed = build.bitcast(same, I64)
        self.contiguous = build.icmp_unsigned("==", packed, constant(ALL_LANES))

    def run(self, lanes: Any, host_of: Callable[[Any], Any]) -> None:
        """Copy the lanes of the i64 mask; `host_of(i64 address)` is its host pointer."""
        build = self.frame.build
        if not self.unrolled:
            self._some(lanes, host_of)
            return
        everyone = build.icmp_unsigned("==", lanes, constant(ALL_LANES))
        straight = build.and_(everyone, self.contiguous)
        with build.if_else(straight) as (then, otherwise):
            with then:
                self._straight(host_of(self.first))
            with otherwise:
                if self.lane_bytes in (4, 8, 16) and not self.compact:
                    with build.if_else(everyone) as (all_lanes, some_lanes):
                        with all_lanes:
                            self._all(self._places(host_of))
                        with some_lanes:
                            self._some(lanes, host_of)
                else:
                    self._some(lanes, host_of)

    def clear(self) -> None:
        """Zero what a load would stage."""
        for at in range(0, self.lane_bytes * LANES, 64):
            zero = ir.Constant(ir.VectorType(I8, 64), None)
            self.frame.store(zero, self.frame.at(staging(self.frame), at), align=64)

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


def joined(frame: Frame, pieces: list[Any]) -> list[Any]:
    """Vectors of a few dwords, one after the other, as <16 x i32>."""
    while (size := 2 * pieces[0].type.count) <= 16:
        order = ir.Constant(ir.VectorType(I32, size), list(range(size)))
        pieces = [frame.build.shuffle_vector(a, b, order) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces


def paired(frame: Frame, places: list[Any]) -> list[Any]:
    """Two dwords from each of 16 places, as two <16 x i32>."""
    build = frame.build
    vectors = joined(frame, [frame.load(place, ir.VectorType(I32, 2), align=1) for place in places])
    kind = ir.VectorType(I32, 16)
    return [build.shuffle_vector(*vectors, ir.Constant(kind, [2 * lane + part for lane in range(16)])) for part in (0, 1)]


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
            build.shuffle_vector(a, b, ir.Constant(octet, list(range(8)))) for a, b in ((loads[0], loads[1]), (loads[2], loads[3]))
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


def first_lane_fault(frame: Frame, kind: int, addresses: Any, lanes: Any) -> None:
    """Return with a fault of the lowest lane of the mask, which is not empty."""
    build = frame.build
    lane = first_lane(frame, lanes)
    spilled = frame.at(frame.wave, layout.ADDRESSES)
    frame.store(addresses, spilled, align=8)
    address = frame.load(frame.at(spilled, build.mul(lane, constant(8))), I64, align=8)
    frame.fault(kind, address, build.trunc(lane, I32))


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
