"""Rules for undefined bits in one LLVM operation: a table, after memcheck's.

A value's shadow is an integer of the same width (a vector of the same lanes). Its set bits are undefined; None means that the
value is wholly defined. A rule gets the instruction and its operands' shadows, and returns the result's. Without a rule, a
lane's whole result is undefined if any bit of the lane's operands is (Nethercote and Seward, "How to Shadow Every Byte of
Memory Used by a Program", 2007; memcheck's manual, "Definedness").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine.values import I1, Builder, IrValue, constant

Shadow = Any  # an integer Value, or None: all bits defined
Rule = Callable[[Builder, Any, Sequence[Shadow]], Shadow]
RULES: dict[str, Rule] = {}
_WIDTH = {ir.FloatType: 32, ir.DoubleType: 64, ir.HalfType: 16}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator that registers the rule of these LLVM operations."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


# -- types and small pieces -----------------------------------------------------------------------


def integer(type_: ir.Type) -> ir.Type:
    """Returns the integer type of the same shape. Pointers and aggregates have none and are returned unchanged."""
    if isinstance(type_, ir.VectorType):
        return ir.VectorType(integer(type_.element), type_.count)
    return ir.IntType(_WIDTH[type(type_)]) if type(type_) in _WIDTH else type_


def bytes_of(type_: ir.Type) -> int:
    """Returns the bytes that a value of the type takes in memory."""
    whole = integer(type_)
    bits: int = whole.count * whole.element.width if isinstance(whole, ir.VectorType) else whole.width
    return -(-bits // 8)


def operands(build: Builder, inst: Any) -> list[IrValue]:
    return [IrValue(build, operand) for operand in inst.operands]


def raw(value: IrValue) -> IrValue:
    """Returns the value's bits as an integer."""
    return value.bitcast(integer(value.type))


def any_bit(shadow: IrValue) -> IrValue:
    """Returns i1: true if any bit of any lane is undefined."""
    if shadow.lanes:
        packed = ir.IntType(shadow.lanes * shadow.type.element.width)
        if shadow.type.element != I1 and packed.width > 512:
            return any_bit(shadow != 0)
        shadow = shadow.bitcast(packed)
    return shadow != 0


def spread(lanes: IrValue, type_: ir.Type) -> IrValue:
    """Returns the shadow of a `type_` with all bits undefined where the i1 (or <n x i1>) is set."""
    wanted = integer(type_)
    if isinstance(wanted, ir.VectorType) and not lanes.lanes:
        lanes = lanes.splat(wanted.count)
    return lanes.sext(wanted)


def either(a: Shadow, b: Shadow) -> Shadow:
    if a is None or b is None:
        return b if a is None else a
    return a | b


def shadow_value(value: Any, shadow: Shadow) -> Any:
    """Returns the shadow as an IR value."""
    return constant(integer(value.type), 0) if shadow is None else shadow


def strict(type_: ir.Type, shadows: Sequence[Shadow]) -> Shadow:
    """Makes a lane's result wholly undefined if any bit of its operands is. An operand without as many lanes affects all lanes."""
    lanes = type_.count if isinstance(type_, ir.VectorType) else 0
    result = None
    for shadow in shadows:
        if shadow is not None:
            undefined = shadow != 0 if lanes and shadow.lanes == lanes else any_bit(shadow)
            result = either(result, spread(undefined, type_))
    return result


# -- rules ----------------------------------------------------------------------------------------


