"""PyTorch's linear and cubic interpolation and their gradients, by a Triton kernel of weighted sums along one axis after another.

An axis is a matrix, (result, extent), of the weights that ATen/native/UpSample.h gives; its transpose is the gradient's.
Elements whose weight is 0 are not read, so infinities and NaN reach only results that they have a weight in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators import index_sources as sources
from simgpu.tools.torch.operators.element_sources import BLOCK
from simgpu.tools.torch.operators.kernels import FLOATS, Call, OnHost, serve
from simgpu.tools.torch.operators.pooling import in_layout

_CUBIC = -0.75  # coefficient of cubic convolution, as in ATen/native/UpSample.h


def _places(extent: int, result: int, scale: float | None, align: bool) -> Tensor:
    """Returns the place of each element of the result along an axis (area_pixel_compute_source_index, not clamped)."""
    at = torch.arange(result, dtype=torch.float32, device="cpu")
    if align:
        return at * ((extent - 1) / (result - 1) if result > 1 else 0.0)
    return (at + 0.5) * (1 / scale if scale else extent / result) - 0.5


def _linear(places: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first of the elements around each place, and their weights."""
    places = places.clamp(min=0)
    part = places - places.floor()
    return places.floor(), torch.stack([1 - part, part], 1)


def _cubic(places: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the first of the four elements around each place, and their weights (get_cubic_upsample_coefficients)."""

    def near(x: Tensor) -> Tensor:
        return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((_CUBIC * x - 5 * _CUBIC) * x + 8 * _CUBIC) * x - 4 * _CUBIC

    part = places - places.floor()
    return places.floor() - 1, torch.stack([far(part + 1), near(part), near(1 - part), far(2 - part)], 1)


def _matrix(extent: int, first: Tensor, weights: Tensor) -> Tensor:
    """Returns an axis: weights of elements outside count for the nearest one inside."""
    at = (first.long()[:, None] + torch.arange(weights.shape[1], device="cpu")).clamp(0, extent - 1)
    return torch.zeros(len(first), extent, device="cpu").scatter_add(1, at, weights)


def _apply(call: Call, values: Tensor, axis: int, matrix: Tensor, kind: torch.dtype) -> Tensor:
    """Returns a tensor whose axis is multiplied by a matrix, of which only the weights that are not 0 are used."""
    used = matrix != 0
    order = used.to(torch.int8).argsort(stable=True, dim=1, descending=True)[:, : max(1, int(used.sum(1).max()))].contiguous()
    shape, inner = list(values.shape), math.prod(values.shape[axis + 1 :])
    shape[axis] = len(matrix)
    out = values.new_empty(shape, dtype=kind)
    call.run(
        sources.weighted_sums, (-(-out.numel() // BLOCK),), values.contiguous(), order.to(torch.int32), matrix.gather(1, order),
        out, out.numel(), values.shape[axis], shape[axis], inner, order.shape[1], constants=(BLOCK,),
    )  # fmt: skip
    return out


def _check_axes(values: Tensor, axes: int) -> None:
    """Raises OnHost unless a tensor has this many axes after two others."""
    serve(values, *FLOATS)
    if values.dim() != axes + 2:
        raise OnHost("of other axes")


def _along(call: Call, values: Tensor, matrices: Sequence[Tensor]) -> Tensor:
    """Returns a tensor whose last axes are multiplied by matrices, computed in f32 and rounded once."""
    found = values
    for before, matrix in enumerate(reversed(matrices), 1):
        last = before == len(matrices)
        found = _apply(call, found, values.dim() - before, matrix, values.dtype if last else torch.float32)
    return in_layout(found, values)


def _interpolation(axes: int, weigh: Callable[[Tensor], tuple[Tensor, Tensor]]) -> dict[bool, Callable[..., Tensor]]:
    """Returns an operator on this many axes, False: itself, True: its gradient."""

    def matrices(extents: Sequence[int], size: Sequence[int], align: bool, scales: Sequence[float | None]) -> list[Tensor]:
        given = zip(extents, size, scales or (None,) * axes)
        return [_matrix(extent, *weigh(_places(extent, result, scale, align))) for extent, result, scale in given]

    def interpolate(call: Call, values: Tensor, size: Sequence[int], align: bool, *scales: float | None) -> Tensor:
        _check_axes(values, axes)
        return _along(call, values, matrices(values.shape[2:], size, align, scales))

    def gradient(
        call: Call, grad: Tensor, size: Sequence[int], shape: Sequence[int], align: bool, *scales: float | None
    ) -> Tensor:  # fmt: skip
        _check_axes(grad, axes)
        return _along(call, grad, [one.t().contiguous() for one in matrices(shape[2:], size, align, scales)])

    return {False: interpolate, True: gradient}


# By the operator's name in PyTorch's dispatcher.
INTERPOLATION: dict[str, Callable[..., Any]] = {
    f"aten::upsample_{name}{'_backward' if back else ''}": function
    for name, axes, weigh in (
        ("linear1d", 1, _linear), ("bilinear2d", 2, _linear), ("trilinear3d", 3, _linear), ("bicubic2d", 2, _cubic),
    )
    for back, function in _interpolation(axes, weigh).items()
}
