"""A linked kernel's LDS and registers, from its metadata and its instructions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import CalledFunction, KernelInfo
from simgpu.hardware.isa import Instruction, Reg, decode_around, text

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel


@dataclass(frozen=True)
class KernelUse:
    """Resources of a kernel in its code object.

    ArchVGPRs are the metadata's count without the AccVGPRs of a unified file. gfx908's metadata has only the larger of two
    files; if that may be the AccVGPRs, the instructions' registers are counted.
    """

    lds_bytes: int  # per workgroup
    arch_vgprs: int  # per lane
    acc_vgprs: int  # per lane
    sgprs: int  # per wave, the reserved ones included
    workgroup_size: int  # work-items, at most
    instructions: int
    code_bytes: int


def linked_use(kernel: EmittedKernel) -> list[KernelUse]:
    """Returns the use of each of a computation's kernels, in the order of their launches. Raises ToolchainError."""
    code = CodeObject.parse(kernel.assemble())
    return [kernel_use(code, code.kernels[step.name]) for step in kernel.steps]


def kernel_use(code: CodeObject, kernel: KernelInfo) -> KernelUse:
    """Returns the use of one kernel of a code object. Raises DecodeError if its code is outside the file."""
    listed = [inst for _, inst, _ in listing(code, kernel) if inst is not None]
    registers = (
        arg for inst in listed for arg in inst.args.values() if isinstance(arg, Reg) and arg.file == "v"
    )
    return KernelUse(
        lds_bytes=kernel.group_segment_size,
        arch_vgprs=_arch_vgprs(kernel, max((reg.index + reg.count for reg in registers), default=0)),
        acc_vgprs=kernel.agpr_count,
        sgprs=kernel.sgpr_count,
        workgroup_size=kernel.max_flat_workgroup_size,
        instructions=len(listed),
        code_bytes=kernel.code_size,
    )


def _arch_vgprs(kernel: KernelInfo, counted: int) -> int:
    if kernel.target != "gfx908":
        return kernel.vgpr_count - kernel.agpr_count
    return kernel.vgpr_count if kernel.vgpr_count > kernel.agpr_count else counted


def listing(code: CodeObject, part: KernelInfo | CalledFunction) -> list[tuple[int, Instruction | None, str]]:
    """Returns (byte offset, instruction, text) of a kernel or function from its entry on; undecodable words become `.long`."""
    raw = code.read(part.entry, part.code_size)
    return [
        (offset, inst, text(inst) if inst is not None else f".long {int.from_bytes(raw[offset : offset + 4], 'little'):#010x}")
        for offset, inst in decode_around(raw, code.target)
    ]
