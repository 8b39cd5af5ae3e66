"""PyTorch's GPUs as the CPU, for programs and test suites that use "cuda" or "hip".

Tensors that are made on a GPU or moved to one stay in host memory, where simulated kernels find them, and report "cuda:0", or
another GPU. So do results of functions with such an argument. Tensors of the CPU report it, and kernels refuse them. Moves
copy, as between a host and a GPU.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, has_torch_function

from simgpu.tools.torch import dlpack
from simgpu.tools.torch.cuda import autocast, estimates, memory, traced
from simgpu.tools.torch.cuda.generators import GpuGenerator
from simgpu.tools.torch.operators.on_gpus import INSTEAD
from simgpu.tools.torch.operators.registered import OVERLOAD, KernelsOfTheGpu, kernels_of_the_gpu
from simgpu.tools.torch.places import (
    GPU,
    HOST,
    PINNED,
    Place,
    common,
    current_place,
    device_at,
    gpu,
    mark,
    mark_of,
    on_gpu,
    place_of,
    storage_of,
    tensors_in,
    wraps,
)  # fmt: skip
from simgpu.triton.driver import active_driver

with torch.device("meta"):
    _DefaultDevice = type(_get_current_function_mode_stack()[-1])  # PyTorch's mode of a chosen device
_GPUS = ("cuda", "hip")
_CPU = torch.device("cpu")


# Functions that make tensors on the chosen device.
_CONSTRUCTORS = frozenset((
    torch.empty, torch.empty_permuted, torch.empty_strided, torch.empty_quantized, torch.ones, torch.arange, torch.eye, torch.full,
    torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window, torch.kaiser_window,
    torch.fft.fftfreq, torch.fft.rfftfreq, torch.linspace, torch.logspace, torch.rand, torch.randn, torch.randint, torch.randperm,
    torch.range, torch.sparse_coo_tensor, torch.sparse_compressed_tensor, torch.sparse_csr_tensor, torch.sparse_csc_tensor,
    torch.sparse_bsr_tensor, torch.sparse_bsc_tensor, torch.tril_indices, torch.triu_indices, torch.zeros, torch.asarray,
    torch.tensor, torch.as_tensor, torch.scalar_tensor,
))  # fmt: skip


def is_gpu(value: Any) -> bool:
    """True if a value is a GPU's device, or a string that names one."""
    return (isinstance(value, str) and value.partition(":")[0] in _GPUS) or (
        isinstance(value, torch.device) and value.type in _GPUS
    )


def on_host(value: Any) -> Any:
    """Moves a device, or a string that names one, to the CPU, and a GPU's generator to its engine there; returns anything else
    unchanged."""
    if isinstance(value, GpuGenerator):
        return value.engine
    return ("cpu" if isinstance(value, str) else _CPU) if is_gpu(value) else value


def gpu_named(value: Any) -> Place | None:
    """GPU that a device, a string or a number names; without a number, this thread's; None if the value names none.

    Raises RuntimeError if no GPU has that number.
    """
    if type(value) is int:
        index: int | None = value
    elif is_gpu(value):
        index = (torch.device(value) if isinstance(value, str) else value).index
    else:
        return None
    session = active_driver().session
    if index is not None and not 0 <= index < len(session.gpus):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: cuda:{index} was asked for, and the number of GPUs of {session.name} is "
            f"{len(session.gpus)}; SIMGPU={session.board}:{max(2, index + 1)} would have it"
        )
    return current_place() if index is None else gpu(index)


def _is_host(value: Any) -> bool:
    return (isinstance(value, str) and value.partition(":")[0] == "cpu") or (isinstance(value, torch.device) and value == _CPU)


def _device(tensor: torch.Tensor) -> torch.device:
    truth = tensor.device
    return device_at(place_of(tensor)) if truth == _CPU and on_gpu(place_of(tensor)) else truth


def _repr(tensor: torch.Tensor, **options: Any) -> str:
    """Replaces `repr`, in which PyTorch asks the tensor for its device."""
    with pretend_gpu():  # without the tensor's class's own functions, as PyTorch does it
        return torch.Tensor.__torch_function__(torch._tensor_str._str, (), (tensor,), options)


def _format(tensor: torch.Tensor, spec: str) -> str:
    """Replaces `format`: a number's own, for other tensors `repr`."""
    if tensor.dim() == 0:
        return tensor.__format__(spec)
    with pretend_gpu():
        return object.__format__(tensor, spec)


