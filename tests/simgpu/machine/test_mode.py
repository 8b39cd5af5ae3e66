"""Arithmetic by MODE: rounding and denormals against rationals, clamp, omod, and s_setreg."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from simgpu.hardware.errors import MemoryFault, SimError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.spec import REGISTRY, Spec
from simgpu.machine.mode import DOWN, NEAREST, TO_ZERO, UP, Mode, number
from tests.support.engine_kernel import execute
from tests.support.one_instruction import Wave

SPECS: dict[str, Spec] = {spec.mnemonic: spec for spec in REGISTRY.specs}
FRACTION = {16: 10, 32: 23, 64: 52}


def value(bits: int, width: int) -> Fraction:
    """Returns the number that finite bits encode."""
    fraction = FRACTION[width]
    field = bits >> fraction & ((1 << (width - 1 - fraction)) - 1)
    bias = (1 << (width - 2 - fraction)) - 1
    mantissa = bits & ((1 << fraction) - 1) | (1 << fraction if field else 0)
    result = Fraction(mantissa) * Fraction(2) ** (max(field, 1) - bias - fraction)
    return -result if bits >> (width - 1) else result


def finite(bits: int, width: int) -> bool:
    fraction = FRACTION[width]
    top = (1 << (width - 1 - fraction)) - 1
    return bits >> fraction & top != top


def rounded(x: Fraction, width: int, way: int, negative_zero: bool) -> int:
    """Returns bits of x rounded: the two neighbours by integer division, then the mode's choice."""
    fraction = FRACTION[width]
    bias = (1 << (width - 2 - fraction)) - 1
    if x == 0:
        return 1 << (width - 1) if negative_zero else 0
    magnitude, negative = abs(x), x < 0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    ulp = Fraction(2) ** (exponent - fraction)
    units, rest = divmod(magnitude, ulp)
    up = {
        NEAREST: rest * 2 > ulp or (rest * 2 == ulp and units % 2 == 1),
        UP: rest > 0 and not negative,
        DOWN: rest > 0 and negative,
        TO_ZERO: False,
    }[way]
    whole = int(units) + up
    bits = whole + ((exponent + bias - 1) << fraction)
    infinity = ((1 << (width - 1 - fraction)) - 1) << fraction
    if bits >= infinity:
        toward = way == TO_ZERO or (way == UP and negative) or (way == DOWN and not negative)
        bits = infinity - 1 if toward else infinity
    return bits | negative << (width - 1)


def patterns(width: int, seed: int) -> list[int]:
    """Draws finite bit patterns of 64 lanes: any, near 1, tiny, huge."""
    rng = np.random.default_rng(seed)
    fraction = FRACTION[width]
    bias = (1 << (width - 2 - fraction)) - 1
    out: list[int] = []
    while len(out) < 64:
        bits = int(rng.integers(0, 2**63)) * 2 + int(rng.integers(0, 2)) & (1 << width) - 1
        kind = len(out) % 4
        exponent = {1: bias + int(rng.integers(-3, 4)), 2: int(rng.integers(0, 3)), 3: 2 * bias - 1}.get(kind)
        if exponent is not None:
            bits = bits & ~(((1 << (width - 1 - fraction)) - 1) << fraction) | exponent << fraction
        if finite(bits, width):
            out.append(bits)
    return out


def put(wave: Wave, row: int, bits: list[int], width: int) -> None:
    wave.v[row] = [b & 0xFFFFFFFF for b in bits]
    if width == 64:
        wave.v[row + 1] = [b >> 32 for b in bits]


def take(wave: Wave, row: int, width: int) -> list[int]:
    low = [int(b) & ((1 << min(width, 32)) - 1) for b in wave.v[row]]
    return [b | int(h) << 32 for b, h in zip(low, wave.v[row + 1], strict=True)] if width == 64 else low


def sums(a: Fraction, b: Fraction) -> Fraction:
    return a + b


def products(a: Fraction, b: Fraction) -> Fraction:
    return a * b


OPERATIONS: list[tuple[str, int, int, Callable[..., Fraction]]] = [
    (f"v_{name}_f{width}", width, width, rule)
    for width in (16, 32, 64) for name, rule in (("add", sums), ("mul", products))
] + [
    (f"v_fma_f{width}", width, width, lambda a, b, c: a * b + c) for width in (16, 32, 64)
] + [
    ("v_cvt_f16_f32", 32, 16, lambda a: a), ("v_cvt_f32_f64", 64, 32, lambda a: a),
]  # fmt: skip


