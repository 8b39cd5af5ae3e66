"""PyTorch's `grid_sample` in two and three axes and its gradients, composed of gathers and sums (ATen/native/GridSampler.h)."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simgpu.tools.torch.operators.kernels import OnHost
from simgpu.tools.torch.operators.norms import wide

_LINEAR, _NEAREST = 0, 1  # interpolations
_BORDER, _REFLECTION = 1, 2  # paddings; 0: zeros


class _AxisPlaces(NamedTuple):
    """Places along an axis, in elements, and their derivatives by the grid's coordinate."""

    at: Tensor
    slope: Tensor


def _clip(places: _AxisPlaces, extent: int) -> _AxisPlaces:
    inside = (places.at > 0) & (places.at < extent - 1)
    return _AxisPlaces(places.at.clamp(0, extent - 1), torch.where(inside, places.slope, 0.0))


def _reflect(places: _AxisPlaces, low: int, high: int) -> _AxisPlaces:
    """Reflects places at two borders; low, high: twice the borders."""
    if low == high:
        return _AxisPlaces(torch.zeros_like(places.at), torch.zeros_like(places.slope))
    least, span = low / 2, (high - low) / 2
    away = places.at - least
    slope = torch.where(away < 0, -places.slope, places.slope)
    away = away.abs()
    rest, odd = away.fmod(span), (away / span).floor() % 2 == 1
    return _AxisPlaces(torch.where(odd, span - rest, rest) + least, torch.where(odd, -slope, slope))


def _places(coordinates: Tensor, extent: int, padding: int, align: bool) -> _AxisPlaces:
    """Returns the places of coordinates from -1 to 1 along an axis."""
    factor = (extent - 1 if align else extent) / 2
    at = (coordinates + 1) * factor if align else ((coordinates + 1) * extent - 1) / 2
    found = _AxisPlaces(at, torch.full_like(at, factor))
    if padding == _BORDER:
        return _clip(found, extent)
    if padding == _REFLECTION:
        return _clip(_reflect(found, *((0, 2 * (extent - 1)) if align else (-1, 2 * extent - 1))), extent)
    return found


class _Corners:
    """Elements around each place of a grid (n, …, axes), of values (n, channels, …)."""

    def __init__(self, values: Tensor, grid: Tensor, padding: int, align: bool) -> None:
        self.values, self.extents, self.outer = values, values.shape[2:], grid.shape[1:-1]
        axes = len(self.extents)
        flat = grid.flatten(1, -2).unbind(-1)
        # The last coordinate is that of the first axis.
        self.places = [_places(flat[axes - 1 - axis], self.extents[axis], padding, align) for axis in range(axes)]

    def find(self, mode: int) -> Iterator[tuple[tuple[int, ...], Tensor, Tensor, list[Tensor]]]:
        """Yields, for each corner, its sides (0 or 1), its element's place in a volume, whether it is inside, and its weights by
        axis; places outside are 0."""
        lows = [one.at.round() if mode == _NEAREST else one.at.floor() for one in self.places]
        for sides in itertools.product((0, 1) if mode == _LINEAR else (0,), repeat=len(lows)):
            flat, inside, weights = torch.zeros_like(lows[0], dtype=torch.int64), torch.ones_like(lows[0], dtype=torch.bool), []
            for side, low, place, extent in zip(sides, lows, self.places, self.extents):
                at = low + side
                inside = inside & (at >= 0) & (at <= extent - 1)
                flat = flat * extent + torch.where((at >= 0) & (at <= extent - 1), at, 0.0).long()
                part = place.at - low
                weights.append(torch.ones_like(part) if mode == _NEAREST else part if side else 1 - part)
            yield sides, flat, inside, weights

    def take(self, flat: Tensor, inside: Tensor) -> Tensor:
        """Returns elements (n, channels, places), 0 outside."""
        volume = self.values.flatten(2)
        found = volume.gather(2, flat[:, None].expand(-1, volume.shape[1], -1))
        return torch.where(inside[:, None], found, 0.0)


def _check(values: Tensor, grid: Tensor, mode: int) -> None:
    if mode not in (_LINEAR, _NEAREST) or values.dtype != grid.dtype or not bool(grid.isfinite().all()):
        raise OnHost("of cubic interpolation, two types, or coordinates that are not finite")


def _sample(values: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    _check(values, grid, mode)
    corners = _Corners(wide(values), wide(grid), padding, align)
    found = None
    for _, flat, inside, weights in corners.find(mode):
        each = corners.take(flat, inside) * functools.reduce(torch.mul, weights)[:, None]
        found = each if found is None else found + each
    return found.view(*values.shape[:2], *corners.outer).to(values.dtype)  # type: ignore[union-attr]


def _gradient(
    grad: Tensor, values: Tensor, grid: Tensor, mode: int, padding: int, align: bool, wanted: tuple[bool, bool] | list[bool]
) -> tuple[Tensor | None, Tensor]:
    """Returns the gradients of the values and of the grid."""
    _check(values, grid, mode)
    corners, each = _Corners(wide(values), wide(grid), padding, align), wide(grad).flatten(2)
    volume = torch.zeros_like(corners.values.flatten(2))
    slopes = [torch.zeros_like(one.at) for one in corners.places]
    for sides, flat, inside, weights in corners.find(mode):
        if wanted[0]:
            part = torch.where(inside[:, None], each * functools.reduce(torch.mul, weights)[:, None], 0.0)
            volume = volume.scatter_add(2, flat[:, None].expand(part.shape), part)
        if wanted[1] and mode == _LINEAR:
            along = (each * corners.take(flat, inside)).sum(1)
            for axis, side in enumerate(sides):
                others = functools.reduce(torch.mul, [one for at, one in enumerate(weights) if at != axis])
                slopes[axis] = slopes[axis] + (along * others if side else -along * others)
    of_grid = torch.stack([slope * one.slope for slope, one in zip(slopes[::-1], corners.places[::-1])], -1)
    of_values = volume.view(values.shape).to(values.dtype) if wanted[0] else None
    return of_values, of_grid.view(grid.shape).to(grid.dtype)


# By the operator's name in PyTorch's dispatcher.
GRIDS: dict[str, Callable[..., Any]] = {
    f"aten::grid_sampler_{axes}d{back}": function for axes in (2, 3) for back, function in (("", _sample), ("_backward", _gradient))
}
