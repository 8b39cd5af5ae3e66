"""What matrix instructions make of an operand's registers, kept for the next one that reads the same bits.

In a tile every fragment of A meets every fragment of B, so that most operands were decoded a moment ago. Each worker keeps
what was made of the operands last read, one for each of A and B and remainder of the register's number, together with the
registers' bits: where those are the same, so is all that follows from them, whichever wave reads them and whatever wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.lane_ops import I64
from simgpu.machine.layout import ROW
from simgpu.matrix.fragments import Spread
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct import BLOCK, LINE


class Kept:
    """Memory for what is made of the elements of `spread`.

    which: 0 for A, 1 for B; kind: names what is made; all of that name make the same of the same bits of an element type.
    """

    def __init__(self, spread: Spread, which: int, kind: str) -> None:
        self.frame = frame = spread.frame
        self.registers = registers = spread.registers
        count = spread.rows * spread.bits // 32
        self.blocks = range(0, count * ROW, LINE)
        digest = hashlib.blake2b(f"{which} {count} {spread.name} {kind}".encode(), digest_size=8).digest()
        self.key = ir.Constant(I64, int.from_bytes(digest, "little", signed=True))
        build = frame.build
        offset = build.sub(build.ptrtoint(registers, I64), build.ptrtoint(frame.wave, I64))
        number = build.udiv(build.sub(offset, ir.Constant(I64, layout.VGPR)), ir.Constant(I64, count * ROW))
        place = build.and_(number, ir.Constant(I64, layout.KEPT_PLACES - 1))
        place = build.add(place, ir.Constant(I64, which * layout.KEPT_PLACES))
        self.memory = frame.at(frame.context_at(layout.CTX_KEPT), build.mul(place, ir.Constant(I64, layout.KEPT_BYTES)))
        self.taken = 0
        self.header = self.take(LINE)
        self.bits = self.take(count * ROW)

    def take(self, nbytes: int) -> Any:
        """Pointer to the next `nbytes` of it, a multiple of a line."""
        pointer = self.frame.at(self.memory, self.taken)
        self.taken += nbytes
        assert nbytes % LINE == 0 and self.taken <= layout.KEPT_BYTES, "KEPT_BYTES is for the widest operand"
        return pointer

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Around the code that makes it all: to be run where the registers hold other bits than it was made of."""
        frame, build = self.frame, self.frame.build
        other = build.icmp_unsigned("!=", frame.load(self.header, I64, 8), self.key)
        words = [(frame.at(self.registers, at), frame.at(self.bits, at)) for at in self.blocks]
        changed = [build.xor(*(frame.load(place, BLOCK, align=64) for place in pair)) for pair in words]
        with build.if_then(build.or_(other, build.not_(direct.none(frame, changed)))):
            yield
            for source, target in words:
                frame.store(frame.load(source, BLOCK, align=64), target, align=64)
            frame.store(self.key, self.header, 8)
