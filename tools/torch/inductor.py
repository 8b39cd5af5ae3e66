"""`torch.compile` with Inductor for the pretended GPU: its Triton kernels run on the simulated one.

Dynamo traces `CudaOnHost`, so the tensors that it and Inductor record are on the GPU (`traced`), and Inductor's code runs where
PyTorch's functions see the GPU. Three kinds of graphs run operator by operator instead: graphs of host tensors, also beside a
GPU's, graphs that move tensors to the host, and graphs under `torch.autocast`, which sees the CPU.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

import torch
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.device_interface import get_interface_for_device, register_interface_for_device
from torch._dynamo.eval_frame import skip_code
from torch._inductor import compile_fx, config, utils
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.runtime.hints import DeviceProperties
from torch.fx import GraphModule, Node

from simgpu.machine.compiling.helpers import hardware_threads
from simgpu.tools.torch.cuda import autocast, generators, streams
from simgpu.tools.torch.on_host import CudaOnHost, is_gpu, pretend_gpu, run_pretended
from simgpu.tools.torch.operators.registered import KernelsOfTheGpu
from simgpu.tools.torch.places import on_gpu, place_of
from simgpu.triton.driver import active_driver

_CPU = torch.device("cpu")
# No launcher of PyTorch's own, which calls HIP. No graphs of launches, which only save a GPU's host the time of launching.
_CONFIG = {"use_static_cuda_launcher": False, "triton.cudagraphs": False}
# Modes that time candidates. In others each kernel gets one configuration, the same in each run, where a GPU would time a few.
_TUNING = ("max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")
_ONE_EACH = {"triton.autotune_pointwise": False, "deterministic": True}
_compile = compile_fx.compile_fx


def _compile_graph(model: GraphModule, inputs: Sequence[Any], *args: Any, config_patches: Any = None, **options: Any) -> Any:
    """Replaces Inductor's `compile_fx`, which `torch.compile` calls: returns a graph of Dynamo's as a function.

    Without patches it is called by itself.
    """
    if config_patches is None:
        return _compile(model, inputs, *args, **options)
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    named = [value for node in _nodes(model) for value in (*node.args, *node.kwargs.values()) if is_gpu(value)]
    apart = autocast.is_enabled() or any(_to_host(node) or _of_autocast(node) for node in _nodes(model))
    if apart or not all(on_gpu(place_of(value)) for value in given) or not (named or given):
        return run_pretended(model.forward)
    tunes = any(config_patches.get(name, getattr(config, name)) for name in _TUNING)
    patches = {**({} if tunes else _ONE_EACH), **config_patches, **_CONFIG}
    with pretend_gpu():
        return run_pretended(_compile(model, inputs, *args, config_patches=patches, **options))


def _to_host(node: Node) -> bool:
    """True if an operator of a graph puts a tensor on the host."""
    named = any(value == _CPU or value == "cpu" for value in (*node.args, *node.kwargs.values()) if not isinstance(value, Node))
    return named or (node.op == "call_method" and node.target == "cpu")


def _of_autocast(node: Node) -> bool:
    """True if a call of a graph enters or leaves `torch.autocast`."""
    return getattr(node.target, "__module__", None) == torch.amp.autocast_mode.__name__


def _graphs(model: GraphModule) -> Iterator[GraphModule]:
    """Yields a graph, and the graphs that its operators call, such as flex attention's."""
    return (part for part in model.modules() if isinstance(part, GraphModule))


def _nodes(model: GraphModule) -> Iterator[Node]:
    return (node for part in _graphs(model) for node in part.graph.nodes)


def _modelled_ms(function: Callable[[], Any], *_args: Any, **_options: Any) -> float:
    """Replaces Inductor's timer of candidates: milliseconds of the model."""
    return active_driver().session.clock.do_bench(function)


