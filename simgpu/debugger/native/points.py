"""Reasons to stop a wave: tests before an instruction, as machine code.

A record with points has the dispatcher's handler. Its original handler is in a table next to the records. The dispatcher calls
the test of each point, and then either stops the wave before the instruction or continues with the handler. A point is a block
of memory that its test gets. HIT says if the wave must stop; the words from OWN on hold the test's data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from simgpu.debugger.native.clock import BASE, BEFORE, GO_ON, ORDINALS, PASSES, in_focus
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES, RECORD, ROW, SLOT_INDEX, Status
from simgpu.machine.values import I8, I32, I64
from simgpu.machine.wave_frame import HANDLER

if TYPE_CHECKING:
    from simgpu.machine.jit import Compiler

# 64-bit words of a point: nonzero if its test said stop; the wave that it is for, -1 for all; the test's own words from here on.
HIT, WAVE, OWN = 0, 1, 2
STOPS, ARRIVED = 1, 2  # values of HIT; ARRIVED stops even if other stops pass
# The table has 16 bytes a record: its original handler, and the address of its list of points. A list is a count, then for each
# point the addresses of its test and of its block.
TABLE_SLOT = 4  # slot of the record after the code: the address of the program's table, 64 bits


def dispatcher(module: ir.Module, name: str) -> None:
    """Builds the handler of records with points."""
    frame = Frame(module, name)
    build = frame.build
    index = frame.slot(SLOT_INDEX)
    behind = frame.context(layout.CTX_RECORD_COUNT) * RECORD + 4 * TABLE_SLOT
    table = frame.state(layout.RECORDS, I64).pointer().at(behind).load(I64, 8).pointer()
    entry = table.at(index.zext(I64) * 16)
    original = build.load(entry, align=8, typ=ir.PointerType(HANDLER))
    onward = frame.state(GO_ON, I64)
    frame.set_state(GO_ON, ir.Constant(I64, 0))
    with build.if_then(onward != index.zext(I64) + 1):
        points = entry.at(8).load(I64, 8).pointer()

        def test(number: Any, hit: Any) -> list[Any]:
            each = points.at(number * 16)
            function = build.load(each.at(8), align=8, typ=ir.PointerType(HANDLER))
            point = each.at(16).load(I64, 8).pointer()
            build.call(function, [frame.wave, point])
            return [hit | point.load(I64, 8)]

        (hit,) = frame.loop(points.load(I64, 8), test, [ir.Constant(I64, 0)])
        with build.if_then(hit != 0, likely=False):
            passes = frame.context_at(PASSES)
            left = passes.load(I64, 8)
            arrived = hit & ARRIVED
            with build.if_then(arrived == 0):
                passes.store(left - 1, 8)
            with build.if_then((arrived != 0) | (left == 1)):
                frame.exit(Status.BREAK, index)
                frame.set_state(GO_ON, index.zext(I64) + 1)
                build.ret_void()
    build.call(original, [frame.wave, frame.record], tail="musttail")
    build.ret_void()


# -- tests ----------------------------------------------------------------------------------------


def test_of(emit: Callable[[Frame], Any]) -> Callable[[ir.Module, str], None]:
    """Returns a builder of tests that `emit` emits for the point's waves, in the workgroup in focus. `emit` returns HIT's value
    (i64)."""

    def build_it(module: ir.Module, name: str) -> None:
        frame = Frame(module, name)  # its record is the point
        build = frame.build
        wanted = frame.at(frame.record, 8 * WAVE).load(I64, 8)
        frame.at(frame.record, 8 * HIT).store(ir.Constant(I64, 0), 8)
        mine = (wanted.signed < 0) | (wanted == frame.state(layout.WAVE_ID).zext(I64))
        with build.if_then(mine), build.if_then(frame.value(in_focus.call(build, frame.wave)) != 0):
            frame.at(frame.record, 8 * HIT).store(emit(frame), 8)
        build.ret_void()

    return build_it


def word(frame: Frame, number: int) -> Any:
    """Returns one of the point's own words."""
    return frame.at(frame.record, 8 * (OWN + number)).load(I64, 8)


def always_test(compiler: Compiler) -> int:
    """Returns the test that always stops."""
    return compiler.address("debugger always", test_of(lambda frame: ir.Constant(I64, STOPS)))


def arrival(compiler: Compiler, hit: int = ARRIVED) -> int:
    """Returns the test that a wave is at a place; its own words are `place_words`. hit: value of HIT at that place."""

    def emit(frame: Frame) -> Any:
        ordinals = frame.context(ORDINALS).pointer()
        here, entry = (ordinals.at(word(frame, number) * 8).load(I32).zext(I64) for number in (0, 1))
        return (frame.state(BASE, I64) + here - entry == word(frame, 2)).zext(I64) * hit

    return compiler.address(f"debugger arrival|{hit}", test_of(emit))


def place_words(record: int, entry: int, retired: int) -> tuple[int, int, int]:
    """Returns the own words of `arrival`: a wave before the record's instruction has retired `retired` since the entry."""
    return record, entry, retired


