"""Chooses the kernels of operators on the GPUs' tensors, and the GPU that they run on.

The kernels are registered by libraries (`torch.library`, dispatch key CUDA), or compute operators on 16-bit types in f32.
To PyTorch's dispatcher these tensors are the CPU's, and host tensors need the CPU's kernels. So a dispatch mode below autograd,
the level of the CUDA key, calls one or the other.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from simgpu.tools.torch.cuda.graphs import CUDAGraph, GraphCapture
from simgpu.tools.torch.environment import simulates
from simgpu.tools.torch.operators.accumulation import PRODUCTS, WIDE, computes_in_f32, in_f32, is_sampling, not_computed
from simgpu.tools.torch.operators.on_gpus import NAMES, ON_GPUS
from simgpu.tools.torch.places import (
    GPU,
    HOST,
    Place,
    common,
    device_at,
    has_memory,
    has_several_gpus,
    mark,
    mark_new,
    mark_of,
    on_gpu,
    place_of,
    storage_of,
    tensors_in,
    wraps,
)
from simgpu.triton.tensors import plain_torch

_CPU = torch.device("cpu")  # PyTorch's device of tensors on the GPU
OVERLOAD = type(torch.ops.aten.add.Tensor)  # class of one overload of an operator
_OPERATORS = (OVERLOAD, type(torch.ops.aten.add))  # of `torch.ops`; some exist only on GPUs
# Operators whose tensors may be on different GPUs: copies between them, and operators on lists of tensors.
_COPIES, _LISTS = ("aten::copy_", "aten::_to_copy", "aten::set_"), "aten::_foreach_"
# Operators whose tensors but the first may be in host memory: indices, targets and lengths.
_INDEXED = (
    "aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_", "aten::_ctc_loss.Tensor",
    "aten::_ctc_loss_backward.Tensor",
)  # fmt: skip
_OF_STORAGES = "aten::set_"  # its result is where the storage is
# Zeros without memory, which autograd makes. Operators on them fail below a dispatch mode, some by a segmentation fault.
_ZEROS = "aten::_efficientzerotensor"


class Registrations:
    """Kernels by operator, the latest last: `aten::add.Tensor` to functions."""

    def __init__(self) -> None:
        self._kernels: dict[str, list[Callable[..., Any]]] = {}

    def __bool__(self) -> bool:
        return bool(self._kernels)

    def __contains__(self, operator: str) -> bool:
        return operator in self._kernels

    def get(self, operator: str) -> Callable[..., Any] | None:
        """Returns the kernel registered last."""
        found = self._kernels.get(operator)
        return found[-1] if found else None

    def add(self, operator: str, kernel: Callable[..., Any]) -> Registration:
        """Adds a kernel; the result's `destroy` removes it."""
        self._kernels.setdefault(operator, []).append(kernel)
        return Registration(self, operator, kernel)

    def remove(self, operator: str, kernel: Callable[..., Any]) -> None:
        """Removes a kernel."""
        self._kernels[operator].remove(kernel)
        if not self._kernels[operator]:
            del self._kernels[operator]


class Registration:
    """A registered kernel; `torch.library.Library` destroys it with itself."""

    def __init__(self, owner: Registrations, operator: str, kernel: Callable[..., Any]) -> None:
        self._owner, self._operator, self._kernel = owner, operator, kernel

    def destroy(self) -> None:
        """Removes the kernel."""
        self._owner.remove(self._operator, self._kernel)


REGISTERED = Registrations()


class FailedComposition(UserWarning):
    """Warning for an error in an operator's composition, simgpu's own or PyTorch's; the host computed the call."""


def _warn_of(composition: str, operator: str, error: Exception) -> None:
    """Warns of a composition's error. If warnings are errors, it raises this one, caused by that error."""
    warning = FailedComposition(
        f"{composition} of {operator} raised {type(error).__name__}: {error}; the host computed the call"
    )
    warning.__cause__ = error
    warnings.warn(warning, stacklevel=2)


