"""Tiles of fused attention in closed form (paper, section Fused Attention; errata E11, E14 to E16, E24, E25).

Policy "published", one wave's registers for one Q tile, e = 4 whatever the type:
  tKV = (LDS/2) / (4*d),   V(tQ) = tQ*(2d + tKV)/64 + tQ/8 + 16,   tQ = floor16((V - 16)*64 / (2d + tKV + 8))
which reproduces the paper's Table 2. LDS is checked for K or V alone, as there.

Policy "corrected": 2 waves along the queries x 2 along the keys, one a SIMD; S^T = K Q^T and O^T = V^T P^T chained in registers, so
no E in LDS (facts: a query owns one lane column); partial rows of the two key halves merge once, at the end.
  tKV = pow2 floor of LDS/(2*e*d), at most 128      K and V both resident (E16), one stage
  per wave of q queries (acc file)   q*(d + tKV/2)/64                    O^T and S^T
                        (arch file)  q*(d + tKV/2)/64*e/4 + 2*q/16 + 8*e + 32    Q, P, the two statistics, K and V fragments, the rest
  tQ_max = 2*floor16 of the q that the tighter file allows (of half the file each where it is one file)
  tQ = min(tQ_max, max(32, floor32(L / (4*CUs))))   four tiles a CU make eta >= 0.8
  split of the keys over CUs that would idle: max(1, CUs // tiles)
"""

from __future__ import annotations

from dataclasses import dataclass

from hardware.descriptor import HardwareDescriptor
from hardware.dtypes import dtype as find_dtype
from hardware.errors import LaunchError
from operators.problem import positive_dimension
from operators.resources import Constraint, binding, mark_binding
from operators.tiles import POLICIES, TILES_PER_CU
from operators.tree import Level

_PUBLISHED_OVERHEAD = 16  # E14
_FIXED_VGPRS = 32  # addresses and temporaries, as for GEMM
_STEP = 16  # rows of Q and keys per atom


