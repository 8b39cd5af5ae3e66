"""Operations of `lane` as terms of the solver z3: a body becomes a formula over all inputs.

A raw value is a bit-vector of its type's width, floats included, and a Bool for a condition. A row is a term of the lane's
number `SmtOps.lane`: another lane's value is the same term with another number. `SmtOps` has the floats of IEEE 754, with NaNs
as in `lane_numpy`. `UninterpretedFloats` has functions of unknown value instead, which a solver decides quickly: equal operands
give equal results, and constant ones the right result.

z3 is an optional dependency (`z3-solver`); only this module and `simgpu.proof` import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import z3

from simgpu.hardware.isa import types as t
from simgpu.hardware.isa.lane import Number, Value
from simgpu.hardware.isa.spec import Spec
from simgpu.hardware.isa.types import Type

Term = Any  # a z3 term: z3's stubs name no common class of bit-vectors and Bools
FRACTION_BITS = {"bf16": 7, "f16": 10, "f32": 23, "f64": 52}
LANES = 64
FLOAT_NAME = "float "  # the names of uninterpreted functions begin so
SAME = ("f32.add", "f32.mul", "f64.add", "f64.mul", "f16.add", "f16.mul", "bf16.add", "bf16.mul")  # a and b may change places
ROUNDING = {"floor": z3.RTN, "ceil": z3.RTP, "trunc": z3.RTZ, "rint": z3.RNE}


def number(value: int, bits: int) -> Term:
    """Returns a constant bit-vector."""
    return z3.BitVecVal(value & (1 << bits) - 1, bits)


def fold(term: Term) -> Term:
    """Returns the value of an operation on constants, other terms unchanged."""
    if term.num_args() and all(z3.is_bv_value(c) or z3.is_true(c) or z3.is_false(c) for c in term.children()):
        return z3.simplify(term)
    return term


def choose(condition: Term, a: Term, b: Term) -> Term:
    """Returns a if the condition holds, else b."""
    if z3.is_true(condition) or a.eq(b):
        return a
    if z3.is_false(condition):
        return b
    if z3.is_bool(a):
        if z3.is_true(a) and z3.is_false(b):
            return condition
        if z3.is_false(a) and z3.is_true(b):
            return negation(condition)
    if z3.is_not(condition):
        return z3.If(condition.arg(0), b, a)
    return z3.If(condition, a, b)


def negation(condition: Term) -> Term:
    """Returns a condition's opposite."""
    if z3.is_true(condition) or z3.is_false(condition):
        return z3.BoolVal(z3.is_false(condition))
    return condition.arg(0) if z3.is_not(condition) else z3.Not(condition)


def every(*conditions: Term) -> Term:
    """Returns the conjunction, without what is true in it.

    >>> every(z3.BoolVal(True), z3.Bool("a"))
    a
    """
    parts = [c for c in conditions if not z3.is_true(c)]
    if any(z3.is_false(c) for c in parts):
        return z3.BoolVal(False)
    if len(parts) == 2 and parts[0].eq(parts[1]):
        del parts[1]
    return z3.And(*parts) if len(parts) > 1 else parts[0] if parts else z3.BoolVal(True)


def some(*conditions: Term) -> Term:
    """Returns the disjunction."""
    return negation(every(*(negation(c) for c in conditions)))


def bits_of(term: Term, low: int, width: int) -> Term:
    """Returns bits of a term, from bit `low` on; of the part that has them, if the term is put together from parts."""
    size = term.size()
    if width == size:
        return term
    if z3.is_bv_value(term):
        return number(term.as_long() >> low, width)
    kind = term.decl().kind()
    if kind == z3.Z3_OP_EXTRACT:
        return bits_of(term.arg(0), term.params()[1] + low, width)
    if kind == z3.Z3_OP_CONCAT:
        end = size
        for part in term.children():
            start = end - part.size()
            if start <= low and low + width <= end:
                return bits_of(part, low - start, width)
            end = start
    if kind in (z3.Z3_OP_ZERO_EXT, z3.Z3_OP_SIGN_EXT) and low + width <= term.arg(0).size():
        return bits_of(term.arg(0), low, width)
    if kind == z3.Z3_OP_ZERO_EXT and low >= term.arg(0).size():
        return number(0, width)
    return z3.Extract(low + width - 1, low, term)


