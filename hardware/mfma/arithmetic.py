"""Exact bits of a matrix product, generation by generation, in numpy.

Source of the formulas: the hardware-validated model MMA-Sim (arXiv 2511.10909) for CDNA1, CDNA2 and CDNA3; for CDNA2's flush
of denormals also MIOpen, "MI200 MFMA behavior specifics". CDNA4 has no public model and follows CDNA3; see
`MatrixInstruction.fidelity`.

                f32, f64          f16, bf16                                  xf32; 8 bits and less
    gfx908      chain of fma      `_pairwise`, groups of 4 (bf16: 2)         -
    gfx90a      chain of fma      the same, flushed (bf16_1k: groups of 4)   -
    gfx942 on   chain of fma      `_cdna3`, groups of 8                      `_cdna3`: 4; 16 (`_join_sums`)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.errors import TargetError
from simgpu.hardware.mfma.instruction import BITS, SCALE_BLOCK, MatrixInstruction
from simgpu.hardware.mfma.layout import blgp_lane, broadcast_block
from simgpu.hardware.mfma.numbers import NumberFields, decode, to_f32

_NO_TERM = -(1 << 20)  # the exponent of an empty sum
_STICKY = 62  # shifts stop here: the rest is 0 or, rounded down, −1


def multiply(
    row: MatrixInstruction,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    *,
    cbsz: int = 0,
    abid: int = 0,
    blgp: int = 0,
    neg: tuple[int, int, int] = (0, 0, 0),
    clamp: bool = False,
    index: np.ndarray | None = None,
    scale_a: np.ndarray | None = None,
    scale_b: np.ndarray | None = None,
) -> np.ndarray:
    """Computes D = A·B + C as raw bits, as on the row's target.

    a (blocks, m, k), b (blocks, k, n), c (blocks, m, n): unsigned integers, each with the bits of one element.
    `blocks` may be any number. D has C's shape, uint32 (uint64 for f64). Every NaN of D is the default one.
    An smfmac takes a (blocks, m, k/2), the stored values, and index (blocks, m, k/4), the 4-bit fields.
    f8f6f4: cbsz and blgp select the formats; scale_a (blocks, m, k/32) and scale_b (blocks, k/32, n) are E8M0 bytes.
    With cbsz and abid, block i reads A of the block that they select. With blgp the columns of B move as the lanes do,
    which needs all the row's blocks.
    neg: signs of f64 A, B, C flipped. clamp: i32 sums saturate instead of wrapping.
    Raises TargetError for shapes or options that the instruction does not have.

    >>> from simgpu.hardware import mfma
    >>> row = mfma.find("v_mfma_f32_4x4x1f32", "mi100")
    >>> ones = np.ones((1, 4, 1), np.float32).view(np.uint32)
    >>> multiply(row, ones, ones.reshape(1, 1, 4), np.zeros((1, 4, 4), np.uint32)).view(np.float32)[0, 0]
    array([1., 1., 1., 1.], dtype=float32)
    """
    if row.a_type == "f8f6f4":
        row, cbsz, blgp = row.with_formats(cbsz, blgp), 0, 0
    a, b, c = (np.asarray(x) for x in (a, b, c))
    _check(row, a, b, c, index, scale_a, scale_b)
    row._check_modifiers(cbsz, abid, blgp)
    if any(neg) and "neg" not in row.modifiers:
        raise TargetError(f"{row.mnemonic} on {row.target} takes no neg")
    if row.sparse:
        assert index is not None
        b = _select_rows(b, index, row.k)
    elif cbsz:
        _check_whole(row, a, "cbsz broadcasts")
        a = a[broadcast_block(np.arange(len(a)), cbsz, abid)]
    if blgp:
        b = _swizzle(row, b, blgp)
    if row.cd_type == "i32":
        return _integer(a, b, c, row.sparse, clamp)
    if row.cd_type == "f64":
        signed = (x.astype(np.uint64) ^ np.uint64(bool(n) << 63) for x, n in zip((a, b, c), neg, strict=True))
        return _with_default_nan(_f64_chain(*signed))
    with np.errstate(all="ignore"):
        if row.a_type == "f32":
            return _with_default_nan(_f32_chain(a, b, c))
        if row.target in BEFORE_GFX942:
            size = 2 if row.a_type == "bf16" and not row.mnemonic.endswith("_1k") else 4
            return _with_default_nan(_pairwise(row, a, b, c, size, flush=row.target == "gfx90a"))
        return _with_default_nan(_cdna3(row, a, b, c, scale_a, scale_b))


def _with_default_nan(bits: np.ndarray) -> np.ndarray:
    """Replaces any NaN in the bits of floats by the default one: it is not public which of several NaN a sum returns."""
    kind, default = (np.float64, 0x7FF8 << 48) if bits.dtype == np.uint64 else (np.float32, 0x7FC00000)
    return np.where(np.isnan(bits.view(kind)), bits.dtype.type(default), bits)


def _check(
    row: MatrixInstruction,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    index: np.ndarray | None,
    scale_a: np.ndarray | None,
    scale_b: np.ndarray | None,
) -> None:
    blocks = len(a) if a.ndim == 3 else 0
    wanted: dict[str, tuple[np.ndarray | None, tuple[int, int, int] | None]] = {
        "A": (a, (blocks, row.m, row.k // (1 + row.sparse))),
        "B": (b, (blocks, row.k, row.n)),
        "C": (c, (blocks, row.m, row.n)),
        "index": (index, (blocks, row.m, row.k // 4) if row.sparse else None),
        "scale_a": (scale_a, (blocks, row.m, row.k // SCALE_BLOCK) if row.scaled else None),
        "scale_b": (scale_b, (blocks, row.k // SCALE_BLOCK, row.n) if row.scaled else None),
    }
    for name, (array, shape) in wanted.items():
        got = None if array is None else np.shape(array)
        if got != shape:
            raise TargetError(f"{row.mnemonic}: {name} has shape {got}, it must be {shape}")
        if array is not None and np.asarray(array).dtype.kind not in "iu":
            raise TargetError(
                f"{row.mnemonic}: {name} is {np.asarray(array).dtype}, it must be raw bits in integers"
            )


def _check_whole(row: MatrixInstruction, x: np.ndarray, why: str) -> None:
    if len(x) != row.blocks:
        raise TargetError(
            f"{row.mnemonic}: {why} across blocks, so all {row.blocks} are needed, not {len(x)}"
        )


def _swizzle(row: MatrixInstruction, b: np.ndarray, blgp: int) -> np.ndarray:
    """Returns B as the lanes read it under BLGP; `row.map` gives the lane of a column."""
    _check_whole(row, b, "blgp moves lanes")
    register, lane, low = np.moveaxis(row.map("B"), -1, 0)
    held = np.zeros((row.registers("B"), 64, 32), b.dtype)
    held[register, lane, low] = b
    return held[register, blgp_lane(lane, blgp), low]


# --- integers and chains -------------------------------------------------------------------------


def _integer(a: np.ndarray, b: np.ndarray, c: np.ndarray, sparse: bool, clamp: bool) -> np.ndarray:
    """Returns the exact sum of i8 products and C, wrapped or saturated to 32 bits (ISA guides)."""
    x, y = (v.astype(np.uint8).astype(np.int8).astype(np.int64) for v in (a, b))
    products = np.einsum("bik,bikj->bij" if sparse else "bik,bkj->bij", x, y)
    total = products + c.astype(np.uint32).astype(np.int32)
    if clamp:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.uint32)


def fma_f32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns a·b + c of float32, rounded once.

    The product is exact in float64. The sum is rounded to odd in float64, so that rounding it to float32 is correct.
    """
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    odd = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    # The other neighbour of an inexact even sum is odd and on the error's side.
    away = (error > 0) == (total > 0)
    return np.where(odd, bits + np.where(away, 1, -1), bits).view(np.float64).astype(np.float32)


