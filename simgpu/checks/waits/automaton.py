"""Automaton of waits and hazards: states of operations in flight, and transitions over straight-line code.

The automaton is exact along the path that a wave took. A state holds the instructions that a later one may still clash with:
operations in flight by queue, each with its age (the number of operations issued later on the queue), and the last instructions
with the wait states after them. After a finding the walk continues as if it had been repaired, so one missing s_waitcnt or s_nop
is one finding.

Registers that M0 chooses at run time (s_movrel, s_set_gpr_idx_*) count as the registers that the instruction names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.timing_rules.clauses import continue_clause
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.effects import effect_of
from simgpu.hardware.timing_rules.hazards import clash, most_states, reach
from simgpu.hardware.timing_rules.register_use import Register
from simgpu.hardware.timing_rules.waits import DS, FLAT, SMEM, VM, held_up

END = -1  # target of the transition of a wave that ends

Ages = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class State:
    """Operations in flight where straight-line code begins."""

    entry: int  # record of the first instruction
    vm: Ages = ()  # (record, age) of vector memory operations whose registers (or LDS, for loads to LDS) are not safe, oldest first
    ds: Ages = ()  # the same for LDS operations
    smem: tuple[int, ...] = ()  # records of scalar memory operations
    flat: Ages = ()  # (record, counters not waited for yet: 1 vmcnt, 2 lgkmcnt) of flat operations
    window: Ages = ()  # (record, wait states after it) of instructions that a hazard rule may still bind
    clause: Ages = ()  # (record, members after it) of the open memory clause


@dataclass(frozen=True)
class Sighting:
    """A clash of two instructions, before it becomes a finding."""

    kind: str
    record: int  # the later instruction
    other: int  # the earlier instruction
    what: str  # the hazard rule's name, or "read", "overwritten", "ended"
    place: str  # the register that they share
    needed: int  # required wait states, or the lowest counter value of the missing wait
    found: int  # actual wait states; -1 for a missing wait
    wait: str = ""  # counters of the missing wait: "vmcnt(0) lgkmcnt(0)"


@dataclass(frozen=True)
class Transition:
    """Straight-line code from one state to the next."""

    entry: int  # record where it begins
    following: int  # number of the next state
    sightings: tuple[Sighting, ...]  # clashes in it


class Automaton:
    """States and transitions of one kernel, computed when a wave first needs them.

    xnack: the code object's setting; "on" or "any" if memory clauses may be replayed
    limit: most states; beyond it a wave continues with nothing in flight, and `overflowed` is set
    """

    def __init__(self, entry: int, target: str, xnack: str = "off", limit: int = 1 << 16) -> None:
        self.target = target
        self.xnack = xnack
        self.limit = limit
        self.overflowed = False
        self.states: list[State] = []
        self.effects: dict[int, tuple[Effect, int]] = {}
        self.transitions: dict[tuple[int, int, int], Transition] = {}
        self._numbers: dict[State, int] = {}
        self.number(State(entry))

    def number(self, state: State) -> int:
        """Returns the number of a state, a new one if the state is new."""
        found = self._numbers.get(state)
        if found is None:
            if len(self.states) >= self.limit and state != State(state.entry):
                self.overflowed = True
                return self.number(State(state.entry))
            found = self._numbers[state] = len(self.states)
            self.states.append(state)
        return found

    def step(
        self, state: int, last: int, target: int, instruction: Callable[[int], Instruction | None]
    ) -> Transition:
        """Returns the transition from a state's entry through record `last`, then to record `target` or `END`."""
        key = state, last, target
        if key not in self.transitions:
            walk = StateWalk(self, self.states[state])
            at = self.states[state].entry
            while at <= last:
                effect, size = self._effect(at, instruction)
                walk.pass_by(at, effect)
                at += size
            following = state if target == END else self.number(walk.state(target))
            self.transitions[key] = Transition(self.states[state].entry, following, tuple(walk.sightings))
        return self.transitions[key]

    def _effect(self, at: int, instruction: Callable[[int], Instruction | None]) -> tuple[Effect, int]:
        if at not in self.effects:
            inst = instruction(at)
            assert inst is not None  # it was executed
            self.effects[at] = effect_of(inst), inst.size // 4
        return self.effects[at]


