"""Kernels from a few lines of assembly, with descriptor and metadata added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from simgpu.asm.builder import toolchain
from simgpu.hardware.errors import ToolchainError

SIZES = {"buffer": 8, "i16": 2, "i32": 4, "f32": 4, "i64": 8, "f64": 8}


# The lane in v0, 4 and 16 times it in v1 and v8; its row of four dwords of the first buffer in v[2:5]; the second one is s[6:7].
ROWS_HEAD = """
s_load_dwordx4 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
v_lshlrev_b32 v8, 4, v0
s_waitcnt lgkmcnt(0)
global_load_dwordx4 v[2:5], v8, s[4:5]
s_waitcnt vmcnt(0)
"""


@dataclass(frozen=True)
class KernelText:
    """A kernel: body without s_endpgm at its end, arguments and `.amdhsa_` directives.

    args: "buffer", "i32", "f32", ... or a hidden value kind with its size, "hidden_grid_dims:2"; each at the next multiple of
    its size. s[0:1] is the kernel argument segment unless the options request something before it; the workgroup ids follow the
    user SGPRs.
    """

    name: str
    lines: str
    args: tuple[str, ...] = ()
    options: Mapping[str, int] = field(default_factory=dict)
    max_block: int = 1024

    @property
    def offsets(self) -> list[int]:
        """Byte offset of each argument."""
        found, at = [], 0
        for arg in self.args:
            size = _size(arg)
            at = -(-at // size) * size
            found.append(at)
            at += size
        return found

    def text(self, target: str) -> str:
        given: dict[str, int] = {
            "user_sgpr_kernarg_segment_ptr": 1, "system_sgpr_workgroup_id_x": 1,
            "next_free_vgpr": 32, "next_free_sgpr": 64,
        }  # fmt: skip
        if target != "gfx908":
            given["accum_offset"] = 32
        given |= self.options
        directives = "\n".join(f"  .amdhsa_{name} {value}" for name, value in given.items())
        return f"""
.text
.globl {self.name}
.p2align 8
.type {self.name},@function
{self.name}:
{self.lines}
s_endpgm
.L{self.name}_end:
.size {self.name}, .L{self.name}_end-{self.name}
.rodata
.p2align 6
.amdhsa_kernel {self.name}
{directives}
.end_amdhsa_kernel
"""

    def metadata(self) -> str:
        size = max((at + _size(arg) for at, arg in zip(self.offsets, self.args)), default=0)
        lines = [
            f"  - .name: {self.name}",
            f"    .symbol: {self.name}.kd",
            f"    .kernarg_segment_size: {-(-size // 8) * 8}",
            "    .kernarg_segment_align: 8",
            f"    .group_segment_fixed_size: {self.options.get('group_segment_fixed_size', 0)}",
            f"    .private_segment_fixed_size: {self.options.get('private_segment_fixed_size', 0)}",
            "    .wavefront_size: 64",
            "    .sgpr_count: 64",
            "    .vgpr_count: 32",
            f"    .max_flat_workgroup_size: {self.max_block}",
            "    .args:" if self.args else "    .args: []",
        ]
        for number, (arg, offset) in enumerate(zip(self.args, self.offsets)):
            kind, _, _ = arg.partition(":")
            value = {"buffer": "global_buffer"}.get(kind, kind if kind.startswith("hidden_") else "by_value")
            type_ = f", .value_type: {kind}" if value == "by_value" else ""
            lines.append(
                f"      - {{.name: a{number}, .offset: {offset}, .size: {_size(arg)}, "
                f".value_kind: {value}{type_}}}"
            )
        return "\n".join(lines)


def _size(arg: str) -> int:
    kind, _, size = arg.partition(":")
    return int(size) if size else SIZES[kind]


def source(target: str, *kernels: KernelText, data: str = "") -> str:
    """Returns assembly of a module with the kernels; data: lines after them (global variables)."""
    return f"""
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
{"".join(kernel.text(target) for kernel in kernels)}
{data}
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
{chr(10).join(kernel.metadata() for kernel in kernels)}
...
.end_amdgpu_metadata
"""


def assemble(target: str, *kernels: KernelText, data: str = "") -> bytes:
    """Returns the linked code object; skips the test if there is no assembler."""
    try:
        return toolchain.assemble(source(target, *kernels, data=data), target)
    except ToolchainError as error:
        if "found:" in str(error) or "cannot be run" in str(error):
            pytest.skip(str(error))
        raise


def loaded_module(gpu, *kernels, data=""):
    """Loads a module of these kernels on `gpu`."""
    return gpu.load(assemble(gpu.arch, *kernels, data=data))


def loaded_kernel(gpu, lines, *args, **options):
    """Loads the kernel of one text; options: KernelText's, and max_block."""
    max_block = options.pop("max_block", 1024)
    text = KernelText("k", lines, args, options, max_block)
    return loaded_module(gpu, text)["k"]
