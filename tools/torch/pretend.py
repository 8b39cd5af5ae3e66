"""PyTorch with the simulated GPUs in use: replaces parts of PyTorch, and restores them.

`on_host` changes how functions treat devices. That holds for one thread and not inside autograd's engine, so both are
entered here. `cuda` has the answers of `torch.cuda`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any
from unittest import mock

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils import checkpoint
from torch.utils.flop_counter import flop_registry
from triton._C.libtriton import amd

from simgpu.hardware.errors import LaunchError
from simgpu.tools.torch import makers, storages
from simgpu.tools.torch.cuda import amdsmi, streams, traced
from simgpu.tools.torch.cuda.answers import ANSWERS
from simgpu.tools.torch.cuda.blas import HipblasLt
from simgpu.tools.torch.cuda.generators import GpuGenerator
from simgpu.tools.torch.environment import COMPILE, EAGER, INDUCTOR, simulates
from simgpu.tools.torch.hip_memory import lend_tensors
from simgpu.tools.torch.on_host import gpu_named, is_gpu, is_pretended, on_host, pretend_gpu, run_pretended
from simgpu.tools.torch.operators.attention import FORMULAS
from simgpu.tools.torch.operators.registered import REGISTERED
from simgpu.tools.torch.places import (
    HOST,
    common,
    current_place,
    device_at,
    mark,
    mark_new,
    on_gpu,
    place_of,
    tensors_in,
)  # fmt: skip
from simgpu.tools.torch.rocm import HIP_VERSION, on_path
from simgpu.triton.driver import SimDriver, active_driver
from simgpu.triton.tensors import plain_torch

_AS_CPU = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU", "HIP": "CPU", "AutogradHIP": "AutogradCPU"}
_PYTORCH_S = ("aten", "_native")  # libraries of PyTorch's own operators
_EVERYWHERE = "CompositeExplicitAutograd"  # the key of `torch.library.custom_op` without types of devices


_generator: Any = torch.Generator  # PyTorch's own


class _Generators(type(torch.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _generator)


class HostGenerator(torch.Generator, metaclass=_Generators):
    """Replaces `torch.Generator`: a generator on the CPU, whatever device it reports."""

    def __new__(cls, device: Any = "cpu") -> Any:
        place = gpu_named(device)
        return _generator(device) if place is None else GpuGenerator(device_at(place))


_impl, _start = torch.library.Library.impl, threading.Thread.start
_make_wrapper, _run = torch.Tensor._make_wrapper_subclass, unittest.TestCase.run
_COMPARED: dict[str, Any] = checkpoint._allowed_determinism_checks_to_fns
_told = _COMPARED["default"]
_MODES = "_prev_torch_function_mode_stack_len"
_STREAMS = "_simgpu_streams"
OLDEST_COMPILED = (2, 10)  # release; tried back to this one
_Backward = torch.autograd.function.BackwardCFunction
_backward, _make_node = _Backward.apply, _Backward.__init__


def _register(library: torch.library.Library, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
    """Replaces `torch.library.Library.impl`: kernels for the CUDA key are called for the pretended GPU's tensors.

    Those of PyTorch's own for its own operators (`torch._native`) are left out, as its CUDA kernels are.
    """
    key = dispatch_key or library.dispatch_key
    if key not in _AS_CPU:
        _impl(library, op_name, _or_else(fn, fn) if key == _EVERYWHERE else fn, dispatch_key, **options)
        return
    name = op_name if isinstance(op_name, str) else op_name.name()
    operator = name if "::" in name else f"{library.ns}::{name}"
    if _is_composite(operator):
        decompose = _overload(operator).decompose
        _impl(library, op_name, _or_else(fn, decompose), _AS_CPU[key], **options)
    elif _AS_CPU[key] == "CPU":
        if library.ns in _PYTORCH_S and (getattr(fn, "__module__", None) or "").startswith("torch."):
            return
        kernel = _with_keys(fn) if options.get("with_keyset") else fn
        library._registration_handles.append(REGISTERED.add(operator, kernel))
    else:
        _impl(library, op_name, run_pretended(fn), _AS_CPU[key], **options)


def _with_keys(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a kernel that gives `fn` the dispatch keys of its first tensor before its arguments."""

    @functools.wraps(fn)
    def kernel(*args: Any, **given: Any) -> Any:
        return fn(torch._C._dispatch_keys(next(iter(tensors_in((*args, *given.values()))))), *args, **given)

    return kernel