def zero_sign(name: str, args: list[int], width: int, way: int, exact: Fraction) -> bool:
    """True if a zero result is negative (IEEE 754, 6.3)."""
    signs = [bits >> (width - 1) for bits in args]
    if "cvt" in name:
        return bool(signs[0])
    if "mul" in name:
        return bool(signs[0] ^ signs[1])
    terms = signs if "add" in name else [signs[0] ^ signs[1], signs[2]]
    return bool(terms[0]) if terms[0] == terms[1] else way == DOWN


@pytest.mark.parametrize("way", [NEAREST, UP, DOWN, TO_ZERO])
@pytest.mark.parametrize(("name", "source", "target", "rule"), OPERATIONS, ids=[o[0] for o in OPERATIONS])
def test_rounding(name: str, source: int, target: int, rule: Callable[..., Fraction], way: int) -> None:
    spec = SPECS[name]
    count = rule.__code__.co_argcount
    columns = [patterns(source, 17 * i + len(name)) for i in range(count)]
    if count > 1:
        columns[1][::5] = [bits ^ 1 << (source - 1) for bits in columns[0][::5]]
    wave, args = Wave(), {"vdst": Reg("v", 0, max(1, target // 32))}
    for i, column in enumerate(columns):
        put(wave, 10 + 2 * i, column, source)
        args[f"src{i}"] = Reg("v", 10 + 2 * i, max(1, source // 32))
    other = (way + 1) % 4  # the other width's rounding must not matter
    mode = Mode(round32=way if target == 32 else other, round16_64=way if target != 32 else other)
    wave.run(Instruction(spec, sorted(spec.opcodes)[-1], "e64", args, size=8), mode)
    for lane, (got, *bits) in enumerate(zip(take(wave, 0, target), *columns, strict=True)):
        exact = rule(*(value(b, source) for b in bits))
        want = rounded(exact, target, way, zero_sign(name, bits, source, way, exact))
        assert got == want, (lane, [hex(b) for b in bits], hex(got), hex(want))


@pytest.mark.parametrize("way", [NEAREST, UP, DOWN, TO_ZERO])
def test_integers_round_too(way: int) -> None:
    wave = Wave()
    numbers = np.random.default_rng(3).integers(-(2**31), 2**31, 64)
    wave.v[1] = numbers.astype(np.int32).view(np.uint32)
    spec = SPECS["v_cvt_f32_i32"]
    wave.run(Instruction(spec, "gfx90a", "e32", {"vdst": Reg("v", 0), "src0": Reg("v", 1)}), Mode(round32=way))
    assert take(wave, 0, 32) == [rounded(Fraction(int(n)), 32, way, False) for n in numbers]


def test_other_rules_keep_their_rounding() -> None:
    """v_cvt_pkrtz goes toward zero and v_rndne to even in every mode; v_exp does not change."""
    wave = Wave()
    wave.v[1] = np.linspace(-3, 3, 64).astype(np.float32).view(np.uint32)
    operands = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 1)}
    for name in ("v_cvt_pkrtz_f16_f32", "v_rndne_f32", "v_exp_f32"):
        spec = SPECS[name]
        args = {k: r for k, r in operands.items() if k != "src1" or len(spec.params) > 1}
        results = []
        for way in (NEAREST, UP, DOWN, TO_ZERO):
            wave.run(Instruction(spec, "gfx90a", "e64", args, size=8), Mode(round32=way, round16_64=way))
            results.append(wave.v[0].copy())
        for other in results[1:]:
            np.testing.assert_array_equal(other, results[0])


@pytest.mark.covering(2)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("keep_in", [False, True])
@pytest.mark.parametrize("keep_out", [False, True])
def test_denormals(width: int, keep_in: bool, keep_out: bool) -> None:
    """Inputs and outputs become zeros of their sign, by the bits of their own width."""
    fraction = FRACTION[width]
    least = 1 << fraction
    a = [1, least - 1, least, least + 1, 3 * least] * 13
    signs = [(i * 7) % 3 == 0 for i in range(64)]
    first = [bits | sign << (width - 1) for bits, sign in zip(a[:64], signs, strict=True)]
    second = [bits | (not sign) << (width - 1) for bits, sign in zip(a[1:65], signs, strict=True)]
    flush = (not keep_in, not keep_out)
    mode = Mode(flush32=flush) if width == 32 else Mode(flush16_64=flush)
    wave = Wave()
    put(wave, 10, first, width)
    put(wave, 12, second, width)
    size = max(1, width // 32)
    args = {"vdst": Reg("v", 0, size), "src0": Reg("v", 10, size), "src1": Reg("v", 12, size)}
    wave.run(Instruction(SPECS[f"v_add_f{width}"], "gfx90a", "e64", args, size=8), mode)

    def tiny(bits: int) -> bool:
        return bits & ((1 << (width - 1)) - 1) < least

    for got, x, y in zip(take(wave, 0, width), first, second, strict=True):
        if not keep_in:
            x, y = (b & 1 << (width - 1) if tiny(b) else b for b in (x, y))
        both = bool(x >> (width - 1) & y >> (width - 1))
        want = rounded(value(x, width) + value(y, width), width, NEAREST, both)
        if not keep_out and tiny(want):
            want &= 1 << (width - 1)
        assert got == want


def test_overflow_of_f16_by_mode() -> None:
    """FP16_OVFL: a finite overflow stays at the largest number; an infinite source stays infinite."""
    wave = Wave()
    wave.v[1, :4] = 0x7BFF, 0xFBFF, 0x7C00, 0x3C00
    wave.v[2, :4] = 0x7BFF, 0xFBFF, 0x3C00, 0x3C00
    args = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 2)}
    plain, kept = [0x7C00, 0xFC00, 0x7C00, 0x4000], [0x7BFF, 0xFBFF, 0x7C00, 0x4000]
    for mode, want in ((Mode(), plain), (Mode(fp16_ovfl=True), kept)):
        for name in ("v_add_f16", "v_pk_add_f16"):
            wave.run(Instruction(SPECS[name], "gfx90a", "e64", args, size=8), mode)
            assert [int(x) & 0xFFFF for x in wave.v[0, :4]] == want
    wave.v[1, 0] = np.float32(1e30).view(np.uint32)
    wave.run(Instruction(SPECS["v_cvt_f16_f32"], "gfx90a", "e64", args, size=8), Mode(fp16_ovfl=True))
    assert int(wave.v[0, 0]) & 0xFFFF == 0x7BFF


def test_denormal_bits_of_the_other_width_do_not_matter() -> None:
    wave = Wave()
    wave.v[1] = 5
    args = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 2)}
    for name, mode in (("v_add_f32", Mode(flush16_64=(True, True))), ("v_add_f16", Mode(flush32=(True, True)))):
        wave.run(Instruction(SPECS[name], "gfx90a", "e64", args, size=8), mode)
        assert wave.v[0, 0] == 5