@dataclass(frozen=True)
class AttentionTiles:
    """Tiles for one head: tile_Q queries a block, tile_KV keys a step. Sizes are in elements.

    `tile_Q_max` is what the registers allow; `split_kv` how many blocks share one Q tile's keys. `constraints` has limit, use and slack
    of each; `remedy` is empty if feasible.
    """

    L: int
    d: int
    descriptor: HardwareDescriptor
    policy: str
    dtype: str
    tile_Q: int
    tile_KV: int
    tile_Q_max: int
    split_kv: int
    constraints: tuple[Constraint, ...]

    @property
    def tiles(self) -> int:
        """Q tiles, times the split of the keys."""
        return -(-self.L // max(1, self.tile_Q)) * self.split_kv

    @property
    def blocks_per_cu(self) -> float:
        """Tiles divided by CUs: 4.27 on gpu_a and 1.68 on gpu_b at L = 16384, d = 128 (the paper prints 0.27 and 1.69, E11)."""
        return self.tiles / self.descriptor.num_cus

    @property
    def occupancy(self) -> float:
        """The paper's word for `blocks_per_cu`."""
        return self.blocks_per_cu

    @property
    def eta(self) -> float:
        """Quantised occupancy (E9, E25): blocks_per_cu / ceil(blocks_per_cu)."""
        return self.blocks_per_cu / -(-self.tiles // self.descriptor.num_cus)

    @property
    def feasible(self) -> bool:
        """Whether every hard constraint is satisfied."""
        return all(row.satisfied for row in self.constraints if row.hard)

    @property
    def binding(self) -> Constraint:
        """The constraint that stopped the tile from growing, or the violated one."""
        return binding(self.constraints)

    @property
    def remedy(self) -> str:
        """What to change and by how much; empty if feasible."""
        return "; ".join(row.remedy for row in self.constraints if row.hard and not row.satisfied)

    @property
    def vgprs(self) -> int:
        """Registers per lane at the synchronisation point: the paper's V, or the ArchVGPRs under "corrected"."""
        return self.vgprs_at(self.tile_Q)

    def vgprs_at(self, tile_q: int) -> int:
        """`vgprs` for another Q tile: the third column but one of the paper's Table 2."""
        if self.policy == "published":
            return _published_vgprs(tile_q, self.tile_KV, self.d)
        return _corrected_arch(tile_q // 2, self.tile_KV, self.d, find_dtype(self.dtype).bytes)


def derive_tiles(
    descriptor: HardwareDescriptor, L: int, d: int, policy: str = "corrected", dtype: str = "f32"
) -> AttentionTiles:
    """Tiles of fused attention for L queries and keys of head dimension d. An answer that does not fit has feasible = False.

    LaunchError for sizes below 1, a d that is no multiple of 16, or an unknown policy; TargetError if the target lacks the type.
    """
    L, d = positive_dimension("L", L), positive_dimension("d", d)
    if d % _STEP:
        raise LaunchError(f"d = {d} is no multiple of {_STEP}: pad the head dimension to {-(-d // _STEP) * _STEP}")
    if policy not in POLICIES:
        raise LaunchError(f"unknown policy {policy!r}: use one of {', '.join(POLICIES)}")
    descriptor.atom(dtype)
    return (_published if policy == "published" else _corrected)(descriptor, L, d, dtype)


def _published_vgprs(tile_q: int, tile_kv: int, d: int) -> int:
    return -(-tile_q * (2 * d + tile_kv) // 64) + tile_q // 8 + _PUBLISHED_OVERHEAD


def _published(desc: HardwareDescriptor, L: int, d: int, dtype: str) -> AttentionTiles:
    tile_kv = max(_STEP, desc.lds_bytes // 2 // (4 * d) // _STEP * _STEP)
    budget = desc.vgpr_per_thread
    tile_q_max = max(0, (budget - _PUBLISHED_OVERHEAD) * 64 // (2 * d + tile_kv + 8) // _STEP * _STEP)
    tile_q = min(max(_STEP, tile_q_max), -(-L // _STEP) * _STEP)
    vgprs = _published_vgprs(tile_q, tile_kv, d)
    rows = (
        Constraint("LDS", Level.BLOCK, desc.lds_bytes // 2, 4 * tile_kv * d, "bytes", "one tile of K or V (E15, E16)",
                   f"at {_STEP} keys d <= {desc.lds_bytes // 2 // (4 * _STEP) // _STEP * _STEP} fits"),
        Constraint("VGPR", Level.WARP, budget, vgprs, "registers", "Q, S, O live between the two products (E14)",
                   f"free {vgprs - budget} registers a lane: lower d"),
        _occupancy(desc, -(-L // tile_q)),
    )
    limited_by = "VGPR" if tile_q == tile_q_max else "occupancy"
    return AttentionTiles(L, d, desc, "published", dtype, tile_q, tile_kv, tile_q_max, 1, mark_binding(rows, limited_by))


def _corrected_acc(queries: int, tile_kv: int, d: int) -> int:
    return queries * (d + tile_kv // 2) // 64


def _corrected_arch(queries: int, tile_kv: int, d: int, e: int) -> int:
    return -(-queries * (d + tile_kv // 2) * e // 256) + 2 * queries // _STEP + 8 * e + _FIXED_VGPRS


def _corrected(desc: HardwareDescriptor, L: int, d: int, dtype: str) -> AttentionTiles:
    e = find_dtype(dtype).bytes
    smallest = 2 * _STEP
    keys = desc.lds_bytes // (2 * e * d)
    tile_kv = min(128, max(smallest, 1 << max(0, keys.bit_length() - 1)))
    arch, acc, total = desc.vgpr_budget(1)
    if desc.unified_vgprs:
        arch, acc = min(arch, total // 2), min(acc, total // 2)
    row = d + tile_kv // 2
    by_acc = acc * 64 // row
    by_arch = max(0, arch - 8 * e - _FIXED_VGPRS) * 256 // (row * e + 32)
    tile_q_max = 2 * (min(by_acc, by_arch) // _STEP * _STEP)
    wanted = max(smallest, L // (TILES_PER_CU * desc.num_cus) // smallest * smallest)
    tile_q = max(smallest, min(tile_q_max, wanted))
    split = max(1, min(desc.num_cus // -(-L // tile_q), -(-L // tile_kv)))
    arch_use, acc_use = _corrected_arch(tile_q // 2, tile_kv, d, e), _corrected_acc(tile_q // 2, tile_kv, d)
    lds_use = desc.lds_allocation(2 * tile_kv * d * e)
    rows = (
        Constraint("LDS", Level.BLOCK, desc.lds_bytes, lds_use, "bytes", "tiles of K and V, one stage (E16)",
                   f"at {smallest} keys d <= {desc.lds_bytes // (2 * e * smallest) // _STEP * _STEP} fits"),
        Constraint("ArchVGPR", Level.WARP, arch, arch_use, "registers", "Q, P, statistics, fragments; 1 wave a SIMD (E3, E14)",
                   f"free {arch_use - arch} registers a lane: lower d"),
        Constraint("AccVGPR", Level.WARP, acc, acc_use, "registers", "O^T and S^T; 1 wave a SIMD (E3, E14)",
                   f"free {acc_use - acc} registers a lane: lower d"),
        _occupancy(desc, -(-L // tile_q) * split),
    )
    limited_by = ("AccVGPR" if by_acc <= by_arch else "ArchVGPR") if tile_q == tile_q_max < wanted else "occupancy"
    return AttentionTiles(L, d, desc, "corrected", dtype, tile_q, tile_kv, tile_q_max, split, mark_binding(rows, limited_by))


def _occupancy(desc: HardwareDescriptor, tiles: int) -> Constraint:
    eta = tiles / desc.num_cus / -(-tiles // desc.num_cus)
    note = f"{tiles} tiles on {desc.num_cus} CUs, {tiles / desc.num_cus:.2f} a CU (E11, E25)"
    return Constraint("occupancy", Level.DEVICE, 1.0, eta, "eta", note, hard=False)
