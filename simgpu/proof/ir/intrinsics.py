"""LLVM's intrinsic functions on scalars: integers, floats, and a few of AMDGPU's by the instruction that they stand for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import z3

from simgpu.engine.workers.initial_state import mode_register
from simgpu.hardware.code_object.code_object import KernelInfo
from simgpu.hardware.isa import table
from simgpu.hardware.isa.lane_smt import SmtOps, bits_of, choose, concat, count_bits, evaluate, every, fold, number, some
from simgpu.machine.mode import Mode
from simgpu.proof.ir import floats, integers
from simgpu.proof.ir.syntax import BOOL, IrInstruction, IrType
from simgpu.proof.ir.values import Scalar, SymbolicValue, any_poison, compose, each_scalar, flag, is_set, known_value, of_scalars
from simgpu.proof.terms import NotModelled

Term = Any
NO_EFFECT = (
    "lifetime.", "dbg.", "donothing", "sideeffect", "experimental.noalias", "invariant.", "amdgcn.sched.",
    "amdgcn.iglp", "prefetch",
    "amdgcn.wave.barrier", "amdgcn.s.setprio", "amdgcn.s.sleep", "pseudoprobe", "amdgcn.s.waitcnt",
)  # fmt: skip
CLASSES = 10  # of floats: signalling and quiet NaNs, and four of each sign
REDUCTIONS = {"add": "add", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
ORDERS = {"umin": z3.ULT, "umax": z3.UGT, "smin": lambda a, b: a < b, "smax": lambda a, b: a > b}
# Intrinsics that are one vector instruction; their operands and result have its types, and what is left of operands is `clamp`.
INSTRUCTIONS = {
    "mbcnt.lo": "mbcnt_lo_u32_b32", "mbcnt.hi": "mbcnt_hi_u32_b32", "perm": "perm_b32", "alignbyte": "alignbyte_b32",
    "sad.u8": "sad_u8", "sad.u16": "sad_u16", "sad.hi.u8": "sad_hi_u8", "msad.u8": "msad_u8", "lerp": "lerp_u8",
    "qsad.pk.u16.u8": "qsad_pk_u16_u8", "mqsad.pk.u16.u8": "mqsad_pk_u16_u8", "mqsad.u32.u8": "mqsad_u32_u8",
    "ubfe.i32": "bfe_u32", "sbfe.i32": "bfe_i32", "mul.i24": "mul_i32_i24", "mul.u24": "mul_u32_u24",
    "mulhi.i24": "mul_hi_i32_i24", "mulhi.u24": "mul_hi_u32_u24",
    "cvt.pkrtz": "cvt_pkrtz_f16_f32", "cvt.pknorm.i16": "cvt_pknorm_i16_f32", "cvt.pknorm.u16": "cvt_pknorm_u16_f32",
    "cvt.pk.i16": "cvt_pk_i16_i32", "cvt.pk.u16": "cvt_pk_u16_u32", "cvt.pk.u8.f32": "cvt_pk_u8_f32", "prng.b32": "prng_b32",
    "cvt.off.f32.i4": "cvt_off_f32_i4", "fmul.legacy": "mul_legacy_f32", "trig.preop.f64": "trig_preop_f64",
    "cubeid": "cubeid_f32", "cubesc": "cubesc_f32", "cubetc": "cubetc_f32", "cubema": "cubema_f32",
    "sdot2": "dot2_i32_i16", "sdot4": "dot4_i32_i8", "sdot8": "dot8_i32_i4", "udot2": "dot2_u32_u16", "udot4": "dot4_u32_u8",
    "udot8": "dot8_u32_u4", "fdot2": "dot2_f32_f16", "frexp.exp.i32.f32": "frexp_exp_i32_f32",
    "frexp.exp.i32.f64": "frexp_exp_i32_f64", "frexp.exp.i16.f16": "frexp_exp_i16_f16",
    **{f"{name}.{kind}": f"{mnemonic}_{kind}" for kind in ("f16", "f32", "f64") for name, mnemonic in (
        ("rcp", "rcp"), ("rsq", "rsq"), ("sqrt", "sqrt"), ("exp2", "exp"), ("log", "log"), ("sin", "sin"), ("cos", "cos"),
        ("fmed3", "med3"), ("fract", "fract"), ("frexp.mant", "frexp_mant"), ("div.fixup", "div_fixup"),
    )},
}  # fmt: skip
CONSTRAINED = "experimental.constrained."


def call(
    ops: SmtOps, name: str, info: KernelInfo, inst: IrInstruction, operands: Sequence[SymbolicValue], unknown: Callable[[int], Term]
) -> SymbolicValue:
    """Returns an intrinsic's result. name: without "llvm."; unknown: makes bits that may have any value. Raises NotModelled."""
    if name.startswith(CONSTRAINED):
        return _constrain(ops, name.removeprefix(CONSTRAINED), inst, operands, unknown)
    type_, stem = inst.type, name.partition(".")[0]
    if name.startswith("vector.reduce."):
        return _reduce(name.split(".")[2], type_, operands[0])
    if ".with.overflow." in name:
        op, signed = stem[1:], stem[0] == "s"
        parts = [each_scalar(operands[0].type, lambda a, b: _whole(op, a, b), *operands)]
        bit = IrType("vector", count=parts[0].type.count, fields=(BOOL,)) if parts[0].type.kind == "vector" else BOOL
        parts.append(each_scalar(bit, lambda a, b: _overflow(op, signed, a, b), *operands))
        return compose(type_, parts)
    if ".sat." in name and stem in SATURATED:
        return each_scalar(type_, lambda a, b: _saturate(stem, a, b), *operands)
    if stem in INTEGER_FUNCTIONS:
        count, function = INTEGER_FUNCTIONS[stem]
        given = [each if each.type == operands[0].type else _spread(operands[0].type, each) for each in operands]
        return each_scalar(type_, function, *given[:count])
    if stem in FLOAT_FUNCTIONS or name.startswith(("fptosi.sat", "fptoui.sat")):
        return _float(ops, stem, type_, operands, unknown)
    own = name.removeprefix("amdgcn.")
    if own.startswith("class.") or stem == "canonicalize":
        return _class(ops, type_, operands) if stem == "amdgcn" else _canonical(ops, info, type_, operands[0])
    mnemonic = INSTRUCTIONS.get(own) or INSTRUCTIONS.get(own.rpartition(".")[0])
    if mnemonic is not None:
        return _instruction(ops, f"v_{mnemonic}", info, type_, operands)
    raise NotModelled(f"llvm.{name}")


