"""Raw buffers: their resources, offsets outside their range, suffixes of their instructions."""

from __future__ import annotations

from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.hardware.isa.instruction import Reg

# A raw buffer has stride 0 and a range of num_records bytes. A lane whose offset is at or past them reads 0 and stores
# nothing (ISA guides, "Buffer Addressing", range checking). OUTSIDE is such an offset: the inline constant -2.0 has
# bits 0xc0000000. v_cndmask_b32 needs no register for it, and it stays outside whatever an instruction's own offset
# adds.
NUM_RECORDS = 0x80000000
OUTSIDE = -2.0
# Word 3: 32-bit data format, which gfx9 requires in a valid raw resource (as in Composable Kernel).
RESOURCE_WORD3 = 0x00020000
REACH = 1 << 12  # range in bytes of an instruction's own offset: 12 bits (LLVM, all four targets)
DWORDS = {1: "dword", 2: "dwordx2", 4: "dwordx4"}  # suffix of an access by its registers
# Suffix of one element's access by its bytes. Loads of 16 and 8 bits are zero-extended into a register each.
ELEMENT_LOADS = {8: "dwordx2", 4: "dword", 2: "ushort", 1: "ubyte"}
ELEMENT_STORES = {8: "dwordx2", 4: "dword", 2: "short", 1: "byte"}


def raw_buffer(
    k: KernelBuilder, resource: Reg, base: Reg, bytes_: tuple[Operand, Operand], name: str
) -> None:
    """Builds a raw buffer resource in 4 SGPRs, whose byte 0 is base (a pair) + bytes_ (low, high words)."""
    k.s_add_u32(resource[0], base[0], bytes_[0], note=f"{name}: base of the tile, 64 bits")
    k.s_addc_u32(resource[1], base[1], bytes_[1])
    k.s_mov_b32(resource[2], NUM_RECORDS, note="bytes in range")
    k.s_mov_b32(resource[3], RESOURCE_WORD3, note="raw, 32-bit data")


def advance_buffer(k: KernelBuilder, resource: Reg, step: Operand, name: str) -> None:
    """Moves a raw buffer's base by `step` bytes (unsigned, 32 bits)."""
    k.s_add_u32(resource[0], resource[0], step, note=f"{name}: next tile")
    k.s_addc_u32(resource[1], resource[1], 0)


def clip(k: KernelBuilder, target: Reg, offset: Reg, limit: Reg, index: Reg, note: str = "") -> None:
    """Emits target = offset if index < limit (an SGPR, signed), else OUTSIDE."""
    k.v_cmp_gt_i32("vcc", limit, index)
    k.v_cndmask_b32(target, OUTSIDE, offset, "vcc", note=note)
