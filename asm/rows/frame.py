"""Frame of a wave of a kernel of rows: sizes, places of chunks, buffers of operands."""

from __future__ import annotations

from typing import NamedTuple

from simgpu.asm.builder.kernel import WAVEFRONT, KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import log2, scalar_divmod, vector_divmod
from simgpu.asm.parts.lanes import lane_number
from simgpu.asm.rows.places import Operands, Places
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.problem import RowOperands
from simgpu.operators.rows.tree import RowTree
from simgpu.operators.softmax.tree import Softmax

STATES = "states"  # scratch memory for reduced values of a split row's parts


class Place(NamedTuple):
    """Elements in registers: those of a load of a wave, which has rows of its own, and of some groups."""

    load: int
    groups: tuple[int, ...]


def row_buffer(k: KernelBuilder, resource: Reg, base: Reg, row: Reg, stride: Operand, name: str, column: int = 0,
               nbytes: Operand | None = None) -> None:  # fmt: skip
    """Builds a raw buffer of an array from a row on.

    base: SGPR pair of its pointer. stride: bytes from row to row. column: bytes into the row. nbytes: of the buffer; None: the
    caller sets them.
    """
    offset = k.s.alloc("byte offset", 2)
    k.s_mul_hi_u32(offset[1], row, stride)
    k.s_mul_i32(offset[0], row, stride)
    if column:
        k.s_add_u32(offset[0], offset[0], column)
        k.s_addc_u32(offset[1], offset[1], 0)
    raw_buffer(k, resource, base, (offset[0], offset[1]), name)
    k.s.free(offset)
    if nbytes is not None:
        k.s_mov_b32(resource[2], nbytes)


