"""PyTorch's operators on 16-bit types that a GPU computes in f32 and rounds once, while the CPU's sums are 16 bits wide.

On gfx90a, matrix instructions read f16 and bf16 denormals as zero and never return them (PyTorch's notes on numerical accuracy,
"Reduced precision FP16 and BF16 GEMMs and convolutions on AMD Instinct MI200 devices").
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from simgpu.tools.torch.operators import products
from simgpu.triton.driver import active_driver

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot")
# Overloads: plain, into a given tensor, with a result of a named type (the CPU has no such kernel), and both.
PRODUCTS = frozenset(f"aten::{name}{overload}" for name in _PRODUCTS for overload in ("", ".out", ".dtype", ".dtype_out"))
_OF_MATRICES = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
# Normalisations, whose sums over rows the CPU rounds row by row. The statistics returned with a result are f32, but for a group
# norm: the GPU's kernel stores them in the input's type (PyTorch's aten/src/ATen/native/cuda/group_norm_kernel.cu).
GROUP_NORM = "aten::native_group_norm"
NORMS = frozenset((
    "aten::native_layer_norm", GROUP_NORM, "aten::native_batch_norm", "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit.no_stats",
))  # fmt: skip
BATCH_NORM_BACKWARD = "aten::native_batch_norm_backward"
# Sums, weighted means and others whose steps the CPU rounds: PyTorch's CUDA kernels have accscalar_t or opmath_t, f32, there
# (ReduceMomentKernel.cu, UpSample*.cu, Embedding.cu, EmbeddingBag.cu, DepthwiseConv2d.cu, AveragePool2d.cu, DilatedMaxPool2d.cu,
# AdaptiveAveragePooling3d.cu, GridSampler.cu, SoftMax.cu, ActivationGluKernel.cu, UnarySpecialOpsKernel.cu).
STEPS_IN_F32 = frozenset(
    f"aten::{name}" for name in (
        "prod", "prod.dim_int", "embedding_dense_backward", "convolution", "convolution_backward",
        "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
        "avg_pool2d_backward", "max_pool2d_with_indices_backward", "_adaptive_avg_pool3d",
        "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward",
        "_softmax", "_log_softmax", "glu_backward", "erf", "erf_",
        "_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_dense_backward",
    )
)  # fmt: skip
# Operators that the CPU refuses and a GPU has (PyTorch's OpInfo: dtypesIfCUDA): of 16-bit types, and of complex ones of 32 bits.
REFUSED = frozenset(
    f"aten::{name}{way}" for name in (
        "avg_pool3d", "multi_margin_loss", "multilabel_margin_loss_forward", "rrelu_with_noise", "_upsample_bilinear2d_aa",
        "_upsample_bicubic2d_aa",
    ) for way in ("", "_backward")
) | {"aten::multilabel_margin_loss_backward", "aten::rrelu_with_noise_"}  # fmt: skip
_ELEMENTWISE = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "log", "rsqrt", "sigmoid", "sin", "sinh", "sqrt",
    "tan", "tanh",
)  # fmt: skip
REFUSED_COMPLEX = frozenset(
    f"aten::{name}" for name in (
        *_ELEMENTWISE, *(f"{name}_" for name in _ELEMENTWISE), "logaddexp", "trace", "angle", "sum", "sum.dim_IntList",
        *(f"{name}.{kind}" for name in ("div", "div_", "lerp") for kind in ("Tensor", "Scalar")),
        *(f"pow.{kind}" for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")),
    )
)  # fmt: skip
IN_F32 = PRODUCTS | NORMS | {f"{name}_backward" for name in NORMS} | STEPS_IN_F32 | REFUSED | REFUSED_COMPLEX
NARROW = (torch.float16, torch.bfloat16)
WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
_FLUSHES = "gfx90a"
_from_numpy = torch.from_numpy


@functools.cache
def plain_overload(func: Any) -> tuple[Any, tuple[str, ...]]:
    """Returns an operator's overload that makes its results, and the names of tensors that `func` stores them in instead, if
    it does."""
    names = tuple(one.name for one in func._schema.arguments if one.is_out)
    inputs = [(one.name, one.type) for one in func._schema.arguments if not one.is_out]
    overloads = (getattr(func.overloadpacket, name) for name in func.overloadpacket.overloads()) if names else ()
    plain = (one for one in overloads if [(each.name, each.type) for each in one._schema.arguments] == inputs)
    return next(plain, func), names


def _into(func: Any) -> tuple[Any, tuple[str, ...]]:
    """Returns the same, but products, which store their results themselves."""
    return (func, ()) if func.name() in PRODUCTS else plain_overload(func)


@functools.cache
def computes_in_f32(func: Any) -> bool:
    """True for an operator of IN_F32, and one that stores such a one's results in tensors passed for them."""
    return _into(func)[0].name() in IN_F32


