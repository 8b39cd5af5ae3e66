"""Tree: Figure 1, clipping, exact cover at every level, laziness."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.operators import TiledComputation
from simgpu.operators.levels import Level
from simgpu.operators.tree import Extent, representatives
from tests.support.exhaustive import examples

FIGURE_1 = """\
TiledComputation  C = A @ B
  A:(4096,4096)  B:(4096,4096)  C:(4096,4096)
  CU grid: 32x32 (1024 tiles) [parallel -- one BlockGemmNode per CU]
  |
  +-- for I in 32, J in 32 [parallel] / for K in 128 [sequential]
  |       C[I,J] += A[I,K] @ B[K,J]
  |
  +-- BlockGemmNode  [block / CU]
  |     A:(128,32)  B:(32,128)  C:(128,128)
  |     LDS = 32 KB  (A+B tiles; C in registers)
  |     K iterations per CU: 128
  |
  +-- WarpGemmNode  [warp]
  |     A:(32,8)  B:(8,32)  C:(32,32)
  |     K iterations per warp: 4
  |     warp tiles per block: 4x4 = 16
  |
  +-- AtomHint  [leaf -- hardware instruction]
        MFMA/WMMA 16x16x4  dtype=f32
        K iterations per atom: 2
        atom calls per warp:   2x2 = 4"""


def test_figure_1_line_for_line() -> None:
    assert TiledComputation(4096, 4096, 4096, target="gpu_a", policy="published").tree() == FIGURE_1


def test_corrected_tree_says_policy_and_boundary() -> None:
    text = TiledComputation(300, 200, 100, alpha=2.0, beta=-1.0, trans_a=True).tree()
    assert "C = 2 * A^T @ B + -1 * C" in text and "tiling: corrected for mi100" in text and "boundary: " in text


@given(st.integers(1, 500), st.integers(1, 100), st.integers(1, 40))
def test_extents_cover_once(size: int, outer: int, inner: int) -> None:
    seen = [i for part in Extent.whole(size).split(outer) for piece in part.split(inner) for i in range(piece.min_, piece.max_)]
    assert seen == list(range(size))


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 50), st.sampled_from(["corrected", "published"]))
@settings(max_examples=examples(25))
def test_atoms_cover_every_product_once(m: int, n: int, k: int, policy: str) -> None:
    count = np.zeros((m, k, n), np.int8)
    tree = TiledComputation(m, n, k, policy=policy)
    for block in tree.children():
        for warp in block.children():
            for atom in warp.children():
                a, b, c = atom.views
                assert a.rows == c.rows and b.cols == c.cols and a.cols == b.rows
                assert a.tile_shape == (16, 4) and all(0 < x <= y for x, y in zip(a.shape, a.tile_shape))
                count[a.rows.slice, a.cols.slice, b.cols.slice] += 1
    assert (count == 1).all()


def test_lazy() -> None:
    tree = TiledComputation(10**6, 10**6, 10**6)
    assert len(list(islice(tree.children(), 3))) == 3
    assert [node.level for node in representatives(tree)] == list(Level)
    assert tree.tree()
