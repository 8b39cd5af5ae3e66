"""2-D convolution: its problem, and its operands in other layouts (paper, section 2D Convolution; errata E27, E28)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape, one_of, positive_dimension
from simgpu.operators.gemm.problem import GATES, NARROW, OUTPUTS, GemmProblem
from simgpu.operators.tree import ZERO

Pair = tuple[int, int]
LAYOUTS = ("nchw", "nhwc")


@dataclass(frozen=True)
class Conv2dProblem:
    """Y (n,oc,oh,ow) = X (n,ic,ih,iw) convolved with W (oc,ic/groups,kh,kw), as in deep learning (no flip of W).

    stride, padding, dilation: (vertical, horizontal). Outside X reads 0. oh = (ih + 2*padding - dilation*(kh-1) - 1) // stride
    + 1. layout "nhwc": X is (n,ih,iw,ic) and Y (n,oh,ow,oc). W keeps its layout, because it is packed anyway. Y = scale_c *
    activation(alpha * (X * W) + bias), as a GEMM's C (`operators.gemm.problem`). LaunchError for impossible sizes and types.

    >>> from simgpu.operators import Conv2dProblem
    >>> problem = Conv2dProblem(n=1, ic=3, ih=224, iw=224, oc=64, kh=7, kw=7, stride=(2, 2), padding=(3, 3))
    >>> problem.shapes
    ((1, 3, 224, 224), (64, 3, 7, 7), (1, 64, 112, 112))
    """

    n: int  # images
    ic: int  # input channels
    ih: int  # input rows
    iw: int  # input columns
    oc: int  # output channels
    kh: int  # filter rows
    kw: int  # filter columns
    stride: Pair = (1, 1)  # rows and columns of X from one output pixel to the next
    padding: Pair = (0, 0)  # rows of 0 above and below X, columns left and right
    dilation: Pair = (1, 1)  # rows and columns of X from one tap to the next
    groups: int = 1  # groups of channels
    dtype: str = "f32"  # type of X and W
    layout: str = "nchw"  # nchw or nhwc
    alpha: float = 1.0  # factor of the sums
    bias: bool = False  # True: adds a bias of oc elements of the GEMM's `dtype_addend`
    activation: str = "none"  # none, relu, gelu or silu
    dtype_c: str = ""  # type of Y: "" for the accumulator's, or a type that it is rounded to
    scale_c: float = 1.0  # factor of a Y in fp8 or bf8

    def __post_init__(self) -> None:
        accumulator = dtype(self.dtype).accumulator
        one_of("layout", self.layout, LAYOUTS)
        object.__setattr__(self, "dtype_c", one_of("type of Y", self.dtype_c or accumulator, OUTPUTS[accumulator]))
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
        self._check_epilogue()

    def _check_epilogue(self) -> None:
        one_of("activation", self.activation, ("none", "relu", "gelu", "silu", *GATES))
        if self.activation in GATES:
            raise LaunchError(f"activation {self.activation} takes pairs of columns of a GEMM: use none, relu, gelu or silu")
        if self.dtype_c not in NARROW and self.scale_c != 1:
            raise LaunchError(f"scale_c = {self.scale_c:g}: only fp8 and bf8 take a scale, Y is {self.dtype_c}: use alpha")
        if self.dtype_c == "i32" and self.activation not in ("none", "relu"):
            raise LaunchError(f"activation {self.activation} is a fraction of an integer and Y is i32: let Y be f32, f16 or bf16")
        if self.dtype_c == "i32" and (self.alpha != int(self.alpha) or abs(self.alpha) >= 1 << 31):
            raise LaunchError(f"alpha = {self.alpha:g}: Y in i32 takes an integer of 32 bits; let Y be f32, f16 or bf16")

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
        """Type of X and W."""
        return dtype(self.dtype)

    @property
    def accumulator(self) -> str:
        """Type of the matrix unit's sums, and of the parts of split channels."""
        return self.element.accumulator

    @property
    def plain(self) -> bool:
        """True if Y is the sums, without an epilogue."""
        return self.dtype_c == self.accumulator and self.alpha == 1 and not self.bias and self.activation == "none"

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of X, W and Y in memory."""
        x, w, y = self.by_channels
        return (x, w, y) if self.layout == "nchw" else ((x[0], *x[2:], x[1]), w, (y[0], *y[2:], y[1]))

    @property
    def by_channels(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Shapes of X, W and Y with the channels before the rows, whatever the layout."""
        return (self.n, self.ic, self.ih, self.iw), (self.oc, self.icg, self.kh, self.kw), (self.n, self.oc, self.oh, self.ow)

    @property
    def flops(self) -> int:
        """Useful FLOPs, products with padding included; a multiply-add counts as two."""
        return 2 * self.n * self.oc * self.oh * self.ow * self.icg * self.kh * self.kw

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of X, W, Y and the bias crosses memory once."""
        x, w, y = map(prod, self.shapes)
        bias = self.bias * self.oc * dtype(self.gemm.dtype_addend).bytes
        return (x + w) * self.element.bytes + y * dtype(self.dtype_c).bytes + bias

    @property
    def gemm(self) -> GemmProblem:
        """GEMM with the same products: pixels x output channels x (input channels and taps).

        Each group is a product of the batch.
        """
        return GemmProblem(
            self.n * self.oh * self.ow, self.ocg, self.icg * self.kh * self.kw, self.dtype, batch=self.groups, alpha=self.alpha,
            bias=self.bias, activation=self.activation, dtype_c=self.dtype_c, scale_c=self.scale_c,
        )  # fmt: skip

    def halo(self, rows: int, cols: int) -> Pair:
        """Returns the input rows and columns under a tile of `rows` x `cols` output pixels."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return (rows - 1) * sh + dh * (self.kh - 1) + 1, (cols - 1) * sw + dw * (self.kw - 1) + 1

    def halo_factor(self, rows: int, cols: int) -> float:
        """Returns how often tiles of rows x cols outputs read an input element on average (E27).

        At stride and dilation 1: (1 + (KH-1)/rows)(1 + (KW-1)/cols).
        """
        high, wide = self.halo(rows, cols)
        return high * wide / (rows * self.stride[0] * cols * self.stride[1])


