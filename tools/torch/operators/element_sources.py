"""Element-wise operators that rows of f32 cannot express, as Triton kernels: comparisons, bits, integers, special functions.

Operands are contiguous and of one type. `JITFunction`, unlike `triton.jit`, compiles also with TRITON_INTERPRET=1, when Triton's
own library does not, so kernels call only what its language has built in.
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction

BLOCK = 1024  # elements of a workgroup


@JITFunction
def binary(x, y, out, count, NAME: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes a function of x and y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, at < count)
    b = tl.load(y + at, at < count)
    if NAME == "eq":
        found = a == b
    elif NAME == "ne":
        found = a != b
    elif NAME == "lt":
        found = a < b
    elif NAME == "le":
        found = a <= b
    elif NAME == "gt":
        found = a > b
    elif NAME == "ge":
        found = a >= b
    elif NAME == "bitwise_and":
        found = a & b
    elif NAME == "bitwise_or":
        found = a | b
    elif NAME == "bitwise_xor":
        found = a ^ b
    elif NAME == "add":
        found = a + b
    elif NAME == "sub":
        found = a - b
    elif NAME == "mul":
        found = a * b
    elif NAME == "maximum":
        found = tl.where((a > b) | (a != a), a, b)
    elif NAME == "minimum":
        found = tl.where((a < b) | (a != a), a, b)
    elif NAME == "atan2":
        found = libdevice.atan2(a, b)
    elif NAME == "pow":
        found = libdevice.pow(a, b)
    elif NAME == "fmod":
        found = libdevice.fmod(a, b)
    elif NAME == "div":
        found = a / b
    elif NAME == "remainder":  # with the sign of b
        rest = libdevice.fmod(a, b) if a.dtype.is_floating() else a % b
        found = tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    elif NAME == "floor_divide":
        found = a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(a.dtype)
    else:
        found = libdevice.hypot(a, b)
    tl.store(out + at, found, at < count)


@JITFunction
def choose(condition, x, y, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Takes elements of x where the condition is true, else of y."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    chosen = tl.where(tl.load(condition + at, at < count), tl.load(x + at, at < count), tl.load(y + at, at < count))
    tl.store(out + at, chosen, at < count)


@JITFunction
def _angles(a, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes a function of angles or areas, or its inverse."""
    if NAME == "sin":
        found = libdevice.sin(a)
    elif NAME == "cos":
        found = libdevice.cos(a)
    elif NAME == "tan":
        found = libdevice.tan(a)
    elif NAME == "asin":
        found = libdevice.asin(a)
    elif NAME == "acos":
        found = libdevice.acos(a)
    elif NAME == "atan":
        found = libdevice.atan(a)
    elif NAME == "sinh":
        found = libdevice.sinh(a)
    elif NAME == "cosh":
        found = libdevice.cosh(a)
    elif NAME == "tanh":
        found = libdevice.tanh(a)
    elif NAME == "asinh":
        found = libdevice.asinh(a)
    elif NAME == "acosh":
        found = libdevice.acosh(a)
    else:
        found = libdevice.atanh(a)
    return found


@JITFunction
def unary(x, out, count, NAME: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes a function of x, as ROCm's library of the device does (its OCML, by Triton's libdevice)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, at < count)
    if NAME == "erf":
        found = libdevice.erf(a)
    elif NAME == "erfc":
        found = libdevice.erfc(a)
    elif NAME == "erfinv":
        found = libdevice.erfinv(a)
    elif NAME == "lgamma":
        found = libdevice.lgamma(a)
    elif NAME == "exp2":
        found = libdevice.exp2(a)
    elif NAME == "expm1":
        found = libdevice.expm1(a)
    elif NAME == "log2":
        found = libdevice.log2(a)
    elif NAME == "log10":
        found = libdevice.log10(a)
    elif NAME == "log1p":
        found = libdevice.log1p(a)
    elif NAME == "floor":
        found = libdevice.floor(a)
    elif NAME == "ceil":
        found = libdevice.ceil(a)
    elif NAME == "trunc":
        found = libdevice.trunc(a)
    elif NAME == "round":
        found = libdevice.rint(a)
    elif NAME == "sign":
        found = (a > 0).to(tl.int8) - (a < 0).to(tl.int8)
    elif NAME == "neg":
        found = -a
    elif NAME == "abs":
        found = tl.where(a < 0, -a, tl.where(a == 0, 0, a).to(a.dtype))
    elif NAME == "exp":
        found = libdevice.exp(a)
    elif NAME == "log":
        found = libdevice.log(a)
    elif NAME == "sqrt":
        found = libdevice.sqrt(a)
    elif NAME == "rsqrt":
        found = libdevice.rsqrt(a)
    elif NAME == "reciprocal":
        found = 1 / a
    elif NAME == "isnan":
        found = a != a
    elif NAME == "bitwise_not":
        found = ~a
    elif NAME == "logical_not":
        found = a == 0
    else:
        found = _angles(a, NAME)
    tl.store(out + at, found, at < count)
