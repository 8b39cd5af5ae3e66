"""Transcendental instructions against mpmath: the documented bounds, and the special cases."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from simgpu.hardware.isa.arithmetic.two_over_pi import BITS, TWO_OVER_PI
from simgpu.hardware.isa.spec import REGISTRY
from tests.support.valu_reference import F16, F32, F64, Format, f_sqrt, find, float_patterns, run

mpmath.mp.prec = 200
INF, INVALID, ZERO, ONE = 0x7F800000, 0xFFC00000, 0, 0x3F800000
SIGN = 0x80000000
HALF = {"inf": 0x7C00, "nan": 0x7E00, "one": 0x3C00, "sign": 0x8000}


def bits_of(values: np.ndarray) -> list[int]:
    return [int(x) for x in np.asarray(values, np.float32).view(np.uint32)]


def number(f: Format, x: int) -> mpmath.mpf:
    exact = f.value(x)
    return mpmath.mpf(exact.numerator) / exact.denominator


def ulps(f: Format, got: int, want: mpmath.mpf) -> float:
    """Returns the error in units of the last place of |want|."""
    scale = max(abs(want), mpmath.mpf(2) ** (1 - f.bias))
    exponent = mpmath.floor(mpmath.log(scale, 2))
    return float(abs(number(f, got) - want) / mpmath.mpf(2) ** (exponent - f.fraction))


def worst(mnemonic: str, inputs: list[int], exact: Callable, f: Format) -> float:
    results = run(find(mnemonic), [inputs])
    return max(ulps(f, got, exact(number(f, x))) for x, got in zip(inputs, results, strict=True))


def spread(low: float, high: float, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, count)


def exp2(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf(2) ** x


def log2(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.log(x, 2)


def positive_f32(count: int, seed: int) -> list[int]:
    """Returns normal positive numbers of every exponent."""
    rng = np.random.default_rng(seed)
    return [int(x) for x in rng.integers(0x00800000, INF, count)]


@pytest.mark.parametrize("mnemonic", ["v_exp_f32", "v_exp_legacy_f32"])
def test_exp_f32(mnemonic: str) -> None:
    inputs = bits_of(np.concatenate([
        spread(-126, 128, 1500, 0), spread(-1, 1, 500, 1), np.arange(-126, 128),
        np.arange(-126, 128) + 0.5, [127.99999, 2.0**-30, -(2.0**-30), 2.0**-140],
    ]))  # fmt: skip
    assert worst(mnemonic, inputs, exp2, F32) <= 1


@pytest.mark.parametrize("mnemonic", ["v_log_f32", "v_log_legacy_f32"])
def test_log_f32(mnemonic: str) -> None:
    near_one = bits_of(1 + spread(-0.5, 0.5, 1500, 2)) + [ONE + i for i in range(-300, 300)]
    near_one += [0x3F3504F3 + i for i in range(-5, 5)] + [0x3FB504F3 + i for i in range(-5, 5)]
    inputs = positive_f32(1500, 3) + [x for x in near_one if x != ONE]
    assert worst(mnemonic, inputs, log2, F32) <= 1
    assert run(find(mnemonic), [[ONE]]) == [0]


@pytest.mark.parametrize("mnemonic", ["v_rcp_f32", "v_rcp_iflag_f32"])
def test_rcp_f32(mnemonic: str) -> None:
    inputs = [x for x in positive_f32(2000, 4) if x < 0x7E800000]
    assert worst(mnemonic, inputs + [x | SIGN for x in inputs[:50]], lambda x: 1 / x, F32) <= 1


def test_rsq_f32() -> None:
    assert worst("v_rsq_f32", positive_f32(2000, 5), lambda x: 1 / mpmath.sqrt(x), F32) <= 1


def test_sqrt_f32_is_correctly_rounded() -> None:
    inputs = positive_f32(1000, 6)
    assert run(find("v_sqrt_f32"), [inputs]) == [f_sqrt(F32, x) for x in inputs]


@pytest.mark.parametrize(("mnemonic", "function"), [("v_sin_f32", mpmath.sinpi), ("v_cos_f32", mpmath.cospi)])
def test_trig_f32(mnemonic: str, function: Callable) -> None:
    inputs = bits_of(np.concatenate([
        spread(-256, 256, 800, 7), spread(-1, 1, 1500, 8), np.arange(-16, 17) / 8,
        np.arange(-16, 17) / 8 + 1e-4, spread(-1e-5, 1e-5, 200, 9),
    ]))  # fmt: skip
    assert worst(mnemonic, inputs, lambda x: function(2 * x), F32) <= 1


@pytest.mark.parametrize(
    ("mnemonic", "exact", "domain"),
    [
        ("v_exp_f16", exp2, lambda x: -24 <= x < 16),
        ("v_log_f16", log2, lambda x: x > 0),
        ("v_rcp_f16", lambda x: 1 / x, lambda x: abs(x) > 2.0**-15.9),
        ("v_rsq_f16", lambda x: 1 / mpmath.sqrt(x), lambda x: x > 0),
        ("v_sqrt_f16", mpmath.sqrt, lambda x: x >= 0),
        ("v_sin_f16", lambda x: mpmath.sinpi(2 * x), lambda x: abs(x) <= 256),
        ("v_cos_f16", lambda x: mpmath.cospi(2 * x), lambda x: abs(x) <= 256),
    ],
)
def test_f16(mnemonic: str, exact: Callable, domain: Callable) -> None:
    """Tests every seventh f16 number of the domain, denormals included."""
    inputs = [x for x in range(0, 1 << 16, 7) if not F16.is_nan(x) and not F16.is_inf(x)]
    inputs = [x for x in inputs if domain(F16.value(x))]
    assert len(inputs) > 1000
    assert worst(mnemonic, inputs, exact, F16) <= 1


@pytest.mark.parametrize(
    ("mnemonic", "exact"),
    [
        ("v_rcp_f64", lambda x: 1 / x),
        ("v_rsq_f64", lambda x: 1 / mpmath.sqrt(x)),
        ("v_sqrt_f64", mpmath.sqrt),
    ],
)
def test_f64_seeds(mnemonic: str, exact: Callable) -> None:
    inputs = [abs_bits(x) for x in float_patterns(64, 1500, np.random.default_rng(10))]
    inputs = [x for x in inputs if 1 << 52 <= x < F64.inf - (3 << 52)]
    assert worst(mnemonic, inputs, exact, F64) <= 2


def abs_bits(x: int) -> int:
    return x & ~F64.sign


# They include the functional examples of the CDNA4 guide.
SPECIALS = {
    "v_exp_f32": {INF: INF, INF | SIGN: ZERO, 0x43000000: INF, 0xC2FC0001: ZERO, 0xC2FC0000: 0x800000,
                  0x42FFFFFF: 0x7F7FFFA7, ZERO: ONE, SIGN: ONE, 0x7F800001: 0x7FC00001},
    "v_log_f32": {ZERO: INF | SIGN, SIGN: INF | SIGN, 0x7FFFFF: INF | SIGN, 0x807FFFFF: INF | SIGN,
                  INF: INF, INF | SIGN: INVALID, ONE | SIGN: INVALID, 0xFF800001: 0xFFC00001, 0x7F800001: 0x7FC00001},
    "v_rcp_f32": {ZERO: INF, SIGN: INF | SIGN, 0xC0000000: 0xBF000000, 1: INF, INF: ZERO, INF | SIGN: SIGN, 0x7E800001: ZERO,
                  0xFE800001: SIGN, 0x7E800000: 0x00800000, 0x7F800001: 0x7FC00001},
    "v_rsq_f32": {ZERO: INF, SIGN: INF | SIGN, 0x40800000: 0x3F000000, 1: INF, INF: ZERO, ONE | SIGN: INVALID,
                  INF | SIGN: INVALID, 0x7F800001: 0x7FC00001},
    "v_sqrt_f32": {ZERO: ZERO, SIGN: SIGN, 0x40800000: 0x40000000, INF | SIGN: INVALID, 0x7FFFFF: ZERO, 0x807FFFFF: SIGN,
                   INF: INF, ONE | SIGN: INVALID, 0x7F800001: 0x7FC00001},
    "v_sin_f32": {ZERO: ZERO, SIGN: SIGN, INF: INVALID, INF | SIGN: INVALID, 0x3E800000: ONE, 0x3F000000: ZERO, 0xBF000000: ZERO,
                  0x7F7FFFFF: ZERO, 0xFF7FFFFF: ZERO, 0xFF800001: 0xFFC00001, 0x43808000: ZERO, 0x43802000: ONE},
    "v_cos_f32": {ZERO: ONE, SIGN: ONE, INF: INVALID, 0x3E800000: ZERO, 0xBE800000: ZERO, 0x3F400000: ZERO, 0x3F000000: ONE | SIGN,
                  0xFF7FFFFF: ONE, 0x43802000: ZERO, 0x43804000: ONE | SIGN},
    "v_exp_f16": {0x7C00: 0x7C00, 0xFC00: 0, 0x4C00: 0x7C00, 0: 0x3C00, 0x7C01: 0x7E01},
    "v_log_f16": {0: 0xFC00, 0x8000: 0xFC00, 0x7C00: 0x7C00, 0xBC00: 0xFE00, 0xFC00: 0xFE00},
    "v_rcp_f16": {0: 0x7C00, 0x8000: 0xFC00, 0x7C00: 0, 0xFC00: 0x8000, 0xC000: 0xB800, 1: 0x7C00},
    "v_rsq_f16": {0: 0x7C00, 0x8000: 0xFC00, 0xFC00: 0xFE00, 0x7C00: 0, 0xBC00: 0xFE00, 1: 0x6C00, 0x7C01: 0x7E01},
    "v_sqrt_f16": {0: 0, 0x8000: 0x8000, 0x4400: 0x4000, 0x7C00: 0x7C00, 0xBC00: 0xFE00, 0xFC00: 0xFE00, 0xFC01: 0xFE01},
    "v_sin_f16": {0x8000: 0x8000, 0x7C00: 0xFE00, 0x5C01: 0x3C00, 0x3800: 0, 0x3400: 0x3C00},
    "v_cos_f16": {0: 0x3C00, 0xFC00: 0xFE00, 0x5C01: 0, 0x3400: 0, 0x3800: 0xBC00},
    "v_rcp_f64": {0: F64.inf, F64.inf: 0, F64.sign: F64.inf | F64.sign},
    "v_rsq_f64": {0: F64.inf, F64.inf: 0, F64.sign | 1: F64.nan | F64.sign},
    "v_sqrt_f64": {F64.sign: F64.sign, F64.inf: F64.inf, F64.sign | 1: F64.nan | F64.sign, F64.inf | 1: F64.nan | 1},
}  # fmt: skip


@pytest.mark.parametrize("mnemonic", SPECIALS)
def test_specials(mnemonic: str) -> None:
    table = SPECIALS[mnemonic]
    got = dict(zip(table, run(find(mnemonic), [list(table)]), strict=True))
    assert {hex(k): hex(v) for k, v in got.items()} == {hex(k): hex(v) for k, v in table.items()}


# The domain of CDNA1's and CDNA2's sine and cosine ends at 256 revolutions.
BEYOND = {
    "v_sin_f32": {0x43800000: ZERO, 0x43800001: ZERO, 0x43802000: ZERO, 0xC3802000: ZERO, INF: INVALID, 0x437F4000: ONE},
    "v_cos_f32": {0x43800000: ONE, 0x43800001: ONE, 0x43802000: ONE, 0xFF7FFFFF: ONE, INF: INVALID, 0x437F4000: ZERO},
    "v_sin_f16": {0x5C01: 0, 0x7C00: 0xFE00},
    "v_cos_f16": {0x5C01: 0x3C00, 0x7C00: 0xFE00},
}


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
@pytest.mark.parametrize("mnemonic", BEYOND)
def test_angles_beyond_the_domain(mnemonic: str, target: str) -> None:
    table = BEYOND[mnemonic]
    assert dict(zip(table, run(find(mnemonic, target), [list(table)]), strict=True)) == table


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("mnemonic", "function"), [("v_sin_f32", mpmath.sinpi), ("v_cos_f32", mpmath.cospi)])
def test_angles_of_full_range(mnemonic: str, function: Callable, target: str) -> None:
    values = np.exp2(spread(8, 127.9, 600, 12)) * np.where(spread(-1, 1, 600, 13) < 0, -1, 1)
    inputs = bits_of(np.concatenate([values, spread(-(2.0**23), 2.0**23, 600, 14)]))
    results = run(find(mnemonic, target), [inputs])
    assert max(ulps(F32, got, function(2 * number(F32, x))) for x, got in zip(inputs, results, strict=True)) <= 1


def test_every_approximation_is_tested() -> None:
    bounded = {s.mnemonic for s in REGISTRY.specs if "bounded" in s.flags}
    same = {"v_exp_legacy_f32", "v_log_legacy_f32", "v_rcp_iflag_f32"}
    assert bounded == set(SPECIALS) | same
    assert all("trans" in s.flags for s in REGISTRY.specs if "bounded" in s.flags)


def test_bits_of_two_over_pi() -> None:
    with mpmath.workprec(1400):
        want = int(mpmath.floor(mpmath.mpf(2) ** BITS * 2 / mpmath.pi))
    got = 0
    for word in TWO_OVER_PI:
        got = got << 32 | word
    assert got >> (32 * len(TWO_OVER_PI) - BITS) == want


def test_trig_preop() -> None:
    """Segments add up to 2/π, and the exponent shifts them."""
    spec = find("v_trig_preop_f64")
    one, total = 0x3FF0000000000000, mpmath.mpf(0)
    segments = run(spec, [[one] * 22, list(range(22))])
    with mpmath.workprec(1400):
        total = sum((number(F64, x) for x in segments), mpmath.mpf(0))
        assert abs(total - 2 / mpmath.pi) < mpmath.mpf(2) ** -1074
    big = (1077 + 60) << 52  # 60 binades past the first: the window starts 60 bits later
    (shifted,) = run(spec, [[big], [0]])
    words = int("".join(f"{w:032b}" for w in TWO_OVER_PI)[60 : 60 + 53], 2)
    assert number(F64, shifted) == mpmath.mpf(words) * mpmath.mpf(2) ** (-53 - 60)
    (huge,) = run(spec, [[2000 << 52], [0]])
    assert number(F64, huge) * mpmath.mpf(2) ** (53 + 923 - 128) == int(
        "".join(f"{w:032b}" for w in TWO_OVER_PI)[923 : 923 + 53], 2
    )
