"""`torch.autocast("cuda")`: the type that an operator computes in.

To PyTorch's dispatcher the pretended GPU's tensors are the CPU's. So the CPU's autocast is on when the GPU's is: matrix
products and convolutions take the narrow type. Operators that a GPU computes in f32 get their arguments cast before (PyTorch's
"CUDA Ops that can autocast to float32"; the CPU leaves most of them in the type of their arguments).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx.node import map_aggregate

from simgpu.tools.torch.operators.accumulation import NARROW
from simgpu.tools.torch.places import tensors_in

_GPU = "cuda"
F32 = frozenset((
    "__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "binary_cross_entropy_with_logits", "cosh",
    "cosine_embedding_loss", "cdist", "cosine_similarity", "cross_entropy", "cumprod", "cumsum", "dist", "erfinv", "exp",
    "expm1", "group_norm", "hinge_embedding_loss", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log_softmax", "log1p",
    "log2", "logsumexp", "margin_ranking_loss", "mse_loss", "multilabel_margin_loss", "multi_margin_loss", "nll_loss",
    "nll_loss2d", "norm", "normalize", "pdist", "poisson_nll_loss", "pow", "prod", "reciprocal", "rms_norm", "rsqrt", "sinh",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "sum", "renorm", "tan", "triplet_margin_loss",
))  # fmt: skip
_REFUSED = "binary_cross_entropy"  # in "CUDA Ops that can autocast": the only one that must not be called
# "CUDA Ops that promote to the widest input type".
WIDEST = frozenset((
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sample", "grid_sampler", "index_put", "index_put_",
    "scatter_add", "tensordot", "vdot",
))  # fmt: skip
# "CUDA Ops that can autocast to float16" that the CPU's autocast leaves as they are.
_NARROWED = frozenset((
    "_convolution", "addmv", "addr", "chain_matmul", "convolution", "gru_cell", "linalg_multi_dot", "lstm_cell", "mv",
    "rnn_relu_cell", "rnn_tanh_cell",
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


@contextlib.contextmanager
def casts(
    func: Callable[..., Any], args: Sequence[Any], given: Mapping[str, Any]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:  # fmt: skip
    """Yields the arguments of a call in the types that a GPU's autocast chooses, if the CPU's does not, which is off then.

    Raises RuntimeError for a function that a GPU's autocast refuses.
    """
    name, where = getattr(func, "__name__", ""), getattr(func, "__module__", None)
    if name == _REFUSED and where in _PYTORCH_S:
        raise RuntimeError(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: use "
            "torch.nn.functional.binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss instead"
        )
    promotes = name in WIDEST and any(tensor.dtype == torch.float32 for tensor in tensors_in((*args, *given.values())))
    wide = (name in F32 or promotes) and given.get("dtype") is None and given.get("out") is None
    if where not in _PYTORCH_S or not (wide or name in _NARROWED):
        yield list(args), dict(given)
        return
    change = _wide if wide else _narrow
    chosen = map_aggregate((tuple(args), dict(given)), change)
    _enable("cpu", False)  # what the function calls keeps its types, as on a GPU
    try:
        yield list(chosen[0]), dict(chosen[1])
    finally:
        _enable("cpu", is_enabled())


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in NARROW else value


def _narrow(value: Any) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.dtype in (*NARROW, torch.float32)
    return value.to(torch.get_autocast_dtype(_GPU)) if narrow else value


ANSWERS: dict[str, Any] = {"set_autocast_enabled": set_enabled, "set_autocast_dtype": set_dtype}
