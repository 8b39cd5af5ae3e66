"""simgpu's own kernels for PyTorch's operators: emitted once a problem, launched on the GPU that holds the operands.

A problem is an object of `simgpu.operators` with sizes, strides and types. Its kernel's text and code are kept for all sessions,
and the loaded code by each session.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

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
from simgpu.tools.torch.operators.compiled import WARP, WARPS, compile_kernel
from simgpu.tools.torch.places import GPU, on_gpu, place_of
from simgpu.triton import Session
from simgpu.triton.arguments import ArgumentValue, encode
from simgpu.triton.driver import active_driver
from simgpu.triton.session import LoadedBinary
from simgpu.triton.usage import OperatorUse

KEPT = 1024  # problems whose kernels are kept
FLOATS = (torch.float32, torch.float16, torch.bfloat16)  # whose kernels compute in f32
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int8: "i8"}
# Types of tensors that Triton's kernels take, by its name of a pointer.
POINTEES = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float64: "*fp64", torch.int8: "*i8",
    torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip
LARGEST = 2**31  # integers that kernels count with are smaller
# A problem's class -> its tree's; a GEMM's takes a descriptor.
_TREES: dict[type, Callable[..., Root]] = {
    GemmProblem: TiledComputation.of, RowOperator: RowTree, AttentionProblem: FusedAttention,
    Conv2dProblem: Conv2d, ColumnProblem: Columns, SoftmaxProblem: Softmax,
}  # fmt: skip


class OnHost(Exception):
    """Raised for a call that no kernel of simgpu serves; its text is the reason. The host computes it."""


class OfType(OnHost):
    """Raised for an operand of a type that the kernel does not serve; those of simpler operators may."""


class NothingToCompute(OnHost):
    """Raised for an operand without elements: a GPU would have nothing to compute, and the host at most fills a result."""


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


def serve(tensor: Tensor, *served: torch.dtype) -> None:
    """Raises OnHost for a tensor of a type that is not among the served ones, and for one that is no plain elements in memory."""
    if tensor.dtype not in served:
        raise OfType(f"of {str(tensor.dtype).removeprefix('torch.')}")
    if tensor.layout is not torch.strided:
        raise OnHost(f"of layout {str(tensor.layout).removeprefix('torch.')}")
    if not tensor.numel():
        raise NothingToCompute("of an empty tensor")
    if tensor.is_neg() or not tensor.data_ptr():
        raise OnHost("of a tensor that is computed when read")


def type_of(tensor: Tensor, *served: torch.dtype) -> str:
    """Returns simgpu's name of a tensor's type. Raises OnHost as `serve` (default: all of TYPES)."""
    serve(tensor, *(served or TYPES))
    return TYPES[tensor.dtype]


@contextmanager
def _on_gpu_of(tensors: Mapping[str, Tensor], session: Session) -> Iterator[None]:
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

    def launch(self, problem: Any, emit: Callable[[Any], EmittedKernel] = asm.emit, /, **tensors: Tensor) -> None:
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

    def run(
        self, function: JITFunction, groups: Sequence[int], *arguments: Tensor | int | float, constants: Sequence[Any] = ()
    ) -> None:
        """Runs a Triton kernel of this package: tensors are pointers, integers have 32 bits, other numbers f32.

        groups: workgroups along each axis. constants: its last arguments. Raises OnHost for a tensor of a type that Triton lacks,
        and for more elements than 32 bits count.
        """
        session = active_driver().session
        tensors = {name: one for name, one in zip(function.arg_names, arguments) if isinstance(one, Tensor)}
        if max((one for one in (*arguments, *groups) if isinstance(one, int)), default=0) >= LARGEST:
            raise OnHost("of too many elements")
        types = tuple(map(_argument_type, arguments))
        values = [ArgumentValue(*each) for each in zip(function.arg_names, types, arguments)]
        with _on_gpu_of(tensors, session):
            made = compile_kernel(function, types, tuple(constants), session.gpu.arch)
            kernel = session.kernel(LoadedBinary(made.name, made.code, made.lds))
            given = [one.value.data_ptr() if one.is_pointer else encode(one) for one in values]
            spent = session.launch_for(
                self.use.operator, kernel, Geometry.of(tuple(groups), WARP * WARPS, made.lds), [*given, 0, 0],  # unused scratch
                [(f"operand {name}", one) for name, one in tensors.items()],
            )  # fmt: skip
            self.use.kernels[made.name] += 1
            self.use.add_time(spent)


def _argument_type(argument: Tensor | int | float) -> str:
    """Returns Triton's name of an argument's type."""
    if not isinstance(argument, Tensor):
        return "i32" if isinstance(argument, int) else "fp32"
    serve(argument, *POINTEES)
    return POINTEES[argument.dtype]
