"""State of a modelled compute unit: arrays of records for its instructions, waves and units, which `units` changes."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from simgpu.hardware.timing_rules.issue import MOST_VM

# Flags of an instruction. `simgpu.timing.without` sets INSTANT and AHEAD: a load that completes at once, or when its wave's
# execution before did. COHERENT: a load that the vector or scalar cache does not serve.
STORE, ATOMIC, COUNTS_VM, COUNTS_LGKM, DMA, INSTANT, AHEAD, STREAM, COHERENT = 1, 2, 4, 8, 16, 32, 64, 128, 256
SIMDS, UNITS, LEVELS = 4, 9, 3  # levels after the vector cache: L2, Infinity Cache, memory
PRODUCERS = 8  # most loads that a wait is attributed to
LOG = 6  # columns of an event: wave, number, when the wave was ready for it, issue, until, workgroup
NEVER = 1 << 60  # `ready` of a wave that has ended or does not exist; added to the time of arrival at a barrier
KEY_TIME, KEY_PRIORITY = 24, 22  # lowest bits of time and priority in a candidate's key; the age is below
DEEPEST = 64  # most entries of a unit's queue
FLIGHTS = 1024  # most loads of a CU in flight
I, F = np.int64, np.float64


class Stall(IntEnum):
    """Reasons for which a wave waits: PC sampling's names (rocm-systems, pc_sampling.h), and the columns of `CuResult.stalls`."""

    NO_INSTRUCTION_AVAILABLE = 0
    ALU_DEPENDENCY = 1
    WAITCNT = 2
    INTERNAL_INSTRUCTION = 3
    BARRIER_WAIT = 4
    ARBITER_NOT_WIN = 5
    ARBITER_WIN_EX_STALL = 6
    OTHER_WAIT = 7
    SLEEP_WAIT = 8


class Tally(IntEnum):
    """Counters of a CU. ISSUED: instructions. WATCHED: clocks in which a SIMD has a wave among the watched instructions, summed
    over SIMDs. SCALAR_BYTES: bytes that the scalar cache requests from L2. MATRIX_BEGIN, MATRIX_END: clocks at which the first
    matrix instruction begins and the last one ends. CHANGED_BYTES: bytes of stores that L2 still has at the end."""

    MATRIX_CLOCKS = 0
    VALU_CLOCKS = 1
    LDS_CLOCKS = 2
    VMEM_CLOCKS = 3
    L2_BYTES = 4
    MALL_BYTES = 5
    HBM_BYTES = 6
    ISSUED = 7
    WATCHED = 8
    SCALAR_BYTES = 9
    MATRIX_BEGIN = 10
    MATRIX_END = 11
    CHANGED_BYTES = 12


