"""What a tree of any operator moves, without executing it: a walk over its workgroups' clipped views.

A GEMM has a closed form (operators.traffic); here the edges of a convolution's halos and the keys that a mask hides are counted
block by block.
"""

from __future__ import annotations

from collections.abc import Callable

from hardware.dtypes import dtype
from operators.attention_tree import FusedAttention
from operators.conv2d_tree import Conv2d
from operators.gemm import TiledComputation
from operators.softmax_tree import Softmax
from operators.traffic import Counters, gemm_counters
from operators.tree import Extent, Root
from operators.unfused import UnfusedAttention


def block_counters(tree: Root) -> Counters:
    """flops, hbm_bytes and global_bytes as a ComputeVisitor at the block level counts them; masks given as arrays do not count."""
    if isinstance(tree, UnfusedAttention):
        parts = [block_counters(part) for part in tree.parts]
        return Counters(*(sum(getattr(part, name) for part in parts) for name in ("flops", "hbm_bytes", "global_bytes")))
    p = tree.problem
    return Counters(p.flops, p.bytes_once, _GLOBAL[type(tree)](tree))


def _gemm(tree: TiledComputation) -> int:
    return gemm_counters(tree.derivation).global_bytes


def _conv2d(tree: Conv2d) -> int:
    p, plan = tree.problem, tree.derivation
    total, y = 0, dtype(p.dtype_c).bytes
    for block in tree.children():
        x, w, out = block.views
        inside = _inside(x.rows, p.ih) * _inside(x.cols, p.iw)
        total += (inside + len(w.outer[0]) * p.kh * p.kw) * len(block.channels) * p.element.bytes
        total += 2 * out.elements * y if plan.split_ic > 1 else 0
    return total + p.n * p.oc * p.oh * p.ow * y


def _softmax(tree: Softmax) -> int:
    p, plan = tree.problem, tree.derivation
    states = sum(16 * len(block.views[0].rows) for block in tree.children()) if plan.split_n > 1 else 0
    return (plan.reads + 1) * p.rows * p.n * p.element.bytes + states


def _attention(tree: FusedAttention) -> int:
    p, plan = tree.problem, tree.derivation
    total, size = 0, dtype(p.dtype_c).bytes
    for block in tree.children():
        queries, keys = len(block.views[0].rows), len(block.views[1].rows)
        total += (queries + 2 * keys) * p.d * p.element.bytes if keys else 0
        total += 2 * size * queries * (p.d + 2) if plan.split_kv > 1 else 0
    return total + p.batch * p.heads * p.lq * p.d * size


def _inside(extent: Extent, size: int) -> int:
    return max(0, min(extent.max_, size) - max(extent.min_, 0))


_GLOBAL: dict[type[Root], Callable[..., int]] = {
    TiledComputation: _gemm, Conv2d: _conv2d, Softmax: _softmax, FusedAttention: _attention,
}  # fmt: skip
