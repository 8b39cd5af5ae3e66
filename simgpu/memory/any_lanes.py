"""Checked access to device memory for any lanes and addresses.

It finds the allocation of each address, checks the bounds of every lane, faults, and updates the bitmaps of bytes read and
written. `lane_copy.LaneCopy` copies the bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.frame import Frame, SharedPart
from simgpu.machine.hooks import mover, observe, overwrites
from simgpu.machine.jit import CALLED, compiler
from simgpu.machine.layout import LANES, Fault
from simgpu.machine.values import I8, I32, I64, IrValue, where
from simgpu.machine.wave_frame import ALL_LANES, PTR
from simgpu.memory.lane_copy import (
    ALL_FORMS,
    Addresses,
    CopyForms,
    LaneCopy,
    Spill,
    constant,
    each_lane,
    first_lane,
    is_inside,
    last_lane,
    popcount,
)

FEW = 8  # lanes that are looked for in the bitmap one by one


@dataclass(eq=False)
class GlobalAccess:
    """Checked access to device memory, one allocation at a time.

    It looks up the allocation of the first lane (the record remembers the last allocation) and serves all lanes inside it; then
    it repeats this for the other lanes. Usually there is one allocation.

    forms: of handlers with hooks; others call functions that they share.
    """

    frame: Frame
    addresses: Addresses | None
    lane_bytes: int
    to_memory: bool
    forms: CopyForms = ALL_FORMS

    def run(self, lanes: Any) -> None:
        """Serves the lanes of the i64 mask, or returns from the handler with a fault."""
        if self.frame.dry or self.frame.hooks:
            self.emit(lanes)
            return
        Spill(self.frame, self.addresses)
        self.frame.call(_key(self.lane_bytes, self.to_memory), lanes)

    def emit(self, lanes: Any) -> None:
        """Emits the code of `run` in place."""
        frame, addresses = self.frame, Spill(self.frame, self.addresses)
        forms = self.forms._replace(together=self.forms.together and not frame.dry)
        copy = LaneCopy(frame, addresses, self.lane_bytes, self.to_memory, forms)
        if frame.dry and not self.to_memory:
            copy.clear()

        def serve(mask: Any, base: Any, delta: Any, entry: Any) -> None:
            def host_of(address: Any) -> IrValue:
                return (address + delta).pointer()

            if frame.dry and not self.to_memory:
                with frame.build.if_then(field(entry, layout.ALLOC_UNDEFINED) != 0, likely=False):
                    copy.run(mask, host_of)
                return
            access = Access(
                "global", addresses.offsets(base), mask, self.lane_bytes, not self.to_memory, self.to_memory,
                entry=entry, contiguous=copy.contiguous,
            )  # fmt: skip
            if self.to_memory:
                overwrites(frame, access)
            if hooks := mover(frame):
                hooks.move(frame, access)
            else:
                copy.run(mask, host_of)
            mark(frame, entry, base, mask, copy, layout.ALLOC_WRITTEN if self.to_memory else layout.ALLOC_READ)
            observe(frame, access)

        per_allocation(frame, addresses, lanes, self.lane_bytes, self.to_memory, serve)


def _key(lane_bytes: int, to_memory: bool) -> str:
    return f"{__name__}.{'store' if to_memory else 'load'}{lane_bytes}"


def _part(lane_bytes: int, to_memory: bool, name: str) -> ModuleSource:
    """Returns the source of a function that handlers without checks call. Addresses are in the wave, the argument is the mask."""

    def build(module: ir.Module, name: str) -> None:
        part = SharedPart(module, name)
        # Handlers serve 64 consecutive lanes of 4, 8 or 16 bytes themselves (`whole_wave`).
        GlobalAccess(part, None, lane_bytes, to_memory, CopyForms(straight=lane_bytes not in (4, 8, 16))).emit(part.argument)
        part.finish()

    return compiler().source(build, name)


for _bytes in (1, 2, 4, 8, 12, 16):
    for _store in (False, True):
        CALLED[_key(_bytes, _store)] = functools.partial(_part, _bytes, _store)


def per_allocation(
    frame: Frame,
    addresses: Spill,
    lanes: Any,
    lane_bytes: int,
    writes: bool,
    serve: Callable[[Any, Any, Any, Any], None],
) -> None:
    """Emits a loop over the allocations that the lanes touch, with the code of `serve(mask, base, delta, entry)` in it.

    mask: lanes in the allocation, i64. base: its device address. delta: host address minus device address. entry: pointer to its
    table entry
    """
    build = frame.build
    before = build.block
    head = build.append_basic_block("turn")
    after = build.append_basic_block("served")
    build.cbranch(lanes != 0, head, after)
    build.position_at_end(head)
    left = build.phi(I64)
    left.add_incoming(lanes, before)
    lane = first_lane(frame, left)
    addresses.restore()
    address = addresses.of(lane)
    entry = find_allocation(frame, address)
    base, size, delta = (field(entry, which) for which in (layout.ALLOC_BASE, layout.ALLOC_SIZE, layout.ALLOC_DELTA))
    mask = left & addresses.lanes_with(lambda group: is_inside(group - base, size, lane_bytes))
    with build.if_then((mask >> lane & 1) == 0, likely=False):
        frame.fault(Fault.MEMORY, address, lane.trunc(I32))
    if writes:
        with build.if_then(field(entry, layout.ALLOC_WRITABLE) == 0, likely=False):
            frame.fault(Fault.READONLY, address, lane.trunc(I32))
    serve(mask, base, delta, entry)
    rest = left & ~mask
    left.add_incoming(rest, build.block)
    build.cbranch(rest != 0, head, after)
    build.position_at_end(after)


def field(entry: IrValue, offset: Any) -> IrValue:
    """Loads a field (i64) of an allocation's table entry."""
    return entry.at(offset).load(I64, 8)


