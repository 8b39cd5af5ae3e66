"""Kernels around one matrix instruction, as assembly text: for the probe and for benchmarks.

Arguments are device addresses, in s[4:5], s[6:7], s[8:9]; v0 and v1 are 4·lane, in bytes; s2 and s3
are the workgroup's x and y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.hardware.isa import text
from simgpu.hardware.isa.instruction import Operand, Reg
from simgpu.hardware.matrix_table import FORMATS
from simgpu.hardware.mfma import MatrixInstruction
from simgpu.matrix.one_mfma import instruction_of

NAME = "matrix"
ROW_BYTES = 256  # one register of 64 lanes


@dataclass(frozen=True)
class FirstRegisters:
    """First register of each operand of a kernel's matrix instruction."""

    a: int = 8
    b: int = 16
    d: int = 32
    index: int = 4
    scales: int = 6


def matrix_line(row: MatrixInstruction, at: FirstRegisters) -> str:
    """Returns the instruction in LLVM's text with D accumulating in place."""
    file = "a" if row.target == "gfx908" else "v"
    count = row.registers("D")
    d = Reg(file, at.d, count)
    args: dict[str, Operand] = {
        "vdst": d, "src0": Reg("v", at.a, row.registers("A")), "src1": Reg("v", at.b, row.registers("B")),
        "src2": Reg("v", at.index) if row.sparse else d,
    }  # fmt: skip
    mods: dict[str, int] = {}
    if row.flexible:
        form = row._formats()
        mods = {"cbsz": FORMATS.index(form.a_type), "blgp": FORMATS.index(form.b_type)}
    if row.scaled:
        args |= {"scale_src0": Reg("v", at.scales), "scale_src1": Reg("v", at.scales + 1)}
        mods["op_sel_hi"] = 0
    return text(instruction_of(row, args, {name: value for name, value in mods.items() if value or name == "op_sel_hi"}))


def loads(first: int, count: int) -> list[str]:
    """Returns loads of `count` registers, one row of 256 bytes each, that step v1 past them."""
    lines = []
    for register in range(first, first + count):
        lines += [f"global_load_dword v{register}, v1, s[4:5]", f"v_add_u32 v1, 0x{ROW_BYTES:x}, v1"]
    return lines


def clear(target: str, first: int, count: int) -> list[str]:
    """Returns instructions that zero accumulators."""
    if target == "gfx908":
        return [f"v_accvgpr_write_b32 a{r}, 0" for r in range(first, first + count)]
    return [f"v_mov_b32 v{r}, 0" for r in range(first, first + count)]


def stores(target: str, first: int, count: int) -> list[str]:
    """Returns stores of accumulators, a row each, from the output's start."""
    lines = ["s_nop 15", "s_nop 15", "v_mov_b32 v1, v0"]  # the longest matrix instruction has 16 passes
    for register in range(first, first + count):
        source = f"v{register}"
        if target == "gfx908":
            lines += [f"v_accvgpr_read_b32 v2, a{register}", "s_nop 1"]
            source = "v2"
        lines += [f"global_store_dword v1, {source}, s[6:7]", f"v_add_u32 v1, 0x{ROW_BYTES:x}, v1"]
    return lines


def kernel(target: str, body: Sequence[str], pointers: Sequence[str] = ("input", "output"), vgprs: int = 128) -> str:
    """Returns the kernel NAME with this body, which need not end itself; pointers: names of its two or three arguments."""
    given = {
        "user_sgpr_kernarg_segment_ptr": 1, "system_sgpr_workgroup_id_x": 1, "system_sgpr_workgroup_id_y": 1,
        "next_free_vgpr": vgprs, "next_free_sgpr": 32,
    }  # fmt: skip
    if target != "gfx908":
        given |= {"accum_offset": vgprs}
    directives = "\n".join(f"  .amdhsa_{name} {value}" for name, value in given.items())
    lines = "\n".join(f"  {line}" if not line.endswith(":") else line for line in body)
    third = "  s_load_dwordx2 s[8:9], s[0:1], 0x10\n" if len(pointers) == 3 else ""
    arguments = "\n".join(
        f"      - {{.name: {name}, .size: 8, .offset: {8 * at}, .value_kind: global_buffer, .address_space: global}}"
        for at, name in enumerate(pointers)
    )
    return f"""\
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl {NAME}
.p2align 8
.type {NAME},@function
{NAME}:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
{third}  v_and_b32 v0, 63, v0
  v_lshlrev_b32 v0, 2, v0
  v_mov_b32 v1, v0
  s_waitcnt lgkmcnt(0)
{lines}
  s_endpgm
.Lend:
.size {NAME}, .Lend-{NAME}
.rodata
.p2align 6
.amdhsa_kernel {NAME}
{directives}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: {NAME}
    .symbol: {NAME}.kd
    .kernarg_segment_size: {8 * len(pointers)}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args:
{arguments}
...
.end_amdgpu_metadata
"""
