"""What s_waitcnt's counters count and in which order it completes: for emitter and checker alike.

Sources: ISA guides, "Manually inserted wait states"; LLVM AMDGPUUsage and SIInsertWaitcnts. On gfx9
stores count on vmcnt like loads, and there is no counter of their own. FLAT may go to memory or to
LDS, so it counts on both and may overtake the others of either. Exports and GDS, expcnt's, do not
occur in compute kernels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from simgpu.hardware.isa.code.immediates import wait_counts
from simgpu.hardware.isa.kinds import MESSAGES, Encoding
from simgpu.hardware.isa.spec import Spec

LIMITS = {"vmcnt": 63, "expcnt": 7, "lgkmcnt": 15}  # the field's largest value, which waits for nothing


@dataclass(frozen=True)
class WaitQueue:
    """Operations that complete alike."""

    name: str
    counters: tuple[str, ...]  # those that each operation raises by one until it is complete
    in_order: bool  # waiting until n are left leaves at most the last n; out of order, only 0 says anything


VM = WaitQueue("vm", ("vmcnt",), True)
DS = WaitQueue("ds", ("lgkmcnt",), True)
SMEM = WaitQueue("smem", ("lgkmcnt",), False)
FLAT = WaitQueue("flat", ("vmcnt", "lgkmcnt"), False)
# Operations of an in-order queue that may be left when the next one is issued: the hardware holds back what its counter has no
# room for. ROCm/rocm-systems issue 11202 and PR 10926, AMD's own checkers, say so for CDNA3 and CDNA4: after 63 (15) younger
# operations of its kind, one is complete. Counters of gfx908 and gfx90a are as wide.
ROOM = {queue.name: {queue.counters[0]: LIMITS[queue.counters[0]] - 1} for queue in (VM, DS)}
MESSAGE = WaitQueue("message", ("lgkmcnt",), False)

QUEUE_OF_ENCODING: dict[Encoding, WaitQueue] = {"mubuf": VM, "mtbuf": VM, "flat": VM, "ds": DS, "smem": SMEM}


def queue_of(spec: Spec) -> WaitQueue | None:
    """The queue of an instruction's operation; None where no counter counts it."""
    if spec.memory is not None and spec.memory.space == "flat":
        return FLAT
    if spec.control in MESSAGES:
        return MESSAGE
    return QUEUE_OF_ENCODING.get(spec.encoding)


def held_up(queue: WaitQueue, ages: Iterable[int]) -> dict[str, int]:
    """The counts that the hardware itself waits for before it issues an operation of an in-order queue; none while it has room.

    ages: of each operation that may be outstanding, the number of operations that its queue was given since.
    """
    (most,) = ROOM[queue.name].values()
    return ROOM[queue.name] if any(age >= most for age in ages) else {}


def waited(simm16: int) -> dict[str, int]:
    """The counters that an s_waitcnt waits for: at most how many operations each may have left."""
    return {name: count for name, count in wait_counts(simm16).items() if count < LIMITS[name]}