def _spread(type_: IrType, value: SymbolicValue) -> SymbolicValue:
    """Returns a scalar operand, such as the bit of ctlz, for each element."""
    return of_scalars(IrType("vector", count=type_.leaves, fields=(value.type,)), [value.one] * type_.leaves)


def _whole(op: str, a: Scalar, b: Scalar) -> Scalar:
    return integers.binary(op, frozenset(), a, b)[0]


def _overflow(op: str, signed: bool, a: Scalar, b: Scalar) -> Scalar:
    return Scalar(BOOL, flag(integers.overflows(op, signed, a.bits, b.bits)), any_poison(a, b))


# -- integers ----------------------------------------------------------------------------------


def _extremum(name: str) -> Callable[..., Scalar]:
    return lambda a, b: Scalar(a.type, choose(fold(ORDERS[name](a.bits, b.bits)), a.bits, b.bits), any_poison(a, b))


def _absolute(a: Scalar, wrong: Scalar) -> Scalar:
    size = a.bits.size()
    least = every(is_set(wrong.bits), fold(a.bits == number(1 << size - 1, size)))
    return Scalar(a.type, choose(fold(a.bits < 0), fold(-a.bits), a.bits), some(a.poison, least))


def _zeros(op: str) -> Callable[..., Scalar]:
    def make(a: Scalar, wrong: Scalar) -> Scalar:
        zero = every(is_set(wrong.bits), fold(a.bits == 0))
        return Scalar(a.type, count_bits(op, a.bits), some(a.poison, zero))

    return make


def _bytes_reversed(a: Scalar) -> Scalar:
    size = a.bits.size()
    return Scalar(a.type, concat(*(bits_of(a.bits, low, 8) for low in reversed(range(0, size, 8)))), a.poison)


