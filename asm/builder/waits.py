"""Waits by rule: s_waitcnt before a register whose load is pending, s_nop by the hazard tables.

Both run over basic blocks to a fixed point. An instruction after a branch or at the top of a loop waits as long as the
most demanding path to it requires, and no longer. `simgpu.hardware.timing_rules.waits` defines what the counters count
and in which order operations complete. SMEM completes out of order: only a count of 0 waits for it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from simgpu.asm.builder.instruction import Instr
from simgpu.hardware.isa.code.flow import Blocks, falls_through
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.hazards import most_states, reach, wait_states
from simgpu.hardware.timing_rules.register_use import Register, register_use
from simgpu.hardware.timing_rules.waits import DS, LIMITS, SMEM, VM

S_NOP_MAX = 8  # wait states of the longest s_nop


@dataclass(frozen=True)
class Label:
    """A branch target."""

    name: str


@dataclass(frozen=True)
class Comment:
    """A comment line."""

    text: str


Item = Instr | Label | Comment
Line = Sequence[tuple[int, Effect]]  # instructions of a block: position in the kernel's items, and effect


def schedule(items: Sequence[Item], target: str) -> list[Item]:
    """Returns `items` with s_waitcnt and s_nop inserted. Every Instr must have its effect."""
    blocks = blocks_of(items)
    lines = [[(at, _effect(item)) for at in nodes if isinstance(item := items[at], Instr)] for nodes in blocks.nodes]
    waits = _waits(blocks, lines)
    nops = _nops(blocks, lines, waits, target)
    result: list[Item] = []
    for at, item in enumerate(items):
        if at in waits:
            result.append(waits[at])
        if at in nops:
            result += _nop_instructions(nops[at])
        result.append(item)
    return result


def blocks_of(items: Sequence[Item]) -> Blocks:
    """Returns the basic blocks of `items`, by position. The first entry is the first item; the others may be dead code."""
    places = {item.name: at for at, item in enumerate(items) if isinstance(item, Label)}
    following = [[at + 1] for at in range(len(items))]
    if items:
        following[-1] = []
    for at, item in enumerate(items):
        if isinstance(item, Instr) and _effect(item).control is not ControlKind.NONE:
            if not falls_through(_effect(item).control):
                following[at] = []
            if item.target and places[item.target] not in following[at]:
                following[at].insert(0, places[item.target])
    dead = [at for at in range(1, len(items)) if at not in following[at - 1]]
    return Blocks(following, [0, *dead] if items else [])


def _effect(instr: Instr) -> Effect:
    assert instr.effect is not None
    return instr.effect


# -- s_waitcnt -----------------------------------------------------------------------------------


@dataclass
class Flight:
    """Operations in flight: issued and not waited for.

    The age of a load is the number of operations issued after it on its counter: the smallest over all paths.
    """

    vm: dict[Register, int] = field(default_factory=dict)  # age of the vector memory load of each register
    ds: dict[Register, int] = field(default_factory=dict)  # age of the LDS load of each register
    smem: set[Register] = field(default_factory=set)  # registers of pending scalar loads
    last_ds: int = -1  # age of the last LDS operation, -1 if none is in flight

    def copy(self) -> Flight:
        return Flight(dict(self.vm), dict(self.ds), set(self.smem), self.last_ds)

    def join(self, other: Flight) -> bool:
        """Adds the operations in flight on another path. Returns True if that changed anything."""
        changed = not other.smem <= self.smem
        for mine, theirs in ((self.vm, other.vm), (self.ds, other.ds)):
            for reg, age in theirs.items():
                if reg not in mine or age < mine[reg]:
                    mine[reg], changed = age, True
        self.smem |= other.smem
        if other.last_ds >= 0 and not 0 <= self.last_ds <= other.last_ds:
            self.last_ds, changed = other.last_ds, True
        return changed

    def needs(self, effect: Effect) -> tuple[int | None, int | None]:
        """Returns vmcnt and lgkmcnt to wait for before an instruction. None: no wait."""
        touched = effect.registers
        vm, ds = _youngest(self.vm, touched), _youngest(self.ds, touched)
        if effect.control is ControlKind.BARRIER and self.last_ds >= 0:
            ds = self.last_ds  # other waves may read or overwrite LDS after the barrier
        if not self.smem.isdisjoint(touched) or (ds is not None and self.smem):
            ds = 0
        if vm is None and ds is None:
            return None, None
        return (
            None if vm is None else min(vm, LIMITS["vmcnt"] - 1),
            None if ds is None else min(ds, LIMITS["lgkmcnt"] - 1),
        )

    def wait(self, vm: int | None, lgkm: int | None) -> None:
        if vm is not None:
            self.vm = {reg: age for reg, age in self.vm.items() if age < vm}
        if lgkm is not None:
            self.ds = {reg: age for reg, age in self.ds.items() if age < lgkm}
            self.last_ds = self.last_ds if self.last_ds < lgkm else -1
        if lgkm == 0:
            self.smem = set()

    def issue(self, effect: Effect) -> None:
        if effect.queue is VM:
            self.vm = {reg: age + 1 for reg, age in self.vm.items()}
            self.vm.update(dict.fromkeys(effect.pending, 0))
        elif effect.queue in (DS, SMEM):
            self.ds = {reg: age + 1 for reg, age in self.ds.items()}
            self.last_ds += self.last_ds >= 0
            if effect.queue is DS:
                self.ds.update(dict.fromkeys(effect.pending, 0))
                self.last_ds = 0
            else:
                self.smem |= effect.pending


def _youngest(ages: Mapping[Register, int], touched: frozenset[Register]) -> int | None:
    """Returns the smallest age of these registers' loads; None if none is in flight, which is the rule."""
    return None if ages.keys().isdisjoint(touched) else min(ages[reg] for reg in touched if reg in ages)


