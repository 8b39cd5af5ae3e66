"""Instructions of IR on floats, on the same operations that the machine's instructions use, so that equal ones are one term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any

import z3

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane_smt import FRACTION_BITS, SmtOps, bits_of, choose, concat, every, fold, negation, number, some
from simgpu.hardware.isa.types import Type
from simgpu.proof.ir.syntax import IrType
from simgpu.proof.ir.values import Scalar, SymbolicValue, any_poison, each_scalar, flag, is_set
from simgpu.proof.terms import Memo, NotModelled

Term = Any
TYPES: dict[str, Type] = {"half": t.f16, "bfloat": t.bf16, "float": t.f32, "double": t.f64}
OPERATIONS = {"fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div"}
ROUNDINGS = {
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "nearbyint": "rint", "roundeven": "rint", "sqrt": "sqrt",
}  # fmt: skip
FUSING = frozenset(("contract", "fast"))
LOOSE = frozenset(("nsz", "arcp", "contract", "afn", "reassoc", "fast"))  # flags that allow several results
INTEGERS = {(32, True): t.i32, (32, False): t.u32, (64, True): t.i64, (64, False): t.u64, (16, True): t.i16, (16, False): t.u16}


def float_type(type_: IrType) -> Type:
    """Returns the machine's type of a float."""
    return TYPES[type_.name]


def arithmetic(ops: SmtOps, op: str, *operands: Scalar) -> Term:
    """Returns a sum, difference, product, quotient, fused or rounded value. bfloat is computed as float and rounded once more."""
    type_ = float_type(operands[0].type)
    values = [each.bits for each in operands]
    if type_ is t.bf16 and op not in ("neg", "abs"):
        wide = [ops.float_convert(t.bf16, t.f32, value) for value in values]
        return ops.float_convert(t.f32, t.bf16, _make(ops, op, t.f32, wide))
    return _make(ops, op, type_, values)


def _make(ops: SmtOps, op: str, type_: Type, values: list[Term]) -> Term:
    if op == "fma":
        return ops.fma(type_, *values)
    if op in ("neg", "abs") or len(values) == 1:
        return ops.unary(op, type_, values[0])
    return ops.float_binary(op, type_, *values)


def with_flags(ops: SmtOps, flags: frozenset[str], made: Term, type_: IrType, *operands: Scalar) -> Scalar:
    """Returns a result, poison where nnan or ninf (or both, as `fast`) excludes it or an operand."""
    wrong = [any_poison(*operands)]
    kind = float_type(type_)
    given = [each for each in operands if each.type.kind == "float"]
    everything = [*((float_type(each.type), each.bits) for each in given), (kind, made)]
    if flags & {"nnan", "fast"}:
        wrong += [ops.is_nan(*each) for each in everything]
    if flags & {"ninf", "fast"}:
        wrong += [is_infinite(*each) for each in everything]
    return Scalar(type_, made, some(*wrong))


class FusableProducts:
    """Products that may be fused with a sum. They are, as AMDGPU's instruction selectors do it."""

    def __init__(self) -> None:
        self._factors: Memo = Memo()

    def sum(self, ops: SmtOps, op: str, made: Term, *given: Scalar) -> Term:
        """Returns a result; of a sum or difference with a product, the fused one."""
        if op == "mul":
            return self._factors.put(made, given) and made
        if op not in ("add", "sub"):
            return made
        for at, each in enumerate(given):
            factors = self._factors.get(each.bits)
            if factors is not None:
                values = [*factors, given[1 - at]]
                if op == "sub":
                    where = 0 if at else 2
                    values[where] = replace(values[where], bits=ops.unary("neg", float_type(each.type), values[where].bits))
                return arithmetic(ops, "fma", *values)
        return made


def is_infinite(type_: Type, bits: Term) -> Term:
    """Returns the condition that a float is an infinity."""
    sign = 1 << type_.bits - 1
    return fold(fold(bits & number(sign - 1, type_.bits)) == number(sign - (1 << FRACTION_BITS[type_.name]), type_.bits))