def _numpy(tensor: torch.Tensor, *, force: bool = False) -> Any:
    """Replaces `Tensor.numpy`: TypeError for a tensor that was made on the GPU or moved there; a copy if it is forced."""
    place = mark_of(tensor)
    if place is None or not on_gpu(place):
        return tensor.numpy(force=force)
    if force:
        return tensor.detach().clone().numpy(force=True)
    raise TypeError(
        f"can't convert {device_at(place)} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
    )


def _interface(tensor: torch.Tensor) -> dict[str, Any]:
    """Array interface for cupy and numba: a tensor's memory on the host; AttributeError for the host's tensors."""
    if not on_gpu(place_of(tensor)):
        return tensor.__cuda_array_interface__
    told = tensor.detach().numpy().__array_interface__
    return {"version": 2, **{name: told[name] for name in ("typestr", "shape", "strides", "data")}}


def _type(tensor: torch.Tensor, dtype: Any = None, *args: Any, **options: Any) -> Any:
    """Replaces `Tensor.type`: returns the name of a legacy type, the GPU's, or converts the tensor."""
    if dtype is not None:
        name = f"{dtype.__module__}.{dtype.__name__}" if isinstance(dtype, type) else f"{dtype}"  # `torch.cuda.FloatTensor`
        place = current_place() if name.startswith("torch.cuda.") else HOST if name.endswith("Tensor") else None
        converted = tensor.type(name.replace(".cuda", "") if place else dtype, *args, **options)
        return converted if place in (None, mark_of(converted)) else _copy(converted.clone(), tensor, place)
    name = tensor.type()
    return name.replace("torch.", "torch.cuda.", 1) if on_gpu(place_of(tensor)) else name


def _array(tensor: torch.Tensor, dtype: Any = None) -> Any:
    """Replaces the call in `numpy.asarray`."""
    array = _numpy(tensor)
    return array if dtype is None else array.astype(dtype, copy=False)


# Properties that depend on no place, and are no tensors: PyTorch's own answers.
_PLACELESS = (
    *(getattr(torch.Tensor, name).__get__ for name in (
        "dtype", "shape", "ndim", "layout", "requires_grad", "is_leaf", "itemsize", "nbytes", "is_sparse", "is_meta",
    )),
    *(getattr(torch.Tensor, name) for name in (
        "size", "stride", "dim", "numel", "element_size", "storage_offset", "data_ptr", "untyped_storage", "is_contiguous",
        "is_floating_point", "is_complex",
    )),
    torch.is_floating_point, torch.is_complex, torch.numel,
)  # fmt: skip
# What a tensor's properties answer, and such functions.
_ANSWERS: dict[Any, Callable[..., Any]] = {
    **{func: func for func in _PLACELESS},
    torch.Tensor.device.__get__: _device,
    torch.Tensor.is_cuda.__get__: lambda tensor: on_gpu(place_of(tensor)),
    torch.Tensor.is_cpu.__get__: lambda tensor: not on_gpu(place_of(tensor)),
    torch.Tensor.get_device: lambda tensor: device_at(place_of(tensor)).index if on_gpu(place_of(tensor)) else -1,
    torch.Tensor.__repr__: _repr,
    torch.Tensor.__format__: _format,
    torch.Tensor.numpy: _numpy,
    torch.Tensor.__array__: _array,
    torch.Tensor.type: _type,
    torch.Tensor.__cuda_array_interface__.__get__: _interface,
    torch.Tensor.__dlpack__: dlpack.capsule_of, torch.Tensor.__dlpack_device__: dlpack.device_of,
    torch.Tensor.is_pinned: lambda tensor, *_device: place_of(tensor) == PINNED,
}
# Functions that make a device: their arguments are not a place for a tensor.
_DEVICES = (torch.device, torch._C._nn._parse_to)  # `torch.nn.Module.to` reads its arguments by the latter
# Functions that copy from one place to another. If source and destination are the same, they may return their argument.
_MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.pin_memory, torch.as_tensor, torch.asarray)
# Functions of packed sequences, by name. Their second result, sequences' sizes, is in host memory wherever the sequences are.
_LENGTHS = ("_pack_padded_sequence", "_pad_packed_sequence")
_DESTINATION: dict[Any, Place] = {torch.Tensor.cpu: HOST, torch.Tensor.pin_memory: PINNED}


