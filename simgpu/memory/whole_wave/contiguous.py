"""Accesses of a whole wave whose lanes are consecutive from first to last: streams, packed tiles.

`direct` checks bounds and marks bytes lane by lane; here both are done for one range of memory. Only the last lane's bounds are
checked, and whole bytes of the bitmap are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from simgpu.machine.layout import GROUP, LANES
from simgpu.machine.values import I32, I64, IrValue
from simgpu.memory.any_lanes import note_page
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct import BLOCK, LINE, LaneSpan
from simgpu.memory.whole_wave.prefetch import PrefetchQueue


def is_one_range(span: LaneSpan) -> IrValue:
    """Returns i1: all lanes' bytes are consecutive and in bounds. In most other cases two lanes already rule it out."""
    size = span.lane_bytes
    first, last = (span.distances.at(4 * lane).load(I32) for lane in (0, LANES - 1))
    length = (LANES - 1) * size
    seems = last - first == length
    last_start = first.zext(I64) + length
    near = last_start.unsigned <= direct.FARTHEST  # otherwise distances may have wrapped: check_steps compares modulo 2^32

    def check_steps() -> IrValue:
        wrong = []
        for group in range(LANES // GROUP):
            steps = ir.Constant(BLOCK, [size * (group * GROUP + lane) for lane in range(GROUP)])
            wrong.append(span.block(group) - steps ^ first)
        return direct.no_bit(wrong)

    return span.frame.emit_and(seems & near & (last_start.signed <= span.room), check_steps)


@dataclass(frozen=True)
class LaneRange(LaneSpan):
    """A span of consecutive lanes. start: host pointer to the first lane's bytes; the distances are not used."""

    @classmethod
    def of(cls, span: LaneSpan) -> LaneRange:
        return cls(span.frame, span.distances, span.place(0), span.room, span.lane_bytes)

    def place(self, lane: int) -> IrValue:
        return self.start.at(lane * self.lane_bytes)

    def group(self, number: Any) -> LaneRange:
        return replace(self, start=self.start.at(number * (GROUP * self.lane_bytes)))

    def mark(self, table: IrValue, offset: IrValue) -> None:
        """Sets the range's bits in the bitmap at host address `table`, unless they are set. offset: first bit, a multiple of 8."""
        kind = ir.VectorType(I64, LANES * self.lane_bytes // 64)
        place = (table + (offset >> 3)).pointer()
        ones = ir.Constant(kind, [-1] * kind.count)
        other = (place.load(kind, align=1) != ones).bitcast(ir.IntType(kind.count))
        with self.frame.build.if_then(other != 0, likely=False):
            place.store(ones, align=1)
            note_page(self.frame, place)

    def look_ahead(self, table: IrValue, offset: IrValue, stride: IrValue) -> None:
        """Queues the lines `stride` bytes further for prefetching, and 16 lines of the bitmap if their bits begin another KiB."""
        queue = PrefetchQueue(self.frame)
        lines = ir.Constant(ir.VectorType(I64, GROUP), [LINE * line for line in range(GROUP)])
        queue.offer(self.start.address() + stride + lines)
        bits = table + (offset + stride >> 3)
        inner = bits & GROUP * LINE - 1
        with self.frame.build.if_then(inner.unsigned < stride >> 3, likely=False):
            queue.offer(bits + lines)
