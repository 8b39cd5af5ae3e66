"""Offsets of lanes' pixels in an image, tests whether they are in it, and the strides of X."""

from __future__ import annotations

from collections.abc import Sequence

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.buffers import OUTSIDE
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair

MOST_BYTES = 1 << 30  # of what offsets in a raw buffer span, and of what is added to OUTSIDE


def input_strides(p: Conv2dProblem) -> tuple[int, int, int]:
    """Returns the bytes of X from a channel, a pixel and an image to the next."""
    size, plane = p.element.bytes, p.ih * p.iw
    return (size, p.ic * size, p.ic * plane * size) if p.layout == "nhwc" else (plane * size, size, p.ic * plane * size)


def under_first_tap(k: KernelBuilder, p: Conv2dProblem, pixel: tuple[Reg, Reg]) -> None:
    """Replaces row and column of an output pixel by those of X under its first tap."""
    for value, stride, padding in zip(pixel, p.stride, p.padding, strict=True):
        k.set(value, of(value) * stride - padding)


def compare_below(k: KernelBuilder, mask: Reg | str, limit: int, value: Reg) -> None:
    """Emits mask = 0 <= value < limit."""
    with k.temporary(limit if mask == "vcc" else Formula("set", (limit,))) as bound:
        k.v_cmp_gt_u32(mask, bound, value)


def pixel_offset(
    k: KernelBuilder, target: Reg, pixel: tuple[Reg, Reg], view: Pair, columns: int, plane: Operand, size: int, note: str
) -> None:  # fmt: skip
    """Emits target = plane + bytes from the image's first element to the pixel (row, column), OUTSIDE if not in the view.

    target: may be the row. view: its rows and columns. columns: of the image. plane: 0 or a register. size: bytes of an element.
    """
    row, column = pixel
    inside = k.s.alloc("inside", 2)
    compare_below(k, inside, view[0], row)
    compare_below(k, "vcc", view[1], column)
    k.s_and_b64("vcc", "vcc", inside)
    k.set(target, (of(row) * columns + column).below(MOST_BYTES) * size + plane)
    k.v_cndmask_b32(target, OUTSIDE, target, "vcc", note=note)
    k.s.free(inside)


def tap_offsets(k: KernelBuilder, targets: Sequence[Reg], pixel: tuple[Reg, Reg], p: Conv2dProblem, factor: int) -> None:
    """Emits, for factor x factor taps, the byte offsets of their pixels in an image of X, OUTSIDE or more if not in it.

    pixel: row and column under the first tap. Rows and columns have offsets of their own, OUTSIDE each. Twice OUTSIDE is 2^31.
    """
    parts = k.v.alloc("row's offset"), k.v.alloc("columns' offsets", factor)
    size, place = input_strides(p)[1], k.v.alloc("place")

    def offset(target: Reg, axis: int, tap: int, limit: int, apart: int) -> None:
        k.v_add_u32(place, tap * p.dilation[axis], pixel[axis])
        compare_below(k, "vcc", limit, place)
        k.set(place, of(place) * apart)
        k.v_cndmask_b32(target, OUTSIDE, place, "vcc", note=f"{('row', 'column')[axis]} of tap {tap}, or outside the image")

    for tap in range(factor):
        offset(parts[1][tap], 1, tap, p.iw, size)
    for number, target in enumerate(targets):
        down, across = divmod(number, factor)
        if across == 0:
            offset(parts[0], 0, down, p.ih, p.iw * size)
        k.v_add_u32(target, parts[0], parts[1][across], note=f"tap {down},{across}")
    k.v.free(*parts, place)
