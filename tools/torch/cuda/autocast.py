"""`torch.autocast("cuda")`: the type that an operator computes in.

To PyTorch's dispatcher the pretended GPU's tensors are the CPU's. So the CPU's autocast is on when the GPU's is: matrix
products and convolutions take the narrow type. Operators that a GPU computes in f32 get their arguments cast before (PyTorch's
"CUDA Ops that can autocast to float32"; the CPU leaves most of them in the type of their arguments).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from simgpu.tools.torch.operators.accumulation import NARROW
from simgpu.tools.torch.places import tensors_in

_GPU = "cuda"
F32 = frozenset((
    "__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "binary_cross_entropy_with_logits", "cosh",
    "cosine_embedding_loss", "cdist", "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp", "expm1",
    "group_norm", "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log_softmax", "log1p", "log2",
    "margin_ranking_loss", "mse_loss", "multilabel_margin_loss", "multi_margin_loss", "nll_loss", "norm", "normalize", "pdist",
    "poisson_nll_loss", "pow", "prod", "reciprocal", "rms_norm", "rsqrt", "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax",
    "softmin", "softplus", "sum", "renorm", "tan", "triplet_margin_loss",
))  # fmt: skip
_REFUSED = "binary_cross_entropy"  # in "CUDA Ops that can autocast": the only one that must not be called
# "CUDA Ops that promote to the widest input type", but tensordot, whose product the CPU's autocast would narrow again.
WIDEST = frozenset((
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sample", "index_put", "index_put_", "scatter_add",
))  # fmt: skip
# Modules of these functions; most methods have none.
_PYTORCH_S = ("torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "torch._tensor", None)
_enable, _choose = torch.set_autocast_enabled, torch.set_autocast_dtype


def is_enabled() -> bool:
    """True if the GPU's autocast is on in this thread."""
    return torch.is_autocast_enabled(_GPU)


def set_enabled(*args: Any) -> None:
    """Replaces `torch.set_autocast_enabled`; the GPU's setting is also the CPU's."""
    kind, on = args if len(args) == 2 else (_GPU, *args)
    _enable(kind, on)
    if kind == _GPU:
        _enable("cpu", on)


def set_dtype(kind: str, dtype: torch.dtype) -> None:
    """Replaces `torch.set_autocast_dtype`; the GPU's setting is also the CPU's."""
    _choose(kind, dtype)
    if kind == _GPU:
        _choose("cpu", dtype)


def widen(
    func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """Returns the arguments of a call, with f32 instead of 16-bit types if a GPU's autocast computes the function in f32.

    Raises RuntimeError for a function that a GPU's autocast refuses.
    """
    name, where = getattr(func, "__name__", ""), getattr(func, "__module__", None)
    if name == _REFUSED and where in _PYTORCH_S:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: use "
            "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead"
        )
    promotes = name in WIDEST and any(tensor.dtype == torch.float32 for tensor in tensors_in((*args, *given.values())))
    if not (name in F32 or promotes) or where not in _PYTORCH_S or given.get("dtype") is not None or given.get("out") is not None:
        return list(args), dict(given)
    return [_wide(arg) for arg in args], {key: _wide(value) for key, value in given.items()}


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value


ANSWERS: dict[str, Any] = {"set_autocast_enabled": set_enabled, "set_autocast_dtype": set_dtype}
