"""Loads and stores of a whole wave, directly between registers and one allocation or LDS.

Most accesses have 64 active lanes, each at a common start plus 32 bits of its own, all in one allocation or in LDS. One
comparison of the largest distance then checks every lane's bounds, and 16 lanes at a time are moved. Other accesses take the
general way (`any_lanes.access`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.frame import Frame
from simgpu.machine.jit import host
from simgpu.machine.layout import GROUP, LANES, ROW
from simgpu.machine.values import I1, I16, I32, I64, IrValue, join_vectors, where
from simgpu.machine.wave_frame import PTR
from simgpu.memory.lane_copy import StagedRows, each_group, load_transposed, quads_of

BLOCK = ir.VectorType(I32, GROUP)
LINE = 64  # bytes of a vector, and of a host's cache line
CHUNK = 16  # bytes that kernels keep together when they swizzle tiles
FARTHEST = 0xFFFF_FF00  # the greatest distance to which a line's bytes can be added in 32 bits


WIDTHS = (32, 64, 128)  # bits a lane


def serves(frame: Frame, rows: StagedRows) -> bool:
    """True if accesses of these rows may be direct: 1, 2 or 4 dwords a lane."""
    return rows.bits in WIDTHS and not frame.dry


def serves_narrow(frame: Frame, rows: StagedRows) -> bool:
    """True if accesses of these rows, bytes or halves, are direct where 64 lanes are consecutive: no hooks look at them."""
    return rows.bits < 32 and not (frame.hooks or frame.dry)


@dataclass(frozen=True)
class LaneSpan:
    """Locations of the lanes' bytes: lane l's at host pointer `start` + dword l of `distances`."""

    frame: Frame
    distances: IrValue  # pointer to 64 x u32 (a register)
    start: IrValue
    room: IrValue  # i64: the largest distance with all bytes in bounds; negative if there is none
    lane_bytes: int  # 4, 8 or 16
    offset: IrValue | None = None  # i32 if distances may be negative (LDS): `room` then bounds distance + offset, modulo 2^32

    def block(self, group: int) -> IrValue:
        """Loads distances of the 16 lanes of a group."""
        return self.distances.at(group * LINE).load(BLOCK)

    def place(self, lane: int) -> IrValue:
        """Returns the host pointer of a lane's bytes."""
        return self.start.at(self.step(self.distances.at(4 * lane).load(I32)))

    def step(self, distance: IrValue) -> IrValue:
        """Extends distances to i64: with a sign if they may be negative."""
        return distance.zext(I64) if self.offset is None else distance.sext(I64)

    @property
    def sharing(self) -> int:
        """Lanes whose bytes make a line."""
        return LINE // self.lane_bytes

    def group(self, number: Any) -> LaneSpan:
        """Returns the span from the first lane of a group (int or i64) on."""
        return replace(self, distances=self.distances.at(number * LINE))


