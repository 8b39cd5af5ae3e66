"""Operations of `lane` on numpy arrays: the reference that tests compare the simulator with.

A raw value is an unsigned integer array of bits (`bool` for conditions), 64 lanes or any shape; scalars are 0-d.
Rounding is to nearest even, denormals are kept, and every operation rounds once. A NaN result is the first NaN operand,
quieted, or else the default NaN (positive, quiet, payload 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Number, Value
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type

Array = np.ndarray
UNSIGNED = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
FLOAT = {16: np.float16, 32: np.float32, 64: np.float64}
FRACTION_BITS = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}


def _dtype(type_: Type) -> Any:
    return np.bool_ if type_.kind == "mask" else UNSIGNED[type_.bits]


def _numbers(type_: Type, raw: Array) -> Array:
    """Returns the array as numbers of its type (bf16 widened to f32, exactly)."""
    if type_ is t.bf16:
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    table: Any = FLOAT if type_.is_float else SIGNED if type_.kind == "signed" else UNSIGNED
    return raw if type_.kind == "mask" else raw.view(table[type_.bits])


def _round_bf16(x: Array) -> Array:
    """Returns f32 numbers rounded to nearest even as bf16 bits. The caller handles NaNs."""
    b = x.astype(np.float32).view(np.uint32)
    return ((b + np.uint32(0x7FFF) + ((b >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )


def _raw(type_: Type, numbers: Array) -> Array:
    """Returns the bits of numbers, rounded to the type."""
    if type_ is t.bf16:
        return _round_bf16(numbers)
    if type_.is_float:
        return np.asarray(numbers, FLOAT[type_.bits]).view(UNSIGNED[type_.bits])
    return np.asarray(numbers).view(_dtype(type_))


def _is_nan(type_: Type, raw: Array) -> Array:
    return np.isnan(_numbers(type_, raw))


def _quiet(type_: Type, raw: Array) -> Array:
    one = raw.dtype.type(1 << (FRACTION_BITS[type_.name] - 1))
    return np.where(_is_nan(type_, raw), raw | one, raw)


def default_nan(type_: Type) -> int:
    """Returns the positive quiet NaN without payload: 0x7fc00000, 0x7e00, 0x7ff8000000000000, 0x7fc0."""
    fraction = FRACTION_BITS[type_.name]
    return ((1 << (type_.bits - fraction)) - 1) << (fraction - 1) & ((1 << (type_.bits - 1)) - 1)


def _with_nans(type_: Type, result: Array, *operands: Array) -> Array:
    """Returns the result; a NaN becomes the first NaN operand, quieted, or the default NaN."""
    out = np.where(_is_nan(type_, result), _dtype(type_)(default_nan(type_)), result)
    for raw in reversed(operands):
        out = np.where(_is_nan(type_, raw), _quiet(type_, raw), out)
    return out


def _fma_exact(a: float, b: float, c: float) -> float:
    """Returns a·b + c of f64 numbers, rounded once: exact rational arithmetic, then a correctly rounded division."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # a cancellation or zeros: the host's sign rules
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def _fma_narrow(a: Array, b: Array, c: Array) -> Array:
    """Returns a·b + c of f32 or narrower numbers as f64 rounded to odd: a second rounding is then exact."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product  # Knuth's two-sum: `error` is the addition's rounding error
    error = np.asarray((product - (total - back)) + (addend - back))
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    fix = np.isfinite(total) & np.isfinite(error) & (error != 0) & even
    return np.where(fix, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def _popcount(x: Array, bits: int) -> Array:
    counts = np.zeros(x.shape, np.int64)
    for i in range(bits):
        counts += ((x >> x.dtype.type(i)) & x.dtype.type(1)).astype(np.int64)
    return counts


class NumpyOps:
    """`lane.Ops` on numpy arrays of raw bits."""

    functions: Mapping[str, Callable[..., Any]] = {}

    def const(self, type_: Type, value: Number) -> Array:
        if type_.kind == "mask":
            return np.asarray(bool(value))
        if type_.is_float:
            return _raw(type_, np.asarray(value, np.float32 if type_ is t.bf16 else FLOAT[type_.bits]))
        return np.asarray(int(value) & ((1 << type_.bits) - 1), UNSIGNED[type_.bits])

    def binary(self, op: str, type_: Type, a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        with np.errstate(all="ignore"):
            if op in ("and", "or", "xor"):
                return getattr(np, f"bitwise_{op}")(a, b)
            if op in ("shl", "lshr", "ashr"):
                return self._shift(op, type_, a, b)
            x, y = _numbers(type_, a), _numbers(type_, b)
            if op in ("min", "max"):
                return np.where(x < y if op == "min" else y < x, a, b)
            if type_.is_float:
                return _with_nans(type_, _raw(type_, _FLOAT_BINARY[op](x, y)), a, b)
            if op == "mul_hi":
                return self._mul_hi(type_, a, b)
            if op == "udiv":
                return np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))
            return np.asarray(_FLOAT_BINARY[op](a, b), a.dtype)

    @staticmethod
    def _shift(op: str, type_: Type, a: Array, b: Array) -> Array:
        count = b & b.dtype.type(type_.bits - 1)
        if op == "shl":
            return np.asarray(a << count, a.dtype)
        if op == "lshr":
            return np.asarray(a >> count, a.dtype)
        signed = SIGNED[type_.bits]
        return np.asarray(a.view(signed) >> count.view(signed)).view(a.dtype)

    @staticmethod
    def _mul_hi(type_: Type, a: Array, b: Array) -> Array:
        x, y = _numbers(type_, a).astype(object), _numbers(type_, b).astype(object)
        high = np.asarray((x * y) >> type_.bits, object)
        mask = (1 << type_.bits) - 1
        return np.asarray(high & mask).astype(a.dtype)

    def unary(self, op: str, type_: Type, a: Array) -> Array:
        a = np.asarray(a)
        if op == "not":
            return ~a
        if type_.is_float and op in ("neg", "abs"):
            sign = a.dtype.type(1 << (type_.bits - 1))
            return a ^ sign if op == "neg" else a & ~sign
        if op == "quiet":
            return _quiet(type_, a)
        with np.errstate(all="ignore"):
            if op in _FLOAT_UNARY:
                return _with_nans(type_, _raw(type_, _FLOAT_UNARY[op](_numbers(type_, a))), a)
            if op == "neg":
                return np.asarray(a.dtype.type(0) - a, a.dtype)
            if op == "abs":
                return np.abs(_numbers(type_, a)).view(a.dtype)
        return self._count_bits(op, type_.bits, a)

    @staticmethod
    def _count_bits(op: str, bits: int, a: Array) -> Array:
        one = a.dtype.type(1)
        if op == "ctpop":
            return _popcount(a, bits).astype(a.dtype)
        if op == "cttz":  # ones below the lowest set bit
            return _popcount(np.asarray(~a & (a - one)), bits).astype(a.dtype)
        if op == "ctlz":
            filled = a
            for shift in (1, 2, 4, 8, 16, 32):
                if shift < bits:
                    filled = filled | (filled >> a.dtype.type(shift))
            return (bits - _popcount(np.asarray(filled), bits)).astype(a.dtype)
        if op != "bitreverse":
            raise KeyError(op)
        out = np.zeros_like(a)
        for i in range(bits):
            bit = (a >> a.dtype.type(i)) & one
            out = out | (bit << a.dtype.type(bits - 1 - i))
        return out

    def compare(self, op: str, type_: Type, a: Array, b: Array) -> Array:
        x, y = _numbers(type_, np.asarray(a)), _numbers(type_, np.asarray(b))
        with np.errstate(all="ignore"):
            if op == "uno":
                return np.isnan(x) | np.isnan(y)
            result = _COMPARE[op](x, y)
            if op == "ne" and type_.is_float:  # ordered
                result = result & ~np.isnan(x) & ~np.isnan(y)
        return np.asarray(result)

    def where(self, type_: Type, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def unlikely(self, type_: Type, condition: Array, usual: Array, special: Callable[[], Array]) -> Array:
        return np.where(condition, special(), usual)

    def fma(self, type_: Type, a: Array, b: Array, c: Array) -> Array:
        a, b, c = np.broadcast_arrays(a, b, c)
        x, y, z = (_numbers(type_, v) for v in (a, b, c))
        with np.errstate(all="ignore"):
            if type_ is t.f64:
                exact = np.vectorize(_fma_exact, otypes=[np.float64])(x, y, z)
            else:
                exact = _fma_narrow(x, y, z)
            return _with_nans(type_, _raw(type_, exact), a, b, c)

    def convert(self, source: Type, target: Type, a: Array) -> Array:
        x = _numbers(source, np.asarray(a))
        with np.errstate(all="ignore"):
            if source.is_float and target.is_float:
                return self._convert_float(source, target, np.asarray(a), x)
            if source.is_float:
                return self._float_to_int(target, x)
            if target.is_float:
                # f64 holds every 32-bit integer; wider ones round once on their way to f32 or f64
                wide = x.astype(np.float64) if source.bits <= 32 else x
                return _raw(target, wide.astype(np.float32 if target is t.bf16 else FLOAT[target.bits]))
            return x.astype(SIGNED[64] if source.kind == "signed" else UNSIGNED[64]).astype(_dtype(target))

    @staticmethod
    def _convert_float(source: Type, target: Type, a: Array, x: Array) -> Array:
        out = _raw(target, x)
        shift = FRACTION_BITS[target.name] - FRACTION_BITS[source.name]
        sign = (a >> a.dtype.type(source.bits - 1)).astype(np.uint64) << np.uint64(target.bits - 1)
        payload = (_quiet(source, a) & a.dtype.type((1 << FRACTION_BITS[source.name]) - 1)).astype(np.uint64)
        payload = payload << np.uint64(shift) if shift >= 0 else payload >> np.uint64(-shift)
        nan = sign | payload | np.uint64(default_nan(target))
        return np.where(np.isnan(x), nan.astype(out.dtype), out)

    @staticmethod
    def _float_to_int(target: Type, x: Array) -> Array:
        signed = target.kind == "signed"
        low = -(1 << (target.bits - 1)) if signed else 0
        high = (1 << (target.bits - 1)) - 1 if signed else (1 << target.bits) - 1
        wide = np.trunc(x.astype(np.float64))
        inside = (wide > low) & (wide < float(high))
        dtype: Any = SIGNED[target.bits] if signed else UNSIGNED[target.bits]
        value = np.where(inside, wide, 0.0).astype(dtype)
        value = np.where(wide <= low, dtype(low), value)
        value = np.where(wide >= float(high), dtype(high), value)
        return np.where(np.isnan(wide), dtype(0), value).astype(dtype).view(UNSIGNED[target.bits])

    def bitcast(self, source: Type, target: Type, a: Array) -> Array:
        if source.bits != target.bits:
            raise TypeError(f"{source} and {target} have different widths")
        return a

    def lane_id(self) -> Array:
        return np.arange(64, dtype=np.uint32)

    def read_lane(self, type_: Type, row: Array, lane: Array) -> Array:
        return np.asarray(row[int(lane) & 63])

    def write_lane(self, type_: Type, row: Array, lane: Array, value: Array) -> Array:
        out = row.copy()
        out[int(lane) & 63] = value
        return out

    def gather(self, type_: Type, row: Array, lanes: Array) -> Array:
        return row[(lanes & lanes.dtype.type(63)).astype(np.intp)]

    def scatter(self, type_: Type, row: Array, lanes: Array, active: Array) -> Array:
        out = np.zeros_like(row)
        for i in np.flatnonzero(active):
            out[int(lanes[i]) & 63] = row[i]
        return out

    def ballot(self, condition: Array) -> Array:
        return np.asarray(sum(1 << int(i) for i in np.flatnonzero(condition)), np.uint64)

    def splat(self, type_: Type, scalar: Array) -> Array:
        return np.full(64, scalar, _dtype(type_))


_FLOAT_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}
_FLOAT_UNARY: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
}
_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

NUMPY = NumpyOps()


def wrap(type_: Type, raw: Any) -> Any:
    """Returns raw bits as an argument of a body: a Value, or a tuple of Values for a `pair` type.

    raw: unsigned integers of the type's width; for types of more than 64 bits, 32-bit words (registers, lanes); bool for
    conditions.
    """
    if type_.kind == "mask":
        return Value(NUMPY, t.u1, np.asarray(raw, np.bool_))
    if type_.kind != "pair":
        return Value(NUMPY, type_, np.asarray(raw, UNSIGNED[type_.bits]))
    assert type_.element is not None
    bits, dtype = type_.element.bits, UNSIGNED[type_.element.bits]
    word = min(type_.bits, 64) if type_.bits <= 64 else 32
    words = [np.asarray(raw, UNSIGNED[word])] if type_.bits <= 64 else list(np.asarray(raw, np.uint32))
    return tuple(
        Value(NUMPY, type_.element, np.asarray(w >> w.dtype.type(shift)).astype(dtype))
        for w in words
        for shift in range(0, word, bits)
    )


def unwrap(type_: Type, result: Any) -> Array:
    """Returns the raw bits of a body's result, in the layout of `wrap`."""
    if type_.kind != "pair":
        raw = np.asarray(result.raw)
        expected = _dtype(result.type if type_.kind == "mask" else type_)
        if raw.dtype != expected:
            raise TypeError(f"a result of type {type_} has {raw.dtype} bits")
        return raw
    assert type_.element is not None
    parts = [np.asarray(value.raw) for value in result]
    if len(parts) * type_.element.bits != type_.bits:
        raise TypeError(f"{len(parts)} elements for {type_}")
    word = type_.bits if type_.bits <= 64 else 32
    per_word = word // type_.element.bits
    words = []
    for first in range(0, len(parts), per_word):
        total: Array = np.zeros(np.broadcast_shapes(*(p.shape for p in parts)), UNSIGNED[word])
        for i, part in enumerate(parts[first : first + per_word]):
            total = total | (part.astype(total.dtype) << total.dtype.type(i * type_.element.bits))
        words.append(total)
    return words[0] if type_.bits <= 64 else np.stack(words)


def evaluate(spec: Spec, *raw: Any, **modifiers: int) -> Any:
    """Runs a body on raw bits; returns the raw result, a tuple of several, or None.

    raw: an array for each parameter that is not a modifier, in order (see `wrap`); modifiers: values of the body's
    `modifier` parameters.

    >>> from simgpu.hardware.isa import table
    >>> evaluate(table("gfx942")["vop2", 1][0], np.float32(1.5).view("u4"), np.float32(2).view("u4")).view("f4")
    array(3.5, dtype=float32)
    """
    operands = [p for p in spec.params if p.type.state != "modifier"]
    if len(operands) != len(raw):
        raise TypeError(f"{spec.mnemonic} takes {len(operands)} operands, not {len(raw)}")
    assert spec.body is not None
    arguments = {p.name: wrap(p.type, r) for p, r in zip(operands, raw, strict=True)}
    result = spec.body(**arguments, **modifiers)
    if len(spec.results) == 0:
        return None
    if len(spec.results) == 1:
        return unwrap(spec.results[0], result)
    return tuple(unwrap(t_, r) for t_, r in zip(spec.results, result, strict=True))
