"""Arguments of a convolution's kernels; tile coordinates of workgroup and waves; offsets of lanes' pixels in an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.builder.registers import Operand
from simgpu.asm.parts.buffers import OUTSIDE
from simgpu.asm.parts.integer_math import scalar_digits, scalar_divmod
from simgpu.asm.parts.lanes import consecutive_workgroups, wave_number
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem, Pair
from simgpu.operators.conv2d.tree import BlockConv2dNode, Conv2d

MOST_BYTES = 1 << 30  # of what offsets in a raw buffer span, and of what is added to OUTSIDE


@dataclass(frozen=True)
class ConvPlace:
    """Tile coordinates in SGPRs."""

    tile: dict[str, Reg]  # the workgroup's image, group, OC tile, part, OH tile, OW tile, by name
    wave_channel: Reg  # the wave's place in the tile along channels
    wave_pixel: Reg  # the wave's place in the tile along pixels
    channels: int  # output channels of a wave
    pixels: int  # pixels of a wave
    ragged: bool  # True if the last merged group has fewer channels than the others

    def channels_left(self, k: KernelBuilder, target: Reg, first: Reg, each: int, total: int) -> None:
        """Emits target = channels of the workgroup's merged group from its channel `first` on, 0 or less after the last.

        first, target: two SGPRs. each: channels of a merged group. total: the tensor's, with which the last one ends.
        """
        if not self.ragged:
            k.s_sub_u32(target, each, first)
            return
        k.set(target, (total - of(self.tile["group"]) * each).least(each) - first, note="channels of the merged group")


def workgroups(root: Conv2d) -> int:
    """Returns the workgroups of the launch: all iterations of the tree's parallel loops."""
    return prod(root.trips(loop.axis) for loop in root.loops)


def find_place(k: KernelBuilder, root: Conv2d) -> ConvPlace:
    """Emits image, group, tiles and part from the workgroup's number, and the wave's place in the tile."""
    k.work_item_x()
    block, blocks = root.first(), workgroups(root)
    assert isinstance(block, BlockConv2dNode)
    xcds = min(root.descriptor.xcds, blocks)
    if xcds > 1:  # consecutive tiles share halos and lines of X in an XCD's L2
        consecutive_workgroups(k, xcds, blocks, *divmod(blocks, xcds))
    k.comment("workgroup = (((image·groups + group)·OC tiles + OC tile)·parts + part)·OH tiles·OW tiles …")
    names = ("OW tile", "ow"), ("OH tile", "oh"), ("part", "ic"), ("OC tile", "oc"), ("group", "group")
    tile = scalar_digits(k, k.group_x, blocks, *((name, root.trips(axis)) for name, axis in names))
    tile["image"] = k.group_x
    wave = wave_number(k)
    channels, pixels = block.loop("oc").tile, block.loop("pixels").tile
    across = root.loop("oc").tile // channels
    channel = scalar_divmod(k, wave, across, block.trips("pixels") * across, "wave along channels")
    return ConvPlace(tile, channel, wave, channels, pixels, root.plan.ragged)


def load_arguments(k: KernelBuilder, problem: Conv2dProblem, pointers: tuple[str, ...], epilogue: bool) -> dict[str, Reg]:
    """Declares and loads the arguments. Returns their SGPRs by name.

    epilogue: True if the kernel also has the epilogue's arguments: bias (a pointer), alpha and scale_c, if the problem has them.
    """
    k.declare("pointer", *pointers, *(["bias"] if problem.bias and epilogue else []))
    if epilogue and problem.alpha != 1:
        k.declare(problem.gemm.epilogue_type, "alpha")
    if epilogue and problem.scale_c != 1:
        k.declare("f32", "scale_c")
    return k.load_arguments()


def scalars(problem: Conv2dProblem) -> tuple[int | float, ...]:
    """Returns the arguments that are not pointers, for a kernel with the epilogue."""
    alpha = int(problem.alpha) if problem.gemm.epilogue_type == "i32" else problem.alpha
    return (*([alpha] if problem.alpha != 1 else []), *([problem.scale_c] if problem.scale_c != 1 else []))


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