def concat(*parts: Term) -> Term:
    """Returns the parts as one term, the lowest first."""
    if all(z3.is_bv_value(part) for part in parts):
        return z3.simplify(z3.Concat(*reversed(parts))) if len(parts) > 1 else parts[0]
    done: list[Term] = [parts[0]]
    for part in parts[1:]:
        last = done[-1]
        if _is_extract(last) and _is_extract(part) and last.arg(0).eq(part.arg(0)) and last.params()[0] + 1 == part.params()[1]:
            done[-1] = bits_of(part.arg(0), last.params()[1], last.size() + part.size())
        else:
            done.append(part)
    if len(done) == 2 and z3.is_bv_value(done[1]) and not done[1].as_long():
        return z3.ZeroExt(done[1].size(), done[0])
    return z3.Concat(*reversed(done)) if len(done) > 1 else done[0]


def _is_extract(term: Term) -> bool:
    return bool(term.decl().kind() == z3.Z3_OP_EXTRACT)


class SmtOps:
    """`lane.Ops` on terms. lane: the lane's number, 32 bits.

    payloads: True for NaNs as in `lane_numpy`; False for one NaN, whatever NaN an operand is, which is simpler to decide.
    """

    functions: Mapping[str, Callable[..., Any]] = {}
    forgets = False  # True if results of float instructions are unknown values

    def __init__(self, lane: Term | None = None, payloads: bool = True) -> None:
        self.lane = z3.BitVec("lane", 32) if lane is None else lane
        self.payloads = payloads

    def const(self, type_: Type, value: Number) -> Term:
        if type_.kind == "mask":
            return z3.BoolVal(bool(value))
        if not type_.is_float:
            return number(int(value), type_.bits)
        if type_ is t.bf16:
            return number(int(np.asarray(value, ml_dtypes.bfloat16).view(np.uint16)), 16)
        with np.errstate(over="ignore"):
            raw = np.asarray(value, {16: np.float16, 32: np.float32, 64: np.float64}[type_.bits])
        return number(int.from_bytes(raw.tobytes(), "little"), type_.bits)

    def forgotten(self, result: Term) -> Term:
        """Returns an unknown value in place of a float result."""
        raise NotImplementedError

    # -- integers ------------------------------------------------------------------------------

    def binary(self, op: str, type_: Type, a: Term, b: Term) -> Term:
        if z3.is_bool(a):
            return {"and": every, "or": some}[op](a, b) if op != "xor" else _differ(a, b)
        if type_.is_float and op not in ("and", "or", "xor", "min", "max"):
            return self.float_binary(op, type_, a, b)
        signed = type_.kind == "signed"
        if op in ("min", "max"):
            less = self.compare("lt", type_, a, b) if op == "min" else self.compare("lt", type_, b, a)
            return choose(less, a, b)
        if op == "mul_hi":
            wide = [self.convert(type_, t.i64 if signed else t.u64, x) if type_.bits < 64 else _widen(x, signed) for x in (a, b)]
            return bits_of(fold(wide[0] * wide[1]), type_.bits, type_.bits)
        if op == "udiv":
            return choose(fold(b == 0), number(0, type_.bits), fold(z3.UDiv(a, b)))
        return INTEGER[op](a, b)

    def unary(self, op: str, type_: Type, a: Term) -> Term:
        if z3.is_bool(a):
            return negation(a)
        if op == "not":
            return fold(~a)
        if type_.is_float and op in ("neg", "abs"):
            sign = 1 << (type_.bits - 1)
            return fold(a ^ number(sign, type_.bits)) if op == "neg" else fold(a & number(~sign, type_.bits))
        if op == "quiet":
            return choose(self.is_nan(type_, a), fold(a | number(1 << (FRACTION_BITS[type_.name] - 1), type_.bits)), a)
        if op in ("floor", "ceil", "trunc", "rint", "sqrt"):
            return self.float_unary(op, type_, a)
        if op == "neg":
            return fold(-a)
        if op == "abs":
            return choose(fold(a < 0), fold(-a), a)
        return count_bits(op, a)

    def where(self, type_: Type, condition: Term, a: Term, b: Term) -> Term:
        return choose(condition, a, b)

    def unlikely(self, type_: Type, condition: Term, usual: Term, special: Callable[[], Term]) -> Term:
        return usual if z3.is_false(condition) else choose(condition, special(), usual)

    def bitcast(self, source: Type, target: Type, a: Term) -> Term:
        if source.bits != target.bits:
            raise TypeError(f"{source} and {target} have different widths")
        return a

    def convert(self, source: Type, target: Type, a: Term) -> Term:
        if z3.is_bool(a):
            one = Value(self, target, self.const(target, 1))
            return choose(a, one.raw, self.const(target, 0))
        if source.is_float or target.is_float:
            return self.float_convert(source, target, a)
        if target.bits <= source.bits:
            return bits_of(a, 0, target.bits)
        return fold((z3.SignExt if source.kind == "signed" else z3.ZeroExt)(target.bits - source.bits, a))

    # -- floats --------------------------------------------------------------------------------

    @staticmethod
    def nan(type_: Type) -> int:
        """Returns the bits of the NaN that arithmetic makes: positive, quiet, without payload."""
        return (1 << type_.bits - 1) - (1 << FRACTION_BITS[type_.name] - 1)

    def is_nan(self, type_: Type, a: Term) -> Term:
        sign = 1 << (type_.bits - 1)
        infinity = sign - (1 << FRACTION_BITS[type_.name])
        return fold(z3.UGT(fold(a & number(sign - 1, type_.bits)), number(infinity, type_.bits)))

    def compare(self, op: str, type_: Type, a: Term, b: Term) -> Term:
        if z3.is_bool(a):
            return negation(_differ(a, b)) if op == "eq" else _differ(a, b)
        if not type_.is_float:
            return fold(INTEGER_COMPARE[type_.kind == "signed"][op](a, b))
        unordered = some(self.is_nan(type_, a), self.is_nan(type_, b))
        if op == "uno":
            return unordered
        if op in ("gt", "ge"):
            a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
        magnitudes = [fold(x & number((1 << (type_.bits - 1)) - 1, type_.bits)) for x in (a, b)]
        equal = some(fold(a == b), fold(fold(magnitudes[0] | magnitudes[1]) == 0))
        if op in ("eq", "ne"):
            return every(negation(unordered), equal if op == "eq" else negation(equal))
        # In two's complement of the magnitude, floats are ordered as integers.
        keys = [choose(fold(x < 0), fold(-m), m) for x, m in zip((a, b), magnitudes, strict=True)]
        less = fold(keys[0] < keys[1]) if op == "lt" else fold(keys[0] <= keys[1])
        return every(negation(unordered), less)

    def float_binary(self, op: str, type_: Type, a: Term, b: Term) -> Term:
        return self._result(type_, _FLOAT[op](z3.RNE(), _float(type_, a), _float(type_, b)), a, b)

    def float_unary(self, op: str, type_: Type, a: Term) -> Term:
        given = _float(type_, a)
        made = z3.fpSqrt(z3.RNE(), given) if op == "sqrt" else z3.fpRoundToIntegral(ROUNDING[op](), given)
        return self._result(type_, made, a)

    def fma(self, type_: Type, a: Term, b: Term, c: Term) -> Term:
        return self._result(type_, z3.fpFMA(z3.RNE(), *(_float(type_, x) for x in (a, b, c))), a, b, c)

    def float_convert(self, source: Type, target: Type, a: Term) -> Term:
        if source.is_float and target.is_float:
            made = z3.fpFPToFP(z3.RNE(), _float(source, a), _sort(target))
            return _fold_constants(choose(self.is_nan(source, a), self._converted_nan(source, target, a), z3.fpToIEEEBV(made)), a)
        if target.is_float:
            make = z3.fpSignedToFP if source.kind == "signed" else z3.fpUnsignedToFP
            return _fold_constants(z3.fpToIEEEBV(make(z3.RNE(), a, _sort(target))), a)
        given, bits, signed = _float(source, a), target.bits, target.kind == "signed"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        wide = z3.fpFPToFP(z3.RNE(), given, z3.Float64()) if source.bits < 64 else given
        whole = z3.fpRoundToIntegral(z3.RTZ(), wide)
        made = (z3.fpToSBV if signed else z3.fpToUBV)(z3.RTZ(), whole, z3.BitVecSort(bits))
        for limit, test in ((low, z3.fpLEQ), (high, z3.fpGEQ)):
            made = z3.If(test(whole, z3.FPVal(float(limit), z3.Float64())), number(limit, bits), made)
        return _fold_constants(choose(self.is_nan(source, a), number(0, bits), made), a)

    def _converted_nan(self, source: Type, target: Type, a: Term) -> Term:
        have, want = FRACTION_BITS[source.name], FRACTION_BITS[target.name]
        if not self.payloads:
            return number(self.nan(target), target.bits)
        payload = bits_of(self.unary("quiet", source, a), max(0, have - want), min(have, want))
        parts = [payload, number(-1, target.bits - 1 - want), bits_of(a, source.bits - 1, 1)]
        return concat(*([number(0, want - have)] if want > have else []), *parts)

    def _result(self, type_: Type, made: Term, *operands: Term) -> Term:
        """Returns the bits of a float result; a NaN is the first NaN operand, quieted, or the default NaN."""
        out = z3.If(z3.fpIsNaN(made), number(self.nan(type_), type_.bits), z3.fpToIEEEBV(made))
        for operand in reversed(operands if self.payloads else ()):
            out = choose(self.is_nan(type_, operand), self.unary("quiet", type_, operand), out)
        return _fold_constants(out, *operands)

    # -- rows ----------------------------------------------------------------------------------

    def lane_id(self) -> Term:
        return self.lane

    def at(self, row: Term, lane: Term) -> Term:
        """Returns a row's value in another lane, by its number."""
        return z3.substitute(row, (self.lane, lane))

    def read_lane(self, type_: Type, row: Term, lane: Term) -> Term:
        return self.at(row, bits_of(fold(lane & 63), 0, 32))

    def write_lane(self, type_: Type, row: Term, lane: Term, value: Term) -> Term:
        return choose(fold(self.lane == bits_of(fold(lane & 63), 0, 32)), value, row)

    def gather(self, type_: Type, row: Term, lanes: Term) -> Term:
        return self.at(row, fold(lanes & 63))

    def scatter(self, type_: Type, row: Term, lanes: Term, active: Term) -> Term:
        out = number(0, row.size())
        for sender in (number(lane, 32) for lane in range(LANES)):
            here = every(self.at(active, sender), fold(self.at(lanes, sender) & 63) == self.lane)
            out = choose(here, self.at(row, sender), out)
        return out

    def ballot(self, condition: Term) -> Term:
        one, zero = number(1, 1), number(0, 1)
        return concat(*(choose(z3.simplify(self.at(condition, number(lane, 32))), one, zero) for lane in range(LANES)))

    def splat(self, type_: Type, scalar: Term) -> Term:
        return scalar


