"""Checks waits and hazards along the path that each wave takes.

Waits and hazards depend only on the sequence of instructions, so each path through the code is examined once. A control
transfer looks up (state, from, to) in a table of its worker. Only a transfer that is new in its state returns to Python, which
walks the instructions (`automaton`). An entry counts how often the transition was taken, and so how often its findings occurred.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir

from simgpu.checks.waits.automaton import END, Automaton, Sighting, Transition
from simgpu.engine.check import Check
from simgpu.engine.events import retired_before
from simgpu.engine.finding import Finding, hazard_message, moment, wait_message
from simgpu.engine.positions import finding_at, location_of
from simgpu.engine.workers.fields import context_fields, wave_fields
from simgpu.engine.workers.worker import StoppedWave, Worker, current_wave, place_of_wave, wave_bytes_of
from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.frame import Frame
from simgpu.machine.host_memory import aligned_bytes
from simgpu.machine.layout import Status, Wave
from simgpu.machine.values import I32, I64
from simgpu.machine.wave_frame import PTR

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch

# Wave fields, i32: number of the automaton's state at the start of the current straight-line code; the record whose transfer has
# no transition yet; its target.
WAVE_STATE, WAVE_FROM, WAVE_TO = wave_fields("paths", 3)
# Context fields: address of the worker's table of transitions; its number of entries minus 1.
TABLE, TABLE_MASK = context_fields("paths", 2)
# A table entry: from | to << 32; state + 1 | next state << 32; times taken; number of the transition.
FIELDS = 4
KEY, STATES, COUNT, NUMBER = range(FIELDS)
STRIDE = 8 * FIELDS
FIRST_SIZE = 1 << 10
KEY_FACTOR, STATE_FACTOR, HASH_SHIFT = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 40
WORD = (1 << 64) - 1


class Paths(Check):
    """Steps the automaton at control transfers; straight-line code has no hook."""

    tiles = True

    def concerns(self, inst: Instruction) -> bool:
        return inst.spec.kind == "control"

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        entry = self._look_up(frame, target, index, target)
        self._count(frame, entry)
        following = frame.load(frame.at(entry, 8 * STATES + 4), I32)
        frame.set_state(WAVE_STATE, following)

    def end(self, frame: Frame, index: Any) -> None:
        self._count(frame, self._look_up(frame, ir.Constant(I32, END), index, index))

    def _count(self, frame: Frame, entry: Any) -> None:
        count = frame.at(entry, 8 * COUNT)
        frame.store(frame.build.add(frame.load(count, I64, 8), ir.Constant(I64, 1)), count, 8)

    def _look_up(self, frame: Frame, target: Any, index: Any, resume: Any) -> Any:
        """Emits a look-up; returns a pointer to the transition's entry. If there is none, the wave returns PATH and continues at
        `resume`."""
        build = frame.build
        state = build.zext(frame.state(WAVE_STATE), I64)
        far = build.shl(build.zext(target, I64), ir.Constant(I64, 32))
        key = build.or_(build.zext(index, I64), far)
        first = build.mul(key, ir.Constant(I64, KEY_FACTOR))
        mixed = build.xor(first, build.mul(state, ir.Constant(I64, STATE_FACTOR)))
        start = build.lshr(mixed, ir.Constant(I64, HASH_SHIFT))
        table = build.inttoptr(frame.context(TABLE), PTR)
        mask = frame.context(TABLE_MASK)
        marked = build.trunc(build.add(state, ir.Constant(I64, 1)), I32)
        before = build.block
        loop, other, absent, next_, found = (
            build.append_basic_block(name) for name in ("look", "other", "absent", "next", "found")
        )
        build.branch(loop)
        build.position_at_end(loop)
        at = build.phi(I64)
        at.add_incoming(start, before)
        entry = frame.at(table, build.mul(build.and_(at, mask), ir.Constant(I64, STRIDE)))
        held = frame.load(frame.at(entry, 8 * STATES), I32)
        same_key = build.icmp_unsigned("==", frame.load(entry, I64, 8), key)
        hit = build.and_(same_key, build.icmp_unsigned("==", held, marked))
        build.cbranch(hit, found, other)
        build.position_at_end(other)
        build.cbranch(build.icmp_unsigned("==", held, ir.Constant(I32, 0)), absent, next_)
        build.position_at_end(next_)
        at.add_incoming(build.add(at, ir.Constant(I64, 1)), next_)
        build.branch(loop)
        build.position_at_end(absent)
        frame.set_state(WAVE_FROM, index)
        frame.set_state(WAVE_TO, target)
        frame.exit(Status.PATH, resume)
        build.ret_void()
        build.position_at_end(found)
        return entry

    def prepare(self, launch: Dispatch, worker: Worker) -> None:
        table = worker.checks["paths"] = TransitionTable(FIRST_SIZE)
        table.show(worker)

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        """Returns one finding for each pair of places, counted by how often its transitions were taken."""
        automaton = automaton_of(launch)
        counts: dict[tuple[str, int, int], int] = {}
        best: dict[tuple[str, int, int], Sighting] = {}
        first: dict[tuple[str, int, int], FirstPassage] = {}
        branched: set[tuple[str, int, int]] = set()  # pairs that are not always joined by straight code
        for worker in workers:
            table: TransitionTable = worker.checks["paths"]
            for number, taken in table.counts():
                made = table.transitions[number]
                for seen in made.sightings:
                    pair = seen.kind, seen.record, seen.other
                    if not made.entry <= seen.other < seen.record:
                        branched.add(pair)
                    counts[pair] = counts.get(pair, 0) + taken
                    if pair not in first or table.first[number].order < first[pair].order:
                        first[pair] = table.first[number]
                    if pair not in best or seen.needed - seen.found > best[pair].needed - best[pair].found:
                        best[pair] = seen
        found = [_finding(launch, best[pair], first[pair], counts[pair], pair not in branched) for pair in best]
        if automaton.overflowed:
            message = f"more than {automaton.limit} states of waits and hazards: later ones were not followed"
            found.append(finding_at(launch, launch.entry, "resource", message, severity="note"))
        return found

    def resume(self, launch: Dispatch, worker: Worker) -> bool:
        """Makes the transition that the current wave lacks, and lets the wave continue."""
        raw = wave_bytes_of(worker, *place_of_wave(worker))
        fields = raw[WAVE_STATE : WAVE_TO + 8].view(np.int32)[::2]
        state, last, target = (int(field) for field in fields)
        with LOCK:
            made = automaton_of(launch).step(state, last, target, launch.instruction)
        # A wave that ends has not executed its s_endpgm, and looks the transition up again.
        ahead = retired_before(launch, raw, last if target == END else target)  # a jump is counted already
        taken = FirstPassage(current_wave(worker), last, ahead + (target == END and ahead >= 0))
        table: TransitionTable = worker.checks["paths"]
        table.insert(state, last, target, int(target != END), made, taken)
        table.show(worker)
        if target != END:
            fields[0] = made.following
        Wave.from_buffer(raw.data).status = Status.RUNNING
        return True


@dataclass(frozen=True)
class FirstPassage:
    """First wave that took a transition."""

    wave: StoppedWave
    last: int  # record at which it left straight-line code
    retired: int  # number of instructions that it had retired by then

    @property
    def order(self) -> tuple[tuple[int, ...], int, int]:
        """Sort key: the lowest workgroup's lowest wave is reported."""
        return self.wave.group[::-1], self.wave.wave, self.retired

    def moment_at(self, launch: Dispatch, record: int) -> str:
        """Returns the moment (`finding.moment`) at which the wave was at a record of that code, "" if `retired` is unknown."""
        if self.retired < 0:
            return ""
        away = int(launch.program.starts[record : self.last + 1].sum())
        return moment(self.wave.group, self.wave.wave, self.retired - away)