class _Compilers(ThreadPoolExecutor):
    """Threads that compile Triton's kernels where PyTorch would start processes: Triton's passes release Python's lock."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        """Submits a call, with the caller's settings of Inductor. One without arguments, by which Inductor asks if it may submit
        others, is over at once."""
        if args or options:
            whole = [_keep_whole(one) if callable(one) else one for one in args]
            return super().submit(contextvars.copy_context().run, functools.partial(function, *whole, **options))
        asked: Future[Any] = Future()
        asked.set_result(function())
        return asked


def _keep_whole(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that loads a kernel: a worker leaves the parts that cannot be sent to another process, since other threads
    of this one may be using the kernel."""

    def load_whole(*args: Any, **options: Any) -> Any:
        kernel = load(*args, **options)
        if hasattr(kernel, "prepare_for_pickle"):
            kernel.prepare_for_pickle = lambda: None
        return kernel

    return load_whole


@functools.cache  # which PyTorch clears in a forked process
def _compilers() -> _Compilers:
    """Returns the threads."""
    return _Compilers(hardware_threads(), thread_name_prefix="simgpu-inductor")


_parse, _parsing = ast.parse, threading.Lock()


@functools.wraps(_parse)
def _parse_alone(*args: Any, **options: Any) -> Any:
    """Parses Python in one thread at a time: CPython 3.11 counts the depth of all threads' trees together, and raises."""
    with _parsing:
        return _parse(*args, **options)


def _forget() -> None:
    """Clears PyTorch's knowledge of devices, and its code compiled for them: another GPU may be in use now."""
    torch.compiler.reset()
    for cached in (DeviceProperties.create, *vars(utils).values()):
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


class _Worker:
    """Answers Inductor's processes that compile."""

    set_device = staticmethod(torch.cuda.set_device)

    @staticmethod
    def current_device() -> int:
        return torch.cuda.current_device()

    @staticmethod
    def get_device_properties(device: Any = None) -> Any:
        return torch.cuda.get_device_properties(device)


@contextlib.contextmanager
def _interface() -> Iterator[None]:
    """Registers an interface to `torch.cuda` for a block: its present functions, not those when PyTorch was imported."""
    before = get_interface_for_device("cuda")
    found: dict[str, Any] = {"Worker": _Worker, "get_raw_stream": staticmethod(torch._C._cuda_getCurrentRawStream)}
    for name in vars(before):
        held = getattr(torch.cuda, name, getattr(torch.cuda, f"_{name}", None))
        if held is not None and not name.startswith("__"):
            found[name] = held if isinstance(held, type) else staticmethod(held)
    devices = ("cuda", *(f"cuda:{index}" for index in range(torch.cuda.device_count())))
    answering = type("GpuInterface", (before,), found)
    for device in devices:
        register_interface_for_device(device, answering)
    try:
        yield
    finally:
        for device in devices:
            register_interface_for_device(device, before)


@contextlib.contextmanager
def inductor() -> Iterator[None]:
    """Makes `torch.compile` compile for the pretended GPU for a block."""
    skip_code(CudaOnHost.__torch_function__.__code__)  # Dynamo compiles no call of it, but traces it into a program's functions
    _forget()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_interface())
        for owner, name, answer in (
            (compile_fx, "compile_fx", _compile_graph),
            (CudaOnHost, "answer", torch.compiler.disable(CudaOnHost.answer)),
            (KernelsOfTheGpu, "__torch_dispatch__", torch.compiler.disable(KernelsOfTheGpu.dispatch)),
            (ast, "parse", _parse_alone),
            (AsyncCompile, "process_pool", staticmethod(_compilers)),
            (type(benchmarker), "benchmark_gpu", staticmethod(_modelled_ms)),
            (dynamo_utils, "get_current_stream", streams.current),  # before 2.15 Dynamo had no such function
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, answer, create=owner is dynamo_utils))
        for name, function in generators.ANSWERS.items():  # Dynamo leaves out PyTorch's own, too
            if callable(function):
                stack.enter_context(mock.patch(f"torch.{name}", torch.compiler.disable(function)))
        yield
