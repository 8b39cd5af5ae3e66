"""Reads a trace, instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from simgpu.checks.numerics.shadow.trace import ACCESS, BEGIN, END, LANES_PART, ROW_PART, TYPES
from simgpu.hardware.isa.types import Type
from simgpu.machine.layout import LANES


@dataclass(frozen=True)
class LaneRow:
    """An operand or a result of a body: 64 values."""

    type: Type
    result: bool  # True for a result
    bits: np.ndarray  # raw bits: u32, or u64 for 64-bit types


@dataclass(frozen=True)
class ShadowAccess:
    """An access to memory or LDS. An instruction may make several."""

    size: int  # bytes a lane
    lds: bool
    lanes: np.ndarray  # bool (64,)
    addresses: np.ndarray  # i64 (64,): device address of each lane's first byte, or its offset in LDS


@dataclass
class ShadowStep:
    """Instruction that a wave executed."""

    record: int
    wave: int
    active: np.ndarray  # bool (64,)
    rows: list[LaneRow] = field(default_factory=list)
    source: np.ndarray | None = None  # for a DPP operand: the lane that each lane reads
    accesses: list[ShadowAccess] = field(default_factory=list)
    written: list[tuple[int, np.ndarray]] = field(default_factory=list)  # registers, a0 as 256, and their u32 (64,) afterwards


def lanes_of(words: np.ndarray) -> np.ndarray:
    """Returns bool (64,) for a mask of lanes in two words."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)


def steps(words: np.ndarray) -> Iterator[ShadowStep]:
    """Yields the instructions of a trace in their order. Waves alternate, but never within an instruction."""
    at = 0
    step: ShadowStep | None = None
    while at < len(words):
        part = int(words[at])
        if part == BEGIN:
            step = ShadowStep(int(words[at + 1]), int(words[at + 2]), lanes_of(words[at + 3 : at + 5]))
            at += 5
            continue
        assert step is not None
        if part == ROW_PART:
            type_ = TYPES[int(words[at + 1])]
            count = LANES * (2 if type_.bits == 64 else 1)
            raw = words[at + 3 : at + 3 + count]
            step.rows.append(LaneRow(type_, bool(words[at + 2]), raw.view(np.uint64) if type_.bits == 64 else raw))
            at += 3 + count
        elif part == LANES_PART:
            step.source = words[at + 1 : at + 1 + LANES].astype(np.int64)
            at += 1 + LANES
        elif part == ACCESS:
            base = int(words[at + 5]) | int(words[at + 6]) << 32
            offsets = words[at + 7 : at + 7 + 2 * LANES].copy().view(np.int64)
            step.accesses.append(
                ShadowAccess(int(words[at + 1]), bool(words[at + 2]), lanes_of(words[at + 3 : at + 5]), base + offsets)
            )
            at += 7 + 2 * LANES
        else:
            assert part == END, part
            count, at = int(words[at + 1]), at + 2
            for _ in range(count):
                step.written.append((int(words[at]), words[at + 1 : at + 1 + LANES]))
                at += 1 + LANES
            yield step
