"""Bit-vectors as integers: for given inputs a term's integer is its value, and is never excluded by the facts."""

from __future__ import annotations

import random
from typing import Any

import pytest
import z3

from simgpu.proof.safety.integers import Integers
from simgpu.proof.safety.sizes import BadAssumption, SizeExpression

BITS = 16
SYMBOLS = z3.BitVecs("a b c", BITS)


def drawn(rng: random.Random, depth: int) -> Any:
    """Returns a random term."""
    if depth == 0:
        return rng.choice([*SYMBOLS, z3.BitVecVal(rng.choice((0, 1, 3, 15, 0x7FFF, 0x8000, 0xFFFF)), BITS)])
    a, b = (drawn(rng, depth - 1) for _ in range(2))
    count = z3.BitVecVal(rng.randrange(BITS), BITS)
    return rng.choice([
        lambda: a + b, lambda: a - b, lambda: a * b, lambda: -a, lambda: ~a, lambda: a << count, lambda: z3.LShR(a, count),
        lambda: a >> count, lambda: a & b, lambda: a | b, lambda: a ^ b, lambda: z3.If(a < b, a, b),
        lambda: z3.If(z3.ULE(a, b), a, b),
        lambda: a & z3.BitVecVal(0xFF, BITS), lambda: z3.Extract(BITS - 1, 0, z3.SignExt(BITS, a) * z3.SignExt(BITS, b)),
        lambda: z3.Concat(z3.Extract(7, 0, a), z3.Extract(BITS - 1, 8, b)), lambda: z3.UDiv(a, b | 1), lambda: z3.URem(a, b | 1),
        lambda: z3.Extract(2 * BITS - 1, BITS, z3.ZeroExt(BITS, a) * z3.ZeroExt(BITS, b)),
    ])()  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_integers_allow_the_value_of_a_term(seed: int) -> None:
    rng = random.Random(seed)
    term = drawn(rng, 3)
    for simpler in (term, z3.simplify(term)):
        integers = Integers()
        whole, signed = integers.of(simpler), integers.signed_value(simpler)
        condition = integers.condition(simpler < SYMBOLS[0])
        given = [(symbol, rng.choice((0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, rng.randrange(1 << BITS)))) for symbol in SYMBOLS]
        value = z3.simplify(z3.substitute(term, *((symbol, z3.BitVecVal(number, BITS)) for symbol, number in given)))
        solver = z3.Solver()
        solver.add(*(integers.of(symbol) == number for symbol, number in given), *integers.facts)
        solver.add(whole == value.as_long(), signed == value.as_signed_long())
        solver.add(condition == (value.as_signed_long() < z3.BitVecVal(given[0][1], BITS).as_signed_long()))
        assert solver.check() != z3.unsat, term


def test_exact_operations_have_one_value() -> None:
    a, b, _ = SYMBOLS
    for term, want in ((a * 3 + b - 1, 4), (z3.Concat(z3.Extract(7, 0, a), z3.Extract(7, 0, b)), 258), (z3.LShR(a + 7, 2), 2)):
        integers = Integers()
        solver = z3.Solver()
        found = integers.of(term)
        solver.add(integers.of(a) == 1, integers.of(b) == 2, *integers.facts, found != want)
        assert solver.check() == z3.unsat


def test_expressions() -> None:
    size = SizeExpression.parse("4 * (n + 1) // 3 - m % 5")
    assert size.value({"n": 7, "m": 13}) == 4 * 8 // 3 - 13 % 5
    assert set(size.names()) == {"n", "m"} and not size.is_condition
    assert SizeExpression.parse("0 < n <= 2**20").value({"n": 5}) is True
    n = z3.Int("n")
    solver = z3.Solver()
    solver.add(n == 7, size.whole({"n": n, "m": z3.IntVal(13)}) != 7)
    assert solver.check() == z3.unsat
    bad = "n[0]", "f(n)", "n +", "1.5 * n", "4 * (n < 3)", "n and m", "'x'", "2**99999999", "n" * 2000, "n // 0", "__import__('os')"
    for text in bad:
        with pytest.raises(BadAssumption):
            SizeExpression.parse(text).value({"n": 1, "m": 1})
