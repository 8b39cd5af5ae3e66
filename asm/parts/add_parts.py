"""The kernel that adds parts of a sum: Y[i] = sum over j of parts[j][i]. A work-item adds 16 adjacent bytes."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.buffers import raw_buffer
from simgpu.asm.parts.integer_math import add_product, log2
from simgpu.hardware.dtypes import dtype as numbers
from simgpu.hardware.errors import UnsupportedInstruction

THREADS = 256
WIDE = 16  # bytes of a work-item: one 128-bit load
ADDITIONS = {"f32": "v_add_f32", "i32": "v_add_u32", "f64": "v_add_f64"}


def emit_sum(target: str, dtype: str, elements: int, parts: int, source: str, result: str) -> EmittedKernel:
    """Returns the kernel that adds `parts` arrays of `elements` elements, consecutive in the buffer named `source`."""
    if dtype not in ADDITIONS:
        raise UnsupportedInstruction(f"parts of a sum in {dtype} have no kernel: use one of {', '.join(ADDITIONS)}")
    size, words = numbers(dtype).bytes, numbers(dtype).registers
    share = THREADS * WIDE // size  # elements of a workgroup
    k = KernelBuilder(f"sum_{dtype}_{parts}_parts", target, THREADS)
    for name in (source, result):
        k.argument(name, 8, "global_buffer")
    arguments = k.load_arguments()
    k.comment(f"{result} = the sum of {parts} parts of {elements} elements, {share} a workgroup")
    k.work_item_x()
    k.v_lshlrev_b32(k.work_item, 4, k.work_item, note="bytes from the workgroup's first")
    buffers = k.s.alloc("parts buffer", 4), k.s.alloc("sum buffer", 4)
    first, left = k.s.alloc("first element"), k.s.alloc("parts left")
    k.s_mul_i32(first, k.group_x, share)
    for resource, name in zip(buffers, (source, result), strict=True):
        raw_buffer(k, resource, arguments[name], (0, 0), name)
        add_product(k, resource[0:2], first, size)
        k.s_sub_u32(resource[2], elements, first)
        k.s_min_u32(resource[2], resource[2], share)
        k.s_lshl_b32(resource[2], resource[2], log2(size), note="bytes to the end of the part")
    total, part = k.v.alloc("sum", WIDE // 4), k.v.alloc("part", WIDE // 4)
    for i in range(WIDE // 4):
        k.v_mov_b32(total[i], 0)
    k.s_mov_b32(left, parts)
    step = elements * size
    with k.loop("part", left):
        k.buffer_load_dwordx4(part, k.work_item, buffers[0], 0, offen=True)
        for i in range(0, WIDE // 4, words):
            k.emit(ADDITIONS[dtype], total[i : i + words], part[i : i + words], total[i : i + words])
        k.s_add_u32(buffers[0][0], buffers[0][0], step & 0xFFFFFFFF, note="next part")
        k.s_addc_u32(buffers[0][1], buffers[0][1], step >> 32)
    k.buffer_store_dwordx4(total, k.work_item, buffers[1], 0, offen=True)
    k.s_endpgm()
    grid = (-(-elements // share), 1, 1)
    return k.finish(grid=grid)
