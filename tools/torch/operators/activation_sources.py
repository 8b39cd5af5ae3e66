"""PyTorch's activations with branches or parameters, and their gradients, as a Triton kernel.

Formulas are those of ATen/native/cuda's Activation*.cu, in f32. `element_sources` says what such kernels may call.
"""

from __future__ import annotations

import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.jit import JITFunction


@JITFunction
def _value(x, a, b, c, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes an activation with up to three parameters."""
    if NAME == "elu":
        found = tl.where(x <= 0, libdevice.expm1(x * c) * a * b, x * b)
    elif NAME == "softplus":
        found = tl.where(x * a > b, x, libdevice.log1p(libdevice.exp(x * a)) / a)
    elif NAME == "hardsigmoid":
        found = _clamp(x + 3, 0.0, 6.0) / 6
    elif NAME == "hardswish":
        found = x * _clamp(x + 3, 0.0, 6.0) / 6
    elif NAME == "mish":
        found = x * libdevice.tanh(libdevice.log1p(libdevice.exp(x)))
    elif NAME == "log_sigmoid":
        found = _clamp(x, float("-inf"), 0.0) - libdevice.log1p(libdevice.exp(-tl.where(x < 0, -x, x)))
    elif NAME == "hardshrink":
        found = tl.where((x >= -a) & (x <= a), 0.0, x)
    elif NAME == "softshrink":
        found = tl.where(x > a, x - a, tl.where(x < -a, x + a, x * 0.0))
    else:  # threshold
        found = tl.where(x <= a, b, x)
    return found


@JITFunction
def _clamp(x, low, high):  # type: ignore[no-untyped-def]
    """Limits a number; NaN stays."""
    return tl.where(x < low, low, tl.where(x > high, high, x))


@JITFunction
def _gradient(g, x, a, b, c, NAME: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes the gradient of an activation from that of its result."""
    if NAME == "elu":
        found = tl.where(x <= 0, g * c * a * b * libdevice.exp(x * c), g * b)
    elif NAME == "elu_result":
        found = tl.where(x <= 0, g * c * (x + a * b), g * b)
    elif NAME == "softplus":
        raised = libdevice.exp(x * a)
        found = tl.where(x * a > b, g, g * raised / (raised + 1))
    elif NAME == "hardsigmoid":
        found = tl.where((x > -3) & (x < 3), g / 6, 0.0)
    elif NAME == "hardswish":
        found = tl.where(x <= -3, 0.0, tl.where(x < 3, g * (x / 3 + 0.5), g))
    elif NAME == "mish":
        bent = libdevice.tanh(libdevice.log1p(libdevice.exp(x)))
        found = g * (bent + x * (1 - bent * bent) / (1 + libdevice.exp(-x)))
    elif NAME == "log_sigmoid":
        raised = libdevice.exp(-tl.where(x < 0, -x, x))
        share = raised / (1 + raised)
        found = g * tl.where(x < 0, 1 - share, share)
    elif NAME == "hardtanh":
        found = tl.where((x > a) & (x < b), g, 0.0)
    else:  # hardshrink, softshrink
        found = tl.where((x >= -a) & (x <= a), 0.0, g)
    return found


@JITFunction
def activate(x, out, count, a, b, c, NAME: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes an activation of each element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, _value(tl.load(x + at, at < count, 0.0), a, b, c, NAME), at < count)


@JITFunction
def activation_gradients(g, x, out, count, a, b, c, NAME: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Computes the gradient of an activation of each element; g: that of its result."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    given, value = tl.load(g + at, at < count, 0.0), tl.load(x + at, at < count, 0.0)
    tl.store(out + at, _gradient(given, value, a, b, c, NAME), at < count)
