"""PyTorch's element-wise operators by simgpu's kernels of rows, on lists of tensors too (`_foreach_*`), as optimizers have them.

Elements are rows of a fixed length, so one kernel serves tensors of all sizes. The last row overlaps the one before, whose
last elements are computed twice. Operands of other layouts, and smaller ones that broadcast, are
copied first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from simgpu.tools.torch.operators.element_forms import ELEMENT_FORMS
from simgpu.tools.torch.operators.kernels import FLOATS, TYPES, Call, OnHost, pose, serve

LENGTH = 1024  # elements of a row


def _rows(call: Call, name: str, operands: Sequence[Tensor], numbers: Sequence[float], out: Tensor) -> None:
    """Computes a form of contiguous vectors of equal length into another."""
    form, count = ELEMENT_FORMS[name], len(out)
    length = min(LENGTH, 1 << count.bit_length() - 1)
    given = dict(zip(("X", *form.matrices), operands, strict=True))
    vectors = {
        key: torch.full((length,), value, dtype=operands[0].dtype, device=out.device)
        for key, value in zip(form.vectors, numbers, strict=True)
    }
    last = [slice(count - length, count)] if count % length else []
    for part in (slice(0, count - count % length), *last):
        problem = pose(form, (part.stop - part.start) // length, length, TYPES[operands[0].dtype], TYPES[out.dtype])
        call.launch(problem, **{key: value[part] for key, value in given.items()}, **vectors, Y=out[part])


def _compute(call: Call, name: str, *operands: Tensor, numbers: Sequence[float] = ()) -> Tensor:
    """Returns a form of tensors that broadcast. Its type is the tensors' common one; numbers have f32, as on a GPU."""
    kind = operands[0].dtype
    for one in operands[1:]:
        kind = torch.promote_types(kind, one.dtype)
    for one in operands:
        serve(one, *FLOATS)
    flat, out, into = lay_out(operands, torch.float32 if numbers else kind, kind)
    _rows(call, name, flat, numbers, into)
    return out


def lay_out(operands: Sequence[Tensor], wide: torch.dtype, kind: torch.dtype) -> tuple[list[Tensor], Tensor, Tensor]:
    """Returns tensors that broadcast as contiguous vectors of a type, a result's tensor of another, and its elements as a vector.

    Raises OnHost if they do not fit each other: PyTorch's own error says how.
    """
    try:
        shape = torch.broadcast_shapes(*(one.shape for one in operands))
    except RuntimeError:
        raise OnHost("of operands that do not fit each other") from None
    like = next((one for one in operands if one.shape == shape), None)
    out = torch.empty(shape, dtype=kind, device=operands[0].device) if like is None else torch.empty_like(like, dtype=kind)
    order = sorted(range(len(shape)), key=lambda axis: -out.stride(axis))
    if not out.permute(order).is_contiguous():  # its own elements overlap
        raise OnHost("of a layout with gaps")
    flat = [one.expand(shape).permute(order).to(wide).contiguous().view(-1) for one in operands]
    return flat, out, out.permute(order).view(-1)


def _by_form(name: str) -> Callable[..., Tensor]:
    """Returns the operator of tensors alone that a form computes."""
    return lambda call, *operands: _compute(call, name, *operands)


def _numbers(*values: Any) -> list[float]:
    """Returns numbers, and those that tensors without axes hold, in f32. Raises OnHost for other kinds."""
    found = [value.item() if isinstance(value, Tensor) else value for value in values]
    if not all(isinstance(value, (int, float)) for value in found):
        raise OnHost("with a number that is not real")
    return [float(value) for value in found]


def _is_number(value: Any) -> bool:
    """True for a number, and a tensor without axes, which promotes no other tensor's type within floats."""
    return not isinstance(value, Tensor) or (not value.dim() and value.dtype in (*FLOATS, torch.float64))