def merge_groups(problem: Conv2dProblem, count: int) -> Conv2dProblem:
    """Returns the same convolution with every `count` consecutive groups as one, whose filter is block-diagonal.

    Channels of 0 fill the last one if `count` does not divide the groups. Products with the filter's added zeros change no sum
    of finite numbers. Those of an infinity or NaN in X do: kernels compute such sums again (`asm.conv2d.own_taps`).

    >>> from simgpu import operators
    >>> depthwise = operators.Conv2dProblem(n=1, ic=40, ih=9, iw=9, oc=40, kh=3, kw=3, groups=40)
    >>> merged = operators.merge_groups(depthwise, 16)
    >>> merged.groups, merged.icg, merged.oc
    (3, 16, 48)
    """
    groups = -(-problem.groups // positive_dimension("count", count))
    ic, oc = (groups * count * each for each in (problem.icg, problem.ocg))
    return problem if count == 1 else replace(problem, ic=ic, oc=oc, groups=groups)


def merged_input(problem: Conv2dProblem, count: int, x: ArrayLike) -> NDArray[np.generic]:
    """Returns X (n,ic,ih,iw) of `merge_groups(problem, count)`."""
    x = expect_shape("X", x, problem.by_channels[0])
    return ZERO.read(x, *((0, size) for size in merge_groups(problem, count).by_channels[0]))


def merged_filter(problem: Conv2dProblem, count: int, w: ArrayLike) -> NDArray[np.generic]:
    """Returns W of `merge_groups(problem, count)`: 0 between an output channel and another group's input channels."""
    p, after = problem, merge_groups(problem, count)
    w = expect_shape("W", w, p.by_channels[1])
    if count == 1:
        return w
    wide = np.zeros((after.groups * count, p.ocg, count, p.icg, p.kh, p.kw), w.dtype)
    groups = np.arange(p.groups)
    wide[groups, :, groups % count] = w.reshape(p.groups, p.ocg, p.icg, p.kh, p.kw)
    return wide.reshape(after.by_channels[1])


def pack_filter(w: ArrayLike, tile_oc: int, tile_ic: int) -> NDArray[np.generic]:
    """Returns W (oc,ic,kh,kw) in the layout (oc/tOC, ic/tIC, kh, kw, tOC, tIC), so that a block reads it contiguously.

    Channels are padded with 0.

    >>> import numpy as np
    >>> from simgpu import operators
    >>> operators.pack_filter(np.ones((64, 48, 3, 3)), tile_oc=32, tile_ic=16).shape
    (2, 3, 3, 3, 32, 16)
    """
    array = np.asarray(w)
    oc, ic, kh, kw = array.shape
    outer, inner = -(-oc // tile_oc), -(-ic // tile_ic)
    padded = ZERO.read(array, (0, outer * tile_oc), (0, inner * tile_ic), (0, kh), (0, kw))
    tiled = padded.reshape(outer, tile_oc, inner, tile_ic, kh, kw)
    return np.ascontiguousarray(tiled.transpose(0, 2, 4, 5, 1, 3))


def space_to_channel(problem: Conv2dProblem, factor: int) -> Conv2dProblem:
    """Returns the same convolution with factor^2 times the input channels and ceil(kh/factor)*ceil(kw/factor) taps.

    Its dilation is `factor` times as large. Three channels at factor 2 become 12 and leave 4 of a 3x3 filter's taps, not 1
    (E28); one tap needs factor 3, 27 channels.

    >>> from simgpu import operators
    >>> problem = operators.Conv2dProblem(n=1, ic=3, ih=32, iw=32, oc=64, kh=3, kw=3)
    >>> more = operators.space_to_channel(problem, 2)
    >>> more.ic, (more.kh, more.kw), more.dilation
    (12, (2, 2), (2, 2))
    """
    p, f = problem, positive_dimension("factor", factor)
    kh, kw = -(-p.kh // f), -(-p.kw // f)
    dilation = (p.dilation[0] * f, p.dilation[1] * f)
    ih = (p.oh - 1) * p.stride[0] + dilation[0] * (kh - 1) + 1
    iw = (p.ow - 1) * p.stride[1] + dilation[1] * (kw - 1) + 1
    return replace(p, ic=p.ic * f * f, ih=ih, iw=iw, kh=kh, kw=kw, padding=(0, 0), dilation=dilation)


def lattice(problem: Conv2dProblem, window: Pair) -> Pair:
    """Returns the distances between the rows, and between the columns, of X that a window of taps reads.

    They are the gcd of stride and dilation, or the stride if the window has one tap along the axis.
    """
    apart = (dilation if taps > 1 else 0 for dilation, taps in zip(problem.dilation, window, strict=True))
    down, across = map(gcd, problem.stride, apart)
    return down, across


def with_window(problem: Conv2dProblem, window: Pair, tile_ic: int) -> Conv2dProblem:
    """Returns the same convolution with a filter of `window` taps (a divisor of the filter's) and only the input that it reads.

    Windows of taps become channels: every tile_ic channels are followed by the same channels under the next window, row by row.
    X loses its padding and the rows and columns that no tap reads (`lattice`).
    """
    p, (fh, fw) = problem, window
    (gh, gw), windows = lattice(p, window), (p.kh // fh) * (p.kw // fw)
    stride = p.stride[0] // gh, p.stride[1] // gw
    dilation = p.dilation[0] // gh if fh > 1 else 1, p.dilation[1] // gw if fw > 1 else 1
    ic = p.ic if windows == 1 else p.groups * -(-p.icg // tile_ic) * tile_ic * windows
    ih, iw = (p.oh - 1) * stride[0] + dilation[0] * (fh - 1) + 1, (p.ow - 1) * stride[1] + dilation[1] * (fw - 1) + 1
    return replace(p, ic=ic, ih=ih, iw=iw, kh=fh, kw=fw, stride=stride, padding=(0, 0), dilation=dilation)


def windowed_input(problem: Conv2dProblem, window: Pair, tile_ic: int, x: ArrayLike) -> NDArray[np.generic]:
    """Returns X (n,ic,ih,iw) of `with_window(problem, window, tile_ic)`."""
    p, (fh, fw), after = problem, window, with_window(problem, window, tile_ic)
    (gh, gw), steps = lattice(p, window), -(-p.icg // tile_ic)
    x = expect_shape("X", x, p.by_channels[0])
    shifted = []
    for top, left in ((y * p.dilation[0] - p.padding[0], x * p.dilation[1] - p.padding[1])
                      for y in range(0, p.kh, fh) for x in range(0, p.kw, fw)):  # fmt: skip
        rows, columns = (top, top + (after.ih - 1) * gh + 1), (left, left + (after.iw - 1) * gw + 1)
        shifted.append(ZERO.read(x, (0, p.n), (0, p.ic), rows, columns)[:, :, ::gh, ::gw])
    if len(shifted) == 1:
        return np.ascontiguousarray(shifted[0])
    grouped = np.stack(shifted, 1).reshape(p.n, len(shifted), p.groups, p.icg, after.ih, after.iw)
    padded = np.pad(grouped, ((0, 0), (0, 0), (0, 0), (0, steps * tile_ic - p.icg), (0, 0), (0, 0)))
    tiled = padded.reshape(p.n, len(shifted), p.groups, steps, tile_ic, after.ih, after.iw)
    return np.ascontiguousarray(tiled.transpose(0, 2, 3, 1, 4, 5, 6)).reshape(after.by_channels[0])


def windowed_filter(problem: Conv2dProblem, window: Pair, tile_ic: int, w: ArrayLike) -> NDArray[np.generic]:
    """Returns W of `with_window(problem, window, tile_ic)`."""
    p, (fh, fw), after = problem, window, with_window(problem, window, tile_ic)
    w = expect_shape("W", w, p.by_channels[1])
    if (fh, fw) == (p.kh, p.kw):
        return w
    steps = -(-p.icg // tile_ic)
    padded = ZERO.read(w, (0, p.oc), (0, steps * tile_ic), (0, p.kh), (0, p.kw))
    tiled = padded.reshape(p.oc, steps, tile_ic, p.kh // fh, fh, p.kw // fw, fw).transpose(0, 1, 3, 5, 2, 4, 6)
    return np.ascontiguousarray(tiled).reshape(after.by_channels[1])


def space_to_channel_operands(
    problem: Conv2dProblem, factor: int, x: ArrayLike, w: ArrayLike
) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Returns X and W of `space_to_channel(problem, factor)`. Channel (c, dy, dx) of X is channel c shifted by (dy, dx) taps."""
    p, f, after = problem, factor, space_to_channel(problem, factor)
    x = expect_shape("X", x, p.by_channels[0])
    (ph, pw), (dh, dw) = p.padding, p.dilation
    shifted = [
        ZERO.read(x, (0, p.n), (0, p.ic), (dy * dh - ph, dy * dh - ph + after.ih), (dx * dw - pw, dx * dw - pw + after.iw))
        for dy in range(f)
        for dx in range(f)
    ]
    return np.stack(shifted, 2).reshape(after.by_channels[0]), space_to_channel_filter(p, f, w)


def space_to_channel_filter(problem: Conv2dProblem, factor: int, w: ArrayLike) -> NDArray[np.generic]:
    """Returns W of `space_to_channel(problem, factor)`.

    Channel (c, dy, dx) has the taps (kh*factor + dy, kw*factor + dx) of channel c.
    """
    p, f, after = problem, factor, space_to_channel(problem, factor)
    wider = ZERO.read(expect_shape("W", w, p.by_channels[1]), (0, p.oc), (0, p.icg), (0, after.kh * f), (0, after.kw * f))
    taps = wider.reshape(p.oc, p.icg, after.kh, f, after.kw, f).transpose(0, 1, 3, 5, 2, 4)
    return taps.reshape(after.by_channels[1])
