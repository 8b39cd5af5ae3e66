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
from simgpu.asm.builder.kernel import WAVEFRONT
from simgpu.asm.parts.buffers import OUTSIDE
from simgpu.asm.parts.integer_math import log2
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
        k.s_mul_i32(self.key_step, a["K_row"], KEYS_OF_STEP)
        k.s_mul_i32(self.value_step, a["V_row"], KEYS_OF_STEP)
        for row, register in enumerate(self.value_rows, 1):
            k.s_mul_i32(register, a["V_row"], row)
        self._key_addresses()
        self._value_addresses()
        k.comment(f"fragments of K: atom, {len(shape.spans)} spans; of V: pair of atoms, {shape.column_atoms} column atoms")

    def _key_addresses(self) -> None:
        """Emits the addresses of K.

        A wave loads `key_loads` fragments of key atom wave % 4, from span (wave / 4) · key_loads on. Four lanes load 64 bytes of a
        key.
        """
        k, shape, block = self.k, self.shape, self.block
        atom, part = k.s.alloc("atom"), k.s.alloc("first span")
        row, column, group = (self.ranges["temporaries"][n] for n in range(3))
        k.s_and_b32(atom, block.wave_number, 3)
        k.s_lshr_b32(part, block.wave_number, 2)
        k.s_mul_i32(part, part, self.key_loads)
        k.v_and_b32(group, GROUPS - 1, k.work_item)
        k.v_bfe_u32(row, k.work_item, 2, 4)
        self._key_place(self.key_write, row, group, column)
        k.s_mul_i32(part, part, GROUPS * shape.vec)
        k.v_lshl_add_u32(column, group, log2(shape.vec), part, note="first column of the lane")
        k.s_mul_i32(atom, atom, ATOM)
        k.v_add_u32(row, atom, row)
        k.v_mul_lo_u32(self.key_offset, row, block.arguments["K_row"])
        k.v_lshl_add_u32(self.key_offset, column, 1, self.key_offset)
        for n in range(self.key_loads) if "K columns" in self.ranges else ():
            k.v_cmp_gt_i32("vcc", self.block.plan.problem.d - n * GROUPS * shape.vec, column)
            k.v_cndmask_b32(self.ranges["K columns"][n], OUTSIDE, self.key_offset, "vcc", note="columns past d read 0")
        k.s_mul_i32(atom, atom, len(shape.spans) * FRAGMENT // ATOM)
        k.s_mul_i32(part, part, FRAGMENT // (GROUPS * shape.vec))
        k.s_add_u32(atom, atom, part)
        k.v_add_u32(self.key_write, atom, self.key_write)
        self._key_place(self.key_read, block.lane_row, block.group, column)
        k.s.free(atom, part)

    def _key_place(self, target: Reg, row: Reg, group: Reg, spare: Reg) -> None:
        """Emits target = LDS address of lane (row, group) in fragment 0: place (row xor 2 · group) of its group's sixteen."""
        k = self.k
        k.v_lshlrev_b32(spare, 1, group)
        k.v_xor_b32(spare, row, spare)
        k.v_lshl_add_u32(target, group, 4, spare)
        k.v_lshlrev_b32(target, 4, target)
        k.v_add_u32(target, self.regions["K"].offset, target)

    def _value_addresses(self) -> None:
        """Emits the addresses of V.

        Lane bits from the lowest: columns 4 and 8; key 16 of the pair of atoms; two bits of g; column 16. With narrow V: key 2
        comes before g, and there is no column 16. Wave bits: the pair of atoms, then further columns.
        """
        k, block, shape = self.k, self.block, self.shape
        column, half, group, two, row, spare = (self.ranges["temporaries"][n] for n in range(6))
        number = k.s.alloc("wave's part")
        k.v_and_b32(column, 3, k.work_item)
        k.v_lshlrev_b32(column, 2, column)
        k.v_bfe_u32(half, k.work_item, 2, 1)
        few = self.rows < QUAD
        if few:
            k.v_bfe_u32(two, k.work_item, 3, 1)
        else:
            k.v_bfe_u32(spare, k.work_item, 5, 1)
            k.v_lshl_add_u32(column, spare, 4, column)
        k.v_bfe_u32(group, k.work_item, 4 if few else 3, 2)
        k.s_lshr_b32(number, block.wave_number, 1)
        k.s_lshl_b32(number, number, 4 if few else 5)
        k.v_add_u32(column, number, column, note="first column of the lane")
        k.s_and_b32(number, block.wave_number, 1, note="pair of key atoms")
        k.v_lshlrev_b32(row, 4, half)
        k.v_lshl_add_u32(row, group, 2, row)
        if few:
            k.v_lshl_add_u32(row, two, 1, row)
        k.s_lshl_b32(number, number, 5)
        k.v_add_u32(row, number, row, note="first of the lane's keys")
        k.v_mul_lo_u32(self.value_offset, row, block.arguments["V_row"])
        k.v_lshl_add_u32(self.value_offset, column, 1, self.value_offset)
        k.s_mul_i32(number, number, shape.column_atoms * FRAGMENT // 32)
        k.v_and_b32(row, ATOM - 1, column)
        self._value_place(self.value_write, row, group, spare)
        k.v_lshl_add_u32(self.value_write, half, 3, self.value_write)
        if few:
            k.v_lshl_add_u32(self.value_write, two, 2, self.value_write)
        k.v_lshrrev_b32(column, log2(ATOM), column)
        k.v_lshl_add_u32(self.value_write, column, log2(FRAGMENT), self.value_write)
        k.v_add_u32(self.value_write, number, self.value_write)
        self._value_place(self.value_read, block.lane_row, block.group, spare)
        k.s.free(number)

    def _value_place(self, target: Reg, row: Reg, group: Reg, spare: Reg) -> None:
        """Emits target = LDS address of lane (row, group) in fragment 0: place (row xor 2 · (row / 8) xor group % 2).

        It is one of the sixteen places of the lane's group.
        """
        k = self.k
        k.v_lshrrev_b32(spare, 3, row)
        k.v_lshlrev_b32(spare, 1, spare)
        k.v_xor_b32(spare, row, spare)
        k.v_and_b32(target, 1, group)
        k.v_xor_b32(spare, spare, target)
        k.v_lshl_add_u32(target, group, 4, spare)
        k.v_lshlrev_b32(target, 4, target)
        k.v_add_u32(target, self.regions["V"].offset, target)

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
                for pair in range(self.rows // 2):
                    k.v_perm_b32(halves[pair], rows[2 * pair + 1][w // 2], rows[2 * pair][w // 2], self.pack[w % 2])
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


