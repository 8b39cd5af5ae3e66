"""Scalar instructions, atomics and LDS permutations against Python integers."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.hardware.isa import REGISTRY, Spec
from simgpu.hardware.isa.lane_numpy import evaluate
from tests.support.exhaustive import examples

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
SPECS = {spec.mnemonic: spec for spec in REGISTRY.specs}
SPECIAL = [0, 1, 2, 15, 16, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF]
SPECIAL += [0x10000, 0x1F0000, 0x200000, 0x400010, 0x7FFFFFFF, 0x80000000, 0xAAAAAAAA, 0xFFFFFFFF]


def bits(width: int) -> st.SearchStrategy[int]:
    special = st.sampled_from(SPECIAL)
    high = special.map(lambda x: (x << (width - 32) | x) & (1 << width) - 1)
    inverse = special.map(lambda x: ~x & (1 << width) - 1)
    return special.map(lambda x: x & (1 << width) - 1) | high | inverse | st.integers(0, (1 << width) - 1)


def signed(x: int, width: int = 32) -> int:
    return x - (1 << width) if x >> (width - 1) & 1 else x


def fits(x: int) -> bool:
    return -(1 << 31) <= x < 1 << 31


def nonzero(x: int, width: int) -> tuple[int, int]:
    x &= (1 << width) - 1
    return x, int(x != 0)


def field(a: int, b: int, width: int, is_signed: bool) -> tuple[int, int]:
    offset, size = b & (width - 1), b >> 16 & 127
    value = (signed(a, width) if is_signed else a) >> offset
    value &= (1 << size) - 1
    if is_signed and 0 < size <= width:
        value = signed(value, size)
    return nonzero(value, width)


def lowest(a: int) -> int:
    return (a & -a).bit_length() - 1


def leading(a: int, width: int) -> int:
    return width - a.bit_length() if a else -1


def leading_signed(a: int, width: int) -> int:
    x = signed(a, width)
    return leading(~x if x < 0 else x, width)


def quads(a: int, width: int) -> list[int]:
    return [int(a >> i & 15 != 0) for i in range(0, width, 4)]


def spread(digits: list[int], step: int, value: int) -> int:
    return sum(value << (step * i) for i, digit in enumerate(digits) if digit)


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andn1": lambda a, b: ~a & b,
    "orn1": lambda a, b: ~a | b,
}
RELATION: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def references() -> dict[str, Callable[..., Any]]:
    """Returns references by mnemonic: from the body's parameters in order, as raw bits, to its results."""
    table: dict[str, Callable[..., Any]] = {
        "s_add_u32": lambda a, b: (a + b & M32, a + b >> 32),
        "s_sub_u32": lambda a, b: (a - b & M32, int(b > a)),
        "s_add_i32": lambda a, b: (a + b & M32, int(not fits(signed(a) + signed(b)))),
        "s_sub_i32": lambda a, b: (a - b & M32, int(not fits(signed(a) - signed(b)))),
        "s_addc_u32": lambda a, b, c: (a + b + c & M32, a + b + c >> 32),
        "s_subb_u32": lambda a, b, c: (a - b - c & M32, int(b + c > a)),
        "s_min_i32": lambda a, b: (min(a, b, key=signed), int(signed(a) < signed(b))),
        "s_max_i32": lambda a, b: (max(a, b, key=signed), int(signed(a) > signed(b))),
        "s_min_u32": lambda a, b: (min(a, b), int(a < b)),
        "s_max_u32": lambda a, b: (max(a, b), int(a > b)),
        "s_mul_i32": lambda a, b: a * b & M32,
        "s_mul_hi_u32": lambda a, b: a * b >> 32,
        "s_mul_hi_i32": lambda a, b: signed(a) * signed(b) >> 32 & M32,
        "s_absdiff_i32": lambda a, b: nonzero(abs(signed(signed(a) - signed(b) & M32)), 32),
        "s_pack_ll_b32_b16": lambda a, b: a & 0xFFFF | (b & 0xFFFF) << 16,
        "s_pack_lh_b32_b16": lambda a, b: a & 0xFFFF | b >> 16 << 16,
        "s_pack_hh_b32_b16": lambda a, b: a >> 16 | b >> 16 << 16,
        "s_bfe_u32": lambda a, b: field(a, b, 32, False),
        "s_bfe_i32": lambda a, b: field(a, b, 32, True),
        "s_bfe_u64": lambda a, b: field(a, b, 64, False),
        "s_bfe_i64": lambda a, b: field(a, b, 64, True),
        "s_movk_i32": lambda k: signed(k, 16) & M32,
        "s_cmovk_i32": lambda k, d, c: signed(k, 16) & M32 if c else d,
        "s_addk_i32": lambda d, k: (
            signed(d) + signed(k, 16) & M32,
            int(not fits(signed(d) + signed(k, 16))),
        ),
        "s_mulk_i32": lambda d, k: signed(d) * signed(k, 16) & M32,
        "s_flbit_i32": lambda a: leading_signed(a, 32) & M32,
        "s_flbit_i32_i64": lambda a: leading_signed(a, 64) & M32,
        "s_sext_i32_i8": lambda a: signed(a & 0xFF, 8) & M32,
        "s_sext_i32_i16": lambda a: signed(a & 0xFFFF, 16) & M32,
        "s_abs_i32": lambda a: nonzero(abs(signed(a)), 32),
        "s_bitreplicate_b64_b32": lambda a: spread([a >> i & 1 for i in range(32)], 2, 3),
        "s_cmp_eq_u64": lambda a, b: int(a == b),
        "s_cmp_lg_u64": lambda a, b: int(a != b),
        "s_ashr_i32": lambda a, b: nonzero(signed(a) >> (b & 31), 32),
        "s_ashr_i64": lambda a, b: nonzero(signed(a, 64) >> (b & 63), 64),
    }
    for n in (1, 2, 3, 4):
        table[f"s_lshl{n}_add_u32"] = lambda a, b, n=n: ((a << n) + b & M32, int((a << n) + b > M32))
    for name, relation in RELATION.items():
        table[f"s_cmp_{name}_u32"] = lambda a, b, r=relation: int(r(a, b))
        table[f"s_cmp_{name}_i32"] = lambda a, b, r=relation: int(r(signed(a), signed(b)))
        table[f"s_cmpk_{name}_u32"] = table[f"s_cmp_{name}_u32"]
        table[f"s_cmpk_{name}_i32"] = lambda a, k, r=relation: int(r(signed(a), signed(k, 16)))
    for width in (32, 64):
        table |= {name.replace("*", f"b{width}"): f for name, f in _by_width(width).items()}
    for name in ["and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor", "andn1", "orn1"]:
        table[f"s_{name}_saveexec_b64"] = lambda a, e, f=LOGIC[name]: (e, *nonzero(f(a, e), 64))
    for name in ("andn1", "andn2"):
        table[f"s_{name}_wrexec_b64"] = lambda a, e, f=LOGIC[name]: (
            f(a, e) & M64,
            *nonzero(f(a, e), 64),
        )
    return table