def all_in_bounds(span: LaneSpan) -> IrValue:
    """Returns i1: all lanes' bytes are in bounds."""
    blocks = [span.block(group) for group in range(LANES // GROUP)]
    if span.offset is not None:
        blocks = [block + span.offset for block in blocks]
    largest = intrinsics.fold(span.frame.build, f"llvm.umax.v{GROUP}i32", blocks)
    some = span.room.signed >= 0
    limit = where(span.room.signed < FARTHEST, span.room, FARTHEST).trunc(I32)
    return some & _all(largest.unsigned <= limit)


def _all(condition: IrValue) -> IrValue:
    """Returns i1: <16 x i1> holds everywhere."""
    return condition.bitcast(I16) == 0xFFFF


def no_bit(words: Sequence[IrValue]) -> IrValue:
    """Returns i1: no bit is set in any of the <16 x i32>."""
    return _all(functools.reduce(operator.or_, words) == 0)


def first_of_each(block: IrValue, sharing: int) -> IrValue:
    """Copies the value of the first of `sharing` neighbours to all of them."""
    return block.shuffle([lane - lane % sharing for lane in range(GROUP)])


def in_runs(span: LaneSpan, nbytes: int = LINE) -> IrValue:
    """Returns i1: in every set of lanes that share `nbytes`, the lanes are consecutive."""
    lanes = nbytes // span.lane_bytes
    steps = ir.Constant(BLOCK, [lane % lanes * span.lane_bytes for lane in range(GROUP)])
    blocks = (span.block(group) for group in range(LANES // GROUP))
    return no_bit([block ^ (first_of_each(block, lanes) + steps) for block in blocks])


def in_a_row(span: LaneSpan) -> IrValue:
    """Returns i1: each lane's bytes follow the previous lane's, in all 64 lanes."""
    start, size = span.distances.load(I32), span.lane_bytes
    steps = [ir.Constant(BLOCK, [lane * size for lane in range(group, group + GROUP)]) for group in range(0, LANES, GROUP)]
    return no_bit([span.block(group) ^ (span.frame.value(step) + start) for group, step in enumerate(steps)])


def first_offset(span: LaneSpan) -> IrValue:
    """Returns i64: the first lane's offset in LDS."""
    assert span.offset is not None
    return (span.distances.load(I32) + span.offset).zext(I64)


# -- loads -----------------------------------------------------------------------------------------


def load(spans: Sequence[LaneSpan], target: IrValue) -> None:
    """Loads the lanes' dwords, span after span, into the registers from `target` on.

    The spans share their distances, which may be in one of these registers.
    """
    span, build = spans[0], spans[0].frame.build
    with build.if_else(in_runs(span)) as (lines, apart):
        with lines:
            load_lines(spans, target)
        with apart:
            if span.lane_bytes == CHUNK:
                _fill(spans, target, _of_places, written_out=False)
                return
            with build.if_else(in_runs(span, CHUNK)) as (chunks, single):
                with chunks:
                    _fill(spans, target, functools.partial(_of_runs, nbytes=CHUNK), written_out=False)
                with single:
                    _fill(spans, target, _of_places, written_out=span.lane_bytes == 4)


def load_lines(spans: Sequence[LaneSpan], target: IrValue) -> None:
    """Loads as `load` does, for spans whose lanes that share a line are consecutive."""
    _fill(spans, target, _of_quads if _goes_by_quads(spans[0]) else _of_runs, _is_short(spans[0]))


def _is_short(span: LaneSpan) -> bool:
    """True if the code that moves a group's lines is short enough to be written out four times."""
    return span.lane_bytes == 4 or host().has_wide_masks


def _goes_by_quads(span: LaneSpan) -> bool:
    """True if the lanes' 16 bytes are loaded and stored one by one: AVX2's shuffles across 128 bits take several clocks."""
    return span.lane_bytes == CHUNK and not host().has_wide_masks


def _fill(spans: Sequence[LaneSpan], target: IrValue, fetch: Callable[[LaneSpan], list[IrValue]], written_out: bool) -> None:
    def fill(group: Any) -> None:
        rows = target.at(group * LINE)
        blocks = [block for span in spans for block in fetch(span.group(group))]
        for part, block in enumerate(blocks):
            rows.at(part * ROW).store(block, align=64)

    each_group(spans[0].frame, fill, written_out)


def _of_runs(span: LaneSpan, nbytes: int = LINE) -> list[IrValue]:
    """Returns the dwords of the first 16 lanes, loaded `nbytes` at a time: neighbours that share them are consecutive."""
    kind = ir.VectorType(I32, nbytes // 4)
    lanes = range(0, GROUP, nbytes // span.lane_bytes)
    return _columns(join_vectors([span.place(lane).load_volatile(kind, align=1) for lane in lanes], GROUP))


def _of_quads(span: LaneSpan) -> list[IrValue]:
    """Does what `_of_runs` does, for 16 bytes a lane."""
    return load_transposed([span.place(lane - lane % 4).at(CHUNK * (lane % 4)) for lane in range(GROUP)])


def _of_places(span: LaneSpan) -> list[IrValue]:
    if span.lane_bytes == 4:
        return [_gather_first(span)]
    if span.lane_bytes == 16:
        return load_transposed([span.place(lane) for lane in range(GROUP)])
    return _of_runs(span, span.lane_bytes)


def _gather_first(span: LaneSpan) -> IrValue:
    """Loads the dwords of the first 16 lanes."""
    return gather(span.start.address() + span.step(span.block(0)))


def gather(addresses: IrValue) -> IrValue:
    """Loads dwords at 16 host addresses (<16 x i64>)."""
    places = addresses.build.inttoptr(addresses, ir.VectorType(PTR, GROUP))
    mask = ir.VectorType(I1, GROUP)
    arguments = [places, ir.Constant(I32, 1), ir.Constant(mask, [1] * GROUP), ir.Constant(BLOCK, ir.Undefined)]
    return intrinsics.call(addresses.build, f"llvm.masked.gather.v{GROUP}i32.v{GROUP}p0", BLOCK, arguments)


def _columns(lines: list[IrValue]) -> list[IrValue]:
    """Returns, from n lines (1, 2 or 4) with n dwords a lane, the lanes' first dwords, second ones, and so on."""
    if len(lines) == 1:
        return lines
    if len(lines) == 2:
        return [_pick(lines, [2 * lane + part for lane in range(GROUP)]) for part in (0, 1)]
    # Take eight lanes' dwords 0 and 1, or 2 and 3, from two lines; then take their halves.
    pairs = [[4 * lane + part + p for p in (0, 1) for lane in range(8)] for part in (0, 2)]
    halves = [[_pick(lines[at : at + 2], pair) for at in (0, 2)] for pair in pairs]
    sides = ([*range(8), *range(16, 24)], [*range(8, 16), *range(24, 32)])
    return [_pick(half, side) for half in halves for side in sides]


def _pick(two: Sequence[IrValue], picks: Sequence[int]) -> IrValue:
    """Returns dwords of two vectors; the second's numbers continue the first's."""
    return two[0].shuffle(picks, two[1])


def copy(span: LaneSpan, target: IrValue) -> None:
    """Copies the lanes' bytes, in consecutive order, to `target`."""
    with span.frame.build.if_else(in_runs(span)) as (lines, apart):
        with lines:
            copy_lines(span, target)
        with apart:
            _copy(span, target, span.lane_bytes)


def copy_lines(span: LaneSpan, target: IrValue) -> None:
    """Copies as `copy` does, for a span whose lanes that share a line are consecutive."""
    _copy(span, target, LINE)


def _copy(span: LaneSpan, target: IrValue, nbytes: int) -> None:
    kind = ir.VectorType(I32, nbytes // 4)

    def copy(group: Any) -> None:
        here, bytes_ = span.group(group), target.at(group * (GROUP * span.lane_bytes))
        for lane in range(0, GROUP, nbytes // span.lane_bytes):
            bytes_.at(lane * span.lane_bytes).store(here.place(lane).load(kind, align=1), align=1)

    each_group(span.frame, copy, nbytes == LINE and _is_short(span))


def all_zero(span: LaneSpan) -> IrValue:
    """Returns i1: no bit of the lanes' bytes is set; they must be in bounds."""

    def zero(nbytes: int) -> IrValue:
        kind = I32 if nbytes == 4 else ir.VectorType(I32, nbytes // 4)

        def gather(group: IrValue, found: IrValue) -> list[IrValue]:
            here = span.group(group)
            pieces = [here.place(lane).load(kind, align=1) for lane in range(0, GROUP, nbytes // span.lane_bytes)]
            return [functools.reduce(operator.or_, pieces, found)]

        (found,) = span.frame.loop(LANES // GROUP, gather, [ir.Constant(kind, None if nbytes > 4 else 0)])
        return span.frame.value(found).bitcast(ir.IntType(8 * nbytes)) == 0

    return span.frame.emit_choice(in_runs(span), lambda: zero(LINE), lambda: zero(span.lane_bytes))


# -- stores ----------------------------------------------------------------------------------------


def store(span: LaneSpan, source: IrValue) -> None:
    """Stores the registers from `source` on at the lanes' places; if those overlap, the highest lane's bytes remain."""
    with span.frame.build.if_else(in_runs(span)) as (runs, apart):
        with runs:
            store_lines(span, source)
        with apart:
            _spread(span, source, 1)


def store_lines(span: LaneSpan, source: IrValue) -> None:
    """Stores as `store` does, for a span whose lanes that share a line are consecutive."""
    _spread(span, source, span.sharing)


def _spread(span: LaneSpan, source: IrValue, lanes: int) -> None:
    """Stores the bytes of `lanes` lanes at a time, in ascending order."""
    dwords = span.lane_bytes // 4
    size = lanes * dwords

    def spread(group: Any) -> None:
        here, first = span.group(group), source.at(group * LINE)
        each = 1 if _goes_by_quads(span) else lanes  # lanes of a piece
        if size == 1:
            pieces = [first.at(4 * lane).load(I32) for lane in range(GROUP)]
        elif _goes_by_quads(span):
            pieces = quads_of([first.at(part * ROW).load(BLOCK, align=64) for part in range(dwords)])
        else:
            lines = _lines([first.at(part * ROW).load(BLOCK, align=64) for part in range(dwords)])
            pieces = [line.shuffle(range(at, at + size), line) for line in lines for at in range(0, GROUP, size)]
        for lane, piece in zip(range(0, GROUP, each), pieces, strict=True):
            here.place(lane - lane % lanes).at(span.lane_bytes * (lane % lanes)).store(piece, align=1)

    each_group(span.frame, spread, size == GROUP and _is_short(span))


def _lines(blocks: list[IrValue]) -> list[IrValue]:
    """Reverses `_columns`."""
    if len(blocks) == 1:
        return blocks
    low, high = ([at + half for lane in range(8) for at in (lane, GROUP + lane)] for half in (0, 8))
    if len(blocks) == 2:
        return [_pick(blocks, side) for side in (low, high)]
    pairs = [[_pick(blocks[at : at + 2], side) for at in (0, 2)] for side in (low, high)]
    quads = [[at + half + p for lane in range(4) for at in (2 * lane, GROUP + 2 * lane) for p in (0, 1)] for half in (0, 8)]
    return [_pick(pair, quad) for pair in pairs for quad in quads]
