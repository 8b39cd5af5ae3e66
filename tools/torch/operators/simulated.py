"""SIMGPU_OPERATORS=simulated: PyTorch's operators that compute on the simulated GPU, by simgpu's own kernels.

An operator that has no kernel, or not for its operands, is computed by the host. Both kinds are counted in the session, so that
a summary can name them. Views, copies and new tensors compute nothing and are not counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import debug_unwrap

from simgpu.hardware.errors import SimError
from simgpu.operators import AttentionProblem
from simgpu.tools.torch.operators.accumulation import plain_overload
from simgpu.tools.torch.operators.activations import ACTIVATIONS
from simgpu.tools.torch.operators.along_axes import ALONG_AXES
from simgpu.tools.torch.operators.attention import COMPOSED, FUSED
from simgpu.tools.torch.operators.channel_norms import CHANNEL_NORMS
from simgpu.tools.torch.operators.compositions import COMPOSITIONS, IN_PLACE
from simgpu.tools.torch.operators.convolutions import CONVOLUTIONS
from simgpu.tools.torch.operators.decompositions import decomposition_of, out_of_place
from simgpu.tools.torch.operators.draws import DRAWS
from simgpu.tools.torch.operators.elements import ELEMENTS
from simgpu.tools.torch.operators.functions import FUNCTIONS
from simgpu.tools.torch.operators.gemms import GEMMS
from simgpu.tools.torch.operators.indexing import INDEXING
from simgpu.tools.torch.operators.interpolation import INTERPOLATION
from simgpu.tools.torch.operators.kernels import FLOATS, POINTEES, Call, NothingToCompute, OfType, OnHost, pose, type_of
from simgpu.tools.torch.operators.losses import LOSSES
from simgpu.tools.torch.operators.norms import rms_norm_backward, wide
from simgpu.tools.torch.operators.pooling import POOLING
from simgpu.tools.torch.operators.rows import ROWS
from simgpu.tools.torch.places import tensors_in
from simgpu.triton.driver import active_driver
from simgpu.triton.usage import OperatorUse

# Beginnings of the names of operators that make or copy tensors; others may be views.
_MOVES = (
    "empty", "new_empty", "zeros", "ones", "full", "eye", "new_zeros", "new_ones", "new_full", "arange", "linspace",
    "scalar_tensor", "zero_", "fill_", "clone", "copy_", "_to_copy", "lift_fresh", "_local_scalar_dense", "_unsafe_view",
    "_reshape_alias", "detach", "resize_", "set_", "_has_same_storage_numel", "cat", "stack", "constant_pad_nd", "item", "is_",
    "equal", "record_stream", "flip", "roll", "repeat", "select_backward", "slice_backward", "select_scatter", "slice_scatter",
    "unsafe_split", "_foreach_copy", "diagonal_scatter", "diagonal_copy", "diag_embed", "pixel_shuffle", "pixel_unshuffle",
)  # fmt: skip


def _attention(  # type: ignore[no-untyped-def]
    call: Call, q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None
) -> tuple[Tensor, Tensor]:
    """Computes attention by one kernel. Raises OnHost with a mask, and if a causal one is not square."""
    kind, *others = (type_of(one, *FLOATS) for one in (q, k, v))
    rows, columns = q.shape[2], k.shape[2]
    if any(other != kind for other in others):
        raise OnHost("of two types")
    if attn_mask is not None or (is_causal and rows != columns):
        raise OnHost("with a mask")
    problem = pose(
        AttentionProblem, rows, columns, q.shape[3], q.shape[1], k.shape[1], q.shape[0], is_causal, scale=scale, dtype=kind,
        dv=v.shape[3], lse=True,
    )  # fmt: skip
    result = torch.empty(problem.r_shape, dtype=torch.float32, device=q.device)
    log_sumexp = torch.empty(problem.lse_shape, dtype=torch.float32, device=q.device)
    call.launch(problem, Q=q.contiguous(), K=k.contiguous(), V=v.contiguous(), R=result, LSE=log_sumexp)
    return result.to(q.dtype), log_sumexp


# By the operator's name in PyTorch's dispatcher: functions of a Call and the operator's arguments.
KERNELS: dict[str, Callable[..., Any]] = {
    **GEMMS, **ROWS, **ELEMENTS, **CHANNEL_NORMS, **CONVOLUTIONS, **FUNCTIONS, **ALONG_AXES, **INDEXING, **LOSSES, **POOLING,
    **INTERPOLATION, **DRAWS, **ACTIVATIONS, FUSED: _attention,
}  # fmt: skip


@dataclass(frozen=True)
class _Way:
    """Functions that compute an operator.

    kernel: of its plain overload. composed: computes the plain overload by other operators. in_place: the first argument is the
    result; names: of tensors that results are stored in. whole: computes the operator as it is by others.
    """

    kernel: Callable[..., Any] | None
    composed: Callable[..., Any] | None
    in_place: bool
    names: tuple[str, ...]
    whole: Callable[..., Any] | None


@functools.cache
def _way_of(func: Any) -> _Way:
    """Returns how an operator is computed."""
    plain, names = plain_overload(func)
    operator, dot, overload = plain.name().partition(".")
    in_place = operator.endswith("_") and not operator.endswith("__")
    kernel = KERNELS.get(operator[:-1] + dot + overload if in_place else plain.name())
    copying = out_of_place(plain) if in_place else plain
    composed = None if copying is None else decomposition_of(copying)
    whole = COMPOSED.get(func.name()) or IN_PLACE.get(func.name())
    if whole is None and func.name() not in KERNELS and func._can_decompose():
        whole = func.decompose
    return _Way(kernel, composed, in_place, names, whole)


@functools.cache
def _computes(func: Any) -> bool:
    """False for views, copies and new tensors."""
    views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
    views = views or torch.Tag.inplace_view in func.tags
    return not views and not func.name().removeprefix("aten::").startswith(_MOVES)


def call(
    func: Any, args: Sequence[Any], given: Mapping[str, Any], mode: AbstractContextManager[Any], composing: list[str],
    failed: list[tuple[str, Exception]],
) -> Any:  # fmt: skip
    """Returns the result of an operator on the simulated GPU, and counts the call; NotImplemented if the host is to compute it.

    mode: within it, operators that this one is composed of come here; they are counted instead. composing: names of operators
    that are being composed, the outermost first. failed: gets an error that is no refusal of a composition, after whose it is.
    """
    way, reason = _way_of(func), None
    if way.kernel is not None:
        use = use_of(func.name())
        try:
            found = way.kernel(Call(use), *args, **_without(given, way.names))
            stored = _deliver(func, way, args, given, found)
            use.simulated += 1
            return stored
        except OnHost as error:
            reason = error
    if way.whole is not None:
        with mode:
            return way.whole(*args, **given)
    may_compose = way.kernel is None or isinstance(reason, OfType)
    if may_compose and way.composed is not None and _computes(func) and not _is_primitive(func.name(), composing):
        composing.append(func.name())
        try:
            found = _compose(way.composed, args, _without(given, way.names), mode)
            if found is not NotImplemented:
                return _deliver(func, way, args, given, found)
        except OnHost as error:
            reason = error
            if isinstance(error.__cause__, Exception):
                ours = way.composed in COMPOSITIONS.values()
                failed.append(("simgpu's composition" if ours else "PyTorch's decomposition", error.__cause__))
        finally:
            composing.pop()
    if _computes(func) and not isinstance(reason, NothingToCompute):
        use = use_of(func.name())
        use.host += 1
        if reason is not None:
            use.reasons[str(reason)] += 1
    return NotImplemented


def _is_primitive(name: str, composing: Sequence[str]) -> bool:
    """True for an operator that its own decomposition arrives at, as `aten::gcd` does by `prims::gcd`."""
    return name in composing and composing[-1].startswith("prims::")


def _without(given: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if key not in names}


def _compose(composed: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any], mode: AbstractContextManager[Any]) -> Any:
    """Returns an operator's result by its composition; NotImplemented for operands that no kernel would serve.

    Raises OnHost for any error of the composition, its cause: if operands are invalid, the host's error is the one that PyTorch
    documents.
    """
    tensors = list(tensors_in((*args, *given.values())))
    if not all(one.dtype in POINTEES and one.layout is torch.strided and one.numel() for one in tensors):
        return NotImplemented
    try:
        with mode:
            return composed(*args, **given)
    except (SimError, OnHost):
        raise
    except Exception as error:  # whatever PyTorch's function raises for arguments that it does not serve
        raise OnHost(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}") from error


def _deliver(func: Any, way: _Way, args: Sequence[Any], given: Mapping[str, Any], found: Any) -> Any:
    """Returns the results of a plain overload as the operator does: in place, or in the tensors passed for them. Raises OnHost for
    a type that cannot hold them, or another shape: PyTorch's own error says how."""
    if way.in_place:
        return _write(func, args[0], found)
    return _store([given[name] for name in way.names], found) if way.names else found