def _with_device(args: Sequence[Any]) -> Sequence[Any]:
    """Normalizes a device function's arguments: a GPU's number becomes a device, a tensor its device and dtype."""
    first, *rest = args or (None,)
    if type(first) is int:
        return [torch.device("cuda", first), *rest]
    return [_device(first), first.dtype, *rest] if isinstance(first, torch.Tensor) else args


class CudaOnHost(TorchFunctionMode):
    """Keeps tensors that are made on, or moved to, a GPU on the CPU, and makes them report the GPU."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if is_dynamo_compiling() and given.get("generator") is None:  # what it records is on the GPU already
            return func(*args, **given)
        return self.answer(func, args, given)  # Dynamo, which cannot record a generator, runs the function as it is

    def answer(self, func: Callable[..., Any], args: Sequence[Any], given: dict[str, Any]) -> Any:
        """Calls a function of PyTorch's where its tensors are on the GPU."""
        if func in _ANSWERS:
            return _ANSWERS[func](*args, **given)
        if traced.is_property(func, args):
            return func(*args)
        if func in _DEVICES:
            return func(*_with_device(args), **given)
        if traced.tracing():
            return _call_traced(func, args, given)
        place = _requested_place(func, args, given)
        sent = {name: on_host(value) for name, value in given.items() if name != "pin_memory"}
        positions = [on_host(arg) for arg in args]
        if type(sent.get("device")) is int:
            sent["device"] = _CPU
        if func is torch.Tensor.to and len(positions) > 1 and type(positions[1]) is int:
            positions[1] = _CPU
        if func in _CONSTRUCTORS and sent.get("device") is None and is_gpu(_default_device()):
            sent["device"] = _CPU
        if size := _bytes_of_result(func, positions, sent, place):
            at = common((*args, *given.values())) if place is None else place
            if on_gpu(at):
                memory.check_room(size, device_at(at).index)
        narrows = autocast.is_enabled()
        cast = autocast.casts(func, positions, sent) if narrows else contextlib.nullcontext((positions, sent))
        try:
            with cast as (positions, sent), kernels_of_the_gpu(func, place, (*positions, *sent.values()), pretend_gpu, narrows):
                if func in _MOVES and place is not None:
                    return _move(func, positions, sent, place)
                result = INSTEAD[func](func, *positions, **sent) if func in INSTEAD else func(*positions, **sent)
        except RuntimeError as error:
            if lacking := _memory_error(error, place or common((*args, *given.values()))):
                raise lacking from None
            raise
        if getattr(func, "__name__", None) in _LENGTHS:
            mark(result[1], HOST)
        for tensor in tensors_in((result,)):
            if mark_of(tensor) is None:
                place = common((*args, *given.values())) if place is None else place
                mark(tensor, place)
        return result


def _bytes_of_result(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], place: Place | None) -> int:
    """Returns the bytes that a function will allocate for its result; 0 if that is unknown or not large."""
    makes = func in _CONSTRUCTORS
    if not makes and func not in _MOVES:
        return estimates.bytes_to_compute(func, args, given)
    if place is None or not on_gpu(place):
        return 0
    if makes:
        return estimates.bytes_to_make(func, args, given)
    source = args[0] if args else None
    there = isinstance(source, torch.Tensor) and (source.layout != torch.strided or mark_of(source) == place)
    return 0 if there else int(getattr(source, "nbytes", 0))


def _memory_error(error: RuntimeError, place: Place) -> RuntimeError | None:
    """Returns a GPU's error for memory that the host refused to a tensor of its; None for any other error or place."""
    return memory.shortage(error, device_at(place).index) if on_gpu(place) else None