def _by_width(w: int) -> dict[str, Callable[..., Any]]:
    full = (1 << w) - 1
    table: dict[str, Callable[..., Any]] = {
        "s_mov_*": lambda a: a,
        "s_cmov_*": lambda a, d, c: a if c else d,
        "s_not_*": lambda a: nonzero(~a, w),
        "s_wqm_*": lambda a: nonzero(spread(quads(a, w), 4, 15), w),
        "s_quadmask_*": lambda a: nonzero(spread(quads(a, w), 1, 1), w),
        "s_brev_*": lambda a: int(f"{a:0{w}b}"[::-1], 2),
        "s_bcnt0_i32_*": lambda a: nonzero(w - a.bit_count(), 32),
        "s_bcnt1_i32_*": lambda a: nonzero(a.bit_count(), 32),
        "s_ff0_i32_*": lambda a: lowest(~a & full) & M32,
        "s_ff1_i32_*": lambda a: lowest(a) & M32,
        "s_flbit_i32_*": lambda a: leading(a, w) & M32,
        "s_bitset0_*": lambda a, d: d & ~(1 << a % w),
        "s_bitset1_*": lambda a, d: d | 1 << a % w,
        "s_cselect_*": lambda a, b, c: a if c else b,
        "s_lshl_*": lambda a, b: nonzero(a << b % w, w),
        "s_lshr_*": lambda a, b: nonzero(a >> b % w, w),
        "s_bfm_*": lambda a, b: ((1 << a % w) - 1) << b % w & full,
        "s_bitcmp0_*": lambda a, b: int(a >> b % w & 1 == 0),
        "s_bitcmp1_*": lambda a, b: int(a >> b % w & 1 == 1),
    }
    for name in ["and", "or", "xor", "andn2", "orn2", "nand", "nor", "xnor"]:
        table[f"s_{name}_*"] = lambda a, b, f=LOGIC[name]: nonzero(f(a, b), w)
    return table


