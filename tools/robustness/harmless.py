"""Whether a mutant can harm at all, by all paths of the code and not only those that ran.

An analysis of its own, so that the checker is not its own judge: the emitter's data flow
(`simgpu.asm.builder.waits`: the smallest age of each register's load over all paths, all recent windows), read
over the mutated code. A mutant is harmless if nothing lacks that did not lack before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from simgpu.asm.builder.waits import Flight
from simgpu.hardware.isa.code.flow import branch_target
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect, effect_of
from simgpu.hardware.timing_rules.hazards import max_states, wait_states
from simgpu.hardware.timing_rules.register_use import RegisterUse
from simgpu.hardware.timing_rules.waits import FLAT, SMEM, VM

ENDS = (
    ControlKind.ENDPGM, ControlKind.ENDPGM_SAVED, ControlKind.SETPC, ControlKind.SWAPPC, ControlKind.TRAP, ControlKind.BRANCH,
)  # fmt: skip
LDS = ("lds", 0)  # stands for LDS that a load writes
WINDOWS = 64  # ways into a block whose recent instructions differ; more are not told apart

Lack = tuple[int, str]


@dataclass
class Block:
    """A straight line of records, and the blocks behind it."""

    records: list[int] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


def blocks_of(
    instructions: Mapping[int, Instruction], entries: set[int], indirect: Mapping[int, set[int]]
) -> dict[int, Block]:
    """Basic blocks by their first record. indirect: where indirect jumps and calls were seen to go."""
    starts = set(entries).union(*indirect.values())
    for index, inst in instructions.items():
        target = branch_target(inst, 4 * index)
        if target is not None:
            starts |= {target // 4, index + inst.size // 4}
        elif inst.spec.control in ENDS:
            starts.add(index + inst.size // 4)
    blocks: dict[int, Block] = {}
    for start in sorted(starts & instructions.keys()):
        block = blocks[start] = Block()
        at = start
        while at in instructions:
            inst = instructions[at]
            block.records.append(at)
            following, target = at + inst.size // 4, branch_target(inst, 4 * at)
            if target is not None:
                block.successors.append(target // 4)
            block.successors += indirect.get(at, ())
            if inst.spec.control in ENDS or inst.spec.control is ControlKind.CALL:
                break
            if following in starts:
                block.successors.append(following)
                break
            at = following
    for block in blocks.values():
        block.successors = [successor for successor in block.successors if successor in blocks]
    return blocks


def lacks(
    instructions: Mapping[int, Instruction], entries: set[int], indirect: Mapping[int, set[int]],
    target: str, kind: str,
) -> frozenset[Lack]:  # fmt: skip
    """(record, what lacks there) over all paths: waits for kind "wait", wait states for "nop"."""
    blocks = blocks_of(instructions, entries, indirect)
    effects = {index: effect_of(inst) for index, inst in instructions.items()}
    return _waits(blocks, effects) if kind == "wait" else _states(blocks, effects, target)


def _waits(blocks: Mapping[int, Block], effects: Mapping[int, Effect]) -> frozenset[Lack]:
    entering = {start: Flight() for start in blocks}
    seen = {record: _seen(effect) for record, effect in effects.items()}
    found: set[Lack] = set()
    pending = list(blocks)
    while pending:
        start = pending.pop()
        flight = entering[start].copy()
        for record in blocks[start].records:
            _pass(flight, record, seen[record], found)
        for successor in blocks[start].successors:
            if entering[successor].join(flight):
                pending.append(successor)
    return frozenset(found)


def _seen(effect: Effect) -> Effect:
    """The effect as `Flight` asks for it: a load to LDS owns `LDS`, which LDS accesses and barriers touch."""
    if effect.dma:
        return replace(effect, pending=frozenset({LDS})) if effect.lds == "write" else effect
    if effect.lds or effect.control in (ControlKind.BARRIER, ControlKind.ENDPGM):
        reads = (*effect.access.reads, ("src", frozenset({LDS})))
        return replace(effect, access=replace(effect.access, reads=reads))
    return effect


def _pass(flight: Flight, record: int, effect: Effect, found: set[Lack]) -> None:
    if effect.waits is not None:
        flight.wait(effect.waits.get("vmcnt"), effect.waits.get("lgkmcnt"))
        return
    vm, lgkm = flight.needs(effect)
    if vm is not None or lgkm is not None:
        found.add((record, f"vmcnt {vm} lgkmcnt {lgkm}"))
    if effect.queue is FLAT:  # on both counters, out of order
        flight.issue(replace(effect, queue=VM))
        flight.issue(replace(effect, queue=SMEM))
    else:
        flight.issue(effect)


Window = tuple[RegisterUse, ...]


def _states(blocks: Mapping[int, Block], effects: Mapping[int, Effect], target: str) -> frozenset[Lack]:
    entering: dict[int, set[Window]] = {start: {()} for start in blocks}
    done: dict[int, set[Window]] = {start: set() for start in blocks}
    found: set[Lack] = set()
    pending = list(blocks)
    while pending:
        start = pending.pop()
        for window in sorted(entering[start] - done[start], key=len):
            done[start].add(window)
            leaving = window
            for record in blocks[start].records:
                leaving = _step(leaving, record, effects[record].access, target, found)
            for successor in blocks[start].successors:
                if leaving not in entering[successor] and len(entering[successor]) < WINDOWS:
                    entering[successor].add(leaving)
                    pending.append(successor)
    return frozenset(found)


def _step(window: Window, record: int, later: RegisterUse, target: str, found: set[Lack]) -> Window:
    between = 0
    for position in range(len(window) - 1, -1, -1):
        needed = wait_states(window[position], later, target, window[position + 1 :], xnack=True)
        if needed > between:
            found.add((record, f"{needed} after {window[position].mnemonic}, {between} there"))
        between += window[position].states
    kept, states = [*window, later], 0
    for position in range(len(kept) - 1, -1, -1):
        states += kept[position].states
        if states > max_states(target):
            return tuple(kept[position:])
    return tuple(kept)
