"""Operators along an axis, and by indices, as Triton kernels: extremes, sums, order, running sums, gather, scatter, windows.

Operands are contiguous; `element_sources` says what such kernels may call. The longest axis has 32 bits.
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction


@JITFunction
def _larger(a, at_a, b, at_b):  # type: ignore[no-untyped-def]
    """NaN is the largest; of equal elements, the first."""
    before = (a > b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (at_a < at_b))
    return tl.where(before, a, b), tl.where(before, at_a, at_b)


@JITFunction
def _in_order(x, LARGEST: tl.constexpr):  # type: ignore[no-untyped-def]
    """Returns numbers whose largest is the wanted one; a second call returns the first numbers. `-x` would lose the sign of 0."""
    if LARGEST:
        return x
    elif x.dtype.is_floating():
        return x * -1.0
    else:
        return ~x


@JITFunction
def _plus(a, b):  # type: ignore[no-untyped-def]
    return a + b


@JITFunction
def _times(a, b):  # type: ignore[no-untyped-def]
    return a * b


@JITFunction
def extremes(x, values, indices, n, LARGEST: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Finds the largest or smallest element of each row of n, and its index. Lanes past the end read the last element."""
    row = tl.program_id(0).to(tl.int64)
    x += row * n
    at = tl.minimum(tl.arange(0, BLOCK), n - 1)
    best, where = _in_order(tl.load(x + at), LARGEST), at
    for first in range(BLOCK, n, BLOCK):
        at = tl.minimum(first + tl.arange(0, BLOCK), n - 1)
        best, where = _larger(best, where, _in_order(tl.load(x + at), LARGEST), at)
    best, where = tl.reduce((best, where), 0, _larger)
    tl.store(values + row, _in_order(best, LARGEST))
    tl.store(indices + row, where)


