"""Machine code of another function for IR with poison, undef and undefined behaviour: for each rule one that is right, one wrong.

The rules are the language reference's. Pairs like these are known from Alive2 (Lopes et al., PLDI 2021); these are our own.
"""

from __future__ import annotations

import pytest

from simgpu.proof.equal import Verdict
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.refine import refines
from simgpu.proof.ir.wrap import kernel_name, with_kernel
from simgpu.proof.solver import Limits
from simgpu.tools.cases.refinement import compile_function
from tests.support.exhaustive import one_in

# Name: type of the result and parameters; the source's lines, then lines of right and of wrong targets. The last line makes %r.
CASES = """
sum above, nsw: i1 (i32 %a)
  source %s = add nsw i32 %a, 1; %r = icmp sgt i32 %s, %a
  right %r = or i1 true, true
  wrong %r = or i1 false, false
sum above: i1 (i32 %a)
  source %s = add i32 %a, 1; %r = icmp sgt i32 %s, %a
  right %r = icmp ne i32 %a, 2147483647
  wrong %r = or i1 true, true
sum, nuw: i16 (i8 %a)
  source %s = add nuw i8 %a, 3; %r = zext i8 %s to i16
  right %x = zext i8 %a to i16; %r = add i16 %x, 3
  wrong %x = sext i8 %a to i16; %r = add i16 %x, 3
sum: i16 (i8 %a)
  source %s = add i8 %a, 3; %r = zext i8 %s to i16
  right %x = zext i8 %a to i16; %y = add i16 %x, 3; %r = and i16 %y, 255
  wrong %x = zext i8 %a to i16; %r = add i16 %x, 3
difference, nuw: i1 (i32 %a, i32 %b)
  source %s = sub nuw i32 %a, %b; %r = icmp ule i32 %s, %a
  right %r = or i1 true, true
  wrong %r = icmp ugt i32 %a, %b
doubled and halved, nsw: i32 (i32 %a)
  source %s = mul nsw i32 %a, 2; %r = sdiv i32 %s, 2
  right %r = add i32 %a, 0
  wrong %r = add i32 %a, 1
doubled and halved: i32 (i32 %a)
  source %s = mul i32 %a, 2; %r = sdiv i32 %s, 2
  right %s = shl i32 %a, 1; %r = ashr i32 %s, 1
  wrong %r = add i32 %a, 0
shift by the width: i32 (i32 %a)
  source %r = shl i32 %a, 32
  right %r = add i32 %a, 77
shift by less: i32 (i32 %a)
  source %r = shl i32 %a, 31
  right %b = and i32 %a, 1; %r = mul i32 %b, -2147483648
  wrong %r = and i32 0, 0
shift, any amount: i32 (i32 %a, i32 %b)
  source %r = lshr i32 %a, %b
  right %c = and i32 %b, 31; %r = lshr i32 %a, %c
  wrong %c = and i32 %b, 15; %r = lshr i32 %a, %c
shift, nsw: i32 (i32 %a)
  source %s = shl nsw i32 %a, 3; %r = ashr i32 %s, 3
  right %r = add i32 %a, 0
  wrong %r = add i32 %a, 1
shift, exact: i32 (i32 %a)
  source %s = lshr exact i32 %a, 3; %r = shl i32 %s, 3
  right %r = add i32 %a, 0
shift back: i32 (i32 %a)
  source %s = lshr i32 %a, 3; %r = shl i32 %s, 3
  right %r = and i32 %a, -8
  wrong %r = add i32 %a, 0
quotient, exact: i32 (i32 %a)
  source %s = udiv exact i32 %a, 4; %r = mul i32 %s, 4
  right %r = add i32 %a, 0
quotient: i32 (i32 %a)
  source %s = udiv i32 %a, 4; %r = mul i32 %s, 4
  right %r = and i32 %a, -4
  wrong %r = add i32 %a, 0
division by 0: i8 (i8 %a, i8 %b)
  source %q = udiv i8 %a, %b; %z = icmp eq i8 %b, 0; %r = zext i1 %z to i8
  right %r = and i8 0, 0
  wrong %r = and i8 1, 1
disjoint or: i32 (i32 %a, i32 %b)
  source %r = or disjoint i32 %a, %b
  right %r = add i32 %a, %b
  wrong %r = sub i32 %a, %b
or: i32 (i32 %a, i32 %b)
  source %r = or i32 %a, %b
  right %x = xor i32 %a, %b; %y = and i32 %a, %b; %r = add i32 %x, %y
  wrong %r = add i32 %a, %b
extension, nneg: i32 (i8 %a)
  source %r = zext nneg i8 %a to i32
  right %r = sext i8 %a to i32
  wrong %r = and i32 0, 0
extension: i32 (i8 %a)
  source %r = zext i8 %a to i32
  right %s = sext i8 %a to i32; %r = and i32 %s, 255
  wrong %r = sext i8 %a to i32
cut, nuw: i32 (i32 %a)
  source %t = trunc nuw i32 %a to i8; %r = zext i8 %t to i32
  right %r = add i32 %a, 0
cut: i32 (i32 %a)
  source %t = trunc i32 %a to i8; %r = zext i8 %t to i32
  right %r = and i32 %a, 255
  wrong %r = add i32 %a, 0
comparison, samesign: i1 (i32 %a, i32 %b)
  source %r = icmp samesign ult i32 %a, %b
  right %r = icmp slt i32 %a, %b
  wrong %r = icmp ule i32 %a, %b
comparison: i1 (i32 %a, i32 %b)
  source %r = icmp ult i32 %a, %b
  right %r = icmp ugt i32 %b, %a
  wrong %r = icmp slt i32 %a, %b
absolute, poison: i1 (i32 %a)
  source %s = call i32 @llvm.abs.i32(i32 %a, i1 true); %r = icmp sge i32 %s, 0
  right %r = or i1 true, true
absolute: i1 (i32 %a)
  source %s = call i32 @llvm.abs.i32(i32 %a, i1 false); %r = icmp sge i32 %s, 0
  right %r = icmp ne i32 %a, -2147483648
  wrong %r = or i1 true, true
zeros of 0, poison: i1 (i32 %a)
  source %s = call i32 @llvm.cttz.i32(i32 %a, i1 true); %r = icmp ult i32 %s, 32
  right %r = or i1 true, true
  wrong %r = or i1 false, false
zeros of 0: i1 (i32 %a)
  source %s = call i32 @llvm.cttz.i32(i32 %a, i1 false); %r = icmp ult i32 %s, 32
  right %r = icmp ne i32 %a, 0
  wrong %r = or i1 true, true
choice with poison: i32 (i1 %a, i32 %b)
  source %r = select i1 %a, i32 %b, i32 poison
  right %r = add i32 %b, 0
  wrong %r = add i32 %b, 1
choice with undef: i32 (i1 %a, i32 %b)
  source %r = select i1 %a, i32 %b, i32 undef
  right %r = add i32 %b, 0
  wrong %r = add i32 %b, 1
undef, two uses: i32 (i32 %a)
  source %x = and i32 undef, 1; %y = and i32 undef, 1; %r = xor i32 %x, %y
  right %r = and i32 1, 1
  right %r = and i32 0, 0
  wrong %r = and i32 2, 2
frozen undef, two uses: i32 (i32 %a)
  source %u = freeze i32 undef; %x = and i32 %u, 1; %y = and i32 %u, 1; %r = xor i32 %x, %y
  right %r = and i32 0, 0
  wrong %r = and i32 1, 1
frozen poison: i64 (i32 %a)
  source %s = add nsw i32 %a, 1; %f = freeze i32 %s; %x = zext i32 %f to i64; %y = shl i64 %x, 32; %r = or i64 %x, %y
  right %s = add i32 %a, 1; %x = zext i32 %s to i64; %y = shl i64 %x, 32; %r = or i64 %x, %y
  wrong %s = add i32 %a, 1; %x = zext i32 %s to i64; %y = shl i64 %x, 32; %z = or i64 %x, %y; %r = xor i64 %z, 1
element outside: i32 (<2 x i32> %a, i32 %b)
  source %r = extractelement <2 x i32> %a, i32 %b
  right %c = and i32 %b, 1; %r = extractelement <2 x i32> %a, i32 %c
  wrong %r = extractelement <2 x i32> %a, i32 0
shuffle: <2 x i32> (<2 x i32> %a)
  source %r = shufflevector <2 x i32> %a, <2 x i32> poison, <2 x i32> <i32 1, i32 poison>
  right %r = shufflevector <2 x i32> %a, <2 x i32> poison, <2 x i32> <i32 1, i32 1>
  wrong %r = or <2 x i32> %a, zeroinitializer
assumption: i32 (i32 %a)
  source %c = icmp ult i32 %a, 16; call void @llvm.assume(i1 %c); %r = add i32 %a, 0
  right %r = and i32 %a, 15
  wrong %r = and i32 %a, 7
no NaN: i1 (float %a)
  source %r = fcmp nnan uno float %a, %a
  right %r = or i1 false, false
NaN: i1 (float %a)
  source %r = fcmp uno float %a, %a
  right %b = bitcast float %a to i32; %c = and i32 %b, 2147483647; %r = icmp ugt i32 %c, 2139095040
  wrong %r = or i1 false, false
float outside: i8 (float %a)
  source %r = fptosi float %a to i8
  right %b = fptosi float %a to i32; %r = trunc i32 %b to i8
  wrong %b = fptosi float %a to i32; %c = trunc i32 %b to i8; %r = xor i8 %c, 1
either zero: float (float %a)
  source %r = call float @llvm.minnum.f32(float 0.0, float -0.0)
  right %r = fadd float 0.0, 0.0
  right %r = fadd float -0.0, -0.0
  wrong %r = fadd float 1.0, 0.0
"""


