"""A wave that shares K and V with seven others through LDS: staging, fragments, products.

LDS holds fragments in the matrix instructions' layout, 16 bytes a lane, 1 KB apart, so that a read's address is the lane's plus
an immediate. K[a][span]: 8 columns of key 16a + i. V[p][t]: four keys 32p + 4g.. and four keys 32p + 16 + 4g.. of column 16t +
i, which is the order of P^T's registers.

A lane stages four keys (of narrow V two) by four columns of V, and transposes them by v_perm_b32, so that each element is
transposed once per workgroup. Places of 16 bytes within a fragment's quarter are permuted by xor, so that neither writes nor
reads have bank conflicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simgpu.asm.attention.frame import AttentionFrame, advance_within
from simgpu.asm.attention.shape import GROUPS, QUAD, AttentionShape
from simgpu.asm.attention.wave import WaveRegisters
from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.parts.buffers import clip
from simgpu.asm.parts.lanes import gather_column
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.attention.problem import ATOM
from simgpu.operators.attention.shared_registers import (
    FRAGMENTS,
    KEYS_OF_STEP,
    NARROWEST,
    STAGES,
    WAVES,
    stage_bytes,
    value_keys,
)

FRAGMENT = 1024  # bytes of a wave's fragment
PLACE = 16  # bytes of a lane in it
FRAGMENT_WORDS = 4
VALUE_WORDS = 2  # registers of a row of V that a lane stages: four columns


@dataclass(frozen=True)
class LdsFragment:
    """A fragment of V or K in LDS, 16 bytes a lane."""

    value: bool  # True: of V
    first: int  # V: pair of key atoms; K: key atom
    second: int  # V: column atom; K: span of columns


class SharedWave(WaveRegisters):
    """Emits loads, LDS writes, LDS reads and products of a wave, with its registers and addresses."""

    def __init__(self, block: AttentionFrame, shape: AttentionShape) -> None:
        super().__init__(block, shape)
        k, p = self.k, block.plan.problem
        self.key_stage, self.value_stage = stage_bytes(p)
        larger_first = sorted((("K", self.key_stage), ("V", self.value_stage)), key=lambda row: -row[1])
        self.regions = {name: k.region(f"{name} stages", STAGES * size, align=STAGES * size) for name, size in larger_first}
        names = ("K offset", "K write", "K read", "V offset", "V write", "V read")
        self.key_offset, self.key_write, self.key_read, self.value_offset, self.value_write, self.value_read = (
            k.v.alloc(name) for name in names
        )
        self.key_loads = shape.d // NARROWEST
        self.rows = value_keys(p.dv)
        self.value_units = shape.dv * KEYS_OF_STEP // (2 * VALUE_WORDS * self.rows * WAVES * WAVEFRONT)
        self.value_rows = [k.s.alloc(f"V row {row}") for row in range(1, self.rows)]
        self.key_step, self.value_step = k.s.alloc("K step"), k.s.alloc("V step")

    # -- addresses ---------------------------------------------------------------------------

    def start(self) -> None:
        """Emits lane offsets in memory and LDS, and strides."""
        k, a, shape = self.k, self.block.arguments, self.shape
        k.set(self.key_step, of(a["K_row"]) * KEYS_OF_STEP)
        k.set(self.value_step, of(a["V_row"]) * KEYS_OF_STEP)
        for row, register in enumerate(self.value_rows, 1):
            k.s_mul_i32(register, a["V_row"], row)
        with k.lend(self.ranges["temporaries"][2:]):
            self._key_addresses()
            self._value_addresses()
        k.comment(f"fragments of K: atom, {len(shape.spans)} spans; of V: pair of atoms, {shape.column_atoms} column atoms")

    def _key_addresses(self) -> None:
        """Emits the addresses of K.

        A wave loads `key_loads` fragments of key atom wave % 4, from span (wave / 4) · key_loads on. Four lanes load 64 bytes of a
        key.
        """
        k, shape, block = self.k, self.shape, self.block
        wave, item = of(block.wave_number, WAVES), of(k.work_item) % WAVEFRONT
        atom, first_span = wave % 4, wave // 4 * self.key_loads
        row, column = (self.ranges["temporaries"][n] for n in range(2))
        k.set(column, item % GROUPS * shape.vec + first_span * (GROUPS * shape.vec), note="first column of the lane")
        k.set(row, item // GROUPS + atom * ATOM)
        k.set(self.key_offset, of(row) * block.arguments["K_row"] + of(column) * 2)
        for n in range(self.key_loads) if "K columns" in self.ranges else ():
            left = self.block.plan.problem.d - n * GROUPS * shape.vec
            clip(k, self.ranges["K columns"][n], self.key_offset, left, column, note="columns past d read 0")
        written = self._key_place(item // GROUPS, item % GROUPS)
        k.set(self.key_write, written + (atom * len(shape.spans) + first_span) * FRAGMENT)
        k.set(self.key_read, self._key_place(of(block.lane_row, ATOM), of(block.group, GROUPS)))

    def _key_place(self, row: Formula, group: Formula) -> Formula:
        """Returns the LDS address of lane (row, group) in fragment 0: place (row xor 2 · group) of its group's sixteen."""
        return (group * ATOM + (row ^ group * 2)) * PLACE + self.regions["K"].offset

    def _value_addresses(self) -> None:
        """Emits the addresses of V.

        Lane bits from the lowest: columns 4 and 8; key 16 of the pair of atoms; two bits of g; column 16. With narrow V: key 2
        comes before g, and there is no column 16. Wave bits: the pair of atoms, then further columns.
        """
        k, block, shape = self.k, self.block, self.shape
        lane, wave, few = of(k.work_item), of(block.wave_number, WAVES), self.rows < QUAD
        half, pair, two = lane // 4 % 2, wave % 2, lane // 8 % 2
        group, more = (lane // 16 % 4, 0) if few else (lane // 8 % 4, lane // 32 % 2)
        within = lane % 4 * 4  # of a column atom
        column = wave // 2 * (16 if few else 32) + more * 16
        row = pair * 32 + half * 16 + group * 4 + (two * 2 if few else 0)
        k.set(self.value_offset, row * block.arguments["V_row"] + (column + within) * 2)
        written = self._value_place(within, group) + half * 8 + (two * 4 if few else 0)
        k.set(self.value_write, written + (column // ATOM + pair * shape.column_atoms) * FRAGMENT)
        k.set(self.value_read, self._value_place(of(block.lane_row, ATOM), of(block.group, GROUPS)))

    def _value_place(self, row: Formula, group: Formula) -> Formula:
        """Returns the LDS address of lane (row, group) in fragment 0: place (row xor 2 · (row / 8) xor group % 2).

        It is one of the sixteen places of the lane's group.
        """
        return (group * ATOM + (row ^ row // 8 * 2 ^ group % 2)) * PLACE + self.regions["V"].offset

    def flip(self, *addresses: Reg) -> None:
        """Moves LDS addresses to the other stage."""
        for address in addresses:
            size = self.key_stage if address in (self.key_write, self.key_read) else self.value_stage
            self.k.v_xor_b32(address, size, address, note="the other stage")

    # -- staging -----------------------------------------------------------------------------

    def load_keys(self) -> None:
        """Loads the lane's part of K's next step, then advances by a step."""
        for n in range(self.key_loads):
            clipped = "K columns" in self.ranges
            offset = self.ranges["K columns"][n] if clipped else self.key_offset
            target = self.ranges["K staging"].group(n, FRAGMENT_WORDS)
            immediate = n * GROUPS * self.shape.vec * self.shape.e
            self.load(target, offset, self.key_buffer, 0, immediate, 16, "K to be staged")
        advance_within(self.k, self.key_buffer, self.key_step)

    def load_values(self) -> None:
        """Loads the lane's part of V's next step, then advances by a step."""
        for u in range(self.value_units):
            for row in range(self.rows):
                soffset, immediate = self.value_rows[row - 1] if row else 0, u * 128 * self.shape.e
                target, note = self._staging_registers(u, row), f"V row {row} to be staged"
                self.load(target, self.value_offset, self.value_buffer, soffset, immediate, 8, note)
        advance_within(self.k, self.value_buffer, self.value_step)

    def _staging_registers(self, unit: int, row: int) -> Reg:
        return self.ranges["V staging"].group(unit * self.rows + row, VALUE_WORDS)

    def store_keys(self) -> None:
        """Writes staged K to LDS."""
        for n in range(self.key_loads):
            self.k.ds_write_b128(self.key_write, self.ranges["K staging"].group(n, FRAGMENT_WORDS), offset=n * FRAGMENT, note="K")

    def store_values(self) -> None:
        """Writes staged V to LDS, the lane's keys of a column together."""
        k, place, halves = self.k, self.ranges["temporaries"][7], self.ranges["V halves"]
        for u in range(self.value_units):
            rows = [self._staging_registers(u, row) for row in range(self.rows)]
            for w in range(2 * VALUE_WORDS):
                gather_column(k, halves, rows, w, self.pack)
                address = k.v_xor_b32(place, 16 * w, self.value_write) if w else self.value_write
                k.ds_write(address, halves[: self.rows // 2], offset=u * 128 // ATOM * FRAGMENT, note=f"V, column {w}")

    # -- products ----------------------------------------------------------------------------

    def value_fragments(self) -> list[LdsFragment]:
        """Returns the fragments of V, in the order of O^T's products."""
        pairs = KEYS_OF_STEP // (2 * ATOM)
        return [LdsFragment(True, p, t) for p in range(pairs) for t in range(self.shape.column_atoms)]

    def key_fragments(self) -> list[LdsFragment]:
        """Returns the fragments of K, in the order of S^T's products."""
        return [LdsFragment(False, a, span) for span in range(len(self.shape.spans)) for a in range(self.shape.na)]

    def read(self, fragments: Sequence[LdsFragment], number: int) -> None:
        """Reads fragment `number` of a sequence into registers."""
        fragment = fragments[number]
        columns = self.shape.column_atoms if fragment.value else len(self.shape.spans)
        address = self.value_read if fragment.value else self.key_read
        name = f"{'V' if fragment.value else 'K'}[{fragment.first}][{fragment.second}]"
        offset = (fragment.first * columns + fragment.second) * FRAGMENT
        self.k.ds_read_b128(self._place(number), address, offset=offset, note=name)

    def read_ahead(self, fragments: Sequence[LdsFragment]) -> None:
        """Reads the first fragments, as many as there are places."""
        for number in range(min(FRAGMENTS, len(fragments))):
            self.read(fragments, number)

    def products(self, fragments: Sequence[LdsFragment], tail: int, ended: Callable[[], object]) -> None:
        """Emits the products of `fragments`, the first FRAGMENTS of which have been read, and the reads of the others.

        ended: emits instructions after the last read, before the last `tail` products.
        """
        for number, fragment in enumerate(fragments):
            self._multiply(fragment, self._place(number))
            if number + FRAGMENTS < len(fragments):
                self.read(fragments, number + FRAGMENTS)
            if number == max(0, len(fragments) - 1 - tail):
                ended()

    def _multiply(self, fragment: LdsFragment, operand: Reg) -> None:
        k, shape = self.k, self.shape
        row = shape.value if fragment.value else shape.score
        size = row.registers("A")
        c: Reg | int
        for step in range(FRAGMENT_WORDS // size):
            for q in range(shape.nq):
                if fragment.value:
                    d = c = self.output(fragment.second, q)
                    start = FRAGMENT_WORDS * fragment.first + size * step
                    other, name = self.weights(q)[start : start + size], f"O[{fragment.second}][{q}]"
                else:
                    d = self.score(q, fragment.first)
                    c = d if fragment.second or step else 0
                    other, name = self.query(q, fragment.second)[size * step : size * (step + 1)], f"S[{q}][{fragment.first}]"
                k.emit(row.mnemonic, d, operand[size * step : size * (step + 1)], other, c, note=name)

    def _place(self, number: int) -> Reg:
        return self.ranges["fragments"].group(number % FRAGMENTS, FRAGMENT_WORDS)


