"""Makes findings of races, and of barriers that not all waves reach."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.checks.races import accesses, barriers, cells, skips
from simgpu.checks.races.lds import carried, clashes
from simgpu.checks.races.overlap import OverlapMember, member_of, needed_scope
from simgpu.checks.races.remedies import HIP, OPENCL, Remedy, language_of, remedy_of
from simgpu.checks.races.unused import is_unused
from simgpu.checks.waits.in_flight import missing_wait
from simgpu.engine.events import finding_of
from simgpu.engine.finding import Finding
from simgpu.engine.positions import Event, element, finding_at, location_of

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

BARRIER_MISSING = "nothing orders them; put an s_barrier between"
UPDATE = ", or, where both update one place as `x += y` does, an atomic"
GROUPS_APART = "no barrier orders workgroups; use atomics or another launch"
GPUS_APART = "nothing orders the GPUs; use a flag with system scope in fine-grained memory, or wait for the other kernel"


def _site(launch: Dispatch, low: int) -> int:
    """Returns the first instruction's record whose low bits equal a cell's."""
    return low if launch.program.count <= cells.SITES else next(
        (index for index in range(low, launch.program.count, cells.SITES + 1) if launch.instruction(index)), low
    )


def _race(
    launch: Dispatch, event: Event, where: str, unordered: Remedy | None = None, foreign: OverlapMember | None = None
) -> Finding:
    """Returns the finding of two accesses. foreign: the launch of the other one, if it is not this one."""
    swapped = bool(event.lanes & clashes.SWAPPED)  # then the wave that saw it was at the earlier place
    there = foreign.launch if foreign else launch
    sides = (event.workgroup, event.wave), _side(there, event.lanes >> clashes.OTHER_SHIFT)
    records = _site(launch, event.record), _site(there, event.extra)
    if records[0] == records[1] and not foreign:  # one place: the lower workgroup comes first
        swapped = _number(launch, sides[1][0]) < _number(launch, sides[0][0])
    (group, wave), other = reversed(sides) if swapped else sides
    both = event.lanes & clashes.BOTH_WRITE
    reads = bool(event.lanes & clashes.WROTE) == swapped  # at the later place
    if both:
        clash = "two writes (a race even if both write the same value)"
    else:
        clash = "a read and a write" if reads else "a write and a read"
    unused = not both and where != "LDS" and not foreign and is_unused(launch, records[0 if reads else 1])
    if unused:
        reader = wave if reads else other[1]
        remedy = f"of no effect: the value that wave {reader} loads reaches only registers, and stores with no active lane"
    else:
        remedy = GPUS_APART if foreign else BARRIER_MISSING if other[0] == group else GROUPS_APART
        one_line = location_of(launch, records[0]).source == location_of(there, records[1]).source != ""
        remedy += UPDATE if remedy == BARRIER_MISSING and one_line and not both else ""
    kind = "race"
    if unordered is not None and unordered.text:
        unused, kind, remedy = False, unordered.kind, unordered.text
    elsewhere = "" if other[0] == group and not foreign else f" of workgroup {other[0]}"
    if foreign:
        elsewhere += f" of {there.info.title} on GPU {there.number}, this is GPU {launch.number}"
    what = f"{where} {event.address:#x}{'' if where == 'LDS' else element(launch, event.address)}"
    message = f"{clash} of {what}, by wave {wave} and wave {other[1]}{elsewhere}: {remedy}"
    lanes = () if swapped else (event.lanes & clashes.LANE,)
    return finding_at(
        launch, records[0], kind, message, earlier=records[1], by=there, event=event, severity="note" if unused else "error",
        wave=wave, workgroup=group, lanes=lanes, place=f"{where} {event.address:#x}",
    )  # fmt: skip


def _number(launch: Dispatch, workgroup: tuple[int, int, int]) -> int:
    """Returns a workgroup's number as cells hold it."""
    return launch.geometry.number(workgroup) & cells.GROUPS


