"""Clocks of workgroups and waves, and addresses of a worker's memory for the functions of this check.

A workgroup has a clock, which its barriers advance. If a launch synchronises through memory, its waves' releases, write-backs and
scalar invalidates advance it, too. The epoch of an access is the clock plus 1; its cell holds it. Accesses of the workgroup from
before its last barrier, `floor`, are ordered. What a wave knows of other workgroups, and of its own since the barrier, is in
lists of its observations (`knowledge`).
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.checks.races.cells import EPOCH_SHIFT, GROUP_SHIFT, SITES
from simgpu.checks.races.lds.order import WAVES, Classes
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workgroup import context
from simgpu.machine.runtime import octets, part, structure

# Barriers that the wave passed; the lanes, as a mask, that were off at the last one; and its record.
BARRIERS, SKIPPED, SKIPPED_AT = wave_fields("races", 3)
(BLOCK_AT,) = context_fields("races", 1)  # address of the worker's RaceBlock
LOCKS, RECENT, VISITED = 8, 8, 512  # entries of `SlotState.locks`, of `WaveOrder.recent`, and of `visited` for each view
# Views of a wave's knowledge, by the access that asks: a store, atomic or coherent load; a plain load; a scalar load; a plain load
# of what another device stored.
ORDERED, VISIBLE, SCALAR_VISIBLE, FAR_VISIBLE, VIEWS = range(5)
NEAR, FAR, LEVELS = range(3)  # who sees stores that were written back: the device, all devices


class RaceClock(Structure):
    """State that all workers share."""

    _fields_ = (("missed", c_int64),)  # 1 if a barrier was passed without waves that had ended


class RaceBlock(Structure):
    """Addresses by which the functions of this check find a worker's memory."""

    _fields_ = (
        ("lds_shadow", c_int64),  # address of the shadow of slot 0's LDS
        ("lds_stride", c_int64),  # bytes from one slot's shadow to the next
        ("lds_words", c_int64),  # u64 words of a bitmap there
        ("states", c_int64),  # address of the slots' SlotState
        ("clock", c_int64),  # address of the RaceClock
        ("grid", c_int64 * 2),  # workgroups in x and y
        ("uses", c_int64),  # address of a `uses.RecordUse` for each record
        # Loads that `expected` found:
        ("loads", c_int64),  # their number
        ("roles", c_int64),  # address of a byte for each record: a load's number + 1, SWAP plus a swap's number, or 0
        ("expects", c_int64),  # address of an i64 for each swap: the loads whose value it expects, as bits
        ("rivals", c_int64),  # address of an i64 for each load: the other loads that a swap of it also expects
        ("pending", c_int64),  # address of the waiting loads: `Pending` by slot, wave and load
        # Memory model:
        ("synchronises", c_int64),  # 1 if anything that the launch reaches may observe a release
        ("scopes", c_int64),  # address of a byte for each record: the scope of its access
        ("narrow", c_int64),  # 1 if an atomic access may have a scope that excludes other workgroups
        ("split", c_int64),  # 1 in tgsplit mode: the waves of a workgroup may be on different CUs, with an L1 each
        ("stores_release", c_int64),  # 1 if atomic stores look like plain ones: before gfx942
        ("through", c_int64 * LEVELS),  # 1 if stores are available to that level when they are complete
        ("waves", c_int64),  # waves of a workgroup
        ("stride", c_int64),  # numbers of waves from one workgroup to the next
        ("total", c_int64),  # numbers of waves
        ("orders", c_int64),  # address of a WaveOrder for each wave of the slots
        ("known", c_int64),  # address of VIEWS tables for each one: `knowledge.KnownWave` by wave of the launch
        ("stack", c_int64),  # address of the worker's stack for walks
        ("nodes", c_int64),  # address of all workers' nodes
        ("links", c_int64),  # address of all workers' links
        ("counts", c_int64),  # address of the counts of nodes and links, and of the latest arrival at ds_gws_barrier
        ("segments", c_int64),  # address of an i64 for each wave of the launch: the node of its latest segment
        # Launches of several devices that run at the same time (`overlap`), which number workgroups and records together:
        ("first_group", c_int64),  # number of this launch's first workgroup
        ("first_site", c_int64),  # number of its first record
        ("records", c_int64),  # the number of its records
        ("devices", c_int64),  # address of a byte for each workgroup: 1 + its device; 0 if no other launch runs
        ("launches", c_int64),  # address of a byte for each workgroup: its launch
        ("ended", c_int64),  # address of an i64 for each launch: the launches that ended before it began, as bits
        ("launch", c_int64),  # this launch
    )


