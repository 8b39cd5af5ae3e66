"""How undefined bits travel through one LLVM operation: a table of rules, after memcheck's.

A value's shadow is an integer of the same width (a vector of the same lanes) whose set bits are
undefined; None stands for a value that is wholly defined. A rule gets the instruction and its
operands' shadows and returns the result's. What has no rule of its own makes a lane's whole
result undefined where any bit of the lane's operands is (Nethercote and Seward, "How to Shadow
Every Byte of Memory Used by a Program", 2007; memcheck's manual, "Definedness").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from simgpu.machine.lane_ops import I1

Shadow = Any  # an integer IR value, or None: all bits defined
Rule = Callable[[ir.IRBuilder, Any, Sequence[Shadow]], Shadow]
RULES: dict[str, Rule] = {}
_WIDTH = {ir.FloatType: 32, ir.DoubleType: 64, ir.HalfType: 16}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Decorator: the rule of these LLVM operations."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


# -- types and small pieces -----------------------------------------------------------------------


def integer(type_: ir.Type) -> ir.Type:
    """The integer type of the same shape; pointers and aggregates have none and stay."""
    if isinstance(type_, ir.VectorType):
        return ir.VectorType(integer(type_.element), type_.count)
    return ir.IntType(_WIDTH[type(type_)]) if type(type_) in _WIDTH else type_


def every(type_: ir.Type, value: int) -> ir.Constant:
    """The integer constant in each lane."""
    if isinstance(type_, ir.VectorType):
        return ir.Constant(type_, [ir.Constant(type_.element, value)] * type_.count)
    return ir.Constant(type_, value)


def zero(type_: ir.Type) -> ir.Constant:
    return every(integer(type_), 0)


def ones(type_: ir.Type) -> ir.Constant:
    element = type_.element if isinstance(type_, ir.VectorType) else type_
    return every(type_, (1 << element.width) - 1)


def raw(build: ir.IRBuilder, value: Any) -> Any:
    """The value's bits as an integer."""
    wanted = integer(value.type)
    return value if wanted == value.type else build.bitcast(value, wanted)


def some(build: ir.IRBuilder, shadow: Any) -> Any:
    """By lane, whether any bit is undefined."""
    return build.icmp_unsigned("!=", shadow, every(shadow.type, 0))


def anywhere(build: ir.IRBuilder, shadow: Any) -> Any:
    """Whether any bit of any lane is undefined, i1."""
    if isinstance(shadow.type, ir.VectorType):
        packed = ir.IntType(shadow.type.count * shadow.type.element.width)
        if shadow.type.element != I1 and packed.width > 512:
            lanes = some(build, shadow)
            return anywhere(build, lanes)
        shadow = build.bitcast(shadow, packed)
    return some(build, shadow)


def spread(build: ir.IRBuilder, lanes: Any, type_: ir.Type) -> Any:
    """All bits of `type_` where the i1 (or <n x i1>) is set."""
    wanted = integer(type_)
    if isinstance(wanted, ir.VectorType) and not isinstance(lanes.type, ir.VectorType):
        lanes = _splat(build, lanes, wanted.count)
    return lanes if lanes.type == wanted else build.sext(lanes, wanted)


def _splat(build: ir.IRBuilder, value: Any, count: int) -> Any:
    kind = ir.VectorType(value.type, count)
    undef = ir.Constant(kind, ir.Undefined)
    first = build.insert_element(undef, value, ir.Constant(ir.IntType(32), 0))
    return build.shuffle_vector(first, undef, every(ir.VectorType(ir.IntType(32), count), 0))


def either(build: ir.IRBuilder, a: Shadow, b: Shadow) -> Shadow:
    if a is None or b is None:
        return b if a is None else a
    return build.or_(a, b)


def filled(value: Any, shadow: Shadow) -> Any:
    """The shadow as an IR value."""
    return zero(value.type) if shadow is None else shadow


def strict(build: ir.IRBuilder, type_: ir.Type, shadows: Sequence[Shadow]) -> Shadow:
    """Any undefined bit makes the lane's result undefined (all lanes', where lanes mix)."""
    result = None
    for shadow in shadows:
        if shadow is None:
            continue
        count = shadow.type.count if isinstance(shadow.type, ir.VectorType) else 0
        same = isinstance(type_, ir.VectorType) and count == type_.count
        result = either(build, result, spread(build, (some if same else anywhere)(build, shadow), type_))
    return result


# -- rules ----------------------------------------------------------------------------------------


