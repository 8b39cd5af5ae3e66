"""Waits by rule: s_waitcnt before a register that is still on its way, s_nop by the hazard tables.

Both run over basic blocks to a fixed point: an instruction behind a branch or at the top of a loop waits as long as the nearest
of the paths to it asks, and no longer.

`simgpu.hardware.timing_rules.waits` says what the counters count and in which order operations complete. SMEM completes out of
order: only a count of 0 waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simgpu.asm.builder.instruction import Instr
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.effects import Effect
from simgpu.hardware.timing_rules.hazards import max_states, most_states, wait_states
from simgpu.hardware.timing_rules.register_use import Register, register_use
from simgpu.hardware.timing_rules.waits import DS, LIMITS, SMEM, VM

S_NOP_MAX = 8  # wait states of one s_nop
ENDS = (ControlKind.ENDPGM, ControlKind.BRANCH)


@dataclass(frozen=True)
class Label:
    """A branch target."""

    name: str


@dataclass(frozen=True)
class Remark:
    """A line of comment."""

    text: str


Item = Instr | Label | Remark


def schedule(items: Sequence[Item], target: str) -> list[Item]:
    """Returns `items` with s_waitcnt and s_nop inserted; every Instr must have its effect."""
    return _insert_nops(_insert_waits(items), target)


@dataclass
class Block:
    """Items of a straight line, and the blocks that may follow it."""

    items: list[Item] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


def blocks_of(items: Sequence[Item]) -> list[Block]:
    """Basic blocks in order: a label starts one, a branch ends one."""
    blocks = [Block()]
    for item in items:
        if isinstance(item, Label) and any(isinstance(i, Instr | Label) for i in blocks[-1].items):
            blocks.append(Block())
        blocks[-1].items.append(item)
        if isinstance(item, Instr) and (item.target or _effect(item).control in ENDS):
            blocks.append(Block())
    starts = {
        item.name: index
        for index, block in enumerate(blocks)
        for item in block.items
        if isinstance(item, Label)
    }
    for index, block in enumerate(blocks):
        last = next((item for item in reversed(block.items) if isinstance(item, Instr)), None)
        if last is not None and last.target:
            block.successors.append(starts[last.target])
        if (last is None or _effect(last).control not in ENDS) and index + 1 < len(blocks):
            block.successors.append(index + 1)
    return blocks


def _effect(instr: Instr) -> Effect:
    assert instr.effect is not None
    return instr.effect


# -- s_waitcnt -----------------------------------------------------------------------------------


@dataclass
class Flight:
    """What has been issued and not waited for.

    The age of a load is how many operations were issued behind it on its counter: the smallest over all paths.
    """

    vm: dict[Register, int] = field(default_factory=dict)  # age of the vector memory load of each register
    ds: dict[Register, int] = field(default_factory=dict)  # of its LDS load
    smem: set[Register] = field(default_factory=set)  # registers of scalar loads
    last_ds: int = -1  # age of the last LDS operation, -1 if none is in flight

    def copy(self) -> Flight:
        return Flight(dict(self.vm), dict(self.ds), set(self.smem), self.last_ds)

    def join(self, other: Flight) -> bool:
        """Adds what is in flight on another path; whether that changed anything."""
        before = (dict(self.vm), dict(self.ds), len(self.smem), self.last_ds)
        for mine, theirs in ((self.vm, other.vm), (self.ds, other.ds)):
            for reg, age in theirs.items():
                mine[reg] = min(age, mine.get(reg, age))
        self.smem |= other.smem
        if other.last_ds >= 0:
            self.last_ds = other.last_ds if self.last_ds < 0 else min(self.last_ds, other.last_ds)
        return before != (self.vm, self.ds, len(self.smem), self.last_ds)

    def needs(self, effect: Effect) -> tuple[int | None, int | None]:
        """vmcnt and lgkmcnt to wait for before an instruction; None: no wait."""
        touched = effect.touched
        vm = min((self.vm[reg] for reg in touched if reg in self.vm), default=None)
        ds = min((self.ds[reg] for reg in touched if reg in self.ds), default=None)
        if effect.control is ControlKind.BARRIER and self.last_ds >= 0:
            ds = self.last_ds  # other waves may read or overwrite after it
        if not self.smem.isdisjoint(touched) or (ds is not None and self.smem):
            ds = 0
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


def _insert_waits(items: Sequence[Item]) -> list[Item]:
    blocks = blocks_of(items)
    entering = [Flight() for _ in blocks]
    visited = [False] * len(blocks)
    work = [0]
    while work:
        index = work.pop()
        visited[index] = True
        leaving = _through(blocks[index], entering[index].copy(), None)
        for successor in blocks[index].successors:
            if entering[successor].join(leaving) or not visited[successor]:
                work.append(successor)
    result: list[Item] = []
    for block, flight in zip(blocks, entering, strict=True):
        _through(block, flight, result)
    return result


def _through(block: Block, flight: Flight, result: list[Item] | None) -> Flight:
    """The flight behind a block; its items with their waits go to `result`, if there is one."""
    for item in block.items:
        if isinstance(item, Instr):
            effect = _effect(item)
            vm, lgkm = flight.needs(effect)
            if vm is not None or lgkm is not None:
                flight.wait(vm, lgkm)
                if result is not None:
                    result.append(_waitcnt(vm, lgkm))
            flight.issue(effect)
        if result is not None:
            result.append(item)
    return flight


def _waitcnt(vm: int | None, lgkm: int | None) -> Instr:
    counts = {name: count for name, count in (("vmcnt", vm), ("lgkmcnt", lgkm)) if count is not None}
    words = " & ".join(f"{name}({count})" for name, count in counts.items())
    use = register_use("s_waitcnt", {"salu"}, {"src": ()})
    return Instr("s_waitcnt", (words,), effect=Effect(use, control=ControlKind.WAITCNT, waits=counts))


# -- s_nop ---------------------------------------------------------------------------------------

Window = tuple[Effect, ...]


def _insert_nops(items: Sequence[Item], target: str) -> list[Item]:
    """Windows of recent instructions flow along the branches; several where paths meet."""
    blocks = blocks_of(items)
    entering: list[set[Window]] = [set() for _ in blocks]
    entering[0].add(())
    nops: list[dict[int, int]] = [{} for _ in blocks]
    behind: list[Window | None] = [None] * len(blocks)
    work = [0]
    while work:
        index = work.pop()
        leaving: set[Window] = set()
        for window in entering[index]:
            behind[index] = left = _walk(blocks[index], window, nops[index], target, behind[index])
            leaving.add(left)
        for successor in blocks[index].successors:
            if not leaving <= entering[successor]:
                entering[successor] |= leaving
                work.append(successor)
    result: list[Item] = []
    for block, waits in zip(blocks, nops, strict=True):
        for position, item in enumerate(block.items):
            result += _nop_instructions(waits.get(position, 0))
            result.append(item)
    return result


def _walk(block: Block, window: Window, nops: dict[int, int], target: str, behind: Window | None) -> Window:
    """Raises `nops` (wait states by position) to what the window asks; the window behind.

    behind: the window behind when the block was last walked. It is this time's too as soon as the window that entered is out of
    reach, and so is every s_nop that it asked for.
    """
    reach = max_states(target)
    recent = list(window)
    known = 0  # wait states since the block began or the last new s_nop
    for position, item in enumerate(block.items):
        if not isinstance(item, Instr):
            continue
        effect = _effect(item)
        needed = nops.get(position, 0)
        if needed:
            recent.append(_nop_effect(needed))
        short = _missing(recent, effect, target)
        if short > 0:
            nops[position] = needed + short
            recent.append(_nop_effect(short))
        recent.append(effect)
        recent = _trim(recent, reach)
        known = effect.access.states if short > 0 else known + needed + effect.access.states
        if behind is not None and known > reach:
            return behind
    return tuple(recent)


def _missing(window: Sequence[Effect], later: Effect, target: str) -> int:
    """Wait states that `later` lacks: `hazards.clashes`, asked only where a rule could apply.

    A rule needs a shared register, or state that the earlier instruction writes by name, or is
    about the order of f64 matrix instructions; and it must ask more than lies between.
    """
    found = missing = 0
    touched, classes = later.touched, later.access.classes
    for index in range(len(window) - 1, -1, -1):
        earlier = window[index]
        access = earlier.access
        if (earlier.ordered or not earlier.touched.isdisjoint(touched)) and (
            most_states(access.classes, access.passes, classes, target) > found + missing
        ):
            between = [effect.access for effect in window[index + 1 :]]
            needed = wait_states(access, later.access, target, between)
            missing = max(missing, needed - found)
        found += access.states
    return missing


def _trim(window: list[Effect], reach: int) -> list[Effect]:
    """The last instructions, back to the first that any rule could still reach."""
    states = 0
    for index in range(len(window) - 1, -1, -1):
        states += window[index].access.states
        if states > reach:
            return window[index:]
    return window


def _nop_effect(states: int) -> Effect:
    return Effect(register_use("s_nop", states=states))


def _nop_instructions(states: int) -> Iterable[Instr]:
    while states > 0:
        taken = min(states, S_NOP_MAX)
        yield Instr("s_nop", (taken - 1,), effect=_nop_effect(taken))
        states -= taken