FROM_WAVE, FROM_LDS, FROM_HOST = range(3)
# Own words of `changed_test`: size in bytes; address of the first wave's block; bytes to the next wave's, 0 if all share one;
# offset of the value in its space.
CHANGED_BYTES, CHANGED_BLOCKS, CHANGED_STRIDE, CHANGED_AT = range(4)
BLOCK_HEADER = 8  # bytes of a block's header: nonzero if a value was seen; the last value and the one before it follow


def changed_test(compiler: Compiler, space: int, whole: bool) -> int:
    """Returns the test that a value has changed since the last test. space: FROM_WAVE (its state), FROM_LDS or FROM_HOST.
    whole: compare dwords instead of bytes."""

    def emit(frame: Frame) -> Any:
        build = frame.build
        count, where = word(frame, CHANGED_BYTES), word(frame, CHANGED_AT)
        base = {
            FROM_WAVE: lambda: frame.value(build.ptrtoint(frame.wave, I64)),
            FROM_LDS: lambda: frame.state(layout.LDS_BASE, I64),
            FROM_HOST: lambda: frame.value(ir.Constant(I64, 0)),
        }[space]()
        now = (base + where).pointer()
        block = (word(frame, CHANGED_BLOCKS) + frame.state(layout.WAVE_ID).zext(I64) * word(frame, CHANGED_STRIDE)).pointer()
        known, held = block.load(I64, 8), block.at(BLOCK_HEADER)
        step, part = (4, I32) if whole else (1, I8)

        def compare(number: Any, differs: Any) -> list[Any]:
            return [differs | (now.at(number).load(part, step) ^ held.at(number).load(part, step)).zext(I64)]

        def keep(number: Any) -> list[Any]:
            held.at(count + number).store(held.at(number).load(part, step), step)
            held.at(number).store(now.at(number).load(part, step), step)
            return []

        (differs,) = frame.loop(count, compare, [ir.Constant(I64, 0)], step=step)
        with build.if_then((differs != 0) | (known == 0)):
            frame.loop(count, keep, step=step)
        block.store(ir.Constant(I64, 1), 8)
        return ((differs != 0) & (known != 0)).zext(I64)

    return compiler.address(f"debugger changed|{space}|{whole}", test_of(emit))


# Own words of `nan`: the point's record; the record before, -1 for none; offset of that instruction's first result row, number of
# rows, and format; lanes with a NaN. Formats: 16 two f16 a dword, 17 one in its low half, 18 two bf16, 32 f32, 64 f64.
NAN_RECORD, NAN_BEFORE, NAN_ROW, NAN_ROWS, NAN_BITS, NAN_SEEN = range(6)


def nan(compiler: Compiler) -> int:
    """Returns the test that the previous instruction left a NaN in an active lane of its result. NAN_SEEN then has the lanes."""

    def emit(frame: Frame) -> Any:
        build = frame.build
        before, came = word(frame, NAN_BEFORE), frame.state(BEFORE, I64)
        frame.set_state(BEFORE, word(frame, NAN_RECORD) + 1)
        seen_at = frame.at(frame.record, 8 * (OWN + NAN_SEEN))
        seen_at.store(ir.Constant(I64, 0), 8)
        with build.if_then(came == before + 1):
            bits = word(frame, NAN_BITS)
            rows = frame.at(frame.wave, word(frame, NAN_ROW))

            def look(number: Any, seen: Any) -> list[Any]:
                row = rows.at(number * ROW).load(ir.VectorType(I32, LANES), 64)
                quiet, infinite, half = 0x7FFFFFFF, 0x7F800000, 0x7FFF
                single = build.bitcast((row & quiet).unsigned > infinite, I64)
                low, high = row & half, (row >> 16) & half
                halves = build.bitcast((low.unsigned > 0x7C00) | (high.unsigned > 0x7C00), I64)
                brains = build.bitcast((low.unsigned > 0x7F80) | (high.unsigned > 0x7F80), I64)
                low_half = build.bitcast(low.unsigned > 0x7C00, I64)
                whole = bits == 64
                upper = rows.at(build.select(whole, number | 1, number) * ROW).load(ir.VectorType(I32, LANES), 64) & quiet
                lower = rows.at(build.select(whole, number & ~1, number) * ROW).load(ir.VectorType(I32, LANES), 64)
                infinite64 = 0x7FF00000
                double = build.bitcast((upper.unsigned > infinite64) | ((upper == infinite64) & (lower != 0)), I64)
                chosen = brains
                for kind, held in ((17, low_half), (16, halves), (32, single), (64, double)):
                    chosen = build.select(bits == kind, held, chosen)
                return [seen | chosen]

            (seen,) = frame.loop(word(frame, NAN_ROWS), look, [ir.Constant(I64, 0)])
            seen_at.store(seen & frame.exec_bits(), 8)
        return (seen_at.load(I64, 8) != 0).zext(I64)

    return compiler.address("debugger nan", test_of(emit))
