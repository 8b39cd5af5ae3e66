"""Faults of LLVM 22.1, each with a function that shows it on the machine that runs the tests.

Random programs met most of them. The generator avoids those, so that what still differs is new; where it does, a comment has the
fault's name. The others are in public reports (`ir_exam.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.tools.robustness.ir_programs import IN_STRIDE, OUT_STRIDE, IrProgram
from simgpu.tools.robustness.ir_runs import Setting

PROLOGUE = f"""entry:
  %lane64 = zext i32 %lane to i64
  %in_at = mul i64 %lane64, {IN_STRIDE}
  %in_own = getelementptr i8, §G %in, i64 %in_at
  %out_at = mul i64 %lane64, {OUT_STRIDE}
  %out_own = getelementptr i8, §G %out, i64 %out_at"""


@dataclass(frozen=True)
class CompilerFault:
    """A fault of LLVM, a setting that has it, and one that has not."""

    name: str
    what: str
    wrong: Setting
    right: Setting
    lines: str  # body of a function, after PROLOGUE, whose memory differs
    first_pass: str = ""  # optional pass from which on it is wrong, by `ir_bisect.py`; empty if clang needs none to be wrong

    def example(self) -> IrProgram:
        """Returns the program that shows the fault."""
        return program_of(self.lines)


def program_of(lines: str) -> IrProgram:
    """Returns program 0, whose first phase is PROLOGUE and these lines.

    >>> program_of("  store i8 1, §G %out_own").text(gpu=True).count("store i8 1, ptr addrspace(1) %out_own")
    1
    """
    body = (*PROLOGUE.split("\n"), *lines.split("\n"), "  ret void")
    return IrProgram(0, (body, ("entry:", "  ret void")), ("alwaysinline", "alwaysinline"))


FAULTS = (
    CompilerFault(
        "sign-from-the-low-half",
        "GlobalISel extends the sign of 33 to 63 bits from the low register: v_bfe_i32 v1, v0, 0, 8 for an i40",
        Setting("gfx942", "-O1", True),
        Setting("gfx942", "-O1", False),
        """  %a = load i40, §G %in_own, align 4
  %b = ashr i40 %a, 3
  store i40 %b, §G %out_own, align 8""",
    ),
    CompilerFault(
        "minus-zero-becomes-zero",
        "a pair of half or bfloat whose second element is the constant -0.0 gets 0.0: s_and_b32 s0, 0xffff, s0",
        Setting("gfx942", "-O1", False),
        Setting("gfx942", "-O1", True),
        """  %a = load half, §G %in_own, align 4
  %b = insertelement <2 x half> <half 0xH0000, half 0xH8000>, half %a, i32 0
  store <2 x half> %b, §G %out_own, align 8""",
    ),
    CompilerFault(
        "sdwa-loses-the-sign",
        "a float operation on an i32 shifted right with its sign reads the byte without it: src0_sel:BYTE_3, and no sext",
        Setting("gfx942", "-O2", False),
        Setting("gfx942", "-O0", False),
        """  %a = load i32, §G %in_own, align 4
  %b = ashr i32 %a, 24
  %c = bitcast i32 %b to float
  %d = fcmp uno float %c, 0.0
  %e = zext i1 %d to i8
  store i8 %e, §G %out_own""",
        first_pass="si-peephole-sdwa",
    ),
    CompilerFault(
        "zero-minus-zero",
        "the bfloat 0 - x is computed as -x, which is -0.0 for x = 0: v_cvt_pk_bf16_f32 v1, -v1, s0; half in products, too",
        Setting("gfx950", "-O1", False),
        Setting("gfx942", "-O1", False),
        """  %a = load i16, §G %in_own, align 4
  %b = and i16 %a, 1
  %c = uitofp i16 %b to bfloat
  %d = fsub bfloat 0xR0000, %c
  store bfloat %d, §G %out_own""",
    ),
    CompilerFault(
        "division-of-24-bits",
        "unsigned division of 24 bits trusts v_rcp_f32, whose last bit may be wrong (llvm #201186, repaired in LLVM 23)",
        Setting("gfx942", "-O1", False),
        Setting("gfx942", "-O0", False),
        """  %a = load i32, §G %in_own, align 4
  %b = or i32 %a, 8388609
  %c = and i32 %b, 16777215
  %d = lshr i32 %c, 1
  %e = add i32 %d, 1
  %f = urem i32 %c, %e
  store i32 %f, §G %out_own""",
        first_pass="amdgpu-codegenprepare",
    ),
    CompilerFault(
        "phi-in-scalar-registers",
        "GlobalISel holds a phi of uniform values behind a divergent branch in SGPRs: all lanes get the value of one side",
        Setting("gfx942", "-O0", True),
        Setting("gfx942", "-O0", False),
        """  %a = load i32, §G %in_own, align 4
  %b = icmp slt i32 %a, 0
  br i1 %b, label %yes, label %no
