"""Cached K and V (pages, or 8-bit floats with scales), resolved into one plain problem per sequence and head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.tree import Extent

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Cache:
    """Inputs of a cached problem in addition to Q, K and V; None for inputs that it does not read."""

    blocks: ArrayLike | None = None  # (batch, pages) int: page numbers in the pools, for each sequence
    lengths: ArrayLike | None = None  # (batch) int: number of keys of each sequence
    scale_k: ArrayLike | None = None  # (kv_heads) f32
    scale_v: ArrayLike | None = None  # (kv_heads) f32


@dataclass(frozen=True)
class Sequence:
    """Query heads of one sequence that share a head of K and V, as a problem without a cache."""

    problem: AttentionProblem  # with scale_k as part of its scale
    place: tuple[int, slice]  # index in the batch, and its query heads
    q: Array  # (1,heads,lq,d)
    k: Array  # (1,1,keys,d), float64, not scaled
    v: Array  # (1,1,keys,dv), float64, not scaled
    slopes: Array | None  # of ALiBi, (1,heads)
    scale_v: float  # factor of the result


def sequences(
    p: AttentionProblem, q: ArrayLike, k: ArrayLike, v: ArrayLike, slopes: ArrayLike | None, cache: Cache | None
) -> Iterator[Sequence]:
    """Yields a Sequence for each head of K and V of each sequence that has keys. LaunchError for missing or invalid inputs."""
    q, k, v = np.asarray(q), np.asarray(k), np.asarray(v)
    lengths, blocks = _pages_of(p, k, v, cache or Cache())
    scales = _scales(p, cache or Cache())
    group = p.heads // p.kv_heads
    for batch, head in np.ndindex(p.batch, p.kv_heads):
        keys, heads = int(lengths[batch]), slice(head * group, (head + 1) * group)
        if not keys:
            continue
        own_k, own_v = (_rows(p, pool, blocks, batch, head)[:keys][None, None] for pool in (k, v))
        scale = float(np.float32(p.scale) * np.float32(scales[0][head]))
        problem = replace(p, batch=1, heads=group, kv_heads=1, lk=keys, page=0, dtype_kv=p.dtype, scale=scale)
        given = None if slopes is None else np.asarray(slopes)[batch : batch + 1, heads]
        yield Sequence(problem, (batch, heads), q[batch : batch + 1, heads], own_k, own_v, given, float(scales[1][head]))


def each_sequence(
    p: AttentionProblem,
    queries: Extent,
    columns: tuple[int, ...],
    absent: float,
    function: Callable[[Sequence], NDArray[np.float64]],
    operands: Iterator[Sequence],
) -> NDArray[np.float64]:
    """Returns (batch,heads,queries,*columns): `function` of each Sequence in `operands`, and `absent` elsewhere.

    function: returns (1,heads of the Sequence,queries,*columns).
    """
    found = np.full((p.batch, p.heads, len(queries), *columns), absent)
    for one in operands:
        found[one.place] = function(one)[0]
    return found


def _pages_of(p: AttentionProblem, k: Array, v: Array, cache: Cache) -> tuple[Array, Array | None]:
    """Returns the number of keys of each sequence, and its page numbers or, if K and V are not paged, None."""
    if not p.page:
        expect_shape("K", k, p.k_shape)
        expect_shape("V", v, p.v_shape)
        return np.full(p.batch, p.lk), None
    if cache.blocks is None or cache.lengths is None:
        raise LaunchError(f"K and V have pages of {p.page} keys: give `blocks` ({p.batch},{p.pages}) and `lengths` ({p.batch},)")
    blocks, lengths = expect_shape("blocks", cache.blocks, (p.batch, p.pages)), expect_shape("lengths", cache.lengths, (p.batch,))
    for name, pool, width in (("K", k, p.d), ("V", v, p.dv)):
        expect_shape(name, pool, (len(pool), p.page, p.kv_heads, width))
    if lengths.min() < 0 or lengths.max() > p.lk:
        raise LaunchError(f"lengths from {lengths.min()} to {lengths.max()}: a sequence has 0 to lk = {p.lk} keys")
    used = np.arange(p.pages) * p.page < lengths[:, None]
    if used.any() and (blocks[used].min() < 0 or blocks[used].max() >= len(k)):
        raise LaunchError(f"blocks from {blocks[used].min()} to {blocks[used].max()}: the pools have {len(k)} pages")
    return lengths, blocks


def _rows(p: AttentionProblem, pool: Array, blocks: Array | None, batch: int, head: int) -> NDArray[np.float64]:
    """Returns all lk rows, or all pages, of a head of K or V of a sequence, in float64."""
    if blocks is None:
        return np.asarray(pool[batch, head]).astype(np.float64)
    pages = np.clip(blocks[batch].astype(int), 0, len(pool) - 1)
    return np.asarray(pool[pages, :, head]).astype(np.float64).reshape(-1, pool.shape[-1])


def _scales(p: AttentionProblem, cache: Cache) -> tuple[Array, Array]:
    if not p.narrow_kv:
        return np.ones(p.kv_heads), np.ones(p.kv_heads)
    if cache.scale_k is None or cache.scale_v is None:
        raise LaunchError(f"K and V in {p.dtype_kv} have scales: give `scale_k` and `scale_v`, ({p.kv_heads},) each")
    return expect_shape("scale_k", cache.scale_k, (p.kv_heads,)), expect_shape("scale_v", cache.scale_v, (p.kv_heads,))