def _waits(blocks: Blocks, lines: Sequence[Line]) -> dict[int, Instr]:
    """Returns the s_waitcnt before instructions, by position. lines: the instructions of each block."""
    loaded = frozenset().union(*{effect.pending for line in lines for _, effect in line})
    lines = [[(at, effect) for at, effect in line if _may_wait(effect, loaded)] for line in lines]
    entering = [Flight() for _ in lines]
    visited = [False] * len(lines)
    work, waiting = blocks.entries[:1], set(blocks.entries[:1])
    while work:
        index = work.pop()
        if index not in waiting:  # has been walked since this entry was made
            continue
        waiting.remove(index)
        visited[index] = True
        leaving = _transfer(lines[index], entering[index].copy(), None)
        for successor in blocks.following[index]:
            if entering[successor].join(leaving) or not visited[successor]:
                work.append(successor)
                waiting.add(successor)
    before: dict[int, Instr] = {}
    for line, flight in zip(lines, entering, strict=True):
        _transfer(line, flight, before)
    return before


def _may_wait(effect: Effect, loaded: frozenset[Register]) -> bool:
    """True if an instruction changes what is in flight, or may wait for it. loaded: all registers that the kernel loads."""
    return effect.queue is not None or effect.control is ControlKind.BARRIER or not loaded.isdisjoint(effect.registers)


def _transfer(line: Line, flight: Flight, before: dict[int, Instr] | None) -> Flight:
    """Returns the flight after a block of (position, effect).

    Adds the s_waitcnt before each position to `before`, unless None.
    """
    for at, effect in line:
        vm, lgkm = flight.needs(effect)
        if vm is not None or lgkm is not None:
            flight.wait(vm, lgkm)
            if before is not None:
                before[at] = _waitcnt(vm, lgkm)
        flight.issue(effect)
    return flight


def _waitcnt(vm: int | None, lgkm: int | None) -> Instr:
    counts = {name: count for name, count in (("vmcnt", vm), ("lgkmcnt", lgkm)) if count is not None}
    words = " & ".join(f"{name}({count})" for name, count in counts.items())
    use = register_use("s_waitcnt", {"salu"}, {"src": ()})
    return Instr("s_waitcnt", (words,), effect=Effect(use, control=ControlKind.WAITCNT, waits=counts))


# -- s_nop ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class IssuedInstruction:
    """An effect with its reach under the hazard rules; shared by all instructions that have the same effect."""

    effect: Effect
    reach: int  # most wait states that a rule can require after it


Window = tuple[IssuedInstruction, ...]  # recent instructions, back to the first that a rule can still reach


NOWHERE = -1  # position of an s_waitcnt, which needs no wait states