REFERENCES = references()


def test_every_scalar_body_has_a_reference() -> None:
    bodies = {
        spec.mnemonic for spec in REGISTRY.specs if spec.encoding.startswith("sop") and spec.kind == "lane"
    }
    assert bodies == set(REFERENCES)


def run(spec: Spec, values: list[int]) -> Any:
    with np.errstate(over="ignore"):
        result = evaluate(spec, *(np.asarray(v, _dtype(p.type.bits)) for v, p in zip(values, spec.params)))
    return tuple(int(r) for r in result) if isinstance(result, tuple) else int(result)


def _dtype(width: int) -> Any:
    return {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}[width]


@pytest.mark.parametrize("mnemonic", sorted(REFERENCES))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_scalar_body(mnemonic: str, data: st.DataObject) -> None:
    spec = SPECS[mnemonic]
    values = [
        data.draw(st.integers(0, 1) if p.type.bits == 1 else bits(max(32, p.type.bits)))
        & (1 << p.type.bits) - 1
        for p in spec.params
    ]
    assert run(spec, values) == REFERENCES[mnemonic](*values)


ATOMICS: dict[str, Callable[..., int]] = {
    "flat_atomic_swap": lambda old, x: x,
    "flat_atomic_cmpswap": lambda old, new, wanted: new if old == wanted else old,
    "flat_atomic_add": lambda old, x: old + x & M32,
    "flat_atomic_sub": lambda old, x: old - x & M32,
    "ds_rsub_u32": lambda old, x: x - old & M32,
    "flat_atomic_smin": lambda old, x: min(old, x, key=signed),
    "flat_atomic_umax": max,
    "flat_atomic_smax": lambda old, x: max(old, x, key=signed),
    "flat_atomic_umin": min,
    "flat_atomic_inc": lambda old, x: 0 if old >= x else old + 1,
    "flat_atomic_dec": lambda old, x: x if old == 0 or old > x else old - 1,
    "flat_atomic_xor_x2": lambda old, x: old ^ x,
    "flat_atomic_dec_x2": lambda old, x: x if old == 0 or old > x else old - 1,
    "ds_mskor_b32": lambda old, clear, x: old & ~clear | x,
    "ds_cmpst_rtn_b64": lambda old, wanted, new: new if old == wanted else old,
    "ds_wrap_rtn_b32": lambda old, a, b: old - a if old >= a else old + b & M32,
    "ds_condxchg32_rtn_b64": lambda old, x: (
        (x & 0x7FFFFFFF if x >> 31 & 1 else old & M32)
        | (x >> 32 & 0x7FFFFFFF if x >> 63 else old >> 32) << 32
    ),
}