def _funnel(left: bool) -> Callable[..., Scalar]:
    def make(a: Scalar, b: Scalar, amount: Scalar) -> Scalar:
        size = a.bits.size()
        by = amount.bits
        by = fold(by & (size - 1)) if size & size - 1 == 0 else fold(z3.URem(by, number(size, size)))
        back = fold(number(size, size) - by)
        if left:
            whole = fold(fold(a.bits << by) | fold(z3.LShR(b.bits, back)))
        else:
            whole = fold(fold(a.bits << back) | fold(z3.LShR(b.bits, by)))
        return Scalar(a.type, choose(fold(by == 0), a.bits if left else b.bits, whole), any_poison(a, b, amount))

    return make


SATURATED = ("uadd", "usub", "sadd", "ssub", "ushl", "sshl")


def _saturate(name: str, a: Scalar, b: Scalar) -> Scalar:
    """Returns a sum, a difference or a shift to the left that stops at the largest or smallest value."""
    size, signed = a.bits.size(), name[0] == "s"
    least, most = number(1 << size - 1, size), number((1 << size - 1) - 1, size)
    negative = fold(a.bits < 0)
    if name.endswith("shl"):
        result = integers.shift("shl", a.bits, b.bits)
        fits = fold(integers.shift("ashr" if signed else "lshr", result, b.bits) == a.bits)
        end = choose(negative, least, most) if signed else number(-1, size)
        wide = fold(z3.UGE(b.bits, number(size, size)))
        return Scalar(a.type, choose(fits, result, end), some(any_poison(a, b), wide))
    op = name[1:]
    over = integers.overflows(op, signed, a.bits, b.bits)
    end = choose(negative, least, most) if signed else number(-1 if op == "add" else 0, size)
    return Scalar(a.type, choose(over, end, fold(integers.OVERFLOWS[op](a.bits, b.bits))), any_poison(a, b))


INTEGER_FUNCTIONS: dict[str, tuple[int, Callable[..., Scalar]]] = {
    **{name: (2, _extremum(name)) for name in ORDERS}, "abs": (2, _absolute), "ctlz": (2, _zeros("ctlz")),
    "cttz": (2, _zeros("cttz")), "ctpop": (1, lambda a: Scalar(a.type, count_bits("ctpop", a.bits), a.poison)),
    "bitreverse": (1, lambda a: Scalar(a.type, count_bits("bitreverse", a.bits), a.poison)), "bswap": (1, _bytes_reversed),
    "fshl": (3, _funnel(True)), "fshr": (3, _funnel(False)),
}  # fmt: skip


def _reduce(op: str, type_: IrType, value: SymbolicValue) -> SymbolicValue:
    """Returns the sum, or another reduction, of a vector's integers."""
    total, *rest = value.scalars
    for each in rest:
        if op in REDUCTIONS:
            total = integers.binary(REDUCTIONS[op], frozenset(), total, each)[0]
        elif op in ORDERS:
            total = _extremum(op)(total, each)
        else:
            raise NotModelled(f"llvm.vector.reduce.{op}")
    return of_scalars(type_, [total])


# -- floats ------------------------------------------------------------------------------------


def _float(
    ops: SmtOps, stem: str, type_: IrType, operands: Sequence[SymbolicValue], unknown: Callable[[int], Term]
) -> SymbolicValue:
    def make(*given: Scalar) -> Scalar:
        first = given[0]
        if stem in ("fptosi", "fptoui"):
            return floats.saturate(ops, stem == "fptosi", type_.scalar, first)
        if stem == "copysign":
            bits = floats.copysign(*given)
        elif stem == "fmuladd":
            bits = floats.arithmetic(ops, "fma", *given)  # not the sum of the rounded product, which is right as well
        elif stem in FLOAT_FUNCTIONS[-6:]:
            bits = floats.extremum(ops, stem, given[0], given[1], unknown)
        else:
            bits = floats.arithmetic(ops, floats.ROUNDINGS.get(stem, {"fabs": "abs"}.get(stem, stem)), *given)
        return Scalar(first.type, bits, any_poison(*given))

    if stem == "is":
        wanted = z3.simplify(operands[1].bits).as_long()
        return each_scalar(type_, lambda a: floats.class_of(ops, BOOL, a, wanted), operands[0])
    return each_scalar(type_, make, *operands)


