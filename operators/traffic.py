"""Bytes that a computation moves and instructions that it executes, counted without executing it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from simgpu.hardware.errors import LaunchError
from simgpu.operators.tree import Root


@dataclass(frozen=True)
class Counters:
    """Bytes that a machine moves to execute a tree, and the amount that it computes.

    >>> from simgpu.operators import Counters
    >>> Counters(flops=2 * 64**3, hbm_bytes=3 * 4 * 64**2).flops
    524288
    """

    flops: int = 0  # useful ones; a multiply-add counts as two
    hbm_bytes: int = 0  # bytes if every array element crosses memory once
    global_bytes: int = 0  # bytes that blocks request and write, re-reads included
    lds_write_bytes: int = 0  # bytes that blocks write to LDS
    lds_read_bytes: int = 0  # bytes that waves read from LDS
    atoms: int = 0  # matrix instructions on valid data


@functools.singledispatch
def block_counters(tree: Root) -> Counters:
    """Returns the counters that a ComputeVisitor at the atom level would have, without executing the tree.

    Mask arrays do not count. LaunchError for a tree that no operator registered.
    """
    raise LaunchError(f"nothing counts what a {type(tree).__name__} moves")
