"""Frame of a wave of a kernel of rows: sizes, operands, places of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.rows.operands import row_buffer
from simgpu.asm.rows.places import Operands, Places
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.rows.problem import RowOperands
from simgpu.operators.rows.program import RowProgram
from simgpu.operators.rows.tiles import RowTiles

STATES = "states"  # scratch memory for reduced values of a split row's parts


class Place(NamedTuple):
    """Elements in registers: those of a load of a wave, which has rows of its own, and of some groups."""

    load: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class RowFrame:
    """Sizes, operands and registers of a wave."""

    k: KernelBuilder
    plan: Any
    problem: RowOperands
    program: RowProgram
    tiles: RowTiles
    in_flight: int  # loads of a wave, of other rows each
    lanes: int  # that share a row in a wave
    arguments: dict[str, Reg]
    row: Reg  # SGPR, the wave's first row
    wave: Reg | None  # SGPR, the wave's number, if waves merge what they reduce
    places: Places
    operands: dict[str, Operands]
    table_rows: list[Reg]  # VGPRs, bytes to the lane's row of tables, for each load

    def states_buffer(self, resource: Reg, nbytes: int) -> None:
        """Builds a raw buffer of what the parts of the wave's row have stored, `nbytes` each."""
        nbytes *= self.tiles.parts
        row_buffer(self.k, resource, self.arguments[STATES], self.row, nbytes, STATES, nbytes=nbytes)