# Figures of the chip, and the CU's part of resources that all CUs share.
CONFIG = np.dtype([
    ("lds_fifo", I), ("lds_latency", I),  # entries of a port's queue, plus 1; clocks from the port to the register
    ("vmem_queue", I), ("in_flight", I),  # instructions before the coalescer, plus 1; bytes that loads can wait for
    ("cache_latency", I), ("latency", I, LEVELS),  # clocks of a hit; of a load that each later level serves
    ("line", I), ("store_line", I),  # bytes of a request
    ("scalar_hit", I), ("branch", I), ("barrier", I), ("start", I),  # clocks
    ("code_line", I), ("code_stream", I), ("code_lines", I),  # instructions: bytes of a line, clocks to the next, lines held
    ("watch_first", I), ("watch_end", I),  # numbers of the watched instructions
    ("rate", F, LEVELS), ("store_rate", F), ("miss_rate", F),  # bytes a clock: of each level, of L2 for stores, of misses
    ("burst", F), ("room", F),  # bytes that the CU may be ahead of its rate; its part of L2, in bytes
    ("changed", F, LEVELS),  # fractions of that part that have lines at the beginning, and changed ones for each later level
    # clocks for which L2 serves an atomic of each CU that works: on one line; a request of each, spread over the channels
    ("atomic_line", F), ("atomic_channel", F),
    ("atomic_move", F),  # clocks for which a line stays with each CU that works, if it moves between XCDs
    ("line_move", F),  # clocks for a byte of lines that other XCDs hold
], align=True)  # fmt: skip
WAVE = np.dtype([
    ("at", I), ("stop", I), ("access", I),  # its next step, its last; its next row of `accesses`
    ("ready", I), ("came", I),  # when the wave itself can issue that step; when it came to it
    ("why", I), ("producer", I),  # why it waits until it is ready: a reason, and the load, or -1
    ("want", I), ("rank", I), ("age", I),  # the place in `free` that the step takes; priority and age, as in a key
    ("held", I), ("noted", I), ("line", I),  # `ready` after a barrier; its row of the log, or -1; its line of instructions, or -1
], align=True)  # fmt: skip
# Operations of a counter that are in flight: a ring of their completion times and their instructions.
RING = np.dtype([("count", I), ("time", I, MOST_VM), ("by", I, MOST_VM)], align=True)
# Operations that a wave has in flight.
OUTSTANDING = np.dtype([("vm", RING), ("lds", RING), ("scalar_time", I), ("scalar_by", I)], align=True)
ISSUE = np.dtype([
    ("free", I, SIMDS * UNITS), ("last", I, SIMDS * UNITS),  # when each SIMD's unit takes the next; the wave that took it last
    ("best", I, SIMDS), ("best_wave", I, SIMDS), ("dirty", I, SIMDS),  # each SIMD's best candidate; whether it must be found anew
    ("inside", I, SIMDS), ("since", I, SIMDS),  # waves among the watched instructions, and since when
], align=True)  # fmt: skip
LDS = np.dtype([
    ("port_free", I, 2), ("bank_free", I), ("fifo", I, (2, DEEPEST)), ("fifo_at", I, 2),  # a port is a pair of SIMDs'
], align=True)  # fmt: skip
VMEM = np.dtype([
    ("coalescer_free", I), ("queue", I, DEEPEST), ("queue_at", I),
    ("flight_end", I, FLIGHTS), ("flight_bytes", I, FLIGHTS), ("first", I), ("last", I), ("flying", I),  # loads in flight
    ("level_free", F, LEVELS), ("miss_free", F), ("atomic_free", F),
    ("held", F), ("changed", F, LEVELS),  # bytes of lines in the CU's part of L2; of these, bytes that each level is to get
], align=True)  # fmt: skip
# A place for a workgroup: its number, its live waves, those at a barrier, when it takes the next workgroup (-1: it does not).
GROUP = np.dtype([("number", I), ("live", I), ("arrived", I), ("pending", I)], align=True)
# Workgroups that have not ended, that have begun; waves that have begun; 1 if a place waits; rows of the log; fetch's clock, and
# lines of instructions fetched.
PROGRESS = np.dtype([
    ("left", I), ("begun", I), ("ages", I), ("waiting", I), ("logged", I), ("code_free", I),
    ("fetched", I),
], align=True)


class Work(NamedTuple):
    """Workgroups that a CU runs: their traces, one after another. All traces have the same number of waves."""

    steps: np.ndarray  # int64, instruction numbers of all traces
    starts: np.ndarray  # first step of each trace's waves
    ends: np.ndarray  # end of each trace's waves
    accesses: np.ndarray  # int32 (n, 3): clocks, requests of lines, requests that miss the vector cache
    access_starts: np.ndarray  # first access of each trace's waves
    waves: int
    order: np.ndarray  # trace of each workgroup, in the order of dispatch


class CuResult(NamedTuple):
    """Results of a CU; the first five are by an instruction's number."""

    hits: np.ndarray  # executions
    latency: np.ndarray  # clocks from waves' arrivals at it until they went on
    stalls: np.ndarray  # (n, 9): clocks of the latency by reason, see `Stall`
    producers: np.ndarray  # (n, 8): numbers of loads that a wait waited for, or -1
    waited: np.ndarray  # (n, 8): clocks that the wait spent on each of these loads
    tally: np.ndarray  # by `Tally`
    ends: np.ndarray  # clock at which each workgroup ended, in the order of dispatch
    log: np.ndarray  # the first events, (n, 6)

    @property
    def clocks(self) -> int:
        """Clocks until the last workgroup ended."""
        return int(self.ends.max(initial=0))


class Cu(NamedTuple):
    """A compute unit at work: arrays of the records above, of length 1 for a single record."""

    config: np.ndarray
    code: np.ndarray
    past: np.ndarray  # (2, 2, n), of the first round and of later ones: see `simgpu.timing.caches.Shares`
    late: np.ndarray
    moved: np.ndarray
    same_line: np.ndarray  # float64 (2, n), see `simgpu.timing.contention.LineContention`: its share, and `moved`
    waves: np.ndarray
    outstanding: np.ndarray
    groups: np.ndarray
    issue: np.ndarray
    lds: np.ndarray
    vmem: np.ndarray
    owed: np.ndarray  # by level and instruction: bytes not yet passed on
    waits: np.ndarray  # by level and instruction: requests not yet counted as waiting
    code_time: np.ndarray  # when each line of instructions arrives; -1: not requested
    code_number: np.ndarray  # lines that were fetched before it; the cache holds the last ones
    scalar_seen: np.ndarray  # by instruction: 1 if the scalar cache has its data
    earlier: np.ndarray  # by wave and instruction: when its last execution completed; no columns without AHEAD
    progress: np.ndarray
