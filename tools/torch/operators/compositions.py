"""Operators that PyTorch has no decomposition of, composed of simpler ones, which the simulated GPU computes.

Formulas are those of PyTorch's kernels, in ATen/native. A function that raises OnHost leaves its call to the host. So does any
other error, with a warning if the host then computes the call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators.ctc import CTC
from simgpu.tools.torch.operators.grids import GRIDS
from simgpu.tools.torch.operators.kernels import OnHost

_DIFFERENCES = 1 << 26  # most elements of all pairs' differences
_MEAN, _MAX = 1, 2  # modes of an embedding bag


def _refuse_if(condition: Any, what: str) -> None:
    """Raises OnHost if a condition holds."""
    if condition:
        raise OnHost(what)


def _range(count: int, like: Tensor) -> Tensor:
    return torch.arange(count, device=like.device)


def _counts(places: Tensor, size: int, kind: torch.dtype = torch.int64) -> Tensor:
    """Returns how often each number below size is among places (n)."""
    return torch.zeros(size, dtype=kind, device=places.device).index_add(0, places, torch.ones_like(places, dtype=kind))


def _pairs(x: Tensor, y: Tensor) -> Tensor:
    """Returns the differences of all rows of x (…, m, n) and y (…, k, n), (…, m, k, n)."""
    found = x.unsqueeze(-2) - y.unsqueeze(-3)
    _refuse_if(found.numel() > _DIFFERENCES, "of too many pairs")
    return found


def _cross_entropy(values: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Tensor:
    """Returns `binary_cross_entropy` of chances; of other numbers, the host's error."""
    _refuse_if(bool(((values < 0) | (values > 1) | values.isnan()).any()), "of what is no chance")
    found = (target - 1) * (-values).log1p().clamp(min=-100) - target * values.log().clamp(min=-100)
    found = found if weight is None else found * weight
    return found if reduction == 0 else found.mean() if reduction == 1 else found.sum()


def _distances(x: Tensor, y: Tensor, order: float, mode: int | None) -> Tensor:
    """Returns `cdist`; mode: 1 through a product, 2 never, else for more than 25 rows (ATen/native/Distance.cpp)."""
    if order == 2 and (mode == 1 or (mode in (None, 0) and max(x.shape[-2], y.shape[-2]) > 25)):
        of_x, of_y = ((one * one).sum(-1, keepdim=True) for one in (x, y))
        x, y = torch.cat([-2 * x, of_x, torch.ones_like(of_x)], -1), torch.cat([y, torch.ones_like(of_y), of_y], -1)
        return (x @ y.mT).clamp(min=0).sqrt()
    size = _pairs(x, y).abs()
    if order == 0:
        return (size != 0).sum(-1).to(x.dtype)
    if math.isinf(order):
        return size.amax(-1)
    return size.sum(-1) if order == 1 else size.pow(order).sum(-1).pow(1 / order)


def _distances_gradient(grad: Tensor, x: Tensor, y: Tensor, order: float, distance: Tensor) -> Tensor:
    """Returns the gradient of x (ATen/native/cpu/DistanceOpsKernel.cpp)."""
    difference, distance = _pairs(x, y), distance.unsqueeze(-1)
    size, sign = difference.abs(), difference.sign()
    if order == 0:
        return torch.zeros_like(x)
    if order == 1:
        found = sign
    elif math.isinf(order):
        found = torch.where(size == distance, sign, 0.0)
    else:
        found = sign * size.pow(order - 1) / distance.pow(order - 1)
        found = torch.where((distance == 0) | ((size == 0) & (order < 1)), 0.0, found)
    return (grad.unsqueeze(-1) * found).sum(-2)


def _bags(indices: Tensor, offsets: Tensor) -> Tensor:
    """Returns the bag of each index; offsets: of the bags' first ones."""
    bad = indices.dim() != 1 or int(offsets[0]) or bool((offsets.diff() < 0).any()) or int(offsets[-1]) > len(indices)
    _refuse_if(bad, "of bags that are not consecutive")
    return _counts(offsets, len(indices) + 1).cumsum(0)[:-1] - 1


