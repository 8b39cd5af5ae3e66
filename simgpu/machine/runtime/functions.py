"""Decorators of functions that become machine code, for handlers or for Python to call.

A handler's object file refers to such a function by name. `jit` compiles or loads the function like a handler, before the first
handler that calls it. A function that Python calls is compiled or loaded at its first call with arguments of these types.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from llvmlite import ir

from simgpu.machine import intrinsics
from simgpu.machine.compiling.object_file import ModuleSource
from simgpu.machine.jit import CALLED, compiler, pause_gc
from simgpu.machine.runtime.places import Array
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
    """Decorates a function that `runtime` and `native` functions may call."""
    return Part(function)  # type: ignore[return-value]


def cold_part(function: F) -> F:
    """Decorates a `part` that is rarely called: LLVM optimises it for size and does not inline it."""
    return Part(function, seldom=True)  # type: ignore[return-value]


class Native:
    """A function that Python calls. It runs as machine code, without the GIL.

    Its arguments are numpy arrays, numbers, and tuples or NamedTuples of these; it returns an integer, or None by its annotation.
    The machine code has a version for each combination of the arguments' types.
    """

    def __init__(self, function: Callable[..., int | None]) -> None:
        self.key = f"{function.__module__}.{function.__name__}"
        self.returns = function.__annotations__["return"] not in (None, "None")
        self._part = Part(function)
        self._versions: dict[Any, Callable[[int], int]] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> int | None:
        """Raises ValueError for an array whose elements do not follow each other, and TypeError for arguments of other types."""
        words: list[int] = []
        form = tuple([_lay_out(argument, words) for argument in arguments])
        version = self._versions.get(form)
        if version is None:
            version = self._versions[form] = self._version_for(form)
        block = (ctypes.c_int64 * len(words))(*words)
        result = version(ctypes.addressof(block))
        return result if self.returns else None

    def _version_for(self, form: tuple[Any, ...]) -> Callable[[int], int]:
        key = f"{self.key} {' '.join(map(_spell, form))}"
        address = compiler().address_of_source(key, functools.partial(self._source, form))
        made: Callable[[int], int] = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)
        return made

    def _source(self, form: tuple[Any, ...], name: str) -> ModuleSource:
        with pause_gc():
            module = compiler().module(name)
            Translation(module).entry_of_words(self._part, name, form)
            return ModuleSource(str(module), loops=True)


def native(function: F) -> F:
    """Decorates a function that Python calls, to run as machine code."""
    return Native(function)  # type: ignore[return-value]


def _lay_out(value: Any, words: list[int]) -> Any:
    """Adds the 64-bit words of an argument; returns its form (`places.shape`)."""
    if isinstance(value, np.ndarray):
        if not (value.flags.c_contiguous and value.flags.aligned and value.dtype.isnative):
            about = f"{value.dtype}, shape {value.shape} and strides {value.strides}"
            raise ValueError(f"an array of {about}: its elements must be aligned, of this host's byte order, and follow each other")
        words += (value.ctypes.data, *value.shape)
        return Array, value.dtype, value.ndim
    if isinstance(value, (int, np.integer, np.bool_)):
        words.append(int(value))
        return int
    if isinstance(value, (float, np.floating)):
        words.append(*struct.unpack("q", struct.pack("d", value)))
        return float
    if isinstance(value, tuple):
        return (type(value), *[_lay_out(one, words) for one in value])
    raise TypeError(f"machine code takes no {type(value).__name__}")


def _spell(form: Any) -> str:
    """Returns a form's name, the same in each process."""
    if form in (int, float):
        return str(form.__name__)
    if form[0] is Array:
        return f"{form[1]!r}[{form[2]}]"
    return f"{form[0].__module__}.{form[0].__qualname__}({', '.join(map(_spell, form[1:]))})"
