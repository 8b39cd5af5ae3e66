"""Notes on s_waitcnt and s_nop that ask for more than the executed paths need.

The transfers that `paths` counted make a graph of basic blocks, which is analysed twice. The first analysis finds the count that
each wait needs: the last wait between an operation and its first use must complete the operation. The second analysis assumes
these counts, and attributes an operation to the first wait that completes it. A later wait may then be unneeded, so all notes on
a kernel can be followed together. If two instructions of a hazard rule have more wait states than they need, the last s_nop
between them loses the surplus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from simgpu.checks.waits.automaton import END
from simgpu.checks.waits.paths import TransitionTable, automaton_of
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at, location_of
from simgpu.hardware.architectures import BEFORE_GFX942
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, MESSAGES, ControlKind
from simgpu.hardware.memory_model import cache_bits
from simgpu.hardware.timing_rules.clauses import KINDS, LONGEST
from simgpu.hardware.timing_rules.effect import Effect
from simgpu.hardware.timing_rules.hazards import clash, reach
from simgpu.hardware.timing_rules.waits import DS, FLAT, LIMITS, SMEM, VM

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

CACHE_ENCODINGS = ("mubuf", "smem")  # their instructions without a memory access maintain caches or read clocks
SIGNALS = (*MESSAGES, ControlKind.TRAP, ControlKind.GWS, ControlKind.GDS)
# Targets on which atomic stores of agent scope and below are plain stores (LLVM AMDGPUUsage, memory model).
PLAIN_RELEASE = BEFORE_GFX942
WINDOWS = 64  # most windows that reach a block; if there are more, nops are not judged


class WaitItem(NamedTuple):
    """An operation that is in flight, or that a wait has completed. An operation that two counters count is two items."""

    record: int
    counter: str
    ordered: bool  # True if its queue completes in order
    age: int = 0  # number of operations that its queue issued later
    wait: int = -1  # record of the s_waitcnt to which it is attributed, -1 if none
    asked: int = -1  # the largest count at which that wait would have completed it


# Instructions that a hazard rule may still bind: record, wait states after it, records of the nops and waits after it.
Window = tuple[tuple[int, int, tuple[int, ...]], ...]


@dataclass
class Reaching:
    """Items and windows that reach the start of a block on some path."""

    items: set[WaitItem] = field(default_factory=set)
    windows: set[Window] = field(default_factory=set)


@dataclass(frozen=True)
class OperationUse:
    """An instruction's need for an operation to be complete."""

    count: int  # the largest count of a wait that completes the operation
    reader: int  # record of the instruction that needs it
    operation: int  # record of the operation


@dataclass(frozen=True)
class Passage:
    """A basic block that was executed, from one state of the automaton to the next."""

    state: int  # number of the automaton's state, which has the first record
    last: int  # record of the last instruction
    following: int | None  # the state after it, None if the wave ends


