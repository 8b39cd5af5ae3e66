"""Staging of 6-bit elements by whole cache lines, through a ring in LDS: addresses, lanes and order.

Four K steps of 128 elements, 96 bytes of a row each, are three cache lines. Loads by K step would request a line twice if two
steps have parts of it. So each line is loaded once, and a row's part of LDS is a ring of three steps, 288 bytes:

* Order. Line n is bytes 128·n to 128·n + 127 of a row. It is first read for step f(n) = 128·n // 96. Its LDS writes are emitted
  among the matrix instructions of step f(n) - 1, between the previous step's barrier and that step's own. They overwrite bytes
  288 back, which were read for step f(n) - 2 at the latest. So one barrier a step is enough. Of four steps, three write a line
  (`asm.gemm.lines`).
* Registers. A work-item holds 16-byte pieces (units) of a line and a half, or of three lines (`limits.half_lines`). The load of
  a unit reuses the registers of the `held`th unit before it, once that unit is in LDS. So loads continue in the step that writes
  no line.
* Lanes. LDS writes the 16 bytes of eight lanes at once. Four of them hold 64 bytes of a row, which the vector cache reads at
  once. The other four hold the same bytes of another row, 16 banks apart (`place`). A lane reads its 24 bytes of a step 8 at a
  time.
* Addresses. Two consecutive LDS rows (slots) share a ring of PAIR = 576 bytes, in which the odd row is half a turn ahead. The two
  64-byte halves of a line use disjoint banks everywhere in the ring. A ring of 288 bytes would have nine halves of 32 bytes, an
  odd number, so that two of them would conflict at its end. Every eight slots are 16 bytes further on, so that reads do not
  conflict.

The tests check every read and write for bank conflicts.

A row ends at a multiple of 24 bytes. Lanes whose pieces of the last line start after that get offsets outside, and read 0. If
only the first half of a piece belongs to the row, the piece is loaded from 8 bytes earlier, so that nothing after the row is
read. Its registers are corrected before they are written (`mend`). The ring's closed forms are `operators.gemm.layout.LineRing`.
"""

from __future__ import annotations

from typing import Any

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import OUTSIDE, advance_buffer, clip
from simgpu.asm.parts.integer_math import add_wide
from simgpu.asm.parts.staging import EIGHTS, FragmentReads, StagedFragment
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.gemm.layout import EIGHT, PAIR, STEP, LineRing, TileLayout
from simgpu.operators.gemm.limits import CACHE_LINE, LINE_ROWS, RING_BYTES
from simgpu.operators.resources import WIDEST

Index = Any
class RingPointer:
    """A lane's place in the rings of A and B: VGPRs with the LDS addresses, advanced together.

    base: VGPR, the pair's first byte in A's ring. place: VGPR, byte in the ring. apart: bytes from A's address to B's.
    """

    def __init__(self, k: KernelBuilder, what: str, step: int, base: Reg, place: Reg, apart: Operand) -> None:
        self.k, self.what, self.bytes, self.base, self.place, self.apart = k, what, step, base, place, apart
        self.a, self.b = k.v.alloc(f"A's LDS address to {what}"), k.v.alloc(f"B's LDS address to {what}")
        self._address()

    def _address(self) -> None:
        self.k.v_add_u32(self.a, self.base, self.place, note=f"where to {self.what}")
        self.k.v_add_u32(self.b, self.apart, self.a)

    def step(self) -> None:
        """Advances by a line or a K step, round the ring."""
        k = self.k
        k.v_add_u32(self.a, self.bytes, self.place)
        k.v_add_u32(self.b, self.bytes - PAIR, self.place, note="negative but past the ring's end: more than any place")
        k.v_min_u32(self.place, self.a, self.b)
        self._address()


