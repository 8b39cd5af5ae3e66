"""Triton kernels of the tests: the public tutorials' operators, written from their description."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    tl.store(out + at, tl.load(x + at, mask=live) + tl.load(y + at, mask=live), mask=live)


@triton.jit
def softmax_rows(x, out, x_stride, out_stride, rows, cols, BLOCK: tl.constexpr):
    """Computes softmax row by row, rows dealt out over the programs; max subtracted."""
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        at = tl.arange(0, BLOCK)
        live = at < cols
        values = tl.load(x + row * x_stride + at, mask=live, other=-float("inf"))
        shifted = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_stride + at, shifted / tl.sum(shifted, axis=0), mask=live)


@triton.jit
def matmul(
    a, b, c, M, N, K, a_row, a_col, b_row, b_col, c_row, c_col,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Computes C = A B, tiles in groups of rows so that neighbours share B."""
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    first = program // in_group * GROUP
    height = min(tiles_m - first, GROUP)
    tile_m = first + program % in_group % height
    tile_n = program % in_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    cols = (tile_n * BN + tl.arange(0, BN)) % N
    ks = tl.arange(0, BK)
    a_at = a + rows[:, None] * a_row + ks[None, :] * a_col
    b_at = b + ks[:, None] * b_row + cols[None, :] * b_col
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a_tile = tl.load(a_at, mask=ks[None, :] < K - k * BK, other=0.0)
        b_tile = tl.load(b_at, mask=ks[:, None] < K - k * BK, other=0.0)
        total = tl.dot(a_tile, b_tile, total)
        a_at += BK * a_col
        b_at += BK * b_row
    rows = tile_m * BM + tl.arange(0, BM)
    cols = tile_n * BN + tl.arange(0, BN)
    c_at = c + rows[:, None] * c_row + cols[None, :] * c_col
    tl.store(c_at, total.to(c.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def layer_norm(x, out, weight, bias, mean_out, rstd_out, stride, cols, eps, BLOCK: tl.constexpr):
    """Normalizes one row a program, in steps of BLOCK: mean, variance, then the affine map."""
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        sums += tl.load(x + at, mask=at < cols, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / cols
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        centred = tl.where(at < cols, tl.load(x + at, mask=at < cols, other=0.0).to(tl.float32) - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        live = at < cols
        scaled = (tl.load(x + at, mask=live, other=0.0).to(tl.float32) - mean) * rstd
        tl.store(out + at, scaled * tl.load(weight + at, mask=live) + tl.load(bias + at, mask=live), mask=live)


@triton.jit
def attention(
    q, k, v, out, scale, q_head, q_row, k_head, k_row, v_head, v_row, out_head, out_row, L,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Computes softmax(scale Q K^T) V of one block of rows of one head, with a running softmax over blocks of keys."""
    block, head = tl.program_id(0), tl.program_id(1)
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    q_tile = tl.load(q + head * q_head + rows[:, None] * q_row + dims[None, :], mask=rows[:, None] < L, other=0.0)
    best = tl.full([BM], -float("inf"), tl.float32)
    norm = tl.zeros([BM], tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    scale2 = scale * 1.4426950408889634  # exp(x) = exp2(x log2 e)
    end = min(L, (block + 1) * BM) if CAUSAL else L
    for first in range(0, end, BN):
        keys = first + tl.arange(0, BN)
        k_tile = tl.load(k + head * k_head + keys[None, :] * k_row + dims[:, None], mask=keys[None, :] < L, other=0.0)
        scores = tl.dot(q_tile, k_tile) * scale2
        allowed = keys[None, :] < L
        if CAUSAL:
            allowed = allowed & (keys[None, :] <= rows[:, None])
        scores = tl.where(allowed, scores, -float("inf"))
        now = tl.maximum(best, tl.max(scores, axis=1))
        weights = tl.exp2(scores - now[:, None])
        shrink = tl.exp2(best - now)
        norm = norm * shrink + tl.sum(weights, axis=1)
        v_tile = tl.load(v + head * v_head + keys[:, None] * v_row + dims[None, :], mask=keys[:, None] < L, other=0.0)
        total = tl.dot(weights.to(v_tile.dtype), v_tile, total * shrink[:, None])
        best = now
    at = out + head * out_head + rows[:, None] * out_row + dims[None, :]
    tl.store(at, (total / norm[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < L)


@triton.jit
def neighbours_racy(x, out, scratch, n, BLOCK: tl.constexpr):
    """Each program reads the value that the next one stores, without an order between them."""
    program = tl.program_id(0)
    tl.store(scratch + program, tl.load(x + program) * 2)
    tl.store(out + program, tl.load(scratch + (program + 1) % n))  # races


@triton.jit
def copy_past_the_end(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)  # no mask
    tl.store(out + at, values, mask=at < n)


@triton.jit
def fetch(at):
    return tl.load(at)  # the helper's line


@triton.jit
def sum_past_the_end(x, out, n, BLOCK: tl.constexpr):
    values = fetch(x + tl.arange(0, BLOCK))  # the call's line
    tl.store(out, tl.sum(values, axis=0))


@triton.jit
def add_atomically(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))


@triton.autotune(configs=[triton.Config({"BLOCK": size}, num_warps=1) for size in (16, 256)], key=["n"])
@triton.jit
def tuned_double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=1) for size in (16, 32, 64, 128)],
    key=["n"],
    prune_configs_by={
        "early_config_prune": lambda configs, _arguments, **_options: configs[:3],
        "perf_model": lambda BLOCK, **_others: 1 / BLOCK,
        "top_k": 2,
    },
)
@triton.jit
def pruned_double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.heuristics({"EVEN": lambda meta: meta["n"] % meta["BLOCK"] == 0})
@triton.jit
def heuristic_double(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, 2 * tl.load(x + at))
    else:
        tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def strided_copy(x, out, x_row, x_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows, cols = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    tl.store(out + rows * COLS + cols, tl.load(x + rows * x_row + cols * x_col))


@triton.jit
def affine(pair, scale, shift, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, (tl.load(pair[0] + at) + pair[1]) * scale + shift)


@triton.jit
def descriptor_copy(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    given = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    taken = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    row, col = tl.program_id(0) * BM, tl.program_id(1) * BN
    taken.store([row, col], given.load([row, col]))


@triton.jit
def checked_load(x, out, limit, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.device_assert(values < limit, "a value past the limit")
    tl.store(out + at, values)


@triton.jit
def talkative(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_print("value", tl.load(x + at))


@triton.jit
def block_copy(x, out):
    out.store([0, 0], x.load([0, 0]))


@triton.autotune(
    configs=[triton.Config({"BLOCK": size}, num_warps=1) for size in (64, 256)],
    key=["n"], reset_to_zero=["count"], restore_value=["x"],
)  # fmt: skip
@triton.jit
def tuned_count(x, out, count, n, BLOCK: tl.constexpr):
    """Changes its input and adds to a total: right only if tuning leaves no trace."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    values = tl.load(x + at, mask=live) + 1
    tl.store(x + at, values, mask=live)
    tl.store(out + at, values, mask=live)
    tl.atomic_add(count, tl.sum(live.to(tl.float32), axis=0))


@triton.jit
def add_halves(x, total, BLOCK: tl.constexpr):
    values = tl.load(x + tl.arange(0, BLOCK))
    tl.atomic_add(total, tl.sum(values, axis=0).to(total.dtype.element_ty))


@triton.jit
def copy_by_table(table, out, first, second, third, BLOCK: tl.constexpr):
    """Copies to row n of out from the address in the table's entry n; the others are passed so that they are reached."""
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    source = tl.load(table + row).to(tl.pointer_type(tl.float32))
    tl.store(out + row * BLOCK + at, tl.load(source + at))


@triton.jit
def ratio(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    quotient = tl.load(x + at, mask=at < n, other=1.0) / tl.load(y + at, mask=at < n, other=1.0)
    tl.store(out + at, quotient, mask=at < n)


@triton.jit
def gated_in_place(a, b, n, BLOCK: tl.constexpr):
    """Replaces rows of a and b by silu(a) b and its gate; all waves load a block of fewer elements than threads."""
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    live = tl.arange(0, BLOCK) < n
    gate, value = tl.load(a + at, mask=live, other=0), tl.load(b + at, mask=live, other=0)
    sigmoid = tl.sigmoid(gate.to(tl.float32))
    tl.store(a + at, gate * sigmoid * value, mask=live)
    tl.store(b + at, sigmoid, mask=live)


@triton.jit
def cumsum_in_place(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.cumsum(tl.load(x + at), axis=0))


@triton.jit
def count_and_go_on(counter, out, BLOCK: tl.constexpr):
    """Wave 1 may load a value that wave 0 stored: no redundant load, as all threads go on with it."""
    seen = tl.load(counter)
    tl.store(counter, seen + 1)  # the load may come behind
    at = tl.arange(0, BLOCK)
    tl.store(out + at, at + seen)


@triton.jit
def store_seed(out, seed: tl.int32):
    tl.store(out, seed)
