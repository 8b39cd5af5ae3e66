"""Tensors as numpy arrays, and nested arguments of a module as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

# PyTorch's types that numpy lacks, by ml_dtypes' names, and a type of the same width that both have.
_SAME_WIDTH = {
    torch.bfloat16: ("bfloat16", torch.int16),
    **{getattr(torch, name): (name, torch.uint8) for name in dir(torch) if name.startswith("float8_e") if hasattr(ml_dtypes, name)},
}


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """Returns a copy of a tensor's elements, in C order."""
    with torch._C.DisableTorchFunction():  # a pretended GPU's tensor has no numpy()
        plain = tensor.detach().contiguous()
        name, same = _SAME_WIDTH.get(tensor.dtype, ("", None))
        if same is None:
            return np.array(plain.numpy())
        return np.array(plain.view(same).numpy()).view(np.dtype(getattr(ml_dtypes, name)))


def to_tensor(array: np.ndarray) -> torch.Tensor:
    """Returns a tensor with a copy of an array's elements."""
    name = array.dtype.name
    found = [(kind, same) for kind, (theirs, same) in _SAME_WIDTH.items() if theirs == name]
    copied = np.array(array, order="C")
    if not found:
        return torch.from_numpy(copied)
    kind, same = found[0]
    return torch.from_numpy(copied.view(np.int16 if same is torch.int16 else np.uint8)).view(kind)


def pack(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Returns a nested argument for JSON; its tensors are appended, and referred to by number. Raises TypeError for others."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [pack(one, tensors) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[pack(name, tensors), pack(one, tensors)] for name, one in value.items()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"an argument of type {type(value).__name__}: use tensors, numbers, text, lists and dictionaries")


def unpack(packed: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Reverses `pack`."""
    ((form, inside),) = packed.items()
    match form:
        case "tensor":
            return tensors[inside]
        case "dtype":
            return getattr(torch, inside)
        case "list":
            return [unpack(one, tensors) for one in inside]
        case "tuple":
            return tuple(unpack(one, tensors) for one in inside)
        case "dict":
            return {unpack(name, tensors): unpack(one, tensors) for name, one in inside}
    return inside


def flatten(result: Any) -> list[Any]:
    """Returns the results of a module in order: one tensor, or those of nested lists, tuples and dictionaries."""
    if isinstance(result, (list, tuple)):
        return [one for each in result for one in flatten(each)]
    if isinstance(result, dict):
        return [one for each in result.values() for one in flatten(each)]
    return [result]
