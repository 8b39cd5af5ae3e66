"""Accesses to device memory through the caches of weak mode, called by handlers.

Arguments: base and delta of the allocation (its device address; host address minus device address), the mask of lanes, bytes a
lane, and the access's scope. The lanes' offsets in the allocation are in the wave.
"""

from __future__ import annotations

from typing import Any

from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context, slot_of
from simgpu.hardware.memory_model import Scope
from simgpu.machine import layout
from simgpu.machine.layout import LANES
from simgpu.machine.runtime import address_of, cold_part, copy, load8, load32, part, records, runtime, store8, structure, words
from simgpu.weak.caches import (  # fmt: skip
    BLOCK,
    LINE_DATA,
    LINE_SHIFT,
    PENDING,
    SHARED,
    SYSTEM,
    advance,
    any_pending,
    chance,
    data_of,
    find_line,
    is_held,
    l1_of,
    l2_of,
    list_line,
    mark_seen,
    perform,
    settle_stores,
    shared_at,
    take_l1_line,
    take_l2_line,
    take_old,
    write_back,
)
from simgpu.weak.late import DEEP, LATE, fix_loads, fix_same_lines, late_of, line_bit, note_late, put_in_rows

(AT,) = context_fields("weak", 1)  # address of the worker's `WeakBlock`
AGENT = int(Scope.AGENT)


@part
def block_of(wave: int) -> Any:
    """Returns the worker's block."""
    return structure(context(wave, AT), BLOCK)