def in_f32(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Computes an operator of `computes_in_f32`, in f32 (complex64) if its arguments are 16 bits wide (complex32)."""
    plain, names = _into(func)
    if names:
        return _store_results(func, plain, names, args, kwargs)
    kinds = (torch.complex32,) if func.name() in REFUSED_COMPLEX else tuple(WIDE)
    narrow = next((arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.dtype in kinds), None)
    named = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.dtype)), None)
    if narrow is None and named is None:
        return func(*args, **kwargs)
    if func.name() in PRODUCTS:
        return _product(func, args, kwargs, narrow, named)
    wide = [_widen(arg, narrow) for arg in args]
    found = func(*wide, **kwargs)
    _store_written(func, args, wide)
    if func.name().endswith("_"):
        return args[0]
    if isinstance(found, torch.Tensor):
        return _narrow(found, named or narrow)
    if func.name() in NORMS and func.name() != GROUP_NORM:
        return _narrow(found[0], narrow), *found[1:]
    others = args[2].dtype if func.name() == BATCH_NORM_BACKWARD and args[2] is not None else narrow
    return _narrow(found[0], narrow), *(_narrow(value, others) for value in found[1:])


def _store_results(func: Any, plain: Any, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Computes an operator that stores its results in the tensors of these names; by itself if they have other types."""
    found = in_f32(plain, args, {name: value for name, value in kwargs.items() if name not in names})
    into = [kwargs[name] for name in names]
    results = found if isinstance(found, tuple) else (found,)
    if any(one.dtype != value.dtype for one, value in zip(into, results)):
        return func(*args, **kwargs)
    stored = tuple(one.resize_(value.shape).copy_(value) for one, value in zip(into, results))
    return stored if isinstance(found, tuple) else stored[0]


def _product(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], narrow: torch.dtype | None, named: torch.dtype | None
) -> torch.Tensor:
    """Computes an operator of PRODUCTS; named: type of the result."""
    kind = named or narrow
    flushes = narrow is not None and active_driver().session.gpu.arch == _FLUSHES

    def wide(value: Any) -> Any:
        widened = _widen(value, narrow)
        return _flush(widened, narrow) if flushes and widened is not value else widened

    given = [arg for arg in args if not isinstance(arg, torch.dtype)]
    scales = {name: value for name, value in kwargs.items() if name in ("alpha", "beta")}
    if func.name().startswith(_OF_MATRICES) and products.serves(*given[-2:]):
        product = _add(products.product(*given[-2:]), [wide(arg) for arg in given[:-2]], **scales)
    else:
        product = func.overloadpacket.default(*map(wide, given), **scales)
    rounded = (_flush(product, kind) if flushes and kind in NARROW else product).to(kind)
    out = kwargs.get("out")
    return rounded if out is None else out.resize_(product.shape).copy_(rounded)


def _widen(value: Any, narrow: torch.dtype | None) -> Any:
    """Returns a tensor of a narrow type in f32 or complex64; anything else unchanged."""
    return value.to(WIDE[narrow]) if isinstance(value, torch.Tensor) and value.dtype == narrow else value


def _narrow(value: Any, kind: torch.dtype | None) -> Any:
    """Returns a result in a type, if that is one of floats as the result's is."""
    return value.to(kind) if isinstance(value, torch.Tensor) and value.dtype in WIDE.values() and kind else value


def _store_written(func: Any, args: Sequence[Any], wide: Sequence[Any]) -> None:
    """Stores what an operator wrote to widened arguments into the arguments themselves."""
    running = (3, 4) if func.name() == "aten::native_batch_norm" else ()  # mean and variance: its schema does not name them
    for at, (argument, value, widened) in enumerate(zip(func._schema.arguments, args, wide)):
        writes = argument.alias_info is not None and argument.alias_info.is_write
        if (writes or at in running) and value is not widened:
            value.copy_(widened)


def _add(product: torch.Tensor, others: Sequence[torch.Tensor], alpha: float = 1, beta: float = 1) -> torch.Tensor:
    """Returns a product times alpha, plus beta times the addend, if there is one: with beta = 0 its NaN do not count."""
    scaled = product if alpha == 1 else alpha * product
    for other in others if beta != 0 else ():
        added = other.expand(product.shape)
        scaled = scaled + (added if beta == 1 else beta * added)
    return scaled


def not_computed(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns zeros instead of a product that would take the CPU minutes, if a benchmark needs none of its elements.

    They are numpy's, which come from calloc: unread pages take no memory and no time, while PyTorch writes each.
    """
    if "out" in kwargs:
        return kwargs["out"]
    shown = func(*(arg.to("meta") if isinstance(arg, torch.Tensor) else arg for arg in args), **kwargs)
    return _from_numpy(np.zeros(shown.nbytes, np.uint8)).view(shown.dtype).view(shown.shape)


def is_sampling() -> bool:
    """True while a benchmark runs only samples of its launches and needs no results."""
    return active_driver().session.clock.samples


def _flush(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Replaces a type's denormals by zero, in f32 values."""
    return values.masked_fill(values.abs() < torch.finfo(dtype).tiny, 0.0)