class UninterpretedFloats(SmtOps):
    """Floats as uninterpreted functions: what is equal for all functions is equal for IEEE 754's.

    Operands of sums and products may change places, so a NaN result's payload is not told apart.
    """

    def __init__(self, lane: Term | None = None) -> None:
        super().__init__(lane, payloads=False)

    def float_binary(self, op: str, type_: Type, a: Term, b: Term) -> Term:
        name = f"{type_}.{op}"
        if _constant(a, b):
            return super().float_binary(op, type_, a, b)
        if op == "sub":  # a - b is a + -b, with the same rounding and signs of zeros
            return self.float_binary("add", type_, a, self.unary("neg", type_, b))
        pair = sorted((a, b), key=lambda term: term.get_id()) if name in SAME else (a, b)
        return self.opaque(name, type_.bits, *pair)

    def float_unary(self, op: str, type_: Type, a: Term) -> Term:
        return super().float_unary(op, type_, a) if _constant(a) else self.opaque(f"{type_}.{op}", type_.bits, a)

    def fma(self, type_: Type, a: Term, b: Term, c: Term) -> Term:
        if _constant(a, b, c):
            return super().fma(type_, a, b, c)
        first, second = sorted((a, b), key=lambda term: term.get_id())
        return self.opaque(f"{type_}.fma", type_.bits, first, second, c)

    def float_convert(self, source: Type, target: Type, a: Term) -> Term:
        if _constant(a):
            return super().float_convert(source, target, a)
        return self.opaque(f"{source}.to.{target}", target.bits, a)

    @staticmethod
    def opaque(name: str, bits: int, *operands: Term) -> Term:
        """Returns an unknown function's result: the same name and operands give the same result."""
        return z3.Function(f"{FLOAT_NAME}{name}", *(x.sort() for x in operands), z3.BitVecSort(bits))(*operands)