class _Nops:
    """Finds the s_nop of a kernel: wait states before an instruction, by its position (`before`)."""

    def __init__(self, lines: Sequence[Line], waits: Mapping[int, Instr], target: str) -> None:
        self.target = target
        self.issued: dict[Effect, IssuedInstruction] = {}  # cache of `issue_of`
        self.before: dict[int, int] = {}
        self.lines = [list(self._issue(line, waits)) for line in lines]
        self.reach = max((issued.reach for issued in self.issued.values()), default=0)
        self.behind: dict[int, Window] = {}  # window at the end of each block at its last walk

    def _issue(self, line: Line, waits: Mapping[int, Instr]) -> Iterator[tuple[int, IssuedInstruction]]:
        """Yields the instructions of a block, with the s_waitcnt among them."""
        for at, effect in line:
            if at in waits:
                yield NOWHERE, self.issue_of(_effect(waits[at]))
            yield at, self.issue_of(effect)

    def issue_of(self, effect: Effect) -> IssuedInstruction:
        issued = self.issued.get(effect)
        if issued is None:
            issued = self.issued[effect] = IssuedInstruction(effect, reach(effect.access, self.target))
        return issued

    def walk(self, block: int, window: Window) -> Window:
        """Raises a block's wait states to what the window before it requires. Returns the window after the block.

        Stops early, with the window of the last walk, once every instruction that entered and every new s_nop is out of
        reach.
        """
        nops, recent, now = self.before, _Recent(), 0
        for issued in window:
            recent.append(issued, now := now + issued.effect.access.states)
        since = now  # position in wait states where the block began, or of its last new s_nop
        for position, issued in self.lines[block]:
            if needed := nops.get(position, 0):
                recent.append(self.issue_of(_nop_effect(needed)), now := now + needed)
            short = recent.missing(issued.effect, now, self.target)
            if short > 0:
                nops[position] = needed + short
                recent.append(self.issue_of(_nop_effect(short)), now := now + short)
                since = now
            recent.append(issued, now := now + issued.effect.access.states)
            recent.trim(now)
            if now - since >= self.reach and block in self.behind:
                return self.behind[block]
        self.behind[block] = tuple(recent.issued)
        return self.behind[block]


@dataclass
class _Recent:
    """Recent instructions while a block is walked."""

    issued: list[IssuedInstruction] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # wait states at which each ended

    def append(self, issued: IssuedInstruction, end: int) -> None:
        self.issued.append(issued)
        self.ends.append(end)

    def trim(self, now: int) -> None:
        """Drops the first instructions while no rule reaches from them."""
        gone = 0
        while gone < len(self.issued) and now - self.ends[gone] >= self.issued[gone].reach:
            gone += 1
        del self.issued[:gone], self.ends[:gone]

    def missing(self, later: Effect, now: int, target: str) -> int:
        """Returns the wait states that `later` lacks, as `hazards.clashes`, but checks only rules that could apply.

        A rule needs a shared register, or state that the earlier instruction writes by name, or is about the order of f64
        matrix instructions. It must also require more wait states than have passed.
        """
        missing, touched, classes = 0, later.registers, later.access.classes
        for index in range(len(self.issued) - 1, -1, -1):
            issued, found = self.issued[index], now - self.ends[index]
            earlier, access = issued.effect, issued.effect.access
            if (
                issued.reach > found + missing
                and (earlier.ordered or not earlier.registers.isdisjoint(touched))
                and most_states(access.classes, access.passes, classes, target) > found + missing
            ):
                between = [other.effect.access for other in self.issued[index + 1 :]]
                missing = max(missing, wait_states(access, later.access, target, between) - found)
        return missing


def _nops(blocks: Blocks, lines: Sequence[Line], waits: Mapping[int, Instr], target: str) -> dict[int, int]:
    """Returns the wait states to insert before instructions, by position.

    Windows of recent instructions flow along the branches; a join has several windows.
    """
    nops = _Nops(lines, waits, target)
    work = blocks.entries[:1]
    entering: list[set[Window]] = [{()} if block in work else set() for block in range(len(lines))]
    while work:
        index = work.pop()
        leaving = {nops.walk(index, window) for window in entering[index]}
        for successor in blocks.following[index]:
            if not leaving <= entering[successor]:
                entering[successor] |= leaving
                work.append(successor)
    return nops.before


@functools.cache
def _nop_effect(states: int) -> Effect:
    return Effect(register_use("s_nop", states=states))


def _nop_instructions(states: int) -> Iterable[Instr]:
    while states > 0:
        taken = min(states, S_NOP_MAX)
        yield Instr("s_nop", (taken - 1,), effect=_nop_effect(taken))
        states -= taken
