"""Frame of a wave of a kernel of rows: sizes, places of chunks, buffers of operands."""

from __future__ import annotations

from typing import NamedTuple

from simgpu.asm.builder.formula import Formula, log2, of
from simgpu.asm.builder.kernel import KernelBuilder, LdsRegion
from simgpu.asm.builder.registers import WORD
from simgpu.asm.parts.buffers import buffer_at, new_buffer
from simgpu.asm.parts.integer_math import WideTerm
from simgpu.asm.parts.lanes import lane_number
from simgpu.asm.rows.places import Operands, Places
from simgpu.hardware.descriptor import WAVEFRONT
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
        k, waves, nbytes = self.k, self.tiles.waves_row, WORD * held.count
        region = k.region(f"{name} of waves", nbytes * waves)
        assert self.wave is not None
        k.set(address, of(self.wave) * nbytes)
        with k.lanes(1, "one lane"):
            k.ds_write(address, held, offset=region.offset)
        k.s_barrier()
        lane_number(k, address)
        k.set(address, of(address) % waves * nbytes)
        return region

    def states_buffer(self, resource: Reg, nbytes: int) -> None:
        """Builds a raw buffer of what the parts of the wave's row have stored, `nbytes` each."""
        nbytes *= self.tiles.parts
        buffer_at(self.k, resource, self.arguments[STATES], STATES, (self.row, nbytes), nbytes=nbytes)

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
            self._array(name, self.tiles.columns * p.element.bytes)
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

    def _array(self, name: str, nbytes: Formula | int, *start: WideTerm) -> None:
        """Builds the buffer of a vector, or of rows of a table. start: its first byte."""
        resource = new_buffer(self.k, self.arguments[name], name, *start, nbytes=nbytes)
        self.operands[name] = Operands(name, resource, self.problem.element.bytes)

    def _matrix(self, name: str, pointer: str, row: Reg | None, stride: Reg | int, element: int, part: int, width: int = 0) -> None:
        """Builds the buffer of a part of the wave's rows: it ends with the last row."""
        k, width = self.k, width or self.tiles.columns
        rows = (of(self.arguments["rows"]) - self.row).least(self.rows_wave)
        nbytes = width * element if self.rows_wave == 1 else (rows - 1) * stride + width * element
        first = [(part * width * element, 1)] if part else []
        resource = new_buffer(k, self.arguments[pointer], name, (self.row, stride), *first, nbytes=nbytes)
        self.operands[name] = Operands(name, resource, element, row, stride)

    def _row_result(self, name: str) -> None:
        k, p = self.k, self.problem
        element = dtype(p.row_type).bytes
        apart = k.set(k.s.alloc("bytes of a row's results"), p.groups * element)
        self._matrix(name, name, self._row_offset(apart), apart, element, 0, p.groups)

    def _tables(self) -> None:
        """Emits the buffers of tables, from the row of the wave's first row. A lane's row of them is `table_rows` of its load."""
        k, p = self.k, self.problem
        nbytes, row = self.tiles.columns * p.element.bytes, of(self.row, p.rows + self.tiles.rows)
        within, first = k.scalar("row of a token", row % p.repeat), k.scalar("first row of tables", row // p.repeat)
        for load in range(self.in_flight):
            number = of(within) + load * self.tiles.rows_load
            if self.lane_row is not None:
                number += self.lane_row
            place = number.below(p.repeat + self.rows_wave) // p.repeat * nbytes
            self.table_rows.append(k.set(k.v.alloc("lane's row of tables"), place))
        left = (p.rows // p.repeat - of(first)).least(-(-self.rows_wave // p.repeat) + 1)
        for name in p.tables:
            self._array(name, left * nbytes, (first, nbytes))
        k.s.free(first, within)
