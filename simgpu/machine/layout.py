"""Byte layout of a wave's state and of an instruction's record.

A wave is one block of host memory. Its first 512 bytes are the scalar file, numbered as the encodings number scalar
operands (s0 at 0, VCC at 106·4, M0 at 124·4, EXEC at 126·4). So a scalar operand's address is its encoding times 4.
Vector registers are rows of 64 lanes x 4 bytes.

An instruction is one 64-byte record: its handler's address, then 32-bit slots with the handler's data (byte offsets of
operands into the wave, immediates). There is a record for each dword of code, so a record's index is its code offset / 4
and any jump target has one.
"""

from __future__ import annotations

from ctypes import Structure, alignment, c_int32, c_int64, c_uint32, c_uint64, sizeof
from enum import IntEnum
from typing import Any

LANES = 64
GROUP = 16  # lanes that a loop over lanes takes at a time: their dwords are a register of AVX-512
ROW = 4 * LANES  # bytes of one vector register


class Fields:
    """Fields of a structure in memory, consecutive and aligned as in C."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Any]] = []
        self._end = 0

    def add(self, name: str, kind: Any) -> int:
        """Adds a field; returns its offset in bytes."""
        self.all.append((name, kind))
        first = -(-self._end // alignment(kind)) * alignment(kind)
        self._end = first + sizeof(kind)
        return first


# Wave state, byte offsets.
_wave = Fields()
SGPR = _wave.add("sgprs", c_uint32 * 128)
SCC = _wave.add("scc", c_uint32)  # 0 or 1
MODE = _wave.add("mode", c_uint32)  # the MODE register
STATUS = _wave.add("status", c_int32)  # reason of the wave's return to the scheduler (`Status`)
ENTRY = _wave.add("entry", c_int32)  # record at which the current straight-line code began
BUDGET = _wave.add("budget", c_int64)  # record steps left until the wave returns to the scheduler
RESUME = _wave.add("resume", c_int32)  # record index to resume at
WAVE_ID = _wave.add("wave_id", c_uint32)  # wave within its workgroup
CONTEXT = _wave.add("context", c_uint64)  # address of the worker's context (Context offsets below)
LDS_BASE = _wave.add("lds_base", c_uint64)  # host address of the workgroup's LDS
LDS_SIZE = _wave.add("lds_size", c_uint64)  # bytes
RECORDS = _wave.add("records", c_uint64)  # address of the records of the wave's MODE
SCRATCH_SIZE = _wave.add("scratch_size", c_uint64)  # bytes a lane
FAULT_ADDRESS = _wave.add("fault_address", c_uint64)
FAULT_LANE = _wave.add("fault_lane", c_int32)
FAULT_KIND = _wave.add("fault_kind", c_int32)  # (Fault)
HW_ID = _wave.add("hw_id", c_uint32)  # index of the wave in its worker, also for s_getreg
FINGERPRINTS = _wave.add("fingerprints", c_uint64 * 2)  # of its scalar and vector registers as a slice ended (`scheduler_loop`)
ATOMICS = _wave.add("atomics", c_int64)  # atomics that returned a value since a whole slice ended
ELEMENT_WORDS = 8
HOLDS_ELEMENTS = _wave.add("holds_elements", c_uint64)  # 1 if a register holds elements of a ring (`matrix.element_registers`)
ELEMENT_BITS = _wave.add("element_bits", c_uint64 * ELEMENT_WORDS)  # which: v0 to v255, then a0 to a255
WAVE_CHECKS = range(704, 1024, 40)  # fields of checks, 0 when the wave begins (`engine.workers.fields`)
ADDRESSES = 1024  # 64 lanes x 8 bytes: a memory handler's addresses
STREAMS = ADDRESSES + 8 * LANES  # u64 each: address at which a load last began (`whole_wave.direct_global`)
STREAM_COUNT = 512  # a GEMM's loop has up to 1,000 dwords of code, and a load has two
STAGING = STREAMS + 8 * STREAM_COUNT  # 64 lanes x 64 bytes: a memory handler's data
VGPR = STAGING + 64 * LANES
AGPR = VGPR + 256 * ROW
WAVE_BYTES = AGPR + 256 * ROW


class Wave(Structure):
    """A wave's scalar file and the following fields, by name."""

    _fields_ = _wave.all


def vector_register(file: str, index: int) -> int:
    """Returns the offset of register `index` of file v or a."""
    return (AGPR if file == "a" else VGPR) + ROW * index