class LineStaging(FragmentReads):
    """Emits the staging of one operand by lines. Arguments as for `Staging`.

    half_lines: half lines of a row that registers hold. Reads use `address`, once it is set.
    """

    address: Reg  # a lane's LDS address to read

    def __init__(
        self, k: KernelBuilder, layout: TileLayout, region: LdsRegion, resource: Reg, stride: Reg, rows_left: Reg, bits: int,
        half_lines: int,
    ) -> None:
        self.k, self.layout, self.ring, self.region, self.bits = k, layout, LineRing(layout), region, bits
        self.held = self.ring.units * half_lines // 2  # units that there are registers for
        self.resource, self.stride, self.rows_left, self.apart_along_k = resource, stride, rows_left, 1
        self.staged = k.array(f"{layout.name} staging", self.held * WIDEST // WORD)
        self.fragment_registers = k.array(f"{layout.name} fragments", layout.fragment_words)
        self.offsets: list[Reg] = []

    # -- addresses ---------------------------------------------------------------------------

    def prepare_loads(self) -> None:
        """Emits the offsets of every unit, with rows outside the view folded in. They start 8 bytes before the buffer."""
        k, layout, ring = self.k, self.layout, self.ring
        k.comment(f"{layout.name}: {ring.units} pieces of {WIDEST} bytes a work-item and line")
        slot, byte = ring.place(of(k.work_item, layout.threads))
        row, piece = k.vectors(row=layout.row_of(slot // layout.atom, slot % layout.atom), piece=byte)
        for unit in range(ring.units):
            step = ring.row_step(unit)
            offset = k.vector(f"{layout.name} load offset", (of(row) + step) * self.stride + piece + EIGHT)
            clip(k, offset, offset, of(self.rows_left) - step, row, note=f"rows of {layout.name} past the view: outside")
            self.offsets.append(offset)
        k.v.free(row, piece)
        add_wide(k, self.resource, -EIGHT, -1, note="lanes may go back by as much (`cut`)")

    # -- moves -------------------------------------------------------------------------------

    def registers(self, number: int) -> Reg:
        """Returns the registers of unit `number`, counted from the row's first line."""
        first = number % self.held * WIDEST // WORD
        return self.staged[first : first + WIDEST // WORD]

    def load(self, number: int) -> None:
        """Loads a unit's piece into registers."""
        offset, note = self.offsets[number % self.ring.units], f"{self.layout.name} line, unit {number}"
        self.k.buffer_load(self.registers(number), offset, self.resource, 0, note=note)

    def cut_offsets(self, inside: Operand, early: Reg) -> None:
        """Makes offsets OUTSIDE in lanes that the mask `inside` excludes, and subtracts `early` bytes (a VGPR) from all."""
        for offset in self.offsets:
            self.k.v_cndmask_b32(offset, OUTSIDE, offset, inside)
            self.k.v_sub_u32(offset, offset, early)

    def mend(self, number: int, whole: Operand) -> None:
        """Moves a unit's last 8 bytes to the front and sets the rest to 0, in lanes that the mask `whole` excludes."""
        k, data = self.k, self.registers(number)
        for word in range(2):
            k.v_cndmask_b32(data[word], data[word + 2], data[word], whole)
        for word in range(2, 4):
            k.v_cndmask_b32(data[word], 0, data[word], whole)

    def advance(self) -> None:
        """Moves the buffer's base to the next line."""
        advance_buffer(self.k, self.resource, CACHE_LINE, self.layout.name)

    def write(self, number: int, address: Reg) -> None:
        """Writes a unit to LDS. address: LDS address of the work-item's first unit."""
        offset = number % self.ring.units * LINE_ROWS * RING_BYTES
        note = f"{self.layout.name} line to LDS, unit {number}"
        self.k.ds_write_b128(address, self.registers(number), offset=offset, note=note)

    # -- fragments ---------------------------------------------------------------------------

    def fragments(self, turn: int) -> list[StagedFragment]:
        """Returns the reads of a K step's only turn: three of 8 bytes for each atom."""
        layout, width = self.layout, self.layout.atom_words
        return [
            StagedFragment(
                self.fragment_registers[t * width + 2 * h : t * width + 2 * h + 2], self.address,
                turn + t * layout.atom * RING_BYTES + EIGHT * h, ((t, 0),),
            )
            for t in range(layout.atoms)
            for h in range(EIGHTS)
        ]  # fmt: skip


def write_pointer(k: KernelBuilder, a: LineStaging, b: LineStaging) -> RingPointer:
    """Returns the pointer at which a work-item writes line 0."""
    slot, byte = LineRing.place(of(k.work_item))
    base, place = k.vectors(base=LineRing.pair(slot) + a.region.offset, place=LineRing.in_pair(slot, byte))
    return RingPointer(k, "write", CACHE_LINE, base, place, b.region.offset - a.region.offset)


def read_pointer(
    k: KernelBuilder, a: LineStaging, b: LineStaging, lane_row: Reg, group: Reg, wave_rows: tuple[Reg, Reg]
) -> RingPointer:
    """Returns the pointer at which a lane reads step 0. Arguments as `Staging.prepare_reads`; wave_rows: A's and B's."""
    slot, first = of(lane_row), of(wave_rows[0]) * RING_BYTES + a.region.offset
    base, place = k.vectors(base=LineRing.pair(slot) + of(group) * (EIGHTS * EIGHT) + first, place=LineRing.in_pair(slot, 0))
    rows = of(wave_rows[1]) - wave_rows[0]
    apart = k.scalar("from A's fragments to B's", rows * RING_BYTES + (b.region.offset - a.region.offset))
    pointer = RingPointer(k, "read", STEP, base, place, apart)
    a.address, b.address = pointer.a, pointer.b
    return pointer
