"""Copies the bytes of 64 lanes between memory and registers, through a staging area of the wave.

A load copies each active lane's bytes to staging and reads that as rows. A store does the reverse, lane by lane in ascending
order, so that the highest lane wins, as on hardware. Lanes with consecutive addresses are copied at once. Callers check bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import intrinsics, layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import GROUP, LANES, ROW
from simgpu.machine.values import I1, I8, I16, I32, I64, IrValue, join_vectors, where
from simgpu.machine.wave_frame import ALL_LANES

WIDE64 = ir.VectorType(I64, LANES)

Places = Callable[[IrValue], list[IrValue]]  # returns the host pointers of a group's lanes, by its number (i64)


def constant(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def lane_numbers(scale: int = 1) -> ir.Constant:
    """Returns each lane's number, times `scale`."""
    return ir.Constant(WIDE64, [scale * lane for lane in range(LANES)])


def each_lane(frame: Frame, bits: Any, body: Callable[[Any], None]) -> None:
    """Runs `body(lane)` (an i64) for each set bit of `bits`, ascending."""
    build = frame.build
    before = build.block
    head = build.append_basic_block("lane")
    after = build.append_basic_block("done")
    build.cbranch(frame.value(bits) != 0, head, after)
    build.position_at_end(head)
    left = build.phi(I64)
    left.add_incoming(bits, before)
    body(first_lane(frame, left))
    rest = left & left - 1
    left.add_incoming(rest, build.block)
    build.cbranch(rest != 0, head, after)
    build.position_at_end(after)


def first_lane(frame: Frame, lanes: Any) -> IrValue:
    """Returns the number (i64) of the lowest lane of a mask."""
    return intrinsics.cttz(frame.value(lanes))


def last_lane(frame: Frame, lanes: Any) -> IrValue:
    """Returns the number (i64) of the highest lane of a mask that is not empty."""
    return frame.value(constant(LANES - 1)) ^ intrinsics.call(frame.build, "llvm.ctlz.i64", I64, [lanes, ir.Constant(I1, 1)])


def popcount(frame: Frame, bits: Any) -> IrValue:
    return intrinsics.call(frame.build, "llvm.ctpop.i64", I64, [bits])


def staging(frame: Frame) -> IrValue:
    return frame.at(frame.wave, layout.STAGING)