def compare(ops: SmtOps, predicate: str, flags: frozenset[str], type_: IrType, a: Scalar, b: Scalar) -> Scalar:
    """Returns fcmp's bit."""
    kind = float_type(a.type)
    unordered = ops.compare("uno", kind, a.bits, b.bits)
    if predicate in ("true", "false"):
        holds = z3.BoolVal(predicate == "true")
    elif predicate in ("ord", "uno"):
        holds = unordered if predicate == "uno" else negation(unordered)
    else:
        holds = ops.compare(predicate[1:], kind, a.bits, b.bits)
        if predicate[0] == "u":
            holds = some(unordered, holds)
    wrong = [any_poison(a, b)]
    if flags & {"nnan", "fast"}:
        wrong.append(unordered)
    if flags & {"ninf", "fast"}:
        wrong += [is_infinite(kind, each.bits) for each in (a, b)]
    return Scalar(type_, flag(holds), some(*wrong))


def cast(ops: SmtOps, op: str, flags: frozenset[str], type_: IrType, a: Scalar) -> Scalar:
    """Returns a conversion from or to a float."""
    if op in ("fpext", "fptrunc"):
        kinds = float_type(a.type), float_type(type_)
        made = ops.float_convert(*kinds, a.bits)
        if t.bf16 in kinds and t.f64 in kinds and op == "fptrunc":
            raise NotModelled("fptrunc from double to bfloat")
        return with_flags(ops, flags, made, type_, a)
    if op in ("uitofp", "sitofp"):
        made = from_integer(ops, op == "sitofp", float_type(type_), a.bits)
        negative = [fold(bits_of(a.bits, a.bits.size() - 1, 1) == 1)] if "nneg" in flags else []
        return Scalar(type_, made, some(a.poison, *negative))
    kind = float_type(a.type)
    made, inside = to_integer(ops, op == "fptosi", kind, type_.bits, a.bits)
    return Scalar(type_, made, some(a.poison, negation(inside)))


def from_integer(ops: SmtOps, signed: bool, kind: Type, bits: Term) -> Term:
    """Returns an integer of up to 64 bits as a float."""
    size = bits.size()
    if size > 64:
        raise NotModelled(f"an integer of {size} bits as a float")
    if kind is t.bf16:
        return ops.float_convert(t.f32, t.bf16, from_integer(ops, signed, t.f32, bits)) if size <= 24 else _too_wide()
    wanted = 16 if size <= 16 and kind is t.f16 else 32 if size <= 32 else 64
    whole = fold((z3.SignExt if signed else z3.ZeroExt)(wanted - size, bits)) if wanted > size else bits
    return ops.float_convert(INTEGERS[wanted, signed], kind, whole)


def _too_wide() -> Term:
    raise NotModelled("an integer of more than 24 bits as a bfloat")


def to_integer(ops: SmtOps, signed: bool, kind: Type, bits: int, value: Term) -> tuple[Term, Term]:
    """Returns a float as an integer of up to 64 bits, which is right inside its range, and the condition that it is inside."""
    if bits > 64:
        raise NotModelled(f"a float as an integer of {bits} bits")
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    # Integers between two floats: below low - 1 is outside, unless low - 1 is no float. high is one, or infinity for half.
    exact = bits <= FRACTION_BITS[kind.name]
    bottom = ops.const(kind, float(low - 1) if exact else float(low))
    above = ops.compare("gt" if exact else "ge", kind, value, bottom)
    inside = every(above, ops.compare("lt", kind, value, ops.const(kind, float(high))))
    if kind is t.bf16:
        value, kind = ops.float_convert(t.bf16, t.f32, value), t.f32
    wanted = 16 if bits <= 16 and kind is t.f16 else 32 if bits <= 32 else 64
    made = ops.float_convert(kind, INTEGERS[wanted, signed], value)
    return bits_of(made, 0, bits), inside


