"""IR values with operators: an expression's instructions, in its order."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llvmlite import ir

from simgpu.machine.values import F32, I1, I32, I64, Builder, IrValue, where

PTR = ir.PointerType()
PAIR = ir.VectorType(I32, 2)


def emitted(types: Sequence[ir.Type], body: Callable[..., Any]) -> list[str]:
    """Returns a body's instructions on arguments a and b of these types; values are numbered from 0."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), types), "f")
    build = Builder(function.append_basic_block())
    for argument, name in zip(function.args, "ab", strict=False):
        argument.name = name
    body(*(IrValue(build, argument) for argument in function.args))
    text = "\n".join(str(instruction).replace('"', "") for instruction in function.entry_basic_block.instructions)
    for number, name in enumerate(dict.fromkeys(re.findall(r"%\.\d+", text))):
        text = re.sub(re.escape(name) + r"\b", f"%{number}", text)
    return text.split("\n")


@pytest.mark.parametrize(("types", "body", "wanted"), [
    ((I64, I64), lambda a, b: a * b + 3, ["%0 = mul i64 %a, %b", "%1 = add i64 %0, 3"]),
    ((I64,), lambda a: (1 << a) - a, ["%0 = shl i64 1, %a", "%1 = sub i64 %0, %a"]),
    ((I64, I64), lambda a, b: (a & 7) | ~b ^ 1, [
        "%0 = and i64 %a, 7", "%1 = xor i64 %b, -1", "%2 = xor i64 %1, 1", "%3 = or i64 %0, %2"]),
    ((I64, I64), lambda a, b: (a >> 4, b.ashr(4)), ["%0 = lshr i64 %a, 4", "%1 = ashr i64 %b, 4"]),
    ((I64, I64), lambda a, b: (a.unsigned < b, a.signed >= 0), ["%0 = icmp ult i64 %a, %b", "%1 = icmp sge i64 %a, 0"]),
    ((I64, I64), lambda a, b: (a == b, a != 0), ["%0 = icmp eq i64 %a, %b", "%1 = icmp ne i64 %a, 0"]),
    ((F32, F32), lambda a, b: (a - b, a / 2.0, -a), [
        "%0 = fsub float %a, %b", "%1 = fdiv float %a, 0x4000000000000000", "%2 = fneg float %a"]),
    ((F32, F32), lambda a, b: (a == b, a != b, a.ordered < b, a.is_nan()), [
        "%0 = fcmp oeq float %a, %b", "%1 = fcmp une float %a, %b", "%2 = fcmp olt float %a, %b", "%3 = fcmp uno float %a, %a"]),
    ((PAIR, I32), lambda a, b: (a + 1, b - a), [
        "%0 = add <2 x i32> %a, splat (i32 1)", "%1 = insertelement <2 x i32> undef, i32 %b, i32 0",
        "%2 = shufflevector <2 x i32> %1, <2 x i32> undef, <2 x i32> <i32 0, i32 0>", "%3 = sub <2 x i32> %2, %a"]),
    ((PAIR, I1), lambda a, b: where(b, 0, a)[1], [
        "%0 = insertelement <2 x i1> undef, i1 %b, i32 0",
        "%1 = shufflevector <2 x i1> %0, <2 x i1> undef, <2 x i32> <i32 0, i32 0>",
        "%2 = select  <2 x i1> %1, <2 x i32> splat (i32 0), <2 x i32> %a", "%3 = extractelement <2 x i32> %2, i32 1"]),
    ((PAIR,), lambda a: (a.zext(I64), a.bitcast(I64)), [
        "%0 = zext <2 x i32> %a to <2 x i64>", "%1 = bitcast <2 x i32> %a to i64"]),
    ((PTR, I32), lambda a, b: a.at(b).store(a.at(8).load(I32)), [
        "%0 = zext i32 %b to i64", "%1 = getelementptr inbounds i8, ptr %a, i64 %0",
        "%2 = getelementptr inbounds i8, ptr %a, i64 8", "%3 = load i32, ptr %2, align 4", "store i32 %3, ptr %1, align 4"]),
])  # fmt: skip
def test_expressions(types: Sequence[ir.Type], body: Callable[..., Any], wanted: list[str]) -> None:
    assert emitted(types, body) == wanted


def test_a_value_is_no_truth() -> None:
    with pytest.raises(TypeError, match="where"):
        emitted([I64, I64], lambda a, b: a if a == b else b)


def test_values_and_llvmlite_s_own_mix() -> None:
    """Builders take both and make Values; instructions hold only llvmlite's own."""

    def body(a: IrValue, b: IrValue) -> None:
        build = a.build
        total = build.add(a, b.ir) + b.ir
        choice = build.phi(I64)
        choice.add_incoming(total, build.block)
        assert all(not isinstance(operand, IrValue) for operand in (*total.ir.operands, *choice.ir.incomings[0]))

    assert emitted([I64, I64], body)[:2] == ["%0 = add i64 %a, %b", "%1 = add i64 %0, %b"]