def test_clamp_and_omod() -> None:
    """clamp: NaN is 0 with DX10_CLAMP, else stays; omod counts with IEEE off and output flush on."""
    numbers = np.array([-1, -0.0, 0.25, 0.75, 1, 3, np.nan, np.inf], np.float32)
    wave = Wave()
    wave.v[1, :8] = numbers.view(np.uint32)
    wave.v[2] = 0x80000000
    args = {"vdst": Reg("v", 0), "src0": Reg("v", 1), "src1": Reg("v", 2)}

    def run(mods: dict[str, Any], mode: Mode) -> np.ndarray:
        wave.run(Instruction(SPECS["v_add_f32"], "gfx90a", "e64", args, mods, size=8), mode)
        return wave.v[0, :8].view(np.float32).copy()

    clamped = [0, 0, 0.25, 0.75, 1, 1, 0, 1]
    np.testing.assert_array_equal(run({"clamp": 1}, Mode()), clamped)
    clamped[6] = np.nan
    np.testing.assert_array_equal(run({"clamp": 1}, Mode(dx10_clamp=False)), clamped)
    takes = Mode(ieee=False, flush32=(True, True))
    for omod, factor in ((1, 2), (2, 4), (3, 0.5)):
        np.testing.assert_array_equal(run({"omod": omod}, takes), numbers * np.float32(factor))
        np.testing.assert_array_equal(run({"omod": omod}, Mode()), numbers)
    np.testing.assert_array_equal(run({"omod": 1, "clamp": 1}, takes)[2:4], [0.5, 1])


# -- s_setreg --------------------------------------------------------------------------------------