def _constant(*terms: Term) -> bool:
    return all(z3.is_bv_value(term) for term in terms)


def _fold_constants(term: Term, *operands: Term) -> Term:
    """Returns the value of a float operation on constants, other terms unchanged."""
    return z3.simplify(term) if _constant(*operands) else term


def _sort(type_: Type) -> Term:
    fraction = FRACTION_BITS[type_.name]
    return z3.FPSort(type_.bits - 1 - fraction, fraction + 1)


def _float(type_: Type, a: Term) -> Term:
    return z3.fpBVToFP(a, _sort(type_))


def _differ(a: Term, b: Term) -> Term:
    return choose(a, negation(b), b)


def _widen(a: Term, signed: bool) -> Term:
    return (z3.SignExt if signed else z3.ZeroExt)(a.size(), a)


def _sum(a: Term, b: Term) -> Term:
    return b if _is_zero(a) else a if _is_zero(b) else fold(a + b)


def _is_zero(a: Term) -> bool:
    return bool(z3.is_bv_value(a)) and a.as_long() == 0


def _is_ones(a: Term) -> bool:
    return bool(z3.is_bv_value(a)) and a.as_long() == (1 << a.size()) - 1


def _both(a: Term, b: Term) -> Term:
    if _is_zero(a) or _is_ones(b):
        return a
    if _is_zero(b) or _is_ones(a) or a.eq(b) or _has(z3.Z3_OP_BAND, b, a):
        return b
    return a if _has(z3.Z3_OP_BAND, a, b) else fold(a & b)