yes:
  br label %no
no:
  %c = phi i64 [ 5, %yes ], [ 6, %entry ]
  store i64 %c, §G %out_own, align 1""",
    ),
    CompilerFault(
        "carry-of-a-product",
        "a 64-bit product's high half joins the add of the carry, whose own carry is then wrong (llvm #204362, repaired in 23)",
        Setting("gfx942", "-O1", False),
        Setting("gfx942", "-O0", False),
        """  %a = load i64, §G %in_own, align 4
  %b = getelementptr i8, §G %in_own, i64 8
  %c = load i64, §G %b, align 4
  %d = mul i64 %a, %c
  %e = call i64 @llvm.uadd.sat.i64(i64 %d, i64 1)
  store i64 %e, §G %out_own, align 1""",
        first_pass="amdgpu-isel",
    ),
    CompilerFault(
        "or-with-all-ones",
        "an element of a vector keeps its value where a constant of ones is or-ed to it: v_mov_b32 v0, v0",
        Setting("gfx942", "-O1", False),
        Setting("gfx942", "-O0", False),
        """  %a = load <2 x i32>, §G %in_own, align 4
  %b = or <2 x i32> %a, <i32 -1, i32 -18>
  store <2 x i32> %b, §G %out_own, align 1""",
        first_pass="si-fold-operands",
    ),
    CompilerFault(
        "scc-of-a-removed-and",
        "s_and_b64 before a branch on a vector comparison is removed, although s_cselect_b32 reads its SCC (llvm #215745)",
        Setting("gfx942", "-O2", False, passes=False),
        Setting("gfx942", "-O0", False),
        """  %a = load i64, §G %in, align 16
  %b = icmp sgt i64 %scalar, %a
  %c = add i64 %scalar, -1
  %d = select i1 %b, i64 %c, i64 %a
  br i1 %b, label %above, label %below
below:
  %e = sub i64 %d, %c
  store i64 %e, §G %out_own, align 1
  br label %end
above:
  store i64 %d, §G %out_own, align 1
  br label %end
end:""",
        first_pass="si-shrink-instructions",
    ),
    CompilerFault(
        "division-by-sign-bits",
        "unsigned division counts sign bits for zeros, so -1 / x is a division of floats (llvm #194829, repaired in LLVM 23)",
        Setting("gfx90a", "-O0", False),
        Setting("gfx90a", "-O1", False),
        """  %a = load i8, §G %in_own, align 4
  %b = zext i8 %a to i32
  %c = or i32 %b, 1
  %d = udiv i32 -1, %c
  store i32 %d, §G %out_own""",
    ),
    CompilerFault(
        "insert-hoisted-from-a-join",
        "StructurizeCFG moves an insertelement from a block with two predecessors, one loses it (ROCm/legacy-rocm-build #6412)",
        Setting("gfx942", "-O2", False, passes=False),
        Setting("gfx942", "-O1", False),
        """  %a = load i32, §G %in_own, align 4
  %b_at = getelementptr i8, §G %in_own, i64 4
  %b = load <2 x i32>, §G %b_at, align 4
  %old = insertelement <2 x i32> %b, i32 3, i64 0
  %negative = icmp slt i32 %a, 0
  br i1 %negative, label %set, label %look
look:
  %low = and i32 %a, 1
  %even = icmp eq i32 %low, 0
  br i1 %even, label %looked, label %read
read:
  %c_at = getelementptr i8, §G %in_own, i64 12
  %c = load i32, §G %c_at, align 4
  br label %looked
looked:
  %d = phi i32 [ 2, %look ], [ %c, %read ]
  br i1 %even, label %end, label %set
set:
  %e = phi i32 [ 1, %entry ], [ %d, %looked ]
  %new = insertelement <2 x i32> %old, i32 1, i64 0
  br label %end
end:
  %f = phi <2 x i32> [ %new, %set ], [ %old, %looked ]
  %g = phi i32 [ %e, %set ], [ 7, %looked ]
  store <2 x i32> %f, §G %out_own, align 1
  %next = getelementptr i8, §G %out_own, i64 8
  store i32 %g, §G %next, align 1""",
    ),
)
