"""Plans of rows: their base, the tiles of an operator on rows, those that its emitter needs, and common limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import Constraint, Derivation, ResourcePlan
from simgpu.operators.rows.problem import RowOperator
from simgpu.operators.rows.program import RowProgram

LOAD_BYTES = 16  # the widest load of a lane
WAVES = 4  # waves of a block whose waves have rows of their own
IN_FLIGHT = (1, 2, 4)  # numbers of loads of short rows, or of rows, that a wave may have in flight
ROW_WAVES = (1, 4, 8)  # numbers of waves that may keep a row: a CU has 8 at two waves per SIMD
GRANULE = 8  # chunks: a wave's part of a row is a multiple of it, so that it begins with a cache line
MOST_SPAN = 1 << 30  # limit for the rows of a wave, so that an offset outside a buffer stays outside for the next rows


class RowDerivation(Derivation):
    """Base of the plans of rows: a block has rows for each wave, or one row for its waves.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> plan = RowTree(RmsNorm(rows=4096, n=100), "mi300x").plan
    >>> plan.rows_load, plan.tile_rows
    (2, 8)
    """

    lanes_row: int  # lanes that share a row
    waves_row: int  # waves that share a row, or its part
    in_flight: int  # loads of short rows, or rows, that a wave has in flight

    @property
    def rows_load(self) -> int:
        """Rows in a load of a wave."""
        return self.descriptor.wavefront_size // self.lanes_row

    @property
    def rows_wave(self) -> int:
        """Rows of a wave."""
        return self.in_flight * self.rows_load

    @property
    def tile_rows(self) -> int:
        """Rows of a block."""
        return self.rows_wave * (WAVES if self.waves_row == 1 else 1)

    @property
    def waves(self) -> int:
        """Waves of a block."""
        return max(WAVES, self.waves_row)


@dataclass(frozen=True)
class RowTiles:
    """Sizes of the tiles of a kernel of rows, from the loops and axes of its tree. A chunk is what a lane loads at a time.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> RowTree(RmsNorm(rows=4096, n=1000), "mi300x").row_tiles.chunks
    250
    """

    columns: int  # elements of a row
    rows: int  # rows of a block
    rows_load: int  # rows of one load of a wave
    chunk: int  # elements of a chunk, at most a row's
    part: int  # chunks of a wave's part of a row
    parts: int  # blocks that share a row
    waves_row: int  # waves of a block that share a row, or its part
    loads: int  # chunks of a row that a lane has in registers at a time

    @property
    def chunks(self) -> int:
        """Chunks of a row. The last one ends with the row, and may overlap the one before."""
        return -(-self.columns // self.chunk)


@dataclass(frozen=True)
class RowPlan(RowDerivation):
    """Tiles, resources and constraints of an operator on rows.

    >>> from simgpu.operators import RmsNorm, RowTree
    >>> RowTree(RmsNorm(rows=4096, n=4095, dtype="f16"), "mi300x").plan.sizes
    {'chunk': 8, 'lanes_row': 64, 'waves_row': 1, 'loads': 8, 'in_flight': 1, 'parts': 1, 'reads': 1}
    """

    problem: RowOperator
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    chunk: int  # elements of a load of a lane
    lanes_row: int  # lanes that share a row
    waves_row: int  # waves that share a row, or its part
    part: int  # chunks of a wave's part of a row
    loads: int  # loads of a lane that are in registers at a time, of each operand
    in_flight: int  # loads of short rows, or rows, that a wave has in flight
    resident: bool  # True: a wave's part is in registers; False: it is streamed in steps
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Sizes, types and target, for messages."""
        p, d = self.problem, self.descriptor
        types = p.dtype if p.dtype_y == p.dtype else f"{p.dtype} to {p.dtype_y}"
        return f"{p.name} {p.rows}x{p.n} {types} on {d.name or d.arch}"

    @cached_property
    def program(self) -> RowProgram:
        """Expressions of the kernel."""
        whole = self.problem.program(self.descriptor.arch)
        return whole if self.resident else whole.streamed

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        names = ("chunk", "lanes_row", "waves_row", "loads", "in_flight", "parts", "reads")
        return {name: getattr(self, name) for name in names}

    @property
    def chunks(self) -> int:
        """Chunks of a row."""
        return -(-self.problem.columns // self.chunk)

    @property
    def overlap(self) -> int:
        """Elements that a row's last chunk shares with the one before."""
        return self.chunks * self.chunk - self.problem.columns

    @property
    def parts(self) -> int:
        """Blocks that share a row."""
        return -(-self.chunks // (self.part * self.waves_row))

    @property
    def shares_rows(self) -> bool:
        """True if a reduction needs whole rows."""
        return whole_rows(self.problem)

    @property
    def split(self) -> bool:
        """True if blocks share rows that are reduced whole: then there is a kernel for each pass."""
        return self.shares_rows and self.parts > 1

    @property
    def reads(self) -> int:
        """Number of times that X is read."""
        return 1 if self.resident else self.program.reads

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return -(-self.problem.rows // self.tile_rows) * self.parts

    @property
    def nest(self) -> Nest:
        """Loops of the tree: a block has rows, or a row or its part; a wave a part; a load some lanes of chunks."""
        part = self.part * self.chunk
        return {
            Level.DEVICE: (TileLoop("rows", self.tile_rows, True), TileLoop("n", part * self.waves_row, True)),
            Level.BLOCK: (TileLoop("rows", self.rows_load, True), TileLoop("n", part, self.waves_row > 1)),
            Level.WARP: (TileLoop("rows", 1), TileLoop("n", self.lanes_row * self.chunk)),
        }


def whole_rows(p: RowOperator) -> bool:
    """True if a reduction needs whole rows."""
    return bool(p.sums or p.maxima) and p.groups == 1