class Survey:
    """Analysis of which waits and nops of a launch are needed, and for what.

    counts: assumed counts of waits, by record and counter; an operation is then attributed to the first wait that completes it.
    Without it, waits have the counts of the code, and an operation is attributed to the last wait.
    """

    def __init__(self, launch: Dispatch, blocks: Sequence[Passage], counts: Mapping[tuple[int, str], int] | None = None) -> None:
        self.launch = launch
        self.counts = counts
        self.automaton = automaton_of(launch)
        self.target = launch.arch
        self.uses: dict[tuple[int, str], OperationUse] = {}  # by wait and counter: the use with the lowest count
        self.held: dict[tuple[int, str], int] = {}  # by wait and counter: the least age of an operation that it completed first
        self.spare: dict[tuple[int, ...], int] = {}  # by the nops and waits between two instructions: fewest surplus wait states
        self.crowded = False  # True if some block had more than WINDOWS windows
        one_way = self._one_way(blocks)
        self.paths = _said_of(one_way)
        self.can_go = "it did nothing" if one_way else "it can go"
        self.records = sorted({record for block in blocks for record in self._records(block)})
        self.syncs = {record for record in self.records if _synchronises(self._inst(record), self.effect(record))}
        self.signals = self.target in PLAIN_RELEASE and bool(self.syncs)
        self._analyse(blocks)

    def effect(self, record: int) -> Effect:
        return self.automaton.effects[record][0]

    def _inst(self, record: int) -> Instruction:
        inst = self.launch.instruction(record)
        assert inst is not None  # it was executed
        return inst

    def _records(self, block: Passage) -> Iterable[int]:
        at = self.automaton.states[block.state].entry
        while at <= block.last:
            yield at
            at += self.automaton.effects[at][1]

    def _one_way(self, blocks: Sequence[Passage]) -> int:
        """Returns the number of conditional branches that were always taken, or never."""
        taken = {block.last for block in blocks}
        passed = {record for block in blocks for record in self._records(block) if record != block.last}
        return sum(self._inst(record).spec.control in CONDITIONAL_BRANCHES for record in taken ^ passed)

    def _analyse(self, blocks: Sequence[Passage]) -> None:
        """Walks the blocks until nothing new reaches any of them."""
        leaving: dict[int, list[Passage]] = {}
        for block in blocks:
            leaving.setdefault(block.state, []).append(block)
        places = {0: Reaching(windows={()})}
        pending = [0]
        while pending:
            state = pending.pop()
            for block in leaving.get(state, ()):
                items, windows = self._walk(block, places[state])
                if block.following is None:
                    continue
                place = places.setdefault(block.following, Reaching())
                known = len(place.items), len(place.windows)
                place.items |= items
                place.windows |= windows
                self.crowded |= len(place.windows) > WINDOWS
                if known != (len(place.items), len(place.windows)) and block.following not in pending:
                    pending.append(block.following)

    def _walk(self, block: Passage, place: Reaching) -> tuple[set[WaitItem], set[Window]]:
        items, windows = set(place.items), set() if self.crowded else set(place.windows)
        self._keep_clauses(block)
        for record in self._records(block):
            effect = self.effect(record)
            if effect.waits is not None:
                items = {self._wait_item(item, record, effect) for item in items}
            else:
                items = self._issue(self._unused_items(items, record, effect), record, effect)
            windows = {self._advance(window, record, effect) for window in windows}
        return items, windows

    def _keep_clauses(self, block: Passage) -> None:
        """Keeps one of the nops and waits between two memory instructions, as it may end a clause, if XNACK may be on."""
        if self.automaton.xnack not in LONGEST:
            return
        between: list[int] | None = []  # None: another instruction is there
        for record in self._records(block):
            effect = self.effect(record)
            memory = not effect.access.classes.isdisjoint(KINDS)
            if self._removable(record):
                between = None if between is None else [*between, record]
                continue
            if memory:
                self._spare(tuple(between or ()), 1)
            between = [] if memory else None
        self._spare(tuple(between or ()), 1)

    def _removable(self, record: int) -> bool:
        return self.effect(record).waits is not None or self._inst(record).spec.control is ControlKind.NOP

    def _spare(self, between: tuple[int, ...], needed: int) -> None:
        """Records that `needed` of the wait states of these nops and waits must stay."""
        if between:
            states = max(sum(self.effect(record).access.states for record in between) - needed, 0)
            self.spare[between] = min(states, self.spare.get(between, states))

    # -- waits -------------------------------------------------------------------------------------

    def _wait_item(self, item: WaitItem, record: int, effect: Effect) -> WaitItem:
        assert effect.waits is not None
        key = record, item.counter
        count = effect.waits.get(item.counter) if self.counts is None else self.counts.get(key)
        if count is None or (item.age < count if item.ordered else count) or (self.counts is not None and item.wait >= 0):
            return item
        if item.wait < 0:
            self.held[key] = min(item.age, self.held.get(key, item.age))
        return item._replace(wait=record, asked=item.age if item.ordered else 0)

    def _unused_items(self, items: set[WaitItem], record: int, effect: Effect) -> set[WaitItem]:
        """Returns the items that the instruction does not need. Records the uses of the others."""
        left = set()
        for item in items:
            if not self._needs(record, effect, item):
                left.add(item)
            elif item.wait >= 0:
                use = OperationUse(item.asked, record, item.record)
                key = item.wait, item.counter
                if key not in self.uses or use.count < self.uses[key].count:
                    self.uses[key] = use
        return left

    def _needs(self, record: int, effect: Effect, item: WaitItem) -> bool:
        other = self.effect(item.record)
        same_queue = effect.queue is other.queue and item.ordered
        if record in self.syncs:
            return True
        if not other.pending.isdisjoint(effect.registers):
            free = effect.pending - effect.access.read() if same_queue else ()  # a queue writes them in its own order
            if not other.pending.isdisjoint(effect.registers.difference(free)):
                return True
        if effect.control is ControlKind.BARRIER:
            scattered = self.launch.info.descriptor.tg_split
            return self.launch.waves > 1 and (bool(other.lds) or _stores(other) or scattered)
        if effect.control is ControlKind.ENDPGM:
            return other.dma
        if effect.queue is None:
            return False
        # The two may access the same memory; only a wait orders them.
        stores = _stores(other)
        if effect.queue is FLAT or other.queue is FLAT:
            return stores or _stores(effect) or bool(other.lds)
        if effect.queue is not other.queue and ((effect.lds and other.lds) or (stores and not other.lds and not effect.lds)):
            return True
        return _stores(effect) and effect.queue is VM and (stores or self.signals) and self.target in PLAIN_RELEASE

    def _issue(self, items: set[WaitItem], record: int, effect: Effect) -> set[WaitItem]:
        queue = effect.queue
        if queue is VM or queue is DS:
            most = LIMITS[queue.counters[0]] - 1
            items = {self._older(item, most) if item.counter == queue.counters[0] and item.ordered else item for item in items}
            return items | {WaitItem(record, queue.counters[0], True)}
        if queue is SMEM or queue is FLAT:
            return items | {WaitItem(record, counter, False) for counter in queue.counters}
        return items

    @staticmethod
    def _older(item: WaitItem, most: int) -> WaitItem:
        return item if item.age == most else item._replace(age=item.age + 1)

    # -- nops --------------------------------------------------------------------------------------

    def _advance(self, window: Window, record: int, effect: Effect) -> Window:
        later = effect.access
        for position, (other, since, between) in enumerate(window):
            if between:
                accesses = [self.effect(r).access for r, _, _ in window[position + 1 :]]
                rule, needed = clash(self.effect(other).access, later, self.target, accesses)
                if rule is not None:
                    self.spare[between] = min(max(since - needed, 0), self.spare.get(between, since))
        counts = self._removable(record)
        aged = ((r, since + later.states, (*between, record) if counts else between) for r, since, between in window)
        kept = tuple(row for row in aged if self._binds(*row))
        return (*kept, (record, 0, ())) if reach(later, self.target) else kept

    def _binds(self, record: int, since: int, between: tuple[int, ...]) -> bool:
        """True if a rule may bind later instructions, even if all removable ones in between are gone."""
        fewest = since - sum(self.effect(other).access.states for other in between)
        return fewest < reach(self.effect(record).access, self.target)

    def surplus(self, removable: Iterable[int]) -> dict[int, int]:
        """Returns the surplus wait states by nop, and by wait of `removable`. All may be removed together."""
        spare: dict[int, int] = {}
        candidates = [record for record in self.records if self._inst(record).spec.control is ControlKind.NOP]
        for record in sorted([*candidates, *removable], reverse=True):
            most = self.effect(record).access.states
            for between, states in self.spare.items():
                times = between.count(record)
                if times:
                    given = sum(spare.get(other, 0) for other in between if other != record)
                    most = min(most, max(states - given, 0) // times)
            spare[record] = most
        return spare


def _said_of(one_way: int) -> str:
    """Describes the paths that a note covers. one_way: branches that always went one way; other launches may differ."""
    if not one_way:
        return "on all paths"
    return f"on the paths that ran ({one_way} branch{'es' if one_way > 1 else ''} always went one way)"


def _stores(effect: Effect) -> bool:
    """True if an operation writes memory or LDS, or makes caches do so."""
    return not effect.access.classes.isdisjoint(("vmem_store", "ds_write")) or effect.lds == "write" or (
        effect.queue is SMEM and bool(effect.access.read(("data",)))
    )


def _synchronises(inst: Instruction, effect: Effect) -> bool:
    """True if other waves may take the instruction as a sign that all earlier ones are complete, or if it measures time."""
    memory = inst.spec.memory
    if memory is None:
        return inst.spec.encoding in CACHE_ENCODINGS or inst.spec.control in SIGNALS
    return memory.op == "atomic" or bool(cache_bits(inst.mods))


class Surplus(Check):
    """Makes notes after a launch from the counts of `Paths`; emits no code."""

    def concerns(self, inst: Instruction) -> bool:
        return False

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        tables: list[TransitionTable] = [worker.checks["paths"] for worker in workers]
        if any(worker.error is not None for worker in workers) or automaton_of(launch).overflowed:
            return []  # later code was not examined
        blocks: dict[Passage, int] = {}
        for table in tables:
            for state, last, target, following, taken in table.taken_transitions():
                block = Passage(state, last, None if target == END else following)
                blocks[block] = blocks.get(block, 0) + taken
        first = Survey(launch, list(blocks))
        counts = {key: use.count for key, use in first.uses.items()}
        survey = Survey(launch, list(blocks), counts)
        survey.held = first.held
        times: dict[int, int] = {}
        for block, taken in blocks.items():
            for record in survey._records(block):
                times[record] = times.get(record, 0) + taken
        return notes(survey, times)


def notes(survey: Survey, times: dict[int, int]) -> list[Finding]:
    """Returns the notes. times: number of executions by record."""
    waits = [record for record in survey.records if survey.effect(record).waits]
    idle = [record for record in waits if not any((record, c) in survey.uses for c in survey.effect(record).waits or ())]
    told = [note for record in waits if (note := _wait_note(survey, record, times[record]))]
    surplus = {} if survey.crowded else survey.surplus(idle)
    kept = {record for record in idle if not surplus.get(record)}
    found = [_with_nop(note) if record in kept else note for record, note in told]
    for record, states in surplus.items():
        if states and record not in idle:
            left = survey.effect(record).access.states - states
            message = f"s_nop {left - 1} would do" if left else survey.can_go
            message += f": {survey.paths}, no hazard needs more here"
            found.append(_note(survey, record, message, times[record], needed=left, found=left + states))
    return found


def _note(survey: Survey, record: int, message: str, count: int, other: int = -1, needed: int = -1, found: int = -1) -> Finding:
    earlier = other if other >= 0 else None
    return finding_at(
        survey.launch, record, "performance", message, earlier=earlier, severity="note", count=count, needed=needed, found=found
    )


def _with_nop(note: Finding) -> Finding:
    return replace(note, message=note.message + "; it is a wait state that a hazard needs: s_nop 0 in its place")


def _wait_note(survey: Survey, record: int, count: int) -> tuple[int, Finding] | None:
    """Returns the record and a note if an s_waitcnt is unneeded or may have higher counts, else None."""
    counts = survey.effect(record).waits or {}
    asked = {counter: survey.uses.get((record, counter)) for counter in counts}
    if not any(asked.values()):
        held = any((record, counter) in survey.held for counter in counts)
        why = "uses the operations it waits for before a later wait" if held else "that it could wait for is still in flight"
        message = f"{survey.can_go}: {survey.paths}, nothing {why}"
        return record, _note(survey, record, message, count)
    better: dict[str, int] = {}
    said: list[str] = []
    first = OperationUse(-1, -1, -1)
    for counter, was in counts.items():
        use = asked[counter]
        holds = survey.held.get((record, counter), LIMITS[counter])
        if use is None and holds < LIMITS[counter]:
            said.append(f"nothing uses the operations that {counter}({was}) waits for before a later wait")
        elif use is None or use.count <= was or holds >= use.count:
            better[counter] = was
        else:
            better[counter] = use.count
            reader, operation = location_of(survey.launch, use.reader), location_of(survey.launch, use.operation)
            line = f" ({reader.source})" if reader.source else ""
            needs = f"`{reader.text}` at {reader.name}{line}"
            said.append(f"the first use of an operation it waits for is {needs}, of `{operation.text}`")
            first = use
    if not said:
        return None
    wait = " ".join(f"{counter}({left})" for counter, left in better.items())
    message = f"s_waitcnt {wait} would do: {survey.paths}, {'; '.join(said)}"
    found = next((counts[c] for c in counts if better.get(c) != counts[c]), -1)
    return record, _note(survey, record, message, count, first.operation, first.count, found)
