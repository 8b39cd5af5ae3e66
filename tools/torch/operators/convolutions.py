"""PyTorch's convolutions along one to three axes by simgpu's: forward, transposed, and their gradients.

The filter is packed by a kernel first. A transposed convolution, which is also the gradient of the input, is a convolution of the
operand with zeros between its elements, by the flipped filter. The gradient of the filter is a GEMM of the unfolded input.
Along three axes, each layer of the result is a convolution of the layers that it reads, as channels (`_Layers`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, unfold

from simgpu.asm.conv2d.pack import emit_pack
from simgpu.operators import Conv2dProblem
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.gemms import multiply
from simgpu.tools.torch.operators.indexing import INDEXING
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, emit_code, pose, type_of
from simgpu.tools.torch.operators.rows import column_sums
from simgpu.triton.driver import active_driver

_Ints = Sequence[int]


class Steps(NamedTuple):
    """Steps of a filter over rows and columns."""

    stride: _Ints
    padding: _Ints
    dilation: _Ints
    groups: int


def _convolve(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, steps: Steps) -> Tensor:
    """Returns the convolution of x (n, ic, ih, iw) with w (oc, ic/groups, kh, kw), in x's layout."""
    kind, last = type_of(x, *FLOATS), x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    if any(type_of(one) != kind for one in (w, bias) if one is not None):
        raise OnHost("of two types")
    problem = pose(
        Conv2dProblem, *x.shape, w.shape[0], *w.shape[2:], *map(tuple, steps[:3]), steps.groups, kind, "nhwc" if last else "nchw",
        bias=bias is not None, dtype_c=kind,
    )  # fmt: skip
    board = active_driver().session.board
    plan, packing = emit_code(problem, board)[0].plan, emit_code(problem, board, emit_pack)[0]
    packed = torch.empty(packing.grid[0] * plan.tile_oc * plan.tile_ic, dtype=x.dtype, device=x.device)
    call.launch(problem, emit_pack, W=w.contiguous(), packed=packed)
    layout = torch.channels_last if last else torch.contiguous_format
    y = torch.empty(problem.by_channels[2], dtype=x.dtype, device=x.device, memory_format=layout)
    given = {} if bias is None else {"bias": bias.contiguous()}
    call.launch(problem, X=x if last else x.contiguous(), W=packed, Y=y, **given)
    return y


def _transpose(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, steps: Steps, rest: _Ints) -> Tensor:
    """Returns the transposed convolution of x (n, ic, ih, iw) with w (ic, oc/groups, kh, kw); rest: rows and columns that are added
    to the result."""
    n, channels, *extents = x.shape
    apart = x.new_zeros((n, channels, *((extent - 1) * step + 1 for extent, step in zip(extents, steps.stride))))
    apart[:, :, :: steps.stride[0], :: steps.stride[1]] = x
    around = [step * (taps - 1) - less for step, taps, less in zip(steps.dilation, w.shape[2:], steps.padding)]
    apart = pad(apart, (around[1], around[1] + rest[1], around[0], around[0] + rest[0]))
    turned = w.unflatten(0, (steps.groups, -1)).transpose(1, 2).flatten(0, 1).flip(2, 3)
    return _convolve(call, apart, turned, bias, steps._replace(stride=(1, 1), padding=(0, 0)))


def _filter_gradient(call: Call, grad: Tensor, x: Tensor, w: Tensor, steps: Steps) -> Tensor:
    """Returns the gradient of w, of a convolution of x whose result has this gradient."""
    columns = unfold(x, w.shape[2:], tuple(steps.dilation), tuple(steps.padding), tuple(steps.stride))  # (n, channels, pixels)
    left = grad.flatten(2).unflatten(1, (steps.groups, -1)).permute(1, 2, 0, 3).flatten(2)
    right = columns.unflatten(1, (steps.groups, -1)).permute(1, 0, 3, 2).flatten(1, 2)
    return multiply(call, left, right).view(w.shape)