def hinted_entry(frame: Frame) -> IrValue:
    """Returns a pointer to the table entry that this record hit last; entry 0 at first."""
    table = frame.context(layout.CTX_ALLOCATIONS).pointer()
    hint = frame.slot(layout.SLOT_HINT).zext(I64)
    valid = hint.unsigned < frame.context(layout.CTX_COUNT)
    return table.at(where(valid, hint, 0) * layout.ALLOC_BYTES)


def find_allocation(frame: Frame, address: Any) -> IrValue:
    """Returns a pointer to the table entry with the greatest base <= address (entry 0 if there is none).

    The table is sorted. Its entry 0 is an empty allocation at address 0, so a miss ends in an entry whose bounds check fails.
    """
    build = frame.build
    table = frame.context(layout.CTX_ALLOCATIONS).pointer()
    count = frame.context(layout.CTX_COUNT)
    hint_place = frame.at(frame.record, 4 * layout.SLOT_HINT)
    guess = hinted_entry(frame)
    hit = (address - field(guess, layout.ALLOC_BASE)).unsigned < field(guess, layout.ALLOC_SIZE)
    start = build.block
    search = build.append_basic_block("search")
    step = build.append_basic_block("step")
    found = build.append_basic_block("found")
    end = build.append_basic_block("allocation")
    build.cbranch(hit, end, search)
    build.position_at_end(search)
    low, high = build.phi(I64), build.phi(I64)
    low.add_incoming(constant(0), start)
    high.add_incoming(count, start)
    span = high - low
    build.cbranch(span.unsigned > 1, step, found)
    build.position_at_end(step)
    middle = low + (span >> 1)
    below = field(table.at(middle * layout.ALLOC_BYTES), layout.ALLOC_BASE).unsigned <= address
    low.add_incoming(where(below, middle, low), step)
    high.add_incoming(where(below, high, middle), step)
    build.branch(search)
    build.position_at_end(found)
    hint_place.store(low.trunc(I32))
    searched = table.at(low * layout.ALLOC_BYTES)
    build.branch(end)
    build.position_at_end(end)
    result = build.phi(PTR)
    result.add_incoming(guess, start)
    result.add_incoming(searched, found)
    return result


