"""Operations counted by s_waitcnt's counters, and the order in which they complete, for emitter and checker.

Sources: ISA guides, "Manually inserted wait states"; LLVM AMDGPUUsage and SIInsertWaitcnts. On gfx9, stores count on
vmcnt like loads; they have no counter of their own. FLAT may access memory or LDS, so it counts on both, and may
overtake other operations of either. Exports and GDS, expcnt's, do not occur in compute kernels.
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
    """A class of operations that share counters and an order of completion."""

    name: str
    counters: tuple[str, ...]  # counters that each operation raises by one until it completes
    # True if operations complete in order: after a wait for a count of n, only the last n may be outstanding. False: only
    # a wait for 0 guarantees that an operation has completed.
    in_order: bool


VM = WaitQueue("vm", ("vmcnt",), True)
DS = WaitQueue("ds", ("lgkmcnt",), True)
SMEM = WaitQueue("smem", ("lgkmcnt",), False)
FLAT = WaitQueue("flat", ("vmcnt", "lgkmcnt"), False)
# Operations of an in-order queue that may be left when the next one is issued: the hardware holds back operations that
# do not fit its counter. ROCm/rocm-systems issue 11202 and PR 10926, AMD's own checkers, document this for CDNA3 and
# CDNA4: after 63 (15) younger operations of its kind, one is complete. Counters of gfx908 and gfx90a are equally wide.
ROOM = {queue.name: {queue.counters[0]: LIMITS[queue.counters[0]] - 1} for queue in (VM, DS)}
MESSAGE = WaitQueue("message", ("lgkmcnt",), False)

QUEUE_OF_ENCODING: dict[Encoding, WaitQueue] = {"mubuf": VM, "mtbuf": VM, "flat": VM, "ds": DS, "smem": SMEM}


def queue_of(spec: Spec) -> WaitQueue | None:
    """Returns the queue of an instruction's operation; None if no counter counts it."""
    if spec.memory is not None and spec.memory.space == "flat":
        return FLAT
    if spec.control in MESSAGES:
        return MESSAGE
    return QUEUE_OF_ENCODING.get(spec.encoding)


def held_up(queue: WaitQueue, ages: Iterable[int]) -> dict[str, int]:
    """Returns the counts to which the hardware waits before it issues an operation of an in-order queue; {} if there is room.

    ages: for each operation that may be outstanding, the number of operations added to its queue since.
    """
    (most,) = ROOM[queue.name].values()
    return ROOM[queue.name] if any(age >= most for age in ages) else {}


def awaited_counters(simm16: int) -> dict[str, int]:
    """Returns the counters that an s_waitcnt waits for, with the number of operations that each may have left.

    >>> awaited_counters(0xC07F)
    {'lgkmcnt': 0}
    """
    return {name: count for name, count in wait_counts(simm16).items() if count < LIMITS[name]}