@part
def cu_of(block: Any, wave: int) -> int:
    """Returns the CU of a wave: workgroups are dealt to XCDs in turn, and to the CUs of each in turn. In tgsplit mode their waves
    are dealt to the CUs of the XCD."""
    group = slot_of(wave).group
    number = group[0] + block.grid[0] * (group[1] + block.grid[1] * group[2])
    dies = max(block.dies, 1)
    next_cu = load32(wave + layout.WAVE_ID) if block.split else 0
    return number % dies * block.share + (number // dies + next_cu) % block.share


# -- loads -----------------------------------------------------------------------------------------------


@part
def level_of(block: Any, base: int, level: int) -> int:
    """Returns the scope that an access serves, if several devices may have its memory."""
    if block.count == 0:
        return level
    at = shared_at(block, base)
    if at < 0:
        return level
    if structure(block.shared + SHARED.itemsize * at, SHARED).fine:
        return SYSTEM if level >= AGENT else level
    return min(level, AGENT) if block.alike else level


@cold_part
def load_past_l1(block: Any, cu: int, address: int, host: int, size: int, level: int, target: int) -> None:
    """Loads bytes of one line from the L2 or memory, and fills the caches that the load goes through."""
    number, at = address >> LINE_SHIFT, address & LINE_DATA - 1
    mask = (1 << size) - 1 << at
    copy(target, host, size)
    if block.count:
        take_old(block, address, size, level, target)
    if block.dies:
        hold = find_line(l2_of(block, cu), number)
        if is_held(hold, number, host - at):
            whole = hold.valid & mask == mask and (level < block.reach or hold.dirty & mask == mask)
            if whole and (hold.dirty & mask == mask or not chance(block, block.lose)):
                copy(target, data_of(hold) + at, size)
            else:
                for byte in range(size):
                    if hold.dirty >> at + byte & 1:
                        store8(target + byte, load8(data_of(hold) + at + byte))
                hold.valid &= ~mask | hold.dirty
    if level >= block.reach:
        return
    if block.dies:
        hold = take_l2_line(block, cu, number, host - at)
        copy(data_of(hold) + at, target, size)
        hold.valid |= mask
    if level >= block.pass_l1:
        return
    line = take_l1_line(block, cu, number, host - at)
    copy(data_of(line) + at, target, size)
    line.valid |= mask


@part
def load_piece(block: Any, cu: int, address: int, host: int, size: int, level: int, target: int) -> None:
    """Loads bytes of one line to `target`."""
    number, at = address >> LINE_SHIFT, address & LINE_DATA - 1
    mask = (1 << size) - 1 << at
    line = find_line(l1_of(block, cu), number)
    if is_held(line, number, host - at):
        if line.dirty & mask:
            perform(block, cu, line)
        if level < block.pass_l1 and line.valid & mask == mask and not chance(block, block.lose):
            copy(target, data_of(line) + at, size)
            return
        line.valid &= ~mask | line.dirty
    load_past_l1(block, cu, address, host, size, level, target)


@part
def load_value(block: Any, cu: int, address: int, host: int, size: int, level: int, target: int) -> None:
    """Loads the bytes of a lane to `target`."""
    if (address & LINE_DATA - 1) + size <= LINE_DATA:
        load_piece(block, cu, address, host, size, level, target)
        return
    for byte in range(size):
        load_piece(block, cu, address + byte, host + byte, 1, level, target + byte)


@runtime
def load(wave: int, base: int, delta: int, lanes: int, size: int, level: int, target: int) -> None:
    """Loads the lanes' bytes to staging. target: address of their registers, 0 if the load cannot take effect late."""
    block, offsets, stage = block_of(wave), words(wave + layout.ADDRESSES, LANES), wave + layout.STAGING
    cu, value, lines, level = cu_of(block, wave), address_of(block.value), 0, level_of(block, base, level)
    for lane in range(LANES):
        if lanes >> lane & 1:
            address = base + offsets[lane]
            if base == block.private:
                copy(value, address + delta, size)
            else:
                load_value(block, cu, address, address + delta, size, level, value)
                lines |= line_bit(address) | line_bit(address + size - 1)
            if size <= 4:
                copy(stage + size * lane, value, size)
            else:
                put_in_rows(stage, lane, value, size)
    cache = l1_of(block, cu)
    fix_same_lines(cache, lines)
    if target and lines and note_late(block, cache, wave, base, delta, lanes, size, level, target):
        cache.late |= lines


@part
def settle_loads(block: Any, cu: int, wave: int) -> None:
    """Lets some of a wave's late loads take effect now, the others when they were issued."""
    cache, mine = l1_of(block, cu), late_of(block, wave)
    if mine.fixed == cache.fixed:
        loads = records(address_of(mine.loads), DEEP, LATE)
        for number in range(mine.count):
            load = loads[number]
            if chance(block, 1):
                for lane in range(LANES):
                    if load.lanes >> lane & 1:
                        address, value = load.base + load.offsets[lane], address_of(block.value)
                        load_value(block, cu, address, address + load.delta, load.size, load.level, value)
                        put_in_rows(load.target, lane, value, load.size)
    mine.count = 0
    fix_loads(cache)


# -- stores ----------------------------------------------------------------------------------------------


@part
def store_piece(block: Any, cu: int, address: int, host: int, size: int, level: int, source: int) -> None:
    """Stores bytes of one line to the CU's L1, to be performed later."""
    number, at = address >> LINE_SHIFT, address & LINE_DATA - 1
    mask, cache = (1 << size) - 1 << at, l1_of(block, cu)
    line = take_l1_line(block, cu, number, host - at)
    if line.dirty == 0:
        if cache.pending == PENDING:
            perform(block, cu, any_pending(block, cache))
        list_line(cache, line)
    copy(data_of(line) + at, source, size)
    line.valid |= mask
    line.dirty |= mask
    line.far = line.far & ~mask | (mask if level >= block.reach else 0)


@runtime
def store(wave: int, base: int, delta: int, lanes: int, size: int, level: int) -> None:
    """Stores the lanes' staged bytes, in order of the lanes."""
    block, offsets, stage = block_of(wave), words(wave + layout.ADDRESSES, LANES), wave + layout.STAGING
    cu, lines, now, level = cu_of(block, wave), 0, chance(block, block.perform), level_of(block, base, level)
    for lane in range(LANES):
        if lanes >> lane & 1:
            address, source = base + offsets[lane], stage + size * lane
            if base == block.private:
                copy(address + delta, source, size)
            elif (address & LINE_DATA - 1) + size <= LINE_DATA:
                store_piece(block, cu, address, address + delta, size, level, source)
            else:
                for byte in range(size):
                    store_piece(block, cu, address + byte, address + byte + delta, 1, level, source + byte)
            lines |= line_bit(address) | line_bit(address + size - 1)
    if base == block.private:
        return
    fix_same_lines(l1_of(block, cu), lines)
    for lane in range(LANES):
        if now and lanes >> lane & 1:
            line = find_line(l1_of(block, cu), base + offsets[lane] >> LINE_SHIFT)
            if line.dirty:
                perform(block, cu, line)


# -- accesses to memory itself -----------------------------------------------------------------------------


@part
def pass_caches(block: Any, cu: int, address: int, host: int) -> None:
    """Empties the lines of a byte in the caches of a CU, so that an access to memory itself follows the CU's earlier ones."""
    number, first = address >> LINE_SHIFT, host - (address & LINE_DATA - 1)
    line = find_line(l1_of(block, cu), number)
    if is_held(line, number, first):
        if line.dirty:
            perform(block, cu, line)
        line.valid = 0
    if block.dies:
        hold = find_line(l2_of(block, cu), number)
        if is_held(hold, number, first):
            if hold.dirty:
                write_back(block, cu, hold)
            hold.valid = 0
    if block.count:
        mark_seen(block, number)


@runtime
def reach_memory(wave: int, base: int, delta: int, lanes: int, size: int) -> None:
    """Prepares an atomic of some lanes, which memory itself does."""
    block, offsets, lines = block_of(wave), words(wave + layout.ADDRESSES, LANES), 0
    cu = cu_of(block, wave)
    for lane in range(LANES):
        if lanes >> lane & 1 and base != block.private:
            address = base + offsets[lane]
            pass_caches(block, cu, address, address + delta)
            lines |= line_bit(address)
    fix_same_lines(l1_of(block, cu), lines)


@runtime
def reach_scalar(wave: int, base: int, delta: int, offset: int, size: int) -> None:
    """Prepares a scalar access, which goes to memory itself."""
    block, lines = block_of(wave), 0
    cu = cu_of(block, wave)
    for at in range(0, size, 4):
        address = base + offset + at
        pass_caches(block, cu, address, address + delta)
        lines |= line_bit(address)
    fix_same_lines(l1_of(block, cu), lines)


# -- waits, cache operations, turns ------------------------------------------------------------------------


@runtime
def wait(wave: int) -> None:
    """Completes the accesses of a wave that waits for any of them, and the stores of its CU."""
    block = block_of(wave)
    cu = cu_of(block, wave)
    settle_loads(block, cu, wave)
    settle_stores(block, cu)


@runtime
def fix(wave: int) -> None:
    """Makes the late loads of a wave's CU keep their values, at a barrier or the wave's end."""
    block = block_of(wave)
    fix_loads(l1_of(block, cu_of(block, wave)))


@runtime
def owe_write_back(wave: int, scope: int) -> None:
    """Begins a write-back of the L2 for a scope, which ends before the wave's wait for it does."""
    block = block_of(wave)
    if scope >= block.reach:
        l1_of(block, cu_of(block, wave)).owed = 1


@runtime
def invalidate(wave: int, l1: int, scope: int) -> None:
    """Drops clean bytes for a scope from the L2 of the wave's XCD and, if `l1`, from its L1."""
    block = block_of(wave)
    cu = cu_of(block, wave)
    if scope >= block.pass_l1:
        l1_of(block, cu).age += l1
    if block.dies and scope >= block.reach:
        l2_of(block, cu).age += 1
        block.begun = 0


@runtime
def pause_before(wave: int) -> int:
    """Returns 1 if another wave runs before an access, which then asks again."""
    block = block_of(wave)
    mine = late_of(block, wave)
    mine.paused = 1 if mine.paused == 0 and chance(block, block.pause) else 0
    return mine.paused


@runtime
def pause_after(wave: int) -> int:
    """Lets stores advance after an access. Returns 1 if another wave runs next."""
    block = block_of(wave)
    advance(block, cu_of(block, wave))
    return 1 if chance(block, block.pause) else 0


@runtime
def flush(block_at: int) -> None:
    """Writes all stores to memory, at a launch's end."""
    block = structure(block_at, BLOCK)
    for cu in range(block.cus):
        l1_of(block, cu).owed = 1
        settle_stores(block, cu)
