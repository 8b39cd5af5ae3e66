"""PyTorch's operators on 16-bit types that a GPU computes in f32 and rounds once, while the CPU's sums are 16 bits wide.

On gfx90a, matrix instructions read f16 and bf16 denormals as zero and never return them (PyTorch's notes on numerical accuracy,
"Reduced precision FP16 and BF16 GEMMs and convolutions on AMD Instinct MI200 devices").
"""

from __future__ import annotations

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
# Normalisations, whose sums over rows the CPU rounds row by row. The statistics returned with a result are f32.
NORMS = frozenset(("aten::native_layer_norm", "aten::native_group_norm"))
BACKWARD = frozenset(f"{name}_backward" for name in NORMS)
# Sums and weighted means whose steps the CPU rounds: PyTorch's CUDA kernels have accscalar_t, f32, there (ReduceMomentKernel.cu,
# UpSample*.cu, Embedding.cu).
SUMS = frozenset(
    f"aten::{name}" for name in (
        "prod", "prod.dim_int", "embedding_dense_backward",
        "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    )
)  # fmt: skip
IN_F32 = PRODUCTS | NORMS | BACKWARD | SUMS
NARROW = (torch.float16, torch.bfloat16)
_FLUSHES = "gfx90a"
_from_numpy = torch.from_numpy


def in_f32(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Computes an operator of IN_F32, in f32 if its arguments are 16 bits wide."""
    narrow = next((arg.dtype for arg in args if isinstance(arg, torch.Tensor) and arg.dtype in NARROW), None)
    named = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.dtype)), None)
    if narrow is None and named is None:
        return func(*args, **kwargs)
    flushes = func.name() in PRODUCTS and narrow is not None and active_driver().session.gpu.arch == _FLUSHES

    def wide(value: Any) -> Any:
        if not (isinstance(value, torch.Tensor) and value.dtype == narrow):
            return value
        return _flush(value.float(), narrow) if flushes else value.float()

    def round_to(value: torch.Tensor | None) -> torch.Tensor | None:
        kind = named or narrow
        if value is None or kind is None:
            return value
        return (_flush(value, kind) if flushes and kind in NARROW else value).to(kind)

    if func.name() in PRODUCTS:
        given = [arg for arg in args if not isinstance(arg, torch.dtype)]
        scales = {name: value for name, value in kwargs.items() if name in ("alpha", "beta")}
        if func.name().startswith(_OF_MATRICES) and products.serves(*given[-2:]):
            product = _add(products.product(*given[-2:]), [wide(arg) for arg in given[:-2]], **scales)
        else:
            product = func.overloadpacket.default(*map(wide, given), **scales)
        out = kwargs.get("out")
        return round_to(product) if out is None else out.resize_(product.shape).copy_(round_to(product))
    found = func(*map(wide, args), **kwargs)
    if func.name() in SUMS:
        return round_to(found)
    return (round_to(found[0]), *(found[1:] if func.name() in NORMS else map(round_to, found[1:])))


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
