"""Tile derivation and occupancy of the paper, recomputed."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators import GemmPlan, GemmProblem, derive_tiles, plan_gemm
from simgpu.tools.validation.paper.entry import PaperNumber, pair, product
from simgpu.tools.validation.paper.givens import Givens

VGPR_OVERHEAD = 16  # registers other than accumulators: the paper's, by its Table 2 (E14)


def plans(g: Givens, side: int) -> tuple[GemmPlan, GemmPlan]:
    """Returns the published and the corrected plan of a square product."""
    problem = GemmProblem(side, side, side)
    return plan_gemm(problem, g.gpu_a, "published"), plan_gemm(problem, g.mi100)


def largest_warp_tile(d: HardwareDescriptor) -> int:
    """Returns the side of the largest square of atoms whose accumulators and the paper's overhead fit in a lane's registers."""
    atom = d.atom("f32")
    room = (d.vgpr_per_thread - VGPR_OVERHEAD) // atom.acc_registers  # atoms
    return isqrt(room) * atom.m


def derivation(g: Givens) -> Iterator[PaperNumber]:
    """Yields the numbers of the product in Figure 1."""
    where = f"Tile derivation, {g.side}^3 GEMM"
    both = old, new = plans(g, g.side)
    d = old.descriptor
    element, lds = old.problem.element.bytes, d.lds_bytes
    printed = isqrt(lds // 2 // element)
    yield PaperNumber(
        where, "sqrt((LDS/2)/elem), Eq. tile_cu as printed; t_K", "128; 32",
        f"{printed}; {lds // 2 // (2 * printed * element)}",
        f"sqrt(LDS/elem) = {isqrt(lds // element)}; {lds // 2 // (2 * isqrt(lds // element) * element)}", "E4",
        "the printed formula does not give the printed tile",
    )  # fmt: skip
    yield PaperNumber(where, "CU tile", "128 x 128 x 32", *pair(product(p.tile_m, p.tile_n, p.tile_k) for p in both), "E4")
    yield PaperNumber(
        where, f"LDS of a tile, of {lds >> 10} KB", "filled exactly",
        *pair(f"{p.resources.lds_bytes // 1024} KB, {p.stages} stage(s)" for p in both), "E5",
        f"{old.resources.lds_bytes / lds:.0%} is used",
    )  # fmt: skip
    largest = largest_warp_tile(d)
    yield PaperNumber(
        where, "warp tile", "32 x 32 x 8, the largest that fits", *pair(product(p.warp_m, p.warp_n, p.warp_k) for p in both), "E7",
        f"the largest that fits is {largest} x {largest}",
    )  # fmt: skip
    yield PaperNumber(
        where, "warp tiles of a block", "4 x 4 = 16", *pair(f"{p.waves_m} x {p.waves_n} = {p.waves}" for p in both), "",
        f"published: the waves of the largest workgroup, {d.max_workgroup_size} / {d.wavefront_size}, in a square",
    )  # fmt: skip
    yield PaperNumber(
        where, "accumulators a lane", "16", *pair(str(p.resources.acc_vgprs) for p in both), "E6", "m*n/wavefront, not k"
    )  # fmt: skip
    limits = [next(r for r in p.constraints if r.name == "AccVGPR") for p in both]
    yield PaperNumber(
        where, "accumulators allowed", "256", *pair(f"{r.limit:g}" for r in limits), "E8", "waves on a SIMD share the file"
    )  # fmt: skip
    yield PaperNumber(where, "waves a block", "16", *pair(str(p.waves) for p in both), "E8")
    yield PaperNumber(where, "blocks a CU", "8.5", *pair(f"{p.blocks_per_cu:.2f}" for p in both), "E9")
    yield PaperNumber(
        where, "eta, the useful share of rounds", '"good"', *pair(f"{p.eta:.1%}" for p in both), "E9",
        f"{old.blocks_per_cu:.2f}/{-(-old.blocks // d.num_cus)}",
    )  # fmt: skip
    yield PaperNumber(
        where, "operands at matrix peak, TB/s", "not considered",
        *pair(f"{next(r for r in p.constraints if r.name == 'operand bandwidth').use:.2f}" for p in both), "E10",
        f"beside HBM's {new.descriptor.hbm_bandwidth_tb:.2f}: L2 has to serve it",
    )  # fmt: skip


def occupancy(g: Givens) -> Iterator[PaperNumber]:
    """Yields the tiles per CU, and the paper's rule for fewer than one."""
    where = f"derive_tiles(L = {g.length}, d = {g.d})"
    for gpu, printed in ((g.gpu_a, "0.27"), (g.gpu_b, "1.69")):
        both = [derive_tiles(gpu, L=g.length, d=g.d, policy=policy) for policy in ("published", "corrected")]
        yield PaperNumber(where, f"{gpu.name}: tile_Q, tile_KV", "32, 64", *pair(f"{p.tile_Q}, {p.tile_KV}" for p in both))
        lost = "the integer part is lost; nothing to flag" if f"{both[0].occupancy % 1:.2f}" == printed else "not so rounded"
        yield PaperNumber(
            where, f"{gpu.name}: Q tiles a CU", printed, *pair(f"{p.occupancy:.2f}" for p in both), "E11",
            f"{both[0].q_tiles}/{gpu.num_cus}: {lost}",
        )  # fmt: skip
    where = "Occupancy: below one tile a CU, tiles are reduced"
    whole, split = "reduced until acceptable; to what is left open", "corrected splits K and keys instead"
    yield PaperNumber(
        where, f"CU tile at {g.small_side}^3; blocks a CU", whole,
        *pair(f"{product(p.tile_m, p.tile_n)}; {p.blocks_per_cu:.2f}" for p in plans(g, g.small_side)), "E9",
        f"the largest square of whole atoms with a block a CU, or the least; {split}",
    )  # fmt: skip
    heads = derive_tiles(g.gpu_a, g.small_length, g.d, "published"), derive_tiles(g.mi100, g.small_length, g.d)
    yield PaperNumber(
        where, f"tile_Q at L = {g.small_length}; blocks a CU", whole,
        *pair(f"{p.tile_Q}; {p.tiles / p.descriptor.num_cus:.2f}" for p in heads), "E9, E25",
        "as many queries as leave a Q tile a CU; no length in the paper's tables is so short",
    )  # fmt: skip
