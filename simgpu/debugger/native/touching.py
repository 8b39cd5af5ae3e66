"""Counts bytes of device memory that each instruction of a launch touches, and reads of each byte, natively in one run.

A launch's own bitmaps (`memory.table`) show the bytes that all instructions touched together. Here each instruction has
separate bits, numbered in the same way: bit b of an allocation is its byte b. Each worker counts separately; the counts are
joined at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ctypes import Structure, addressof, c_int64, sizeof
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.checks.bounds import base_of
from simgpu.checks.races.storage import lazy_zeros
from simgpu.engine.check import Check
from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workgroup import context
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine import layout
from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.layout import LANES
from simgpu.machine.operands import OperandPlace, Plan
from simgpu.machine.runtime import load32, load64, part, records, runtime, store8, store64, structure
from simgpu.machine.values import I64
from simgpu.memory.table import PAGE

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.finding import Finding
    from simgpu.engine.workers.worker import Worker

(BLOCK,) = context_fields("touching", 1)  # address of the worker's TouchingBlock, 0 if nothing is counted
BASE_BITS = (1 << 48) - 1  # bits of a buffer resource's base
PIECE = 16  # bytes that are marked at once
TIMES = np.dtype(np.uint16)  # number of a byte's reads
MOST_BYTES = 256 << 20  # with more bytes of device memory, nothing is counted


class TouchingBlock(Structure):
    """Addresses by which handlers find a worker's memory: the launch's bitmaps, and `TouchCounts`' arrays."""

    _fields_ = (
        ("bitmaps", c_int64),
        ("half", c_int64),  # bytes of the bitmaps
        ("numbers", c_int64),
        ("bits", c_int64),
        ("pages", c_int64),
        ("reads", c_int64),
        ("lanes", c_int64),
    )


class TouchingLanes(Structure):
    """Numbers of lanes that a buffer instruction requested and that were in range, and its resource's base."""

    _fields_ = (("asked", c_int64), ("served", c_int64), ("base", c_int64))


TOUCHING_BLOCK, TOUCHING_LANES = np.dtype(TouchingBlock), np.dtype(TouchingLanes)
LANES_BYTES = sizeof(TouchingLanes)


@part
def lanes_of(block: Any, number: int) -> Any:
    """Returns the TouchingLanes of an instruction by its number."""
    return structure(block.lanes + LANES_BYTES * number, TOUCHING_LANES)


@part
def ones_of(lanes: int) -> int:
    """Returns the number of lanes in a mask."""
    count = 0
    for lane in range(LANES):
        count += lanes >> lane & 1
    return count


