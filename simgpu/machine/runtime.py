"""Functions that numba compiles for handlers to call by name, and the memory operations that they are made of.

A handler's object file names such a function; `jit` loads it, compiled or kept like a handler, before the
first handler that does. So no worker holds its address, and a change of sources compiles it anew.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from simgpu.machine import intrinsics
from simgpu.machine.jit import CALLED, compiler, host

# No entry from Python or C to compile, and out of numba's cache, which would not notice that another file changed.
PART = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
BYTE = ir.IntType(8).as_pointer()
I64 = ir.IntType(64)


class Runtime:
    """A function of i64 parameters, which returns i64 or, by its annotation, nothing."""

    def __init__(self, function: Callable[..., int | None]) -> None:
        self.key = f"{function.__module__}.{function.__name__}"
        self.parameters = function.__code__.co_argcount
        self.returns = function.__annotations__["return"] not in (None, "None")
        self._compiled = numba.njit(**PART)(function)

    def call(self, build: ir.IRBuilder, *arguments: Any) -> Any:
        """Emit a call; arguments: i64 values, pointers or ints."""
        values = []
        for value in arguments:
            if isinstance(value, int):
                value = ir.Constant(I64, value)
            values.append(build.ptrtoint(value, I64) if isinstance(value.type, ir.PointerType) else value)
        return intrinsics.call(build, compiler().name(self.key), I64 if self.returns else ir.VoidType(), values)

    @property
    def address(self) -> int:
        return compiler().address_of_object(self.key, self.object_code)

    def object_code(self, name: str) -> bytes:
        """Its object file, as function `name`, which needs nothing of numba to run."""
        return host().object_code(self._ir(name), loops=True)

    def _ir(self, name: str) -> str:
        """The function by C's convention: numba's own returns a status, and what it computes through a pointer."""
        kinds = (types.int64,) * self.parameters
        with _left_as_ir():
            self._compiled.compile(kinds)
        compiled = self._compiled.overloads[kinds]
        inner = compiled.fndesc.llvm_func_name
        result = "i64" if self.returns else "void"
        given = ", ".join(f"i64 %{number}" for number in range(self.parameters))
        module = llvm.parse_assembly(compiled.library.get_llvm_str())
        module.link_in(llvm.parse_assembly(f"""
            declare i32 @"{inner}"(ptr, ptr{", i64" * self.parameters})
            define void @NRT_MemInfo_call_dtor(ptr %owner) {{ ret void }}
            define {result} @{name}({given}) {{
                %result = alloca i64
                %raised = alloca ptr
                call i32 @"{inner}"(ptr %result, ptr %raised, {given})
                %value = load i64, ptr %result
                ret {"i64 %value" if self.returns else "void"}
            }}
        """))
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name != name:
                value.linkage = "internal"  # what is not used goes, and with it what it needs of numba
        return str(module)


class NoEngine:
    """In place of numba's engine: nothing is made machine code or loaded."""

    def __init__(self) -> None:
        self._value = ctypes.c_void_p()

    def add_module(self, module: object) -> None:
        """Nothing."""

    def finalize_object(self) -> None:
        """Nothing."""

    def is_symbol_defined(self, name: str) -> bool:
        """False: nothing is."""
        return False

    def get_global_value_address(self, name: str) -> int:
        """Where nobody looks."""
        return ctypes.addressof(self._value)


@contextlib.contextmanager
def _left_as_ir() -> Iterator[None]:
    """For a block: numba neither optimises what it compiles nor makes it machine code.

    It would do both for each function with all that it calls, and again in each of its callers, where `Host.object_code` does so
    once for the whole: most of the time that the functions of checked mode's races took to compile.
    """
    codegen = cpu_target.target_context.codegen()
    with (
        global_compiler_lock,
        mock.patch.object(numba.config, "OPT", type(numba.config.OPT)(0)),
        mock.patch.object(codegen, "_engine", NoEngine()),
    ):
        yield


def runtime(function: Callable[..., int | None]) -> Runtime:
    """Decorator: a function that handlers may call."""
    made = Runtime(function)
    CALLED[made.key] = made.object_code
    return made


# -- memory ---------------------------------------------------------------------------------------


@intrinsic
def pointer(typing: Any, address: Any) -> Any:
    """An address as a pointer that carray takes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], BYTE)

    return types.voidptr(types.int64), generate


@numba.njit(**PART)
def words(address: int, count: int) -> np.ndarray:
    """`count` i64 at a host address."""
    return numba.carray(pointer(address), count, np.int64)


@numba.njit(**PART)
def octets(address: int, count: int) -> np.ndarray:
    """`count` bytes at a host address."""
    return numba.carray(pointer(address), count, np.uint8)


@numba.njit(**PART)
def structure(address: int, kind: Any) -> Any:
    """The structure of a dtype at a host address, whose fields are read and written by name."""
    return numba.carray(pointer(address), 1, kind)[0]


def _peek(width: int, numba_type: Any) -> Any:
    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.load(builder.inttoptr(args[0], ir.IntType(width).as_pointer()))

        return numba_type(types.int64), generate

    return load


def _poke(width: int) -> Any:
    @intrinsic
    def store(typing: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            raw = args[1]
            if raw.type.width > width:
                raw = builder.trunc(raw, ir.IntType(width))
            builder.store(raw, builder.inttoptr(args[0], ir.IntType(width).as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), generate

    return store


load8, load32, load64 = _peek(8, types.uint8), _peek(32, types.int32), _peek(64, types.int64)
store8, store32, store64 = _poke(8), _poke(32), _poke(64)


@intrinsic
def fill(typing: Any, address: Any, count: Any, value: Any) -> Any:
    """Set `count` bytes to `value`."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kinds = [BYTE, ir.IntType(8), I64, ir.IntType(1)]
        memset = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.memset.p0.i64")
        builder.call(memset, [builder.inttoptr(args[0], BYTE), builder.trunc(args[2], kinds[1]), args[1], kinds[3](0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@intrinsic
def copy(typing: Any, target: Any, source: Any, count: Any) -> Any:
    """Copy `count` bytes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kinds = [BYTE, BYTE, I64, ir.IntType(1)]
        memcpy = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), kinds), "llvm.memcpy.p0.p0.i64")
        builder.call(memcpy, [*(builder.inttoptr(address, BYTE) for address in args[:2]), args[2], kinds[3](0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate


@numba.njit(**PART)
def clear(address: int, count: int) -> None:
    """Zero `count` bytes."""
    fill(address, count, 0)