FLOAT_FUNCTIONS = (
    "fabs", "copysign", "fma", "fmuladd", "is", *floats.ROUNDINGS,
    "minnum", "maxnum", "minimum", "maximum", "minimumnum", "maximumnum",
)  # fmt: skip


# -- AMDGPU's ----------------------------------------------------------------------------------


@cache
def _by_mnemonic(target: str) -> dict[str, Any]:
    return {spec.mnemonic: spec for spec, *_ in table(target).values()}


def _instruction(ops: SmtOps, mnemonic: str, info: KernelInfo, type_: IrType, operands: Sequence[SymbolicValue]) -> SymbolicValue:
    spec = _by_mnemonic(info.target).get(mnemonic)
    if spec is None:
        raise NotModelled(f"{mnemonic}, which {info.target} lacks")
    taken = [param for param in spec.params if param.type.state != "modifier"]
    mode = Mode.of_register(mode_register(info.descriptor))
    clamps = [z3.simplify(each.bits).as_long() for each in operands[len(taken) :]]
    known_ = {"ieee": int(mode.ieee), "fp16_ovfl": 0, "clamp": sum(clamps)}
    modifiers = {param.name: known_[param.name] for param in spec.params if param not in taken}
    if sum(clamps) and "clamp" not in modifiers:
        raise NotModelled(f"{mnemonic} clamp")
    (bits,) = evaluate(ops, spec, [each.bits for each in operands[: len(taken)]], **modifiers)
    poison = some(*(each.poison for value in operands for each in value.scalars), z3.BoolVal(False))
    made = known_value(type_, bits)
    return SymbolicValue(type_, made.bits, concat(*[flag(poison)] * type_.leaves))


def _canonical(ops: SmtOps, info: KernelInfo, type_: IrType, operand: SymbolicValue) -> SymbolicValue:
    """Returns the maximum of a float and itself, whose NaN is quiet."""
    kind = floats.float_type(type_.scalar)
    given = [of_scalars(type_.scalar, [each]) for each in operand.scalars]
    parts = [_instruction(ops, f"v_max_{kind.name}", info, type_.scalar, [each] * 2) for each in given]
    return compose(type_, parts) if type_.kind == "vector" else parts[0]


def _class(ops: SmtOps, type_: IrType, operands: Sequence[SymbolicValue]) -> SymbolicValue:
    """Returns amdgcn.class's bit, whose mask may be a variable."""
    value, mask = (each.one for each in operands)
    bits = [floats.class_of(ops, BOOL, value, 1 << at) for at in range(CLASSES)]
    holds = some(*(every(is_set(each.bits), is_set(bits_of(mask.bits, at, 1))) for at, each in enumerate(bits)))
    return of_scalars(type_, [Scalar(BOOL, flag(holds), any_poison(value, mask))])


def _constrain(
    ops: SmtOps, name: str, inst: IrInstruction, operands: Sequence[SymbolicValue], unknown: Callable[[int], Term]
) -> SymbolicValue:  # fmt: skip
    """Returns the result of an operation whose rounding and exceptions are stated: to nearest even, as kernels begin."""
    stem = name.partition(".")[0]
    if re.search(r"round\.(upward|downward|towardzero|tonearestaway)", inst.text):
        raise NotModelled(f"llvm.{CONSTRAINED}{stem} with another rounding")
    if stem in floats.OPERATIONS:
        return each_scalar(inst.type, lambda *given: Scalar(
            given[0].type, floats.arithmetic(ops, floats.OPERATIONS[stem], *given), any_poison(*given)), *operands)  # fmt: skip
    if stem in ("fpext", "fptrunc", "sitofp", "uitofp", "fptosi", "fptoui"):
        return each_scalar(inst.type, lambda a: floats.cast(ops, stem, frozenset(), inst.type.scalar, a), *operands)
    if stem in FLOAT_FUNCTIONS:
        return _float(ops, stem, inst.type, operands, unknown)
    raise NotModelled(f"llvm.{CONSTRAINED}{stem}")
