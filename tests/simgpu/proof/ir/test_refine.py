"""Machine code against IR: LLVM's faults are found without a second compilation, control flow, memory, kernels out of reach."""

from __future__ import annotations

import pytest

from simgpu.hardware.code_object import CodeObject
from simgpu.proof.equal import Verdict
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.refine import refines
from simgpu.proof.solver import Limits
from simgpu.tools.cases.sources import compile
from simgpu.tools.robustness.ir_faults import FAULTS, CompilerFault
from simgpu.tools.robustness.ir_functions import SUBJECTS, judge
from simgpu.tools.robustness.ir_runs import code_object

SHORT = [fault for fault in FAULTS if fault.name in ("sign-from-the-low-half", "minus-zero-becomes-zero", "sdwa-loses-the-sign")]
LONG = [fault for fault in FAULTS if fault not in SHORT and fault.name != "carry-of-a-product"]  # whose product takes too long


def of_fault(fault: CompilerFault, right: bool) -> Verdict:
    program = fault.example()
    code = CodeObject.parse(code_object([program], fault.right if right else fault.wrong))
    return refines(code, "p0", read_ir(program.text(gpu=True)), Limits(20))


@pytest.mark.parametrize("fault", SHORT, ids=lambda fault: fault.name)
def test_faults_of_llvm_are_found(fault: CompilerFault) -> None:
    found = of_fault(fault, right=False)
    assert found.kind == "different" and found.counterexample is not None
    assert of_fault(fault, right=True).kind == "equal"


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", LONG, ids=lambda fault: fault.name)
def test_more_faults_of_llvm_are_found(fault: CompilerFault) -> None:
    assert of_fault(fault, right=False).kind == "different"
    assert of_fault(fault, right=True).kind in ("equal", "unknown")


def kernel(body: str, more: str = "") -> str:
    return f"""{more}
define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, i32 %n) {{
entry:
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %id
  %q = getelementptr i32, ptr addrspace(1) %y, i32 %id
  %v = load i32, ptr addrspace(1) %p
{body}
  ret void
}}
"""


LOOP = """  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %head ]
  %s = phi i32 [ 1, %entry ], [ %more, %head ]
  %more = mul i32 %s, %v
  %next = add i32 %i, 1
  %again = icmp ult i32 %next, {rounds}
  br i1 %again, label %head, label %done
done:
  store i32 %more, ptr addrspace(1) %q"""
DIVERGENT = """  %c = icmp slt i32 %v, {limit}
  br i1 %c, label %yes, label %no
yes:
  %a = add i32 %v, 1
  br label %join
no:
  br label %join
join:
  %r = phi i32 [ %a, %yes ], [ {other}, %no ]
  store i32 %r, ptr addrspace(1) %q"""
SWITCH = """  switch i32 %v, label %other [ i32 0, label %zero
    i32 1, label %one
    i32 7, label %one ]
zero:
  br label %join
one:
  br label %join
other:
  br label %join
join:
  %r = phi i32 [ 5, %zero ], [ {one}, %one ], [ 7, %other ]
  store i32 %r, ptr addrspace(1) %q"""
PRIVATE = """  %m = alloca [4 x i32], addrspace(5)
  %at = and i32 %v, 3
  %m1 = getelementptr i32, ptr addrspace(5) %m, i32 %at
  call void @llvm.memset.p5.i32(ptr addrspace(5) %m, i8 0, i32 16, i1 false)
  store i32 %v, ptr addrspace(5) %m1
  %m2 = getelementptr i32, ptr addrspace(5) %m, i32 {index}
  %r = load i32, ptr addrspace(5) %m2
  store i32 %r, ptr addrspace(1) %q"""
LDS = """  %l = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %id
  store i32 %v, ptr addrspace(3) %l
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  %other = xor i32 %id, {other}
  %m = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %other
  %r = load i32, ptr addrspace(3) %m
  store i32 %r, ptr addrspace(1) %q"""
