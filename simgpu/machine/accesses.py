"""Records that hooks are called with: an access to memory or LDS, and sums of a matrix instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Access:
    """An access to memory or LDS; IR values unless the type says otherwise."""

    space: str  # "global" (device memory, including private memory), "scalar" (a wave-wide range of device memory) or "lds"
    offsets: Any  # bytes into the allocation or the LDS block: <64 x i64>; one i64 for scalar
    lanes: Any  # i64 mask of the lanes served; None for scalar
    size: int  # bytes a lane; all bytes of a scalar access
    reads: bool
    writes: bool
    atomic: bool = False
    entry: Any = None  # pointer to the allocation's entry (layout.ALLOC_*); None for LDS
    contiguous: Any = None  # i1: each lane's bytes follow the previous lane's; None if not known
    private: bool = False  # True if it is known that only its lane accesses the memory


@dataclass(frozen=True)
class LaneSums:
    """Sums of consecutive lanes of D; IR values."""

    group: Any  # i64: index among D's groups of this many lanes, counted from its first register
    new: Any  # D in these lanes, a vector of floats
    old: Any  # C in these lanes, a vector of floats
    record: Any  # i64: the instruction's record
    spoilt: Any = None  # vector of i1: lanes whose elements of A or B are not finite; None if not known
