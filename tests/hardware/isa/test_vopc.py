"""VOPC bodies: every predicate of every type, and the class test."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from simgpu.hardware.isa.spec import REGISTRY, Spec
from tests.support.sweeps import swept
from tests.support.valu_reference import F16, F32, F64, Format, check, float_patterns, run, signed

SPECS = [s for s in REGISTRY.specs if s.encoding == "vopc"]
FORMATS = {"f16": F16, "f32": F32, "f64": F64}
# Predicate as the set of outcomes that satisfy it: less, equal, greater, unordered.
FLOAT = {
    "f": "", "lt": "<", "eq": "=", "le": "<=", "gt": ">", "lg": "<>", "ge": ">=", "o": "<=>", "u": "u",
    "nge": "<u", "nlg": "=u", "ngt": "<=u", "nle": ">u", "neq": "<>u", "nlt": ">=u", "tru": "<=>u",
}  # fmt: skip
INTEGER = {"f": "", "lt": "<", "eq": "=", "le": "<=", "gt": ">", "ne": "<>", "ge": ">=", "t": "<=>"}


def outcome(a: object, b: object) -> str:
    return "<" if a < b else "=" if a == b else ">"  # type: ignore[operator]


def float_reference(f: Format, wanted: str) -> Callable[[int, int], bool]:
    def value(x: int) -> object:
        return (-math.inf if f.negative(x) else math.inf) if f.is_inf(x) else f.value(x)

    def reference(a: int, b: int) -> bool:
        relation = "u" if f.is_nan(a) or f.is_nan(b) else outcome(value(a), value(b))
        return relation in wanted

    return reference


def int_reference(bits: int, is_signed: bool, wanted: str) -> Callable[[int, int], bool]:
    def value(x: int) -> int:
        return signed(x, bits) if is_signed else x

    return lambda a, b: outcome(value(a), value(b)) in wanted


def class_reference(f: Format) -> Callable[[int, int], bool]:
    def reference(a: int, b: int) -> bool:
        size = a & ~f.sign
        if f.is_nan(a):
            index = 0 if f.is_signaling(a) else 1
        else:
            kind = 3 if size == f.inf else 0 if size == 0 else 1 if size < 1 << f.fraction else 2
            index = 5 - kind if f.negative(a) else 6 + kind
        return bool(b >> index & 1)

    return reference


def reference(spec: Spec) -> Callable[[int, int], bool]:
    _, _, predicate, type_ = spec.mnemonic.split("_")
    if predicate == "class":
        return class_reference(FORMATS[type_])
    if type_ in FORMATS:
        return float_reference(FORMATS[type_], FLOAT[predicate])
    return int_reference(int(type_[1:]), type_[0] == "i", INTEGER[predicate])


@swept("spec", SPECS, ids=lambda s: s.mnemonic)
def test_predicate(spec: Spec) -> None:
    check(spec, reference(spec), lanes=150)


@pytest.mark.parametrize("type_", FORMATS)
def test_equal_operands(type_: str) -> None:
    """Random patterns are seldom equal, so this compares each number with itself and the zeros with each other."""
    bits = FORMATS[type_].bits
    a = [*float_patterns(bits, 60, np.random.default_rng(0)), 0, 1 << bits - 1]
    b = [*a[:-2], 1 << bits - 1, 0]
    for spec in SPECS:
        if spec.mnemonic.endswith(type_) and "class" not in spec.mnemonic:
            test = reference(spec)
            assert run(spec, [a, b]) == [test(x, y) for x, y in zip(a, b, strict=True)]


def test_family() -> None:
    assert len(SPECS) == 198
    assert {s.mnemonic for s in SPECS if "cmpx" in s.flags} == {
        s.mnemonic for s in SPECS if s.mnemonic.startswith("v_cmpx")
    }
