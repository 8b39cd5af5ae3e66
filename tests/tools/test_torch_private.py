"""PyTorch's private names that the pretended GPU uses: each may change with a release, so no new one comes unseen."""

from __future__ import annotations

from tests.support.private_names import KNOWN, by_name, names_in

MOST = 53  # lower it when one goes


def test_private_names_do_not_grow() -> None:
    known = [f"torch.{name}" for names in KNOWN.values() for name in names]
    assert sorted(known) == list(by_name()), "KNOWN in tests/support/private_names.py is the table of all of them"
    assert len(known) == len(set(known)) == MOST


def test_names_are_found_however_they_are_written() -> None:
    source = """
import torch
import torch.utils._pytree as trees
from torch._ops import OpOverload
from torch.library import Library
trees.tree_map(torch.nn.functional.relu, torch._C._nn._parse_to)
ANSWERS = {"cuda.synchronize": 1, "cuda._sleep": 2, **{f"cuda.{name}": 3 for name in ("init", "_lazy_init")}}
PATCHES = ((torch.Tensor, "_make_wrapper_subclass", 4), (Library, "impl", 5), (torch, "range", 6))
torch.Tensor.__repr__, self._own, library._private
"""
    assert sorted(set(names_in(source))) == [
        "torch.Tensor._make_wrapper_subclass", "torch._C._nn._parse_to", "torch._ops.OpOverload", "torch.cuda._lazy_init",
        "torch.cuda._sleep", "torch.utils._pytree", "torch.utils._pytree.tree_map",
    ]  # fmt: skip
