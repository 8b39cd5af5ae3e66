"""Intrinsics, atomic operations and functions' conventions: right machine code is verified, another one's is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from simgpu.hardware.code_object import CodeObject
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.refine import refines
from simgpu.proof.safety.judge import judge as judge_launches
from simgpu.proof.solver import Limits
from simgpu.tools.cases.refinement import compile_function
from simgpu.tools.cases.sources import compile
from simgpu.tools.robustness.ir_files import judge_function, read_file
from simgpu.tools.robustness.ir_functions import judge
from simgpu.tools.robustness.ir_proofs import main, reason_group
from tests.support.exhaustive import left_out

OPTIONS = ("-O2", "-Xclang", "-disable-llvm-passes", "-mllvm", "-amdgpu-atomic-optimizer-strategy=None")
FINE = ", !amdgpu.no.fine.grained.memory !0, !amdgpu.ignore.denormal.mode !0"
KERNEL = """
@lds = internal addrspace(3) global [256 x i32] poison, align 4
define amdgpu_kernel void @k(ptr addrspace(1) %x, ptr addrspace(1) %y, ptr addrspace(4) %t, i32 %n) {{
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %p = getelementptr i32, ptr addrspace(1) %x, i32 %id
  %q = getelementptr i32, ptr addrspace(1) %y, i32 %id
  %v = load i32, ptr addrspace(1) %p
  %f = bitcast i32 %v to float
{body}
  store {type} %r, ptr addrspace(1) %q
  ret void
}}
!0 = !{{}}
"""
RESOURCE = "%s = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1) %x, i16 0, i64 1024, i32 131072)\n"
UNKNOWN = "%s = load <4 x i32>, ptr addrspace(4) %t\n  %w = load <2 x i32>, ptr addrspace(4) %t\n"
# A line, its result's type, and text of it with what makes another program.
LINES = {
    "atomicrmw": ('%r = atomicrmw fadd ptr addrspace(1) %p, float 1.0 syncscope("agent") monotonic' + FINE, "float", "1.0", "2.0"),
    "atomicrmw in LDS": ("%r = atomicrmw umin ptr addrspace(3) @lds, i32 %v monotonic", "i32", "umin", "min"),
    "cmpxchg": ("%o = cmpxchg ptr addrspace(1) %p, i32 %v, i32 7 monotonic monotonic\n  %r = extractvalue { i32, i1 } %o, 1",
                "i1", "i32 7", "i32 8"),
    "atomic load": ("%r = load atomic i32, ptr addrspace(1) %x monotonic, align 4", "i32", "%x", "%y"),
    "readfirstlane": ("%r = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %v)", "i32", "i32 %v", "i32 %id"),
    "readlane": ("%r = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 5)", "i32", "i32 5", "i32 6"),
    "writelane": ("%r = call i32 @llvm.amdgcn.writelane.i32(i32 7, i32 5, i32 %v)", "i32", "i32 5", "i32 6"),
    "update.dpp": ("%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 %n, i32 %v, i32 273, i32 15, i32 15, i1 false)", "i32",
                   "273", "274"),
    "rows": ("%r = call i32 @llvm.amdgcn.update.dpp.i32(i32 %n, i32 %v, i32 257, i32 5, i32 15, i1 true)", "i32", "i32 5", "i32 7"),
    "bpermute": ("%r = call i32 @llvm.amdgcn.ds.bpermute(i32 %n, i32 %v)", "i32", "i32 %n", "i32 8"),
    "ballot": ("%c = icmp slt i32 %v, 3\n  %r = call i64 @llvm.amdgcn.ballot.i64(i1 %c)", "i64", "slt", "sle"),
    "class": ("%r = call i1 @llvm.amdgcn.class.f32(float %f, i32 %n)", "i1", "i32 %n", "i32 3"),
    "fmed3": ("%r = call float @llvm.amdgcn.fmed3.f32(float %f, float 1.0, float 2.0)", "float", "2.0", "3.0"),
    "sdot4": ("%r = call i32 @llvm.amdgcn.udot4(i32 %v, i32 %n, i32 %n, i1 true)", "i32", "i1 true", "i1 false"),
    "constrained": ('%r = call float @llvm.experimental.constrained.fadd.f32(float %f, float 1.0, metadata !"round.tonearest",'
                    ' metadata !"fpexcept.strict") strictfp', "float", "1.0", "2.0"),
    "canonicalize": ("%r = call float @llvm.canonicalize.f32(float %f)", "float", "float %f", "float 1.0"),
    "buffer load": (RESOURCE + "  %r = call i32 @llvm.amdgcn.raw.ptr.buffer.load.i32(ptr addrspace(8) %s, i32 %v, i32 %n, i32 0)",
                    "i32", "i32 %n, i32 0", "i32 4, i32 0"),
    "unknown buffer": (UNKNOWN + "  %r = call i32 @llvm.amdgcn.struct.buffer.load.i32(<4 x i32> %s, i32 %v, i32 4, i32 8, i32 0)",
                       "i32", "i32 4", "i32 12"),
    "format": (UNKNOWN + "  %r = call <2 x half> @llvm.amdgcn.raw.buffer.load.format.v2f16(<4 x i32> %s, i32 %v, i32 4, i32 0)",
               "<2 x half>", "%s, i32 %v", "%s, i32 %n"),
    "buffer store": (UNKNOWN + "  call void @llvm.amdgcn.raw.buffer.store.v2i32(<2 x i32> %w, <4 x i32> %s, i32 %v, i32 4, i32 0)\n"
                     "  %r = call float @llvm.amdgcn.s.buffer.load.f32(<4 x i32> %s, i32 %n, i32 0)", "float", "i32 4", "i32 0"),
    "buffer atomic": (UNKNOWN +
                      "  %r = call i32 @llvm.amdgcn.raw.buffer.atomic.smax.i32(i32 7, <4 x i32> %s, i32 %v, i32 4, i32 0)", "i32",
                      "smax", "smin"),
    "cast of null": ("%l = inttoptr i32 %v to ptr addrspace(3)\n  %r = addrspacecast ptr addrspace(3) %l to ptr", "ptr",
                     "addrspace(3) %l", "addrspace(3) @lds"),
    "an assembly's comment": ('call void asm sideeffect "; use $0", "v"(i32 %v)\n  %r = add i32 %v, 1', "i32", "%v, 1", "%v, 2"),
}  # fmt: skip


SLOW = ("ballot", "bpermute", "rows", "readlane", "update.dpp", "class")  # to find a launch


@pytest.mark.parametrize("name", LINES)
def test_lines(name: str) -> None:
    lines, type_, old, _ = LINES[name]
    assert old in lines
    text = KERNEL.format(body="  " + lines, type=type_)
    found = refines(CodeObject.parse(compile(text, "gfx942", OPTIONS)), "k", read_ir(text), Limits(10))
    assert found.kind == "equal", found.reason


@pytest.mark.parametrize("name", [left_out(each) if each in SLOW else each for each in LINES])
def test_other_lines(name: str) -> None:
    """Takes another line's machine code."""
    lines, type_, old, new = LINES[name]
    text, other = (KERNEL.format(body="  " + each, type=type_) for each in (lines, lines.replace(old, new)))
    assert refines(CodeObject.parse(compile(other, "gfx942", OPTIONS)), "k", read_ir(text), Limits(0.5)).kind != "equal"


