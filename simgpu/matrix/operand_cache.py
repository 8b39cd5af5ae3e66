"""What matrix instructions make of an operand's registers, kept for the next one that reads the same bits.

In a tile every fragment of A meets every fragment of B, so that most operands were decoded a moment ago. Each worker has a
direct-mapped cache for A and one for B, whose entry is chosen by the number of the operand's first register. An entry holds
what was made, and the registers' bits as its tag: where those are the same, so is all that follows from them, whichever wave
reads them and whatever wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.layout import ROW
from simgpu.machine.values import I64, Value
from simgpu.matrix.fragments import Spread
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct import BLOCK, LINE


class Kept:
    """Memory for what is made of the elements of `spread`.

    which: 0 for A, 1 for B; kind: names what is made; all of that name make the same of the same bits of an element type.
    """

    def __init__(self, spread: Spread, which: int, kind: str) -> None:
        self.frame = frame = spread.frame
        self.registers = spread.registers
        nbytes = spread.rows * spread.bits // 32 * ROW
        self.lines = range(0, nbytes, LINE)
        name = f"{which} {nbytes // ROW} {spread.name} {kind}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self.key = ir.Constant(I64, int.from_bytes(digest, "little", signed=True))
        offset = frame.build.ptrtoint(self.registers, I64) - frame.build.ptrtoint(frame.wave, I64)
        number = frame.build.udiv(offset - layout.VGPR, ir.Constant(I64, nbytes))
        entry = (number & layout.KEPT_PLACES - 1) + which * layout.KEPT_PLACES
        self.memory = frame.context_at(layout.CTX_KEPT).at(entry * layout.KEPT_BYTES)
        self.taken = 0
        self.header = self.take(LINE)
        self.bits = self.take(nbytes)

    def take(self, nbytes: int) -> Value:
        """Pointer to the next `nbytes` of it, a multiple of a line."""
        pointer: Value = self.memory.at(self.taken)
        self.taken += nbytes
        assert nbytes % LINE == 0 and self.taken <= layout.KEPT_BYTES, "KEPT_BYTES is for the widest operand"
        return pointer

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Around the code that makes it all: to be run where the registers hold other bits than it was made of."""
        other = self.header.load(I64, 8) != self.key
        words = [(self.registers.at(at), self.bits.at(at)) for at in self.lines]
        changed = [source.load(BLOCK, 64) ^ tag.load(BLOCK, 64) for source, tag in words]
        with self.frame.build.if_then(other | ~direct.none(self.frame, changed)):
            yield
            for source, tag in words:
                tag.store(source.load(BLOCK, 64), 64)
            self.header.store(self.key, 8)
