"""`torch.compile` with Inductor for the pretended GPU: its Triton kernels run on the simulated one.

Dynamo and autograd see the real tensors, the CPU's, in a graph of operators. Inductor gets that graph with tensors on the GPU,
and its code runs where PyTorch's functions see the GPU. Three kinds of graphs run operator by operator instead: graphs of host
tensors, also beside a GPU's, graphs that move tensors to the host, and graphs under `torch.autocast`, which sees the CPU.
"""

from __future__ import annotations

import ast
import contextlib
import contextvars
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch._dynamo import utils as dynamo_utils
from torch._dynamo.device_interface import get_interface_for_device, register_interface_for_device
from torch._dynamo.variables import script_object
from torch._dynamo.variables.tensor import TensorVariable
from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState
from torch._inductor import utils
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.runtime.hints import DeviceProperties
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate

from simgpu.machine.compiling.helpers import hardware_threads
from simgpu.tools.torch.cuda import autocast, generators, streams, traced
from simgpu.tools.torch.on_host import CudaOnHost, is_gpu, on_host, pretend_gpu, run_pretended
from simgpu.tools.torch.places import current_place, device_at, mark, on_gpu, place_of
from simgpu.triton.driver import active_driver

_CPU = torch.device("cpu")
# No launcher of PyTorch's own, which calls HIP. No graphs of launches, which only save a GPU's host the time of launching.
_CONFIG = {"use_static_cuda_launcher": False, "triton.cudagraphs": False}
# Modes that time candidates. In others each kernel gets one configuration, the same in each run, where a GPU would time a few.
_TUNING = ("max_autotune", "max_autotune_pointwise", "coordinate_descent_tuning")
_ONE_EACH = {"triton.autotune_pointwise": False, "deterministic": True}
_HOST, _CUDA = 0, 1
_REGISTRAR = "_ZN3c104impl24DeviceGuardImplRegistrarC1ENS_10DeviceTypeEPKNS0_24DeviceGuardImplInterfaceE"  # its constructor
_Opaque: Any = getattr(script_object, "TorchScriptObjectVariable", None) or script_object.CustomClassObjectVariable  # 2.14's name
_matches = _Opaque.is_matching_cls
_begin = SymbolicTorchFunctionState.__init__


def _compile_graph(choice: Any, model: GraphModule, inputs: Sequence[Any], *, config_patches: Any = None) -> Callable[..., Any]:
    """Replaces the call of Inductor in `torch.compile`: returns a graph of Dynamo's as a function."""
    given = [value for value in inputs if isinstance(value, torch.Tensor)]
    named = [value for node in _nodes(model) for value in (*node.args, *node.kwargs.values()) if is_gpu(value)]
    apart = autocast.is_enabled() or any(_to_host(node) or _of_autocast(node) for node in _nodes(model))
    if apart or not all(on_gpu(place_of(value)) for value in given) or not (named or given):
        return run_pretended(model.forward)
    _change_arguments(model, on_host)
    settings = choice.get_compiler_config()
    fixed = {} if any(settings[name] for name in _TUNING) else _ONE_EACH
    patches = {**fixed, **choice.config, **(config_patches or {}), **_CONFIG}
    with torch._functorch.config.patch(enable_autograd_cache=False):
        return compile_fx(model, inputs, inner_compile=_on_the_gpu, config_patches=patches)


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


def _change_arguments(model: GraphModule, change: Callable[[Any], Any]) -> None:
    """Changes the arguments of a graph's operators."""
    for node in _nodes(model):
        node.args, node.kwargs = map_aggregate(node.args, change), map_aggregate(node.kwargs, change)
    for part in _graphs(model):
        part.recompile()


def _move_constants(graph: GraphModule, gpu: torch.device) -> None:
    """Inserts copies to the GPU after a graph's constants, such as the tensor of a list of numbers, which are on the host."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.lift_fresh_copy.default):
        with graph.graph.inserting_after(node):
            moved = graph.graph.call_function(torch.ops.prims.device_put.default, (node, gpu))
        moved.meta.update(node.meta)
        node.replace_all_uses_with(moved, lambda user, moved=moved: user is not moved)
    graph.recompile()


def _on_the_gpu(graph: GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """Calls `compile_fx_inner` for a GPU's graph. Tensors that Inductor makes are on the GPU, as to time candidates."""
    gpu = device_at(current_place())

    def there(value: Any) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        with value.fake_mode:
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=gpu)

    with (
        traced.on_gpus(), pretend_gpu(),
        mock.patch.object(FakeTensorMode, "cache", {}),  # of results by arguments, which have other devices outside
    ):  # fmt: skip
        _change_arguments(graph, lambda value: gpu if value == _CPU else value)
        for node in _nodes(graph):
            if "val" in node.meta:
                node.meta["val"] = map_aggregate(node.meta["val"], there)
        _move_constants(graph, gpu)
        made = compile_fx_inner(graph, list(map(there, inputs)), **options)
    if not hasattr(made, "current_callable"):
        return run_pretended(made)  # a graph without kernels, as of views, is a function
    for constant in (made.constants or {}).values():
        mark(constant, current_place())  # those from Inductor's cache say that they are on the host
    made.current_callable = run_pretended(made.current_callable)
    return made