@JITFunction
def totals(x, out, n, UNIT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adds the elements of each row of n in the result's type, or multiplies them; UNIT is 0 for sums, 1 for products."""
    row = tl.program_id(0).to(tl.int64)
    found = tl.full((BLOCK,), UNIT, out.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, at < n, UNIT).to(out.dtype.element_ty)
        if UNIT == 0:
            found += values
        else:
            found *= values
    if UNIT == 0:
        tl.store(out + row, tl.reduce(found, 0, _plus))
    else:
        tl.store(out + row, tl.reduce(found, 0, _times))


@JITFunction
def running(x, out, n, UNIT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Adds to each element of a row of n those before it, or multiplies it by them, in the result's type; UNIT as above."""
    row = tl.program_id(0).to(tl.int64)
    before = tl.full((1,), UNIT, out.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, at < n, UNIT).to(out.dtype.element_ty)
        if UNIT == 0:
            found = tl.associative_scan(values, 0, _plus) + before
            before += tl.reduce(values, 0, _plus)
        else:
            found = tl.associative_scan(values, 0, _times) * before
            before *= tl.reduce(values, 0, _times)
        tl.store(out + row * n + at, found, at < n)


@JITFunction
def running_extremes(x, values, indices, n, LARGEST: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Finds, for each element of a row of n, the largest or smallest element up to it, and its index: of equal ones the last.

    Lanes past the end read the last element. Indices are inverted meanwhile, so that the last is the smallest.
    """
    row = tl.program_id(0).to(tl.int64)
    best, where = _in_order(tl.load(x + row * n), LARGEST), tl.full((), -1, tl.int32)
    for first in range(0, n, BLOCK):
        lane = first + tl.arange(0, BLOCK)
        at = tl.minimum(lane, n - 1)
        found, places = tl.associative_scan((_in_order(tl.load(x + row * n + at), LARGEST), ~at), 0, _larger)
        found, places = _larger(best, where, found, places)
        best, where = tl.reduce((found, places), 0, _larger)
        tl.store(values + row * n + lane, _in_order(found, LARGEST), lane < n)
        tl.store(indices + row * n + lane, ~places, lane < n)


@JITFunction
def _log_plus(a, b):  # type: ignore[no-untyped-def]
    """Returns log(exp(a) + exp(b))."""
    most, least = tl.where((a > b) | (a != a), a, b), tl.where((a > b) | (a != a), b, a)
    return tl.where(most == least, most + 0.6931471805599453, most + libdevice.log1p(libdevice.exp(least - most)))


@JITFunction
def running_log_sums(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes, for each element of a row of n, the logarithm of the sum of exponentials up to it."""
    row = tl.program_id(0).to(tl.int64)
    before = tl.full((1,), float("-inf"), out.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, at < n, float("-inf")).to(out.dtype.element_ty)
        found = _log_plus(tl.associative_scan(values, 0, _log_plus), before)
        before = _log_plus(before, tl.reduce(values, 0, _log_plus))
        tl.store(out + row * n + at, found, at < n)


@JITFunction
def log_sums(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes the logarithm of the sum of exponentials of each row of n."""
    row = tl.program_id(0).to(tl.int64)
    most = tl.full((BLOCK,), float("-inf"), out.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, at < n, float("-inf")).to(out.dtype.element_ty)
        most = tl.where((values > most) | (values != values), values, most)
    most, _ = tl.reduce((most, tl.arange(0, BLOCK)), 0, _larger)
    base = tl.where((most == float("inf")) | (most == float("-inf")), 0.0, most)
    total = tl.full((BLOCK,), 0.0, out.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, at < n, float("-inf")).to(out.dtype.element_ty)
        total += libdevice.exp(values - base)
    tl.store(out + row, libdevice.log(tl.reduce(total, 0, _plus)) + base)


@JITFunction
def moments(x, means, variances, n, divisor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes the mean of each row of n, and the sum of squared distances from it, divided by the divisor's element."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.full((BLOCK,), 0.0, means.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + at, at < n, 0.0).to(means.dtype.element_ty)
    mean = tl.reduce(total, 0, _plus) / n
    total = tl.full((BLOCK,), 0.0, means.dtype.element_ty)
    for first in range(0, n, BLOCK):
        at = first + tl.arange(0, BLOCK)
        distance = tl.load(x + row * n + at, at < n, 0.0).to(means.dtype.element_ty) - mean
        total += tl.where(at < n, distance * distance, 0.0)
    tl.store(means + row, mean)
    tl.store(variances + row, tl.reduce(total, 0, _plus) / tl.load(divisor))


@JITFunction
def _precedes(a, b, DESCENDING: tl.constexpr):  # type: ignore[no-untyped-def]
    """NaN is the largest."""
    if DESCENDING:
        return (a > b) | ((a != a) & (b == b))
    else:
        return (a < b) | ((b != b) & (a == a))


@JITFunction
def sort_rows(x, values, indices, n, kept, DESCENDING: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores the first `kept` elements of each row of n in order, each at its rank: the number of elements that precede it.

    Equal elements keep their order; NaN is the largest. This takes n steps for each element.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    own = tl.load(x + row * n + at, at < n)
    rank = tl.full((BLOCK,), 0, tl.int32)
    for other_at in range(n):
        other = tl.load(x + row * n + other_at)
        same = (other == own) | ((other != other) & (own != own))
        rank += (_precedes(other, own, DESCENDING) | (same & (other_at < at))).to(tl.int32)
    stored = (at < n) & (rank < kept)
    tl.store(values + row * kept + rank, own, stored)
    tl.store(indices + row * kept + rank, at, stored)


@JITFunction
def merge_runs(  # type: ignore[no-untyped-def]
    x, places, values, indices, n, kept, RUN: tl.constexpr, STEPS: tl.constexpr, DESCENDING: tl.constexpr, BLOCK: tl.constexpr
):
    """Stores the first `kept` elements of each row of n in order, each at its rank, found in each run by a search of STEPS.

    A row of x consists of runs of RUN elements in order; places are the elements' places in the row that was sorted. A run's
    elements come from before those of later runs, so equal ones keep their order.
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x += row * n
    own = tl.load(x + at, at < n)
    of_run, rank = at // RUN * RUN, at % RUN
    for first in range(0, n, RUN):
        low = tl.full((BLOCK,), 0, tl.int32) + first
        high = tl.minimum(low + RUN, n)
        for _ in range(STEPS):
            middle = (low + high) // 2
            other = tl.load(x + middle, low < high)
            same = (other == own) | ((other != other) & (own != own))
            before = _precedes(other, own, DESCENDING) | (same & (first < of_run))
            low, high = tl.where((low < high) & before, middle + 1, low), tl.where((low < high) & (before == 0), middle, high)
        rank += tl.where(first == of_run, 0, low - first)
    stored = (at < n) & (rank < kept)
    tl.store(values + row * kept + rank, own, stored)
    tl.store(indices + row * kept + rank, tl.load(places + row * n + at, at < n), stored)


@JITFunction
def take(  # type: ignore[no-untyped-def]
    x, index, out, count, n, length, inner, SHARED: tl.constexpr, BLOCK: tl.constexpr
):
    """Gathers: out[b, j, i] = x[b, index, i] of x (b, n, inner) and out (b, length, inner); the index is that of j or of all."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, j, b = at % inner, at // inner % length, (at // inner // length).to(tl.int64)
    chosen = tl.load(index + (j if SHARED else at), at < count, 0).to(tl.int64)
    chosen = tl.where(chosen < 0, chosen + n, chosen)
    tl.store(out + at, tl.load(x + (b * n + chosen) * inner + i, at < count), at < count)


@JITFunction
def places_of_nonzero(mask, counts, steps, out, count, axes, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores the index of each true element in a row of out (n, axes): its count's. steps (2, axes): lengths, then strides."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(mask + at, at < count, 0) != 0
    row = tl.load(counts + at, chosen, 1).to(tl.int64) - 1
    for axis in range(axes):
        tl.store(out + row * axes + axis, at // tl.load(steps + axes + axis) % tl.load(steps + axis), chosen)


@JITFunction
def put(  # type: ignore[no-untyped-def]
    x, index, out, count, n, length, inner, SHARED: tl.constexpr, HOW: tl.constexpr, BLOCK: tl.constexpr
):
    """Scatters: stores x[b, j, i] in out[b, index, i], or combines it, of x (b, length, inner) and out (b, n, inner)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, j, b = at % inner, at // inner % length, (at // inner // length).to(tl.int64)
    chosen = tl.load(index + (j if SHARED else at), at < count, 0).to(tl.int64)
    place = out + (b * n + tl.where(chosen < 0, chosen + n, chosen)) * inner + i
    values = tl.load(x + at, at < count)
    if HOW == "sum":
        tl.atomic_add(place, values.to(out.dtype.element_ty), at < count, sem="relaxed")
    elif HOW == "amax":
        tl.atomic_max(place, values.to(out.dtype.element_ty), at < count, sem="relaxed")
    elif HOW == "amin":
        tl.atomic_min(place, values.to(out.dtype.element_ty), at < count, sem="relaxed")
    else:
        tl.store(place, values, at < count)


@JITFunction
def likelihoods(x, target, weight, out, weights, rows, classes, ignored, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores minus the target's element of each row of classes times its weight, and the weight; 0 if the target is ignored."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.load(target + row, row < rows, ignored)
    counts = (chosen != ignored) & (row < rows)
    own = tl.load(weight + chosen, counts, 0.0)
    tl.store(weights + row, own, row < rows)
    found = -own * tl.load(x + row.to(tl.int64) * classes + chosen, counts, 0.0)
    tl.store(out + row, tl.where(counts, found, 0.0), row < rows)


@JITFunction
def likelihood_gradients(  # type: ignore[no-untyped-def]
    grad, target, weight, out, count, classes, ignored, STEP: tl.constexpr, BLOCK: tl.constexpr
):
    """Computes the gradient of `likelihoods`, (rows, classes); grad has one element or one a row."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, own = at // classes, at % classes
    chosen = tl.load(target + row, at < count, ignored)
    hit = (chosen == own) & (chosen != ignored) & (at < count)
    found = -tl.load(weight + own, hit, 0.0) * tl.load(grad + row * STEP, hit, 0.0)
    tl.store(out + at, tl.where(hit, found, 0.0), at < count)


@JITFunction
def _windows_of(windows, shape, at):  # type: ignore[no-untyped-def]
    """Returns pointers to the offsets of a result's window along each axis, the number of its volume, and the window's extents; see
    `largest_in_windows`."""
    depth, height, width = tl.load(shape), tl.load(shape + 1), tl.load(shape + 2)
    window_d, window_h, window_w = tl.load(shape + 3), tl.load(shape + 4), tl.load(shape + 5)
    layers = windows + at // width // height % depth * window_d
    rows = windows + depth * window_d + at // width % height * window_h
    columns = windows + depth * window_d + height * window_h + at % width * window_w
    return layers, rows, columns, at // width // height // depth, window_d, window_h, window_w


@JITFunction
def largest_in_windows(x, windows, shape, out, indices, count, volume, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Finds the largest element of each window of three axes and its place in its volume.

    shape: of the result's three axes, then of a window. windows: for each axis (result, window) the offsets of a window's elements
    in a volume, -1 for padding.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    layers, rows, columns, before, window_d, window_h, window_w = _windows_of(windows, shape, at)
    x += before.to(tl.int64) * volume
    best = tl.full((BLOCK,), float("-inf"), out.dtype.element_ty)
    where = tl.full((BLOCK,), -1, tl.int32)
    for deep in range(window_d):
        layer = tl.load(layers + deep, at < count, -1)
        for down in range(window_h):
            row = tl.load(rows + down, at < count, -1)
            for right in range(window_w):
                column = tl.load(columns + right, at < count, -1)
                inside = (layer >= 0) & (row >= 0) & (column >= 0)
                value = tl.load(x + layer + row + column, inside, float("-inf"))
                better = inside & ((value > best) | (value != value) | (where < 0))
                best, where = tl.where(better, value, best), tl.where(better, layer + row + column, where)
    tl.store(out + at, best, at < count)
    tl.store(indices + at, where, at < count)


@JITFunction
def sums_of_windows(x, windows, shape, divisors, out, count, volume, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums each window's elements, divided by its entry of divisors (depth, height, width); windows and shape as above."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    layers, rows, columns, before, window_d, window_h, window_w = _windows_of(windows, shape, at)
    x += before.to(tl.int64) * volume
    total = tl.full((BLOCK,), 0.0, divisors.dtype.element_ty)
    for deep in range(window_d):
        layer = tl.load(layers + deep, at < count, -1)
        for down in range(window_h):
            row = tl.load(rows + down, at < count, -1)
            for right in range(window_w):
                column = tl.load(columns + right, at < count, -1)
                inside = (layer >= 0) & (row >= 0) & (column >= 0)
                total += tl.load(x + layer + row + column, inside, 0.0).to(divisors.dtype.element_ty)
    results = tl.load(shape) * tl.load(shape + 1) * tl.load(shape + 2)  # of a volume
    tl.store(out + at, total / tl.load(divisors + at % results, at < count, 1.0), at < count)


@JITFunction
def weighted_sums(  # type: ignore[no-untyped-def]
    x, index, weights, out, count, n, length, inner, window, BLOCK: tl.constexpr
):
    """Sums weights[j, k] x[b, index[j, k], i] over k to out[b, j, i], of x (b, n, inner) and out (b, length, inner)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i, j, b = at % inner, at // inner % length, (at // inner // length).to(tl.int64)
    total = tl.full((BLOCK,), 0.0, tl.float32)
    for k in range(window):
        chosen = tl.load(index + j * window + k, at < count, 0)
        weight = tl.load(weights + j * window + k, at < count, 0.0)
        value = tl.load(x + (b * n + chosen) * inner + i, (at < count) & (weight != 0.0), 0.0)
        total += weight * value.to(tl.float32)
    tl.store(out + at, total, at < count)
