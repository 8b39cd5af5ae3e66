"""A wave's part of a row of 16-bit elements in registers as loaded, two elements per VGPR.

Three passes unpack a group of registers at a time into f32 temporaries. The first two compute, chunk by chunk while later
chunks are still in flight, the lanes' running m and sums of 2^(factor·x - m). The third computes the values from m and delta of
the row, with each exponential computed again. Register r of a lane holds column 64·s + width·lane + i and the next one, with
2·r = s + i, as in `row.py` but with elements instead of registers. Elements past the row's end are replaced by the infinity that
the factor turns into -infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder
from simgpu.asm.parts.buffers import DWORDS
from simgpu.asm.parts.lanes import Narrowing, unpack
from simgpu.asm.softmax.merge import RowState
from simgpu.asm.softmax.row import LoadGroup, RowPart, groups
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.softmax.plan import LOAD_BYTES, PACKING

CHUNK = 4  # groups between two rescales, as many as in a step of a streamed row
MINUS_INFINITY = {"f16": 0xFC00FC00, "bf16": 0xFF80FF80}
SIGNS = 0x80008000


class PackedPart(RowPart):
    """Emits the code for one part of a row without masks and bands.

        registers   VGPRs, two elements each
        unpacked    VGPRs, one an element of the widest group
        factor      SGPR, neither 0 nor NaN
    """

    def __init__(
        self, k: KernelBuilder, kind: str, registers: Reg, unpacked: Reg, lane: Reg, offset: Reg, scratch: Reg, aligned: Reg | None,
        factor: Reg,
    ) -> None:  # fmt: skip
        self.k, self.kind, self.registers, self.unpacked = k, kind, registers, unpacked
        self.bytes = self.stored_bytes = dtype(kind).bytes
        self.lane, self.offset, self.scratch, self.aligned, self.factor = lane, offset, scratch, aligned, factor
        self.groups = groups(PACKING * registers.count, LOAD_BYTES // self.bytes)
        self.narrowing = None if kind == "f16" else Narrowing(k, kind)

    @property
    def columns(self) -> int:
        """Number of columns in the part."""
        return WAVEFRONT * PACKING * self.registers.count

    def _group_registers(self, group: LoadGroup) -> Reg:
        """Returns the group's registers."""
        return self.registers[group.start // PACKING : (group.start + group.width) // PACKING]

    # -- memory ------------------------------------------------------------------------------

    def load(self, resource: Reg, name: str) -> None:
        """Loads the part into registers; 0 past the buffer's end."""
        for group, address, immediate in self._addresses(self.bytes):
            self.k.emit(f"buffer_load_{DWORDS[group.width // PACKING]}", self._group_registers(group), address, resource, 0,
                        offen=True, offset=immediate, note=_columns(name, group))  # fmt: skip
        self._load_last(resource, self.scratch[0])
        self._place_last(resource, self.scratch[0])

    def _dword(self, group: LoadGroup, i: int, stored: bool = False) -> Reg:
        return self._group_registers(group)[i]

    # -- values ------------------------------------------------------------------------------

    def statistics(self, state: RowState, resource: Reg, left: Reg) -> None:
        """Emits each lane's m and delta. resource, left: X's buffer and its columns."""
        k, minus, m, delta = self.k, self.scratch[0], state.lane_m, state.delta
        for first in range(0, len(self.groups), CHUNK):
            chunk = self.groups[first : first + CHUNK]
            self._clip(chunk, resource, left)
            state.keep()
            for group in chunk:
                self._maximum(self._scores(group, 0), m)
            state.limit()
            state.rescale()
            self._negate(minus, m)
            for group in chunk:
                for value in self._exponentials(group, minus):
                    k.v_add_f32(delta, value, delta)

    def values(self, state: RowState, resource: Reg, name: str) -> None:
        """Stores 2^(factor·x - m) · delta of every element, rounded to the type. delta: as `normalise` leaves it."""
        k, minus = self.k, self.scratch[0]
        self._negate(minus, state.lane_m)
        for group, address, immediate in self._addresses(self.bytes):
            self._pack(self._exponentials(group, minus), self._group_registers(group), state.delta)
            k.emit(f"buffer_store_{DWORDS[group.width // PACKING]}", self._group_registers(group), address, resource, 0, offen=True,
                   offset=immediate, note=_columns(name, group))  # fmt: skip
        self._store_last(resource)

    def _clip(self, chunk: Sequence[LoadGroup], resource: Reg, left: Reg) -> None:
        """Makes elements past the row's end count 0 after exp (E30), if a chunk has any."""
        k, inside = self.k, self.k.new_label("inside")
        end = WAVEFRONT * (chunk[-1].start + chunk[-1].width)
        with k.out_of_line("clip", inside) as clip:
            fill, odd, limit = self.scratch[2], self.scratch[3], k.s.alloc("limit")
            k.s_cmp_lt_i32(self.factor, 0)
            k.s_cselect_b32(limit, SIGNS, 0)
            k.s_xor_b32(limit, limit, MINUS_INFINITY[self.kind], note="what the factor makes -infinity")
            k.v_mov_b32(fill, limit)
            for group, address, immediate in self._addresses(self.bytes, chunk):
                for i in range(group.width):
                    r = self._group_registers(group)[i // PACKING]
                    if i % PACKING:
                        k.v_lshlrev_b32(odd, 16, r)
                        k.v_alignbit_b32(odd, fill, odd, 16, note="the first of the two stays")
                    k.s_sub_u32(limit, resource[2], immediate + self.bytes * i)
                    k.v_cmp_gt_i32("vcc", limit, address)
                    k.v_cndmask_b32(r, odd if i % PACKING else fill, r, "vcc", note=f"{_columns('columns', group)} + {i}")
            k.s.free(limit)
        k.s_cmp_lt_i32(left, end)
        k.s_cbranch_scc1(clip)
        k.label(inside)

    def _scores(self, group: LoadGroup, addend: Reg | int) -> Reg:
        """Emits factor·x + addend of a group's elements, in f32. addend: a VGPR, or 0."""
        k, found, held = self.k, self.unpacked[0 : group.width], self._group_registers(group)
        if self.kind == "f16":
            for i in range(group.width):
                k.v_fma_mix_f32(found[i], held[i // PACKING], self.factor, addend, op_sel=f"[{i % PACKING},0,0]",
                                op_sel_hi="[1,0,0]")  # fmt: skip
            return found
        for i in range(held.count):
            unpack(k, self.kind, found[PACKING * i], found[PACKING * i + 1], held[i])
        for i in range(group.width):
            if isinstance(addend, Reg):
                k.v_fma_f32(found[i], self.factor, found[i], addend)
            else:
                k.v_mul_f32(found[i], self.factor, found[i])
        return found

    def _maximum(self, values: Reg, m: Reg) -> None:
        """Emits m = the largest of m and the values; NaNs do not count (v_max3_f32)."""
        for i in range(0, values.count, 2):
            self.k.v_max3_f32(m, m, values[i], values[i + 1])

    def _negate(self, minus: Reg, m: Reg) -> None:
        self.k.v_xor_b32(minus, 1 << 31, m, note="-m")

    def _exponentials(self, group: LoadGroup, minus: Reg) -> list[Reg]:
        """Emits 2^(factor·x - m) of a group's elements, in f32. minus: -m."""
        found = self._scores(group, minus)
        values = [found[i] for i in range(found.count)]
        for value in values:
            self.k.v_exp_f32(value, value)
        return values

    def _pack(self, values: Sequence[Reg], held: Reg, share: Reg) -> None:
        """Emits held = the values times `share`, rounded to the type."""
        k = self.k
        if self.narrowing is None:
            for i, value in enumerate(values):
                place = "hi" if i % PACKING else "lo"
                k.emit(f"v_fma_mix{place}_f16", held[i // PACKING], value, share, 0, op_sel_hi="[0,0,0]")
            return
        for value in values:
            k.v_mul_f32(value, share, value)
        for i in range(held.count):
            self.narrowing.pack(held[i], values[PACKING * i], values[PACKING * i + 1], self.scratch[2])


def _columns(name: str, group: LoadGroup) -> str:
    return f"{name} columns {WAVEFRONT * group.start} + {group.width}·lane"
