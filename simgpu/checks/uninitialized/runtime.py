"""Functions that handlers call for undefined operands: demands on registers, and changes of their flags.

A demand is made where undefined bits matter. It reports the first register that has any, and then marks the bits as defined, so
that one mistake is one finding.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from simgpu.checks.uninitialized.shadow_layout import DEFINED, DELTA, FLAGS, MIXED, ORIGINS, REGISTERS, UNDEFINED
from simgpu.engine.events import enter, event
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.runtime import fill, load8, load32, part, runtime, store8, store32, words


class UndefinedUse(IntEnum):
    """Places where undefined bits matter."""

    ADDRESS = event("undefined address")
    BRANCH = event("undefined branch")
    EXEC = event("undefined exec")
    STORE = event("undefined store")  # of a register's bits
    MEMORY = event("undefined memory")  # of an atomic's old value, or of LDS
    MATRIX = event("undefined matrix")


# Bits of a report's `extra` above the register's byte offset in the wave.
ROLE_SHIFT = 20  # index into `matrix.ROLES`
NEVER = 1 << 24  # nothing wrote the register
PARTIAL = 1 << 25  # some bits of the operand are defined
ORIGIN_SHIFT = 32  # see `origins`
_OFFSET = (1 << ROLE_SHIFT) - 1


@part
def _scalar(wave: int, offset: int, bits: int) -> int:
    """Returns those of `bits` that are undefined in a scalar dword. If there are any, marks the whole dword as defined."""
    place = wave + DELTA + offset
    found = load32(place) & bits & 0xFFFFFFFF
    if found:
        store32(place, 0)
    return found


@part
def _row(wave: int, offset: int, lanes: int, bits: int, masks: int) -> tuple[int, int, int]:
    """Returns a vector register's lanes with undefined bits that count, those bits in the first such lane, and the old flag.

    Marks these lanes as defined.
    """
    flag = wave + FLAGS + (offset - layout.VGPR) // layout.ROW
    state = load8(flag)
    if state == DEFINED:
        return 0, 0, state
    row = wave + DELTA + offset
    if state == UNDEFINED:
        fill(row, layout.ROW, 0xFF)
        store8(flag, MIXED)
    found, first, left = 0, 0, 0
    for lane in range(layout.LANES):
        place = row + 4 * lane
        undefined = load32(place) & 0xFFFFFFFF
        wanted = load32(masks + 4 * lane) if masks else bits
        if undefined & wanted and lanes >> lane & 1:
            first = first if found else undefined & wanted
            found |= 1 << lane
            store32(place, 0)
        else:
            left |= undefined
    if left == 0:
        store8(flag, DEFINED)
    return found, first, state


@part
def _origin(wave: int, offset: int) -> int:
    """Returns the origin of a register's undefined bits. offset: of the register, in bytes of the wave's state."""
    if offset < layout.VGPR:
        return load32(wave + ORIGINS + 4 * REGISTERS + offset)
    return load32(wave + ORIGINS + 4 * ((offset - layout.VGPR) // layout.ROW))


@runtime
def _demand(wave: int, record: int, code: int, offset: int, registers: int, lanes: int, bits: int, masks: int) -> int:
    """Reports undefined bits of `registers` registers that begin at a byte of the wave. Returns nonzero if there were any.

    offset: that byte, | role << ROLE_SHIFT. lanes: the lanes that count (vector registers). bits: the bits of each that count.
    masks: if not 0, address of u32[registers][64] to use instead of `bits`.
    """
    role, partial = offset >> ROLE_SHIFT, 0
    offset &= _OFFSET
    size = 4 if offset < layout.VGPR else layout.ROW
    worst, where, extra, first = 0, 0, 0, 0
    for number in range(registers):
        at = offset + number * size
        if size == 4:
            found, lost, state = 0, _scalar(wave, at, bits), MIXED
        else:
            found, lost, state = _row(wave, at, lanes, bits, masks + 256 * number if masks else 0)
        if lost and not first:
            worst, where, first = found, at, lost
            extra = NEVER if state == UNDEFINED else 0
        if not lost or lost != bits:
            partial = PARTIAL
    if first:
        origin = 0 if extra else _origin(wave, where)
        extra |= where | partial | role << ROLE_SHIFT | origin << ORIGIN_SHIFT
        enter(wave, record, code, worst, first, extra)
    return first


@runtime
def define(wave: int, offset: int, registers: int) -> None:
    """Marks vector registers from byte `offset` of the wave as wholly defined."""
    fill(wave + FLAGS + (offset - layout.VGPR) // layout.ROW, registers, DEFINED)
    fill(wave + DELTA + offset, layout.ROW * registers, 0)


@part
def _flag(wave: int, row: int) -> int:
    """Returns the address of the flag of the register with a shadow row, 0 for a scalar register. row: host address."""
    number = row - (wave + DELTA + layout.VGPR)
    return wave + FLAGS + number // layout.ROW if number >= 0 else 0


@runtime
def fill_row(wave: int, row: int) -> None:
    """Fills the shadow row of a vector register with ones if its flag is UNDEFINED, and sets the flag to MIXED."""
    flag = _flag(wave, row)
    if flag and load8(flag) == UNDEFINED:
        fill(row, layout.ROW, 0xFF)
        store8(flag, MIXED)


@runtime
def settle_memory(data: int, shadow: int, nbytes: int, entry: int) -> None:
    """Marks dwords of device memory as defined that the host stored without a call.

    data, shadow: host addresses of the bytes and of their undefined bits. entry: address of the allocation's entry. Kernels
    define what they store, so an undefined byte holds its part of the allocation's fill, or the host stored it.
    """
    held = load32(entry + layout.ALLOC_FILL)
    if held:
        delta, place = shadow - data, data & -4
        while place < data + nbytes:
            undefined = load32(place + delta)
            if undefined and (load32(place) ^ held) & undefined & 0xFFFFFFFF:
                store32(place + delta, 0)
            place += 4


@runtime
def settle_row(wave: int, row: int) -> None:
    """Sets a vector register's flag by the contents of its shadow row."""
    flag, undefined = _flag(wave, row), 0
    if flag:
        for word in words(row, layout.ROW // 8):
            undefined |= word
        store8(flag, MIXED if undefined else DEFINED)


def demand(
    frame: Frame, record: Any, code: int, offset: Any, registers: int, lanes: Any, bits: int = 0xFFFFFFFF, masks: Any = 0
) -> Any:
    """Emits a call of `_demand`. offset: i64."""
    return _demand.call(frame.build, frame.wave, record, int(code), offset, registers, lanes, bits, masks)