@rule("and")
def _and(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """A defined 0 decides."""
    return _undecided(build, shadows, *(raw(build, operand) for operand in inst.operands))


@rule("or")
def _or(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """A defined 1 decides."""
    return _undecided(build, shadows, *(build.not_(operand) for operand in inst.operands))


def _undecided(build: ir.IRBuilder, shadows: Sequence[Shadow], a: ir.Value, b: ir.Value) -> Shadow:
    """The bits that a or b leave open; a, b: the bits of an operand that let the other one through."""
    sa, sb = shadows
    if sa is None or sb is None:
        known, shadow = (a, sb) if sa is None else (b, sa)
        return None if shadow is None else build.and_(shadow, known)
    return build.and_(build.or_(sa, sb), build.and_(build.or_(a, sa), build.or_(b, sb)))


@rule("xor")
def _xor(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    return either(build, *shadows)


@rule("add", "sub", "mul")
def _carried(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Bits below the lowest undefined one are defined: carries go up."""
    undefined = either(build, *shadows)
    return None if undefined is None else build.or_(undefined, build.sub(every(undefined.type, 0), undefined))


@rule("shl", "lshr", "ashr")
def _shift(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    moved, count = shadows
    if moved is not None:
        moved = getattr(build, inst.opname)(moved, inst.operands[1])
    return either(build, moved, strict(build, inst.type, [count]))


@rule("icmp")
def _compare(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """Undefined where the undefined bits can change the answer."""
    if shadows[0] is None and shadows[1] is None:
        return None
    a, b = inst.operands
    sa, sb = (filled(v, s) for v, s in zip((a, b), shadows, strict=True))
    if inst.op in ("eq", "ne"):
        undefined = build.or_(sa, sb)
        decided = build.and_(build.xor(a, b), build.not_(undefined))
        return build.and_(some(build, undefined), build.not_(some(build, decided)))
    if inst.op.startswith("s"):
        element = a.type.element if isinstance(a.type, ir.VectorType) else a.type
        sign = every(a.type, 1 << (element.width - 1))
        a, b = build.xor(a, sign), build.xor(b, sign)
    relation = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}[inst.op[1:]]
    least = [build.and_(v, build.not_(s)) for v, s in ((a, sa), (b, sb))]
    most = [build.or_(v, s) for v, s in ((a, sa), (b, sb))]
    one = build.icmp_unsigned(relation, least[0], most[1])
    other = build.icmp_unsigned(relation, most[0], least[1])
    return build.xor(one, other)


@rule("zext", "sext", "trunc", "bitcast")
def _cast(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    shadow = shadows[0]
    if shadow is None or isinstance(inst.type, ir.PointerType):
        return None
    wanted = integer(inst.type)
    return shadow if wanted == shadow.type else getattr(build, inst.opname)(shadow, wanted)


@rule("ptrtoint", "inttoptr", "getelementptr", "alloca")
def _pointer(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    return None


@rule("select")
def _select(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    condition, a, b = inst.operands
    sc, sa, sb = shadows
    if isinstance(inst.type, ir.PointerType):
        return None
    result = None
    if sa is not None or sb is not None:
        result = build.select(condition, filled(a, sa), filled(b, sb))
    if sc is None:
        return result
    differ = build.xor(raw(build, a), raw(build, b))
    for shadow in (sa, sb):
        differ = differ if shadow is None else build.or_(differ, shadow)
    return either(build, result, build.and_(spread(build, sc, inst.type), differ))


@rule("extractelement")
def _extract(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    row, index = shadows
    taken = None if row is None else build.extract_element(row, inst.operands[1])
    return either(build, taken, strict(build, inst.type, [index]))


@rule("insertelement")
def _insert(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    row, value, index = shadows
    result = None
    if row is not None or value is not None:
        old = filled(inst.operands[0], row)
        result = build.insert_element(old, filled(inst.operands[1], value), inst.operands[2])
    return either(build, result, strict(build, inst.type, [index]))


@rule("shufflevector")
def _shuffle(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    a, b, mask = inst.operands
    sa, sb = shadows[0], shadows[1]
    if sa is None and sb is None:
        return None
    return build.shuffle_vector(filled(a, sa), filled(b, sb), mask)


# Intrinsics by the beginning of their names.
MOVES = ("llvm.bswap.", "llvm.bitreverse.")


def intrinsic(build: ir.IRBuilder, inst: Any, shadows: Sequence[Shadow]) -> Shadow:
    """A call's result: intrinsics that only move bits move the shadow, others are strict."""
    if isinstance(inst.type, ir.VoidType) or all(shadow is None for shadow in shadows):
        return None
    name = inst.callee.name
    if name.startswith(MOVES):
        return build.call(inst.callee, [shadows[0]])
    if name.startswith(("llvm.fshl.", "llvm.fshr.")):
        parts = [filled(value, shadow) for value, shadow in zip(inst.args[:2], shadows[:2], strict=True)]
        moved = build.call(inst.callee, [*parts, inst.args[2]])
        return either(build, moved, strict(build, inst.type, [shadows[2]]))
    return strict(build, inst.type, shadows)
