"""VOP3P bodies against scalar references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simgpu.hardware.isa.spec import REGISTRY
from simgpu.hardware.isa.types import i16x2
from tests.hardware.isa.test_vop3 import f_minimum, fma
from tests.hardware.isa.test_vop12 import I16, I32, U16, U32, dot_fields, dot_float, s16
from tests.support.valu_reference import (
    BF16,
    F16,
    F32,
    check,
    clamped,
    f_add,
    f_convert,
    f_fma,
    f_max,
    f_min,
    f_mul,
    find,
    joined,
)


def dot(width: int, is_signed: bool) -> Callable[[int, int, int], int]:
    return lambda a, b, c: dot_fields(a, b, c, width, is_signed)


def dot_halves(is_signed: bool) -> Callable[..., int]:
    return lambda a, b, c: dot_fields(joined(i16x2, a), joined(i16x2, b), c, 16, is_signed)


REFERENCES: dict[str, Callable[..., Any]] = {
    "v_pk_mad_i16": lambda a, b, c: a * b + c,
    "v_pk_mad_u16": lambda a, b, c: a * b + c,
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a % 16),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a % 16),
    "v_pk_ashrrev_i16": lambda a, b: s16(b) >> (a % 16),
    "v_pk_max_i16": lambda a, b: max(s16(a), s16(b)),
    "v_pk_min_i16": lambda a, b: min(s16(a), s16(b)),
    "v_pk_max_u16": max,
    "v_pk_min_u16": min,
    "v_pk_fma_f16": fma(F16),
    "v_pk_add_f16": lambda a, b: f_add(F16, a, b),
    "v_pk_mul_f16": lambda a, b: f_mul(F16, a, b),
    "v_pk_min_f16": lambda a, b: f_min(F16, a, b),
    "v_pk_max_f16": lambda a, b: f_max(F16, a, b),
    "v_pk_minimum3_f16": f_minimum(F16, min),
    "v_pk_maximum3_f16": f_minimum(F16, max),
    "v_pk_fma_f32": fma(F32),
    "v_pk_add_f32": lambda a, b: f_add(F32, a, b),
    "v_pk_mul_f32": lambda a, b: f_mul(F32, a, b),
    "v_pk_mov_b32": lambda a, b: [a[0], b[0]],
    "v_fma_mix_f32": fma(F32),
    "v_fma_mixlo_f16": lambda a, b, c: f_convert(F32, F16, f_fma(F32, a, b, c)),
    "v_fma_mixhi_f16": lambda a, b, c: f_convert(F32, F16, f_fma(F32, a, b, c)),
    "v_dot2_f32_f16": lambda a, b, c: dot_float(F16, a, b, c),
    "v_dot2_f32_bf16": lambda a, b, c: dot_float(BF16, a, b, c),
    "v_dot2_i32_i16": dot_halves(True),
    "v_dot2_u32_u16": dot_halves(False),
    "v_dot4_i32_i8": dot(8, True),
    "v_dot4_u32_u8": dot(8, False),
    "v_dot8_i32_i4": dot(4, True),
    "v_dot8_u32_u4": dot(4, False),
}
CLAMPED: dict[str, tuple[Callable[..., int], tuple[int, int]]] = {
    "v_pk_mad_i16": (lambda a, b, c: s16(a) * s16(b) + s16(c), I16),
    "v_pk_add_i16": (lambda a, b: s16(a) + s16(b), I16),
    "v_pk_sub_i16": (lambda a, b: s16(a) - s16(b), I16),
    **{
        name: (REFERENCES[name], U16)
        for name in ("v_pk_mad_u16", "v_pk_mul_lo_u16", "v_pk_add_u16", "v_pk_sub_u16")
    },
    **{
        name: (REFERENCES[name], I32 if "_i32_" in name else U32)
        for name in REFERENCES
        if name.startswith("v_dot") and "_f32_" not in name
    },
}
# Matrix instructions and their scale prefix share the encoding and have their own tests.
SPECS = [s for s in REGISTRY.specs if s.encoding == "vop3p" and "mfma" not in s.mnemonic]


@pytest.mark.parametrize("mnemonic", REFERENCES)
def test_body(mnemonic: str) -> None:
    check(find(mnemonic), REFERENCES[mnemonic])


@pytest.mark.parametrize("mnemonic", CLAMPED)
def test_clamp(mnemonic: str) -> None:
    exact, limits = CLAMPED[mnemonic]
    check(find(mnemonic), lambda *row: clamped(exact(*row), *limits), clamp=1)


@pytest.mark.parametrize("op_sel", range(4))
def test_pk_mov_selects_registers(op_sel: int) -> None:
    check(
        find("v_pk_mov_b32"),
        lambda a, b: [a[op_sel & 1], b[op_sel >> 1]],
        lanes=40,
        op_sel=op_sel,
    )


def test_all_covered() -> None:
    assert {s.mnemonic for s in SPECS} == set(REFERENCES)
    with_clamp = {s.mnemonic for s in SPECS if any(p.name == "clamp" for p in s.params)}
    assert with_clamp == set(CLAMPED)
