"""Tiles of fused attention in a plan: sizes, blocks, resources, and the rows of constraints that both policies share."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.attention import registers as chained
from simgpu.operators.attention import shared_registers as shared
from simgpu.operators.attention.paper import registers as paper
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.attention.reductions import chained_resources, partial_bytes, row_slots, shared_resources, tile_heads
from simgpu.operators.levels import Level, Nest, TileLoop
from simgpu.operators.resources import (
    Constraint,
    Derivation,
    LdsArray,
    RegisterRange,
    ResourcePlan,
    assumption,
    occupancy_row,
    quantisation_efficiency,
)

STEP = 16  # rows of Q and keys per atom


@dataclass(frozen=True)
class AttentionTiles(Derivation):
    """Tiles of fused attention.

    A block has waves_q x waves_kv waves. Wave (i, j) owns queries i of tile_Q/waves_q and keys j of each step's
    tile_KV/waves_kv, both multiples of 16.

    >>> from simgpu.operators import AttentionProblem, FusedAttention
    >>> tiles = FusedAttention(AttentionProblem(lq=1024, lk=1024, d=64, heads=8, dtype="f16"), "mi300x").plan
    >>> tiles.tile_Q, tiles.tile_KV, tiles.shared, tiles.binding.name
    (32, 128, False, 'occupancy')
    """

    problem: AttentionProblem
    descriptor: HardwareDescriptor
    policy: str  # tile policy
    tile_Q: int  # queries of a block
    tile_KV: int  # keys of a step
    tile_Q_max: int  # largest tile_Q that the registers allow; 0 if none
    split_kv: int  # blocks that share one Q tile's keys
    constraints: tuple[Constraint, ...]
    shared: bool = False  # True if waves own queries and share K and V through LDS
    values: str = ""  # the paper's kernel that the plan is for; empty: only its formulas

    @property
    def L(self) -> int:
        """Queries of a head."""
        return self.problem.lq

    @property
    def d(self) -> int:
        """Head dimension."""
        return self.problem.d

    @property
    def dtype(self) -> str:
        """Type of Q, K and V."""
        return self.problem.dtype

    @property
    def waves_q(self) -> int:
        """Waves of a block along the queries."""
        return shared.WAVES if self.shared else 1

    @property
    def waves_kv(self) -> int:
        """Waves of a block along the keys. Their states merge at the end."""
        return 1 if self.policy == "published" or self.shared else chained.WAVES

    @property
    def threads(self) -> int:
        """Work-items of a block."""
        return self.waves_q * self.waves_kv * self.descriptor.wavefront_size

    @property
    def title(self) -> str:
        """Sizes, type and target, for messages."""
        p = self.problem
        return (
            f"attention {p.batch}x{p.heads} heads, {p.lq} queries, {p.lk} keys, d = {p.d}, {p.dtype} on "
            f"{self.descriptor.name or self.descriptor.arch}"
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the policy decided, by name."""
        names = ("tile_Q", "tile_heads", "tile_KV", "tile_Q_max", "split_kv", "waves_q", "waves_kv")
        return {name: getattr(self, name) for name in names}

    @property
    def tile_heads(self) -> int:
        """Query heads that share a Q tile (`tile_heads`)."""
        return 1 if self.policy == "published" else tile_heads(self.problem, self.tile_Q)

    @property
    def row_slots(self) -> int:
        """Rows of a Q tile from one query to the next: its heads, rounded up to a power of two."""
        return row_slots(self.tile_heads)

    @property
    def tile_queries(self) -> int:
        """Queries of a Q tile, each for `tile_heads` heads."""
        return self.tile_Q // self.row_slots

    @property
    def nest(self) -> Nest:
        """Loops of the tree. Those of a wave are of S = Q K^T, then of O += P V.

        A mask hides keys from a Q tile: the parts into which split keys are cut are then smaller than the loop's tile.
        """
        atom, steps = self.descriptor.atom(self.dtype), -(-self.problem.lk // self.tile_KV)
        columns = TileLoop("heads", atom.n), TileLoop("queries", max(1, atom.n // self.row_slots))
        return {
            Level.DEVICE: (
                TileLoop("batch", 1, True), TileLoop("heads", self.tile_heads, True), TileLoop("queries", self.tile_queries, True),
                TileLoop("keys", -(-steps // self.split_kv) * self.tile_KV, True),
            ),
            Level.BLOCK: (
                TileLoop("keys", self.tile_KV), TileLoop("queries", self.tile_queries // self.waves_q, True),
                TileLoop("keys", self.tile_KV // self.waves_kv, True),
            ),
            Level.WARP: (
                TileLoop("d", atom.k), *columns, TileLoop("keys", atom.m),
                TileLoop("keys", atom.k), *columns, TileLoop("dv", atom.m),
            ),
        }  # fmt: skip

    @property
    def q_tiles(self) -> int:
        """Q tiles of all heads."""
        return self.problem.batch * self.problem.heads // self.tile_heads * -(-self.L // max(1, self.tile_queries))

    @property
    def tile_pairs(self) -> bool:
        """True if a block computes two Q tiles of a head (`shared_registers.pairs_tiles`)."""
        return self.shared and shared.pairs_tiles(self.problem)

    @property
    def blocks_of_head(self) -> int:
        """Blocks for the heads that share a Q tile, if keys are not split."""
        tiles = -(-self.L // max(1, self.tile_queries))
        return -(-tiles // 2) if self.tile_pairs else tiles

    @property
    def tiles(self) -> int:
        """Number of blocks: Q tiles or pairs of them, times the split of the keys."""
        p = self.problem
        return p.batch * p.heads // self.tile_heads * self.blocks_of_head * self.split_kv

    @property
    def blocks_per_cu(self) -> float:
        """Q tiles divided by CUs: 4.27 on gpu_a and 1.68 on gpu_b at L = 16384, d = 128 (the paper prints 0.27 and 1.69, E11)."""
        return self.q_tiles / self.descriptor.num_cus

    @property
    def occupancy(self) -> float:
        """Paper's word for `blocks_per_cu`."""
        return self.blocks_per_cu

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9, E25) of all blocks, the split included."""
        return quantisation_efficiency(self.tiles, self.descriptor.num_cus)

    @property
    def rounds(self) -> int:
        """Rounds of blocks, one a CU: 5 at L = 16384 on gpu_a (E24)."""
        return -(-self.tiles // self.descriptor.num_cus)

    @property
    def lockstep_bytes(self) -> int:
        """HBM bytes if blocks that run together share one stream of K and V (E21): 101 MB at L = 16384 on gpu_a."""
        return self.rounds * self.problem.kv_bytes + self.problem.qr_bytes

    @property
    def partial_bytes(self) -> int:
        """HBM bytes of the partial O and statistics of split keys; 0 without a split.

        The blocks write them, and the second pass reads them.
        """
        return 2 * self.split_kv * partial_bytes(self.problem) if self.split_kv > 1 else 0

    @property
    def vgprs(self) -> int:
        """Registers per lane at the synchronisation point: the paper's V, or the ArchVGPRs under "corrected"."""
        return self.vgprs_at(self.tile_Q)

    def vgprs_at(self, tile_q: int) -> int:
        """Returns `vgprs` for another Q tile: the last but one column of the paper's Table 2."""
        if self.shared:
            return self.resources.arch_vgprs
        if self.policy == "published":
            return paper.published_vgprs(tile_q, self.tile_KV, self.d)
        return chained_resources(self.problem, self.descriptor, tile_q, False).arch_vgprs

    @property
    def resources(self) -> ResourcePlan:
        """Registers and LDS of the kernel. Under "published" without a kernel: the paper's V and one tile of K or V."""
        if self.shared:
            return shared_resources(self.problem, self.descriptor, self.tile_Q)
        if self.policy == "corrected":
            return chained_resources(self.problem, self.descriptor, self.tile_Q, self.split_kv > 1)
        if self.values:
            return paper.kernel_resources(self.problem, self.descriptor, self.values, self.tile_Q, self.tile_KV)
        registers, lds = RegisterRange("Q, S, O (E14)", "arch", self.vgprs), LdsArray("K or V", 4 * self.tile_KV * self.d)
        scalars = paper.scalars(self.dtype, self.descriptor, "mfma")  # the paper states none
        return ResourcePlan.of(self.descriptor, 1, (registers,), (lds,), scalars)


def alignment_row(plan: AttentionTiles) -> Constraint:
    """Returns the hard row that requires a wave's queries, keys and head dimensions to be whole atoms."""
    widths = (plan.problem.padded_d, plan.problem.padded_dv)
    ragged = sum(bool(size % STEP) for size in (plan.tile_Q // plan.waves_q, plan.tile_KV // plan.waves_kv, *widths))
    return Constraint("atom alignment", Level.ATOM, 0, ragged, "dimensions", f"queries, keys and d of a wave by {STEP}",
                      f"use multiples of {STEP}")  # fmt: skip


def soft_rows(plan: AttentionTiles) -> tuple[Constraint, ...]:
    """Returns the rows of occupancy and operand bandwidth.

    At matrix peak, every Q tile reads K and V at e/(2*tQ) bytes per FLOP from the cache that serves re-reads (E21).
    """
    p, d = plan.problem, plan.descriptor
    demand = d.matrix_tflops(p.dtype) * p.element.bytes / (2 * plan.tile_Q)
    factor = demand / d.reread_bandwidth_tb
    bound = f"bandwidth-bound by {factor:.2f}" if factor > 1 else "compute-bound"
    return (
        occupancy_row(d, plan.tiles),
        Constraint(
            "operand bandwidth",
            Level.DEVICE,
            d.reread_bandwidth_tb,
            demand,
            "TB/s",
            f"K and V, read again by every Q tile: {bound} (E10, E21){assumption(d)}",
            hard=False,
        ),
    )
