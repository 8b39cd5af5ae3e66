"""LDS bank conflicts of one access, from tables of the lanes that are served together.

The LDS has `banks` banks of 4 bytes. A wave's access is served in phases of lanes. Lanes of a phase that access
different words of one bank are served in turn; the same word is broadcast to reads (ROCm Compute Profiler
documentation, "Local data share"). Here an access without conflicts takes one clock a phase; `conflicts` are the clocks
beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.errors import TargetError

BANK_BYTES = 4
Lanes = tuple[int, ...]


def _runs(*runs: tuple[int, int]) -> Lanes:
    return tuple(lane for first, last in runs for lane in range(first, last + 1))


def _both_halves(*phases: Lanes) -> tuple[Lanes, ...]:
    return (*phases, *(tuple(lane + 32 for lane in phase) for phase in phases))


def _consecutive(lanes: int) -> tuple[Lanes, ...]:
    return tuple(tuple(range(first, first + lanes)) for first in range(0, WAVEFRONT, lanes))


@dataclass(frozen=True)
class Phases:
    """LDS banks, and the phases in which an access is served."""

    banks: int  # number of banks
    phases: tuple[Lanes, ...]  # lanes that are served together, in order
    source: str  # origin of the figures; "assumed" if none is published


# A third party's note that cites AMD; HipKittens measured the same pattern for gfx950's b96 reads.
_B128 = _both_halves(
    _runs((0, 3), (20, 23)), _runs((4, 7), (16, 19)), _runs((8, 11), (28, 31)), _runs((12, 15), (24, 27))
)
_B96 = _B128
# HipKittens, counter measurements on gfx950.
_GFX950_B128 = _both_halves(_runs((0, 3), (12, 15), (20, 27)), _runs((4, 11), (16, 19), (28, 31)))
_HK = "HipKittens, counters on gfx950"
_ASSUMED = "assumed: consecutive lanes whose bytes fill all banks once"

# (kind, bytes of a lane): Phases.
_COMMON = {
    ("read", 4): Phases(32, _consecutive(32), "GCN optimisation guides: half waves"),
    ("read", 8): Phases(32, _consecutive(16), _ASSUMED),
    ("read", 12): Phases(32, _consecutive(8), _ASSUMED),
    ("read", 16): Phases(32, _B128, "third-party note citing AMD"),
    ("write", 4): Phases(32, _consecutive(32), "GCN optimisation guides: half waves"),
    ("write", 8): Phases(32, _consecutive(16), _ASSUMED),
    ("write", 12): Phases(32, _consecutive(8), _ASSUMED),
    ("write", 16): Phases(32, _consecutive(8), "ROCm, Composable Kernel, LDS and bank conflicts"),
}
_GFX950 = {
    **_COMMON,
    ("read", 8): Phases(64, _consecutive(32), _HK),
    ("read", 12): Phases(32, _B96, _HK),
    ("read", 16): Phases(64, _GFX950_B128, _HK),
    ("write", 8): Phases(32, _consecutive(16), _HK),
}
_TARGETS = {"gfx908": _COMMON, "gfx90a": _COMMON, "gfx942": _COMMON, "gfx950": _GFX950}


def phases(target: str, kind: str, nbytes: int) -> Phases:
    """Returns the banks and phases of a "read" or "write" of `nbytes` per lane: 1, 2, 4, 8, 12 or 16.

    TargetError for other sizes or an unknown target.
    """
    table = _TARGETS.get(target)
    if table is None:
        raise TargetError(f"no LDS rules for {target!r}; there are {', '.join(_TARGETS)}")
    row = table.get((kind, max(BANK_BYTES, nbytes)))
    if row is None:
        raise TargetError(f"no LDS rules for a {kind} of {nbytes} bytes a lane: use 4, 8, 12 or 16")
    return row


def conflicts(
    target: str, kind: str, nbytes: int, addresses: Sequence[int] | np.ndarray, active: Sequence[bool] | np.ndarray | None = None,
) -> int:
    """Returns the clocks that one wave's access loses to bank conflicts.

    kind: "read" or "write". nbytes: of a lane. addresses: of the 64 lanes, in bytes. active: the lanes that take part;
    default all.

    >>> conflicts("gfx942", "read", 4, [128 * lane for lane in range(64)])
    62
    """
    rule = phases(target, kind, nbytes)
    words = np.asarray(addresses, np.int64)[:, None] // BANK_BYTES + np.arange(max(1, nbytes // BANK_BYTES))
    mask = np.ones(WAVEFRONT, bool) if active is None else np.asarray(active, bool)
    lost = 0
    for phase in rule.phases:
        lanes = [lane for lane in phase if mask[lane]]
        if not lanes:
            continue
        wanted = np.unique(words[lanes])  # one word is served once, to every lane that reads it
        lost += int(np.bincount(wanted % rule.banks).max()) - 1
    return lost