@pytest.mark.parametrize("mnemonic", sorted(ATOMICS))
@settings(max_examples=examples(60))
@given(data=st.data())
def test_integer_atomic(mnemonic: str, data: st.DataObject) -> None:
    spec = SPECS[mnemonic]
    values = [data.draw(bits(p.type.bits)) for p in spec.params]
    if data.draw(st.booleans()):
        values[-1] = values[0]
    assert run(spec, values) == ATOMICS[mnemonic](*values)


@settings(max_examples=examples(200))
@given(st.floats(width=32), st.floats(width=32))
def test_float_minimum_keeps_old_unless_less(old: float, new: float) -> None:
    raw = [struct.unpack("<I", struct.pack("<f", x))[0] for x in (old, new)]
    least = raw[1] if new < old else raw[0]
    most = raw[1] if new > old else raw[0]
    assert run(SPECS["ds_min_f32"], raw) == least
    assert run(SPECS["ds_max_f32"], raw) == most
    if not math.isnan(old):
        assert run(SPECS["ds_cmpst_f32"], [raw[0], raw[0], raw[1]]) == raw[1]


LANES = np.arange(64, dtype=np.uint32)


@settings(max_examples=examples(40))
@given(st.integers(0, M64), st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_permutes(active: int, seed: int, offset: int) -> None:
    rng = np.random.default_rng(seed)
    address = rng.integers(0, 1 << 32, 64, np.uint32)
    data = rng.integers(0, 1 << 32, 64, np.uint32)
    on = [bool(active >> i & 1) for i in range(64)]
    lane = [(int(a) + offset & M32) >> 2 & 63 for a in address]
    pushed = [0] * 64
    for i in range(64):
        if on[i]:
            pushed[lane[i]] = int(data[i])
    pulled = [int(data[j]) if on[j] else 0 for j in lane]
    state = np.uint64(active)
    with np.errstate(over="ignore"):
        assert list(evaluate(SPECS["ds_permute_b32"], address, data, state, offset=offset)) == pushed
        assert list(evaluate(SPECS["ds_bpermute_b32"], address, data, state, offset=offset)) == pulled


def swizzled(i: int, offset: int) -> int:
    """Returns the source lane by the Vega ISA guide's pseudo-code, in its order of cases."""
    j = i & 31
    if offset >= 0xE000:
        keep = offset & 31
        j = int(f"{j:05b}"[::-1], 2) >> keep.bit_count() | i & keep
    elif offset >= 0xC000:
        turn = (offset >> 5 & 31) * (-1 if offset >> 10 & 1 else 1)
        keep = offset & 31
        j = i & keep | i + turn & ~keep & 31
    elif offset & 0x8000:
        j = i & 28 | offset >> 2 * (i & 3) & 3
    else:
        j = (j & offset & 31 | offset >> 5 & 31) ^ (offset >> 10 & 31)
    return j & 31 | i & 32


@settings(max_examples=examples(200))
@given(st.integers(0, 0xFFFF), st.integers(0, M64))
def test_swizzle(offset: int, active: int) -> None:
    got = evaluate(SPECS["ds_swizzle_b32"], LANES + np.uint32(100), np.uint64(active), offset=offset)
    sources = [swizzled(i, offset) for i in range(64)]
    assert list(got) == [j + 100 if active >> j & 1 else 0 for j in sources]


def test_swizzle_broadcast_and_reverse_by_hand() -> None:
    everyone = np.uint64(M64)
    row = LANES + np.uint32(100)
    lane0_of_8 = evaluate(SPECS["ds_swizzle_b32"], row, everyone, offset=0x18)
    assert list(lane0_of_8) == [100 + (i & ~7) for i in range(64)]
    reversed_32 = evaluate(SPECS["ds_swizzle_b32"], row, everyone, offset=0x7C1F)
    assert list(reversed_32) == [100 + (i ^ 31) for i in range(64)]