def _call_traced(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Calls a function under a tracer, which makes tensors on the GPU itself. Devices get their number, which PyTorch's C++
    would ask for. A function of the GPU's tensors that names no place computes on that GPU only."""
    place = common((*args, *given.values())) if _requested_place(func, args, given) is None else HOST
    with traced.OnGpu(device_at(place)) if on_gpu(place) else contextlib.nullcontext():
        return func(*map(_by_number, args), **{name: _by_number(value) for name, value in given.items()})


def _by_number(value: Any) -> Any:
    """Returns a GPU's device, or its name, as the device with its number; anything else unchanged."""
    return device_at(gpu_named(value) or GPU) if is_gpu(value) else value


def _requested_place(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Place | None:
    """Place that a call names; None if its result is where its arguments are."""
    if func in _DESTINATION:
        return _DESTINATION[func]
    named = given.get("device")
    if func is torch.Tensor.to:
        other = given.get("other", args[1] if len(args) > 1 else None)
        if isinstance(other, torch.Tensor):
            return place_of(other)
        named = other if named is None else named
    elif named is None and isinstance(func, OVERLOAD):  # its Python functions may take a device by its position
        named = next((arg for arg in args if isinstance(arg, torch.device)), None)
    elif named is None and func in _CONSTRUCTORS and is_gpu(_default_device()):
        return gpu_named(_default_device())
    if place := gpu_named(named):
        return place
    if given.get("pin_memory"):
        return PINNED
    return HOST if _is_host(named) else None


def _move(func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], place: Place) -> Any:
    """Returns a tensor at a place: a copy, unless it is already there."""
    if isinstance(args[0], torch.Tensor) and wraps(args[0]) and place != place_of(args[0]):
        dtypes = [value for value in (*args[1:], given.get("dtype")) if isinstance(value, torch.dtype)]
        return args[0].to(_CPU, *dtypes, copy=True)
    if func in _DESTINATION:
        layout = {name: value for name, value in given.items() if name == "memory_format"}
        return args[0] if mark_of(args[0]) == place else _copy(_clone(args[0], **layout), args[0], place)
    source = args[0] if isinstance(args[0], torch.Tensor) else None
    there = source is not None and mark_of(source) == place
    result = func(*args, **given)
    shared = source is None or _shares_memory(result, source)
    result = _clone(result) if shared and not there else result
    return mark(result, place) if source is None or there else _copy(result, source, place)


def _clone(tensor: torch.Tensor, **layout: Any) -> torch.Tensor:
    """Returns a copy of a tensor; a lazy module's parameter, before it has a shape, lets only `to` make one."""
    return tensor.to(_CPU, copy=True) if is_lazy(tensor) else tensor.clone(**layout)


def _shares_memory(result: torch.Tensor, source: torch.Tensor) -> bool:
    """True if a move returned the tensor itself, or another in its memory."""
    one, other = storage_of(result), storage_of(source)
    return result is source or (one is not None and other is not None and one.data_ptr() == other.data_ptr())


class _MovedCopy(torch.autograd.Function):
    """Copies a tensor from another place; its gradient goes back there."""

    generate_vmap_rule = True

    @staticmethod
    def forward(copy: torch.Tensor, place: Place, before: Place) -> torch.Tensor:
        return mark(copy, place)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, Place, Place], output: torch.Tensor) -> None:
        _, ctx.place, ctx.before = inputs

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return _copy(grad.clone(), grad, ctx.before), None, None


def _copy(copy: torch.Tensor, source: torch.Tensor, place: Place) -> torch.Tensor:
    """Marks a tensor's copy; its gradient is copied back."""
    if not (torch.is_grad_enabled() and copy.requires_grad):
        return mark(copy, place)
    arrived: torch.Tensor = _MovedCopy.apply(copy, place, place_of(source))
    return arrived


def _default_device() -> torch.device | None:
    """Returns the device that `torch.set_default_device` or `with torch.device(...)` chose; a GPU may lack its number."""
    modes = reversed(_get_current_function_mode_stack())
    return next((mode.device for mode in modes if isinstance(mode, _DefaultDevice)), None)


def is_pretended() -> bool:
    """True if PyTorch's functions see the pretended GPU here; PyTorch's own operators do not."""
    shown = any(isinstance(mode, CudaOnHost) for mode in _get_current_function_mode_stack())
    return shown and has_torch_function((None,))  # false if all modes are off


@contextlib.contextmanager
def pretend_gpu() -> Iterator[None]:
    """Shows the pretended GPU to PyTorch's functions for a block, in this thread.

    This includes PyTorch's own operators: one that it decomposes calls a library's kernel.
    """
    with torch._C._EnableTorchFunction():
        if any(isinstance(mode, CudaOnHost) for mode in _get_current_function_mode_stack()):
            yield  # a second mode would see the CPU that the first one asks for
        else:
            with CudaOnHost():
                yield


def run_pretended(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function: it runs where PyTorch's functions see the pretended GPU, whatever thread or code calls it."""

    @functools.wraps(function)
    def run_inside(*args: Any, **kwargs: Any) -> Any:
        with pretend_gpu(), KernelsOfTheGpu(GPU, pretend_gpu):
            return function(*args, **kwargs)

    return run_inside