def _overload(operator: str) -> Any:
    """Returns an operator by its name, such as `aten::add.Tensor`."""
    library, _, name = operator.partition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, library), packet), overload or "default")


def _is_composite(operator: str) -> bool:
    """True if PyTorch decomposes an operator above dispatch modes; False for one that is not defined yet."""
    try:
        return bool(_overload(operator).has_kernel_for_dispatch_key("CompositeImplicitAutograd"))
    except AttributeError:
        return False


def _or_else(fn: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a kernel that runs `fn` for the GPU's tensors, where PyTorch's functions see the GPU, and `own` for the host's."""
    kernel = run_pretended(fn)

    @functools.wraps(fn)
    def choose(*args: Any, **kwargs: Any) -> Any:
        there = any(on_gpu(place_of(tensor)) for tensor in tensors_in((*args, *kwargs.values())))
        return (kernel if there else own)(*args, **kwargs)

    return choose


def _note_streams(node: Any, *args: Any) -> None:
    """Replaces the constructor of a `torch.autograd.Function`'s context: notes the streams of its forward."""
    _make_node(node, *args)
    setattr(node, _STREAMS, streams.current_by_gpu())


def _backward_there(node: Any, *grads: Any) -> Any:
    """Runs a `torch.autograd.Function`'s backward on the GPU of its gradients, and on its forward's stream there, as PyTorch's
    engine does."""
    place = common(grads)
    if not on_gpu(place):
        return _backward(node, *grads)
    index = device_at(place).index
    with getattr(node, _STREAMS, {}).get(index) or streams.default(index):
        return _backward(node, *grads)


_PyTorchsEngine: Any = type(torch.autograd.Variable._execution_engine)


class _Engine(_PyTorchsEngine):  # type: ignore[misc]
    """Replaces PyTorch's only object of that class: backward passes see the pretended GPU."""

    _run = run_pretended(_PyTorchsEngine.run_backward)

    def run_backward(self, outputs: Sequence[Any], grads: Sequence[Any], *args: Any, **options: Any) -> Any:
        """Runs a backward pass; the gradients that it begins with are where its results are."""
        with plain_torch():
            for output, grad in zip(outputs, grads):
                if isinstance(output, torch.Tensor) and place_of(output) == HOST:
                    mark_new((grad,), HOST)
        return self._run(outputs, grads, *args, **options)


def _start_within(thread: threading.Thread) -> None:
    """Replaces `threading.Thread.start`: the thread sees the pretended GPU."""
    thread.run = run_pretended(thread.run)  # type: ignore[method-assign]
    _start(thread)


def _wrapper(cls: Any, *args: Any, **options: Any) -> torch.Tensor:
    """Replaces `Tensor._make_wrapper_subclass`: PyTorch's C++ makes it on the CPU, as in `traced`; its mark has the requested
    device."""
    made = _make_wrapper(cls, *map(on_host, args), **{name: on_host(value) for name, value in options.items()})
    place = next((gpu_named(value) for value in (*args, *options.values()) if is_gpu(value)), None)
    return mark(made, place or HOST) if place or is_pretended() else made


def _told_by_host(tensor: torch.Tensor) -> Any:
    """Returns the metadata of a tensor that a checkpoint compares, with the CPU as its device.

    A checkpoint first looks within an operator, before the result is marked as a GPU's, and again after the operator.
    """
    with plain_torch():
        return _told(tensor)


def _run_case(case: unittest.TestCase, result: Any = None) -> Any:
    """Replaces `unittest.TestCase.run`: PyTorch's class counts torch function modes, from 0 if a `setUp` does not call its own."""
    if hasattr(case, _MODES):
        setattr(case, _MODES, len(_get_current_function_mode_stack()))
    return _run(case, result)


def _each_its_own(answers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the answers by their names, each with its own function, as `torch._dynamo` demands."""
    functions: set[Any] = set()
    for name, answer in answers.items():
        if isinstance(answer, FunctionType):
            if answer in functions:
                answer = _function_copy(answer)
            functions.add(answer)
        yield name, answer


def _function_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a new function with the same effect."""
    return functools.wraps(function)(lambda *args, **options: function(*args, **options))


def _eager(model: Any = None, **_options: Any) -> Any:
    """Replaces `torch.compile`: returns the function itself, or a decorator that does; nothing is compiled."""
    return (lambda function: function) if model is None else model


def _compile() -> contextlib.AbstractContextManager[Any]:
    """Returns the replacement of `torch.compile` that SIMGPU_COMPILE chooses. Raises LaunchError for an unknown word."""
    how = os.environ.get(COMPILE, EAGER)
    if how == INDUCTOR:
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST_COMPILED:
            oldest = ".".join(map(str, OLDEST_COMPILED))
            raise LaunchError(f"{COMPILE}={INDUCTOR}: needs PyTorch {oldest} or a later one, this is {torch.__version__}")
        from simgpu.tools.torch.inductor import inductor  # two seconds of imports

        return inductor()
    if how != EAGER:
        raise LaunchError(f"{COMPILE}={how!r}: give {EAGER} or {INDUCTOR}")
    return _not_compiled()


@contextlib.contextmanager
def _not_compiled() -> Iterator[None]:
    """Makes `torch.compile` compile nothing for a block."""
    with mock.patch.object(torch, "compile", _eager):
        yield


@contextlib.contextmanager
def pretended_gpu() -> Iterator[None]:
    """Gives PyTorch the simulated GPUs in use for a block, in this thread and those that it starts."""
    if torch.Generator is HostGenerator:  # SIMGPU gave this process a GPU already
        yield
        return
    simulates()  # an unknown word in the variable is an error before anything runs
    with contextlib.ExitStack() as stack:
        for name, answer in _each_its_own(ANSWERS | makers.ANSWERS | {"version.hip": HIP_VERSION}):
            stack.enter_context(mock.patch(f"torch.{name}", answer, create=True))
        for name, answer in storages.ANSWERS.items():
            stack.enter_context(mock.patch.object(torch.UntypedStorage, name, answer))
        for owner, name, answer in (
            *makers.MAKERS, (torch, "Generator", HostGenerator),
            (torch.Tensor, "_make_wrapper_subclass", staticmethod(_wrapper)),
            (unittest.TestCase, "run", _run_case),
            (torch.library.Library, "impl", _register), (threading.Thread, "start", _start_within),
            (_Backward, "apply", _backward_there), (_Backward, "__init__", _note_streams),
            (torch.autograd.Variable, "_execution_engine", _Engine()),
            (SimDriver, "get_active_torch_device", lambda _driver: device_at(current_place())),
            (amd.hipblas, "HipblasLt", HipblasLt),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, answer))
        stack.enter_context(mock.patch.dict(_COMPARED, default=_told_by_host))
        stack.enter_context(mock.patch.dict(flop_registry, FORMULAS))
        stack.enter_context(makers.kernels_of_cuda())
        stack.enter_context(traced.lying_where_they_would(pretend_gpu))
        stack.enter_context(_compile())
        stack.enter_context(on_path(active_driver().session.name))
        stack.enter_context(amdsmi.importable())
        stack.enter_context(lend_tensors())
        stack.enter_context(pretend_gpu())
        yield