def _without_ours(state: SymbolicTorchFunctionState, py_stack: Sequence[Any], *args: Any, **options: Any) -> None:
    """Starts Dynamo without the pretended GPU's mode, so that it does not trace into it; others keep their places."""
    stack = list(py_stack)
    _begin(state, stack, *args, **options)
    for place in reversed(range(len(stack))):
        if isinstance(stack[place], CudaOnHost):
            del state.mode_stack[place]


def _traced_device(variable: TensorVariable) -> torch.device:
    """Device that a traced tensor reports: a GPU, unless the tensor, or all of its graph's inputs, are on the host."""
    device: torch.device = vars(variable)["device"]
    node = variable.proxy.node
    inputs = [node] if node.op == "placeholder" else [one for one in node.graph.nodes if one.op == "placeholder"]
    given = [tensor for tensor in map(_example, inputs) if isinstance(tensor, torch.Tensor)]
    hosts = bool(given) and not any(on_gpu(place_of(tensor)) for tensor in given)
    return device if device != _CPU or hosts else device_at(current_place())


def _to_gpu(variable: TensorVariable, tx: Any, *args: Any, **options: Any) -> Any:
    """Traces `Tensor.cuda` as `Tensor.to`: PyTorch's C++ would look for a current GPU."""
    named = next((value.as_python_constant() for value in (*args, *options.values())), None)
    device = f"cuda:{named}" if type(named) is int else str(named or "cuda")
    return variable.call_method(tx, "to", [variable.build(tx, device)], {})


def _patch_method(stack: contextlib.ExitStack, name: str, traced_as: Callable[..., Any]) -> None:
    """Makes Dynamo trace a tensor's method by a function, until the stack ends: in its table of methods, before 2.15 by a name."""
    table = getattr(TensorVariable, "tp_methods", {})
    if table:
        stack.enter_context(mock.patch.dict(table, {name: type(table["size"])(traced_as)}))
    else:
        stack.enter_context(mock.patch.object(TensorVariable, f"method_{name}", traced_as, create=True))


def _example(placeholder: Node) -> Any:
    """Value of a graph's argument, such as a tensor; None if unknown."""
    return getattr(placeholder.meta.get("grapharg"), "example", None)


def _keep(variable: TensorVariable, device: torch.device) -> None:
    vars(variable)["device"] = device  # Dynamo looks here to make a copy


def _is_script_object(kind: type) -> bool:
    """Answers Dynamo for a class; False for the GPU's generators, at which it then breaks a graph, as at `torch.Generator`."""
    return not issubclass(kind, (generators.GpuGenerator, generators.PhiloxGenerator)) and _matches(kind)


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


def _guard_gpus() -> None:
    """Makes PyTorch's C++ do nothing to make a GPU current; a CPU build gives up there, even for tracers' tensors.

    `torch._C._ensureCUDADeviceGuardSet` is meant for that, but works only in builds with CUDA. The guard for the CPU's tensors
    does nothing, and names the CPU as the current device, where tensors are that Dynamo moves to the GPU. It is registered as an
    extension would by `C10_REGISTER_GUARD_IMPL`, through PyTorch's own class for that, `c10::impl::DeviceGuardImplRegistrar`.
    Numbers are those of `c10::DeviceType`.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_CUDA + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    if guards[_CUDA] is None:
        registrar = ctypes.create_string_buffer(8)  # an object without members
        register = getattr(library, _REGISTRAR)
        register.argtypes, register.restype = (ctypes.c_void_p, ctypes.c_int8, ctypes.c_void_p), None
        register(registrar, _CUDA, guards[_HOST])


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
    _guard_gpus()
    _forget()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_interface())
        # Dynamo's tensors of a GPU are on the CPU, so that PyTorch's C++ converts gradients and types for them.
        stack.enter_context(traced.on_devices(on_host))
        for owner, name, answer in (
            (FakeTensorMode, "avoid_device_init", True),  # no constant of the program's is moved to a GPU while it is traced
            (torch._TorchCompileInductorWrapper, "__call__", _compile_graph),
            (SymbolicTorchFunctionState, "__init__", functools.wraps(_begin)(_without_ours)),
            (CudaOnHost, "__torch_function__", torch.compiler.disable(CudaOnHost.__torch_function__)),
            (_Opaque, "is_matching_cls", staticmethod(_is_script_object)),
            (ast, "parse", _parse_alone),
            (AsyncCompile, "process_pool", staticmethod(_compilers)),
            (type(benchmarker), "benchmark_gpu", staticmethod(_modelled_ms)),
            (dynamo_utils, "get_current_stream", streams.current),  # before 2.15 Dynamo had no such function
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(owner, name, answer, create=owner is dynamo_utils))
        for name, function in generators.ANSWERS.items():  # Dynamo leaves out PyTorch's own, too
            if callable(function):
                stack.enter_context(mock.patch(f"torch.{name}", torch.compiler.disable(function)))
        _patch_method(stack, "cuda", _to_gpu)
        stack.enter_context(mock.patch.object(TensorVariable, "device", property(_traced_device, _keep), create=True))
        yield
