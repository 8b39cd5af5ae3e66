"""Backward of attention for the command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import cache

import numpy as np

from simgpu.operators import AttentionBackward, AttentionBackwardProblem, reference
from simgpu.operators.tree import Extent
from simgpu.tools.cases.operators.attention import BLOCK_SCORES, add_attention_options
from simgpu.tools.cases.operators.operator import Kernels, Operator
from simgpu.tools.cases.workload import ExpectedOperand, StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs


def _options(sub: ArgumentParser) -> None:
    sub.set_defaults(dtype="f16")  # there is no f32
    add_attention_options(sub, ", a multiple of 8")


def _tree(o: Namespace) -> AttentionBackward:
    lk = o.lq if o.lk is None else o.lk
    problem = AttentionBackwardProblem(
        o.lq, lk, o.d, o.heads, o.kv_heads, o.batch, o.causal, scale=o.scale, dtype=o.dtype, dv=o.dv
    )
    return AttentionBackward(problem, o.target, o.policy)


def _workload(tree: AttentionBackward, arch: str, inputs: Inputs) -> Workload:
    """Draws Q, K, V and dO, and computes O and L from them in float64. Arrays end at their last element.

    If nobody compares the gradients, O and L are drawn, too: no address depends on them, and float64 takes minutes.
    """
    p = tree.problem
    kind, single = array_type(p.dtype, arch), np.dtype(np.float32)
    kinds = {name: kind if p.bytes_of(name) == kind.itemsize else single for name in p.shapes}
    forms = {name: (kinds[name], shape, contiguous(shape), 0) for name, shape in p.shapes.items()}
    random = ("Q", "K", "V", "dO", *(() if inputs.compares else ("O", "L")))
    drawn = {name: StridedArray.draw(inputs, *forms[name]) for name in random}
    q, k, v = (drawn[name].view for name in "QKV")
    rows = max(1, BLOCK_SCORES // (p.batch * p.heads * p.lk))
    blocks = tuple(Extent.whole(p.lq).split(rows))
    forward = {"O": (reference.attention, (q, k, v)), "L": (reference.attention_lse, (q, k))}
    for name, (make, arrays) in forward.items() if inputs.compares else ():
        whole = np.concatenate([make(p, *arrays, queries=block) for block in blocks], axis=2)  # type: ignore[operator]
        drawn[name] = StridedArray.empty(*forms[name]).fill(whole)
    given = tuple(drawn[name].view for name in ("Q", "K", "V", "O", "dO", "L"))
    names = list(p.shapes)

    @cache
    def gradients() -> dict[str, np.ndarray]:
        return reference.attention_backward(p, *given)

    @cache
    def bounds() -> dict[str, np.ndarray]:
        return reference.attention_backward_error_bound(p, *given, arch=arch)

    beside = tuple(
        ExpectedOperand(names.index(name), lambda name=name: gradients()[name], lambda name=name: bounds()[name])  # type: ignore[misc]
        for name in ("dK", "dV")
    )
    operands = (drawn[name] if name in drawn else StridedArray.for_results(inputs, *forms[name]) for name in names)
    return Workload(
        tuple(operands), names.index("dQ"), lambda: gradients()["dQ"], lambda: bounds()["dQ"],
        lambda: reference.attention_backward_typical_error(p, *given, arch=arch), beside=beside,
    )  # fmt: skip


OPERATORS = (
    Operator(
        "attention_backward", "gradients dQ, dK, dV of attention from dO, O and log-sum-exp", AttentionBackward, _options, _tree,
        Kernels(_workload),
    ),
)  # fmt: skip
