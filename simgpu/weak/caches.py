"""Caches of weak mode: the L1 of each CU and the L2 of each XCD as copies of device memory, 64 bytes a line.

A store stays in its CU's L1 until the CU *performs* it, at the latest when a wave of the CU waits: the L1 then acts as the CU's
outstanding stores. On targets whose XCDs have an L2 each, a performed store stays in the L2 until that writes it back, unless the
store's scope reaches further. On other targets the L2 is the device's memory. Before memory changes, caches without a copy may keep
the old bytes, as if they had loaded them just before.

If several devices share memory, the caches of a kernel have one L2, which acts as the device's. It passes accesses of system
scope, and holds old copies when the kernel begins.
"""

from __future__ import annotations

from ctypes import Structure, c_int64, sizeof
from typing import Any

import numpy as np

from simgpu.hardware.memory_model import Scope
from simgpu.machine.runtime import address_of, cold_part, copy, draw, load8, load32, part, records, store8, store32, structure

LINE_SHIFT = 6
LINE_DATA = 1 << LINE_SHIFT
PENDING = 256  # most dirty lines of a cache


class CacheLine(Structure):
    """A line. Masks have a bit for each of its bytes."""

    _fields_ = (
        ("number", c_int64),  # device address >> LINE_SHIFT; 0 for an empty line
        ("host", c_int64),  # host address of its first byte
        ("valid", c_int64),  # bytes that it holds
        ("dirty", c_int64),  # valid bytes that were stored and not yet passed on
        ("far", c_int64),  # dirty bytes whose store passes the L2
        ("age", c_int64),  # the cache's age when `valid` was last updated
        ("spare", c_int64 * 2),
        ("data", c_int64 * (LINE_DATA // 8)),
    )


class DirectMappedCache(Structure):
    """A direct-mapped cache."""

    _fields_ = (
        ("lines", c_int64),  # address of its lines
        ("mask", c_int64),  # number of lines - 1
        ("age", c_int64),  # number of invalidates so far
        ("pending", c_int64),  # number of lines with dirty bytes
        ("listed", c_int64 * PENDING),  # their addresses
        ("owed", c_int64),  # of a CU: 1 after a write-back of the L2 that no wave has waited for
        ("late", c_int64),  # of a CU: lines of loads that may take effect late, a bit for each hash (`late`)
        ("fixed", c_int64),  # of a CU: number of times that all its late loads took effect
    )


class SharedMemory(Structure):
    """An allocation that several devices may access: what one of them holds of it when its kernel begins."""

    _fields_ = (
        ("base", c_int64),  # device address
        ("size", c_int64),  # bytes
        ("old", c_int64),  # address of a copy minus `base`
        ("seen", c_int64),  # address of a byte for each line: 1 once the kernel accessed memory there
        ("fine", c_int64),  # 1 for fine-grained memory, which no cache between devices holds
    )


class WeakBlock(Structure):
    """Memory of weak mode, as handlers find it. A chance of n is 1 in 2^n."""

    _fields_ = (
        ("near", c_int64),  # address of the L1s, a `DirectMappedCache` each
        ("cus", c_int64),  # the number of L1s
        ("far", c_int64),  # address of the L2s
        ("dies", c_int64),  # the number of L2s; 0 if the L2 is the device's memory
        ("share", c_int64),  # L1s of a die
        ("random", c_int64),  # address of the generator's state
        ("private", c_int64),  # device address of private memory, which no other wave touches
        ("late", c_int64),  # address of a `late.LateLoads` for each wave
        ("grid", c_int64 * 2),  # workgroups in x and y
        ("lose", c_int64),  # chance that a cache loses a clean line at a hit
        ("keep", c_int64),  # chance that a cache keeps an old copy when memory changes
        ("perform", c_int64),  # chance that a CU performs a store at once
        ("write_back", c_int64),  # chance that an L2 writes a performed store back at once
        ("advance", c_int64),  # chance that one of the stores left is performed or written back, at each access
        ("postpone", c_int64),  # chance that a load may take effect late
        ("pause", c_int64),  # chance that another wave runs after an access
        ("reach", c_int64),  # the narrowest scope whose accesses pass the L2s
        ("pass_l1", c_int64),  # the narrowest scope whose loads pass the L1
        ("split", c_int64),  # 1 in tgsplit mode: each wave of a workgroup on the next CU of its XCD
        ("shared", c_int64),  # address of a `SharedMemory` for each allocation, if several devices have it
        ("count", c_int64),  # their number
        ("begun", c_int64),  # 1 until the kernel drops what the L2 held at its begin
        ("alike", c_int64),  # 1 if all stores look alike: before gfx942
        ("value", c_int64 * 2),  # bytes of a lane
    )


LINE, CACHE, BLOCK, SHARED = np.dtype(CacheLine), np.dtype(DirectMappedCache), np.dtype(WeakBlock), np.dtype(SharedMemory)
LINE_BYTES, CACHE_BYTES = sizeof(CacheLine), sizeof(DirectMappedCache)
SYSTEM = int(Scope.SYSTEM)


@part
def chance(block: Any, power: int) -> bool:
    """Returns True once in 2^power."""
    return draw(block.random) & (1 << power) - 1 == 0


@part
def l1_of(block: Any, cu: int) -> Any:
    """Returns the L1 of a CU."""
    return structure(block.near + CACHE_BYTES * cu, CACHE)


@part
def l2_of(block: Any, cu: int) -> Any:
    """Returns the L2 of a CU's XCD."""
    return structure(block.far + CACHE_BYTES * (cu // block.share), CACHE)


@part
def data_of(line: Any) -> int:
    """Returns the address of a line's bytes."""
    return address_of(line.data)


@part
def find_line(cache: Any, number: int) -> Any:
    """Returns the only place where a cache may hold a line, without the bytes that its last invalidate dropped."""
    line = structure(cache.lines + LINE_BYTES * (number * 0x9E3779B1 >> 16 & cache.mask), LINE)
    if line.age != cache.age:
        line.valid = line.dirty
        line.age = cache.age
    return line


@part
def is_held(line: Any, number: int, host: int) -> bool:
    """True if the place holds the line. host: address of its first byte; allocations may share a line but not its bytes."""
    return line.number == number and line.host == host


@part
def copy_bytes(target: int, source: int, mask: int) -> None:
    """Copies the bytes of a mask between lines."""
    if mask == -1:
        copy(target, source, LINE_DATA)
        return
    for at in range(0, LINE_DATA, 4):
        bits = mask >> at & 15
        if bits == 15:
            store32(target + at, load32(source + at))
        elif bits:
            for byte in range(4):
                if bits >> byte & 1:
                    store8(target + at + byte, load8(source + at + byte))


@part
def list_line(cache: Any, line: Any) -> None:
    """Adds a line to those with dirty bytes; there is room."""
    cache.listed[cache.pending] = address_of(line)
    cache.pending += 1


@part
def strike_line(cache: Any, line: Any) -> None:
    """Removes a line from those with dirty bytes."""
    for at in range(cache.pending):
        if cache.listed[at] == address_of(line):
            cache.pending -= 1
            cache.listed[at] = cache.listed[cache.pending]
            break
    line.dirty = 0


@part
def any_pending(block: Any, cache: Any) -> Any:
    """Returns one of the lines with dirty bytes; there are some."""
    return structure(cache.listed[draw(block.random) % cache.pending], LINE)


@cold_part
def keep_old(block: Any, cache: Any, number: int, host: int, source: int, mask: int) -> None:
    """Lets a cache keep bytes that are about to change, unless it has a copy or its place holds stores. source: their line."""
    line = find_line(cache, number)
    if not is_held(line, number, host):
        if line.dirty:
            return
        line.number, line.host, line.valid = number, host, 0
    copy_bytes(data_of(line), source, mask & ~line.valid)
    line.valid |= mask


@cold_part
def shared_at(block: Any, address: int) -> int:
    """Returns the number of the allocation at an address among allocations that several devices have, -1 if it is none."""
    for number in range(block.count):
        held = structure(block.shared + SHARED.itemsize * number, SHARED)
        if address >= held.base and address < held.base + held.size:
            return number
    return -1


@cold_part
def take_old(block: Any, address: int, size: int, level: int, target: int) -> None:
    """Replaces bytes of one line, read from memory, by bytes that the device's L2 may have held since the kernel began."""
    number = shared_at(block, address)
    if number < 0:
        return
    held = structure(block.shared + SHARED.itemsize * number, SHARED)
    mark = held.seen + (address - held.base >> LINE_SHIFT)
    if level < block.reach and block.begun and load8(mark) == 0 and chance(block, block.keep):
        copy(target, held.old + address, size)
    else:
        store8(mark, 1)


@cold_part
def mark_seen(block: Any, number: int) -> None:
    """Records that the kernel accessed the memory of a line."""
    at = shared_at(block, number << LINE_SHIFT)
    if at >= 0:
        held = structure(block.shared + SHARED.itemsize * at, SHARED)
        store8(held.seen + ((number << LINE_SHIFT) - held.base >> LINE_SHIFT), 1)


@cold_part
def write_memory(block: Any, cu: int, number: int, host: int, source: int, mask: int) -> None:
    """Writes bytes of a line to memory. cu: the CU, or any of the XCD, that writes them."""
    if block.dies:
        for die in range(block.dies):
            if die != cu // block.share and chance(block, block.keep):
                keep_old(block, structure(block.far + CACHE_BYTES * die, CACHE), number, host, host, mask)
        if block.split:  # a wave that invalidates the L2 has no effect on the L1s of its workgroup's other CUs
            for other in range(block.cus):
                if other // block.share != cu // block.share and chance(block, block.keep):
                    keep_old(block, l1_of(block, other), number, host, host, mask)
    else:
        for other in range(block.cus):
            if other != cu and chance(block, block.keep):
                keep_old(block, l1_of(block, other), number, host, host, mask)
    copy_bytes(host, source, mask)
    if block.count:
        mark_seen(block, number)


@cold_part
def write_back(block: Any, cu: int, line: Any) -> None:
    """Writes the dirty bytes of a line of the L2 of a CU's XCD to memory."""
    mask = line.dirty
    strike_line(l2_of(block, cu), line)
    write_memory(block, cu, line.number, line.host, data_of(line), mask)


@cold_part
def take_l2_line(block: Any, cu: int, number: int, host: int) -> Any:
    """Returns a line of the L2 of a CU's XCD, after the line that had its place is written back."""
    line = find_line(l2_of(block, cu), number)
    if not is_held(line, number, host):
        if line.dirty:
            write_back(block, cu, line)
        line.number, line.host, line.valid = number, host, 0
    return line


@cold_part
def perform(block: Any, cu: int, line: Any) -> None:
    """Performs the stores of a line of a CU's L1: the XCD, or the device, now sees them."""
    number, host, mask, data = line.number, line.host, line.dirty, data_of(line)
    strike_line(l1_of(block, cu), line)
    if block.dies == 0:
        write_memory(block, cu, number, host, data, mask)
        return
    cache, far = l2_of(block, cu), mask & line.far
    hold = take_l2_line(block, cu, number, host)
    first = cu // block.share * block.share
    for other in range(first, first + block.share):
        if other != cu and chance(block, block.keep):
            keep_old(block, l1_of(block, other), number, host, data_of(hold), mask & hold.valid)
            keep_old(block, l1_of(block, other), number, host, host, mask & ~hold.valid)
    if hold.dirty & far:
        write_back(block, cu, hold)
    copy_bytes(data_of(hold), data, mask)
    hold.valid |= mask
    if far:
        write_memory(block, cu, number, host, data, far)
    if mask & ~far and chance(block, block.write_back):
        write_memory(block, cu, number, host, data, mask & ~far)
        if hold.dirty:
            hold.dirty &= ~mask
            if hold.dirty == 0:
                strike_line(cache, hold)
    elif mask & ~far:
        if hold.dirty == 0:
            if cache.pending == PENDING:
                write_back(block, cu, any_pending(block, cache))
            list_line(cache, hold)
        hold.dirty |= mask & ~far


@cold_part
def take_l1_line(block: Any, cu: int, number: int, host: int) -> Any:
    """Returns a line of a CU's L1, after the stores of the line that had its place are performed."""
    line = find_line(l1_of(block, cu), number)
    if not is_held(line, number, host):
        if line.dirty:
            perform(block, cu, line)
        line.number, line.host, line.valid = number, host, 0
    return line


@cold_part
def settle_stores(block: Any, cu: int) -> None:
    """Performs all stores of a CU, and the write-back that it owes."""
    cache = l1_of(block, cu)
    while cache.pending:
        perform(block, cu, any_pending(block, cache))
    if cache.owed and block.dies:
        far = l2_of(block, cu)
        while far.pending:
            write_back(block, cu, any_pending(block, far))
    cache.owed = 0


@cold_part
def advance(block: Any, cu: int) -> None:
    """Performs or writes back some stores, as chance has it: of a CU and of any other, of their XCDs."""
    others = records(block.near, block.cus, CACHE)
    for turn in range(2):
        at = cu if turn == 0 else draw(block.random) % block.cus
        cache = others[at]
        while cache.pending and chance(block, block.advance):
            perform(block, at, any_pending(block, cache))
        if cache.owed and chance(block, block.advance):
            settle_stores(block, at)
        if block.dies:
            far = l2_of(block, at)
            while far.pending and chance(block, block.advance):
                write_back(block, at, any_pending(block, far))
