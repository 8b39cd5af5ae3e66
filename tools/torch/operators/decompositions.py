"""PyTorch's own decompositions of operators into simpler ones, which the simulated GPU computes.

They are PyTorch's Python functions (`torch._decomp`), as its compilers use them. An operator on lists is composed of calls on
each tensor, and one in place or with `out=` of its plain overload.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import get_decompositions

from simgpu.tools.torch.operators.compositions import COMPOSITIONS

_LISTS = "aten::_foreach_"
_OVERLOADS = {"List": "Tensor", "ScalarList": "Scalar"}  # of an operator on lists: the one on each tensor


def out_of_place(func: Any) -> Any:
    """Returns the overload whose result an operator in place, `name_`, writes into its first argument; None if there is none."""
    packet = getattr(torch.ops.aten, func._schema.name.removeprefix("aten::")[:-1], None)
    return getattr(packet, func._overloadname, None)


@functools.cache
def decomposition_of(func: Any) -> Callable[..., Any] | None:
    """Returns a function that computes a plain overload of an operator by simpler ones; None if PyTorch has none.

    Operators that draw random numbers have none: an order of draws is a kernel's.
    """
    name = func.name()
    if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable:
        return None
    if name.startswith("prims::"):
        return getattr(func, "impl_aten", None)
    if name.startswith(_LISTS):
        return _of_each(name.removeprefix(_LISTS))
    return COMPOSITIONS.get(name) or get_decompositions([func]).get(func)


def _of_each(name: str) -> Callable[..., Any] | None:
    """Returns an operator on lists as calls on their tensors."""
    operator, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, operator, None)
    if packet is None:
        return None
    named = _OVERLOADS.get(overload, overload)
    single = getattr(packet, named if named in packet.overloads() else "default")
    positional = sum(not one.kwarg_only for one in single._schema.arguments)
    keys = [one.name for one in single._schema.arguments[positional:]]  # a factor that lists have in order

    def of_each(*args: Any, **options: Any) -> list[Any]:
        columns = [one if isinstance(one, (list, tuple)) else [one] * len(args[0]) for one in args]
        rows = zip(*columns, strict=True)
        return [single(*row[:positional], **dict(zip(keys, row[positional:])), **options) for row in rows]

    return of_each