@runtime
def note_bytes(wave: int, record: int, lanes: int, how: int, bitmap: int) -> None:
    """Counts an access to the wave's ADDRESSES, offsets into the allocation of `bitmap` (0 for one that is not counted).

    lanes: mask. how: bytes a lane · 2, + 1 if it reads.
    """
    if bitmap == 0 or context(wave, BLOCK) == 0:
        return
    block = structure(context(wave, BLOCK), TOUCHING_BLOCK)
    first, half = bitmap - block.bitmaps, block.half
    number = load32(block.numbers + 4 * record)
    bits, pages = block.bits + number * half, block.pages + number * (half // PAGE)
    size, reads = how >> 1, how & 1
    for lane in range(LANES):
        if not lanes >> lane & 1:
            continue
        start = 8 * first + load64(wave + layout.ADDRESSES + 8 * lane)
        for at in range(start, start + size, PIECE):
            count = min(PIECE, start + size - at)
            ones, low, word = (1 << count) - 1, at & 63, bits + 8 * (at >> 6)
            store64(word, load64(word) | ones << low)
            store8(pages + at // (8 * PAGE), 1)
            if low + count > 64:
                store64(word + 8, load64(word + 8) | ones >> (64 - low))
                store8(pages + (at + count) // (8 * PAGE), 1)
            if reads:
                times = records(block.reads + 2 * at, count, TIMES)
                if count == PIECE:  # a constant number of turns becomes one vector addition
                    for byte in range(PIECE):
                        times[byte] += times[byte] != 0xFFFF
                else:
                    for byte in range(count):
                        times[byte] += times[byte] != 0xFFFF
    lanes_of(block, number).served += ones_of(lanes)


@runtime
def note_buffer(wave: int, record: int, lanes: int, base: int) -> None:
    """Counts the lanes that a buffer instruction requests, those outside its resource included. lanes: mask."""
    if context(wave, BLOCK):
        block = structure(context(wave, BLOCK), TOUCHING_BLOCK)
        mine = lanes_of(block, load32(block.numbers + 4 * record))
        mine.asked += ones_of(lanes)
        mine.base = base


@dataclass
class Touches:
    """Tracked memory that a launch touched."""

    read: Mapping[int, np.ndarray]  # the launch's bitmaps when it ended or failed (`Table.touched_bits`)
    written: Mapping[int, np.ndarray]  # the same for writes
    distinct: dict[int, int] = field(default_factory=dict)  # bytes that each instruction touched, each once, by code offset
    # Number of reads of each byte of an allocation, uint16, at most 65535, by base address.
    reads: dict[int, np.ndarray] = field(default_factory=dict)
    # By code offset of buffer instructions: lanes outside their resource, and the resource's base.
    beyond: dict[int, tuple[int, int]] = field(default_factory=dict)


class Touching(Check):
    """Check of a device of its own, for one launch.

    offsets: bytes from the kernel's first instruction to those with separate bits. `take` returns the counts after the launch.
    """

    sums = True  # matrix instructions, which it ignores, stay fused

    def __init__(self, offsets: Iterable[int]) -> None:
        self.offsets = list(offsets)
        self.touches: Touches | None = None

    def take(self) -> Touches | None:
        """Returns the launch's counts, and forgets them, because kept handlers keep their check.

        None if device memory has more than MOST_BYTES, or there is nothing to count.
        """
        touches, self.touches = self.touches, None
        return touches

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.memory is not None

    def plan(self, inst: Instruction, plan: Plan) -> OperandPlace | None:
        found = base_of(inst)
        return plan.register(found[1], 128) if found is not None and found[0] == "resource" else None

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        if isinstance(planned, OperandPlace) and inst.spec.encoding != "smem":
            base = frame.build.and_(frame.load(frame.operand(planned.slot), I64), ir.Constant(I64, BASE_BITS))
            note_buffer.call(frame.build, frame.wave, _record(frame), frame.exec_bits(), base)

    def access(self, frame: Frame, access: Access) -> None:
        if access.space == "lds":
            return
        frame.store(access.offsets, frame.at(frame.wave, layout.ADDRESSES), align=8)
        bitmap = frame.load(frame.at(access.entry, layout.ALLOC_READ), I64, 8)
        lanes = ir.Constant(I64, 1) if access.lanes is None else access.lanes
        how = access.size << 1 | int(access.reads)
        note_bytes.call(frame.build, frame.wave, _record(frame), lanes, how, bitmap)

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        table = launch.table
        worker.set_context(BLOCK, 0)
        if table.bitmaps is None or not 0 < 8 * table.half_bytes <= MOST_BYTES:
            return
        numbers = np.zeros(launch.program.count + 1, np.int32)
        numbers[[launch.entry + offset // 4 for offset in self.offsets]] = np.arange(1, len(self.offsets) + 1)
        count, half = len(self.offsets) + 1, table.half_bytes
        mine = TouchCounts(
            numbers, lazy_zeros(count * half).reshape(count, -1, PAGE), np.zeros((count, half // PAGE), np.uint8),
            lazy_zeros(16 * half).view(np.uint16), np.zeros(count, TOUCHING_LANES),
            TouchingBlock(table.bitmaps.address, half),
        )  # fmt: skip
        for name in ("numbers", "bits", "pages", "reads", "lanes"):
            setattr(mine.block, name, getattr(mine, name).ctypes.data)
        worker.checks["touching"] = mine
        worker.set_context(BLOCK, addressof(mine.block))

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        counts = [worker.checks["touching"] for worker in workers if "touching" in worker.checks]
        if counts:
            self.touches = _join(launch, counts, self.offsets)
        return []


@dataclass(frozen=True)
class TouchCounts:
    """Counts of a worker. Number 0 stands for all instructions without separate bits."""

    numbers: np.ndarray  # i32 by record: number of the instruction
    bits: np.ndarray  # uint8 (instructions, pages, PAGE)
    pages: np.ndarray  # uint8 (instructions, pages): nonzero if a page of `bits` has bits
    reads: np.ndarray  # uint16, by bit
    lanes: np.ndarray  # one TOUCHING_LANES an instruction
    block: TouchingBlock


def _record(frame: Frame) -> Any:
    return frame.build.zext(frame.slot(layout.SLOT_INDEX), I64)


def _join(launch: Dispatch, counts: list[TouchCounts], offsets: list[int]) -> Touches:
    distinct, beyond = {}, {}
    asked, served = (np.sum([one.lanes[name] for one in counts], axis=0) for name in ("asked", "served"))
    for number, offset in enumerate(offsets, 1):
        touched = np.flatnonzero(np.logical_or.reduce([one.pages[number] for one in counts]))
        if len(touched):
            bits = np.bitwise_or.reduce([one.bits[number, touched] for one in counts])
            distinct[offset] = int(np.bitwise_count(bits.view(np.uint64)).sum(dtype=np.int64))
        if asked[number] > served[number]:
            base = max(int(one.lanes["base"][number]) for one in counts)
            beyond[offset] = int(asked[number] - served[number]), base
    read, written = (launch.table.touched_bits(which) for which in (0, 1))
    return Touches(read, written, distinct, _reads(launch.table.spans(), counts), beyond)


def _reads(spans: Mapping[int, tuple[int, int]], counts: list[TouchCounts]) -> dict[int, np.ndarray]:
    """Returns the counts of reads by base address, for allocations that were read. spans: first bit and bytes of each."""
    pages = np.logical_or.reduce([one.pages.any(axis=0) for one in counts])
    found = {}
    for base, (first, size) in spans.items():
        if pages[first // (8 * PAGE) : -(-(first + size) // (8 * PAGE))].any():
            parts = [one.reads[first : first + size] for one in counts]
            whole = parts[0].copy()
            for part in parts[1:]:
                whole += np.minimum(part, 0xFFFF - whole)
            if whole.any():
                found[base] = whole
    return found
