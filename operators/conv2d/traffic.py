"""Bytes that a convolution moves and instructions that it executes, counted block by block, because edges clip some halos."""

from __future__ import annotations

from simgpu.hardware.dtypes import dtype
from simgpu.operators.conv2d.tree import BlockConv2dNode, Conv2d
from simgpu.operators.traffic import Counters, block_counters
from simgpu.operators.tree import Extent


@block_counters.register(Conv2d)
def _conv2d(tree: Conv2d) -> Counters:
    """Returns the counters. From LDS, each column of waves reads the tile's pixels once per tap, and each row the filters."""
    p, plan, atom = tree.problem, tree.derivation, tree.derivation.atom
    e, y, part = p.element.bytes, dtype(p.dtype_c).bytes, dtype(p.accumulator).bytes
    taps = plan.tiled_problem.kh * plan.tiled_problem.kw
    staged = read = partial = atoms = 0
    for block in tree.children():
        assert isinstance(block, BlockConv2dNode)
        x, w, out = block.views
        oc, ic = len(w.outer[0]), len(block.channels)
        staged += (_size_inside(x.rows, plan.tiled_problem.ih) * _size_inside(x.cols, plan.tiled_problem.iw) + oc * taps) * ic * e
        read += taps * ic * (plan.pixels * -(-oc // (plan.tile_oc // plan.waves_oc)) + oc * plan.waves_p) * e
        atoms += taps * -(-ic // atom.k) * (plan.pixels // atom.m) * -(-oc // atom.n)
        partial += 2 * out.elements * part if plan.split_ic > 1 else 0
    moved = staged + partial + p.n * p.oc * p.oh * p.ow * y
    return Counters(p.flops, p.bytes_once, moved, staged, read, atoms)


def _size_inside(extent: Extent, size: int) -> int:
    return max(0, min(extent.max_, size) - max(extent.min_, 0))