def _either(a: Term, b: Term) -> Term:
    if _is_zero(b) or _is_ones(a) or _has(z3.Z3_OP_BAND, b, a):
        return a
    return b if _is_zero(a) or _is_ones(b) or a.eq(b) or _has(z3.Z3_OP_BAND, a, b) else fold(a | b)


def _has(kind: int, whole: Term, part: Term) -> bool:
    """True if a term is one of another's operands, which is of this kind."""
    return bool(whole.decl().kind() == kind) and any(each.eq(part) for each in whole.children())


def _exclusive(a: Term, b: Term) -> Term:
    return number(0, a.size()) if a.eq(b) else a if _is_zero(b) else b if _is_zero(a) else fold(a ^ b)


def _shift(shift: Callable[[Term, Term], Term]) -> Callable[[Term, Term], Term]:
    def make(a: Term, b: Term) -> Term:
        count = fold(b & (a.size() - 1))
        return a if _is_zero(count) else fold(shift(a, count))

    return make


def count_bits(op: str, a: Term) -> Term:
    """Returns the number of leading or trailing zeros or of ones, or the bits in reverse."""
    size = a.size()
    bits = [bits_of(a, i, 1) for i in range(size)]
    if op == "bitreverse":
        return z3.simplify(z3.Concat(*bits)) if size > 1 else a
    if op == "ctpop":
        return z3.simplify(z3.Sum(*(z3.ZeroExt(size - 1, bit) for bit in bits)))
    out = number(size, size)
    for i in range(size) if op == "ctlz" else reversed(range(size)):
        out = z3.If(bits[i] == 1, number(size - 1 - i if op == "ctlz" else i, size), out)
    return z3.simplify(out)