class KernelsOfTheGpu(TorchDispatchMode):
    """Calls registered kernels for operators on the GPU's tensors; place: requested for the result, None: the arguments'.

    host: True if a tensor without a mark is one of the host, as within a function whose arguments are.
    """

    supports_higher_order_operators = True  # such as flex_attention's: they consist of operators, which come here

    def __init__(self, place: Place | None, pretended: Callable[[], AbstractContextManager[None]], host: bool = False) -> None:
        super().__init__()
        self._place = place
        self._pretended = pretended
        self._host = host
        self._composing: list[str] = []  # names of operators, while others that they are composed of come here

    def dispatch(self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Computes an operator: PyTorch calls this method as `__torch_dispatch__`."""
        given = dict(kwargs or {})
        traced = any(map(_is_traced, tensors_in((*args, *given.values()))))
        if not isinstance(func, OVERLOAD):  # an operator of higher order
            return func(*(args if traced else map_aggregate(tuple(args), self._show)), **given)
        if (modes := _modes_of_the_program(traced)) and _graph_capture() is None:
            return self._pass_on(modes, func, types, args, given)
        several, place = has_several_gpus(), None
        if several:
            with plain_torch():
                place = _place_of_all(func.name(), (*args, *given.values()))
        result = self._call(func, types, args, given)
        with plain_torch():
            if self._makes_host_s(func.name(), (*args, *given.values())):
                mark_new((result,), HOST)
            elif several:
                self._mark(func.name(), args, result, place)
        return result

    def _pass_on(
        self, modes: Sequence[TorchDispatchMode], func: Any, types: Sequence[type], args: Sequence[Any], given: dict[str, Any]
    ) -> Any:
        """Returns an operator's result from the first of these modes; the program leaves them all meanwhile.

        So a program's mode, such as `FlopCounterMode`, sees the operator before this mode computes it, and not its parts.
        """
        with contextlib.ExitStack() as left:
            for mode in reversed(modes):
                KernelsOfTheGpu.__exit__(mode, None, None, None)  # PyTorch's method: the program's own may do more
                left.callback(KernelsOfTheGpu.__enter__, mode)
            with plain_torch() if func.name().startswith("aten::") else self._pretended(), self:
                return modes[0].__torch_dispatch__(func, types, args, given)

    def _mark(self, name: str, args: Sequence[Any], result: Any, place: Place | None) -> None:
        """Marks an operator's results: with the requested place, else the arguments'; for lists, each with its own argument's."""
        results = list(tensors_in((result,)))
        asked = place if self._place in (None, GPU) else self._place
        places = map(place_of, tensors_in(args[:1])) if name.startswith(_LISTS) else itertools.repeat(asked)
        for tensor, at in zip(results, places):
            if mark_of(tensor) is None and at not in (None, GPU):
                mark(tensor, at)

    def _makes_host_s(self, name: str, values: Sequence[Any]) -> bool:
        """True for an operator whose new tensors are the host's: in a function of the host's tensors, and in autograd's engine one
        on tensors that are known to be there. A number may be on the host beside a GPU's tensors without marks."""
        if name.startswith(_OF_STORAGES):
            return False
        if self._place != GPU:
            return self._host
        places = [(mark_of(tensor), tensor.dim() > 0) for tensor in tensors_in(values)]
        deciding = [place for place, has_axes in places if has_axes] or [place for place, _ in places]
        return bool(deciding) and all(place == HOST for place in deciding)

    def _call(self, func: Any, types: Sequence[type], args: Sequence[Any], given: dict[str, Any]) -> Any:
        """Returns an operator's result."""
        name = func.name()
        if name == _ZEROS:
            with plain_torch():
                return torch.zeros(*args, **given)
        given_tensors = list(tensors_in((*args, *given.values())))
        if not self._is_there(given_tensors) and (capture := _graph_capture()) is not None:
            with capture.pause():
                return func(*args, **given)
        if any(wraps(tensor) and not _is_traced(tensor) for tensor in given_tensors):
            return self._call_subclass(func, types, args, given)
        failed: list[tuple[str, Exception]] = []
        if simulates() and name not in REGISTERED and self._may_simulate(name, given_tensors):
            found = _capture(name, functools.partial(self._simulate, func, failed), args, given)
            if found is not NotImplemented:
                return found
        result = self._compute_on_host(func, args, given, given_tensors)
        for composition, error in failed:
            _warn_of(composition, name, error)
        return result

    def _compute_on_host(self, func: Any, args: Sequence[Any], given: dict[str, Any], given_tensors: Sequence[torch.Tensor]) -> Any:
        """Returns an operator's result from a registered kernel, or from PyTorch's."""
        name = func.name()
        kernel = REGISTERED.get(name) or ON_GPUS.get(name)
        if kernel is None and not computes_in_f32(func):
            # PyTorch's own operators, which the engine also calls: their new tensors must not be marked as the host's.
            with plain_torch() if name.startswith("aten::") else contextlib.nullcontext():
                return func(*args, **given)
        if any(map(_is_traced, given_tensors)):
            return func(*args, **given)
        if not self._is_there(given_tensors):
            return func(*args, **given)
        if kernel is None:
            computes = not_computed if name in PRODUCTS and is_sampling() else in_f32
            return _capture(name, lambda *args, **given: computes(func, args, given), args, given)
        if given.get("device") == _CPU and (self._place is None or on_gpu(self._place)):
            given["device"] = device_at(self._place or common(given_tensors))
        with plain_torch() if name in ON_GPUS and name not in REGISTERED else self._pretended():
            return kernel(*args, **given)

    def _show(self, argument: Any) -> Any:
        """Returns a graph as a function that runs where PyTorch's functions see the GPU, since a traced graph names it; anything
        else unchanged."""
        if not isinstance(argument, torch.fx.GraphModule):
            return argument

        def run_inside(*args: Any, **given: Any) -> Any:
            with self._pretended():
                return argument(*args, **given)

        return run_inside

    def _is_there(self, given: Sequence[torch.Tensor]) -> bool:
        """True for an operator on the GPU: one of these tensors is there, or without tensors its result."""
        return any(self._is_gpu_s(tensor) for tensor in given) if given else on_gpu(self._place)

    def _is_gpu_s(self, tensor: torch.Tensor) -> bool:
        """True for a tensor in a GPU's memory; one without a mark is, but for a function of the host's tensors."""
        place = mark_of(tensor)
        return not self._host if place is None else on_gpu(place)

    def _may_simulate(self, name: str, given: Sequence[torch.Tensor]) -> bool:
        """True for an operator on the GPU's tensors only, whose result is there, if no mode further out will see it. Indices
        and lengths may be the host's."""
        if self._place is not None and not on_gpu(self._place):
            return False
        if not self._is_there(given) or any(_is_traced(one) or one.is_nested for one in given):
            return False
        if any(map(self._is_host_s, given[:1] if name in _INDEXED else given)):
            return False
        return not any(isinstance(mode, KernelsOfTheGpu) for mode in _get_current_dispatch_mode_stack())

    def _is_host_s(self, tensor: torch.Tensor) -> bool:
        """True for a tensor in host memory that is no number; one without a mark may be."""
        return tensor.dim() > 0 and not self._is_gpu_s(tensor)

    def _simulate(self, func: Any, failed: list[tuple[str, Exception]], *args: Any, **given: Any) -> Any:
        """Returns an operator's result from the simulated GPU: by kernels of its own, or by those of the operators that it is
        composed of; NotImplemented if it has neither. failed: gets errors of compositions, each after whose it is."""
        from simgpu.tools.torch.operators import simulated  # half a second of imports

        return simulated.call(func, args, given, self, self._composing, failed)

    def _call_subclass(self, func: Any, types: Sequence[type], args: Sequence[Any], given: dict[str, Any]) -> Any:
        """Returns the result of an operator that a class of tensors computes: it sees the GPU, and gets the device that a move
        requests."""
        if given.get("device") == _CPU and self._place is not None and on_gpu(self._place):
            given["device"] = device_at(self._place)
        for kind in dict.fromkeys(type(tensor) for tensor in tensors_in((*args, *given.values())) if wraps(tensor)):
            with self._pretended():
                result = kind.__torch_dispatch__(func, types, args, given)
            if result is not NotImplemented:
                return result
        return func(*args, **given)  # PyTorch's own error


# PyTorch wraps such a method of a class's own in `torch.compiler.disable`: 2 s of imports, and some microseconds a call.
KernelsOfTheGpu.__torch_dispatch__ = KernelsOfTheGpu.dispatch  # type: ignore[method-assign]


def _modes_of_the_program(traced: bool) -> Sequence[TorchDispatchMode]:
    """Returns the mode that the program itself entered last, and those since; none if it entered none.

    A tracer that records operators on real tensors, as `make_fx` does, counts as one; traced: the tensors are a tracer's own.
    """
    stack = _get_current_dispatch_mode_stack()
    ours = (KernelsOfTheGpu, GraphCapture)
    if not traced and stack and _records(stack[0]):
        return stack
    entered = [at for at, mode in enumerate(stack) if not (isinstance(mode, ours) or mode.is_infra_mode())]
    return stack[entered[-1] :] if entered else ()


def _records(mode: TorchDispatchMode) -> bool:
    """True for PyTorch's mode that records operators, if no other of its modes is in use: modes of PyTorch's are the first."""
    return mode.is_infra_mode() and not isinstance(mode, FakeTensorMode)


def _graph_capture() -> GraphCapture | None:
    """Returns the capture of a CUDA graph that is under way in this thread."""
    return next((mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, GraphCapture)), None)


