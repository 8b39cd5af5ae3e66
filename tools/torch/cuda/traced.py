"""Tensors of PyTorch's tracers report the places that the program's tensors would have.

PyTorch's C++ sees the CPU: it would end the process if a tensor on a device that it was not built for needs a gradient.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

_GPU = "cuda"
_CPU = torch.device("cpu")
_ASKED = torch.ops.prim.device.default  # PyTorch's C++ calls it for the device of a tensor
_dispatch = vars(FakeTensor)["__torch_dispatch__"].__func__
_dispatch_in_mode = FakeTensorMode.__torch_dispatch__
_common: Any = FakeTensor._find_common_device
_converted = FakeTensorConverter.from_real_tensor


def tracing() -> bool:
    """True while a tracer replaces new tensors by its own, on the pretended GPU."""
    return any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack())


def is_property(func: Callable[..., Any], args: Sequence[Any]) -> bool:
    """True for a property of a tracer's tensor, which Inductor asks for thousands of times."""
    return getattr(func, "__name__", None) == "__get__" and isinstance(args[0], FakeTensor)


def _reporting(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a tracer's `__torch_dispatch__` that answers PyTorch's C++ with the CPU where the device is a GPU."""

    def report(owner: Any, func: Any, *args: Any, **options: Any) -> Any:
        result = dispatch(owner, func, *args, **options)
        return _CPU if func is _ASKED and result.type == _GPU else result

    return report


def _of_all(func: Any, flat_args: Sequence[Any]) -> tuple[torch.device, bool]:
    """Device of an operator's result: the arguments' only GPU, even if C++ made other arguments on the CPU, as under Dynamo."""
    try:
        return _common(func, flat_args)
    except RuntimeError:
        found = {value.fake_device for value in flat_args if isinstance(value, FakeTensor)} - {_CPU}
        if len(found) != 1:
            raise
        return found.pop(), False


class OnGpu(TorchDispatchMode):
    """Puts on a GPU what a function's own steps put on the CPU, as which PyTorch's C++, and Python that it calls, see that GPU."""

    supports_higher_order_operators = True

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Calls an operator."""
        given = dict(kwargs or {})
        return func(*args, **(given | {"device": self._device} if given.get("device") == _CPU else given))


@contextlib.contextmanager
def lying_where_they_would(pretended: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Puts tracers' tensors on the pretended GPUs for a block; `pretended` shows those while a real tensor is converted."""
    def convert_pretended(*args: Any, **options: Any) -> FakeTensor:
        with pretended():
            return _converted(*args, **options)

    with contextlib.ExitStack() as stack:
        for owner, name, function in (
            (FakeTensor, "_find_common_device", staticmethod(_of_all)),
            (FakeTensorMode, "avoid_device_init", True),  # builds with CUDA would move a list's numbers to a GPU
            (FakeTensor, "__torch_dispatch__", classmethod(_reporting(_dispatch))),
            (FakeTensorMode, "__torch_dispatch__", _reporting(_dispatch_in_mode)),
            (FakeTensorConverter, "from_real_tensor", convert_pretended),
        ):
            stack.enter_context(mock.patch.object(owner, name, function))
        yield