class StateWalk:
    """Steps a state over instructions, and collects sightings."""

    def __init__(self, automaton: Automaton, state: State) -> None:
        self.automaton = automaton
        self.sightings: list[Sighting] = []
        self.ages: dict[str, list[tuple[int, int]]] = {VM.name: list(state.vm), DS.name: list(state.ds)}
        self.smem = set(state.smem)
        self.flat = dict(state.flat)
        self.window = list(state.window)
        self.clause = dict(state.clause)
        self.pending: frozenset[Register] = frozenset()
        self._collect()

    def state(self, entry: int) -> State:
        """Returns the current state, for code that begins at record `entry`."""
        flat = tuple(sorted(self.flat.items()))
        vm, ds = (tuple(self.ages[queue.name]) for queue in (VM, DS))
        return State(entry, vm, ds, tuple(sorted(self.smem)), flat, tuple(self.window), tuple(self.clause.items()))

    def effect(self, record: int) -> Effect:
        return self.automaton.effects[record][0]

    def pass_by(self, record: int, effect: Effect) -> None:
        """Steps over one instruction: reports its clashes, then adds its operation."""
        if effect.queue is VM or effect.queue is DS:
            self.wait(held_up(effect.queue, (age for _, age in self.ages[effect.queue.name])))
        if effect.waits is not None:
            self.wait(effect.waits)
        elif effect.control is ControlKind.ENDPGM:
            self._at_end(record)
        elif not self.pending.isdisjoint(effect.registers):
            self._report_unwaited(record, effect)
        self._hazards(record, effect)
        self._issue(record, effect)

    # -- waits -------------------------------------------------------------------------------------

    def _collect(self) -> None:
        records = [record for queue in self.ages.values() for record, _ in queue]
        records += [*self.smem, *self.flat]
        self.pending = frozenset().union(*(self.effect(record).pending for record in records))

    def wait(self, counts: Mapping[str, int]) -> None:
        """Removes the operations that an s_waitcnt with these counts certainly completes."""
        if not counts:
            return
        for queue in (VM, DS):
            left = counts.get(queue.counters[0])
            if left is not None:
                self.ages[queue.name] = [(r, age) for r, age in self.ages[queue.name] if age < left]
        if counts.get("lgkmcnt") == 0:
            self.smem.clear()
        for bit, counter in enumerate(FLAT.counters):
            if counts.get(counter) == 0:
                self.flat = {r: bits for r, held in self.flat.items() if (bits := held & ~(1 << bit))}
        self._collect()

    def _report_unwaited(self, record: int, effect: Effect) -> None:
        """Reports an instruction that touches registers of operations in flight."""
        read = effect.access.read()
        for queue in (VM, DS):
            # In order, a later operation of the queue may write the same registers.
            touched = read | (effect.registers - effect.pending if effect.queue is queue else effect.registers)
            hits = [(age, r) for r, age in self.ages[queue.name] if not touched.isdisjoint(self.effect(r).pending)]
            if hits:
                age, other = min(hits)
                self._missing(record, other, effect, {queue.counters[0]: age})
        for other in sorted(self.smem):
            if other in self.smem and not effect.registers.isdisjoint(self.effect(other).pending):
                self._missing(record, other, effect, {"lgkmcnt": 0})
        for other, held in sorted(self.flat.items()):
            if other in self.flat and not effect.registers.isdisjoint(self.effect(other).pending):
                counters = [counter for bit, counter in enumerate(FLAT.counters) if held >> bit & 1]
                self._missing(record, other, effect, dict.fromkeys(counters, 0))

    def _missing(self, record: int, other: int, effect: Effect, counts: dict[str, int]) -> None:
        shared = effect.registers & self.effect(other).pending
        what = "read" if shared & effect.access.read() else "overwritten"
        self._report_wait(record, other, what, shared & effect.access.read() or shared, counts)

    def _report_wait(
        self, record: int, other: int, what: str, shared: Iterable[Register], counts: dict[str, int]
    ) -> None:
        wait = " ".join(f"{counter}({count})" for counter, count in counts.items())
        place = name_of(shared)
        self.sightings.append(
            Sighting("missing-wait", record, other, what, place, min(counts.values()), -1, wait)
        )
        # The missing s_waitcnt would take a wait state and break a clause.
        self.wait(counts)
        self._age(1)
        self.clause = {}

    def _at_end(self, record: int) -> None:
        hits = [(age, other) for other, age in self.ages[VM.name] if self.effect(other).dma]
        if hits:
            age, other = min(hits)
            self._report_wait(record, other, "ended", (), {"vmcnt": age})

    def _issue(self, record: int, effect: Effect) -> None:
        queue = effect.queue
        if queue is None:
            return
        if queue is VM or queue is DS:
            older = [(r, age + 1) for r, age in self.ages[queue.name] if not self._covers(record, r)]
            if effect.pending or effect.dma:
                older.append((record, 0))
            self.ages[queue.name] = older
        elif effect.pending and queue is SMEM:
            self.smem.add(record)
        elif effect.pending and queue is FLAT:
            self.flat[record] = 3
        self.pending |= effect.pending

    def _covers(self, younger: int, older: int) -> bool:
        """True if a wait for the younger operation of a queue is always enough for the older one."""
        if younger == older:
            return True
        new, old = self.effect(younger), self.effect(older)
        return not old.dma and old.pending <= new.pending

    # -- hazards -----------------------------------------------------------------------------------

    def _hazards(self, record: int, effect: Effect) -> None:
        later, target = effect.access, self.automaton.target
        short: tuple[int, int] | None = None
        for position in range(len(self.window) - 1, -1, -1):
            other, since = self.window[position]
            earlier = self.effect(other).access
            if most_states(earlier.classes, earlier.passes, later.classes, target) <= since:
                continue
            between = [self.effect(r).access for r, _ in self.window[position + 1 :]]
            rule, needed = clash(earlier, later, target, between)
            if rule is not None and needed > since and (short is None or needed - since > short[0]):
                shared = rule.shared_registers(earlier, later)
                short = needed - since, other
                worst = Sighting("hazard", record, other, rule.name, name_of(shared), needed, since)
        if short is not None:
            self.sightings.append(worst)
        self._age((short[0] if short else 0) + later.states)
        if reach(later, target):
            self.window.append((record, 0))
        self.clause, overwrite = continue_clause(
            self.clause, record, lambda number: self.effect(number).access, target, self.automaton.xnack
        )
        if overwrite is not None:
            other, rule = overwrite.earlier, overwrite.rule
            place = name_of(rule.shared_registers(self.effect(other).access, later))
            self.sightings.append(Sighting("hazard", record, other, rule.name, place, overwrite.needed, overwrite.found))

    def _age(self, states: int) -> None:
        """Passes wait states, and drops instructions that no rule can bind any more."""
        target = self.automaton.target
        aged = ((r, since + states) for r, since in self.window)
        self.window = [(r, since) for r, since in aged if since < reach(self.effect(r).access, target)]


def name_of(registers: Iterable[Register]) -> str:
    """Returns the first register, by sorted text, as LLVM prints it; "" if there is none."""
    for register in sorted(registers, key=str):
        if isinstance(register, str):
            return register
        file, number = register
        return f"hwreg {number}" if file == "hwreg" else f"{file}{number}"
    return ""