def _input_gradient(call: Call, grad: Tensor, x: Tensor, w: Tensor, steps: Steps) -> Tensor:
    """Returns the gradient of x, of a convolution whose result has this gradient."""
    reached = ((out - 1) * step + hole * (taps - 1) + 1 - 2 * less
               for out, taps, step, less, hole in zip(grad.shape[2:], w.shape[2:], *steps[:3]))  # fmt: skip
    return _transpose(call, grad, w, None, steps, [extent - reach for extent, reach in zip(x.shape[2:], reached)])


def _in_two_axes(dims: int, along: Sequence[_Ints], rest: _Ints, groups: int) -> tuple[Steps, _Ints]:
    """Returns the steps and the rest of a convolution, whose operands have this many axes, as if it had rows too.

    along: stride, padding and dilation; one number counts for all axes, as PyTorch passes it for `padding="valid"`.
    """
    if dims not in (3, 4):
        raise OnHost("along three axes")
    one = dims == 3
    each = ([*given] * (dims - 2) if len(given) == 1 else [*given] for given in (*along, rest))
    stride, padding, dilation, rest = ([number] * one + given for number, given in zip((1, 0, 1, 0), each, strict=True))
    return Steps(stride, padding, dilation, groups), rest


class _Layers:
    """A convolution along three axes as one along two: the layers (n, ic, id, …) that a layer of the result reads are channels of
    an image. along: stride, padding and dilation, of three axes each."""

    def __init__(self, x_shape: _Ints, w_shape: _Ints, along: Sequence[_Ints]) -> None:
        self.stride, self.padding, self.dilation = ([*given] * (3 if len(given) == 1 else 1) for given in along)
        self.n, self.channels, self.depth, *self.rest = x_shape
        self.taps = w_shape[2]
        self.results = (self.depth + 2 * self.padding[0] - self.dilation[0] * (self.taps - 1) - 1) // self.stride[0] + 1
        if self.results <= 0:
            raise OnHost("of operands that do not fit each other")
        first = torch.arange(self.results, device="cpu")[:, None] * self.stride[0]
        self.chosen = (first + torch.arange(self.taps, device="cpu") * self.dilation[0]).reshape(-1)

    @property
    def along(self) -> list[list[int]]:
        """Stride, padding and dilation of the other two axes."""
        return [self.stride[1:], self.padding[1:], self.dilation[1:]]

    def images(self, x: Tensor) -> Tensor:
        """Returns the layers that each layer of the result reads, (n · results, ic · taps, …)."""
        around = pad(x, (0, 0, 0, 0, self.padding[0], self.padding[0]))
        found = around[:, :, self.chosen].unflatten(2, (self.results, self.taps))
        return found.transpose(1, 2).flatten(2, 3).flatten(0, 1)

    def sum_images(self, call: Call, images: Tensor) -> Tensor:
        """Returns the sums, for each element of x, of those of its images; the transpose of `images`."""
        parts = images.unflatten(0, (self.n, self.results)).unflatten(2, (self.channels, self.taps)).transpose(1, 2).flatten(2, 3)
        depth = self.depth + 2 * self.padding[0]
        around = torch.zeros(self.n, self.channels, depth, *self.rest, dtype=images.dtype, device=images.device)
        around = INDEXING["aten::index_add"](call, around, 2, self.chosen, parts)
        return around.narrow(2, self.padding[0], self.depth).contiguous()

    def layers(self, y: Tensor) -> Tensor:
        """Returns a result's gradient (n, oc, results, …) as images."""
        return y.transpose(1, 2).flatten(0, 1)

    def from_layers(self, y: Tensor) -> Tensor:
        """Returns the result of images as that of the convolution."""
        return y.unflatten(0, (self.n, self.results)).transpose(1, 2).contiguous()


def _of_images(w: Tensor) -> Tensor:
    """Returns a filter along three axes as the images' one."""
    return w.flatten(1, 2)