def _store(into: Sequence[Tensor], found: Any) -> Any:
    """Stores results in the tensors passed for them. Raises OnHost for one of a type that cannot hold it."""
    results = found if isinstance(found, tuple) else (found,)
    if not all(torch.can_cast(result.dtype, one.dtype) for one, result in zip(into, results)):
        raise OnHost("of a result that does not fit")
    stored = tuple(one.resize_(result.shape).copy_(result) for one, result in zip(into, results))
    return stored if isinstance(found, tuple) else stored[0]


def _write(func: Any, target: Any, found: Any) -> Any:
    """Writes the result of an operator in place, into a tensor or a list of them. Raises OnHost if it does not fit."""
    pairs = list(zip(target, found, strict=True)) if isinstance(target, (list, tuple)) else [(target, found)]
    if any(one.shape != result.shape or not torch.can_cast(result.dtype, one.dtype) for one, result in pairs):
        raise OnHost("of a result that does not fit")
    for one, result in pairs:
        one.copy_(result)
    return target if func._schema.returns else None


def use_of(name: str) -> OperatorUse:
    """Returns the count of an operator's calls in the session."""
    return active_driver().session.operators.setdefault(name, OperatorUse(name))


class _RmsNorm(torch.autograd.Function):
    """RMS norm, which PyTorch decomposes for the CPU's tensors before a dispatch mode sees it."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float) -> Tensor:
        use = use_of("aten::_fused_rms_norm")
        found, scale = KERNELS[use.operator](Call(use), values, shape, weight, eps)
        use.simulated += 1
        ctx.save_for_backward(values, scale, weight)
        ctx.shape, ctx.eps = shape, eps
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (values, scale, weight), wanted = ctx.saved_tensors, (ctx.needs_input_grad[0], ctx.needs_input_grad[2])
        if torch.is_grad_enabled():  # the gradient will have one itself: by operators that autograd knows
            scale = (wide(values).square().mean(list(range(-len(ctx.shape), 0)), keepdim=True) + ctx.eps).rsqrt()
            of_values, of_weight = rms_norm_backward(grad, values, ctx.shape, scale, weight, wanted)
        else:
            use = use_of("aten::_fused_rms_norm_backward")
            of_values, of_weight = KERNELS[use.operator](Call(use), grad, values, ctx.shape, scale, weight, wanted)
            use.simulated += 1
        return of_values, None, of_weight, None


def rms_norm(values: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Tensor:
    """Returns the RMS norm of a tensor on the GPU, and counts the call. Raises OnHost."""
    if any(_is_transformed(tensor) for tensor in (values, weight) if tensor is not None):
        raise OnHost("within a transform of torch.func or with a forward gradient")
    found: Tensor = _RmsNorm.apply(values, shape, weight, torch.finfo(torch.float32).eps if eps is None else eps)
    return found


def _is_transformed(tensor: Tensor) -> bool:
    """True for a tensor of a transform of `torch.func`, and one with a forward gradient."""
    return debug_unwrap(tensor) is not tensor or forward_ad.unpack_dual(tensor).tangent is not None
