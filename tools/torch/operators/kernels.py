"""simgpu's own kernels for PyTorch's operators: emitted once a problem, launched on the GPU that holds the operands.

A problem is an object of `simgpu.operators` with sizes, strides and types. Its kernel's text and code are kept for all sessions,
and the loaded code by each session.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from simgpu import asm, hardware
from simgpu.asm import EmittedKernel
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError, ResourceError, TargetError, UnsupportedInstruction
from simgpu.operators import (
    AttentionProblem,
    ColumnProblem,
    Columns,
    Conv2d,
    Conv2dProblem,
    FusedAttention,
    GemmProblem,
    RowOperator,
    RowTree,
    Softmax,
    SoftmaxProblem,
    TiledComputation,
)
from simgpu.operators.tree import Root
from simgpu.tools.torch.places import GPU, on_gpu, place_of
from simgpu.triton import Session
from simgpu.triton.driver import active_driver
from simgpu.triton.session import LoadedBinary
from simgpu.triton.usage import OperatorUse

KEPT = 1024  # problems whose kernels are kept
FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # whose kernels compute in f32
TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int8: "i8"}
# A problem's class -> its tree's; a GEMM's takes a descriptor.
_TREES: dict[type, Callable[..., Root]] = {
    GemmProblem: TiledComputation.of, RowOperator: RowTree, AttentionProblem: FusedAttention,
    Conv2dProblem: Conv2d, ColumnProblem: Columns, SoftmaxProblem: Softmax,
}  # fmt: skip


class OnHost(Exception):
    """Raised for a call that no kernel of simgpu serves; its text is the reason. The host computes it."""


_UNSERVED = (LaunchError, ResourceError, TargetError, UnsupportedInstruction)  # reasons why a problem has no kernel


def pose(kind: Callable[..., Any], *sizes: Any, **options: Any) -> Any:
    """Returns a problem. Raises OnHost for sizes or strides that it cannot have."""
    try:
        return kind(*sizes, **options)
    except LaunchError as error:
        raise OnHost(str(error)) from None


def tree_of(problem: Any, board: str) -> Root:
    """Returns the tree of a problem."""
    made = next(made for kind, made in _TREES.items() if isinstance(problem, kind))
    return made(problem, hardware.target(board))


@functools.lru_cache(maxsize=KEPT)
def emit_code(problem: Any, board: str, emit: Callable[[Any], EmittedKernel] = asm.emit) -> tuple[EmittedKernel, bytes]:
    """Returns the kernels of a problem and their code. Raises OnHost if it has none."""
    try:
        kernel = emit(tree_of(problem, board))
        return kernel, kernel.assemble()
    except _UNSERVED as error:
        raise OnHost(str(error)) from None


def type_of(tensor: torch.Tensor, *served: torch.dtype) -> str:
    """Returns simgpu's name of a tensor's type. Raises OnHost if it is not among the served ones (default: all of TYPES), and for
    tensors that are no plain elements in memory."""
    if tensor.dtype not in (served or TYPES):
        raise OnHost(f"of {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.layout is not torch.strided:
        raise OnHost(f"of layout {str(tensor.layout).removeprefix('torch.')}")
    if not tensor.numel():
        raise OnHost("of an empty tensor")
    if tensor.is_neg() or not tensor.data_ptr():
        raise OnHost("of a tensor that is computed when read")
    return TYPES[tensor.dtype]


@contextmanager
def _on_gpu_of(tensors: Mapping[str, torch.Tensor], session: Session) -> Iterator[None]:
    """Makes the tensors' GPU the current one for a block."""
    places = (place for place in map(place_of, tensors.values()) if on_gpu(place) and place != GPU)
    before, place = session.current, next(places, GPU)
    session.use(before if place == GPU else torch.device(place).index)
    try:
        yield
    finally:
        session.use(before)


@dataclass(frozen=True)
class Call:
    """A call of an operator: launches kernels for it, and counts them."""

    use: OperatorUse

    def launch(self, problem: Any, emit: Callable[[Any], EmittedKernel] = asm.emit, /, **tensors: torch.Tensor) -> None:
        """Runs a problem's kernels on tensors, by the kernels' names of their operands. Raises OnHost if it has none."""
        session = active_driver().session
        kernel, code = emit_code(problem, session.board, emit)
        with _on_gpu_of(tensors, session):
            scratch = {name: session.gpu.alloc(nbytes) for name, nbytes in kernel.scratch}
            try:
                named = {**{name: tensor.data_ptr() for name, tensor in tensors.items()}, **scratch}
                for step in kernel.steps:
                    loaded = session.kernel(LoadedBinary(step.name, code, 0))
                    given = [(f"operand {name}", tensors[name]) for name in step.buffers if name in tensors]
                    geometry = Geometry.of(step.grid, step.block)
                    spent = session.launch_for(self.use.operator, loaded, geometry, step.bind(named), given)
                    self.use.kernels[step.name] += 1
                    self.use.add_time(spent)
            finally:
                for buffer in scratch.values():
                    session.gpu.free(buffer)
