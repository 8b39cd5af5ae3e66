"""PyTorch's CTC loss and its gradient, composed of logarithms of sums along time (Graves et al., ICML 2006, sections 4.1, 4.2).

A target's labels have a blank before, between and after them; probabilities of a label are those of its class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from simgpu.tools.torch.operators.kernels import OnHost

_Lengths: TypeAlias = Sequence[int] | Tensor


def _numbers(lengths: _Lengths) -> list[int]:
    return lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)


class _Labels:
    """Targets of a batch with blanks: classes (n, labels), the number of labels of each, and the steps of each.

    Raises OnHost for lengths that do not fit.
    """

    def __init__(self, chances: Tensor, targets: Tensor, steps: _Lengths, lengths: _Lengths, blank: int) -> None:
        self.steps, given = _numbers(steps), _numbers(lengths)
        n, longest = chances.shape[1], max(given)
        fits = len(given) == len(self.steps) == n and min(self.steps) > 0 and max(self.steps) <= len(chances) and min(given) >= 0
        if not fits or not longest or (targets.dim() > 1 and targets.shape[1] < longest):
            raise OnHost("of lengths that do not fit")
        rows = list(targets) if targets.dim() > 1 else targets.split(given)
        self.classes = torch.full((n, 2 * longest + 1), blank, dtype=torch.int64, device=chances.device)
        for row, one, length in zip(self.classes, rows, given):
            row[1 : 2 * length : 2] = one[:length]
        self.counts = torch.tensor([2 * length + 1 for length in given], device=chances.device)
        # A label may follow the one before the last if it is no blank, and another one.
        self.skips = torch.zeros_like(self.classes, dtype=torch.bool)
        self.skips[:, 2:] = (self.classes[:, 2:] != blank) & (self.classes[:, 2:] != self.classes[:, :-2])
        self.present = torch.arange(2 * longest + 1, device=chances.device) < self.counts[:, None]

    def at_last(self, of_labels: Tensor) -> Tensor:
        """Returns the elements (n, 2) of each target's last two labels."""
        last = torch.stack([self.counts - 1, (self.counts - 2).clamp(min=0)], 1)
        found = of_labels.gather(1, last)
        found[:, 1] = torch.where(self.counts > 1, found[:, 1], -math.inf)
        return found


def _shift(values: Tensor, places: int) -> Tensor:
    """Returns rows moved by places to later labels, or earlier ones if negative; -inf comes in."""
    filled = values.new_full((len(values), abs(places)), -math.inf)
    return torch.cat([filled, values[:, :-places]] if places > 0 else [values[:, -places:], filled], 1)


def _forward(chances: Tensor, targets: Tensor, steps: _Lengths, lengths: _Lengths, blank: int = 0, _zero: bool = False) -> Any:
    """Returns minus the logarithms of the targets' probabilities (n), and of those of labels up to each step (n, time, labels)."""
    labels = _Labels(chances, targets, steps, lengths, blank)
    rows, now, found = [], None, []
    for of_classes in chances:
        own = of_classes.gather(1, labels.classes).masked_fill(~labels.present, -math.inf)
        if now is None:
            now = own.clone()
            now[:, 2:] = -math.inf
        else:
            ways = [now, _shift(now, 1), _shift(now, 2).masked_fill(~labels.skips, -math.inf)]
            now = torch.stack(ways).logsumexp(0) + own
        rows.append(now)
        found.append(labels.at_last(now).logsumexp(1))
    last = torch.tensor([step - 1 for step in labels.steps], device=chances.device)
    return -torch.stack(found, 1).gather(1, last[:, None])[:, 0], torch.stack(rows, 1)


def _backward(
    grad: Tensor, chances: Tensor, targets: Tensor, steps: _Lengths, lengths: _Lengths, loss: Tensor, before: Tensor, blank: int,
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Returns the gradient of the logarithms of probabilities; before: `_forward`'s second result."""
    labels = _Labels(chances, targets, steps, lengths, blank)
    back = torch.cat([labels.skips[:, 2:], labels.skips.new_zeros(len(grad), 2)], 1)
    place = torch.arange(labels.classes.shape[1], device=chances.device)
    ends = labels.present & (place >= labels.counts[:, None] - 2)
    number, rows, now = torch.tensor(labels.steps, device=chances.device)[:, None], [], torch.full_like(before[:, 0], -math.inf)
    for at in range(len(chances) - 1, -1, -1):
        own = chances[at].gather(1, labels.classes).masked_fill(~labels.present, -math.inf)
        ways = [now, _shift(now, -1), _shift(now, -2).masked_fill(~back, -math.inf)]
        now = torch.where(number - 1 == at, own.masked_fill(~ends, -math.inf), torch.stack(ways).logsumexp(0) + own)
        # The probability of being at each label now, among the ways that give the target.
        part = torch.where(labels.present & (own > -math.inf), before[:, at] + now - own + loss[:, None], -math.inf).exp()
        of_step = chances[at].exp().scatter_add(1, labels.classes, -part)
        rows.append(torch.where(number > at, of_step * grad[:, None], 0.0))
    found = torch.stack(rows[::-1])
    return found.masked_fill((loss == math.inf)[:, None], 0.0) if zero_infinity else found


# By the operator's name in PyTorch's dispatcher.
CTC: dict[str, Callable[..., Any]] = {
    f"aten::_ctc_loss{back}{way}": function
    for back, function in (("", _forward), ("_backward", _backward))
    for way in ("", ".Tensor")
}