@dataclass
class TransitionTable:
    """Transitions of a worker: an open-addressing table that handlers read, grown by Python."""

    size: int
    entries: np.ndarray = field(init=False)
    transitions: list[Transition] = field(default_factory=list)  # by number of an entry
    first: list[FirstPassage] = field(default_factory=list)  # by number of an entry: the wave that took it first

    def __post_init__(self) -> None:
        self._place(self.size)

    def _place(self, size: int) -> None:
        self.size = size
        self.entries = aligned_bytes(size * STRIDE).view(np.int64).reshape(size, FIELDS)

    def show(self, worker: Worker) -> None:
        """Tells the worker's handlers where the entries are."""
        worker.set_context(TABLE, self.entries.ctypes.data)
        worker.set_context(TABLE_MASK, self.size - 1)

    def insert(self, state: int, last: int, target: int, taken: int, made: Transition, wave: FirstPassage) -> None:
        """Adds a transition that was taken `taken_transitions` times so far. wave: the first wave to take it."""
        if 2 * len(self.transitions) >= self.size:
            old = self.entries
            self._place(2 * self.size)
            for entry in old[old[:, STATES] != 0]:
                self._put(entry)
        word = last | (target & 0xFFFFFFFF) << 32
        key = word - (1 << 64) if word >> 63 else word
        states = state + 1 | made.following << 32
        self._put(np.array([key, states, taken, len(self.transitions)], np.int64))
        self.transitions.append(made)
        self.first.append(wave)

    def _put(self, entry: np.ndarray) -> None:
        state = (int(entry[STATES]) & 0xFFFFFFFF) - 1
        mixed = ((int(entry[KEY]) & WORD) * KEY_FACTOR ^ state * STATE_FACTOR) & WORD
        at = mixed >> HASH_SHIFT
        while self.entries[at & self.size - 1, STATES]:
            at += 1
        self.entries[at & self.size - 1] = entry

    def counts(self) -> list[tuple[int, int]]:
        """Returns (number, times taken) of every transition that was taken."""
        used = self.entries[self.entries[:, STATES] != 0]
        return [(int(number), int(taken)) for number, taken in used[:, [NUMBER, COUNT]] if taken]

    def taken_transitions(self) -> list[tuple[int, int, int, int, int]]:
        """Returns (state, last record, target, following state, times) of every transition that was taken."""
        used = self.entries[(self.entries[:, STATES] != 0) & (self.entries[:, COUNT] != 0)]
        halves = np.ascontiguousarray(used[:, [KEY, STATES]]).view(np.int32).reshape(-1, 4)
        return [
            (int(state) - 1, int(last), int(target), int(following), int(times))
            for (last, target, state, following), times in zip(halves, used[:, COUNT], strict=True)
        ]


LOCK = threading.Lock()


def automaton_of(launch: Dispatch) -> Automaton:
    """Returns the kernel's automaton, cached with its code from launch to launch."""
    kept, key = launch.program.kept, ("waits", launch.entry)
    if key not in kept:
        kept[key] = Automaton(launch.entry, launch.arch, launch.code.xnack)
    return kept[key]


def _finding(launch: Dispatch, seen: Sighting, first: FirstPassage, count: int, straight: bool) -> Finding:
    earlier = location_of(launch, seen.other).text
    if seen.kind == "hazard":
        message = hazard_message(seen.what, seen.place, earlier, seen.needed, seen.found)
    else:
        message = wait_message(seen.place, seen.what, earlier, seen.wait)
    return finding_at(
        launch, seen.record, seen.kind, message, earlier=seen.other, wave=first.wave.wave, workgroup=first.wave.group,
        count=count, place=seen.place, needed=seen.needed, found=seen.found, when=first.moment_at(launch, seen.record),
        rule=seen.what, certainty="every path" if straight else "some path",
    )  # fmt: skip
