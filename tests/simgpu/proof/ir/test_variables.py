"""Global variables: memory that both sides have, tables of constants, variables of other files. Wrong code is never equal."""

from __future__ import annotations

import pytest

from simgpu.hardware.code_object import CodeObject
from simgpu.proof.equal import Verdict
from simgpu.proof.ir.read import read_ir
from simgpu.proof.ir.refine import refines
from simgpu.proof.ir.wrap import with_variables
from simgpu.proof.solver import Limits
from simgpu.tools.cases.sources import compile

MEMORY = """
@x = addrspace(1) global i32 7, align 4
@t = addrspace(1) global [16 x i32] zeroinitializer, align 4
@ext = external addrspace(1) global { i32, i32 }, align 4
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %i) {
  %v = load i32, ptr addrspace(1) @x, align 4
  %w = add i32 %v, 5
  store i32 %w, ptr addrspace(1) @x, align 4
  %m = and i32 %i, 15
  %q = getelementptr inbounds [16 x i32], ptr addrspace(1) @t, i32 0, i32 %m
  store i32 %v, ptr addrspace(1) %q, align 4
  %e = getelementptr inbounds { i32, i32 }, ptr addrspace(1) @ext, i32 0, i32 1
  %r = load i32, ptr addrspace(1) %e, align 4
  %s = add i32 %r, %w
  store i32 %s, ptr addrspace(1) %p, align 4
  store i32 0, ptr addrspacecast (ptr addrspace(1) @x to ptr), align 4
  ret void
}
"""
TABLE = """
@c = addrspace(4) constant [5 x i32] [i32 4, i32 5, i32 6, i32 7, i32 -3], align 4
@d = internal addrspace(4) constant [3 x [4 x i8]] [[4 x i8] c"abcd", [4 x i8] c"efgh", [4 x i8] c"ijkl"], align 4
define amdgpu_kernel void @k(ptr addrspace(1) %p, i32 %i) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %j = and i32 %id, 3
  %q = getelementptr inbounds [5 x i32], ptr addrspace(4) @c, i32 0, i32 %i
  %v = load i32, ptr addrspace(4) %q, align 4
  %r = getelementptr inbounds [3 x [4 x i8]], ptr addrspace(4) @d, i32 0, i32 1, i32 %j
  %w = load i8, ptr addrspace(4) %r, align 1
  %x = zext i8 %w to i32
  %s = add i32 %v, %x
  %o = getelementptr i32, ptr addrspace(1) %p, i32 %id
  store i32 %s, ptr addrspace(1) %o, align 4
  ret void
}
"""


def judged(source: str, compiled: str = "", options: tuple[str, ...] = ("-O2",)) -> Verdict:
    """Returns the verdict on the machine code of `compiled` (default: of the source)."""
    code = CodeObject.parse(compile(with_variables(compiled or source), "gfx942", options))
    return refines(code, "k", read_ir(source), Limits(20))


@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("source", [MEMORY, TABLE], ids=["memory", "table"])
def test_code_that_is_right(source: str, level: str) -> None:
    verdict = judged(source, options=(level,))
    assert verdict.kind == "equal", verdict


# What the source has, and what the compiled program has instead.
WRONG = {
    "another-sum": (MEMORY, "add i32 %v, 5", "add i32 %v, 6"),
    "another-element": (MEMORY, "i32 0, i32 %m", "i32 0, i32 %i"),
    "another-variable": (MEMORY, "load i32, ptr addrspace(1) @x", "load i32, ptr addrspace(1) @t"),
    "another-field": (MEMORY, "@ext, i32 0, i32 1", "@ext, i32 0, i32 0"),
    "a-store-less": (MEMORY, "store i32 %w, ptr addrspace(1) @x, align 4\n", "\n"),
    "a-store-at-the-end-less": (MEMORY, "store i32 0, ptr addrspacecast (ptr addrspace(1) @x to ptr), align 4\n", "\n"),
    "another-constant": (TABLE, "i32 7, i32 -3", "i32 7, i32 -4"),
    "another-letter": (TABLE, 'c"efgh"', 'c"efgi"'),
    "another-row": (TABLE, "i32 0, i32 1, i32 %j", "i32 0, i32 2, i32 %j"),
}
SAME = ("a-store-less",)  # as another store to the same place follows


@pytest.mark.parametrize("name", WRONG)
def test_wrong_code_is_never_equal(name: str) -> None:
    source, old, new = WRONG[name]
    assert old in source
    verdict = judged(source, source.replace(old, new, 1))
    assert (verdict.kind == "equal") == (name in SAME), verdict
    if source is MEMORY and name not in SAME:  # what variables hold in a launch is not drawn
        assert verdict.kind == "unknown" and "may differ" in verdict.reason, verdict


def test_declared_variables_are_defined() -> None:
    text = "@a = external hidden addrspace(4) constant [2 x { i8, <2 x half> }], section \"s\", align 8\n@b = external global i32"
    assert with_variables(text) == text.replace("external", "weak").replace(" }], s", " }] zeroinitializer, s").replace(
        "global i32", "global i32 zeroinitializer"
    )
    for kept in ("@l = external addrspace(3) global [0 x i32]", "@o = external global %opaque", "@d = global i32 0"):
        assert with_variables(kept) == kept
