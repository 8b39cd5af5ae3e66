"""Mutants of a kernel: code bytes in which one wait, nop or barrier is weaker or missing."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hardware.isa import text
from hardware.isa.immediates import WAIT_COUNTERS
from hardware.isa.instruction import Imm, Instruction
from hardware.waits import waited

S_NOP = 0xBF800000  # s_nop 0
S_WAITCNT = 0xBF8C0000
MOVES = ("branch", "call", "setpc", "swappc", "getpc", "endpgm", "trap")  # cannot change places with a nop
NOP_STATES = 16


@dataclass(frozen=True)
class Mutant:
    """One change: `data` in the place of the code from byte `offset` on.

    kind: wait, nop or barrier; what: in words; before: the instruction that was there.
    """

    kind: str
    what: str
    offset: int
    data: bytes
    before: str

    @property
    def index(self) -> int:
        return self.offset // 4


def mutants(code: bytes, instructions: Mapping[int, Instruction], executed: set[int]) -> Iterator[Mutant]:
    """All of a kernel. instructions: by record (dword of the code); executed: the records that ran."""
    targets = branch_targets(instructions)
    for index in sorted(executed):
        inst = instructions[index]
        immediate = inst.args.get("simm16")
        value = immediate.value & 0xFFFF if isinstance(immediate, Imm) else 0
        if inst.spec.control == "waitcnt":
            yield from _waits(index, inst, value)
        elif inst.spec.control == "barrier":
            yield Mutant("barrier", "dropped", 4 * index, _word(S_NOP), text(inst))
        elif inst.spec.control == "nop":
            yield from _nops(code, instructions, targets, index, value)


def _word(value: int) -> bytes:
    return struct.pack("<I", value)


def _waits(index: int, inst: Instruction, value: int) -> Iterator[Mutant]:
    counts = waited(value)
    if not counts:
        return
    yield Mutant("wait", "removed", 4 * index, _word(S_NOP), text(inst))
    for name, count in counts.items():
        if name != "expcnt":
            weaker = S_WAITCNT | encoded(value, name, count + 1)
            yield Mutant("wait", f"{name}({count + 1})", 4 * index, _word(weaker), text(inst))


def encoded(simm16: int, counter: str, count: int) -> int:
    """s_waitcnt's immediate with another count."""
    for shift, width in dict(WAIT_COUNTERS)[counter]:
        mask = (1 << width) - 1
        simm16 = simm16 & ~(mask << shift) | (count & mask) << shift
        count >>= width
    return simm16


def _nops(
    code: bytes, instructions: Mapping[int, Instruction], targets: set[int], index: int, value: int
) -> Iterator[Mutant]:
    inst = instructions[index]
    if value % NOP_STATES:
        yield Mutant("nop", f"s_nop {value - 1}", 4 * index, _word(S_NOP | value - 1), text(inst))
    following = instructions.get(index + 1)
    if following is None or index + 1 in targets or any(name in following.spec.control for name in MOVES):
        return
    # The bytes stay as many: the nop changes places with the instruction that it holds back.
    later = code[4 * index + 4 : 4 * index + 4 + following.size]
    yield Mutant("nop", "removed", 4 * index, later + _word(S_NOP), text(inst))


def branch_targets(instructions: Mapping[int, Instruction]) -> set[int]:
    """Records that direct branches go to."""
    found = set()
    for index, inst in instructions.items():
        target = target_of(index, inst)
        if target is not None:
            found.add(target)
    return found


def target_of(index: int, inst: Instruction) -> int | None:
    """The record that a direct branch or call goes to."""
    control, immediate = inst.spec.control, inst.args.get("simm16")
    if not isinstance(immediate, Imm) or not (control in ("branch", "call") or control.startswith("cbranch_")):
        return None
    distance = immediate.value & 0xFFFF
    return index + inst.size // 4 + distance - (distance >> 15 << 16)
