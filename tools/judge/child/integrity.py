"""Functions that a candidate may not replace: those of PyTorch, Triton, numpy, Python and simgpu."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch

# Modules whose functions and classes are looked at, with the classes' methods.
WATCHED = (
    "builtins", "time", "random", "os", "threading", "inspect", "gc", "json", "math", "numpy", "numpy.random", "numpy.testing",
    "torch", "torch.cuda", "torch.linalg", "torch.nn", "torch.nn.functional", "torch.nn.modules.module", "torch.testing",
    "torch.random", "torch.autograd", "torch._tensor", "triton", "triton.language", "triton.testing", "triton.runtime",
    "triton.runtime.jit", "triton.runtime.autotuner", "triton.compiler",
)  # fmt: skip
OURS = "simgpu."
_TORCH = os.path.dirname(torch.__file__) + os.sep
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, type, staticmethod, classmethod, property)


class Integrity:
    """Functions of the watched modules as they are when this is made."""

    def __init__(self) -> None:
        self._before = dict(_functions())

    def changes(self) -> list[str]:
        """Returns the names of functions that were replaced, deleted or given other code."""
        now = dict(_functions())
        return sorted(".".join(name) for name, value in self._before.items() if not _same(value, now.get(name)))


def _functions() -> Iterator[tuple[tuple[str, ...], tuple[Any, Any]]]:
    """Yields (module, name) or (module, class, name) with the function, and its code. Classes have their bases' methods, too."""
    for name, module in list(sys.modules.items()):
        if name not in WATCHED and not name.startswith(OURS):
            continue
        for attribute, value in list(vars(module).items()):
            if not isinstance(value, _FUNCTIONS):
                continue
            yield (name, attribute), (value, getattr(value, "__code__", None))
            if isinstance(value, type) and (getattr(value, "__module__", "").split(".")[0] in ("torch", "triton", "simgpu")):
                for method, function in _methods(value).items():
                    yield (name, attribute, method), (function, getattr(function, "__code__", None))


def _methods(cls: type) -> dict[str, Any]:
    """Returns the functions of a class by name, as an instance finds them."""
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__[:-1]):
        members |= vars(base)
    return {name: member for name, member in members.items() if isinstance(member, _FUNCTIONS) or callable(member)}


def _same(before: tuple[Any, Any], now: tuple[Any, Any] | None) -> bool:
    """True for the same function, and for one of PyTorch's files: it wraps some of its own when it imports its compiler."""
    if now is None:
        return False
    return (before[0] is now[0] and before[1] is now[1]) or str(getattr(now[1], "co_filename", "")).startswith(_TORCH)
