"""An operator as the command sees it, and options that several operators have."""

from __future__ import annotations

import math
import struct
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.hardware.dtypes import dtype
from simgpu.operators.tree import Root
from simgpu.tools.cases.workload import Workload
from simgpu.tools.shared.inputs import Inputs

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

Matrices = dict[str, np.ndarray]


def emit(tree: Root) -> EmittedKernel:
    """Emits the tree's kernels. Raises as `simgpu.asm.emit`, which is imported only here."""
    from simgpu import asm

    return asm.emit(tree)


def _host_bytes(problem: Any) -> int:
    return int(10 * problem.bytes_once * 64 // dtype(problem.dtype).bits)


@dataclass(frozen=True)
class Kernels:
    """Kernels of an operator, and how to make their operands."""

    workload: Callable[[Any, str, Inputs], Workload]  # random operands of a tree on an architecture
    emit: Callable[[Any], EmittedKernel] = emit  # from a tree; raises as `simgpu.asm.emit`
    whole: bool = True  # they compute all of the operator, so its FLOPs are theirs
    summary: str = ""  # of kernels that --kernel names, for --help


@dataclass(frozen=True)
class Operator:
    """An operator, as the command sees it."""

    name: str  # OP on the command line
    summary: str  # for --help: the formula that it computes
    root: type[Root]  # class of its trees
    configure: Callable[[ArgumentParser], None]  # adds its own options
    tree: Callable[[Namespace], Root]  # the tree that the options describe; LaunchError and TargetError as its constructor
    kernels: Kernels  # kernels of the tree
    others: Mapping[str, Kernels] = field(default_factory=dict)  # kernels that --kernel may name instead
    figures: Callable[[Any], dict[str, Any]] = lambda plan: {}  # a derivation's figures in addition to its sizes
    matrices: Callable[[Any, Workload], Matrices] = lambda tree, work: {}  # matrices that a fragment may hold, in float64
    host_bytes: Callable[[Any], int] = _host_bytes  # upper bound on the host bytes that a run of a problem uses
    operand_bytes: Callable[[Any], int] = lambda problem: int(problem.bytes_once)  # bytes of its operands in memory

    def choose_kernels(self, options: Namespace) -> Kernels:
        """Returns the kernels that --kernel names; without it, the tree's."""
        return self.others.get(getattr(options, "kernel", ""), self.kernels)


def finite_number(text: str) -> float:
    """Parses a finite number and rounds it to f32, as a kernel takes it."""
    try:
        (value,) = struct.unpack("<f", struct.pack("<f", float(text)))
    except OverflowError:
        raise ArgumentTypeError(f"{text!r} is past the largest f32") from None
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(value):
        raise ArgumentTypeError(f"{text!r} is not finite")
    return float(value)


def add_strides(sub: ArgumentParser, names: tuple[str, ...]) -> None:
    """Adds row strides, as --lda for A."""
    for name in names:
        sub.add_argument(f"--{name}", type=int, help=f"row stride of {name[2].upper()} in elements (default: its row)")


def add_output_options(sub: ArgumentParser, name: str) -> None:
    """Adds the result's type, and the scale of 8-bit ones."""
    sub.add_argument("--dtype-c", default="", help=f"type of {name}: the accumulator's (default), f32, f16, bf16, fp8 or bf8")
    sub.add_argument("--scale-c", type=finite_number, default=1.0, help=f"factor of {name} before it is rounded to fp8 or bf8")
