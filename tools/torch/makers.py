"""Functions that make tensors unseen by torch function modes, so that the tensors would count as the GPU's."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from simgpu.tools.torch import dlpack
from simgpu.tools.torch.on_host import gpu_named, on_host
from simgpu.tools.torch.places import (
    GPU,
    HOST,
    Place,
    common,
    current_place,
    device_at,
    mark,
    mark_new,
    on_gpu,
    place_of,
    tensors_in,
    wraps,
)
from simgpu.triton.tensors import plain_torch

_host_range, _from_numpy, _make_nested = torch.range, torch.from_numpy, torch.nested.nested_tensor
_set_default, _impl = torch.set_default_tensor_type, torch.library.Library.impl


def _host_from_numpy(array: Any) -> torch.Tensor:
    """Replaces `torch.from_numpy`: returns a host tensor."""
    return mark(_from_numpy(array), HOST)


def _nested_tensor(tensors: Any, *, device: Any = None, layout: Any = None, **options: Any) -> torch.Tensor:
    """Replaces `torch.nested.nested_tensor`, which makes strided ones without a torch function mode."""
    if layout is torch.jagged:
        return _make_nested(tensors, device=device, layout=layout, **options)
    made = _make_nested(tensors, device=on_host(device), **options)
    mark_new((made,), gpu_named(device) or (HOST if device else common((tensors,))))
    return made


def _with_marks(call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a call of a scripted function or module: new tensors are the host's if its arguments, or its parameters, are."""

    @functools.wraps(call)
    def run(script: Any, *args: Any, **options: Any) -> Any:
        result = call(script, *args, **options)
        given = [*tensors_in((*args, *options.values())), *getattr(script, "parameters", tuple)()]
        if given and common(given) == HOST:
            mark_new((result,), HOST)
        return result

    return run


def _range(*args: Any, device: Any = None, **options: Any) -> torch.Tensor:
    """Replaces `torch.range`, the only function that makes tensors without a torch function mode."""
    made = mark(_host_range(*args, **options), HOST)
    return made if device is None else made.to(device)


class LegacyType(type):
    """Class of `torch.FloatTensor`, `torch.cuda.FloatTensor` and the like, which make a tensor at the place that they name."""

    own: Any  # PyTorch's object, for the CPU
    place: Place

    def __call__(cls, *args: Any, **options: Any) -> Any:
        made = cls.own(*args, **options)
        if not any(True for _ in tensors_in(args)):
            mark_new((made,), current_place() if cls.place == GPU else cls.place)
        return made

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.own) and on_gpu(place_of(value)) == on_gpu(cls.place)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.own, name)


def _legacy_types(place: Place, prefix: str) -> dict[str, LegacyType]:
    """Returns the legacy types of tensors at a place, by name."""
    kinds = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")
    names = {f"{kind}Tensor": getattr(torch, f"{kind}Tensor") for kind in kinds}
    return {name: LegacyType(name, (), {"own": own, "place": place, "__module__": prefix}) for name, own in names.items()}


# By name below `torch`.
ANSWERS: dict[str, Any] = {f"cuda.{name}": kind for name, kind in _legacy_types(GPU, "torch.cuda").items()}


def _set_default_type(kind: Any) -> None:
    """Replaces `torch.set_default_tensor_type`: the type is the CPU's, wherever tensors of a legacy type are."""
    named = getattr(torch, kind.rpartition(".")[2]) if isinstance(kind, str) else kind
    _set_default(named.own if isinstance(named, LegacyType) else named)


def _note_host(tensor: torch.Tensor, *args: Any, **options: Any) -> None:
    """Replaces the initializer of `torch.Tensor`, by which a program makes a tensor of numbers or sizes in host memory, of a class
    of its own too."""
    if not wraps(tensor) and not any(True for _ in tensors_in((*args, *options.values()))):
        mark_new((tensor,), HOST)


def _to_gpu(tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, **layout: Any) -> torch.Tensor:
    """Replaces `Tensor.cuda`, for which PyTorch's C++ looks for a GPU."""
    return tensor.to(device_at(gpu_named(device) or GPU), non_blocking=non_blocking, **layout)


def _for_cuda(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns the kernel for the CUDA key of an operator that makes a tensor without numbers."""

    def kernel(*sizes: Any, device: Any = None, pin_memory: Any = None, **options: Any) -> torch.Tensor:
        with plain_torch():
            return mark(make(*sizes, **options), gpu_named(device) or current_place())

    return kernel


@contextlib.contextmanager
def kernels_of_cuda() -> Iterator[None]:
    """Registers kernels of the CUDA key for a block: where no torch function mode sees it, PyTorch makes a GPU's tensor by them.

    All of its functions that make tensors call one of these two operators.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # builds with CUDA have such kernels, which need a GPU
            _impl(library, "empty.memory_format", _for_cuda(torch.empty), "CUDA", allow_override=True)
            _impl(library, "empty_strided", _for_cuda(torch.empty_strided), "CUDA", allow_override=True)
        yield
    finally:
        del library  # it withdraws its kernels when nothing refers to it: no traceback of an error may


# (owner, name, replacement)
MAKERS: tuple[tuple[Any, str, Any], ...] = (
    (torch, "from_numpy", _host_from_numpy), (torch, "range", _range), (torch.nested, "nested_tensor", _nested_tensor),
    *dlpack.REPLACEMENTS,
    *((kind, "__call__", _with_marks(kind.__call__)) for kind in (torch.jit.ScriptFunction, torch.jit.ScriptModule)),
    (torch.Tensor, "__init__", _note_host), (torch.Tensor, "cuda", _to_gpu), (torch, "set_default_tensor_type", _set_default_type),
    *((torch, name, kind) for name, kind in _legacy_types(HOST, "torch").items()),
)  # fmt: skip
