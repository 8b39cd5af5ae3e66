"""Arguments of a convolution's kernels; tile coordinates of workgroup and waves."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from simgpu.asm.builder.formula import of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.parts.integer_math import scalar_digits, scalar_divmod
from simgpu.asm.parts.lanes import consecutive_workgroups, wave_number
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.conv2d.tree import BlockConv2dNode, Conv2d


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
