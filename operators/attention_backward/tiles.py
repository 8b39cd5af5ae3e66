"""Tiles of the kernels of gradients, and properties that follow from their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.attention.problem import ATOM, GAINS
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import Constraint, Derivation, ResourcePlan

SIDES = ("keys", "queries")
WAVES = 4
PADDED = 32  # rows are padded to a multiple of this: two atoms of 16 columns, 16 bytes a lane
ROW_PAD = 16  # bytes after a row in LDS, so that rows begin in different banks
UNIT_ROWS = 4  # rows of the block of rows by columns that a lane moves to LDS


def padded_width(width: int) -> int:
    """Returns the columns of a row in registers and LDS."""
    return -(-width // PADDED) * PADDED


@dataclass(frozen=True)
class MovedTile:
    """Rows of a step of one array, as they pass through LDS."""

    name: str
    rows: int
    width: int  # columns in memory
    columns: bool  # True if LDS has its columns, too

    @property
    def padded(self) -> int:
        """Columns in LDS."""
        return padded_width(self.width)

    @property
    def unit_columns(self) -> int:
        """Columns of the block of 4 rows that a lane moves: 4, or 2 if not all lanes have one then."""
        return 4 if self.rows * self.padded >= 16 * WAVES * 64 else 2

    @property
    def units(self) -> int:
        """Blocks of the tile."""
        return self.rows // UNIT_ROWS * self.padded // self.unit_columns

    @property
    def loads(self) -> int:
        """Blocks of a lane."""
        return -(-self.units // (WAVES * 64))

    @property
    def registers(self) -> int:
        """Registers of a lane's blocks."""
        return self.loads * UNIT_ROWS * self.unit_columns // 2

    @property
    def row_bytes(self) -> int:
        """Bytes in LDS from a row to the next."""
        return 2 * self.padded + ROW_PAD

    @property
    def column_bytes(self) -> int:
        """Bytes in LDS from a column to the next: its rows, and padding of half an operand."""
        return 2 * self.rows + self.rows // 2

    @property
    def rows_size(self) -> int:
        """Bytes of the rows."""
        return self.rows * self.row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of a stage."""
        return self.rows_size + self.columns * self.padded * self.column_bytes


@dataclass(frozen=True)
class GradientPlan(Derivation):
    """Tiles of one kernel of gradients.

    >>> from simgpu.operators import AttentionBackward, AttentionBackwardProblem
    >>> tree = AttentionBackward(AttentionBackwardProblem(4096, 4096, 128, 16, dtype="bf16"), "mi300x")
    >>> tree.parts[1].plan.sizes
    {'tile_keys': 256, 'step': 16, 'stages': 2}
    """

    problem: AttentionBackwardProblem
    descriptor: HardwareDescriptor
    policy: str
    side: str  # whose rows a block owns: keys or queries
    atoms: int  # atoms of 16 rows of a wave
    step: int  # rows of the other side in a step
    stages: int  # stages of LDS
    resources: ResourcePlan
    constraints: tuple[Constraint, ...]

    @property
    def title(self) -> str:
        """Gradients, sizes, type and target, for messages."""
        p, d = self.problem, self.descriptor
        return (
            f"{' and '.join(self.results)} of attention {p.batch}x{p.heads} heads, {p.lq} queries, {p.lk} keys, d = {p.d}, "
            f"{p.dtype} on {d.name or d.arch}"
        )

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the gradients."""
        return ("dK", "dV") if self.side == "keys" else ("dQ",)

    @property
    def own(self) -> tuple[str, str]:
        """Names of the arrays whose rows a block owns: the operands of S and of dP."""
        return ("K", "V") if self.side == "keys" else ("Q", "dO")

    @property
    def moved(self) -> tuple[MovedTile, MovedTile]:
        """Tiles that pass through LDS: the other operands of S and of dP."""
        return moved_tiles(self.problem, self.side, self.step)

    @property
    def other(self) -> str:
        """Name of the axis that a block loops over."""
        return "queries" if self.side == "keys" else "keys"

    @property
    def tile(self) -> int:
        """Rows of a block."""
        return WAVES * ATOM * self.atoms

    @property
    def gain(self) -> float:
        """Factor of P before it is rounded for dV."""
        return GAINS.get(self.problem.dtype, 1.0) if self.side == "keys" else 1.0

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        return {f"tile_{self.side}": self.tile, "step": self.step, "stages": self.stages}

    @property
    def steps(self) -> int:
        """Steps of a block that sees all rows of the other side."""
        p = self.problem
        return p.group * -(-p.lq // self.step) if self.side == "keys" else -(-p.lk // self.step)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        p = self.problem
        heads, rows = (p.kv_heads, p.lk) if self.side == "keys" else (p.heads, p.lq)
        return p.batch * heads * -(-rows // self.tile)

    @property
    def nest(self) -> Nest:
        """Loops of the tree: blocks by heads and rows, steps by query heads and the other side's rows, waves by rows."""
        group, other = TileLoop("group", 1, self.side == "queries"), TileLoop(self.other, self.step)
        heads = TileLoop("batch", 1, True), TileLoop("kv_heads", 1, True)
        rows, waves = TileLoop(self.side, self.tile, True), TileLoop(self.side, ATOM * self.atoms, True)
        atoms = TileLoop(self.other, ATOM), TileLoop(self.side, ATOM)
        if self.side == "keys":
            return {Level.DEVICE: (*heads, rows), Level.BLOCK: (group, other, waves), Level.WARP: atoms}
        return {Level.DEVICE: (*heads, group, rows), Level.BLOCK: (other, waves), Level.WARP: atoms}


def moved_tiles(p: AttentionBackwardProblem, side: str, step: int) -> tuple[MovedTile, MovedTile]:
    """Returns the tiles of a step that pass through LDS."""
    if side == "keys":
        return MovedTile("Q", step, p.d, True), MovedTile("dO", step, p.dv, True)
    return MovedTile("K", step, p.d, True), MovedTile("V", step, p.dv, False)
