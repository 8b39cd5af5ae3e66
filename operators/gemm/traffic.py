"""Bytes that a GEMM moves and instructions that it executes, in closed form."""

from __future__ import annotations

from simgpu.hardware.dtypes import dtype
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.operators.traffic import Counters, block_counters


def gemm_counters(plan: GemmPlan) -> Counters:
    """Returns the counters of a GEMM in closed form.

    A is read once per column of blocks, B once per row of blocks; from LDS, once per column or row of waves. A split K writes and
    reads a partial C for each part. Leaves read their matrices as A, and their vectors once per block. A grouped product counts as
    if its groups had the same number of rows.

    >>> from simgpu import operators
    >>> operators.gemm_counters(operators.TiledComputation(256, 256, 256, target="mi300x").plan)
    Counters(flops=33554432, hbm_bytes=786432, global_bytes=4456448, lds_write_bytes=4194304, lds_read_bytes=8388608, atoms=16384)
    """
    p, atom = plan.problem.even_batch, plan.atom  # groups as if all had the same rows
    of_a, of_b, times = p.element, p.element_b, p.batch
    gx, gy = -(-p.n // plan.tile_n), -(-p.m // plan.tile_m)
    staged = times * (of_a.packed_bytes(p.k * p.m * gx) + of_b.packed_bytes(p.k * p.n * gy))
    partial = 2 * plan.split_k * times * p.m * p.n * dtype(p.accumulator).bytes if plan.split_k > 1 else 0
    leaves = p.element.packed_bytes((p.streams_a - 1) * p.k * p.m * gx) + gx * gy * p.k * p.vector_bytes
    return Counters(
        flops=p.flops,
        hbm_bytes=p.bytes_once,
        global_bytes=staged + partial + p.epilogue_bytes + leaves,
        lds_write_bytes=staged,
        lds_read_bytes=times
        * (of_a.packed_bytes(p.k * p.m * -(-p.n // plan.warp_n)) + of_b.packed_bytes(p.k * p.n * -(-p.m // plan.warp_m))),
        atoms=times * -(-p.m // atom.m) * -(-p.n // atom.n) * -(-p.k // atom.k),
    )


@block_counters.register(TiledComputation)
def _gemm(tree: TiledComputation) -> Counters:
    return gemm_counters(tree.derivation)
