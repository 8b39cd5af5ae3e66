"""`torch.cuda.CUDAGraph`: a block's operations are captured, and `replay` computes them again at the same addresses.

PyTorch's operators, below autograd, and launches of kernels are captured. They also run then, since the program needs the
shapes and dtypes of their results. Memory that they overwrote is restored, because a GPU runs nothing during a capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simgpu.tools.torch.cuda import devices, generators, streams
from simgpu.tools.torch.places import tensors_in
from simgpu.triton.driver import active_driver


class GraphCapture(TorchDispatchMode):
    """Records each operator as a step of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Callable[[], Any]] = []
        self.names: list[str] = []  # of the steps
        self._paused = 0  # depth of blocks in `pause`
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by storage: its bytes, and a copy

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if self._paused:
            return func(*args, **given)
        if func._schema.is_mutable:
            self.keep(tensors_in((*args, *given.values())))
        with _undrawn(given) if torch.Tag.nondeterministic_seeded in func.tags else nullcontext():
            result = func(*args, **given)
        self._add(func.name(), partial(_recompute, func, args, given, result))
        return result

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Lets a block's operators run during the capture; they are no steps."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def _add(self, name: str, step: Callable[[], Any]) -> None:
        self.steps.append(step)
        self.names.append(name)

    def compute(self, name: str, function: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Records an operator that `function` computes, by kernels that are no launches of the program's; NotImplemented if it
        returns that."""
        with self.pause(), _undrawn(given):
            self.keep(tensors_in((*args[:1], *given.values())))  # in place, or into a tensor passed for the result
            result = function(*args, **given)
        if result is not NotImplemented:
            self._add(name, partial(_recompute, function, args, given, result))
        return result

    def launch(self, run: Callable[..., Any], *args: Any) -> None:
        """Records a launch. args: those of `Session.launch`."""
        binary, _, _, values, _ = args
        with self.pause():  # nothing that the launch does is a step of its own
            self.keep(value.value for value in values if isinstance(value.value, torch.Tensor))
            run(*args)
        self._add(binary.name, partial(run, *args))

    def keep(self, tensors: Any) -> None:
        """Copies storages that are about to be written."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self._before:
                held = torch.empty(0, dtype=torch.uint8).set_(storage)
                self._before[storage.data_ptr()] = held, held.clone()

    def put_back(self) -> None:
        """Restores overwritten storages."""
        for held, copy in self._before.values():
            held.copy_(copy)
        self._before.clear()


@contextmanager
def _undrawn(given: Mapping[str, Any]) -> Iterator[None]:
    """Restores the state of the generator that an operator draws from, since a GPU draws nothing during a capture."""
    generator = given.get("generator") or torch.default_generator
    engine = generators.Engine.of(generator) or generators.generator(devices.current()).engine
    drawn, offset = generator.get_state(), engine.offset
    try:
        yield
    finally:
        generator.set_state(drawn)
        engine.offset = offset


def _recompute(func: Any, args: Sequence[Any], given: Mapping[str, Any], result: Any) -> None:
    """Computes an operator again, into the tensors that it returned when it was captured."""
    new = func(*args, **given)
    known = {tensor.untyped_storage().data_ptr() for tensor in tensors_in((*args, *given.values()))}
    for old, now in zip(tensors_in((result,)), tensors_in((new,)), strict=True):
        if old.untyped_storage().data_ptr() not in known:  # neither a view nor written in place
            old.copy_(now)


class CaptureBlock:
    """Replaces `torch.cuda.graph`: a block's operations are captured, on a stream of its own by default."""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: object = None, stream: streams.Stream | None = None, **_options: object
    ) -> None:  # fmt: skip
        self.cuda_graph = cuda_graph
        self.capture_stream = _capture_stream(devices.current()) if stream is None else stream

    def __enter__(self) -> None:
        self.capture_stream.__enter__()
        self.cuda_graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self.cuda_graph.capture_end()
        self.capture_stream.__exit__()


@cache
def _capture_stream(index: int) -> streams.Stream:
    """Returns the stream of captures that name none, on the GPU of this number."""
    return streams.Stream(index)


class CUDAGraph:
    """A captured graph. Random operators draw new numbers at each replay."""

    _captures = 0  # number under way

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[Callable[[], Any]] | None = None
        self._under_way: tuple[GraphCapture, ExitStack] | None = None
        self._names: list[str] = []  # of the steps
        self._debugged = False

    @classmethod
    def capturing(cls) -> bool:
        """Answers `torch.cuda.is_current_stream_capturing`."""
        return cls._captures > 0

    def capture_begin(self, pool: object = None, **_options: object) -> None:
        """Starts a capture: from here on, this thread's operations belong to the graph."""
        if self._under_way is not None:
            raise RuntimeError("the graph's capture is under way: end it first")
        if streams.current() == streams.default():
            raise RuntimeError("CUDA graphs must be captured on a non-default stream. `torch.cuda.graph` makes one")
        stack, capture, session = ExitStack(), GraphCapture(), active_driver().session
        stack.enter_context(mock.patch.object(session, "launch", partial(capture.launch, session.launch)))
        stack.enter_context(capture)
        self._under_way = capture, stack
        CUDAGraph._captures += 1

    def capture_end(self) -> None:
        """Ends the capture."""
        if self._under_way is None:
            raise RuntimeError("the graph's capture has not begun")
        capture, stack = self._under_way
        CUDAGraph._captures -= 1
        self._under_way = None
        stack.close()
        capture.put_back()
        self._steps, self._names = capture.steps, capture.names

    def replay(self) -> None:
        """Computes all captured steps on the present contents of their memory."""
        if self._steps is None:
            raise RuntimeError("the graph has not been captured: nothing to replay")
        with torch.no_grad():
            for step in self._steps:
                step()

    def instantiate(self) -> None:
        """Does nothing: there is nothing to prepare."""

    def reset(self) -> None:
        """Forgets the captured steps."""
        self._steps = None

    def pool(self) -> tuple[int, int]:
        """Returns a handle without memory of its own."""
        return 0, 0

    def register_generator_state(self, state: torch.Generator) -> None:
        """Does nothing: a replay draws from any generator that its operators were called with."""

    def enable_debug_mode(self) -> None:
        """Makes `debug_dump` write."""
        self._debugged = True

    def debug_dump(self, debug_path: str) -> None:
        """Writes the steps' names to a file, in their order, as a graph of Graphviz, if `enable_debug_mode` was called."""
        if self._debugged:
            nodes = [f'  s{number} [label="{name}"];\n' for number, name in enumerate(self._names)]
            edges = [f"  s{number - 1} -> s{number};\n" for number in range(1, len(nodes))]
            Path(debug_path).write_text(f"digraph {{\n{''.join((*nodes, *edges))}}}\n")


ANSWERS: dict[str, Any] = {
    "cuda.graph": CaptureBlock, "cuda.graphs.graph": CaptureBlock,
    "cuda.CUDAGraph": CUDAGraph, "cuda.graphs.CUDAGraph": CUDAGraph,
    **{f"cuda.{module}graph_pool_handle": lambda: (0, 0) for module in ("", "graphs.")},
    **{f"cuda.{module}is_current_stream_capturing": CUDAGraph.capturing for module in ("", "graphs.")},
}  # fmt: skip
