"""Launches of several devices that run at the same time: common shadows, and common numbers of workgroups and records.

A launch joins the launches that still run. What those did so far and all that they do from now on may race with it. An
overlap ends when none of its launches runs any more. A launch for which it has no room is checked by itself, and has a note about
that if another ran at the same time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks.races import cells
from simgpu.checks.races.knowledge import LAUNCHES, LINK_BYTES, LINKS, NODE_BYTES, NODES
from simgpu.checks.races.storage import POOL, Shadow, give_back, lazy_zeros
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at
from simgpu.hardware.memory_model import Scope

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.node import DeviceNode

MOST_GROUPS = 1 << 12  # workgroups of all launches of an overlap; a launch that brings more runs by itself
STRIDE = 16  # most waves of a workgroup
OVERLAP, TRAFFIC = "overlap", "traffic"  # keys in `DeviceNode.shared`
ALONE = "alone"  # key in `Dispatch.checks`


@dataclass
class Traffic:
    """Numbers of a node's launches."""

    begun: int = 0  # so far
    running: int = 0  # now


@dataclass
class LoneLaunch:
    """A launch that is checked by itself because its overlap is full."""

    limit: str  # the limit, in words
    traffic: Traffic
    begun: int  # launches of the node that had begun when this one had
    beside: int  # others that ran then


@dataclass
class OverlapMember:
    """A launch of an overlap."""

    overlap: Overlap
    launch: Dispatch
    first_group: int  # number of its first workgroup in cells
    first_site: int  # number of its first record in cells
    number: int  # its number in the overlap
    runs: bool = True

    @property
    def groups(self) -> range:
        """Numbers of its workgroups."""
        return range(self.first_group, self.first_group + self.launch.groups)

    @property
    def sites(self) -> range:
        """Numbers of its records."""
        return range(self.first_site, self.first_site + self.launch.program.count + 1)


@dataclass
class Overlap:
    """Launches that overlap, and what they share."""

    nodes: np.ndarray = field(default_factory=lambda: lazy_zeros(NODE_BYTES * (NODES + 1)))  # as of `ordering.SharedOrder`
    links: np.ndarray = field(default_factory=lambda: lazy_zeros(LINK_BYTES * (LINKS + 1)))
    counts: np.ndarray = field(default_factory=lambda: np.zeros(3, np.int64))
    segments: np.ndarray = field(default_factory=lambda: lazy_zeros(8 * STRIDE * MOST_GROUPS))
    scopes: np.ndarray = field(default_factory=lambda: lazy_zeros(cells.SITES + 1))  # uint8 by record: scope of its access
    devices: np.ndarray = field(default_factory=lambda: lazy_zeros(MOST_GROUPS))  # uint8 by workgroup: 1 + its device
    launches: np.ndarray = field(default_factory=lambda: lazy_zeros(MOST_GROUPS))  # uint8 by workgroup: its launch
    ended: np.ndarray = field(default_factory=lambda: np.zeros(LAUNCHES, np.int64))  # launches that ended before it, as bits
    members: list[OverlapMember] = field(default_factory=list)
    shadows: dict[tuple[int, int], Shadow] = field(default_factory=dict)  # by address and bytes of the allocation
    failed: bool = False  # True if a launch ended with an error, which leaves cells in an unknown state

    def member_of(self, number: int, *, site: bool) -> OverlapMember | None:
        """Returns the launch of a workgroup, or of a record, by its number in cells; None if there is none."""
        return next((member for member in self.members if number in (member.sites if site else member.groups)), None)

    @property
    def free(self) -> tuple[int, int]:
        """Returns the first free workgroup and record."""
        last = self.members[-1] if self.members else None
        return (last.groups.stop, last.sites.stop) if last else (0, 0)

    def full(self, groups: int, records: int) -> str:
        """Returns the limit, in words, that a launch would exceed; "" if there is room."""
        group, site = self.free
        if len(self.members) == LAUNCHES:
            return f"{LAUNCHES} kernels"
        if group + groups > MOST_GROUPS:
            return f"{MOST_GROUPS:,} workgroups"
        return f"{cells.SITES:,} instructions" if site + records > cells.SITES else ""


def join(launch: Dispatch, scopes: np.ndarray) -> OverlapMember | None:
    """Makes a launch a member of the overlap of its node until it ends; None if it has no node, or no room there.

    scopes: uint8 by record, the scope of its access
    """
    node = launch.node
    if node is None:
        return None
    with node.lock:
        traffic: Traffic = node.shared.setdefault(TRAFFIC, Traffic())
        traffic.begun += 1
        traffic.running += 1
        launch.borrowed.add_end(functools.partial(_end, node, traffic))
        overlap: Overlap = node.shared.get(OVERLAP) or Overlap()
        if limit := overlap.full(launch.groups, launch.program.count + 1):
            launch.checks[ALONE] = LoneLaunch(limit, traffic, traffic.begun, traffic.running - 1)
            return None
        node.shared[OVERLAP] = overlap
        member = OverlapMember(overlap, launch, *overlap.free, len(overlap.members))
        launch.borrowed.add_end(functools.partial(leave, node, member))
        overlap.ended[member.number] = sum(1 << other.number for other in overlap.members if not other.runs)
        overlap.launches[member.groups.start : member.groups.stop] = member.number
        overlap.scopes[member.sites.start : member.sites.stop] = scopes
        overlap.devices[member.groups.start : member.groups.stop] = launch.number + 1
        overlap.members.append(member)
        return member


def leave(node: DeviceNode, member: OverlapMember, well: bool) -> None:
    """Ends a member. The last one ends the overlap. well: True if the launch ended without an error."""
    with node.lock:
        member.runs = False
        overlap = member.overlap
        overlap.failed = overlap.failed or not well
        if any(other.runs for other in overlap.members) or node.shared.get(OVERLAP) is not overlap:
            return
        del node.shared[OVERLAP]
        if overlap.failed:
            node.shared.pop(POOL, None)
        else:
            give_back(node.shared, list(overlap.shadows.values()))


def _end(node: DeviceNode, traffic: Traffic, well: bool) -> None:
    with node.lock:
        traffic.running -= 1


def alone_note(launch: Dispatch) -> list[Finding]:
    """Returns a note if the launch is checked by itself although others of its node ran at the same time."""
    alone: LoneLaunch | None = launch.checks.get(ALONE)
    if alone is None or not (alone.beside or alone.traffic.begun > alone.begun):
        return []
    text = (
        f"checked alone: kernels of other GPUs ran at the same time, and at most {alone.limit} of an overlap are checked together. "
        "Races between this kernel and theirs are not found"
    )
    return [finding_at(launch, launch.entry, "resource", text, severity="note")]


def member_of(launch: Dispatch) -> OverlapMember | None:
    """Returns the launch as a member of an overlap, None if it runs by itself."""
    found: OverlapMember | None = launch.checks.get(OVERLAP)
    return found


def place_of_site(launch: Dispatch, site: int) -> tuple[Dispatch, int]:
    """Returns the launch and the record of a number in cells and nodes."""
    mine = member_of(launch)
    member = mine.overlap.member_of(site, site=True) if mine else None
    return (launch, site) if member is None else (member.launch, site - member.first_site)


def needed_scope(launch: Dispatch, other: Dispatch, together: bool) -> Scope:
    """Returns the scope that two waves need to synchronise. other: the launch of the second one. together: True if both are of one
    workgroup, which matters in tgsplit mode only"""
    if together and launch.info.descriptor.tg_split:
        return Scope.WORKGROUP
    return Scope.AGENT if other is launch or other.number == launch.number else Scope.SYSTEM