def test_other_lanes_are_out_of_reach_on_one_of_two_paths() -> None:
    text = KERNEL.format(type="i32", body="""  %c = icmp slt i32 %v, 3
  br i1 %c, label %a, label %b
a:
  %l = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 5)
  br label %b
b:
  %r = phi i32 [ %l, %a ], [ 0, %0 ]""")  # fmt: skip
    found = refines(CodeObject.parse(compile(text, "gfx942", OPTIONS)), "k", read_ir(text), Limits(2))
    assert found.kind == "unknown" and "path that some lanes do not take" in found.reason


WRONG = "define i1 @f(float %a) {\n  %r = fptoui float %a to i1\n  ret i1 %r\n}\n"  # LLVM's SelectionDAG compares with 1.0
FUNCTIONS = {
    "define amdgpu_ps i32 @f(i32 inreg %a, i32 %b) {\n  %r = sub i32 %a, %b\n  ret i32 %r\n}": "equal",
    "define i32 @f(ptr addrspace(3) %a) {\n  %r = load i32, ptr addrspace(3) %a\n  ret i32 %r\n}": "equal",
    "define void @f(ptr addrspace(5) %a, i32 %b) {\n  store i32 %b, ptr addrspace(5) %a\n  ret void\n}": "equal",
    WRONG: "different",
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_functions(text: str) -> None:
    assert judge(text, "gfx942", OPTIONS, Limits(10)).kind == FUNCTIONS[text]


def test_several_variables_in_lds() -> None:
    text = KERNEL.replace("@lds = ", "@more = internal addrspace(3) global [3 x i64] poison, align 8\n@lds = ").format(
        type="i32", body="""  %i = and i32 %id, 255
  %l = getelementptr [256 x i32], ptr addrspace(3) @lds, i32 0, i32 %i
  store i32 %v, ptr addrspace(3) %l
  store i64 5, ptr addrspace(3) @more
  call void @llvm.amdgcn.s.barrier()
  %w = load i64, ptr addrspace(3) @more
  %s = load i32, ptr addrspace(3) %l
  %low = trunc i64 %w to i32
  %r = add i32 %low, %s""")  # fmt: skip
    found = refines(CodeObject.parse(compile(text, "gfx942", OPTIONS)), "k", read_ir(text), Limits(5))
    assert found.kind == "equal", found.reason


def test_nofpclass_excludes_values() -> None:
    """clang folds the comparison to false."""
    text = "define i1 @f(float nofpclass(nan) %a) {\n  %r = fcmp uno float %a, %a\n  ret i1 %r\n}"
    assert judge(text, "gfx942", ["-O2"], Limits(3)).kind == "equal"


@pytest.mark.slow
def test_bits_that_a_compiler_chooses_show_nothing() -> None:
    """Takes the address of a private object, and the bits of a NaN."""
    address = """define i32 @f() {
  %a = alloca i32, addrspace(5)
  %b = alloca i32, addrspace(5)
  store volatile i32 1, ptr addrspace(5) %a
  %r = ptrtoint ptr addrspace(5) %b to i32
  ret i32 %r
}"""
    nan = """define i32 @f(float %a, float %b) {
  %c = fsub float %a, %b
  %d = fneg float %c
  %r = bitcast float %d to i32
  ret i32 %r
}"""
    for text in (address, nan):
        assert judge(text, "gfx942", OPTIONS, Limits(5)).kind != "different"


def test_a_function_that_calls_a_missing_one_has_a_reason() -> None:
    module = read_ir("declare void @other()\ndefine amdgpu_kernel void @f() {\n  call void @other()\n  ret void\n}")
    made = compile_function(module, module.function("f"), "f.ll", "gfx942", ["-O2"])
    assert made.code is None and "symbol other" in made.reason


TESTS = """; RUN: llc -mtriple=amdgcn -mcpu=gfx1100 < %s
; RUN: llc -O1 -mtriple=amdgcn \\
; RUN:   -mcpu=gfx950 -global-isel=1 < %s
; CHECK: define this
define void @shuffle(i32 %n) {
entry:
  %a = call <2 x i32> asm "; def $0", "=v"()
  %b = call i32 asm "; def $0", "=s"()
  %c = insertelement <2 x i32> %a, i32 %b, i32 0
  call void asm sideeffect "; use $0", "{v[8:9]}"(<2 x i32> %c)
  %d = call i32 @helper(i32 %n)
  ret void
}
define i32 @helper(i32 %a) {
  ret i32 %a
}
"""


@pytest.mark.slow
def test_a_folder_of_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.ll").write_text(TESTS)
    (tmp_path / "c.ll").write_text(WRONG)
    (tmp_path / "b.ll").write_text("; RUN: not llc < %s\ndefine void @f() {\n  ret void\n}\n")
    assert read_file(tmp_path / "b.ll", "gfx942") is None
    file = read_file(tmp_path / "a.ll", "gfx942")
    assert file is not None and (file.target, file.options[0], file.options[-1]) == ("gfx950", "-O1", "-global-isel")
    text = file.only("@shuffle")
    assert "@helper" in text and "asm" not in text.replace("%asm", "")
    assert judge_function(file, "@shuffle", Limits(5)).kind == "equal"
    assert main(["--folder", str(tmp_path), "--count", "9", "--effort", "5"]) == 1
    said = capsys.readouterr().out
    assert "c.ll @f different" in said and ": 1 different, 2 equal; " in said
    with pytest.raises(SystemExit):
        main(["--folder", str(tmp_path / "none")])


def test_reasons_are_grouped() -> None:
    assert reason_group("clang: Cannot select: intrinsic %llvm.x") == reason_group("clang: Cannot select: intrinsic %llvm.y")


def test_bounds_of_an_unknown_buffer_are_not_claimed() -> None:
    text = KERNEL.format(body="  " + LINES["format"][0], type="<2 x half>")
    verdict = judge_launches(CodeObject.parse(compile(text, "gfx942", OPTIONS)), "k", ("out-of-bounds",), limits=Limits(5))
    assert verdict.kind == "unknown" and "a buffer whose resource is unknown" in verdict.reason


def test_a_kernel_without_code_is_unknown_and_its_neighbour_judged(tmp_path: Path) -> None:
    """As `test_wave_barrier_is_not_isBarrier` of LLVM's tests, on which a run over a folder ended."""
    path = tmp_path / "f.ll"
    path.write_text("define amdgpu_kernel void @nothing() {\n  unreachable\n}\n"
                    "define amdgpu_kernel void @one(ptr addrspace(1) %p) {\n"
                    "  store i32 1, ptr addrspace(1) %p\n  ret void\n}\n")  # fmt: skip
    file = read_file(path, "gfx942")
    assert [judge_function(file, name, Limits(5)).kind for name in ("@nothing", "@one")] == ["unknown", "equal"]
