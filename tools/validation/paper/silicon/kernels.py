"""Triton kernels with free tiles. Products accumulate in f32; C, Y and O are f16.

Imported only where Triton is installed.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["split"])
def gemm(a, b, c, m, n, k, split, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr):
    """C(m,n) = A(m,k) B(k,n), row-major. split > 1: c is f32 (split, m, n), partial sums that the caller adds."""
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    number, part = tl.program_id(0), tl.program_id(1)
    group = number // (GROUP * tiles_n)
    rows = min(tiles_m - group * GROUP, GROUP)
    first_m, first_n = (group * GROUP + number % rows) * M, number % (GROUP * tiles_n) // rows * N
    at_m, at_n, at_k = first_m + tl.arange(0, M), first_n + tl.arange(0, N), tl.arange(0, K)
    steps = tl.cdiv(tl.cdiv(k, K), split)
    total = tl.zeros((M, N), tl.float32)
    for step in range(part * steps, (part + 1) * steps):
        depth = step * K + at_k
        x = tl.load(a + at_m[:, None] * k + depth[None, :], mask=(at_m[:, None] < m) & (depth[None, :] < k), other=0.0)
        y = tl.load(b + depth[:, None] * n + at_n[None, :], mask=(depth[:, None] < k) & (at_n[None, :] < n), other=0.0)
        total = tl.dot(x, y, total)
    inside = (at_m[:, None] < m) & (at_n[None, :] < n)
    place = c + part.to(tl.int64) * m * n + at_m[:, None] * n + at_n[None, :]
    tl.store(place, total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def softmax(x, y, rows, n, ROWS: tl.constexpr, N: tl.constexpr, WHOLE: tl.constexpr):
    """Y = softmax of each row of X(rows,n). WHOLE: a row fits N columns and is read once, else twice."""
    at_m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at_n = tl.arange(0, N)
    start = at_m[:, None].to(tl.int64) * n
    live = at_m[:, None] < rows
    if WHOLE:
        mask = live & (at_n[None, :] < n)
        v = tl.load(x + start + at_n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
        e = tl.exp(v - tl.max(v, 1)[:, None])
        tl.store(y + start + at_n[None, :], (e / tl.sum(e, 1)[:, None]).to(tl.float16), mask=mask)
    else:
        top, total = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
        for first in range(0, n, N):
            mask = live & (first + at_n[None, :] < n)
            v = tl.load(x + start + first + at_n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(v, 1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(v - higher[:, None]), 1)
            top = higher
        for first in range(0, n, N):
            mask = live & (first + at_n[None, :] < n)
            v = tl.load(x + start + first + at_n[None, :], mask=mask, other=float("-inf")).to(tl.float32)
            e = tl.exp(v - top[:, None]) / total[:, None]
            tl.store(y + start + first + at_n[None, :], e.to(tl.float16), mask=mask)


@triton.jit
def attention(q, k, v, o, length, scale, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """O = softmax(scale Q K^T) V of each head, row-major (heads,length,D)."""
    head = tl.program_id(1).to(tl.int64) * length * D
    at_m, at_n, at_d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, D)
    query = tl.load(q + head + at_m[:, None] * D + at_d[None, :], mask=at_m[:, None] < length, other=0.0)
    top, total = tl.full((M,), float("-inf"), tl.float32), tl.zeros((M,), tl.float32)
    out = tl.zeros((M, D), tl.float32)
    factor = scale * 1.44269504
    for first in range(0, length, N):
        keys = first + at_n
        there = keys[:, None] < length
        key = tl.load(k + head + keys[:, None] * D + at_d[None, :], mask=there, other=0.0)
        s = tl.where(keys[None, :] < length, tl.dot(query, key.T) * factor, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(p, 1)
        value = tl.load(v + head + keys[:, None] * D + at_d[None, :], mask=there, other=0.0)
        out = tl.dot(p.to(tl.float16), value, out * fade[:, None])
        top = higher
    place = o + head + at_m[:, None] * D + at_d[None, :]
    tl.store(place, (out / total[:, None]).to(tl.float16), mask=at_m[:, None] < length)
