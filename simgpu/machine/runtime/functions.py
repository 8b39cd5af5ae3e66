"""Decorators of functions that become machine code.

A handler's object file refers to such a function by name. `jit` compiles or loads the function like a handler, before the first
handler that calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import CALLED, compiler, pause_gc
from simgpu.machine.runtime.source import Part
from simgpu.machine.runtime.translate import Translation
from simgpu.machine.values import I64

F = TypeVar("F", bound=Callable[..., Any])


class Runtime:
    """A function that handlers may call. Its arguments are integers; it returns an integer, or None by its annotation."""

    def __init__(self, function: Callable[..., int | None]) -> None:
        self.key = f"{function.__module__}.{function.__name__}"
        self.parameters = function.__code__.co_argcount
        self.returns = function.__annotations__["return"] not in (None, "None")
        self._part = Part(function)

    def call(self, build: ir.IRBuilder, *arguments: Any) -> Any:
        """Emits a call; arguments: i64 values, pointers or ints."""
        values = []
        for value in arguments:
            if isinstance(value, int):
                value = ir.Constant(I64, value)
            values.append(build.ptrtoint(value, I64) if isinstance(value.type, ir.PointerType) else value)
        return intrinsics.call(build, compiler().name(self.key), I64 if self.returns else ir.VoidType(), values)

    @property
    def address(self) -> int:
        return compiler().address_of_source(self.key, self.source)

    def source(self, name: str) -> ModuleSource:
        """Returns its source, as function `name`."""
        return ModuleSource(self.text(name), loops=True)

    def text(self, name: str) -> str:
        """Returns the module's IR."""
        with pause_gc():
            return self._text(name)

    def _text(self, name: str) -> str:
        module = compiler().module(name)
        Translation(module).entry(self._part, name, self.parameters, self.returns)
        return str(module)


def runtime(function: Callable[..., int | None]) -> Runtime:
    """Decorates a function that handlers may call."""
    made = Runtime(function)
    CALLED[made.key] = made.source
    return made


def part(function: F) -> F:
    """Decorates a function that `runtime` functions may call."""
    return Part(function)  # type: ignore[return-value]


def cold_part(function: F) -> F:
    """Decorates a `part` that is rarely called: LLVM optimises it for size and does not inline it."""
    return Part(function, seldom=True)  # type: ignore[return-value]