def test_setreg_takes_effect_at_once_and_in_loops() -> None:
    """1 + 2**-30 is rounded up, down, to nearest, in a loop of three rounds; the sums show the modes."""
    lines = """
    v_mov_b32 v1, 1.0
    v_mov_b32 v2, 0x30800000
    v_mov_b32 v3, 0
    v_mov_b32 v4, 0
    s_mov_b32 s20, 3
    again:
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1
    v_add_f32 v5, v1, v2
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 2
    v_sub_f32 v6, v1, v2
    s_mov_b32 s21, 0
    s_setreg_b32 hwreg(HW_REG_MODE, 0, 2), s21
    v_add_f32 v7, v1, v2
    v_add_u32 v3, v3, v5
    v_add_u32 v4, v4, v6
    s_sub_u32 s20, s20, 1
    s_cmp_lg_u32 s20, 0
    s_cbranch_scc1 again
    """
    got = execute("gfx90a", lines, ["v5", "v6", "v7", "v3", "v4"], block=128)
    one = 0x3F800000
    assert {int(x) for x in got["v5"]} == {one + 1}
    assert {int(x) for x in got["v6"]} == {one - 1}
    assert {int(x) for x in got["v7"]} == {one}
    assert int(got["v3"][0]) == 3 * (one + 1) & 0xFFFFFFFF
    # Counts belong to the instruction, whatever MODE it ran in.
    plain = lines.replace("2), 1", "2), 0").replace("2), 2", "2), 0")
    shared = execute("gfx90a", plain, ["v5", "v6", "v7", "v3", "v4"], block=128)
    assert got.run.instructions == shared.run.instructions
    assert dict(got.run.profile) == dict(shared.run.profile)


def test_setreg_denormals_by_width() -> None:
    lines = """
    v_mov_b32 v1, 1
    v_mov_b32 v8, 0
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3
    v_add_f32 v2, v1, v8
    v_add_f16 v3, v1, v8
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 3
    v_add_f32 v4, v1, v8
    v_add_f16 v5, v1, v8
    s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 4), 12
    v_add_f32 v6, v1, v8
    v_add_f16 v7, v1, v8
    s_getreg_b32 s20, hwreg(HW_REG_MODE)
    s_getreg_b32 s21, hwreg(HW_REG_MODE, 6, 2)
    """
    got = execute("gfx942", lines, ["v2", "v3", "v4", "v5", "v6", "v7", "s20", "s21"])
    assert [int(got[f"v{n}"][0]) for n in range(2, 8)] == [1, 1, 1, 0, 0, 1]
    assert int(got["s20"][0]) == 0x3C0
    assert int(got["s21"][0]) == 3


def test_mode_from_the_descriptor() -> None:
    lines = "v_mov_b32 v1, 1.0\nv_add_f32 v2, 0x30800000, v1\ns_getreg_b32 s20, hwreg(HW_REG_MODE)"
    got = execute(
        "gfx90a", lines, ["v2", "s20"], float_round_mode_32=1, float_denorm_mode_32=3, ieee_mode=0, fp16_overflow=1
    )
    assert int(got["v2"][0]) == 0x3F800001
    assert int(got["s20"][0]) == 1 | 0xF0 | 1 << 8 | 1 << 23


def test_errors_after_a_change_of_mode_name_the_instruction() -> None:
    lines = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), 5\n"
    with pytest.raises(MemoryFault, match="global_load_dword"):
        execute("gfx90a", lines + "v_mov_b32 v1, 0\nglobal_load_dword v2, v1, s[4:5] offset:-4")
    with pytest.raises(SimError, match="s_trap"):
        execute("gfx90a", lines + "s_trap 1")


def test_endless_new_modes_are_refused() -> None:
    lines = """
    s_mov_b32 s20, 0
    again:
    s_setreg_b32 hwreg(HW_REG_MODE, 0, 10), s20
    s_add_u32 s20, s20, 1
    s_cmp_lt_u32 s20, 0x400
    s_cbranch_scc1 again
    """
    with pytest.raises(UnsupportedInstruction, match="settings of MODE"):
        execute("gfx90a", lines)


def test_modes_have_numbers_of_their_own() -> None:
    words = [b | f << 23 | i << 27 for b in range(0, 1024, 7) for f in (0, 1) for i in (0, 1)]
    assert len({number(word) for word in words}) == len(words)
    assert all(Mode.of_register(w) != Mode.of_register(w ^ 0x40) for w in words)

