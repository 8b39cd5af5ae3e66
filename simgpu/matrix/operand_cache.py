"""A cache of the decoded operands of matrix instructions.

In a GEMM, every fragment of A meets every fragment of B, so most operands were decoded shortly before. Each worker has a
direct-mapped cache for A and one for B; the number of the operand's first register selects the entry. An entry's tag is the
contents of the registers, so an entry is valid for any wave that has the same bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from simgpu.machine import layout
from simgpu.machine.layout import ROW
from simgpu.machine.values import I64, IrValue
from simgpu.matrix.fragments import Spread
from simgpu.memory.whole_wave import direct
from simgpu.memory.whole_wave.direct import BLOCK, LINE


class CacheEntry:
    """Entry for the elements of `spread`, in the cache for A (which = 0) or B (1)."""

    def __init__(self, spread: Spread, which: int, kind: str) -> None:
        """kind: name of the decoded form; entries of one name decode the bits of an element type equally."""
        self.frame = frame = spread.frame
        self.registers = spread.registers
        nbytes = spread.rows * spread.bits // 32 * ROW
        self.lines = range(0, nbytes, LINE)
        name = f"{which} {nbytes // ROW} {spread.name} {kind}"
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self.key = ir.Constant(I64, int.from_bytes(digest, "little", signed=True))
        offset = frame.build.ptrtoint(self.registers, I64) - frame.build.ptrtoint(frame.wave, I64)
        number = frame.build.udiv(offset - layout.VGPR, ir.Constant(I64, nbytes))
        entry = (number & layout.CACHE_ENTRIES - 1) + which * layout.CACHE_ENTRIES
        self.memory = frame.context_at(layout.CTX_OPERAND_CACHE).at(entry * layout.CACHE_ENTRY_BYTES)
        self.reserved = 0
        self.header = self.reserve(LINE)
        self.bits = self.reserve(nbytes)

    def reserve(self, nbytes: int) -> IrValue:
        """Returns a pointer to the entry's next `nbytes`, a multiple of a line."""
        pointer: IrValue = self.memory.at(self.reserved)
        self.reserved += nbytes
        assert nbytes % LINE == 0 and self.reserved <= layout.CACHE_ENTRY_BYTES, "CACHE_ENTRY_BYTES is for the widest operand"
        return pointer

    @contextmanager
    def if_stale(self) -> Iterator[None]:
        """Wraps the code that fills the entry; it runs if the registers hold other bits than the entry was decoded from."""
        other = self.header.load(I64, 8) != self.key
        words = [(self.registers.at(at), self.bits.at(at)) for at in self.lines]
        changed = [source.load(BLOCK, 64) ^ tag.load(BLOCK, 64) for source, tag in words]
        with self.frame.build.if_then(other | ~direct.no_bit(changed)):
            yield
            for source, tag in words:
                tag.store(source.load(BLOCK, 64), 64)
            self.header.store(self.key, 8)
