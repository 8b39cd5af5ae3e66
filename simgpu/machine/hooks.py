"""What a handler tells about its memory accesses, where somebody asked: checked mode's hook.

Plain mode has no checks, and then nothing is emitted. Otherwise each access that passed its bounds
checks is described to them, after its bytes moved, and each emits what it wants; a store to LDS is so before, too.
It may use the wave's ADDRESSES area; staging holds what a load read, until that is in registers, or
what a store writes, lane after lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgpu.machine.frame import Frame


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


def foresee(frame: Frame, access: Access) -> None:
    """Tell the frame's checks of a store to LDS while it holds yet what will be overwritten."""
    for check in frame.checks:
        check.overwrite(frame, access)


def observe(frame: Frame, access: Access) -> None:
    """Tell the frame's checks."""
    for check in frame.checks:
        check.access(frame, access)