class WaveOrder(Structure):
    """Accesses and observations of a slot's wave, if the launch synchronises."""

    _fields_ = (
        # Nodes: its observations now, at its last invalidate, at its last s_dcache_inv, and at its last invalidate for all devices.
        ("lists", c_int64 * VIEWS),
        ("near_from", c_int64),  # in tgsplit mode, its observations at its last invalidate of the L1 for any scope
        ("dropped", c_int64),  # its observations at an invalidate of the L2 that none of the L1 has followed
        ("issued", c_int64),  # operations of its vector memory queue up to its latest watched store
        ("load_issued", c_int64),  # operations of its queue up to the latest load
        ("epoch", c_int64),  # epoch of its latest access
        ("stored", c_int64),  # epoch of its latest store
        ("loaded", c_int64),  # its loads up to this epoch are certainly complete
        ("complete", c_int64),  # its stores up to this epoch are certainly complete
        # At its last write-back to each level: the epoch, the floor, the operations issued, and 1 if all its stores were complete.
        ("written", c_int64 * LEVELS),
        ("written_issued", c_int64 * LEVELS),
        ("written_floor", c_int64 * LEVELS),
        ("written_settled", c_int64 * LEVELS),
        ("available", c_int64 * LEVELS),  # its accesses up to this epoch were written back to each level
        ("segment", c_int64),  # node of its latest segment
        ("release", c_int64),  # node of its latest release
        ("begun", c_int64),  # node of the release of the atomic that it executes, 0 if it makes none
        ("spare", c_int64),  # node of a release that was taken back
        ("spare_link", c_int64),  # one of its links
        ("arrival", c_int64),  # in tgsplit mode, the release of its arrival at a barrier
        ("grid_barrier", c_int64),  # record of the ds_gws_barrier that it passed after its last s_barrier, 0 if none
        ("released_at", c_int64),  # location of its latest release
        ("scalar_floor", c_int64),  # the floor at its last s_dcache_inv
        ("scalar_epoch", c_int64),  # the epoch before its last s_dcache_inv
        ("acquired", c_int64),  # number of observations
        ("recent", c_int64 * RECENT),  # the latest observations
        ("latest", c_int64),  # its latest observation
        ("explored", c_int64 * VIEWS),  # lists that its tables contain; -1 if a walk gave up
        ("met", c_int64 * VIEWS),  # launches, as bits: its tables contain a release of each
        ("low", c_int64),  # waves of the launch that its tables contain: 1 + the first
        ("high", c_int64),  # the last such wave
        # Other list nodes that it followed, and minus the links up to which it followed chains: a small table for each view.
        ("visited", c_int64 * (VIEWS * VISITED)),
    )


class SlotState(Structure):
    """State of a slot's workgroup."""

    _fields_ = (
        ("clock", c_int64),  # advances at barriers, releases, write-backs and scalar invalidates
        ("floor", c_int64),  # the clock at the last barrier; 0 in tgsplit mode, whose barriers order only complete operations
        ("available_floor", c_int64 * LEVELS),  # everything from before this clock was written back to each level
        ("meet_epoch", c_int64),  # number of the barrier, from 1 on, at which waves arrive or last met
        ("meet_record", c_int64),  # its record
        ("meet_wave", c_int64),  # the wave that arrived first
        ("ended", c_int64),  # waves that had ended when a barrier without them was last reported
        ("locked", c_int64),  # number of locations at which single lanes acquired: possible locks
        ("locks", c_int64 * LOCKS),  # the latest of these locations; those in LDS as `lds.look.unlocks` has them
        ("sides", Classes * (2 * WAVES)),  # for LDS: releases and acquires of each wave
    )


CLOCK, BLOCK, STATE, WAVE_ORDER = (np.dtype(kind) for kind in (RaceClock, RaceBlock, SlotState, WaveOrder))
STATE_BYTES, ORDER_BYTES = sizeof(SlotState), sizeof(WaveOrder)


@part
def block_of(wave: int) -> Any:
    return structure(context(wave, BLOCK_AT), BLOCK)


@part
def state_of(block: Any, slot: int) -> Any:
    return structure(block.states + slot * STATE_BYTES, STATE)


@part
def clock_of(block: Any) -> Any:
    return structure(block.clock, CLOCK)


@part
def order_of(block: Any, slot: int, wave: int) -> Any:
    """Returns the WaveOrder of a wave of a slot, by its number in the workgroup."""
    return structure(block.orders + (slot * block.waves + wave) * ORDER_BYTES, WAVE_ORDER)


@part
def site_of(block: Any, record: int) -> int:
    """Returns the number of a record of this launch, as cells and nodes hold it."""
    return (record + block.first_site) & SITES


@part
def device_of(block: Any, group: int) -> int:
    """Returns 1 + the device of a workgroup, 0 if no other launch runs."""
    if block.devices == 0:
        return 0
    return octets(block.devices + group, 1)[0]


@part
def epoch_now(state: Any) -> int:
    """Returns the epoch of an access of a workgroup now: its clock + 1."""
    return state.clock + 1


@part
def floor_tag(state: Any, group: int) -> int:
    """Returns the tag below which cells of the workgroup are from before its last barrier."""
    return group << GROUP_SHIFT | (state.floor + 1) << EPOCH_SHIFT


@part
def holds(state: Any, location: int) -> bool:
    """True if the workgroup recently acquired at this location: its plain store there counts as an unlock."""
    for at in range(min(LOCKS, state.locked)):
        if state.locks[at] == location:
            return True
    return False


@part
def note_lock(state: Any, location: int) -> None:
    """Records that the workgroup acquired at a location."""
    if not holds(state, location):
        state.locks[state.locked % LOCKS] = location
        state.locked += 1
