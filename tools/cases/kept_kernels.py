"""Emitted kernels, kept in the user's cache: a command that repeats a problem with other options need not emit it again."""

from __future__ import annotations

import functools
import hashlib
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import simgpu.asm
import simgpu.hardware
import simgpu.operators
from simgpu.hardware import cache
from simgpu.operators.tree import Root
from simgpu.tools.cases.operators import OPERATORS, Kernels, Operator

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel

ROOMS = simgpu.hardware, simgpu.operators, simgpu.asm


def sources() -> Iterator[Path]:
    """Yields the sources that affect an emitted kernel: the chip, operators, emitters, and the operators' rows in the table."""
    for room in (*(Path(str(module.__file__)).parent for module in ROOMS), Path(__file__).parent / "operators"):
        yield from sorted(room.rglob("*.py"))


def emit_or_load(operator: Operator, chosen: Kernels, tree: Root) -> EmittedKernel:
    """Returns a tree's kernel without `items`: from the cache, or emitted as by `chosen.emit`, which raises.

    Kernels of a user's own operator are not kept, as its code may change. The key has the tree, so all of its problem and plan.
    """
    if operator.name not in OPERATORS or OPERATORS[operator.name] is not operator:
        return chosen.emit(tree)
    folder, name = cache.Folder("kernels"), hashlib.sha256(_source_digest() + pickle.dumps((chosen.emit, tree))).hexdigest()
    if (kept := folder.load(name)) is not None:
        found: EmittedKernel = pickle.loads(kept)
        return found
    made = _without_items(chosen.emit(tree))
    folder.store(name, pickle.dumps(made))
    return made


@functools.cache
def _source_digest() -> bytes:
    return cache.digest_of(sources())


def _without_items(kernel: EmittedKernel) -> EmittedKernel:
    return replace(kernel, items=(), following=tuple(map(_without_items, kernel.following)))