def _side(launch: Dispatch, other: int) -> tuple[tuple[int, int, int], int]:
    """Returns the workgroup and wave of a race's other side."""
    return launch.geometry.group(other >> 4), other & 15


@finding_of(clashes.RACE)
def _race_lds(launch: Dispatch, event: Event) -> Finding:
    # The event has no workgroup for the other side: it is the same one.
    mine = _number(launch, event.workgroup) << 4 + clashes.OTHER_SHIFT
    return _race(launch, replace(event, lanes=mine | event.lanes), "LDS")


@finding_of(accesses.RACE)
def _race_global(launch: Dispatch, event: Event) -> Finding:
    way = event.extra >> cells.SITE_BITS
    lack, record, site = event.extra >> accesses.LACK_SHIFT, event.record, event.extra & cells.SITES
    lanes, mine = event.lanes, member_of(launch)
    other = mine and (mine.overlap.member_of(lanes >> clashes.OTHER_SHIFT + 4, site=False) or mine)
    if mine and other:
        lanes -= other.first_group << clashes.OTHER_SHIFT + 4
        record, site = record - mine.first_site, site - other.first_site
    there = other.launch if other else launch
    foreign = None if other is mine else other
    together = foreign is None and _side(launch, lanes >> clashes.OTHER_SHIFT)[0] == event.workgroup
    needed = needed_scope(launch, there, together)
    remedy = remedy_of(launch, needed, lack, way & accesses.WAY, way >> accesses.WAY_BITS & accesses.WAY)
    return _race(launch, replace(event, record=record, extra=site, lanes=lanes), "memory", remedy, foreign)


@finding_of(carried.CARRIED)
def _carried_finding(launch: Dispatch, event: Event) -> Finding:
    def tell(earlier: str, left: int, writes: bool) -> str:
        return (
            f"{'overwritten' if writes else 'read'} after a barrier, before which another wave's `{earlier}` may not have "
            f"completed: s_waitcnt lgkmcnt({left}) is needed between that instruction and the barrier"
        )

    return missing_wait(launch, event, tell)


@finding_of(barriers.BARRIER)
def _barrier(launch: Dispatch, event: Event) -> Finding | None:
    if event.extra >> cells.SITE_BITS == barriers.ENDED:
        message = (
            "waves of the workgroup ended before this barrier; the hardware counts them as arrived, and HIP and CUDA wait only for "
            "threads that have not exited, but OpenCL does not allow a kernel to rely on it"
        )
        return finding_at(launch, event.record, "barrier", message, event=event, lanes=(), severity="note")
    if not launch.checks["races"][1].missed:
        return None  # waves with separate tasks have separate barriers: all passed the same number
    message = (
        f"wave {event.wave} waits here and wave {event.address} at another barrier: they release each other, "
        "and some wave passes fewer barriers than the others"
    )
    earlier = _site(launch, event.extra & cells.SITES)
    return finding_at(launch, event.record, "barrier", message, earlier=earlier, event=event, lanes=())


@finding_of(skips.SKIP)
def _skip(launch: Dispatch, event: Event) -> Finding | None:
    source = location_of(launch, event.record).source
    if source and language_of(source) not in (HIP, OPENCL):
        return None  # assembly, whose barriers are the hardware's
    message = (
        "some lanes skip this barrier in a branch and go on later; the hardware counts the wave as arrived, but HIP, CUDA and "
        "OpenCL want each thread that has not returned at the same barrier: move it out of the branch"
    )
    severity = "error" if source else "note"
    return finding_at(launch, event.record, "barrier", message, earlier=event.extra, event=event, severity=severity)


@finding_of(clashes.DUPLICATE)
def _duplicate(launch: Dispatch, event: Event) -> Finding | None:
    if launch.check != "performance":
        return None
    message = f"several waves write the same bytes to LDS {event.address:#x} by this instruction, without a barrier between"
    place = f"LDS {event.address:#x}"
    return finding_at(launch, event.record, "performance", message, event=event, lanes=(), severity="note", place=place)
