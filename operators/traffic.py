"""What a computation moves and executes, counted without executing it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simgpu.hardware.errors import LaunchError
from simgpu.operators.tree import Root


@dataclass(frozen=True)
class Counters:
    """flops: useful, a multiply-add is two. hbm_bytes: every array element once. global_bytes: with re-reads, as blocks request
    them.

    lds_write_bytes, lds_read_bytes: staging, and what waves read back. atoms: matrix instructions on valid data.
    """

    flops: int = 0
    hbm_bytes: int = 0
    global_bytes: int = 0
    lds_write_bytes: int = 0
    lds_read_bytes: int = 0
    atoms: int = 0


@functools.singledispatch
def block_counters(tree: Root) -> Counters:
    """The counters of a ComputeVisitor at the atom level, and so of every level above; masks given as arrays do not count."""
    raise LaunchError(f"nothing counts what a {type(tree).__name__} moves")
