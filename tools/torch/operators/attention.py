"""PyTorch's operators of attention that only GPUs have, on the host: softmax(scale QKᵀ + bias) V, and its gradients.

They compute in f32, or in f64 of such operands. Operands that a GPU rounds to 16 bits for its matrix units are rounded here, too.
Q is (batch, heads, rows, d), K and V (batch, heads, columns, d); the operators of efficient and flash attention's own layout
exchange heads and rows. log_sumexp is (batch, heads, rows), f32, as in ROCm: not padded (PyTorch's
aten/src/ATen/native/transformers/cuda/attention.cu, kAlignLSE). The backward draws dropout again from the seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from simgpu.tools.torch.places import common, on_gpu, place_of

_CPU = torch.device("cpu")
_Generator = torch.Generator  # PyTorch's own: `pretend` replaces it


def _band(rows: int, columns: int, left: int, right: int, shift: int) -> Tensor:
    """Marks the columns that a row attends to: from left before its diagonal to right after it (negative: all); shift: the
    diagonal's."""
    return _window(torch.arange(rows, device=_CPU) + shift, torch.arange(columns, device=_CPU), left, right)


def _window(diagonals: Tensor, columns: Tensor, left: int, right: int) -> Tensor:
    """Marks the columns of rows with these diagonals, among columns at these positions."""
    away = columns - diagonals[:, None]
    return ((away <= right) | (right < 0)) & ((away >= -left) | (left < 0))


def _packed_band(starts_q: Tensor, starts_k: Tensor, left: int, right: int, from_last: bool) -> Tensor:
    """Marks the columns for consecutive sequences, each of which attends to its own; starts include the last one's end.

    from_last: diagonals end at a sequence's last row and column, else they begin at its first.
    """
    sequence_q, at_q = _positions(starts_q)
    sequence_k, at_k = _positions(starts_k)
    shifts = (starts_k.diff() - starts_q.diff())[sequence_q] if from_last else 0
    return (sequence_q[:, None] == sequence_k) & _window(at_q + shifts, at_k, left, right)


