"""Names of a package that are loaded at their first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def loader(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a package's `__getattr__`, which raises AttributeError for other names. homes: the module that has each name.

    >>> load = loader("simgpu.asm", {"assemble": "simgpu.asm.builder.toolchain"})
    >>> load("assemble").__name__
    'assemble'
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