def _embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the bags' sums, means or largest elements, each index's bag, bags' sizes, and the chosen indices."""
    offsets = (offsets[:-1] if include_last_offset else offsets).long()
    bag, bags = _bags(indices, offsets), len(offsets)
    counted = indices != padding_idx
    rows = weight[indices]
    rows = rows if weight.dtype == torch.float64 else rows.float()
    size = torch.zeros_like(offsets).index_add(0, bag, counted.long())
    if mode == _MAX:
        rows = rows.masked_fill(~counted[:, None], -math.inf)
        found = rows.new_full((bags, rows.shape[1]), -math.inf).index_reduce(0, bag, rows, "amax")
        at = torch.where((rows == found[bag]) & counted[:, None], _range(len(indices), indices)[:, None], len(indices))
        first = at.new_full(found.shape, len(indices)).index_reduce(0, bag, at, "amin")
        chosen = torch.cat([indices.long(), indices.new_zeros(1, dtype=torch.int64)])[first]
        return found.masked_fill((size == 0)[:, None], 0.0).to(weight.dtype), bag, size, chosen
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.to(rows.dtype)[:, None]
    found = rows.new_zeros(bags, rows.shape[1]).index_add(0, bag, rows.masked_fill(~counted[:, None], 0.0))
    if mode == _MEAN:
        found = found / size.clamp(min=1).to(found.dtype)[:, None]
    return found.to(weight.dtype), bag, size, torch.zeros_like(size)


def _embedding_bag_gradient(
    grad: Tensor, indices: Tensor, bag: Tensor, size: Tensor, chosen: Tensor, rows: int, scale_grad_by_freq: bool, mode: int,
    per_sample_weights: Tensor | None = None, padding_idx: int = -1,
) -> Tensor:  # fmt: skip
    """Returns the gradient of the weight."""
    _refuse_if(bag.shape != indices.shape, "of bags that the host described")
    wide = grad if grad.dtype == torch.float64 else grad.float()
    out = wide.new_zeros(rows, grad.shape[1])
    if mode == _MAX:
        filled = wide.masked_fill((size == 0)[:, None], 0.0)
        return out.scatter_add(0, chosen, filled).to(grad.dtype)
    each = wide[bag]
    if mode == _MEAN:
        each = each / size[bag].clamp(min=1).to(each.dtype)[:, None]
    if per_sample_weights is not None:
        each = each * per_sample_weights.to(each.dtype)[:, None]
    if scale_grad_by_freq:
        each = each / _counts(indices, rows)[indices].to(each.dtype)[:, None]
    return out.index_add(0, indices, each.masked_fill((indices == padding_idx)[:, None], 0.0)).to(grad.dtype)


def _bag_gradient(  # type: ignore[no-untyped-def]
    grad, indices, offsets, bag, size, chosen, rows, scale_grad_by_freq, mode, sparse, per_sample_weights, padding_idx=-1
) -> Tensor:
    _refuse_if(sparse, "sparse")
    return _embedding_bag_gradient(
        grad, indices, bag, size, chosen, rows, scale_grad_by_freq, mode, per_sample_weights, padding_idx
    )  # fmt: skip


def _sample_weights_gradient(  # type: ignore[no-untyped-def]
    grad, weight, indices, offsets, bag, mode, padding_idx=-1
) -> Tensor:
    _refuse_if(bag.shape != indices.shape, "of bags that the host described")
    found = (grad[bag] * weight[indices]).sum(-1)
    return found.masked_fill(indices == padding_idx, 0.0)


