"""What a tree of any operator moves, without executing it: a walk over its workgroups' clipped views.

A GEMM has a closed form (gemm/traffic.py); here the edges of a convolution's halos and the keys that a mask hides are counted
block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from simgpu.hardware.dtypes import dtype
from simgpu.operators.attention.registers import merge_traffic
from simgpu.operators.attention.tree import FusedAttention
from simgpu.operators.attention.unfused import UnfusedAttention
from simgpu.operators.conv2d.tree import Conv2d
from simgpu.operators.gemm.traffic import gemm_counters
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.traffic import Counters
from simgpu.operators.tree import Extent, Root


def block_counters(tree: Root) -> Counters:
    """The counters of a ComputeVisitor at the atom level, and so of every level above; masks given as arrays do not count."""
    if isinstance(tree, UnfusedAttention):
        parts = [block_counters(part) for part in tree.parts]
        return Counters(*(sum(getattr(part, field.name) for part in parts) for field in fields(Counters)))
    return _COUNTERS[type(tree)](tree)


def _gemm(tree: TiledComputation) -> Counters:
    return gemm_counters(tree.derivation)


def _conv2d(tree: Conv2d) -> Counters:
    """From LDS, a wave column reads the halo's pixels once a tap, padded ones too, and a wave row the filters."""
    p, plan, atom = tree.problem, tree.derivation, tree.derivation.atom
    e, y, taps = p.element.bytes, dtype(p.dtype_c).bytes, plan.cut.kh * plan.cut.kw
    staged = read = partial = atoms = 0
    for block in tree.children():
        x, w, out = block.views
        oc, ic = len(w.outer[0]), len(block.channels)
        staged += (_inside(x.rows, plan.cut.ih) * _inside(x.cols, plan.cut.iw) + oc * taps) * ic * e
        read += taps * ic * (plan.pixels * -(-oc // (plan.tile_oc // plan.waves_oc)) + oc * plan.waves_p) * e
        atoms += taps * -(-ic // atom.k) * (plan.pixels // atom.m) * -(-oc // atom.n)
        partial += 2 * out.elements * y if plan.split_ic > 1 else 0
    moved = staged + partial + p.n * p.oc * p.oh * p.ow * y
    return Counters(p.flops, p.bytes_once, moved, staged, read, atoms)


def _softmax(tree: Softmax) -> Counters:
    """The vector unit's instructions count as atoms; states of waves that share a row, 8 bytes each, are left out."""
    p, plan = tree.problem, tree.derivation
    lanes = plan.descriptor.wavefront_size
    states = atoms = 0
    for block in tree.children():
        x = block.views[0]
        states += 16 * len(x.rows) if plan.split_n > 1 else 0
        atoms += len(x.rows) * -(-len(x.cols) // lanes)
    return Counters(p.flops, p.bytes_once, (plan.reads + 1) * p.rows * p.n * p.element.bytes + states, atoms=atoms)


def _attention(tree: FusedAttention) -> Counters:
    p, plan, atom = tree.problem, tree.derivation, tree.descriptor.atom(tree.problem.dtype)
    e, size = p.element.bytes, dtype(p.dtype_c).bytes
    moved, written, read, atoms = p.batch * p.heads * p.lq * p.d * size, 0, 0, 0
    for block in tree.children():
        queries, keys = len(block.views[0].rows), len(block.views[1].rows)
        moved += (queries + 2 * keys) * p.d * e if keys else 0
        moved += 2 * size * queries * (p.d + 2) if plan.split_kv > 1 else 0
        if plan.policy == "published":
            staged, exchange = 2 * keys * p.d * e, queries * keys * 4  # K and V; E^T, written, then read
            written, read = written + staged + exchange, read + staged + exchange
        elif keys:
            merged = merge_traffic(p.d, queries, size)
            written, read = written + merged, read + merged
        scores, values = -(-p.d // atom.k) * -(-queries // atom.n), -(-queries // atom.n) * -(-p.d // atom.m)
        wave = plan.tile_KV // plan.waves_kv  # keys of a wave and step
        for share, times in ((wave, keys // wave), (keys % wave, 1)):
            atoms += times * (scores * -(-share // atom.m) + values * -(-share // atom.k))
    return Counters(p.flops, p.bytes_once, moved, written, read, atoms)


def _inside(extent: Extent, size: int) -> int:
    return max(0, min(extent.max_, size) - max(extent.min_, 0))


_COUNTERS: dict[type[Root], Callable[..., Counters]] = {
    TiledComputation: _gemm, Conv2d: _conv2d, Softmax: _softmax, FusedAttention: _attention,
}  # fmt: skip
