"""Bytes that a softmax moves and instructions that it executes, counted block by block."""

from __future__ import annotations

from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.traffic import Counters, block_counters


@block_counters.register(Softmax)
def _softmax(tree: Softmax) -> Counters:
    """Returns the counters. Vector instructions count as atoms. The merge of waves in LDS, 8 bytes a wave, is left out."""
    p, plan = tree.problem, tree.derivation
    lanes = plan.descriptor.wavefront_size
    states = atoms = 0
    for block in tree.children():
        x = block.views[0]
        states += 16 * len(x.rows) if plan.split_n > 1 else 0
        atoms += len(x.rows) * -(-len(x.cols) // lanes)
    return Counters(p.flops, p.bytes_once, (plan.reads + 1) * p.rows * p.n * p.element.bytes + states, atoms=atoms)