def _convolution_of_layers(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, *more: Any) -> Tensor:
    """Computes a convolution along three axes, or a transposed one as the gradient of the input of another."""
    *along, transposed, rest, groups = more
    if not transposed:
        layers = _Layers(x.shape, w.shape, along)
        found = _convolution(call, layers.images(x), _of_images(w), bias, *layers.along, False, (0, 0), groups)
        return layers.from_layers(found)
    stride, padding, dilation, rest = ([*given] * (3 if len(given) == 1 else 1) for given in (*along, rest))
    extents = [(extent - 1) * step - 2 * less + hole * (taps - 1) + more + 1 for extent, step, less, hole, taps, more in zip(
        x.shape[2:], stride, padding, dilation, w.shape[2:], rest)]  # fmt: skip
    like = x.new_empty(x.shape[0], w.shape[1] * groups, *extents)
    found = _gradients_of_layers(call, x, like, w, None, *along, False, rest, groups, (True, False, False))[0]
    return found if bias is None else ELEMENTS["aten::add.Tensor"](call, found, bias.view(-1, 1, 1, 1))


def _gradients_of_layers(
    call: Call, grad: Tensor, x: Tensor, w: Tensor, bias_sizes: _Ints | None, *more: Any
) -> tuple[Tensor | None, ...]:
    """Computes the gradients of a convolution along three axes."""
    *along, transposed, rest, groups, wanted = more
    if transposed:
        back = (*along, False, rest, groups)
        of_x = _convolution_of_layers(call, grad, w, None, *back) if wanted[0] else None
        of_w = _gradients_of_layers(call, x, grad, w, None, *back, (False, True, False))[1] if wanted[1] else None
        columns = grad.movedim(1, -1).reshape(-1, grad.shape[1]).contiguous()
        return of_x, of_w, column_sums(call, columns, grad[0, :, 0, 0, 0]) if wanted[2] else None
    layers = _Layers(x.shape, w.shape, along)
    of_x, of_w, of_bias = _convolution_backward(
        call, layers.layers(grad), layers.images(x), _of_images(w), bias_sizes, *layers.along, False, (0, 0), groups, wanted
    )
    return None if of_x is None else layers.sum_images(call, of_x), None if of_w is None else of_w.view(w.shape), of_bias


def _convolution(call: Call, x: Tensor, w: Tensor, bias: Tensor | None, *more: Any) -> Tensor:
    """Computes a convolution; more: stride, padding, dilation, transposed, output_padding and groups."""
    if x.dim() == 5:
        return _convolution_of_layers(call, x, w, bias, *more)
    *along, transposed, rest, groups = more
    steps, rest = _in_two_axes(x.dim(), along, rest, groups)
    one = x.dim() == 3
    if one:
        x, w = x.unsqueeze(2), w.unsqueeze(2)
    found = _transpose(call, x, w, bias, steps, rest) if transposed else _convolve(call, x, w, bias, steps)
    return found.squeeze(2) if one else found


def _convolution_backward(
    call: Call, grad: Tensor, x: Tensor, w: Tensor, _bias_sizes: _Ints | None, *more: Any
) -> tuple[Tensor | None, ...]:
    """Computes the gradients of x, w and bias; more: as for `_convolution`, then which of them are wanted."""
    if x.dim() == 5:
        return _gradients_of_layers(call, grad, x, w, _bias_sizes, *more)
    *along, transposed, rest, groups, wanted = more
    steps, _ = _in_two_axes(x.dim(), along, rest, groups)
    shapes = x.shape, w.shape
    if x.dim() == 3:
        grad, x, w = grad.unsqueeze(2), x.unsqueeze(2), w.unsqueeze(2)
    found: list[Tensor | None] = [None] * 3
    if wanted[0]:
        of_x = _convolve(call, grad, w, None, steps) if transposed else _input_gradient(call, grad, x, w, steps)
        found[0] = of_x.squeeze(2) if len(shapes[0]) == 3 else of_x
    if wanted[1]:
        found[1] = _filter_gradient(call, *((x, grad) if transposed else (grad, x)), w, steps).view(shapes[1])
    if wanted[2]:
        found[2] = column_sums(call, grad.movedim(1, -1).reshape(-1, grad.shape[1]).contiguous(), grad[0, :, 0, 0])
    return tuple(found)


# By the operator's name in PyTorch's dispatcher.
CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "aten::convolution": _convolution, "aten::convolution_backward": _convolution_backward,
}  # fmt: skip
