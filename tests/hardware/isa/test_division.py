"""V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP: single rules, and the sequences that compilers make."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.support.valu_reference import F16, F32, F64, Format, check, f_div, f_fma, find, float_patterns, run

FORMATS = {"f32": F32, "f64": F64}
Columns = list[list[int]]


def fma(kind: str, *columns: list[int]) -> list[int]:
    return run(find(f"v_fma_{kind}"), list(columns))


def negated(f: Format, column: list[int]) -> list[int]:
    return [x ^ f.sign for x in column]


def divide(kind: str, n: list[int], d: list[int]) -> list[int]:
    """Returns the quotients by LLVM's expansion of an IEEE division (SITargetLowering::LowerFDIV32 and LowerFDIV64)."""
    f = FORMATS[kind]
    one = [f.bias << f.fraction] * len(n)
    scale = find(f"v_div_scale_{kind}")
    d_scaled = [row[0] for row in run(scale, [d, d, n])]
    n_rows = run(scale, [n, d, n])
    n_scaled, undo = [row[0] for row in n_rows], [row[1] for row in n_rows]
    r = run(find(f"v_rcp_{kind}"), [d_scaled])
    minus_d = negated(f, d_scaled)
    for _ in range(1 if kind == "f32" else 2):
        r = fma(kind, fma(kind, minus_d, r, one), r, r)
    q = run(find(f"v_mul_{kind}"), [n_scaled, r])
    if kind == "f32":
        q = fma(kind, fma(kind, minus_d, q, n_scaled), r, q)
    rest = fma(kind, minus_d, q, n_scaled)
    result = run(find(f"v_div_fmas_{kind}"), [rest, r, q, undo])
    return run(find(f"v_div_fixup_{kind}"), [result, d, n])


def normalized_nan(f: Format, x: int) -> int:
    return f.nan if f.is_nan(x) else x


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_division_is_correctly_rounded(kind: str, seed: int) -> None:
    f, rng = FORMATS[kind], np.random.default_rng(seed)
    n, d = float_patterns(f.bits, 1500, rng), float_patterns(f.bits, 1500, rng)
    got = divide(kind, n, d)
    for x, y, q in zip(n, d, got, strict=True):
        want = f_div(f, x, y)
        assert normalized_nan(f, q) == normalized_nan(f, want), (hex(x), hex(y), hex(q), hex(want))