CALLED = """define internal i32 @twice(i32 %a) alwaysinline {
  %b = shl i32 %a, 1
  ret i32 %b
}"""
VARIABLE = "@lds = internal addrspace(3) global [256 x i32] poison, align 4"
# Name: body, fields of the IR, the same of the machine code if it differs, text before the kernel.
BODIES: dict[str, tuple[str, dict[str, object], dict[str, object], str]] = {
    "loop": (LOOP, {"rounds": 3}, {"rounds": 4}, ""),
    "branch": (DIVERGENT, {"limit": 3, "other": 9}, {"limit": 4, "other": 9}, ""),
    "switch": (SWITCH, {"one": 6}, {"one": 4}, ""),
    "private": (PRIVATE, {"index": 2}, {"index": 1}, ""),
    "lds": (LDS, {"other": 1}, {"other": 2}, VARIABLE),
    "call": ("  %r = call i32 @twice(i32 {of})\n  store i32 %r, ptr addrspace(1) %q", {"of": "%v"}, {"of": "%n"}, CALLED),
    "store of what was there": ("  store i32 {what}, ptr addrspace(1) %p", {"what": "%v"}, {"what": "%n"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("level", ["-O0", "-O3"])
@pytest.mark.parametrize("name", BODIES)
def test_right_kernels(name: str, level: str) -> None:
    body, fields, _, more = BODIES[name]
    text = kernel(body.format(**fields), more)
    found = refines(CodeObject.parse(compile(text, "gfx942", (level,))), "k", read_ir(text), Limits(20))
    assert found.kind == "equal", found.reason


@pytest.mark.parametrize("name", BODIES)
def test_wrong_kernels(name: str) -> None:
    """Takes another kernel's machine code; a kernel whose lanes read each other's data in LDS is only not proved."""
    body, fields, others, more = BODIES[name]
    code = CodeObject.parse(compile(kernel(body.format(**others), more), "gfx942"))
    found = refines(code, "k", read_ir(kernel(body.format(**fields), more)), Limits(20))
    assert found.kind == "different" or (name == "lds" and found.kind == "unknown"), found.reason


FUSED = """  %a = bitcast i32 %v to float
  %b = bitcast i32 %n to float
  %c = fmul {flags} float %a, %a
  %d = {op} {flags} float {operands}
  store float %d, ptr addrspace(1) %q"""


@pytest.mark.parametrize("operands", ["%b, %c", "%c, %b"])
@pytest.mark.parametrize("op", ["fadd", "fsub"])
def test_contracted_products(op: str, operands: str) -> None:
    """A product may be fused with a sum if both have the flag; otherwise the machine code is not wrong."""
    text, literal = (kernel(FUSED.format(flags=flags, op=op, operands=operands)) for flags in ("contract", ""))
    code, exact = (CodeObject.parse(compile(each, "gfx942")) for each in (text, literal))
    assert refines(code, "k", read_ir(text), Limits(5)).kind == "equal"
    assert refines(exact, "k", read_ir(literal), Limits(5)).kind == "equal"
    assert refines(exact, "k", read_ir(text), Limits(1)).kind != "different"


REACH = {
    "  call void asm sideeffect \"s_nop 0\", \"\"()": "inline assembly",
    "  %r = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 %v)\n  store i32 %r, ptr addrspace(1) %q": "number of a lane",
    "  %o = atomicrmw nand ptr addrspace(1) %q, i32 1 monotonic": "atomicrmw nand",
}  # fmt: skip


@pytest.mark.parametrize("body", REACH)
def test_what_is_out_of_reach_has_a_reason(body: str) -> None:
    text = kernel(body)
    found = refines(CodeObject.parse(compile(text, "gfx942")), "k", read_ir(text), Limits(5))
    assert found.kind == "unknown" and REACH[body] in found.reason


LEAK = """define <4 x i8> @f(<4 x i8> %a) {
  %r = call <4 x i8> @llvm.ctlz.v4i8(<4 x i8> %a, i1 true)
  ret <4 x i8> %r
}"""


@pytest.mark.exhaustive
def test_poison_of_one_element_stays_in_it() -> None:
    """LLVM 22.1 gives the elements above a zero wrong counts from -O1 on: only the zero's own count is poison."""
    assert judge(LEAK, "gfx942", ["-O2"], Limits(5)).kind == "different"
    assert judge(LEAK, "gfx942", ["-O0"], Limits(5)).kind == "equal"


@pytest.mark.exhaustive
@pytest.mark.parametrize("subject", SUBJECTS)
def test_functions_have_no_false_alarm(subject: str) -> None:
    for name, text in list(SUBJECTS[subject]())[::7]:
        verdict = judge(text, "gfx942", ["-O0"], Limits(1, seconds=10))
        assert verdict.kind != "different", name
