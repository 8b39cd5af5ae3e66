"""Attention of the command, fused and as three kernels."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

import numpy as np

from simgpu.operators import AttentionProblem, FusedAttention, UnfusedAttention, reference
from simgpu.operators.attention.cache import Cache
from simgpu.operators.error_model import TypicalError
from simgpu.operators.tree import Extent
from simgpu.tools.cases.operators.operator import Kernels, Operator, finite_number
from simgpu.tools.cases.workload import ExpectedOperand, StridedArray, Workload, contiguous
from simgpu.tools.shared.arrays import array_type
from simgpu.tools.shared.inputs import Inputs

BLOCK_SCORES = 1 << 24  # scores that float64 attention holds at once: some arrays of 128 MiB


def add_attention_options(sub: ArgumentParser, widths: str = "") -> None:
    """Adds sizes, heads and the causal mask, of attention and of its backward. widths: a rule for the head dimension."""
    sub.add_argument("-L", "--lq", type=int, required=True, help="queries, and keys unless --lk")
    sub.add_argument("--lk", type=int, help="keys (default: as many as queries)")
    sub.add_argument("-d", type=int, required=True, metavar="D", help=f"head dimension of Q and K{widths}")
    sub.add_argument("--dv", type=int, default=0, help="head dimension of V and of the result (default: as -d)")
    sub.add_argument("--scale", type=finite_number, help="factor of the scores (default: 1 / sqrt(d))")
    sub.add_argument("--batch", type=int, default=1, help="batch (default: 1)")
    sub.add_argument("--heads", type=int, default=1, help="query heads (default: 1)")
    sub.add_argument("--kv-heads", type=int, default=0, help="heads of K and V (default: as many as query heads)")
    sub.add_argument("--causal", action="store_true", help="no query sees a later key")


def _unfused_options(sub: ArgumentParser) -> None:
    add_attention_options(sub)
    sub.add_argument("--window", type=int, help="a query sees fewer than this many keys before its own")


def _fused_options(sub: ArgumentParser) -> None:
    _unfused_options(sub)
    sub.add_argument("--softcap", type=finite_number, help="a score s becomes SOFTCAP * tanh(s / SOFTCAP)")
    sub.add_argument("--alibi", action="store_true", help="subtract slope times distance of query and key from a score")
    sub.add_argument("--lse", action="store_true", help="also store log(sum(exp(score))) of every query")
    sub.add_argument("--page", type=int, default=0, help="K and V are pools of pages of PAGE keys, found by a table of blocks")
    sub.add_argument("--dtype-kv", default="", help="type of K and V: fp8 or bf8, with scales (default: Q's, without)")
    sub.add_argument("--values", default="mfma", help="under policy published: compute P V by mfma (default) or fma")


def _attention_problem(o: Namespace, **more: Any) -> AttentionProblem:
    masks = (o.causal, o.window)
    lk = o.lq if o.lk is None else o.lk
    return AttentionProblem(o.lq, lk, o.d, o.heads, o.kv_heads, o.batch, *masks, o.scale, o.dtype, o.dv, **more)


def _attention(o: Namespace) -> FusedAttention:
    problem = _attention_problem(o, softcap=o.softcap, alibi=o.alibi, lse=o.lse, page=o.page, dtype_kv=o.dtype_kv)
    return FusedAttention(problem, o.target, o.policy, o.values)


def _unfused_tree(o: Namespace) -> UnfusedAttention:
    return UnfusedAttention(_attention_problem(o), o.target, o.policy)


def _attention_workload(tree: FusedAttention | UnfusedAttention, arch: str, inputs: Inputs) -> Workload:
    """Draws Q, K, V, ALiBi's slopes and a cache's arrays; adds the result and its logarithms. Float64 computes blocks of rows,
    since S may not fit."""
    p = tree.problem
    kind, of_cache = array_type(p.dtype, arch), array_type(p.dtype_kv, arch)
    cache, taken = _cache(p, inputs)
    given = [StridedArray.draw(inputs, kind, p.q_shape, contiguous(p.q_shape))]
    for shape in (p.k_shape, p.v_shape):
        if not p.page:
            given.append(StridedArray.draw(inputs, of_cache, shape, contiguous(shape)))
            continue
        pool = inputs.array(of_cache, (len(taken), p.page, p.kv_heads, shape[-1]))
        given.append(StridedArray.row_major(np.where(taken[..., None, None], pool, np.nan).astype(of_cache)))
    q, k, v = (operand.view for operand in given)
    slopes = None
    if p.alibi:
        slopes = np.broadcast_to(2.0 ** (-8 * (np.arange(p.heads) + 1) / p.heads), p.slopes_shape).astype(np.float32)
        given.append(StridedArray.row_major(slopes))
    given += [StridedArray.row_major(np.asarray(array)) for array in vars(cache).values() if array is not None]
    kinds = array_type(p.dtype_c, arch), np.dtype(np.float32)
    written = [
        StridedArray.for_results(inputs, kind, shape, contiguous(shape))
        for kind, shape in zip(kinds, (p.r_shape, p.lse_shape), strict=True)
    ]
    rows = max(1, BLOCK_SCORES // (p.batch * p.heads * p.lk))
    blocks = tuple(Extent.whole(p.lq).split(rows))

    def by_blocks(make: Callable[..., np.ndarray], *arguments: Any) -> Callable[[], np.ndarray]:
        return lambda: np.concatenate([make(p, *arguments, queries=block, slopes=slopes, cache=cache) for block in blocks], axis=2)

    place = len(given)
    logarithms = ExpectedOperand(
        place + 1, by_blocks(reference.attention_lse, q, k), by_blocks(reference.attention_lse_error_bound, q, k, arch)
    )
    return Workload(
        (*given, *written[: 1 + p.lse]), place,
        by_blocks(reference.attention, q, k, v), by_blocks(reference.attention_error_bound, q, k, v, arch),
        lambda: TypicalError.concatenate(
            [reference.attention_typical_error(p, q, k, v, arch, block, slopes, cache) for block in blocks], axis=2
        ),
        beside=(logarithms,) if p.lse else (),
    )  # fmt: skip


def _cache(p: AttentionProblem, inputs: Inputs) -> tuple[Cache, np.ndarray]:
    """Draws a cache's arrays other than K and V, and which rows of the pools' pages, (pages, page), hold keys.

    The first sequence is full. Pages are in random order, one of them belongs to no sequence, and table entries that no key
    needs are -1.
    """
    scale_k, scale_v = (inputs.rng.uniform(0.25, 2, p.kv_heads).astype(np.float32) if p.narrow_kv else None for _ in "KV")
    if not p.page:
        return Cache(None, None, scale_k, scale_v), np.empty(0)
    lengths = inputs.rng.integers(p.lk // 2, p.lk, p.batch, endpoint=True).astype(np.int32)
    lengths[0] = p.lk
    numbers = inputs.rng.permutation(p.batch * p.pages + 1)
    blocks = numbers[: p.batch * p.pages].reshape(p.batch, p.pages).astype(np.int32)
    taken = np.zeros((len(numbers), p.page), bool)
    for row, length in zip(blocks, lengths, strict=True):
        taken[row] = np.arange(p.pages * p.page).reshape(-1, p.page) < length
    blocks[np.arange(p.pages) * p.page >= lengths[:, None]] = -1
    return Cache(blocks, lengths, scale_k, scale_v), taken


OPERATORS = (
    Operator(
        "attention", "fused attention: softmax(scale * Q K^T) V", FusedAttention, _fused_options, _attention,
        Kernels(_attention_workload),
    ),
    Operator(
        "unfused", "attention as three kernels, the paper's baseline", UnfusedAttention, _unfused_options, _unfused_tree,
        Kernels(_attention_workload),
    ),
)  # fmt: skip