class RowFrame:
    """Emits the buffers of a wave's operands: its rows, vectors, tables, results of rows.

        arguments    SGPRs of the kernel's arguments
        row          SGPR, the wave's first row
        rows_wave    rows of a wave
        wave         SGPR, the wave's number, if waves merge what they reduce
        places       places of chunks
        in_flight    loads of a wave, of other rows each
        lanes        lanes of a wave that share a row
        operands     operands by name; a half of X's rows has a name of its own
        table_rows   VGPRs, bytes to the lane's row of tables, for each load
    """

    def __init__(
        self, k: KernelBuilder, root: RowTree | Softmax, arguments: dict[str, Reg], row: Reg, rows_wave: int, wave: Reg | None,
        places: Places,
    ) -> None:  # fmt: skip
        self.k, self.plan, self.program, self.tiles = k, root.plan, root.program, root.row_tiles
        self.problem: RowOperands = root.problem
        self.arguments, self.row, self.rows_wave, self.wave, self.places = arguments, row, rows_wave, wave, places
        self.in_flight, self.lanes = rows_wave // self.tiles.rows_load, WAVEFRONT // self.tiles.rows_load
        self.operands: dict[str, Operands] = {}
        self.table_rows: list[Reg] = []
        self.lane_row: Reg | None = None
        self._buffers()

    def share(self, held: Reg, address: Reg, name: str) -> LdsRegion:
        """Emits the write of the wave's registers to LDS and a barrier. Emits address = that of the values of wave lane % waves.

        held: VGPRs, a power of two of them, equal in all lanes.
        """
        k, waves, nbytes, place = self.k, self.tiles.waves_row, WORD * held.count, self.k.s.alloc("place")
        region = k.region(f"{name} of waves", nbytes * waves)
        k.s_lshl_b32(place, self.wave, log2(nbytes))
        k.v_mov_b32(address, place)
        k.s.free(place)
        with k.lanes(1, "one lane"):
            k.ds_write(address, held, offset=region.offset)
        k.s_barrier()
        lane_number(k, address)
        k.v_and_b32(address, waves - 1, address)
        k.v_lshlrev_b32(address, log2(nbytes), address)
        return region

    def states_buffer(self, resource: Reg, nbytes: int) -> None:
        """Builds a raw buffer of what the parts of the wave's row have stored, `nbytes` each."""
        nbytes *= self.tiles.parts
        row_buffer(self.k, resource, self.arguments[STATES], self.row, nbytes, STATES, nbytes=nbytes)

    def _buffers(self) -> None:
        """Emits the buffers, and the offsets of lanes' rows."""
        k, p, rows_load = self.k, self.problem, self.tiles.rows_load
        if rows_load > 1:
            self.offsets = [k.v.alloc(f"{name} of rows") for name in ("ldx", "ldy", *p.row_results)]
            self.lane_row = k.v.alloc("lane's row")
            k.v_lshrrev_b32(self.lane_row, log2(WAVEFRONT // rows_load), k.work_item)
        strides = {}
        for name, element in (("ldx", p.element.bytes), ("ldy", p.element_y.bytes)):
            k.s_lshl_b32(self.arguments[name], self.arguments[name], log2(element), note=f"bytes of {name}")
            strides[name] = self._row_offset(self.arguments[name])
        halves = [(f"x{i}" if p.halves else "x", "X", i) for i in range(p.parts)]
        for name, pointer, part in (*halves, *((name, name, 0) for name in p.matrices)):
            self._matrix(name, pointer, strides["ldx"], self.arguments["ldx"], p.element.bytes, part)
        for number, name in enumerate(p.results):
            pointer, part = ("Y", number) if p.parts_y > 1 else ("Y" if name == "y" else name, 0)
            self._matrix(name, pointer, strides["ldy"], self.arguments["ldy"], p.element_y.bytes, part)
        for name in p.vectors:
            self._array(name, (0, 0), self.tiles.columns * p.element.bytes)
        if p.tables:
            self._tables()
        for name in p.row_results:
            self._row_result(name)
        if "mask" in p.read:
            self._matrix("mask", "mask", None, p.n, 1, 0)
        if self.lane_row is not None:
            k.v.free(self.lane_row)

    def _row_offset(self, stride: Reg) -> Reg | None:
        """Returns a VGPR with the bytes from a load's first row to the lane's; None if a load has one row."""
        if self.lane_row is None:
            return None
        return self.k.v_mul_lo_u32(self.offsets.pop(0), self.lane_row, stride)  # type: ignore[no-any-return]

    def _array(self, name: str, start: tuple[Operand, Operand], nbytes: Operand) -> None:
        """Builds the buffer of a vector, or of rows of a table. start: its first byte (low, high words)."""
        resource = self.k.s.alloc(f"{name} buffer", 4)
        raw_buffer(self.k, resource, self.arguments[name], start, name)
        self.k.s_mov_b32(resource[2], nbytes)
        self.operands[name] = Operands(name, resource, self.problem.element.bytes)

    def _matrix(self, name: str, pointer: str, row: Reg | None, stride: Reg | int, element: int, part: int, width: int = 0) -> None:
        """Builds the buffer of a part of the wave's rows: it ends with the last row."""
        k, width = self.k, width or self.tiles.columns
        resource = k.s.alloc(f"{name} buffer", 4)
        nbytes = width * element if self.rows_wave == 1 else None
        row_buffer(k, resource, self.arguments[pointer], self.row, stride, name, part * width * element, nbytes)
        if nbytes is None:
            k.s_sub_u32(resource[2], self.arguments["rows"], self.row)
            k.s_min_u32(resource[2], resource[2], self.rows_wave)
            k.s_sub_u32(resource[2], resource[2], 1)
            k.s_mul_i32(resource[2], resource[2], stride)
            k.s_add_u32(resource[2], resource[2], width * element, note="bytes of the rows")
        self.operands[name] = Operands(name, resource, element, row, stride)

    def _row_result(self, name: str) -> None:
        k, p = self.k, self.problem
        apart, element = k.s.alloc("bytes of a row's results"), dtype(p.row_type).bytes
        k.s_mov_b32(apart, p.groups * element)
        self._matrix(name, name, self._row_offset(apart), apart, element, 0, p.groups)

    def _tables(self) -> None:
        """Emits the buffers of tables, from the row of the wave's first row. A lane's row of them is `table_rows` of its load."""
        k, p = self.k, self.problem
        first, nbytes = k.s.alloc("first row of tables"), self.tiles.columns * p.element.bytes
        offset = k.s.alloc("byte offset", 2)
        k.s_mov_b32(first, self.row)
        within = scalar_divmod(k, first, p.repeat, p.rows + self.tiles.rows, "row of a token")
        k.s_mul_hi_u32(offset[1], first, nbytes)
        k.s_mul_i32(offset[0], first, nbytes)
        limit = -(-self.rows_wave // p.repeat) + 1
        k.s_sub_u32(first, p.rows // p.repeat, first, note="rows of tables left")
        k.s_min_u32(first, first, limit)
        k.s_mul_i32(first, first, nbytes)
        for load in range(self.in_flight):
            number = k.v.alloc("lane's row of tables")
            k.v_mov_b32(number, within)
            if self.lane_row is not None:
                k.v_add_u32(number, self.lane_row, number)
            k.v_add_u32(number, load * self.tiles.rows_load, number)
            quotient, remainder = vector_divmod(k, number, p.repeat, p.repeat + self.rows_wave, "row of tables")
            k.v.free(remainder, number)
            k.v_mul_u32_u24(quotient, nbytes, quotient)
            self.table_rows.append(quotient)
        for name in p.tables:
            self._array(name, (offset[0], offset[1]), first)
        k.s.free(first, within, offset)
