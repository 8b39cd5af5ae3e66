"""What a computation moves and executes, counted without executing it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simgpu.hardware.errors import LaunchError
from simgpu.operators.tree import Root


@dataclass(frozen=True)
class Counters:
    """What a machine that executes a tree moves, and how much it computes."""

    flops: int = 0  # useful ones, a multiply-add counted as two
    hbm_bytes: int = 0  # every array element once
    global_bytes: int = 0  # with re-reads, as blocks request them
    lds_write_bytes: int = 0  # staging
    lds_read_bytes: int = 0  # what waves read back
    atoms: int = 0  # matrix instructions on valid data


@functools.singledispatch
def block_counters(tree: Root) -> Counters:
    """The counters of a ComputeVisitor at the atom level, and so of every level above; masks given as arrays do not count."""
    raise LaunchError(f"nothing counts what a {type(tree).__name__} moves")
