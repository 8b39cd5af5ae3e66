"""Text around a kernel's instructions: directives, descriptor and metadata (AMDGPUUsage)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.operators.resources import RESERVED_SGPRS

ARCH_ALIGNMENT = 4  # ACCUM_OFFSET counts ArchVGPRs in fours (AMDGPUUsage, COMPUTE_PGM_RSRC3)


@dataclass(frozen=True)
class KernelArgument:
    """An explicit kernel argument."""

    name: str  # name in the metadata
    offset: int  # bytes from the start of the arguments
    size: int  # bytes
    value_kind: str = "by_value"  # as in the metadata
    value_type: str = ""  # as in the metadata; empty: none


@dataclass(frozen=True)
class Resources:
    """Resources that a kernel requests: its plan's registers and LDS or, without a plan, those that its instructions use."""

    vgprs: int  # ArchVGPRs of a lane
    agprs: int  # AccVGPRs of a lane
    sgprs: int  # SGPRs of a wave, without the reserved ones
    lds: int  # bytes for a workgroup
    instructions: int  # number of instructions in the text

    @property
    def accum_offset(self) -> int:
        """First AccVGPR of a unified file."""
        return max(ARCH_ALIGNMENT, -(-self.vgprs // ARCH_ALIGNMENT) * ARCH_ALIGNMENT)

    def next_free_vgpr(self, unified: bool) -> int:
        """Returns the descriptor's register count: the sum of both files if they are unified, else the larger one."""
        total = self.accum_offset + self.agprs if unified else max(self.vgprs, self.agprs)
        return max(1, total)


@dataclass(frozen=True)
class Header:
    """Name and launch of a kernel, for its descriptor and metadata."""

    name: str
    target: str
    workgroup_size: int  # work-items
    arguments: tuple[KernelArgument, ...]
    workgroup_ids: tuple[bool, bool, bool] = (True, True, False)  # for x, y and z: True if the kernel gets this workgroup id

    @property
    def unified(self) -> bool:
        """True if both kinds of VGPRs share one file."""
        return self.target != "gfx908"

    @property
    def kernarg_size(self) -> int:
        """Bytes up to the end of the last argument, in whole dwords."""
        end = max((a.offset + a.size for a in self.arguments), default=0)
        return -(-end // 4) * 4


def prologue(header: Header) -> list[str]:
    """Returns the lines before the first instruction."""
    return [
        f'.amdgcn_target "amdgcn-amd-amdhsa--{header.target}"',
        ".text",
        f".globl {header.name}",
        ".p2align 8",
        f".type {header.name},@function",
        f"{header.name}:",
    ]


def epilogue(header: Header, used: Resources) -> list[str]:
    """Returns the lines after the last instruction: sizes, descriptor, metadata."""
    name = header.name
    return [
        f".L{name}_end:",
        f".size {name}, .L{name}_end-{name}",
        "",
        *_descriptor(header, used),
        "",
        *_metadata(header, used),
    ]


def _descriptor(header: Header, used: Resources) -> list[str]:
    ids = zip("xyz", header.workgroup_ids, strict=True)
    fields: list[tuple[str, int]] = [
        ("group_segment_fixed_size", used.lds),
        ("private_segment_fixed_size", 0),
        ("kernarg_size", header.kernarg_size),
        ("user_sgpr_kernarg_segment_ptr", 1),
        *((f"system_sgpr_workgroup_id_{axis}", int(wanted)) for axis, wanted in ids),
        ("system_vgpr_workitem_id", 0),
        ("next_free_vgpr", used.next_free_vgpr(header.unified)),
        ("next_free_sgpr", max(1, used.sgprs)),
        ("reserve_vcc", 1),
        ("float_denorm_mode_32", 3),
        ("float_denorm_mode_16_64", 3),
    ]
    if header.unified:
        fields.append(("accum_offset", used.accum_offset))
    lines = [f"  .amdhsa_{field} {value}" for field, value in fields]
    return ['.section .rodata,"a"', ".p2align 6", f".amdhsa_kernel {header.name}", *lines, ".end_amdhsa_kernel"]


def _metadata(header: Header, used: Resources) -> list[str]:
    arguments = [line for argument in header.arguments for line in _argument(argument)]
    entries = {
        "agpr_count": used.agprs,
        "group_segment_fixed_size": used.lds,
        "kernarg_segment_align": 8,
        "kernarg_segment_size": header.kernarg_size,
        "max_flat_workgroup_size": header.workgroup_size,
        "name": header.name,
        "private_segment_fixed_size": 0,
        "reqd_workgroup_size": f"[{header.workgroup_size}, 1, 1]",
        "sgpr_count": used.sgprs + RESERVED_SGPRS,
        "sgpr_spill_count": 0,
        "symbol": f"{header.name}.kd",
        "uses_dynamic_stack": "false",
        "vgpr_count": used.next_free_vgpr(header.unified),
        "vgpr_spill_count": 0,
        "wavefront_size": 64,
    }
    return [
        ".amdgpu_metadata",
        "---",
        "amdhsa.kernels:",
        "  - .args:",
        *arguments,
        *(f"    .{key}: {value}" for key, value in entries.items()),
        f"amdhsa.target: amdgcn-amd-amdhsa--{header.target}",
        "amdhsa.version: [1, 2]",
        "...",
        ".end_amdgpu_metadata",
    ]


def join_kernels(texts: Sequence[str]) -> str:
    """Joins the complete texts of several kernels into one with a common metadata document."""
    if len(texts) == 1:
        return texts[0]
    heads, documents = zip(*(text.split(".amdgpu_metadata\n") for text in texts), strict=True)
    kernels = [document.split("amdhsa.kernels:\n")[1].split("amdhsa.target:")[0] for document in documents]
    before, after = documents[0].split(kernels[0])
    return "".join([*heads, ".amdgpu_metadata\n", before, *kernels, after])


def _argument(argument: KernelArgument) -> list[str]:
    lines = [
        f"      - .name: {argument.name}",
        f"        .offset: {argument.offset}",
        f"        .size: {argument.size}",
        f"        .value_kind: {argument.value_kind}",
    ]
    if argument.value_kind == "global_buffer":
        lines.append("        .address_space: global")
    if argument.value_type:
        lines.append(f"        .value_type: {argument.value_type}")
    return lines
