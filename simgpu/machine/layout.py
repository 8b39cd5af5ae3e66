"""Where things lie: the byte layout of a wave's state and of an instruction's record.

A wave is one block of host memory. Its first 512 bytes are the scalar file, numbered as the
encodings number scalar operands (s0 at 0, VCC at 106·4, M0 at 124·4, EXEC at 126·4), so a scalar
operand's address is its encoding times 4. Vector registers are rows of 64 lanes x 4 bytes.

An instruction is one 64-byte record: its handler's address, then 32-bit slots with what the
handler needs (byte offsets of operands into the wave, immediates). Records lie one per dword of
code, so a record's index is its code offset / 4 and any jump target has one.
"""

from __future__ import annotations

from enum import IntEnum

LANES = 64
ROW = 4 * LANES  # bytes of one vector register

# Wave state, byte offsets.
SGPR = 0
SCC = 512  # u32, 0 or 1
MODE = 516  # u32, the MODE register
STATUS = 520  # i32, why the wave returned to the scheduler (Status)
ENTRY = 524  # i32, record index at which the current straight-line run began
BUDGET = 528  # i64, instructions left in this time slice
RESUME = 536  # i32, record index to go on from
WAVE_ID = 540  # u32, wave within its workgroup
CONTEXT = 544  # u64, address of the worker's context (Context offsets below)
LDS_BASE = 552  # u64, host address of the workgroup's LDS
LDS_SIZE = 560  # u64, bytes
SCRATCH_SIZE = 576  # u64, bytes per lane
FAULT_ADDRESS = 584  # u64
FAULT_LANE = 592  # i32
FAULT_KIND = 596  # i32 (Fault)
HW_ID = 600  # u32, for s_getreg
RECORDS = 608  # u64, address of the records of the wave's MODE
WAVE_CHECKS = range(624, 1024, 40)  # where checks have fields, 0 when the wave begins (`engine.fields`)
ADDRESSES = 1024  # 64 lanes x 8 bytes, a memory handler's addresses
STREAMS = ADDRESSES + 8 * LANES  # u64 each, where loads last began (see direct_global)
STREAM_COUNT = 32
STAGING = STREAMS + 8 * STREAM_COUNT  # 64 lanes x 64 bytes, its data
VGPR = STAGING + 64 * LANES
AGPR = VGPR + 256 * ROW
WAVE_BYTES = AGPR + 256 * ROW


def vector_register(file: str, index: int) -> int:
    """Where register `index` of file v or a lies."""
    return (AGPR if file == "a" else VGPR) + ROW * index


# Worker context, byte offsets.
CTX_ALLOCATIONS = 0  # u64, address of the allocation table
CTX_COUNT = 8  # i64, allocations in it
CTX_ENTERED = 16  # u64, address of i64[records]: control transfers to a record
CTX_EXITED = 24  # u64, address of i64[records]: control transfers from a record
CTX_LANES = 32  # u64, address of i64[records]: active lanes of memory instructions
CTX_RECORD_COUNT = 48  # i64
CTX_CODE_BASE = 56  # u64, device address of the first record's instruction
CTX_CLOCK = 64  # i64, what s_memtime reads
CTX_PROGRAMS = 96  # u64, address of i64[mode.NUMBERS]: records by mode.number, 0 where not made yet
CTX_CHECKS = range(128, 512, 32)  # where checks have fields
CTX_OPERAND_CACHE = 512  # of matrix instructions (`matrix.operand_cache`): CACHE_ENTRIES for A, as many for B
CACHE_ENTRIES = 16
# For the widest operand, 32 elements a lane: a header, 8 registers, and three times 32 rows of 4 bytes a lane.
CACHE_ENTRY_BYTES = 64 + 8 * ROW + 3 * 32 * ROW
CTX_AHEAD = CTX_OPERAND_CACHE + 2 * CACHE_ENTRIES * CACHE_ENTRY_BYTES  # to prefetch: 2 u64 and, from 64 on, AHEAD_PLACES u64
AHEAD_PLACES = 512
CTX_BYTES = CTX_AHEAD + 64 + 8 * AHEAD_PLACES

# One allocation, byte offsets.
ALLOC_BASE = 0  # u64, device address
ALLOC_SIZE = 8  # u64, bytes
ALLOC_DELTA = 16  # i64, host address - device address
ALLOC_READ = 24  # u64, address of the bitmap of bytes read (bit i = byte i)
ALLOC_WRITTEN = 32  # u64, address of the bitmap of bytes written
ALLOC_WRITABLE = 40  # u64, 0 or 1
# Checked mode only.
ALLOC_SHADOW = 48  # i64, address of the undefined bits - device address
ALLOC_PRIVATE = 56  # u64, 1: only its lane reads it, so undefined bits may be stored
ALLOC_UNDEFINED = 64  # u64, 0: all of it was defined when the launch began
ALLOC_CHECKS = range(72, 128, 8)  # where checks have fields
ALLOC_BYTES = 128

RECORD = 64
SLOTS = 16  # 32-bit slots of a record; 0 and 1 hold the handler's address
SLOT_INDEX = 15  # the record's own index, in records that need it
SLOT_HINT = 14  # last allocation that a memory instruction hit

SLICE = 1 << 16  # record steps of a wave's turn


class Status(IntEnum):
    """Why a wave returned to the scheduler."""

    RUNNING = 0
    ENDED = 1
    BARRIER = 2
    YIELD = 3
    LOWER = 4
    FAULT = 5
    UNSUPPORTED = 6
    MODE = 7
    PATH = 8
    MESSAGE = 9


class Fault(IntEnum):
    """What a FAULT status means."""

    MEMORY = 1
    LDS = 2
    SCRATCH = 3
    TRAP = 4
    JUMP = 5
    REGISTER = 6
    READONLY = 7
    UNDECODABLE = 8
    MISALIGNED = 9
