"""Bytes that a softmax moves and instructions that it executes, counted block by block."""

from __future__ import annotations

from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.traffic import Counters, block_counters


@block_counters.register(Softmax)
def _softmax(tree: Softmax) -> Counters:
    """Returns the counters. Vector instructions count as atoms. The merge of waves in LDS is left out."""
    p, plan = tree.problem, tree.derivation
    lanes = plan.descriptor.wavefront_size
    states = atoms = 0
    for block in tree.children():
        x = block.views[0]
        states += 2 * p.state_bytes * len(x.rows) if plan.split_n > 1 else 0  # written and read
        atoms += len(x.rows) * -(-len(x.cols) // lanes)
    moved = p.rows * p.n * (plan.reads * p.element.bytes + p.element_y.bytes) + states
    return Counters(p.flops, p.bytes_once, moved, atoms=atoms)
