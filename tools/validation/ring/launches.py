"""A Triton kernel's launch in the ring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources

import simgpu.triton
from simgpu.hardware.errors import LaunchError
from simgpu.tools.cases.same import Side, branches
from simgpu.tools.validation.ring.groups import Variant


@dataclass(frozen=True)
class Addresses:
    """An argument that is an array of the addresses of `pointees`, by their names."""

    names: Sequence[str]


@dataclass(frozen=True)
class TritonLaunch:
    """A kernel with its arguments: arrays, which a launch copies, tables of addresses, and numbers.

    options: constants of the kernel, and the compiler's `num_warps` and the like.
    """

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    pointees: Mapping[str, np.ndarray] = field(default_factory=dict)  # arrays whose addresses a table has

    def run(self, target: str) -> Side:
        """Runs it on a simulated GPU. Raises LaunchError if Triton does not compile it for the GPU, and SimError if it fails."""
        given = {**self.arguments, **self.pointees}
        before = {name: value.copy("K") for name, value in given.items() if isinstance(value, np.ndarray)}
        held = {name: value.copy("K") for name, value in before.items()}
        values = [self._value(given[name], held.get(name), held) for name in self.arguments]
        try:
            with simgpu.triton.device(target, ring=True) as session:
                session.register(*(held[name] for name in self.pointees))
                launched = self.kernel[self.grid](*values, **self.options)
        except (OutOfResources, CompilationError, RuntimeError) as error:
            raise LaunchError(str(error).strip().splitlines()[-1]) from None
        return Side(self.kernel.__name__, before, held, branches(launched.function.last.kernel))

    def variant(self, label: str, target: str) -> Variant:
        """Returns the launch as a variant."""
        return Variant(label, partial(self.run, target))

    @staticmethod
    def _value(value: Any, copied: np.ndarray | None, held: Mapping[str, np.ndarray]) -> Any:
        if isinstance(value, Addresses):
            return np.array([held[name].ctypes.data for name in value.names], np.int64)
        return value if copied is None else copied
