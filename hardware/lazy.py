"""Names of a module that are loaded at their first use (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def loader(owner: str, package: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module, which raises AttributeError for other names.

    owner: the module's name. names: by module of the package, the names that it has.

    >>> load = loader("simgpu.asm", "simgpu.asm", {"builder.toolchain": ["assemble"]})
    >>> load("assemble").__name__
    'assemble'
    """
    homes = {name: f"{package}.{module}" for module, has in names.items() for name in has}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {owner!r} has no attribute {name!r}; it has {', '.join(sorted(homes))}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[owner], name, value)
        return value

    return load
