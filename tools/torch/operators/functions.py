"""PyTorch's element-wise operators by Triton kernels: comparisons, logic, integers, f64, special functions, any power."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators.element_sources import BLOCK, binary, choose, unary
from simgpu.tools.torch.operators.elements import ELEMENTS, lay_out
from simgpu.tools.torch.operators.kernels import FLOATS, INTEGERS, POINTEES, Call, OnHost, serve

_REAL = (*FLOATS, torch.float64)


def _compute(call: Call, name: str, x: Any, other: Any, kind: torch.dtype, result: torch.dtype) -> Tensor:
    """Returns a function of two operands, tensors or numbers, computed in one type and stored in another."""
    operands = [one if isinstance(one, Tensor) else _number(one, kind) for one in (x, other)]
    for one in operands:
        serve(one, *POINTEES)
    flat, out, into = lay_out(operands, kind, result)
    call.run(binary, (-(-len(into) // BLOCK),), *flat, into, len(into), constants=(name, BLOCK))
    return out


def _number(value: Any, kind: torch.dtype) -> Tensor:
    """Returns a number as a tensor without axes. Raises OnHost if the type cannot hold it: PyTorch's own answer says what then."""
    try:
        return torch.tensor(value, dtype=kind, device="cpu")
    except (RuntimeError, TypeError):
        raise OnHost("with a number that its type cannot hold") from None


def _common(x: Any, other: Any) -> torch.dtype:
    """Returns the type that PyTorch promotes two operands to. Raises OnHost for two numbers, and a type that Triton lacks."""
    if not isinstance(x, Tensor) and not isinstance(other, Tensor):
        raise OnHost("of two numbers")
    kind = torch.result_type(x, other)
    if kind not in POINTEES:
        raise OnHost(f"of {str(kind).removeprefix('torch.')}")
    return kind


def _comparison(name: str) -> Callable[..., Tensor]:
    return lambda call, x, other: _compute(call, name, x, other, _common(x, other), torch.bool)


def _logical(name: str) -> Callable[..., Tensor]:
    """Returns an operator of truth values; a type that Triton lacks has them too."""
    return lambda call, x, other: _compute(call, name, x.to(torch.bool), other.to(torch.bool), torch.bool, torch.bool)


def _bitwise(name: str) -> Callable[..., Tensor]:
    def bitwise(call: Call, x: Any, other: Any) -> Tensor:
        if (kind := _common(x, other)) not in INTEGERS:
            raise OnHost("of floats")
        return _compute(call, name, x, other, kind, kind)

    return bitwise


def _arithmetic(name: str, operator: str) -> Callable[..., Tensor]:
    """Returns an operator: of f32 and 16-bit floats by the kernel of rows that `operator` has, else of integers or f64."""
    of_floats = ELEMENTS[f"aten::{operator}"]

    def arithmetic(call: Call, x: Any, other: Any, **options: Any) -> Tensor:
        kind = _common(x, other)
        if name == "div" and kind in INTEGERS:
            kind = torch.get_default_dtype()
        if kind in FLOATS:
            return of_floats(call, *(_as_float(one, kind) for one in (x, other)), **options)  # type: ignore[no-any-return]
        if (factor := options.get("alpha", 1)) != 1:
            other = _compute(call, "mul", other, factor, kind, kind)
        if kind == torch.bool and name not in _OF_TRUTH:
            raise OnHost("of truth values")
        return _compute(call, _OF_TRUTH[name] if kind == torch.bool else name, x, other, kind, kind)

    return arithmetic


def _as_float(operand: Any, kind: torch.dtype) -> Any:
    """Returns a tensor of integers as floats, anything else unchanged: a number beside 16-bit floats keeps its bits."""
    return operand.to(kind) if isinstance(operand, Tensor) and operand.dtype in INTEGERS else operand


def _remainder(call: Call, x: Any, other: Any) -> Tensor:
    """Computes the remainder whose sign is the divisor's."""
    return _compute(call, "remainder", x, other, _wide(_type_of_quotient(x, other)), _type_of_quotient(x, other))


def _floor_divide(call: Call, x: Any, other: Any) -> Tensor:
    if (kind := _type_of_quotient(x, other)) in _REAL:
        raise OnHost("of floats")
    return _compute(call, "floor_divide", x, other, kind, kind)


def _type_of_quotient(x: Any, other: Any) -> torch.dtype:
    """Returns the common type of two operands. Raises OnHost for truth values, and for integers divided by 0."""
    kind = _common(x, other)
    if kind == torch.bool or (kind in INTEGERS and not (other.all() if isinstance(other, Tensor) else other)):
        raise OnHost("of truth values, or by 0")
    return kind


def _of_floats(name: str) -> Callable[..., Tensor]:
    """Returns an operator on two operands whose result is a float."""

    def of_floats(call: Call, x: Any, other: Any) -> Tensor:
        if (kind := _common(x, other)) not in _REAL:
            raise OnHost("of integers")
        return _compute(call, name, x, other, _wide(kind), kind)

    return of_floats


def _wide(kind: torch.dtype) -> torch.dtype:
    """Returns the type that a GPU computes a type in: f32 for 16-bit floats."""
    return torch.float32 if kind in FLOATS else kind


def _function(name: str, *, of_integers: bool = True) -> Callable[..., Tensor]:
    """Returns an operator on one operand whose result is a float; one of integers is f32."""

    def function(call: Call, x: Tensor) -> Tensor:
        serve(x, *_REAL, *(INTEGERS if of_integers else ()))
        kind = x.dtype if x.dtype in _REAL else torch.get_default_dtype()
        if x.dtype in FLOATS and (form := ELEMENTS.get(f"aten::{name}")):
            return form(call, x)  # type: ignore[no-any-return]
        return _one(call, name, x, _wide(kind), kind)

    return function