def cases(kind: str) -> list[tuple[str, str, str, str]]:
    """Returns the name, the result and parameters, the source and the target of each right or each wrong target."""
    found = []
    for line in CASES.strip().splitlines():
        word, _, rest = line.strip().partition(" ")
        if not line.startswith(" "):
            name, _, types = line.partition(": ")
        elif word == "source":
            source = rest
        elif word == kind:
            found.append((name, types, source, rest))
    return found


def text_of(types: str, lines: str) -> str:
    result, _, parameters = types.partition(" (")
    body = "\n".join(f"  {line.strip()}" for line in lines.split(";"))
    return f"define {result} @f({parameters} {{\n{body}\n  ret {result} %r\n}}\n"


def verdict_of(source: str, target: str, options: str = "-O1") -> Verdict:
    """Returns the verdict on the target's machine code and the source's IR."""
    module = read_ir(source)
    function = module.function("f")
    other = read_ir(target)
    code = compile_function(other, other.function("f"), "f.ll", "gfx942", options.split()).code
    assert code is not None
    wrapped = module if function.is_kernel else read_ir(with_kernel(module.text, function))
    return refines(code, function.title if function.is_kernel else kernel_name(function), wrapped, Limits(20))


@pytest.mark.parametrize(("name", "types", "source", "target"), cases("right"))
def test_right_code(name: str, types: str, source: str, target: str) -> None:
    made = verdict_of(text_of(types, source), text_of(types, target))
    assert made.kind == "equal", made.reason


@pytest.mark.parametrize(("name", "types", "source", "target"), one_in(2, cases("wrong")))
def test_wrong_code(name: str, types: str, source: str, target: str) -> None:
    made = verdict_of(text_of(types, source), text_of(types, target))
    assert made.kind == "different" and made.counterexample is not None, made.reason
