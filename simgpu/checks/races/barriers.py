"""Effects of a barrier and a wave's end on shadow cells and clocks; called by checked handlers."""

from __future__ import annotations

from typing import Any

from simgpu.checks.races import cells as c
from simgpu.checks.races.accesses import group_of
from simgpu.checks.races.lds.look import carry, forget_lds
from simgpu.checks.races.order import BARRIERS, STATE_BYTES, block_of, clock_of, order_of, state_of
from simgpu.checks.races.pending import forget_pending
from simgpu.checks.races.releases import arrive, forget_order, meet, meet_apart, observe_grid, release_to_grid
from simgpu.checks.races.skips import note_skips
from simgpu.engine.events import enter, event
from simgpu.engine.workgroup import number_of, slot_of, waves_of
from simgpu.machine import layout
from simgpu.machine.runtime import clear, cold_part, load32, part, runtime, store32

BARRIER = event("barrier")  # `extra`: the other barrier's record, if any, and above it one of these
ELSEWHERE, ENDED = range(2)


@part
def pass_barrier(wave: int, block: Any, slot: int, state: Any) -> None:
    """Updates shadow and clock when all waves are at the barrier or have ended."""
    forget_lds(block, slot, waves_of(wave))
    state.clock += 1
    if block.split:
        meet_apart(block, slot, (group_of(wave, block) & c.GROUPS) * block.stride)
        return
    state.floor = state.clock
    if block.synchronises:
        meet(block, slot, state)


@cold_part
def miss(wave: int, record: int, block: Any, state: Any, ended: int) -> None:
    """Reports a barrier that some waves never reach, because they ended. The later barriers without them have the same cause."""
    if ended != state.ended:
        state.ended = ended
        clock_of(block).missed = 1
        enter(wave, record, BARRIER, 0, 0, ENDED << c.SITE_BITS)


@runtime
def barrier(wave: int, record: int) -> None:
    """Handles a wave's arrival at the barrier of a record. Reports waves that are at another barrier or have ended."""
    block = block_of(wave)
    note_skips(wave, record)
    slot = number_of(wave)
    state = state_of(block, slot)
    passed = load32(wave + BARRIERS)
    store32(wave + BARRIERS, passed + 1)
    group = slot_of(wave)
    if block.synchronises:
        me = load32(wave + layout.WAVE_ID)
        observe_grid(block, order_of(block, slot, me), (group_of(wave, block) & c.GROUPS) * block.stride + me)
    if group.left < group.waves:
        miss(wave, record, block, state, group.waves - group.left)
    if state.meet_epoch == passed + 1 and group.waiting:
        there = state.meet_record
        if there != record:
            other = state.meet_wave
            enter(wave, record, BARRIER, 0, other, ELSEWHERE << c.SITE_BITS | there)
    else:
        state.meet_epoch = passed + 1
        state.meet_record = record
        state.meet_wave = load32(wave + layout.WAVE_ID)
    carry(wave, block, slot, False)
    if block.split:
        me = load32(wave + layout.WAVE_ID)
        arrive(wave, block, slot, state, me, record, (group_of(wave, block) & c.GROUPS) * block.stride + me)
    if group.waiting + 1 == group.left:
        pass_barrier(wave, block, slot, state)


@runtime
def arrive_at_grid(wave: int, record: int) -> None:
    """Handles a wave's arrival at ds_gws_barrier: it releases what its workgroup did before the last s_barrier."""
    block, slot, me = block_of(wave), number_of(wave), load32(wave + layout.WAVE_ID)
    if block.synchronises:
        order, who = order_of(block, slot, me), (group_of(wave, block) & c.GROUPS) * block.stride + me
        release_to_grid(wave, block, state_of(block, slot), order, who, record)


@runtime
def end(wave: int, record: int) -> None:
    """Handles a wave's end. Reports the barrier at which others wait for it. The last wave clears the slot's state."""
    block = block_of(wave)
    slot = number_of(wave)
    state = state_of(block, slot)
    group = slot_of(wave)
    if group.waiting:
        miss(wave, state.meet_record, block, state, group.waves - group.left + 1)
    carry(wave, block, slot, True)
    if group.waiting + 1 == group.left:
        pass_barrier(wave, block, slot, state)
    if block.loads:
        forget_pending(wave, block, slot)
    if group.left == 1:
        if block.synchronises:
            forget_order(block, slot)
        clear(block.states + slot * STATE_BYTES, STATE_BYTES)
