"""Triton kernels of this package, compiled once for the types of their arguments and their constants."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

WARP, WARPS = 64, 4  # lanes of a wave, waves of a workgroup


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's code object, and the bytes of LDS that a workgroup requests."""

    name: str
    code: bytes
    lds: int


@functools.cache
def compile_kernel(
    function: JITFunction, types: tuple[str, ...], constants: tuple[Any, ...], arch: str, aligned: bool = False
) -> CompiledKernel:
    """Compiles a function of arguments of these types, in Triton's names, and of constants, which come last.

    aligned: its arguments are multiples of 16.
    """
    names = function.arg_names
    signature = dict(zip(names, (*types, *["constexpr"] * len(constants)), strict=True))
    values = dict(zip(names[len(types) :], constants, strict=True))
    attributes = {(at,): [["tt.divisibility", 16]] for at in range(len(types))} if aligned else {}
    source = triton.compiler.ASTSource(function, signature, values, attributes)
    made = triton.compile(source, target=GPUTarget("hip", arch, WARP), options={"num_warps": WARPS, "enable_fp_fusion": True})
    return CompiledKernel(made.metadata.name, made.asm["hsaco"], made.metadata.shared)