def _positions(starts: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sequence of each row, and its position in it."""
    lengths = starts.diff()
    sequence = torch.arange(len(lengths), device=_CPU).repeat_interleave(lengths)
    return sequence, torch.arange(len(sequence), device=_CPU) - starts[sequence]


def _wide(value: Tensor) -> Tensor:
    """Returns a tensor in the type that attention computes in."""
    return value if value.dtype == torch.float64 else value.float()


class _Attention:
    """Operands of one call in f32 or f64, and its weights."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, band: Tensor | None, scale: float | None, drop: float, seed: int
    ) -> None:
        self._kind, self._groups = q.dtype, q.shape[1] // max(k.shape[1], 1)
        self._q, self._k, self._v = _wide(q), self._repeat(k), self._repeat(v)
        self._scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scores = self._q @ self._k.mT * self._scale
        if bias is not None:
            scores = scores + _wide(bias)
        if band is not None:
            scores = scores.masked_fill(~band, -math.inf)
        self._most = scores.amax(-1, keepdim=True)
        # An infinite score's row is NaN, as in a softmax; PyTorch's function returns infinity.
        self.log_sumexp = scores.logsumexp(-1).masked_fill(self._most[..., 0] == math.inf, math.nan)
        self._nothing = self.log_sumexp[..., None] == -math.inf  # rows that attend to nothing give zeros
        self._weights = (scores - self.log_sumexp[..., None]).exp().masked_fill(self._nothing, 0)
        self._kept: Tensor | float = 1.0
        if drop:
            drawn = torch.rand(scores.shape, generator=_Generator(_CPU).manual_seed(seed), device=_CPU)
            self._kept = (drawn >= drop) / (1 - drop)

    def _repeat(self, shared: Tensor) -> Tensor:
        """Returns K or V, wide, a copy for each head of its group."""
        return _wide(shared).repeat_interleave(self._groups, 1)

    def _sum_heads(self, grad: Tensor) -> Tensor:
        """Returns the gradient of K or V: the sum over a group's heads."""
        return grad.unflatten(1, (-1, self._groups)).sum(2).to(self._kind)

    def output(self) -> Tensor:
        """Returns attention's result, in Q's type."""
        sums = (self._most - self.log_sumexp[..., None]).exp().masked_fill(self._nothing, 1)
        raised = self._operand(self._weights / sums * self._kept)  # a row's largest: 1
        return (raised @ self._v * sums).to(self._kind)

    def _operand(self, value: Tensor) -> Tensor:
        """Rounds an intermediate result to the operands' type, as for a matrix unit."""
        return _wide(value.to(self._kind))

    def gradients(self, grad: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the gradients of Q, K, V and the bias, the last (batch, heads, rows, columns); out: the result of `output`."""
        wide = _wide(grad)
        of_weights = wide @ self._v.mT * self._kept
        of_scores = self._weights * (of_weights - (wide * _wide(out)).sum(-1, keepdim=True))
        narrow = self._operand(of_scores)
        of_v = self._sum_heads(self._operand(self._weights * self._kept).mT @ wide)
        of_q, of_k = (narrow @ self._k * self._scale).to(self._kind), self._sum_heads(narrow.mT @ self._q * self._scale)
        return of_q, of_k, of_v, of_scores.to(self._kind)


def _causal(q: Tensor, k: Tensor, asked: bool) -> Tensor | None:
    return _band(q.shape[2], k.shape[2], -1, 0, 0) if asked else None


def _seed(drop: float) -> Tensor:
    return torch.randint(1 << 31, (), device=_CPU) if drop else torch.zeros((), dtype=torch.int64, device=_CPU)


def _empty() -> Tensor:
    return torch.empty(0, device=_CPU)


def _efficient(q, k, v, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None):  # type: ignore[no-untyped-def]
    seed = _seed(dropout_p)
    made = _Attention(q, k, v, bias, _causal(q, k, is_causal), scale, dropout_p, int(seed))
    kept = made.log_sumexp if compute_log_sumexp else made.log_sumexp[..., :0]
    return made.output(), kept, seed, torch.zeros_like(seed)


def _efficient_backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, bias, out, log_sumexp, seed, offset, dropout_p, mask, is_causal=False, *, scale=None
):
    biased = bias is not None and bias.numel() > 0
    made = _Attention(q, k, v, bias if biased else None, _causal(q, k, is_causal), scale, dropout_p, int(seed))
    *grads, of_scores = made.gradients(grad, out)
    # The mask affects only the bias, as on a GPU.
    return (*grads, of_scores.sum_to_size(bias.shape).to(bias.dtype) if biased and mask[3] else None)


# Masks of efficient attention's own operators: causal from a sequence's first row and column on, and up to its last ones.
_FIRST, _LAST = 1, 2


def _efficient_in_own_layout(  # type: ignore[no-untyped-def]
    q, k, v, bias, starts_q, starts_k, mask, dropout_p, seed, scale, options
) -> _Attention:
    """Makes the attention of (batch, rows, heads, d) operands; with starts the batch is 1, and sequences are consecutive."""
    _refuse(options)
    right, from_last = (0 if mask in (_FIRST, _LAST) else -1), mask == _LAST
    if starts_q is not None:
        band: Tensor | None = _packed_band(starts_q, starts_k, -1, right, from_last)
    else:
        band = _band(q.shape[1], k.shape[1], -1, right, k.shape[1] - q.shape[1] if from_last else 0) if mask else None
    return _Attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, band, scale, dropout_p, int(seed))


def _efficient_own_forward(  # type: ignore[no-untyped-def]
    q, k, v, bias, starts_q, starts_k, max_q, max_k, dropout_p, mask, compute_log_sumexp=False, *, scale=None, **options
):
    seed = _seed(dropout_p)
    made = _efficient_in_own_layout(q, k, v, bias, starts_q, starts_k, mask, dropout_p, seed, scale, options)
    kept = made.log_sumexp if compute_log_sumexp else made.log_sumexp[..., :0]
    if starts_q is None:
        max_q, max_k = q.shape[1], k.shape[1]
    elif compute_log_sumexp:  # (sequences, heads, rows of the longest)
        sequence, at = _positions(starts_q)
        kept = kept.new_full((len(starts_q) - 1, q.shape[2], max_q), math.inf)
        kept[sequence, :, at] = made.log_sumexp[0].T
    return made.output().transpose(1, 2).contiguous(), kept, seed, torch.zeros_like(seed), max_q, max_k


def _efficient_own_backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, bias, out, starts_q, starts_k, max_q, max_k, log_sumexp, dropout_p, seed, offset, mask, bias_requires_grad,
    *, scale=None, num_splits_key=None, shared_storage_dqdkdv=False, **options
):  # fmt: skip
    made = _efficient_in_own_layout(q, k, v, bias, starts_q, starts_k, mask, dropout_p, seed, scale, options)
    *grads, of_scores = made.gradients(grad.transpose(1, 2), out.transpose(1, 2))
    of_bias = of_scores.sum_to_size(bias.shape).to(bias.dtype) if bias_requires_grad else None
    return (*(one.transpose(1, 2).contiguous() for one in grads), of_bias)


def _refuse(options: Mapping[str, Any]) -> None:
    """Raises NotImplementedError for a given option that is not computed here."""
    if told := sorted(name for name, value in options.items() if value is not None):
        raise NotImplementedError(f"simgpu: attention's own operators on the pretended GPU do not support {told[0]}")


def _flash(q, k, v, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):  # type: ignore[no-untyped-def]
    seed = _seed(dropout_p)
    made = _Attention(q, k, v, None, _causal(q, k, is_causal), scale, dropout_p, int(seed))
    return made.output(), made.log_sumexp, None, None, q.shape[2], k.shape[2], seed, torch.zeros_like(seed), _empty()


def _flash_backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, out, log_sumexp, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None
):
    made = _Attention(q, k, v, None, _causal(q, k, is_causal), scale, dropout_p, int(seed))
    return made.gradients(grad, out)[:3]


def _in_own_layout(q, k, v, is_causal, dropout_p, seed, scale, options) -> _Attention:  # type: ignore[no-untyped-def]
    """Makes the attention of (batch, rows, heads, d) operands; the diagonal of causal masks and windows ends at the last row
    and column."""
    _refuse({name: value for name, value in options.items() if not name.startswith("window_size")})
    widths = (options.get(f"window_size_{side}") for side in ("left", "right"))
    left, right = (-1 if width is None else width for width in widths)
    band = _band(q.shape[1], k.shape[1], left, 0 if is_causal else right, k.shape[1] - q.shape[1])
    return _Attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, band, scale, dropout_p, int(seed))


def _own_forward(  # type: ignore[no-untyped-def]
    q, k, v, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask, *, scale=None, **options
):
    seed = _seed(dropout_p)
    options |= {"cum_seq_q": cum_seq_q, "cum_seq_k": cum_seq_k}
    made = _in_own_layout(q, k, v, is_causal, dropout_p, seed, scale, options)
    return made.output().transpose(1, 2).contiguous(), made.log_sumexp, seed, torch.zeros_like(seed), _empty()


def _own_backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, out, log_sumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, *, scale=None, **options
):
    options |= {"cum_seq_q": cum_seq_q, "cum_seq_k": cum_seq_k}
    made = _in_own_layout(q, k, v, is_causal, dropout_p, seed, scale, options)
    return tuple(one.transpose(1, 2).contiguous() for one in made.gradients(grad.transpose(1, 2), out.transpose(1, 2))[:3])


def _for_cpu(  # type: ignore[no-untyped-def]
    q, k, v, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None
):
    made = _Attention(q, k, v, attn_mask, _causal(q, k, is_causal), scale, 0.0, 0)
    return made.output(), made.log_sumexp


def _for_cpu_backward(  # type: ignore[no-untyped-def]
    grad, q, k, v, out, log_sumexp, dropout_p, is_causal, *, attn_mask=None, scale=None
):
    return _Attention(q, k, v, attn_mask, _causal(q, k, is_causal), scale, 0.0, 0).gradients(grad, out)[:3]


# By the operator's name in PyTorch's dispatcher.
ON_GPUS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_efficient_attention": _efficient,
    "aten::_scaled_dot_product_efficient_attention_backward": _efficient_backward,
    "aten::_scaled_dot_product_flash_attention": _flash,
    "aten::_scaled_dot_product_flash_attention_backward": _flash_backward,
    "aten::_efficient_attention_forward": _efficient_own_forward,
    "aten::_efficient_attention_backward": _efficient_own_backward,
    "aten::_flash_attention_forward": _own_forward,
    "aten::_flash_attention_backward": _own_backward,
}


# Operators that this module computes by others, which may be simulated; the first is the CPU's choice for
# `scaled_dot_product_attention`.
FUSED = "aten::_scaled_dot_product_flash_attention_for_cpu"
COMPOSED: dict[str, Callable[..., Any]] = {**ON_GPUS, FUSED: _for_cpu, f"{FUSED}_backward": _for_cpu_backward}


def _formula(ending: str) -> tuple[Any, Callable[..., int]]:
    """Returns the CPU's operator, and its formula for `FlopCounterMode`: a GPU's, for operands (args[1]: Q or K) on a GPU."""
    here = FUSED.removeprefix("aten::")
    count = flop_registry[getattr(torch.ops.aten, here.removesuffix("_for_cpu") + ending)]
    return getattr(torch.ops.aten, here + ending), lambda *args, **options: on_gpu(place_of(args[1])) and count(*args, **options)


# Formulas by PyTorch's operator.
FORMULAS: dict[Any, Callable[..., int]] = dict(map(_formula, ("", "_backward")))


class _MathBackend:
    """Choice of a program: `scaled_dot_product_attention` may use the backend "math", or not.

    PyTorch's own setting stays on: a program may choose a backend that only GPUs have, and the CPU would have none left.
    """

    def __init__(self) -> None:
        self._chosen = True

    def choose(self, enabled: bool) -> None:
        """Answers `torch._C._set_sdp_use_math`."""
        self._chosen = enabled

    def is_chosen(self) -> bool:
        """Answers `torch._C._get_math_sdp_enabled`."""
        return self._chosen

    def attend(self, own: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """Calls `scaled_dot_product_attention`; for tensors of the host, the program's choice holds."""
        if self._chosen or on_gpu(common((*args, *kwargs.values()))):
            return own(*args, **kwargs)
        _use_math(False)
        try:
            return own(*args, **kwargs)
        finally:
            _use_math(True)


_use_math = torch._C._set_sdp_use_math  # PyTorch's own
_MATH = _MathBackend()
ANSWERS: dict[str, Any] = {"_C._set_sdp_use_math": _MATH.choose, "_C._get_math_sdp_enabled": _MATH.is_chosen}
# By PyTorch's function: a function that is called with it and its arguments instead.
INSTEAD: dict[Any, Callable[..., Any]] = {torch.nn.functional.scaled_dot_product_attention: _MATH.attend}