def _binary(name: str, of_number: Callable[..., Tensor], reverse: bool = False) -> Callable[..., Tensor]:
    """Returns an operator of two tensors, or of one and a number. of_number: serves a number as the second operand.

    reverse: as the first one, too.
    """

    def binary(call: Call, x: Any, other: Any, **options: Any) -> Tensor:
        if isinstance(x, Tensor) and _is_number(other) and not (_is_number(x) and isinstance(other, Tensor)):
            rounded = other.to(x.dtype) if isinstance(other, Tensor) else other
            return of_number(call, x, *_numbers(rounded), **options)
        if _is_number(x) and not _is_number(other):
            if not reverse:
                raise OnHost("of a number and a tensor")
            return binary(call, other, x, **options)
        if not isinstance(x, Tensor) or not isinstance(other, Tensor):
            raise OnHost("of two numbers")
        if options.get("alpha", 1) != 1:
            return _compute(call, "add_scaled", x, other, numbers=_numbers(options["alpha"]))
        return _compute(call, name, x, other)

    return binary


def _add_number(call: Call, x: Tensor, number: float, alpha: float = 1) -> Tensor:
    return _compute(call, "add_number", x, numbers=[number * float(alpha)])


def _mul_number(call: Call, x: Tensor, number: float) -> Tensor:
    return _compute(call, "mul_number", x, numbers=[number])


def _div_number(call: Call, x: Tensor, number: float) -> Tensor:
    """Multiplies by the reciprocal, as PyTorch's kernel does (div_true_kernel_cuda in BinaryDivTrueKernel.cu)."""
    return _mul_number(call, x, (1 / torch.tensor(number, dtype=torch.float32, device="cpu")).item())


_add, _mul = _binary("add", _add_number, reverse=True), _binary("mul", _mul_number, reverse=True)
_div = _binary("div", _div_number)


def _sub(call: Call, x: Any, other: Any, alpha: float = 1) -> Tensor:
    if not isinstance(x, Tensor) or (_is_number(x) and not _is_number(other)):
        if alpha != 1:
            raise OnHost("of a number and a scaled tensor")
        return _compute(call, "subtract_from", other, numbers=_numbers(x))
    return _add(call, x, other, alpha=-alpha)


def _rsub(call: Call, x: Any, other: Any, alpha: float = 1) -> Tensor:
    return _sub(call, other, x, alpha)