def mark(frame: Frame, entry: Any, base: IrValue, mask: Any, copy: LaneCopy, table: Any) -> None:
    """Sets the bits of the touched bytes in the allocation's bitmap of bytes read or written, if it has one.

    base: the allocation's address. table: the offset of the bitmap's field (`layout.ALLOC_*`), an int or i64
    """
    if frame.dry:
        return
    build, addresses, lane_bytes = frame.build, copy.addresses, copy.lane_bytes
    bits = field(entry, table)
    with build.if_then(bits != 0):
        bitmap = bits.pointer()
        addresses.restore()
        everyone = mask == ALL_LANES

        def by_places() -> None:
            if not copy.together or lane_bytes % 8:
                _mark_each(frame, bitmap, addresses, base, mask, lane_bytes)
                return
            even = addresses.lanes_with(lambda group: (group - base & 7) != 0) == 0
            with build.if_else(everyone & even) as (whole, pieces):
                with whole:
                    _mark_whole(frame, bitmap, addresses, base, lane_bytes)
                with pieces:
                    _mark_each(frame, bitmap, addresses, base, mask, lane_bytes)

        if not copy.forms.straight:
            by_places()
            return
        first = addresses.of(0) - base
        with build.if_else(everyone & copy.contiguous & ((first & 7) == 0)) as (then, otherwise):
            with then:
                _fill_ones(bitmap.at(first >> 3), lane_bytes * LANES // 8)
                note_page(frame, bitmap.at(first >> 3))
            with otherwise:
                by_places()


def _are_marked(frame: Frame, bitmap: IrValue, addresses: Spill, base: IrValue, mask: IrValue, lane_bytes: int) -> IrValue:
    """Returns i1: the bitmap has all bits from the first active lane's bytes to the last one's, and the other lanes' are between.
    That is not looked for if few lanes are active, or if they are far apart.
    """
    ends = [addresses.of(lane) - base for lane in (first_lane(frame, mask), last_lane(frame, mask))]
    rises = ends[0].unsigned < ends[1]
    low, high = where(rises, ends[0], ends[1]), where(rises, ends[1], ends[0])
    reach = high - low

    def lanes_between() -> IrValue:
        return (mask & ~addresses.lanes_with(lambda group: (group - base - low).unsigned <= reach)) == 0

    def all_set() -> IrValue:
        last = high + (lane_bytes - 1)
        before, behind = ~(frame.value(constant(-1)) << (low & 63)), ~(frame.value(constant(-1)) >> (63 - (last & 63)))

        def look(number: IrValue, every: IrValue) -> list[IrValue]:
            word = bitmap.at(number << 3).load(I64, 8)
            return [every & (word | where(number == low >> 6, before, 0) | where(number == last >> 6, behind, 0))]

        (every,) = frame.loop((last >> 6) + 1, look, [frame.value(constant(-1))], first=low >> 6)
        return frame.value(every) == -1

    dense = (popcount(frame, mask).unsigned > FEW) & (reach.unsigned < LANES * lane_bytes)
    between = frame.emit_and(dense, lanes_between)
    return frame.emit_and(between, all_set)


def _mark_whole(frame: Frame, bitmap: IrValue, addresses: Spill, base: IrValue, lane_bytes: int) -> None:
    """Marks the bytes of all 64 lanes, each of which has whole bytes of the bitmap: stores ones where some bit is not set."""
    kind = ir.IntType(lane_bytes)
    ones = ir.Constant(kind, (1 << lane_bytes) - 1)

    def mark_lane(lane: IrValue) -> tuple[()]:
        target = bitmap.at(addresses.of(lane) - base >> 3)
        with frame.build.if_then(target.load(kind, align=1) != ones, likely=False):
            target.store(ones, align=1)
            note_page(frame, target)
        return ()

    frame.loop(LANES, mark_lane)


def _mark_each(frame: Frame, bitmap: IrValue, addresses: Spill, base: IrValue, mask: Any, lane_bytes: int) -> None:
    with frame.build.if_then(~_are_marked(frame, bitmap, addresses, base, mask, lane_bytes)):
        each_lane(frame, mask, lambda lane: mark_lane(frame, bitmap, addresses.of(lane) - base, lane_bytes))


def _fill_ones(target: IrValue, count: int) -> None:
    done = 0
    while done < count:
        step = next(n for n in (64, 32, 16, 8) if n <= count - done)
        target.at(done).store(ir.Constant(ir.VectorType(I8, step), [0xFF] * step), align=1)
        done += step


def mark_lane(frame: Frame, bitmap: IrValue, offset: IrValue, lane_bytes: int) -> None:
    """Sets `lane_bytes` bits from bit `offset` on, atomically: other threads may set bits of the same byte."""
    place = bitmap.at(offset >> 3)
    wanted = (1 << lane_bytes) - 1 << (offset & 7).trunc(I32)
    for part in range(0, lane_bytes + 7, 8):
        byte = (wanted >> part).trunc(I8)
        target = place.at(part // 8)
        missing = (~target.load(I8, align=1) & byte) != 0
        with frame.build.if_then(missing, likely=False):
            frame.build.atomic_rmw("or", target, byte, "monotonic")
            note_page(frame, target)


def mark_range(frame: Frame, bitmap: IrValue, offset: IrValue, size: int) -> None:
    """Sets `size` bits from bit `offset` on, atomically, by words of 64. size: at most 64; 4 bits begin at multiples of 4."""
    last = offset + (size - 1)
    head, tail = frame.value(constant(-1)) << (offset & 63), frame.value(constant(-1)) >> (63 - (last & 63))
    one_word = offset >> 6 == last >> 6
    words = [(offset, where(one_word, head & tail, head)), (last, where(one_word, head & tail, tail))]
    for bit, wanted in words[: 1 if size == 4 else 2]:
        target = bitmap.at(bit >> 6 << 3)
        with frame.build.if_then((~target.load(I64, 8) & wanted) != 0, likely=False):
            frame.build.atomic_rmw("or", target, wanted, "monotonic")
            note_page(frame, target)


def note_page(frame: Frame, place: IrValue) -> None:
    """Records that bits were set from byte `place` of a bitmap on, in less than a page of it (`memory.table`)."""
    page = frame.context(layout.CTX_BITMAP_PAGES) + (place.address() >> layout.BITMAP_PAGE)
    page.pointer().store(ir.Constant(I8, 1), align=1)
