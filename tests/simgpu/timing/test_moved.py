"""Bytes that workgroups move, of products whose last tiles are short."""

from __future__ import annotations

import pytest

import simgpu
from simgpu import asm
from simgpu.hardware import target
from simgpu.operators import GemmProblem
from simgpu.tools.cost.space import Tile, space

# The last tiles have 11, 5 and 1 rows, or 9 and 6 columns.
SHORT_TILES = [
    (75, 41, 6502, "f64", (64, 64, 32, 52)),
    (75, 41, 6502, "f64", (96, 32, 32, 52)),
    (133, 37, 5001, "f32", (128, 64, 32, 40)),
    (129, 40, 9000, "f32", (128, 64, 32, 52)),
    (70, 70, 3001, "f64", (64, 64, 32, 25)),
]


@pytest.mark.parametrize(("m", "n", "k", "dtype", "tile"), SHORT_TILES)
def test_a_cold_launch_moves_the_bytes_of_its_matrices(m: int, n: int, k: int, dtype: str, tile: Tile) -> None:
    """Each workgroup has a part of K. MI210's L2 holds what two of them share, so memory moves each byte of A, B and parts once."""
    kernel = asm.emit(space("gemm", GemmProblem(m, n, k, dtype), target("mi210")).tree(tile))
    gpu, first, scratch = simgpu.Device("mi210", threads=1), next(kernel.steps), dict(kernel.scratch)
    operands = (m * k + k * n) * {"f32": 4, "f64": 8}[dtype]
    buffers = {name: gpu.alloc(nbytes) for name, nbytes in (dict.fromkeys(kernel.operands, operands) | scratch).items()}
    found = gpu.load(kernel.assemble())[first.name].time(first.grid, first.block, first.bind(buffers))
    assert len(found.sampled.whole) > 1, "workgroups differ"
    assert found.past_l2_bytes == pytest.approx(operands + scratch["partials"], rel=0.02)
