"""Instructions of IR on integers, and which of their results are poison (LLVM's language reference)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import INTEGER, INTEGER_COMPARE, bits_of, choose, every, fold, negation, number, some
from simgpu.proof.ir.syntax import IrType
from simgpu.proof.ir.values import Scalar, any_poison, flag, is_set

Term = Any
SHIFTS = ("shl", "lshr", "ashr")
DIVISIONS = {"udiv": z3.UDiv, "sdiv": lambda a, b: a / b, "urem": z3.URem, "srem": z3.SRem}


def binary(op: str, flags: frozenset[str], a: Scalar, b: Scalar) -> tuple[Scalar, Term]:
    """Returns the result, and the condition of undefined behaviour."""
    x, y, size = a.bits, b.bits, a.bits.size()
    never = z3.BoolVal(False)
    if op in DIVISIONS:
        undefined = some(b.poison, fold(y == 0))
        if op[0] == "s":
            least, ones = number(1 << size - 1, size), number(-1, size)
            undefined = some(undefined, every(negation(a.poison), fold(x == least), fold(y == ones)))
        result = fold(DIVISIONS[op](x, y))
        inexact = negation(fold(fold(result * y) == x)) if "exact" in flags else never
        return Scalar(a.type, result, some(a.poison, inexact)), undefined
    if size == 1 and op in ("and", "or", "xor"):
        p, q = is_set(x), is_set(y)
        result = flag({"and": lambda: every(p, q), "or": lambda: some(p, q), "xor": lambda: choose(p, negation(q), q)}[op]())
    elif op in SHIFTS:
        result = shift(op, x, y)
    else:
        result = INTEGER[op](x, y)
    return Scalar(a.type, result, some(any_poison(a, b), *wrong_by(op, flags, x, y, result))), never


def shift(op: str, x: Term, y: Term) -> Term:
    """Returns a shift; its result for an amount of the width or more is poison, so any value."""
    if x.size() & x.size() - 1 == 0:
        return INTEGER[op](x, y)  # the machine's, which uses the low bits of the amount
    return fold({"shl": lambda: x << y, "lshr": lambda: z3.LShR(x, y), "ashr": lambda: x >> y}[op]())


def wrong_by(op: str, flags: frozenset[str], x: Term, y: Term, result: Term) -> list[Term]:
    """Returns the conditions in which flags, or a shift's amount, make the result poison."""
    found = []
    size = x.size()
    if op in SHIFTS:
        found.append(fold(z3.UGE(y, number(size, size))))
        back = {"nuw": "lshr", "nsw": "ashr"} if op == "shl" else {"exact": ""}
        for name, other in back.items():
            if name in flags:
                again = shift(other or "shl", result, y)
                found.append(negation(fold(again == x)))
    elif op in OVERFLOWS:
        for name, signed in (("nsw", True), ("nuw", False)):
            if name in flags:
                found.append(overflows(op, signed, x, y))
    elif op == "or" and "disjoint" in flags:
        found.append(negation(fold(fold(x & y) == 0)))
    return found


OVERFLOWS: dict[str, Callable[[Term, Term], Term]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
}  # fmt: skip


def overflows(op: str, signed: bool, x: Term, y: Term) -> Term:
    """Returns the condition that a sum, a difference or a product does not fit.

    >>> overflows("add", False, number(200, 8), number(100, 8))
    True
    """
    size = x.size()
    if op == "mul":
        extend = z3.SignExt if signed else z3.ZeroExt
        whole = fold(fold(extend(size, x)) * fold(extend(size, y)))
        return negation(fold(fold(extend(size, bits_of(whole, 0, size))) == whole))
    result = fold(OVERFLOWS[op](x, y))
    if not signed:
        return fold(z3.ULT(result, x)) if op == "add" else fold(z3.ULT(x, y))
    sides = (x ^ result) & (y ^ result) if op == "add" else (x ^ y) & (x ^ result)
    return fold(bits_of(z3.simplify(sides) if z3.is_bv_value(result) else sides, size - 1, 1) == 1)


def compare(predicate: str, flags: frozenset[str], type_: IrType, a: Scalar, b: Scalar) -> Scalar:
    """Returns icmp's bit."""
    signed = predicate[0] == "s"
    name = predicate if predicate in ("eq", "ne") else predicate[1:]
    wrong = z3.BoolVal(False)
    if "samesign" in flags:
        signs = [bits_of(each.bits, each.bits.size() - 1, 1) for each in (a, b)]
        wrong = negation(fold(signs[0] == signs[1]))
    if a.bits.size() == 1 and name in ("eq", "ne"):
        p, q = is_set(a.bits), is_set(b.bits)
        holds = choose(p, q, negation(q)) if name == "eq" else choose(p, negation(q), q)
    else:
        holds = fold(INTEGER_COMPARE[signed][name](a.bits, b.bits))
    return Scalar(type_, flag(holds), some(any_poison(a, b), wrong))


def cast(op: str, flags: frozenset[str], type_: IrType, a: Scalar) -> Scalar:
    """Returns a truncated or extended integer, or bits as another type of the same width."""
    have, want, wrong = a.bits.size(), type_.bits, []
    if want <= have:
        result = bits_of(a.bits, 0, want)
        for name, extend in (("nuw", z3.ZeroExt), ("nsw", z3.SignExt)):
            if name in flags and want < have:
                wrong.append(negation(fold(fold(extend(have - want, result)) == a.bits)))
    elif op == "sext":
        result = fold(z3.SignExt(want - have, a.bits))
    else:
        if "nneg" in flags:
            wrong.append(fold(bits_of(a.bits, have - 1, 1) == 1))
        result = fold(z3.ZeroExt(want - have, a.bits))
    return Scalar(type_, result, some(a.poison, *wrong))
