"""2-D convolution: what it computes, and its operands in other layouts (paper, section 2D Convolution; errata E27, E28)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape, positive_dimension
from simgpu.operators.gemm.problem import GemmProblem
from simgpu.operators.tree import ZERO

Pair = tuple[int, int]


@dataclass(frozen=True)
class Conv2dProblem:
    """Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw), as deep learning has it (no flip of W).

    stride, padding, dilation: (vertical, horizontal). Outside X reads 0. oh = (ih + 2*padding - dilation*(kh-1) - 1) // stride + 1.
    LaunchError for sizes that cannot be.
    """

    n: int
    ic: int
    ih: int
    iw: int
    oc: int
    kh: int
    kw: int
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1
    dtype: str = "f32"

    def __post_init__(self) -> None:
        dtype(self.dtype)
        for name in ("n", "ic", "ih", "iw", "oc", "kh", "kw", "groups"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name in ("stride", "dilation"):
            object.__setattr__(self, name, tuple(positive_dimension(name, value) for value in getattr(self, name)))
        if min(self.padding) < 0:
            raise LaunchError(f"padding = {self.padding} is negative: give 0 or more")
        for name in ("ic", "oc"):
            if getattr(self, name) % self.groups:
                raise LaunchError(f"{name} = {getattr(self, name)} does not divide into {self.groups} groups: use a divisor of it")
        if min(self.oh, self.ow) < 1:
            raise LaunchError(f"a {self.kh}x{self.kw} filter does not fit into {self.ih}x{self.iw} input: pad it by more")

    @property
    def oh(self) -> int:
        """Rows of the output."""
        return (self.ih + 2 * self.padding[0] - self.dilation[0] * (self.kh - 1) - 1) // self.stride[0] + 1

    @property
    def ow(self) -> int:
        """Columns of the output."""
        return (self.iw + 2 * self.padding[1] - self.dilation[1] * (self.kw - 1) - 1) // self.stride[1] + 1

    @property
    def icg(self) -> int:
        """Input channels of a group."""
        return self.ic // self.groups

    @property
    def ocg(self) -> int:
        """Output channels of a group."""
        return self.oc // self.groups

    @property
    def element(self) -> DType:
        """The type of X and W."""
        return dtype(self.dtype)

    @property
    def dtype_c(self) -> str:
        """Type of Y: the accumulator's."""
        return self.element.accumulator

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Of X, W and Y."""
        return (self.n, self.ic, self.ih, self.iw), (self.oc, self.icg, self.kh, self.kw), (self.n, self.oc, self.oh, self.ow)

    @property
    def flops(self) -> int:
        """Useful FLOPs, products with padding included, a multiply-add counted as two."""
        return 2 * self.n * self.oc * self.oh * self.ow * self.icg * self.kh * self.kw

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of X, W and Y crosses memory once."""
        x, w, y = (int(np.prod(shape)) for shape in self.shapes)
        return (x + w) * self.element.bytes + y * dtype(self.dtype_c).bytes

    @property
    def gemm(self) -> GemmProblem:
        """The GEMM with the same products: pixels x output channels x (input channels and taps), a product of the batch a group."""
        return GemmProblem(self.n * self.oh * self.ow, self.ocg, self.icg * self.kh * self.kw, self.dtype, batch=self.groups)

    def halo(self, rows: int, cols: int) -> Pair:
        """Input rows and columns under a tile of `rows` x `cols` output pixels."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return (rows - 1) * sh + dh * (self.kh - 1) + 1, (cols - 1) * sw + dw * (self.kw - 1) + 1

    def halo_factor(self, rows: int, cols: int) -> float:
        """How often an input element is read by tiles of rows x cols (E27).

        At stride and dilation 1: (1 + (KH-1)/rows)(1 + (KW-1)/cols).
        """
        high, wide = self.halo(rows, cols)
        return high * wide / (rows * self.stride[0] * cols * self.stride[1])


def pack_filter(w: ArrayLike, tile_oc: int, tile_ic: int) -> NDArray[np.generic]:
    """W (oc,ic,kh,kw) in the layout (oc/tOC, ic/tIC, kh, kw, tOC, tIC): one contiguous read a block. Channels are padded with 0."""
    array = np.asarray(w)
    oc, ic, kh, kw = array.shape
    outer, inner = -(-oc // tile_oc), -(-ic // tile_ic)
    padded = ZERO.read(array, (0, outer * tile_oc), (0, inner * tile_ic), (0, kh), (0, kw))
    tiled = padded.reshape(outer, tile_oc, inner, tile_ic, kh, kw)
    return np.ascontiguousarray(tiled.transpose(0, 2, 4, 5, 1, 3))


def space_to_channel(problem: Conv2dProblem, factor: int) -> Conv2dProblem:
    """The same convolution with factor^2 times the input channels and ceil(kh/factor)*ceil(kw/factor) taps, dilated as much more.

    Three channels at factor 2 become 12 and leave 4 of a 3x3 filter's taps, not 1 (E28); one tap needs factor 3, 27 channels.
    """
    p, f = problem, positive_dimension("factor", factor)
    kh, kw = -(-p.kh // f), -(-p.kw // f)
    dilation = (p.dilation[0] * f, p.dilation[1] * f)
    ih = (p.oh - 1) * p.stride[0] + dilation[0] * (kh - 1) + 1
    iw = (p.ow - 1) * p.stride[1] + dilation[1] * (kw - 1) + 1
    return replace(p, ic=p.ic * f * f, ih=ih, iw=iw, kh=kh, kw=kw, padding=(0, 0), dilation=dilation)


def space_to_channel_operands(
    problem: Conv2dProblem, factor: int, x: ArrayLike, w: ArrayLike
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """X and W of `space_to_channel(problem, factor)`: channel (c, dy, dx) of X is channel c shifted by (dy, dx) taps."""
    p, f, after = problem, factor, space_to_channel(problem, factor)
    x = expect_shape("X", x, p.shapes[0])
    (ph, pw), (dh, dw) = p.padding, p.dilation
    shifted = [
        ZERO.read(x, (0, p.n), (0, p.ic), (dy * dh - ph, dy * dh - ph + after.ih), (dx * dw - pw, dx * dw - pw + after.iw))
        for dy in range(f)
        for dx in range(f)
    ]
    return np.stack(shifted, 2).reshape(after.shapes[0]), space_to_channel_filter(p, f, w)


def space_to_channel_filter(problem: Conv2dProblem, factor: int, w: ArrayLike) -> NDArray[np.generic]:
    """W of `space_to_channel(problem, factor)`: channel (c, dy, dx) has the taps (kh*factor + dy, kw*factor + dx) of channel c."""
    p, f, after = problem, factor, space_to_channel(problem, factor)
    wider = ZERO.read(expect_shape("W", w, p.shapes[1]), (0, p.oc), (0, p.icg), (0, after.kh * f), (0, after.kw * f))
    taps = wider.reshape(p.oc, p.icg, after.kh, f, after.kw, f).transpose(0, 1, 3, 5, 2, 4)
    return taps.reshape(after.shapes[1])
