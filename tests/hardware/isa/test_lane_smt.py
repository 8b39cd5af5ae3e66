"""Bodies of instructions on terms of z3, against the same bodies on numpy arrays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import z3

from simgpu.hardware.isa import (
    REGISTRY,
    Spec,
    lane_numpy,
    lane_smt,
)
from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.types import Type

LANE_SPECS = [spec for spec in REGISTRY.specs if spec.kind == "lane" and spec.body is not None]
SPECIAL = {
    8: (0, 1, 0x7F, 0x80, 0xFF),
    16: (0, 1, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E01, 0xFC01, 0x8000, 0x3FF, 0x7BFF, 0x7F81, 0xFF80),
    32: (0, 1, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFF800001, 0x80000000, 0x7FFFFF, 0x4F000000, 31),
    64: (0, 1, 0x3FF << 52, 0xBFF << 52, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, 1 << 63, (1 << 64) - 1, (1 << 52) - 1),
}


def drawn(rng: random.Random, type_: Type) -> int:
    if type_.kind == "mask":
        return rng.randrange(2)
    if type_.element is not None:
        width = type_.element.bits
        return sum(drawn(rng, type_.element) << low for low in range(0, type_.bits, width))
    return rng.choice(SPECIAL[type_.bits]) if rng.random() < 0.5 else rng.getrandbits(type_.bits)


def as_array(type_: Type, value: int) -> np.ndarray:
    if type_.kind == "mask":
        return np.asarray(bool(value))
    if type_.bits <= 64:
        return np.asarray(value, lane_numpy.UNSIGNED[type_.bits])
    return np.array([value >> low & 0xFFFFFFFF for low in range(0, type_.bits, 32)], np.uint32)


def as_number(array: Any, lane: int) -> int:
    array = np.asarray(array)
    if array.ndim == 0:
        return int(array)
    if array.shape == (64,) and array.dtype != np.uint64:  # a row: the body asked for the lane's number
        return int(array[lane])
    return sum(int(word) << 32 * at for at, word in enumerate(array))


def check(spec: Spec, rng: random.Random) -> None:
    taken = [param for param in spec.params if param.type.state != "modifier"]
    modifiers = {param.name: rng.choice((0, 1)) if param.name in ("clamp", "ieee") else 0
                 for param in spec.params if param.type.state == "modifier"}  # fmt: skip
    values = [drawn(rng, param.type) for param in taken]
    lane = rng.randrange(64)
    want = lane_numpy.evaluate(spec, *(as_array(p.type, v) for p, v in zip(taken, values, strict=True)), **modifiers)
    ops = lane_smt.SmtOps(lane_smt.number(lane, 32))
    terms = [
        z3.BoolVal(bool(value)) if param.type.kind == "mask" else lane_smt.number(value, param.type.bits)
        for param, value in zip(taken, values, strict=True)
    ]
    got = [z3.simplify(term) for term in lane_smt.evaluate(ops, spec, terms, **modifiers)]
    numbers = [int(z3.is_true(term)) if z3.is_bool(term) else term.as_long() for term in got]
    wanted = [as_number(each, lane) for each in (want if isinstance(want, tuple) else (want,))]
    assert numbers == wanted, (spec.mnemonic, [hex(value) for value in values], modifiers)


@pytest.mark.parametrize("part", range(4))
def test_bodies_agree_with_numpy(part: int) -> None:
    """A quarter of the quarter of instructions; all of them many times are in the exhaustive run."""
    rng = random.Random(part)
    for spec in LANE_SPECS[part * 5 :: 20]:
        check(spec, rng)


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(len(LANE_SPECS)), ids=lambda number: LANE_SPECS[number].mnemonic)
def test_every_body_agrees_with_numpy(number: int) -> None:
    rng = random.Random(number)
    for _ in range(12):
        check(LANE_SPECS[number], rng)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_uninterpreted_floats_know_constants_and_equal_operands(op: str) -> None:
    ops = lane_smt.UninterpretedFloats()
    a, b = z3.BitVecs("a b", 32)
    one, two = (ops.const(t.f32, value) for value in (1.0, 2.0))
    want = {"add": 3.0, "sub": -1.0, "mul": 2.0, "div": 0.5}[op]
    assert ops.binary(op, t.f32, one, two).eq(ops.const(t.f32, want))
    assert ops.binary(op, t.f32, a, b).eq(ops.binary(op, t.f32, a, b))
    assert ops.binary(op, t.f32, a, b).eq(ops.binary(op, t.f32, b, a)) == (op in ("add", "mul"))


def test_rows_are_terms_of_the_lane() -> None:
    ops = lane_smt.SmtOps()
    row = ops.lane * 3
    assert z3.simplify(ops.read_lane(t.u32, row, lane_smt.number(69, 32))).as_long() == 15
    turned = ops.gather(t.u32, row, ops.lane + 1)
    assert z3.simplify(z3.substitute(turned, (ops.lane, lane_smt.number(63, 32)))).as_long() == 0
    sent = ops.scatter(t.u32, row, ops.lane ^ 1, z3.BoolVal(True))
    assert z3.simplify(z3.substitute(sent, (ops.lane, lane_smt.number(6, 32)))).as_long() == 21
    odd = ops.ballot((ops.lane & 1) == 1)
    assert z3.simplify(odd).as_long() == 0xAAAAAAAAAAAAAAAA


def test_parts_of_a_term_are_found() -> None:
    a = z3.BitVec("a", 64)
    halves = lane_smt.bits_of(a, 0, 32), lane_smt.bits_of(a, 32, 32)
    assert lane_smt.concat(*halves).eq(a)
    assert lane_smt.bits_of(lane_smt.concat(halves[1], halves[0]), 32, 32).eq(halves[0])
    assert lane_smt.bits_of(z3.ZeroExt(32, halves[0]), 40, 8).as_long() == 0
