"""`torch.cuda.comm`: copies to several GPUs at once, and from them, as `torch.nn.DataParallel` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.cuda.devices import index_of


def _device_at(device: Any) -> torch.device:
    """Returns the device that is meant by a number, a name or itself: a GPU, or the host for -1 or "cpu"."""
    on_host = device == -1 or (not isinstance(device, int) and torch.device(device).type == "cpu")
    return torch.device("cpu") if on_host else torch.device("cuda", index_of(device))


def _refuse_both(devices: Any, out: Any) -> None:
    if (devices is None) == (out is None):
        raise RuntimeError(f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and out={out}")


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None) -> Any:
    """Answers `torch.cuda.comm.broadcast`: copies a tensor to GPUs, or into the tensors of `out`."""
    _refuse_both(devices, out)
    if devices is not None:
        return [tensor.to(_device_at(device)) for device in devices]
    return [one.copy_(tensor) for one in out or ()]


def broadcast_all(tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 0) -> list[list[Tensor]]:
    """Answers `torch.cuda.comm.broadcast_coalesced`: copies tensors to GPUs."""
    return [[tensor.to(_device_at(device)) for tensor in tensors] for device in devices]


def scatter(
    tensor: Tensor, devices: Sequence[Any] | None = None, chunk_sizes: Sequence[int] | None = None, dim: int = 0,
    streams: object = None, *, out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Answers `torch.cuda.comm.scatter`: copies parts of a tensor to GPUs, or into the tensors of `out`."""
    _refuse_both(devices, out)
    if devices is None:
        targets = out or ()
        parts = tensor.split([one.shape[dim] for one in targets], dim)
        return tuple(one.copy_(part) for one, part in zip(targets, parts, strict=True))
    parts = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(_device_at(device)) for part, device in zip(parts, devices))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Answers `torch.cuda.comm.gather`: joins tensors on one GPU, by default the current one, or in `out`."""
    if out is None:
        there = torch.device("cuda", index_of()) if destination is None else _device_at(destination)
        return torch.cat([tensor.to(there) for tensor in tensors], dim)
    if destination is not None:
        raise RuntimeError(f"'destination' must not be specified when 'out' is specified, but got destination={destination}")
    return out.copy_(torch.cat([tensor.to(out.device) for tensor in tensors], dim))


_BY_NAME = {"broadcast": broadcast, "broadcast_coalesced": broadcast_all, "scatter": scatter, "gather": gather}
ANSWERS: dict[str, Any] = {
    f"{module}.comm.{name}": answer for name, answer in _BY_NAME.items() for module in ("cuda", "nn.parallel")
}  # fmt: skip
