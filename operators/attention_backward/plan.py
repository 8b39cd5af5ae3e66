"""Tiles, registers and LDS of the kernels of gradients, in closed form.

Both kernels have the same form. A block owns rows of one side: keys for dK and dV, queries for dQ. It loops over the rows of the
other side that it sees, `step` at a time, which pass through LDS. Its four waves own `atoms` atoms of 16 rows each. Letters: s
atoms of a wave, m rows of a step, d and dv widths padded to PADDED. Per lane, in 32-bit registers:

    own rows       s*(d + dv)/8: K and V, or Q and dO, as operands of S and dP; V or dO in AccVGPRs if these have room
    S, dP          s*m/4 each; on targets with a file of accumulators, the same again outside it
    P, dS          s*m/8 each, rounded to the operands' type; P only for dV
    gradients      s*d/4, and s*dv/4 for dV
    staging        a lane's part of a step in flight from memory
    fragments      FRAGMENTS reads of 16 bytes in flight from LDS

LDS holds each stage of a step twice: rows as operands of S and dP, columns as operands of the gradients. dV needs the columns of
dO, dK those of Q, and dQ those of K.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import LaunchError, TargetError
from simgpu.operators.arguments import POLICIES, one_of
from simgpu.operators.attention.problem import ATOM, GAINS
from simgpu.operators.attention_backward.problem import AttentionBackwardProblem
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    limit_rows,
    mark_binding,
    occupancy_row,
    rounding_sgprs,
    scalar_ranges,
)

SIDES = ("keys", "queries")
WAVES = 4
PADDED = 32  # rows are padded to a multiple of this: two atoms of 16 columns, 16 bytes a lane
ROW_PAD = 16  # bytes after a row in LDS, so that rows begin in different banks
FRAGMENTS = 8  # of 6 and 8, the number with which a step's barrier and LDS reads stall less (modelled)
TEMPORARIES = 8
ALIGNMENT = 4  # registers that ranges which begin at even ones may leave free
UNIT_ROWS = 4  # rows of the block of rows by columns that a lane moves to LDS
ATOMS, STEPS, STAGES = (4, 3, 2, 1), (32, 16), (2, 1)  # what a plan chooses from, the largest first
_MOST_BYTES = 1 << 31  # limit for what one buffer spans
_MOST_ROWS = 1 << 24  # limit of a row's number in products of 24 bits


def padded(width: int) -> int:
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
        return padded(self.width)

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
        """The tiles that pass through LDS: the other operands of S and of dP."""
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


def _resources(p: AttentionBackwardProblem, d: HardwareDescriptor, side: str, atoms: int, step: int, stages: int) -> ResourcePlan:
    keys, first, second = side == "keys", padded(p.d), padded(p.dv)
    tiles, scores = moved_tiles(p, side, step), atoms * step // 4
    chained = "arch" if d.unified_vgprs else "acc"
    statistics = step // 4 if keys else atoms
    gradients = atoms * (first + second * keys) // 4
    spare = "acc" if d.unified_vgprs and gradients + atoms * second // 8 <= d.agpr_per_thread else "arch"
    ranges = [
        ("own 1", "arch", atoms * first // 8), ("own 2", spare, atoms * second // 8),
        ("S", chained, scores), ("dP", chained, scores),
        ("weights", "arch", 0 if d.unified_vgprs else 2 * scores),
        ("P", "arch", scores // 2 if keys else 0), ("dS", "arch", scores // 2),
        ("gradient 1", "acc", atoms * first // 4), ("gradient 2", "acc", atoms * second // 4 if keys else 0),
        ("zero", "acc", 0 if d.unified_vgprs else 4),
        ("L", "arch", statistics), ("D", "arch", statistics),
        ("staging 1", "arch", tiles[0].registers), ("staging 2", "arch", tiles[1].registers),
        ("transposed", "arch", 2), ("fragments", "arch", 4 * FRAGMENTS),
        ("addresses", "arch", 3 + 4 + ALIGNMENT + sum((2 + tile.columns) * tile.loads for tile in tiles)),
        ("edges", "arch", atoms + 1), ("temporaries", "arch", TEMPORARIES),
    ]  # fmt: skip
    registers = tuple(RegisterRange(*row) for row in ranges)
    lds = tuple(LdsArray(tile.name, stages * tile.nbytes) for tile in tiles)
    scalars = scalar_ranges(
        arguments=22, coordinates=8, buffers=16, steps=8, masks=8, selectors=2, rounding=rounding_sgprs(p.dtype, d.arch),
        heads=4, temporaries=8,
    )  # fmt: skip
    return ResourcePlan.of(d, WAVES, registers, lds, scalars)


def _choices(p: AttentionBackwardProblem, d: HardwareDescriptor) -> Iterator[tuple[int, int, int]]:
    """Yields (atoms, step, stages), the best first: most rows of a block, then two stages, then long steps."""
    least = max(ATOM, d.atom(p.dtype).k)
    for atoms in ATOMS:
        for stages in STAGES:
            for step in STEPS:
                if step >= least:
                    yield atoms, step, stages


def plan_gradient(problem: AttentionBackwardProblem, descriptor: HardwareDescriptor, side: str,
                  policy: str = "corrected") -> GradientPlan:  # fmt: skip
    """Returns the closed-form plan of the kernel whose blocks own rows of a side: "keys" for dK and dV, "queries" for dQ.

    It is the first of `_choices` that fits, bound by the limit that the choice before violates; or the last one if none fits.
    LaunchError for heads of 2 GiB or more.
    """
    one_of("policy", policy, POLICIES)
    one_of("side", side, SIDES)
    p, d = problem, descriptor
    atom = d.atom(p.dtype)
    if (atom.m, atom.n, atom.blocks) != (ATOM, ATOM, 1):
        raise TargetError(f"attention_backward in {p.dtype} needs a matrix instruction of {ATOM}x{ATOM}, not {atom.mnemonic}")
    longest, width = max(p.lq, p.lk) + WAVES * ATOM * ATOMS[0], max(p.d, p.dv)
    if longest * width * 4 >= _MOST_BYTES or longest >= _MOST_ROWS:
        raise LaunchError(f"attention_backward: a head of {max(p.lq, p.lk)} rows spans too many bytes for a buffer: use fewer rows")
    stopped: GradientPlan | None = None
    for choice in _choices(p, d):
        plan = _plan(p, d, side, policy, choice)
        if plan.feasible:
            name = stopped.binding.name if stopped else None
            return replace(plan, constraints=mark_binding(plan.constraints, name))
        stopped = plan
    assert stopped is not None
    return stopped


def _plan(p: AttentionBackwardProblem, d: HardwareDescriptor, side: str, policy: str, choice: tuple[int, int, int]) -> GradientPlan:
    resources = _resources(p, d, side, *choice)
    plan = GradientPlan(p, d, policy, side, *choice, resources, ())
    rows = limit_rows(d, resources.arch_vgprs, resources.acc_vgprs, resources.sgprs, resources.lds_bytes, WAVES, 1, {})
    return replace(plan, constraints=mark_binding((*rows, occupancy_row(d, plan.blocks))))