def _clamp(call: Call, x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return _compute(call, "clamp", x, numbers=_numbers(*bounds))


def _clamp_max(call: Call, x: Tensor, high: Any) -> Tensor:
    return _clamp(call, x, None, high)


def _power(call: Call, x: Tensor, exponent: Any) -> Tensor:
    """Computes the powers that have a form; others are the host's."""
    forms = {2: "square", 3: "cube", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    if exponent == 1:
        return _mul_number(call, x, 1.0)
    if exponent not in forms:
        raise OnHost("with another exponent than 1, 2, 3, 1/2, -1/2 and -1")
    return _compute(call, forms[exponent], x)


def affine(call: Call, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Returns x times scale plus shift, which broadcast. Raises OnHost."""
    return _compute(call, "affine", x, scale, shift)


def product(call: Call, x: Tensor, other: Tensor) -> Tensor:
    """Returns x times other, which broadcast. Raises OnHost."""
    return _compute(call, "mul", x, other)


def _gelu(call: Call, *operands: Tensor, approximate: str = "none") -> Tensor:
    """Computes GELU, or of two operands its gradient."""
    name = "gelu" + ("_tanh" if approximate == "tanh" else "") + ("_gradient" if len(operands) > 1 else "")
    return _compute(call, name, *operands)


def _threshold_gradient(call: Call, grad: Tensor, x: Tensor, threshold: Any) -> Tensor:
    return _compute(call, "threshold_gradient", grad, x, numbers=_numbers(threshold))


def _leaky_relu(call: Call, x: Tensor, slope: Any = 0.01) -> Tensor:
    return _compute(call, "leaky_relu", x, numbers=_numbers(slope))


def _leaky_relu_gradient(call: Call, grad: Tensor, x: Tensor, slope: Any, _of_result: bool) -> Tensor:
    return _compute(call, "leaky_relu_gradient", grad, x, numbers=_numbers(slope))


def _of_three(name: str) -> Callable[..., Tensor]:
    """Returns addcmul or addcdiv."""
    return lambda call, x, other, third, value=1: _compute(call, name, x, other, third, numbers=_numbers(value))


def _lerp(call: Call, x: Tensor, end: Tensor, weight: Any) -> Tensor:
    """Interpolates from the nearer end, as PyTorch's kernels do (ATen/native/Lerp.h)."""
    (number,) = _numbers(weight)
    if abs(number) < 0.5:
        return _compute(call, "lerp", x, end, numbers=[number])
    return _compute(call, "lerp_back", x, end, numbers=[1 - number])


_ONE = ("neg", "abs", "sqrt", "rsqrt", "reciprocal", "log", "exp", "relu", "sigmoid", "tanh", "silu", "square")
_OF_TENSORS: dict[str, Callable[..., Any]] = {
    **{name: _by_form(name) for name in _ONE},
    "gelu": _gelu, "gelu_backward": _gelu, "silu_backward": _by_form("silu_gradient"),
    **{f"{name}_backward.grad_input": _by_form(f"{name}_gradient") for name in ("sigmoid", "tanh")},
    **{f"{name}_backward": _by_form(f"{name}_gradient") for name in ("sigmoid", "tanh")},
    "threshold_backward": _threshold_gradient, "leaky_relu": _leaky_relu, "leaky_relu_backward": _leaky_relu_gradient,
    **{f"{name}.{kind}": function for kind in ("Tensor", "Scalar")
       for name, function in (("add", _add), ("sub", _sub), ("mul", _mul), ("div", _div), ("rsub", _rsub))},
    "maximum": _by_form("maximum"), "minimum": _by_form("minimum"),
    "clamp": _clamp, "clamp_min": _clamp, "clamp_max": _clamp_max,
    "hardtanh": lambda call, x, low=-1, high=1: _clamp(call, x, low, high),
    "pow.Tensor_Scalar": _power, "addcmul": _of_three("addcmul"), "addcdiv": _of_three("addcdiv"), "lerp.Scalar": _lerp,
}  # fmt: skip


def _on_lists(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """Returns an operator on lists of tensors: one launch for all if their types and numbers are alike, else one for each."""

    def on_lists(call: Call, *args: Any, **options: Any) -> list[Tensor]:
        tensors = args[0]
        columns = [list(one) if isinstance(one, (list, tuple)) else [one] * len(tensors) for one in args]
        if not all(map(_are_alike, columns, [tensors] * len(args))):
            return [function(call, *row, **options) for row in zip(*columns, strict=True)]
        listed = [isinstance(one, (list, tuple)) and isinstance(one[0], Tensor) for one in args]
        joined = [torch.cat([one.reshape(-1) for one in held]) if many else held[0] for held, many in zip(columns, listed)]
        parts = function(call, *joined, **options).split([one.numel() for one in tensors])
        return [part.view(one.shape) for part, one in zip(parts, tensors, strict=True)]

    return on_lists


def _are_alike(column: Sequence[Any], tensors: Sequence[Tensor]) -> bool:
    """True for one number, or tensors of one type with the shapes of these."""
    if not isinstance(column[0], Tensor):
        return len(set(column)) == 1
    same = len({one.dtype for one in column}) == 1
    return same and (all(one is column[0] for one in column) or [one.shape for one in column] == [one.shape for one in tensors])


def _list_forms() -> dict[str, Callable[..., Any]]:
    """Returns the operators on lists, by name."""
    found = {name: _OF_TENSORS[name] for name in ("neg", "abs", "sqrt", "rsqrt", "reciprocal", "log", "exp", "sigmoid", "tanh")}
    for name, function in (("add", _add), ("sub", _sub), ("mul", _mul), ("div", _div)):
        found |= {f"{name}.{kind}": function for kind in ("Scalar", "List", "ScalarList", "Tensor")}
    for name in ("addcmul", "addcdiv"):
        found |= {f"{name}.{kind}": _OF_TENSORS[name] for kind in ("Scalar", "ScalarList")}
    found |= {f"lerp.{kind}": _lerp for kind in ("Scalar", "ScalarList")}
    for name, of_numbers in (("maximum", _clamp), ("minimum", _clamp_max), ("clamp_min", _clamp), ("clamp_max", _clamp_max)):
        found |= {f"{name}.{kind}": of_numbers for kind in ("Scalar", "ScalarList")}
    return found


# By the operator's name in PyTorch's dispatcher.
ELEMENTS: dict[str, Callable[..., Any]] = {
    **{f"aten::{name}": function for name, function in _OF_TENSORS.items()},
    **{f"aten::_foreach_{name}": _on_lists(function) for name, function in _list_forms().items()},
}
