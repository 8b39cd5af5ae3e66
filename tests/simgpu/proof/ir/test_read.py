"""Reads IR: each form of instruction, constants as numpy has them, layout as the compiler's metadata has it, bad files."""

from __future__ import annotations

import numpy as np
import pytest

from simgpu.proof.ir.flow import block_order
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.syntax import Aggregate, Number, Undefined, Unreadable
from simgpu.tools.cases.sources import compile

FORMS = """
%s = type { i32, <2 x half>, [2 x i8] }
@table = internal unnamed_addr addrspace(4) constant [2 x i32] [i32 1, i32 -2], align 16
define amdgpu_kernel void @k(ptr addrspace(1) noundef align 4 %x, i32 noundef %n, ptr addrspace(4) byref(%s) align 8 %st) #0 {
  %id = call noundef range(i32 0, 1024) i32 @llvm.amdgcn.workitem.id.x()
  %c = icmp samesign ult i32 %id, %n
  %p = getelementptr inbounds nuw %s, ptr addrspace(1) %x, i32 %id, i32 1
  %v = load <2 x half>, ptr addrspace(1) %p, align 4
  %w = fadd nnan contract <2 x half> %v, splat (half 1.0)
  %q = shufflevector <2 x half> %w, <2 x half> poison, <4 x i32> <i32 0, i32 1, i32 poison, i32 0>
  switch i32 %id, label %a [ i32 0, label %b
    i32 5, label %b ]
a:
  %o = atomicrmw add ptr addrspace(1) %x, i32 5 syncscope("agent") monotonic, align 4
  %m = load i8, ptr addrspace(1) %x, align 1, !range !0
  br label %b
b:
  %y = phi i32 [ %o, %a ], [ 7, %0 ], [ 7, %0 ]
  %u = select i1 %c, i32 %y, i32 undef
  store i32 %u, ptr addrspace(1) %x
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }
!0 = !{i8 0, i8 2}
"""


def test_forms_of_instructions() -> None:
    module = read_ir(FORMS)
    kernel = module.function("k")
    found = {inst.name or inst.op: inst for block in kernel.blocks for inst in block.instructions}
    assert kernel.is_kernel and kernel.parameters[2].byref is not None and kernel.parameters[2].byref.size == 12
    assert "amdgpu-flat-work-group-size" in kernel.attributes
    assert found["%id"].limits == (0, 1024) and found["%m"].limits == (0, 2)
    assert found["%c"].what == "ult" and found["%c"].flags == {"samesign"}
    assert found["%p"].source.offset(1) == 4 and found["%p"].flags == {"inbounds", "nuw"}
    assert found["%q"].numbers == (0, 1, -1, 0) and str(found["%q"].type) == "<4 x half>"
    assert found["switch"].numbers == (0, 5) and found["switch"].targets == ("%a", "%b", "%b")
    assert found["%y"].targets == ("%a", "%0", "%0") and isinstance(found["%u"].operands[2], Undefined)
    assert found["%o"].what == "add" and found["%o"].align == 4
    initial = module.variables["@table"].initial
    assert isinstance(initial, Aggregate) and [getattr(item, "value", None) for item in initial.items] == [1, (1 << 32) - 2]


@pytest.mark.parametrize(("type_", "kind"), [("float", np.float32), ("double", np.float64), ("half", np.float16)])
def test_float_constants_have_the_bits_of_numpy(type_: str, kind: type[np.floating]) -> None:
    for value in (0.0, -0.0, 1.5, -3.25, 65504.0, 2.0**-14):
        text = f"define {type_} @f() {{\n  ret {type_} {value!r}\n}}"
        (operand,) = read_ir(text).function("f").blocks[0].instructions[0].operands
        expected = int.from_bytes(kind(value).tobytes(), "little")
        assert isinstance(operand, Number) and operand.value == expected


LAYOUT = """
define amdgpu_kernel void @k(i8 %a, i65 %b, i24 %c, <3 x i32> %d, { i8, i64 } %e, [3 x i16] %f, <2 x i48> %g, double %h, i1 %i) {
  ret void
}
"""


def test_layout_is_the_compilers() -> None:
    """Compares with the metadata, which has the offset of each argument. Alignment decides it."""
    from simgpu.hardware.code_object import CodeObject

    arguments = CodeObject.parse(compile(LAYOUT, "gfx942")).kernels["k"].explicit_arguments
    at = 0
    for parameter, argument in zip(read_ir(LAYOUT).function("k").parameters, arguments, strict=True):
        at += -at % parameter.type.alignment
        assert (argument.offset, argument.size) == (at, parameter.type.size), str(parameter.type)
        at += parameter.type.size


def test_blocks_of_a_loop_are_together() -> None:
    text = """define void @f(i1 %c) {
entry:
  br label %outer
outer:
  br i1 %c, label %end, label %inner
inner:
  br i1 %c, label %latch, label %inner
latch:
  br label %outer
end:
  ret void
}"""
    order = block_order(read_ir(text).function("f"))
    assert order == ["%entry", "%outer", "%inner", "%latch", "%end"]


@pytest.mark.parametrize("text", ["define i32 @f( {", "define void @f() {\n  %a = foo i32 1\n}"])
def test_bad_files_are_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_ir(text)