def _f32_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns the chain of fma over k, in order: round to nearest even, denormals kept, on every target."""
    x, y, d = (v.astype(np.uint32).view(np.float32) for v in (a, b, c))
    for k in range(x.shape[2]):
        xk, yk = np.broadcast_arrays(x[:, :, k, None], y[:, None, k, :])
        d = fma_f32(xk, yk, d)
    return d.view(np.uint32)


def fma_f64(a: float, b: float, c: float) -> float:
    """Returns a·b + c rounded once, through exact integers."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):
        return c
    (na, da), (nb, db), (nc, dc) = (x.as_integer_ratio() for x in (a, b, c))
    top, bottom = na * nb * dc + nc * da * db, da * db * dc
    try:
        return top / bottom if top else a * b + c  # int division rounds once; a zero's sign is IEEE's
    except OverflowError:
        return math.inf if top > 0 else -math.inf


def _f64_chain(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns the chain of fma over k, in order: round to nearest even, denormals kept."""
    x, y, d = (v.view(np.float64) for v in (a, b, c))
    fma = np.frompyfunc(fma_f64, 3, 1)
    with np.errstate(all="ignore"):
        for k in range(x.shape[2]):
            d = np.asarray(fma(x[:, :, k, None], y[:, None, k, :], d), np.float64)
    return d.view(np.uint64)


# --- CDNA1 and CDNA2: pairwise sums in f32 -------------------------------------------------------


def _pairwise(
    row: MatrixInstruction, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: int, flush: bool
) -> np.ndarray:
    """Returns C plus groups of `size` products, each summed in pairs; every step rounds to f32.

    flush: input denormals and −0 become +0, denormals of every result become 0 with their sign.
    """

    def settle(x: np.ndarray) -> np.ndarray:
        return np.where(abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x) if flush else x

    def read(bits: np.ndarray, name: str) -> np.ndarray:
        x = decode(bits, name)
        tiny = (np.abs(x.significand) >> x.mantissa == 0) & ~x.nan & ~x.inf
        return np.where(tiny & flush, np.float32(0), to_f32(bits, name))

    x, y, d = read(a, row.a_type), read(b, row.b_type), read(c, "f32")
    for start in range(0, row.k, size):
        terms = [settle(x[:, :, k, None] * y[:, None, k, :]) for k in range(start, start + size)]
        while len(terms) > 1:
            terms = [settle(p + q) for p, q in zip(terms[::2], terms[1::2], strict=True)]
        d = settle(terms[0] + d)
    return d.view(np.uint32)


# --- CDNA3: aligned sums -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """An exact sum of aligned products: total · 2^(exponent − 24)."""

    total: np.ndarray
    exponent: np.ndarray
    special: np.ndarray  # bits `_NAN`, `_INF`, ...


# Bits of `_Sum.special`: a NaN, infinite operands, finite products of 2^128 or more, by sign.
_NAN, _INF, _MINUS_INF, _OVER, _MINUS_OVER = 1, 2, 4, 8, 16


def _shift_down(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Returns x · 2^−shift cut toward −∞."""
    return x >> np.minimum(shift, _STICKY)


def _cdna3(
    row: MatrixInstruction,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    scale_a: np.ndarray | None,
    scale_b: np.ndarray | None,
) -> np.ndarray:
    if row.a_type == "xf32":  # inputs truncated to 10 mantissa bits
        a, b = (_xf32(v.astype(np.uint32)) for v in (a, b))
    x, y = (decode(v, "f32" if t == "xf32" else t) for v, t in ((a, row.a_type), (b, row.b_type)))
    narrow = BITS[row.a_type] <= 8
    size = 16 if narrow else 4 if row.a_type == "xf32" else 8
    d = c.astype(np.uint32)
    stored = a.shape[2]
    for start in range(0, stored, size):
        ks = list(range(start, min(start + size, stored)))
        scale = _scales(scale_a, scale_b, start // SCALE_BLOCK)
        if narrow:
            even, odd = (_products(x, y, ks[half::2], scale) for half in (0, 1))
            group = _join_sums(even, odd)
        else:
            group = _products(x, y, ks, scale)
        d = _accumulate(group, d, far_c_is_zero=narrow)
    return d


def _xf32(bits: np.ndarray) -> np.ndarray:
    """Truncates f32 to 10 mantissa bits; a NaN stays a NaN."""
    nan = bits & 0x7FFFFFFF > 0x7F800000
    return bits & np.uint32(0xFFFFE000) | np.where(nan, np.uint32(0x400000), np.uint32(0))


def _scales(
    scale_a: np.ndarray | None, scale_b: np.ndarray | None, part: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns (exponent, NaN mask) of the scales' product for block `part` of 32 k: E8M0, bias 127, 0xff is NaN."""
    if scale_a is None or scale_b is None:
        return None
    x, y = (
        np.asarray(scale_a)[:, :, part, None].astype(np.int64),
        np.asarray(scale_b)[:, None, part, :].astype(np.int64),
    )
    return x + y - 254, (x == 255) | (y == 255)


def _terms(x: NumberFields, y: NumberFields, ks: list[int]) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields for each k: significand product, exponent, NaN, Inf and sign of the product, (blocks, m, n).

    A sparse B holds the selected rows, (blocks, m, k/2, n).
    """
    for k in ks:
        p = [v[:, :, k, None] for v in (x.significand, x.exponent, x.negative, x.nan, x.inf, x.zero)]
        q = [
            v[:, :, k, :] if v.ndim == 4 else v[:, None, k, :]
            for v in (y.significand, y.exponent, y.negative, y.nan, y.inf, y.zero)
        ]
        (ps, pe, pn, pnan, pinf, pzero), (qs, qe, qn, qnan, qinf, qzero) = p, q
        nan = pnan | qnan | (pinf & qzero & ~qnan & ~qinf) | (qinf & pzero & ~pnan & ~pinf)
        yield ps * qs, pe + qe, nan, (pinf | qinf) & ~nan, pn ^ qn


def _products(x: NumberFields, y: NumberFields, ks: list[int], scale: tuple[np.ndarray, np.ndarray] | None) -> _Sum:
    """Sums products, each cut toward zero at 2^(E−24); E is the largest exponent of a nonzero product.

    Exponents are the operands' sum, not renormalised.
    """
    fraction = x.mantissa + y.mantissa
    terms = list(_terms(x, y, ks))
    if scale is not None:
        terms = [(s, e + scale[0], nan | scale[1], inf, sign) for s, e, nan, inf, sign in terms]
    shape = np.broadcast_shapes(terms[0][0].shape, terms[0][1].shape)
    top = np.full(shape, _NO_TERM)
    special = np.zeros(shape, np.int64)
    for s, e, nan, inf, sign in terms:
        magnitude = abs(s)
        log2 = np.frexp(magnitude.astype(np.float64))[1] - 1 - fraction + e
        over = (log2 >= 128) & (magnitude > 0)
        special |= _NAN * nan | (_INF << sign) * inf | (_OVER << sign) * over
        top = np.maximum(top, np.where(magnitude > 0, e, _NO_TERM))
    total = np.zeros(shape, np.int64)
    widen = 24 - fraction
    for s, e, *_ in terms:
        magnitude = np.abs(s) << max(0, widen)
        cut = _shift_down(magnitude, np.maximum(top - e, 0) + max(0, -widen))
        total += np.where(s < 0, -cut, cut)
    return _Sum(total, top, special)


def _join_sums(even: _Sum, odd: _Sum) -> _Sum:
    """Joins the sums of even and odd k (FP8), cut toward −∞ at the larger exponent's 2^(E−24)."""
    top = np.maximum(even.exponent, odd.exponent)
    total = _shift_down(even.total, top - even.exponent) + _shift_down(odd.total, top - odd.exponent)
    return _Sum(total, top, even.special | odd.special)


def _accumulate(group: _Sum, c: np.ndarray, far_c_is_zero: bool) -> np.ndarray:
    """Adds C. F = max(E, C's exponent): S is cut toward −∞ at 2^(F−31), C at 2^(F−24), the sum rounded once.

    far_c_is_zero (FP8): C counts as 0 if its exponent is below F−25.
    """
    z = decode(c, "f32")
    top = np.maximum(group.exponent, z.exponent)
    addend = _shift_down(z.significand << 1, top - z.exponent) << 7
    if far_c_is_zero:
        addend = np.where(z.exponent < top - 25, 0, addend)
    total = _shift_down(group.total << 7, top - group.exponent) + addend
    value = np.ldexp(total.astype(np.float64), top - 31).astype(np.float32)
    special = group.special | _NAN * z.nan | (_INF << z.negative.astype(np.int64)) * z.inf
    return _with_special(value, special).view(np.uint32)


def _with_special(value: np.ndarray, special: np.ndarray) -> np.ndarray:
    """Applies special values: infinite operands, including C, take precedence over overflowing products; both signs give NaN."""
    infinity = np.float32("inf")
    for plus, minus in ((_OVER, _MINUS_OVER), (_INF, _MINUS_INF)):
        up, down = special & plus > 0, special & minus > 0
        value = np.where(
            up & down, np.float32("nan"), np.where(up, infinity, np.where(down, -infinity, value))
        )
    return np.where(special & _NAN > 0, np.float32("nan"), value)


# --- structured sparsity -------------------------------------------------------------------------


def _select_rows(b: np.ndarray, index: np.ndarray, k: int) -> np.ndarray:
    """Returns the rows of B that the stored values of A are multiplied with: (blocks, m, k/2, n).

    For each four consecutive k, an index field has the k of the low stored value in its low 2 bits, that of the high one in its
    high 2 bits.
    """
    field = np.asarray(index).astype(np.int64)
    chosen = np.stack([field & 3, field >> 2 & 3], axis=-1) + 4 * np.arange(k // 4)[:, None]
    chosen = chosen.reshape(*field.shape[:2], k // 2)
    return b[np.arange(len(b))[:, None, None], chosen]
