"""Convolution that the paper compares with: one output pixel per work-item, operands from memory, no tiles, no LDS."""

from __future__ import annotations

from simgpu.asm.builder.emitted import EmittedKernel
from simgpu.asm.builder.formula import log2, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.asm.conv2d.place import MOST_BYTES, pixel_offset, under_first_tap
from simgpu.asm.parts.buffers import new_buffer
from simgpu.asm.parts.elements import Elements
from simgpu.asm.parts.integer_math import scalar_divmod
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError, UnsupportedInstruction
from simgpu.hardware.isa.instruction import Reg
from simgpu.operators.conv2d.problem import Conv2dProblem
from simgpu.operators.conv2d.tree import Conv2d

THREADS = 256
TYPES = ("f32", "f16", "bf16")


def emit_naive(root: Conv2d) -> EmittedKernel:
    """Returns the kernel of operands X, W (oc,ic/groups,kh,kw), Y for a convolution's tree. The tree's tiles are not used.

    A workgroup has 256 pixels of one channel of one image. X and W are loaded element by element for every product.
    """
    p = root.problem
    size = dtype(p.dtype_c).bytes
    _check(root)
    k = KernelBuilder(f"conv2d_naive_{p.dtype}_{p.ic}x{p.ih}x{p.iw}_{p.oc}x{p.kh}x{p.kw}", root.descriptor.arch, THREADS)
    k.declare("pointer", *"XWY")
    arguments = k.load_arguments()
    k.work_item_x()
    tiles = -(-p.oh * p.ow // THREADS)
    blocks = p.n * p.oc * tiles
    k.comment(f"workgroup = (image·{p.oc} + output channel)·{tiles} + 256 pixels")
    tile = scalar_divmod(k, k.group_x, tiles, blocks, "pixels")
    x, w, y = _buffers(k, p, arguments)
    pixel, row, column = (k.v.alloc(name) for name in ("pixel", "output row", "output column"))
    total = _sum(k, p, (x, w), tile, (pixel, row, column))
    k.v_lshlrev_b32(pixel, log2(size), pixel)
    k.buffer_store(total, pixel, y, 0, note="Y")
    k.s_endpgm()
    return k.finish(grid=(blocks, 1, 1))


def _check(root: Conv2d) -> None:
    p, e = root.problem, root.problem.element.bytes
    if p.dtype not in TYPES:
        raise UnsupportedInstruction(f"the naive convolution is emitted for {', '.join(TYPES)}, not for {p.dtype}")
    if not p.plain or p.layout != "nchw":
        raise UnsupportedInstruction("the naive convolution has neither an epilogue nor nhwc: leave them out")
    if max(p.icg * p.ih * p.iw * e, p.icg * p.kh * p.kw * e, p.oh * p.ow * dtype(p.dtype_c).bytes) >= MOST_BYTES:
        raise LaunchError(f"{root.derivation.title}: an image's group or a filter takes 2^30 bytes or more: use smaller ones")


def _buffers(k: KernelBuilder, p: Conv2dProblem, arguments: dict[str, Reg]) -> tuple[Reg, Reg, Reg]:
    """Returns raw buffers: X at the image's group, W at the filter, Y at the image's channel. group_x becomes the image."""
    e, size, pixels = p.element.bytes, dtype(p.dtype_c).bytes, p.oh * p.ow
    y = new_buffer(k, arguments["Y"], "Y", (k.group_x, pixels * size), nbytes=pixels * size)
    channel = scalar_divmod(k, k.group_x, p.oc, p.n * p.oc, "output channel")
    w = new_buffer(k, arguments["W"], "W", (channel, p.icg * p.kh * p.kw * e))
    k.s.free(scalar_divmod(k, channel, p.ocg, p.oc, "channel in its group"))
    plane = p.ih * p.iw * e
    return new_buffer(k, arguments["X"], "X", (k.group_x, p.ic * plane), (channel, p.icg * plane)), w, y


def _sum(k: KernelBuilder, p: Conv2dProblem, buffers: tuple[Reg, Reg], tile: Reg, place: tuple[Reg, Reg, Reg]) -> Reg:
    """Returns a VGPR with a pixel's sum over channels and taps.

    place: registers that become its number, and X's row and column under its first tap.
    """
    (x, w), e, kind = buffers, p.element.bytes, Elements(k, p.dtype, "f32")
    names = ("row of X", "offset of X", "column of X", "X", "W", "sum", "offset of W")
    high, base, across, a, b, total, weight = (k.v.alloc(name) for name in names)
    pixel, row, column = place
    k.set(pixel, of(tile) * THREADS + k.work_item)
    number = of(pixel, p.oh * p.ow + THREADS)
    k.assign((row, column), (number // p.ow, number % p.ow), ("output row", "output column"))
    under_first_tap(k, p, (row, column))
    k.v_mov_b32(total, 0)
    k.v_mov_b32(weight, 0)
    plane = k.scalar("bytes of X before the channel", 0)
    with k.loop("channel", p.icg):
        k.v_mov_b32(high, row)
        with k.loop("tap_row", p.kh):
            k.v_mov_b32(across, column)
            with k.loop("tap_column", p.kw):
                pixel_offset(k, base, (high, across), (p.ih, p.iw), p.iw, plane, e, "outside the image: reads 0")
                kind.load(a, base, x, note="X")
                kind.load(b, weight, w, note="W")
                k.v_fmac_f32(total, kind.widen(a, a, 0), kind.widen(b, b, 0))
                k.v_add_u32(weight, e, weight)
                k.v_add_u32(across, p.dilation[1], across)
            k.v_add_u32(high, p.dilation[0], high)
        k.s_add_u32(plane, plane, p.ih * p.iw * e)
    return total