def _capture(name: str, function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Computes an operator by a function, with PyTorch's own answers; if a CUDA graph is being captured, as one step of it."""

    def compute(*args: Any, **given: Any) -> Any:
        with plain_torch():
            return function(*args, **given)

    capture = _graph_capture()
    return compute(*args, **given) if capture is None else capture.compute(name, compute, args, given)


def _place_of_all(name: str, values: Sequence[Any]) -> Place | None:
    """Returns the GPU, by its number, of an operator's arguments; None if there is none. Raises RuntimeError if they are on
    two."""
    tensors = list(tensors_in(values))
    if any(map(_is_traced, tensors)):
        return None
    found = _gpus_of(tensors)
    if len(found) < 2 or not name.startswith("aten::") or name.startswith(_COPIES):
        return next(iter(found), None)
    rows = zip(*(value for value in values if isinstance(value, (list, tuple)))) if name.startswith(_LISTS) else [tensors]
    for row in rows:
        if len(two := _gpus_of(tensors_in(row))) > 1:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {two[0]} and {two[1]}! "
                f"(when checking arguments for {name})"
            )
    return None


def _gpus_of(tensors: Iterable[torch.Tensor]) -> list[Place]:
    """Returns the GPUs, each once, of the tensors with a known one."""
    return list(dict.fromkeys(place for tensor in tensors if on_gpu(place := place_of(tensor)) and place != GPU))


def _is_traced(tensor: torch.Tensor) -> bool:
    """True if a tensor has no elements, as those of PyTorch's tracers."""
    if tensor.is_meta or isinstance(tensor, (FakeTensor, FunctionalTensor)):
        return True
    storage = None if wraps(tensor) else storage_of(tensor)
    return storage is not None and not has_memory(storage) and tensor.numel() > 0


def kernels_of_the_gpu(
    func: Any, place: Place | None, args: Sequence[Any], pretended: Callable[[], AbstractContextManager[None]], autocast: bool
) -> AbstractContextManager[Any]:
    """Returns the mode for one call of a function of PyTorch's with these arguments, or a null context if it would change
    nothing.

    autocast: operators may narrow their arguments themselves.
    """
    named = isinstance(func, _OPERATORS) or getattr(func, "__name__", None) in NAMES
    given = list(tensors_in(args))
    here = named or simulates() or REGISTERED or autocast or has_several_gpus() or is_sampling() or CUDAGraph.capturing()
    if not here and not any(tensor.dtype in WIDE or wraps(tensor) for tensor in given):
        return contextlib.nullcontext()
    return KernelsOfTheGpu(place, pretended, not on_gpu(place) if place else bool(given) and common(given) == HOST)
