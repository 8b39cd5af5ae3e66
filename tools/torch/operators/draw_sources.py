"""Random numbers as a Triton kernel, in the order and by the formulas of PyTorch's kernels on AMD's GPUs.

Words: Philox 4x32 with ten rounds (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11). Order: ATen's
native/cuda/DistributionTemplates.h. Numbers of words: rocRAND's rocrand_uniform.h and rocrand_normal.h, from above 0 to 1.
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction

THREADS = 256  # of a workgroup


@JITFunction
def _philox(thread, call, seed):  # type: ignore[no-untyped-def]
    """Returns four words of each thread's own sequence, at a call."""
    c = thread.to(tl.uint32)
    d = tl.full(c.shape, 0, tl.uint32)
    a, b = d + call.to(tl.uint32), d + (call >> 32).to(tl.uint32)
    first, second = d + 0xD2511F53, d + 0xCD9E8D57
    low, high = d + seed.to(tl.uint32), d + (seed >> 32).to(tl.uint32)
    for _ in tl.static_range(10):
        a, b, c, d = tl.umulhi(second, c) ^ b ^ low, second * c, tl.umulhi(first, a) ^ d ^ high, first * a
        low, high = low + 0x9E3779B9, high + 0xBB67AE85
    return a, b, c, d


@JITFunction
def _unit(word):  # type: ignore[no-untyped-def]
    """Returns numbers in (0, 1] in f32."""
    return word.to(tl.float32) * 2.3283064e-10 + 2.3283064e-10


@JITFunction
def _wide_unit(word, second):  # type: ignore[no-untyped-def]
    """Returns numbers in (0, 1] in f64, of 53 bits."""
    bits = word.to(tl.uint64) ^ (second.to(tl.uint64) << 21)
    return bits.to(tl.float64) * 1.1102230246251565e-16 + 1.1102230246251565e-16


@JITFunction
def _normal(unit, turn):  # type: ignore[no-untyped-def]
    """Returns two normal numbers of two in (0, 1], by Box and Muller."""
    radius = libdevice.sqrt(-2 * libdevice.log(unit))
    return radius * libdevice.sin(6.283185307179586 * turn), radius * libdevice.cos(6.283185307179586 * turn)


@JITFunction
def _store(out, at, count, drawn, parameters, EACH: tl.constexpr, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores what drawn numbers give by two parameters, or by each element's own one if EACH is 1."""
    a, b = tl.load(parameters + at * EACH, at < count, 0), tl.load(parameters + 1 - EACH)
    kind = out.dtype.element_ty
    if NAME == "integers":  # the least, and the number of values
        found = ((drawn % b.to(drawn.dtype)).to(tl.int64) + a).to(kind)
    elif NAME == "uniform":  # from a to b, which becomes a
        found = (drawn * (b.to(kind) - a.to(kind)).to(b.dtype) + a).to(kind)
        found = tl.where(found == b.to(kind), a.to(kind), found)
    elif NAME == "chances":  # 1 with this probability
        found = ((drawn <= a) if EACH else (drawn < a)).to(kind)
    elif NAME == "exponential":  # of this rate
        found = (-1 / a * libdevice.log(drawn)).to(kind)
    else:  # a normal number's mean and deviation
        found = (drawn * b + a).to(kind)
    tl.store(out + at, found, at < count)


@JITFunction
def draw(  # type: ignore[no-untyped-def]
    out, parameters, state, count, threads, EACH: tl.constexpr, NAME: tl.constexpr, WIDE: tl.constexpr, THREADS: tl.constexpr
):
    """Draws an element of each word, or of each two if WIDE; state: the seed, and the first call.

    A thread's elements are as far apart as there are threads, but next to each other if EACH is 1.
    """
    thread, call = tl.program_id(0) * THREADS + tl.arange(0, THREADS), tl.program_id(1)
    a, b, c, d = _philox(thread, tl.load(state + 1) + call, tl.load(state))
    step = 1 if EACH else threads
    if WIDE:
        if NAME == "integers":
            x, y = (a.to(tl.uint64) << 32) | b.to(tl.uint64), (c.to(tl.uint64) << 32) | d.to(tl.uint64)
        else:
            x, y = _wide_unit(a, b), _wide_unit(c, d)
            if NAME == "normal":
                x, y = _normal(x, y)
        at = call * threads * 2 + (thread * 2 if EACH else thread)
        _store(out, at, count, x, parameters, EACH, NAME)
        _store(out, at + step, count, y, parameters, EACH, NAME)
    else:
        x, y, z, w = a, b, c, d
        if NAME != "integers":
            x, y, z, w = _unit(a), _unit(b), _unit(c), _unit(d)
            if NAME == "normal":
                x, y = _normal(x, y)
                z, w = _normal(z, w)
        at = call * threads * 4 + (thread * 4 if EACH else thread)
        _store(out, at, count, x, parameters, EACH, NAME)
        _store(out, at + step, count, y, parameters, EACH, NAME)
        _store(out, at + 2 * step, count, z, parameters, EACH, NAME)
        _store(out, at + 3 * step, count, w, parameters, EACH, NAME)
