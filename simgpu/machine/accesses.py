"""What hooks are told of: an access to memory or LDS, and sums of a matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Access:
    """One access; IR values unless the type says otherwise.

    space: "global" (device memory, private memory among it), "scalar" (one wave-wide range of
    device memory) or "lds"; offsets: bytes into the allocation or the LDS block, <64 x i64>, one
    i64 for scalar; lanes: i64 mask of the lanes served, None for scalar; size: bytes a lane (all
    bytes of a scalar access); entry: pointer to the allocation's entry (layout.ALLOC_*), None for
    LDS; contiguous: i1, each lane's bytes follow those of the lane before, None where not known.
    """

    space: str
    offsets: Any
    lanes: Any
    size: int
    reads: bool
    writes: bool
    atomic: bool = False
    entry: Any = None
    contiguous: Any = None


@dataclass(frozen=True)
class Sums:
    """Lanes of D that follow each other; IR values.

    group: i64, which of D's groups of so many lanes, counted from its first register; new, old: D and C there, vectors of floats;
    record: i64, the instruction's; spoilt: vector of i1, lanes whose elements of A or B are not finite, None where that is not
    known.
    """

    group: Any
    new: Any
    old: Any
    record: Any
    spoilt: Any = None