# Worker context, byte offsets.
_context = Fields()
CTX_ALLOCATIONS = _context.add("allocations", c_uint64)  # address of the allocation table
CTX_COUNT = _context.add("count", c_int64)  # allocations in it
CTX_ENTERED = _context.add("entered", c_uint64)  # address of i64[records]: control transfers to a record
CTX_EXITED = _context.add("exited", c_uint64)  # address of i64[records]: control transfers from a record
CTX_LANES = _context.add("lanes", c_uint64)  # address of i64[records]: active lanes of memory instructions
CTX_PROGRAMS = _context.add("programs", c_uint64)  # address of i64[mode.NUMBERS]: records by mode.number, 0 if not made yet
CTX_RECORD_COUNT = _context.add("record_count", c_int64)
CTX_CODE_BASE = _context.add("code_base", c_uint64)  # device address of the first record's instruction
CTX_CLOCK = _context.add("clock", c_int64)  # value that s_memtime reads, after the current wave's BUDGET is subtracted
CTX_BITMAP_PAGES = _context.add("bitmap_pages", c_uint64)  # `Bitmaps.page_zero` (`memory.table`)
CTX_IN_STEP = _context.add("in_step", c_int64)  # not 0: a wave that waits for memory or LDS lets other waves run
CTX_LDS_FAULTS = _context.add("lds_faults", c_int64)  # 1: a load from outside LDS is a fault (checked mode)
CTX_OUTSIDE_LDS = _context.add("outside_lds", c_int64)  # record of a load from outside LDS, -1 if there was none
CTX_CHECKS = range(128, 704, 32)  # fields of checks
CTX_OPERAND_CACHE = 704  # operands of matrix instructions (`matrix.operand_cache`): CACHE_ENTRIES of A, then as many of B
CACHE_ENTRIES = 16
# An entry fits the widest operand, 32 elements a lane: a header, 8 registers, and three times 32 rows of 4 bytes a lane.
CACHE_ENTRY_BYTES = 64 + 8 * ROW + 3 * 32 * ROW
# Addresses to prefetch: 2 u64 and, from byte 64 on, AHEAD_PLACES u64.
CTX_AHEAD = CTX_OPERAND_CACHE + 2 * CACHE_ENTRIES * CACHE_ENTRY_BYTES
AHEAD_PLACES = 512
# Elements of a ring that the floats of each vector register were converted to (`matrix.element_registers`): a mirror for each wave
# of a workgroup. Then the mirrors' owners, i64: HW_ID + 1 of a wave, or 0.
CTX_MIRRORS = CTX_AHEAD + 64 + 8 * AHEAD_PLACES
MIRRORS = 16
MIRROR_BYTES = 512 * ROW
CTX_MIRROR_OWNERS = CTX_MIRRORS + MIRRORS * MIRROR_BYTES
CTX_BYTES = CTX_MIRROR_OWNERS + 8 * MIRRORS


class Context(Structure):
    """First fields of a worker's context, by name."""

    _fields_ = _context.all


# One allocation, byte offsets.
_allocation = Fields()
ALLOC_BASE = _allocation.add("base", c_uint64)  # device address
ALLOC_SIZE = _allocation.add("size", c_uint64)  # bytes, whole dwords
ALLOC_DELTA = _allocation.add("delta", c_int64)  # host address - device address
ALLOC_READ = _allocation.add("read", c_uint64)  # address of the bitmap of bytes read (bit i = byte i)
ALLOC_WRITTEN = _allocation.add("written", c_uint64)  # address of the bitmap of bytes written
ALLOC_WRITABLE = _allocation.add("writable", c_uint64)  # 0 or 1
# Checked mode only.
ALLOC_SHADOW = _allocation.add("shadow", c_int64)  # address of the undefined bits - device address
ALLOC_PRIVATE = _allocation.add("private", c_uint32)  # 1: only its lane reads it, so undefined bits may be stored
ALLOC_FILL = _allocation.add("fill", c_uint32)  # see `Allocation.fill`
ALLOC_UNDEFINED = _allocation.add("undefined", c_uint64)  # 0: all of it was defined when the launch began
# Allocations are padded to whole dwords on both sides: offset of the first requested byte, and their number.
ALLOC_LEAD = _allocation.add("lead", c_uint64)
ALLOC_ASKED = _allocation.add("asked", c_uint64)
ALLOC_CHECKS = range(88, 128, 8)  # fields of checks
_allocation.add("checks", c_int64 * len(ALLOC_CHECKS))
ALLOC_BYTES = 128
BITMAP_PAGE = 12  # log2 of the bytes of bitmaps per page byte, which says if a bit was set there or shortly after


class AllocationEntry(Structure):
    """An allocation of a launch's table, by name."""

    _fields_ = _allocation.all


RECORD = 64
SLOTS = 16  # 32-bit slots of a record; 0 and 1 hold the handler's address
SLOT_INDEX = 15  # the record's own index, in records that need it
SLOT_HINT = 14  # last allocation that a memory instruction hit

SLICE = 1 << 16  # record steps of a wave's turn
PIECE = 1 << 12  # record steps after which the scheduler checks the launch's budget, and whether it must stop


class Status(IntEnum):
    """Reasons for which a wave returned to the scheduler."""

    RUNNING = 0
    ENDED = 1
    BARRIER = 2
    YIELD = 3  # out of budget, or asleep
    LOWER = 4  # the record at RESUME is not lowered
    FAULT = 5  # see `Fault`
    UNSUPPORTED = 6  # the instruction at RESUME cannot be executed
    MODE = 7  # it changed MODE, and the records of the new value are not known
    PATH = 8  # a check must serve it (`Check.resume`)
    MESSAGE = 9  # it sent an interrupt to the host
    GWS = 10  # it executed a ds_gws instruction
    WAITING = 11  # for waves of other workgroups
    BREAK = 12  # a debugger stops it before the instruction at RESUME
    WAITS = 13  # at an s_waitcnt; other waves may run
    WHOLE = 14  # the handler at RESUME is lean, and this case is unusual


class Fault(IntEnum):
    """Kinds of a FAULT status."""

    MEMORY = 1
    LDS = 2
    SCRATCH = 3
    TRAP = 4
    JUMP = 5
    REGISTER = 6
    READONLY = 7
    UNDECODABLE = 8
    MISALIGNED = 9