def saturate(ops: SmtOps, signed: bool, type_: IrType, a: Scalar) -> Scalar:
    """Returns a float as an integer: the nearest one, 0 for a NaN."""
    kind, bits = float_type(a.type), type_.bits
    made, inside = to_integer(ops, signed, kind, bits, a.bits)
    low, high = (1 << bits - 1, (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    negative = fold(bits_of(a.bits, a.bits.size() - 1, 1) == 1)
    outside = choose(ops.is_nan(kind, a.bits), number(0, bits), choose(negative, number(low, bits), number(high, bits)))
    return Scalar(type_, choose(inside, made, outside), a.poison)


def copysign(a: Scalar, b: Scalar) -> Term:
    """Returns a's magnitude with b's sign."""
    size = a.bits.size()
    return concat(bits_of(a.bits, 0, size - 1), bits_of(b.bits, size - 1, 1))


def extremum(ops: SmtOps, op: str, a: Scalar, b: Scalar, unknown: Callable[[int], Term]) -> Term:
    """Returns minnum, maxnum, minimum, maximum, minimumnum or maximumnum. unknown: makes bits that may have any value."""
    kind = float_type(a.type)
    nan = [ops.is_nan(kind, each.bits) for each in (a, b)]
    first = ops.compare("lt" if op.startswith("min") else "gt", kind, a.bits, b.bits)
    equal = ops.compare("eq", kind, a.bits, b.bits)
    if op in ("minnum", "maxnum"):
        either = fold(unknown(1) == 1)  # of zeros of both signs, or of a signalling NaN and a number
        signalling = some(*(every(each, negation(_quiet(kind, x.bits))) for each, x in zip(nan, (a, b), strict=True)))
        default = number(ops.nan(kind), kind.bits)
        result = choose(equal, choose(either, a.bits, b.bits), choose(first, a.bits, b.bits))
        result = choose(nan[0], choose(nan[1], default, b.bits), choose(nan[1], a.bits, result))
        return choose(every(signalling, either), default, result)
    whole = fold(a.bits | b.bits) if op.startswith("min") else fold(a.bits & b.bits)  # of equal floats: the zero that is wanted
    result = choose(equal, whole, choose(first, a.bits, b.bits))
    default = number(ops.nan(kind), kind.bits)
    if op in ("minimum", "maximum"):
        return choose(some(*nan), default, result)
    return choose(nan[0], choose(nan[1], default, b.bits), choose(nan[1], a.bits, result))


def _quiet(kind: Type, bits: Term) -> Term:
    return fold(bits_of(bits, FRACTION_BITS[kind.name] - 1, 1) == 1)


# Classes of floats by the words of nofpclass, as bits of llvm.is.fpclass.
CLASSES = {
    "snan": 1, "qnan": 2, "nan": 3, "ninf": 4, "pinf": 0x200, "inf": 0x204, "nnorm": 8, "pnorm": 0x100, "norm": 0x108,
    "nsub": 0x10, "psub": 0x80, "sub": 0x90, "nzero": 0x20, "pzero": 0x40, "zero": 0x60, "all": 0x3FF,
}  # fmt: skip


def without_classes(ops: SmtOps, attributes: frozenset[str], value: SymbolicValue) -> SymbolicValue:
    """Returns a parameter's value, poison where `nofpclass` excludes it."""
    words = [word for each in attributes if each.startswith("nofpclass(") for word in each[10:-1].split()]
    if not words or value.type.scalar.kind != "float":
        return value
    wrong = reduce(or_, (CLASSES[word] for word in words))

    def make(a: Scalar) -> Scalar:
        return replace(a, poison=some(a.poison, is_set(class_of(ops, a.type, a, wrong).bits)))

    return each_scalar(value.type, make, value)


def class_of(ops: SmtOps, type_: IrType, a: Scalar, wanted: int) -> Scalar:
    """Returns the bit of llvm.is.fpclass: the float is in one of the classes."""
    kind = float_type(a.type)
    fraction = FRACTION_BITS[kind.name]
    sign = is_set(bits_of(a.bits, kind.bits - 1, 1))
    exponent = bits_of(a.bits, fraction, kind.bits - 1 - fraction)
    zero = fold(bits_of(a.bits, 0, kind.bits - 1) == 0)
    small, nan, infinite = fold(exponent == 0), ops.is_nan(kind, a.bits), is_infinite(kind, a.bits)
    normal = every(negation(small), negation(nan), negation(infinite))
    denormal = every(small, negation(zero))
    minus, quiet = sign, _quiet(kind, a.bits)
    classes = [
        every(nan, negation(quiet)), every(nan, quiet), every(infinite, minus), every(normal, minus), every(denormal, minus),
        every(zero, minus), every(zero, negation(minus)), every(denormal, negation(minus)), every(normal, negation(minus)),
        every(infinite, negation(minus)),
    ]  # fmt: skip
    holds = some(*(each for at, each in enumerate(classes) if wanted >> at & 1), z3.BoolVal(False))
    return Scalar(type_, flag(holds), a.poison)
