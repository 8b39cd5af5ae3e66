"""Accesses of a whole wave whose lanes follow each other from first to last: streams, packed tiles.

What `direct` does lane by lane is done for one range of memory here: the bounds are the last lane's, the bits of the bytes touched
are whole bytes of the bitmap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from simgpu.machine.frame import PTR
from simgpu.machine.lane_ops import I32, I64
from simgpu.machine.layout import LANES
from simgpu.memory.lane_copy import constant
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct import BLOCK, GROUP, LINE, Span
from simgpu.memory.whole_wave.prefetch import Queue


def follow(span: Span) -> Any:
    """i1: all lanes' bytes follow each other, and are in bounds; mostly two lanes say no at once."""
    frame, build, size = span.frame, span.frame.build, span.lane_bytes
    first, last = (frame.load(frame.at(span.distances, 4 * lane), I32) for lane in (0, LANES - 1))
    length = (LANES - 1) * size
    seems = build.icmp_unsigned("==", build.sub(last, first), ir.Constant(I32, length))
    end = build.add(build.zext(first, I64), constant(length))
    near = build.icmp_unsigned("<=", end, constant(direct.FARTHEST))  # else a lane's 32 bits may have wrapped

    def exactly() -> Any:
        wrong = []
        for group in range(LANES // GROUP):
            steps = ir.Constant(BLOCK, [size * (group * GROUP + lane) for lane in range(GROUP)])
            wrong.append(build.xor(build.sub(span.block(group), steps), frame.splat(first, GROUP)))
        return direct.none(frame, wrong)

    return frame.both(build.and_(build.and_(seems, near), build.icmp_signed("<=", end, span.room)), exactly)


@dataclass(frozen=True)
class Run(Span):
    """A span of lanes that follow each other; start: of the first one's bytes."""

    @classmethod
    def of(cls, span: Span) -> Run:
        return cls(span.frame, span.distances, span.place(0), span.room, span.lane_bytes)

    def place(self, lane: int) -> Any:
        return self.frame.at(self.start, lane * self.lane_bytes)

    def mark(self, table: Any, offset: Any) -> None:
        """Set the bits from `offset`, a multiple of 8, on in the bitmap at address `table`, unless they are set."""
        build = self.frame.build
        kind = ir.VectorType(I64, LANES * self.lane_bytes // 64)
        place = build.inttoptr(build.add(table, build.lshr(offset, constant(3))), PTR)
        ones = ir.Constant(kind, [-1] * kind.count)
        other = build.icmp_unsigned("!=", self.frame.load(place, kind, align=1), ones)
        some = build.bitcast(other, ir.IntType(kind.count))
        with build.if_then(build.icmp_unsigned("!=", some, ir.Constant(some.type, 0)), likely=False):
            self.frame.store(ones, place, align=1)

    def look_ahead(self, table: Any, offset: Any, stride: Any) -> None:
        """Have the lines fetched that lie `stride` bytes further, and those of the bitmap that follow where a KiB of it begins."""
        build, queue = self.frame.build, Queue(self.frame)
        lines = ir.Constant(ir.VectorType(I64, GROUP), [LINE * line for line in range(GROUP)])

        def offer(address: Any) -> None:
            queue.offer(build.add(self.frame.splat(address, GROUP), lines))

        offer(build.add(build.ptrtoint(self.start, I64), stride))
        bits = build.add(table, build.lshr(build.add(offset, stride), constant(3)))
        inner = build.and_(bits, constant(GROUP * LINE - 1))
        with build.if_then(build.icmp_unsigned("<", inner, build.lshr(stride, constant(3))), likely=False):
            offer(bits)