def _one(call: Call, name: str, x: Tensor, kind: torch.dtype, result: torch.dtype) -> Tensor:
    """Returns a function of one operand, computed in a type and stored in another."""
    (flat,), out, into = lay_out([x], kind, result)
    call.run(unary, (-(-len(into) // BLOCK),), flat, into, len(into), constants=(name, BLOCK))
    return out


def _keeping_type(name: str) -> Callable[..., Tensor]:
    """Returns `neg` or `abs`, which keep the type of integers."""
    of_floats = ELEMENTS[f"aten::{name}"]

    def keep_type(call: Call, x: Tensor) -> Tensor:
        if x.dtype in FLOATS:
            return of_floats(call, x)  # type: ignore[no-any-return]
        serve(x, torch.float64, *INTEGERS[:4])
        return _one(call, name, x, x.dtype, x.dtype)

    return keep_type


def _where(call: Call, condition: Tensor, x: Tensor, other: Tensor) -> Tensor:
    return _choose(call, _common(x, other), condition, x, other)


def _masked_fill(call: Call, x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return _choose(call, x.dtype, mask, value, x)


def _choose(call: Call, kind: torch.dtype, condition: Tensor, x: Any, other: Any) -> Tensor:
    """Takes elements of x where the condition is true, else of the other."""
    operands = [one if isinstance(one, Tensor) else _number(one, kind) for one in (condition, x, other)]
    for one in operands:
        serve(one, *POINTEES)
    (chosen, *flat), out, into = lay_out(operands, kind, kind)
    call.run(choose, (-(-len(into) // BLOCK),), chosen.to(torch.bool), *flat, into, len(into), constants=(BLOCK,))
    return out


def _to_truth(name: str, *types: torch.dtype) -> Callable[..., Tensor]:
    """Returns an operator on one operand of these types whose result is a truth value."""

    def to_truth(call: Call, x: Tensor) -> Tensor:
        serve(x, *types)
        return _one(call, name, x, x.dtype, torch.bool)

    return to_truth


def _sign(call: Call, x: Tensor) -> Tensor:
    serve(x, *_REAL, *INTEGERS[:-1])
    if x.dtype in _REAL and bool(x.isnan().any()):
        raise OnHost("of NaN")
    return _one(call, "sign", x, x.dtype, x.dtype)


def _bitwise_not(call: Call, x: Tensor) -> Tensor:
    serve(x, *INTEGERS)
    return _one(call, "bitwise_not", x, x.dtype, x.dtype)


def _power(call: Call, x: Any, exponent: Any) -> Tensor:
    """Computes powers of floats; those that have a form by it."""
    kind = _common(x, exponent)
    if kind not in _REAL:
        raise OnHost("of integers")
    if kind in FLOATS and not isinstance(exponent, Tensor):
        try:
            return ELEMENTS["aten::pow.Tensor_Scalar"](call, x, exponent)  # type: ignore[no-any-return]
        except OnHost:
            pass  # an exponent without a form
    if not isinstance(exponent, Tensor) and not math.isfinite(exponent):
        raise OnHost("with an infinite exponent")
    return _compute(call, "pow", x, exponent, _wide(kind), kind)


_FUNCTIONS = (
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv",
    "lgamma", "exp2", "expm1", "log2", "log10", "log1p", "exp", "log", "sqrt", "rsqrt", "reciprocal",
)  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")
_OF_TRUTH = {"add": "bitwise_or", "maximum": "bitwise_or", "mul": "bitwise_and", "minimum": "bitwise_and"}  # of truth values
_BOTH = ("Tensor", "Scalar")
# By the operator's name in PyTorch's dispatcher.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}.{kind}": _comparison(name) for name in _COMPARISONS for kind in _BOTH},
    **{f"aten::{name}.{kind}": _bitwise(name) for name in _BITS for kind in _BOTH},
    **{f"aten::logical_{name}": _logical(f"bitwise_{name}") for name in ("and", "or", "xor")},
    **{f"aten::{name}.{kind}": _arithmetic(name, f"{name}.{kind}") for name in ("add", "sub", "mul", "div") for kind in _BOTH},
    **{f"aten::{name}": _arithmetic(name, name) for name in ("maximum", "minimum")},
    "aten::clamp_min.Tensor": _arithmetic("maximum", "maximum"), "aten::clamp_max.Tensor": _arithmetic("minimum", "minimum"),
    **{f"aten::{name}": _function(name) for name in _FUNCTIONS},
    **{f"aten::{name}": _function(name, of_integers=False) for name in ("floor", "ceil", "trunc", "round")},
    "aten::sign": _sign, "aten::bitwise_not": _bitwise_not,
    "aten::isnan": _to_truth("isnan", *_REAL), "aten::logical_not": _to_truth("logical_not", *POINTEES),
    "aten::atan2": _of_floats("atan2"), "aten::hypot": _of_floats("hypot"),
    **{f"aten::{name}": _keeping_type(name) for name in ("neg", "abs")},
    "aten::where.self": _where, "aten::masked_fill.Scalar": _masked_fill, "aten::masked_fill.Tensor": _masked_fill,
    **{f"aten::remainder.{kind}": _remainder for kind in _BOTH},
    "aten::floor_divide": _floor_divide, "aten::floor_divide.Tensor": _floor_divide,
    **{f"aten::fmod.{kind}": _of_floats("fmod") for kind in _BOTH},
    **{f"aten::pow.{kind}": _power for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar", "Tensor")},
}  # fmt: skip
