"""Raw buffers: their resources, offsets outside their range, suffixes of their instructions, ends of rows.

Wide accesses begin at any byte: the unaligned access mode is on for all targets (LLVM: FeatureUnalignedBufferAccess), so rows
of any length and stride are loaded and stored by whole chunks. A chunk is what one access of a lane moves, a power of two of
elements. The last chunk of a row that the row's end cuts is loaded earlier, so that it ends with the row
(`load_offset_to_row_end`). Then its elements are moved to their places in registers (`move_to_front`). So nothing past the row is
read. The row must have at least a chunk.
"""

from __future__ import annotations

from simgpu.asm.builder.formula import Formula, log2
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import WORD, Operand
from simgpu.asm.parts.integer_math import WideTerm, add_wide, multiply_wide
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


def buffer_at(
    k: KernelBuilder, resource: Reg, pointer: Reg, name: str, *terms: WideTerm, nbytes: Formula | Operand = NUM_RECORDS
) -> None:
    """Builds a raw buffer in 4 SGPRs, whose byte 0 is the pointer + the sum of the terms. nbytes: its range.

    Takes no other SGPR, unless a term or the range is a formula: products pass through the last two of the resource.
    """
    base, product = pointer, resource[2:4]
    for index, stride in terms or ((0, 1),):
        with k.temporary(index) as number:
            if stride != 1:
                multiply_wide(k, product, number, stride)
            k.s_add_u32(resource[0], base[0], number if stride == 1 else product[0], note=f"{name}: base of the tile, 64 bits")
            k.s_addc_u32(resource[1], base[1], 0 if stride == 1 else product[1])
        base = resource
    k.set(resource[2], nbytes, note="bytes in range")
    k.s_mov_b32(resource[3], RESOURCE_WORD3, note="raw, 32-bit data")


def new_buffer(k: KernelBuilder, pointer: Reg, name: str, *terms: WideTerm, nbytes: Formula | Operand = NUM_RECORDS) -> Reg:
    """Returns 4 new SGPRs with a raw buffer as `buffer_at` builds it."""
    resource = k.s.alloc(f"{name} buffer", 4)
    buffer_at(k, resource, pointer, name, *terms, nbytes=nbytes)
    return resource


def advance_buffer(k: KernelBuilder, resource: Reg, step: Formula | Operand, name: str) -> None:
    """Moves a raw buffer's base by `step` bytes (unsigned, 32 bits)."""
    with k.temporary(step) as nbytes:
        add_wide(k, resource, nbytes, note=f"{name}: next tile")


def clip(k: KernelBuilder, target: Reg, offset: Reg, limit: Formula | Operand, index: Formula | Reg, note: str = "") -> Reg:
    """Emits target = offset if index < limit (scalar, signed), else OUTSIDE. Returns the target."""
    with k.temporary(limit) as bound, k.temporary(index) as place:
        k.v_cmp_gt_i32("vcc", bound, place)
    k.v_cndmask_b32(target, OUTSIDE, offset, "vcc", note=note)
    return target


def load_offset_to_row_end(
    k: KernelBuilder, target: Reg, offset: Operand, index: Reg, left: Formula, chunk: int, element: int
) -> None:
    """Emits the offset of a chunk that must not pass its row's end, for a buffer that begins a chunk early.

    offset: VGPR or constant, bytes from the old beginning. index: VGPR, the chunk's first element; left: scalar, elements of the
    row, counted alike. chunk: elements; element: bytes. A chunk past the end is OUTSIDE.
    """
    with k.temporary(left) as end:
        k.v_sub_u32(target, end, index)
        k.v_min_i32(target, chunk, target, note="elements of the chunk in the row: where the row ends, it is loaded earlier")
        k.v_lshl_add_u32(target, target, log2(element), offset)
        clip(k, target, target, end, index)


def move_to_front(k: KernelBuilder, data: Reg, rest: Reg, element: int) -> None:
    """Moves the last `rest` elements of `data` to its front, in lanes of EXEC, and sets the others to 0.

    data: registers of a chunk. rest: SGPR, from 1 to a chunk's elements. element: bytes.
    """
    bits = k.s.alloc("bits to the front")
    words = data
    if data.file == "a":
        words = k.v.alloc("chunk at a row's end", data.count)
        k.move(words, data)
    k.s_lshl_b32(bits, rest, log2(8 * element))
    k.s_sub_u32(bits, 8 * WORD * data.count, bits, note="from a chunk's end back to the row's")
    step = data.count // 2
    while step >= max(1, element // WORD):
        k.s_bitcmp1_b32(bits, log2(8 * WORD * step))
        with k.jump_over("scc0", "moved"):
            for word in range(data.count):
                k.v_mov_b32(words[word], words[word + step] if word + step < data.count else 0)
        step //= 2
    for word in range(data.count) if element < WORD else ():
        k.v_alignbit_b32(words[word], words[word + 1] if word + 1 < data.count else 0, words[word], bits)
    if words is not data:
        k.move(data, words)
        k.v.free(words)
    k.s.free(bits)


def shift_down(k: KernelBuilder, words: Reg, shift: int) -> None:
    """Moves the bytes of VGPRs `shift` bytes to the front, and sets the others to 0."""
    ahead, part = divmod(shift, WORD)
    following = [words[word] if word < words.count else 0 for word in range(ahead, ahead + words.count + 1)]
    for word in range(words.count):
        if part:
            k.v_alignbyte_b32(words[word], following[word + 1], following[word], part)
        else:
            k.v_mov_b32(words[word], following[word])