@rule("and")
def _and(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """A defined 0 in one operand defines the result's bit."""
    a, b = operands(build, inst)
    return _undecided_bits(shadows, a, b)


@rule("or")
def _or(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """A defined 1 in one operand defines the result's bit."""
    a, b = operands(build, inst)
    return _undecided_bits(shadows, ~a, ~b)


def _undecided_bits(shadows: Sequence[Shadow], a: IrValue, b: IrValue) -> Shadow:
    """Returns the undefined bits of an `and` or `or`. a, b: bits at which an operand lets the other one decide."""
    sa, sb = shadows
    if sa is None or sb is None:
        known, shadow = (a, sb) if sa is None else (b, sa)
        return None if shadow is None else shadow & known
    return (sa | sb) & ((a | sa) & (b | sb))


@rule("xor")
def _xor(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    return either(*shadows)


@rule("add", "sub", "mul")
def _carry(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Makes all bits from the lowest undefined one up undefined: carries only go up."""
    undefined = either(*shadows)
    return None if undefined is None else undefined | -undefined


@rule("shl", "lshr", "ashr")
def _shift(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    moved, count = shadows
    if moved is not None:
        moved = getattr(build, inst.opname)(moved, inst.operands[1])
    return either(moved, strict(inst.type, [count]))


@rule("icmp")
def _compare(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Undefined if the undefined bits can change the answer."""
    if shadows[0] is None and shadows[1] is None:
        return None
    a, b = operands(build, inst)
    sa, sb = (IrValue(build, shadow_value(v, s)) for v, s in zip((a, b), shadows, strict=True))
    if inst.op in ("eq", "ne"):
        undefined = sa | sb
        decided = (a ^ b) & ~undefined
        return (undefined != 0) & ~(decided != 0)
    if inst.op.startswith("s"):
        sign = 1 << ((a.type.element if a.lanes else a.type).width - 1)
        a, b = a ^ sign, b ^ sign
    relation = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}[inst.op[1:]]
    least_a, least_b = a & ~sa, b & ~sb
    most_a, most_b = a | sa, b | sb
    return least_a.unsigned.test(relation, most_b) ^ most_a.unsigned.test(relation, least_b)


@rule("zext", "sext", "trunc", "bitcast")
def _cast(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    shadow = shadows[0]
    if shadow is None or isinstance(inst.type, ir.PointerType):
        return None
    return getattr(build, inst.opname)(shadow, integer(inst.type))


@rule("ptrtoint", "inttoptr", "getelementptr", "alloca")
def _pointer(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    return None


@rule("select")
def _select(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    condition, a, b = operands(build, inst)
    sc, sa, sb = shadows
    if isinstance(inst.type, ir.PointerType):
        return None
    result = None
    if sa is not None or sb is not None:
        result = build.select(condition, shadow_value(a, sa), shadow_value(b, sb))
    if sc is None:
        return result
    differ = either(either(raw(a) ^ raw(b), sa), sb)
    return either(result, spread(sc, inst.type) & differ)


@rule("extractelement")
def _extract(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    row, index = shadows
    taken = None if row is None else row[inst.operands[1]]
    return either(taken, strict(inst.type, [index]))


@rule("insertelement")
def _insert(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    row, value, index = shadows
    result = None
    if row is not None or value is not None:
        old = shadow_value(inst.operands[0], row)
        result = build.insert_element(old, shadow_value(inst.operands[1], value), inst.operands[2])
    return either(result, strict(inst.type, [index]))


@rule("shufflevector")
def _shuffle(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    a, b, mask = inst.operands
    sa, sb = shadows[0], shadows[1]
    if sa is None and sb is None:
        return None
    return build.shuffle_vector(shadow_value(a, sa), shadow_value(b, sb), mask)


# Beginnings of the names of intrinsics that only move bits.
MOVES = ("llvm.bswap.", "llvm.bitreverse.")


def intrinsic(build: Builder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Returns the shadow of a call's result: intrinsics that only move bits move the shadow, others are strict."""
    if isinstance(inst.type, ir.VoidType) or all(shadow is None for shadow in shadows):
        return None
    name = inst.callee.name
    if name.startswith(MOVES):
        return build.call(inst.callee, [shadows[0]])
    if name.startswith(("llvm.fshl.", "llvm.fshr.")):
        parts = [shadow_value(value, shadow) for value, shadow in zip(inst.args[:2], shadows[:2], strict=True)]
        moved = build.call(inst.callee, [*parts, inst.args[2]])
        return either(moved, strict(inst.type, [shadows[2]]))
    return strict(inst.type, shadows)