@pytest.mark.parametrize("kind", FORMATS)
def test_quotients_at_the_ends_of_the_range(kind: str) -> None:
    """Numerators and denominators have every pair of exponents, so that every case of scaling occurs."""
    f, rng = FORMATS[kind], np.random.default_rng(7)
    top = 2 * f.bias
    edges = sorted({
        *range(0, 4), *range(f.fraction - 2, f.fraction + 4), f.bias, f.bias + 1,
        *range(top // 4, top, top // 9), *range(top - 3, top + 1),
    })  # fmt: skip
    n, d = [], []
    for x in edges:
        for y in edges:
            low = (1 << f.fraction) - 1
            n.append(x << f.fraction | int.from_bytes(rng.bytes(8), "little") & low)
            d.append(y << f.fraction | int.from_bytes(rng.bytes(8), "little") & low)
    got = divide(kind, n, d)
    for x, y, q in zip(n, d, got, strict=True):
        assert q == f_div(f, x, y), (hex(x), hex(y), hex(q), hex(f_div(f, x, y)))


@pytest.mark.parametrize("kind", FORMATS)
def test_scale_leaves_ordinary_operands_alone(kind: str) -> None:
    f = FORMATS[kind]
    one, three = f.bias << f.fraction, f.round(Fraction(3))
    spec = find(f"v_div_scale_{kind}")
    assert run(spec, [[one, three], [three, three], [one, one]]) == [(one, False), (three, False)]


def test_scale_cases_of_f32() -> None:
    spec, one = find("v_div_scale_f32"), F32.bias << 23

    def scaled(a: int, d: int, n: int) -> tuple[int, bool]:
        (result,) = run(spec, [[a], [d], [n]])
        return result

    def power(e: int) -> int:
        return F32.round(Fraction(2) ** e)

    huge, small = power(100), power(-10)
    assert scaled(small, small, huge) == (power(54), True)  # near overflow: the denominator grows
    assert scaled(huge, small, huge) == (huge, True)
    assert scaled(1, 1, one) == (power(-85), True)  # spread of 127
    assert scaled(1, 1, power(-60)) == (power(-85), False)  # a denormal denominator
    assert scaled(power(-60), 1, power(-60)) == (power(4), False)
    assert scaled(power(127), power(127), power(20)) == (power(63), False)  # 1/d is denormal
    assert scaled(power(20), power(127), power(20)) == (power(-44), False)
    assert scaled(power(127), power(127), one) == (power(63), True)  # the quotient as well
    assert scaled(one, power(127), one) == (one, True)
    assert scaled(power(-60), power(80), power(-60)) == (power(4), True)
    assert scaled(power(80), power(80), power(-60)) == (power(80), True)
    assert scaled(power(-110), power(-30), power(-110)) == (power(-46), False)  # a tiny numerator
    assert scaled(power(-30), power(-30), power(-110)) == (power(34), False)
    assert scaled(0, one, 0) == (F32.nan, False)


@pytest.mark.parametrize("kind", FORMATS)
def test_fmas_without_vcc_is_a_fused_multiply_add(kind: str) -> None:
    f, rng = FORMATS[kind], np.random.default_rng(1)
    columns = [float_patterns(f.bits, 300, rng) for _ in range(3)]
    want = [f_fma(f, *row) for row in zip(*columns, strict=True)]
    assert run(find(f"v_div_fmas_{kind}"), [*columns, [False] * 300]) == want


@pytest.mark.parametrize("kind", FORMATS)
def test_fmas_with_vcc_scales_and_rounds_once(kind: str) -> None:
    """Sums of a quotient and a small correction; results are denormal and near overflow."""
    f, rng = FORMATS[kind], np.random.default_rng(2)
    factor = 64 if kind == "f32" else 128
    a, b, c = [], [], []
    for e in [
        *range(2 - f.bias - f.fraction + factor, 4 - f.bias + factor),
        *range(20, f.bias - factor),
    ] * 3:
        q = Fraction(2) ** e * (1 + Fraction(int(rng.integers(1 << 22)), 1 << 22))
        c.append(f.round(q))
        a.append(f.round(q * Fraction(int(rng.integers(-99, 100)), 100) / (1 << f.fraction)))
        b.append(f.bias << f.fraction)
    got = run(find(f"v_div_fmas_{kind}"), [a, b, c, [True] * len(a)])
    for x, y, z, result in zip(a, b, c, got, strict=True):
        exact = f.value(x) * f.value(y) + f.value(z)
        up = (z >> f.fraction) > f.bias
        assert result == f.round(exact * Fraction(2) ** (factor if up else -factor))


def fixup(f: Format, limit: int | None):
    def reference(a: int, d: int, n: int) -> int:
        sign = (d ^ n) & f.sign
        for x in (n, d):
            if f.is_nan(x):
                return x | f.quiet_bit
        size_n, size_d = n & ~f.sign, d & ~f.sign
        if (size_n == 0 and size_d == 0) or (size_n == f.inf and size_d == f.inf):
            return f.sign | f.nan
        if size_d == 0 or size_n == f.inf:
            return sign | f.inf
        if size_d == f.inf or size_n == 0:
            return sign
        if limit is not None and (size_n >> f.fraction) - (size_d >> f.fraction) < limit:
            return sign
        overflown = limit is not None and a & ~f.sign >= f.inf
        return sign | (f.inf if overflown else a & ~f.sign)

    return reference


def test_fixup() -> None:
    check(find("v_div_fixup_f32"), fixup(F32, -150), lanes=1000)
    check(find("v_div_fixup_f64"), fixup(F64, -1075), lanes=1000)
    check(find("v_div_fixup_f16"), fixup(F16, None), lanes=1000)
    check(find("v_div_fixup_legacy_f16"), fixup(F16, None), lanes=1000)