def each_group(frame: Frame, body: Callable[[Any], None], written_out: bool = False) -> None:
    """Emits a loop over groups of 16 lanes; body(number) emits its code for a group's number, an i64.

    written_out: True emits the body four times instead: short bodies run 5 to 10 % faster, and LLVM takes four times as long
    """
    if written_out:
        for number in range(LANES // GROUP):
            body(number)
        return

    def run_group(number: IrValue) -> tuple[()]:
        body(number)
        return ()

    frame.loop(LANES // GROUP, run_group)


def copy_bytes(source: IrValue, target: IrValue, count: int) -> None:
    """Copies `count` bytes between unaligned places."""
    done = 0
    while done < count:
        step = next(n for n in (64, 32, 16, 8, 4, 2, 1) if n <= count - done)
        kind = ir.IntType(8 * step) if step <= 8 else ir.VectorType(I8, step)
        value = source.at(done).load(kind, align=1)
        target.at(done).store(value, align=1)
        done += step


@dataclass(frozen=True)
class StagedRows:
    """Staging of registers: each lane has one element of `bits`."""

    bits: int  # 8, 16 or a multiple of 32
    sign: bool = False  # sign-extend a narrow element
    d16: str = ""  # lo or hi half of the register for a 16-bit element, only if narrow

    @property
    def lane_bytes(self) -> int:
        return self.bits // 8

    @property
    def registers(self) -> int:
        return max(1, self.bits // 32)


def rows_of(inst: Instruction) -> StagedRows:
    """Returns the rows that a load or store moves."""
    memory = inst.spec.memory
    assert memory is not None
    return StagedRows(memory.bits * memory.count, memory.sign, memory.d16)


def read_staged(frame: Frame, rows: StagedRows) -> list[IrValue]:
    """Reads staged registers as rows of the lanes that code is emitted for. A d16 load clears the other half.

    The ISA guides say that it keeps it. With SRAM-ECC, which all of these GPUs have, a load writes whole registers: LLVM assumes
    nothing about the other half (`d16PreservesUnusedBits`), and Tensile's kernels need zeros there (its `HasEccHalf`).
    """
    if rows.bits >= 32:
        return [frame.row(staging(frame), part) for part in range(rows.registers)]
    return [load_narrow(frame, rows, frame.at_lanes(staging(frame), rows.lane_bytes))]


def load_narrow(frame: Frame, rows: StagedRows, place: IrValue) -> IrValue:
    """Returns a row of consecutive elements below 32 bits, from a pointer on; see `read_staged`."""
    narrow = place.load(ir.VectorType(ir.IntType(rows.bits), frame.together), align=1)
    extend = IrValue.sext if rows.sign else IrValue.zext
    if not rows.d16:
        return extend(narrow, I32)
    wide = extend(narrow, I16).zext(I32)
    return wide if rows.d16 == "lo" else wide << 16


def write_staged(frame: Frame, rows: StagedRows, registers: list[IrValue]) -> None:
    """Writes register rows as staged bytes, lane after lane."""
    base = frame.at_lanes(staging(frame), rows.lane_bytes)
    if rows.bits >= 32:
        base.store(interleave_rows(registers))
    else:
        store_narrow(rows, base, registers[0])


def store_narrow(rows: StagedRows, place: IrValue, row: IrValue) -> None:
    """Stores a row as consecutive elements below 32 bits, from a pointer on."""
    place.store((row >> 16 if rows.d16 == "hi" else row).trunc(ir.IntType(rows.bits)), align=1)


def stage_registers(frame: Frame, rows: StagedRows, source: IrValue) -> None:
    """Writes the registers from pointer `source` on as staged bytes, lane after lane."""
    frame.by_groups(lambda: write_staged(frame, rows, [frame.row(source, part) for part in range(rows.registers)]))


def write_loaded(
    frame: Frame, rows: StagedRows, target: IrValue, lanes: IrValue | None, valid: IrValue | None = None
) -> None:
    """Writes staged rows to the registers from pointer `target` on, in the lanes of a mask (None: in all); 0 in those that are not
    `valid`."""

    def write() -> None:
        mask = None if lanes is None else frame.lanes(lanes)
        for number, row in enumerate(read_staged(frame, rows)):
            frame.write_row(target, number, row if valid is None else where(frame.lanes(valid), row, 0), mask)

    frame.by_groups(write)


def interleave_rows(registers: list[IrValue]) -> IrValue:
    """Joins registers r0, r1.. into one vector r0[0], r1[0].., r0[1], ..."""
    if len(registers) == 1:
        return registers[0]
    count, lanes = len(registers), registers[0].lanes
    padded = registers + [registers[-1]] * (4 - count if count == 3 else 0)
    whole = join_vectors(padded, lanes * len(padded))[0]
    return whole.shuffle([part * lanes + lane for lane in range(lanes) for part in range(count)])


@dataclass(frozen=True)
class Narrow:
    """Addresses of the lanes as a common start plus a register row (pointer) of 32-bit offsets."""

    row: IrValue
    start: IrValue
    signed: bool = False  # True if the offsets are signed

    def step(self, lane: IrValue) -> IrValue:
        """Returns a lane's offset, i64."""
        offset = self.row.at(lane << 2).load(I32)
        return offset.sext(I64) if self.signed else offset.zext(I64)


Addresses = IrValue | Callable[[], IrValue]  # <64 x i64>, or a function that emits those of a group of lanes (`Frame.by_groups`)


class Spill:
    """Addresses of the lanes (or offsets in LDS) in the wave's ADDRESSES, u64 each.

    addresses: None if they are there already. Hooks may use ADDRESSES, too: `restore` writes the addresses again.
    """

    def __init__(self, frame: Frame, addresses: Addresses | None) -> None:
        self.frame = frame
        self._place = frame.at(frame.wave, layout.ADDRESSES)
        self._kept: IrValue | None = None  # <64 x i64>, for hooks
        if isinstance(addresses, IrValue):
            self._kept = addresses if frame.hooks else None
            self._place.store(addresses, align=64)
        elif addresses is not None and frame.hooks:
            self._kept = addresses()
            self.restore()
        elif addresses is not None:
            make = addresses
            frame.by_groups(lambda: frame.at_lanes(self._place, 8).store(make(), align=64))

    def restore(self) -> None:
        """Writes the addresses again if hooks may have overwritten them."""
        if self._kept is not None:
            self._place.store(self._kept, align=64)

    def offsets(self, base: IrValue | int = 0) -> IrValue | None:
        """Returns the addresses minus `base`, <64 x i64>, for hooks; None without them."""
        return None if self._kept is None else self._kept - base

    def of(self, lane: Any) -> IrValue:
        """Returns a lane's address, i64."""
        return self._place.at(lane * 8).load(I64, align=8)

    def lanes_with(self, condition: Callable[[IrValue], IrValue]) -> IrValue:
        """Returns the mask (i64) of the lanes whose addresses fulfil a condition."""
        return self.frame.mask_by_groups(lambda: condition(self._group()))

    def _group(self) -> IrValue:
        return self.frame.at_lanes(self._place, 8).load(ir.VectorType(I64, self.frame.together), align=64)

    def is_contiguous(self, lane_bytes: int) -> IrValue:
        """Returns i1: each lane's bytes follow the previous lane's."""
        frame = self.frame

        def compare(mask: IrValue, start: IrValue) -> list[IrValue]:
            group = self._group()
            steps = ir.Constant(group.type, [lane_bytes * lane for lane in range(group.lanes)])
            return [mask | frame.mask(group == start + steps), start + lane_bytes * group.lanes]

        mask, _ = frame.by_groups(compare, [frame.value(constant(0)), self.of(0)])
        return frame.value(mask) == ALL_LANES


class CopyForms(NamedTuple):
    """Forms of accesses that a copy has code of its own for. All others take a loop over the lanes, which compiles quickly."""

    narrow: Narrow | None = None  # the lanes' addresses, if they have this form
    straight: bool = True  # 64 consecutive lanes
    together: bool = True  # 64 lanes of 4, 8 or 16 bytes, wherever they are


ALL_FORMS, ONE_BY_ONE = CopyForms(), CopyForms(straight=False, together=False)


@dataclass(eq=False)
class LaneCopy:
    """Copies between staging and memory for the lanes of a mask.

    addresses: device addresses (or LDS offsets). Staged data of a store is lane after lane; that of a load is row after row
    (`read_staged`).
    """

    frame: Frame
    addresses: Spill
    lane_bytes: int
    to_memory: bool
    forms: CopyForms = ALL_FORMS

    def __post_init__(self) -> None:
        looks = self.forms.straight or self.frame.hooks
        self.contiguous = self.addresses.is_contiguous(self.lane_bytes) if looks else self.frame.value(ir.Constant(I1, 0))

    @property
    def together(self) -> bool:
        """True if 64 lanes that are not consecutive have code of their own."""
        return self.forms.together and self.lane_bytes in (4, 8, 16)

    def run(self, lanes: Any, host_of: Callable[[Any], IrValue]) -> None:
        """Copies the lanes of the i64 mask; `host_of(i64 address)` returns its host pointer."""
        build, everyone = self.frame.build, self.frame.value(lanes) == ALL_LANES
        self.addresses.restore()

        def by_places() -> None:
            if not self.together:
                self._copy_some(lanes, host_of)
                return
            with build.if_else(everyone) as (all_lanes, some_lanes):
                with all_lanes:
                    self._all(self._places(host_of))
                with some_lanes:
                    self._copy_some(lanes, host_of)

        if not self.forms.straight:
            by_places()
            return
        with build.if_else(everyone & self.contiguous) as (then, otherwise):
            with then:
                self._straight(host_of(self.addresses.of(0)))
            with otherwise:
                by_places()

    def clear(self) -> None:
        """Zeroes the bytes that a load would stage."""
        for at in range(0, self.lane_bytes * LANES, 64):
            staging(self.frame).at(at).store(ir.Constant(ir.VectorType(I8, 64), None), align=64)

    def _copy_some(self, lanes: Any, host_of: Callable[[Any], IrValue]) -> None:
        each_lane(self.frame, lanes, lambda lane: self._copy_one(lane, host_of))

    def _places(self, host_of: Callable[[Any], IrValue]) -> Places:
        """Returns host pointers of the lanes of a group."""
        narrow = self.forms.narrow
        if narrow is None:
            return lambda group: [host_of(self.addresses.of((group << 4) + lane)) for lane in range(GROUP)]
        base = host_of(narrow.start)
        return lambda group: [base.at(narrow.step((group << 4) + lane)) for lane in range(GROUP)]

    def _straight(self, place: IrValue) -> None:
        """Copies lanes that are consecutive in memory: whole vectors at once."""
        stage, count, each = staging(self.frame), self.lane_bytes // 4, self.lane_bytes * GROUP
        if self.to_memory or count <= 1:
            source, target = (stage, place) if self.to_memory else (place, stage)
            each_group(self.frame, lambda group: copy_bytes(source.at(group * each), target.at(group * each), each))
            return
        if count == 4:
            self._gather(lambda group: [place.at(group * each).at(16 * lane) for lane in range(GROUP)], load_transposed)
            return

        def rows(group: IrValue) -> None:
            value = place.at(group * each).load(ir.VectorType(I32, count * GROUP), align=1)
            for part in range(count):
                row = value.shuffle([lane * count + part for lane in range(GROUP)])
                stage.at(part * ROW).at(group * (4 * GROUP)).store(row, align=64)

        each_group(self.frame, rows)

    def _copy_one(self, lane: IrValue, host_of: Callable[[Any], IrValue]) -> None:
        """Copies one lane's bytes. 8 and 16 bytes are copied at once: kernels store a value and its flag in one word."""
        stage, place = staging(self.frame), host_of(self.addresses.of(lane))
        if self.to_memory or self.lane_bytes <= 4:
            mine = stage.at(lane * self.lane_bytes)
            source, target = (mine, place) if self.to_memory else (place, mine)
            copy_bytes(source, target, self.lane_bytes)
            return
        column, count = stage.at(lane * 4), self.lane_bytes // 4
        if count == 3:
            dwords = [place.at(4 * part).load(I32, align=1) for part in range(count)]
        else:
            whole = place.load_volatile(I64 if count == 2 else ir.VectorType(I32, 4), align=1)
            dwords = [whole.trunc(I32), (whole >> 32).trunc(I32)] if count == 2 else [whole[part] for part in range(count)]
        for part, dword in enumerate(dwords):
            column.at(part * ROW).store(dword)

    def _all(self, places: Places) -> None:
        """Copies all 64 lanes at any addresses, without a loop over a mask."""
        if not self.to_memory and self.lane_bytes > 4:
            self._gather(places, load_transposed if self.lane_bytes == 16 else load_pairs)
            return

        def group_of(group: IrValue) -> None:
            stage = staging(self.frame).at(group * (GROUP * self.lane_bytes))
            for lane, place in enumerate(places(group)):
                mine = stage.at(lane * self.lane_bytes)
                source, target = (mine, place) if self.to_memory else (place, mine)
                copy_bytes(source, target, self.lane_bytes)

        each_group(self.frame, group_of)

    def _gather(self, places: Places, gather: Callable[[list[IrValue]], list[IrValue]]) -> None:
        """Stages rows from the dwords at the lanes' places."""

        def rows(group: IrValue) -> None:
            stage = staging(self.frame).at(group * (4 * GROUP))
            for part, row in enumerate(gather(places(group))):
                stage.at(part * ROW).store(row, align=64)

        each_group(self.frame, rows)


def load_pairs(places: list[IrValue]) -> list[IrValue]:
    """Loads two dwords from each of 16 places, as two <16 x i32>."""
    first, second = join_vectors([place.load_volatile(ir.VectorType(I32, 2), align=1) for place in places], 16)
    return [first.shuffle([2 * lane + part for lane in range(16)], second) for part in (0, 1)]


def load_transposed(places: list[IrValue]) -> list[IrValue]:
    """Loads four dwords from each of 16 places, as four <16 x i32>: dword p of every place.

    Quarter q of vector j holds place 4·q + j, so a 4 x 4 transpose within the quarters leaves the places in order.
    """
    quad = ir.VectorType(I32, 4)
    return _transpose_quarters([
        join_vectors([places[4 * q + j].load_volatile(quad, align=1) for q in range(4)], 16)[0] for j in range(4)
    ])  # fmt: skip


def quads_of(rows: list[IrValue]) -> list[IrValue]:
    """Returns from four <16 x i32> the four dwords of each lane, <4 x i32>: what `load_transposed` reverses."""
    vectors = _transpose_quarters(rows)
    return [vectors[lane % 4].shuffle(range(lane - lane % 4, lane - lane % 4 + 4)) for lane in range(16)]


def _transpose_quarters(vectors: list[IrValue]) -> list[IrValue]:
    """Transposes 4 x 4 dwords in each quarter of four <16 x i32>."""

    def mix(a: IrValue, b: IrValue, pattern: tuple[int, int, int, int]) -> IrValue:
        return a.shuffle([4 * q + p if p < 4 else 16 + 4 * q + p - 4 for q in range(4) for p in pattern], b)

    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    ab = [mix(vectors[0], vectors[1], pattern) for pattern in (low, high)]
    cd = [mix(vectors[2], vectors[3], pattern) for pattern in (low, high)]
    first, second = (0, 1, 4, 5), (2, 3, 6, 7)
    return [mix(ab[h], cd[h], pattern) for h in (0, 1) for pattern in (first, second)]


def first_lane_fault(frame: Frame, kind: int, addresses: Spill, lanes: Any) -> None:
    """Returns with a fault of the lowest lane of the mask, which is not empty."""
    lane = first_lane(frame, lanes)
    frame.fault(kind, addresses.of(lane), lane.trunc(I32))


def is_inside(offsets: IrValue, limit: IrValue, lane_bytes: int) -> IrValue:
    """Returns an i1 a lane: offset + lane_bytes <= limit, for i64 offsets that may have wrapped."""
    room = limit - lane_bytes
    enough = limit.unsigned >= lane_bytes
    return where(enough, offsets.unsigned <= room, 0)