_FLOAT = {"add": z3.fpAdd, "sub": z3.fpSub, "mul": z3.fpMul, "div": z3.fpDiv}
INTEGER: dict[str, Callable[[Term, Term], Term]] = {
    "add": _sum,
    "sub": lambda a, b: a if _is_zero(b) else fold(a - b),
    "mul": lambda a, b: fold(a * b),
    "and": _both,
    "or": _either,
    "xor": _exclusive,
    "shl": _shift(lambda a, b: a << b),
    "lshr": _shift(z3.LShR),
    "ashr": _shift(lambda a, b: a >> b),
}
_EQUAL: dict[str, Callable[[Term, Term], Term]] = {"eq": lambda a, b: a == b, "ne": lambda a, b: negation(fold(a == b))}
INTEGER_COMPARE: dict[bool, dict[str, Callable[[Term, Term], Term]]] = {
    False: {**_EQUAL, "lt": z3.ULT, "le": z3.ULE, "gt": z3.UGT, "ge": z3.UGE},
    True: {
        **_EQUAL, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    },
}  # fmt: skip


def wrap(ops: SmtOps, type_: Type, raw: Term) -> Any:
    """Returns a term as an argument of a body: a Value, or a tuple of Values for a `pair` type."""
    if type_.kind == "mask":
        return Value(ops, t.u1, raw)
    if type_.kind != "pair":
        return Value(ops, type_, raw)
    assert type_.element is not None
    width = type_.element.bits
    return tuple(Value(ops, type_.element, bits_of(raw, low, width)) for low in range(0, type_.bits, width))


def unwrap(type_: Type, result: Any) -> Term:
    """Returns a body's result as a term."""
    return concat(*(value.raw for value in result)) if type_.kind == "pair" else result.raw


def evaluate(ops: SmtOps, spec: Spec, operands: Sequence[Term], **modifiers: int) -> tuple[Term, ...]:
    """Runs a body on terms; returns its results.

    operands: a term for each parameter that is not a modifier, in order; modifiers: values of the body's `modifier` parameters.

    >>> from simgpu.hardware.isa import table
    >>> evaluate(SmtOps(), table("gfx942")["vop2", 52][0], [z3.BitVec("a", 32), z3.BitVec("b", 32)])  # v_add_u32
    (a + b,)
    """
    taken = [param for param in spec.params if param.type.state != "modifier"]
    assert spec.body is not None
    arguments = {param.name: wrap(ops, param.type, raw) for param, raw in zip(taken, operands, strict=True)}
    result = spec.body(**arguments, **modifiers)
    if len(spec.results) <= 1:
        return tuple(unwrap(type_, result) for type_ in spec.results)
    return tuple(unwrap(type_, value) for type_, value in zip(spec.results, result, strict=True))