def _bin_counts(values: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    _refuse_if(values.dim() != 1 or int(values.min()) < 0, "of negative numbers")
    size = max(int(values.max()) + 1, minlength)
    if weights is None:
        return _counts(values.long(), size)
    wide = weights if weights.dtype == torch.float32 else weights.double()
    return torch.zeros(size, dtype=wide.dtype, device=wide.device).index_add(0, values.long(), wide)


def _histogram(values: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """Returns `histc` (ATen/native/cuda/SummaryOps.cu)."""
    if low == high:
        low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 1, high + 1
    flat = values.reshape(-1)
    flat = flat[(flat >= low) & (flat <= high)]
    if not flat.numel():
        return values.new_zeros(bins)
    at = ((flat - low) * bins / (high - low)).long().clamp(max=bins - 1)
    return _counts(at, bins).to(values.dtype)


def _kth(values: Tensor, k: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns the k-th smallest elements along an axis, from 0, and their places."""
    _refuse_if(values.is_floating_point() and bool(values.isnan().any()), "of NaN")
    ordered, places = values.sort(dim=dim, stable=True)
    found = ordered.narrow(dim, k, 1), places.narrow(dim, k, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def _kth_value(values: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    _refuse_if(not values.dim() or not 0 < k <= values.shape[dim], "of a place that is not there")
    return _kth(values, k - 1, dim, keepdim)


def _median_along(values: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    _refuse_if(not values.dim(), "of a number")
    return _kth(values, (values.shape[dim] - 1) // 2, dim, keepdim)


def _median(values: Tensor) -> Tensor:
    return _median_along(values.reshape(-1))[0]


def _different(values: Tensor, with_places: bool, with_counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the elements of a vector that differ from the one before, each element's place among them, and their counts."""
    begins = torch.cat([values.new_ones(1, dtype=torch.bool), values[1:] != values[:-1]])
    found, places = values[begins], begins.cumsum(0) - 1
    none = places.new_empty(0)
    return found, places if with_places else none, _counts(places, len(found)) if with_counts else none


def _unique(
    values: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    ordered, order = values.reshape(-1).sort(stable=True)
    found, places, counts = _different(ordered, return_inverse, return_counts)
    if return_inverse:
        places = torch.empty_like(places).scatter(0, order, places).view(values.shape)
    return found, places, counts


def _unique_consecutive(
    values: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    _refuse_if(dim is not None, "along an axis")
    found, places, counts = _different(values.reshape(-1), return_inverse, return_counts)
    return found, places.view(values.shape) if return_inverse else places, counts


def _margin_gradient(  # type: ignore[no-untyped-def]
    grad, values, target, p, margin, weight=None, reduction=1
) -> Tensor:
    """Returns the gradient of `multi_margin_loss` (ATen/native/LossMultiMargin.cpp)."""
    rows, chosen = values.reshape(-1, values.shape[-1]), target.reshape(-1)
    away = margin - rows.gather(1, chosen[:, None]) + rows
    other = _range(rows.shape[1], rows) != chosen[:, None]
    each = torch.where((away > 0) & other, 1.0 if p == 1 else 2 * away, 0.0).to(rows.dtype) / rows.shape[1]
    each = each if weight is None else each * weight[chosen][:, None]
    each = torch.where(other, each, -each.sum(1, keepdim=True))
    each = each / len(rows) if reduction == 1 else each
    return (each * (grad.reshape(-1, 1) if grad.dim() else grad)).view(values.shape)


def _edges_gradient(grad: Tensor, values: Tensor, padding: Sequence[int]) -> Tensor:
    """Returns the gradient of a padding by the outermost elements."""
    for at, axis in enumerate(range(values.dim() - 1, values.dim() - 1 - len(padding) // 2, -1)):
        extent, before = values.shape[axis], padding[2 * at]
        chosen = (_range(grad.shape[axis], grad) - before).clamp(0, extent - 1)
        inside = [extent if one == axis else length for one, length in enumerate(grad.shape)]
        grad = grad.new_zeros(inside).index_add(axis, chosen, grad)
    return grad


def _weight_norm_gradient(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Returns the gradients of v and g (ATen/native/WeightNorm.cpp)."""
    axes = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    norms = norms.to(v.dtype).view(g.shape)
    sums = (grad * v).sum(axes, keepdim=True).view(g.shape)
    return g / norms * (grad - v * (sums / (norms * norms))), sums / norms


def _unscale(tensors: Sequence[Tensor], found: Tensor, scale: Tensor) -> None:
    """Multiplies gradients in place; found becomes 1 if one is infinite or NaN (ATen/native/cuda/AmpKernels.cu)."""
    for one in tensors:
        if not bool(one.isfinite().all()):
            found.fill_(1.0)
        one.mul_(scale.to(one.dtype))


def _update_scale(  # type: ignore[no-untyped-def]
    scale, tracker, found, growth_factor, backoff_factor, growth_interval
) -> Tensor:
    if bool(found):
        scale.mul_(backoff_factor)
        tracker.zero_()
    elif int(tracker) + 1 == growth_interval:
        grown = scale * growth_factor
        scale.copy_(torch.where(grown.isfinite(), grown, scale))
        tracker.zero_()
    else:
        tracker.add_(1)
    return scale  # type: ignore[no-any-return]


# By the operator's name in PyTorch's dispatcher: of plain overloads.
COMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten::_is_all_true": lambda values: values.all(), "aten::_is_any_true": lambda values: values.any(),
    "aten::binary_cross_entropy": _cross_entropy,
    "aten::_cdist_forward": _distances, "aten::_cdist_backward": _distances_gradient,
    "aten::_embedding_bag": _embedding_bag, "aten::_embedding_bag_forward_only": _embedding_bag,
    "aten::_embedding_bag_backward": _bag_gradient, "aten::_embedding_bag_dense_backward": _embedding_bag_gradient,
    "aten::_embedding_bag_per_sample_weights_backward": _sample_weights_gradient,
    "aten::bincount": _bin_counts, "aten::histc": _histogram,
    "aten::kthvalue": _kth_value, "aten::median": _median, "aten::median.dim": _median_along,
    "aten::_unique2": _unique, "aten::unique_consecutive": _unique_consecutive,
    "aten::multi_margin_loss_backward": _margin_gradient, "aten::_weight_norm_interface_backward": _weight_norm_gradient,
    **{f"aten::replication_pad{axes}d_backward": _edges_gradient for axes in (1, 2, 3)},
    **GRIDS, **CTC,
}  # fmt: skip

# The same, of operators that change their arguments.
IN_PLACE: dict[str, Callable[..., Any]] = {
    "aten::_amp_foreach_non_finite_check_and_unscale_": _unscale, "aten::_amp_update_scale_": _update_scale,
}  # fmt: skip
