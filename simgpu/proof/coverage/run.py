"""A kernel's accesses to global memory, on terms: only what addresses, masks and branches depend on is executed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.checks.lint.barriers import END, post_dominators
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.hardware.isa.kinds import ControlKind
from simgpu.hardware.isa.lane_smt import number
from simgpu.proof.coverage.needed import Needed
from simgpu.proof.safety.log import AccessLog
from simgpu.proof.safety.nest import Loop
from simgpu.proof.safety.rounds import Rounds
from simgpu.proof.safety.run import SafetyRun
from simgpu.proof.state import WaveState, merge
from simgpu.proof.terms import NotModelled, is_number, subterms, symbol_name, symbols_of

Term = Any
PLACE, EXTREME, GROUP = "place #", "extreme #", "workgroup_id"
GROWN = ("value #", "distance #")  # symbols of `Rounds` for what grows
NO_NAME = (*GROWN, "unknown #", "loaded #", "active #", "round #", "mask", "exec")  # symbols of terms that get no name
MOST_WAYS = 16  # states at one place that differ in registers
SCALAR = ("sop1", "sop2", "sopk")


@dataclass(frozen=True)
class LoopPass:
    """A loop that a state enters, and conditions in any of its rounds."""

    round: Term  # of an access in the loop; of what comes after the loop, the last one
    entry: tuple[Term, ...]  # path to the loop
    again: tuple[Term, ...]  # path to the next round
    low: int  # addresses of the loop's code
    blocks: frozenset[int]  # first addresses of its blocks


@dataclass
class Requests(AccessLog):
    """Accesses to global memory, of all paths in one list."""

    def fork(self) -> Requests:
        return self

    def merge(self, other: Any) -> Requests:
        return self


@dataclass
class CoverageRun(SafetyRun):
    """A kernel's run on terms, to its accesses and loops.

    Paths meet only with equal registers, if loops changed them: effects of a loop stay apart from others.
    """

    of_place: frozenset[str] = frozenset()  # symbols that only say which tile a workgroup has
    passes: list[LoopPass] = field(default_factory=list)
    named: dict[str, Term] = field(default_factory=dict)  # scalars with a name
    forks: list[tuple[int, list[Term]]] = field(default_factory=list)  # where all paths from a branch meet, and the path to it

    def __post_init__(self) -> None:
        blocks = self.nest.blocks
        self.needed = Needed(blocks)
        meeting = post_dominators(blocks)
        self.meeting = {
            steps[-1].pc: self.nest.starts[meet]
            for steps, meet in zip(blocks.all_steps, meeting, strict=True)
            if meet != END
        }  # fmt: skip

    def _begin(self) -> WaveState:
        state = super()._begin()
        state.set_scalar(isa.EXEC, number(-1, 64))
        log = state.memory
        assert isinstance(log, AccessLog)
        state.memory = Requests(log.kernel, log.lanes, log.roots, log.read_only, numbers=log.numbers)
        return state

    # -- instructions --------------------------------------------------------------------------

    def step(self, state: WaveState, inst: Instruction) -> WaveState | None:
        if state.pc not in self.needed.instructions and inst.spec.control in (ControlKind.NONE, ControlKind.BARRIER):
            state.pc += inst.size
            return state
        if inst.spec.encoding.startswith("v") and not z3.is_true(state.active):
            raise NotModelled("lanes that are off")
        found = super().step(state, inst)
        if found is not None and inst.spec.encoding in SCALAR:
            self._give_name(found, inst)
        return found

    def _give_name(self, state: WaveState, inst: Instruction) -> None:
        """Names a scalar that only the workgroup's place depends on, and one that is a minimum or maximum."""
        register = inst.args.get("sdst")
        if not isinstance(register, Reg) or register.count != 1 or register.index >= isa.VCC:
            return
        term = state.scalar(register.index)
        if not term.num_args() or z3.is_bv_value(term):
            return
        symbols = {symbol_name(each) for each in symbols_of([term])}
        if not symbols or any(name.startswith(NO_NAME) for name in symbols) or of_item(term):
            return
        of_place = all(name.startswith((PLACE, GROUP)) or name in self.of_place for name in symbols)
        if not of_place and (not z3.is_app_of(term, z3.Z3_OP_ITE) or state.lanes.varies(term)):
            return
        if _by_number(term) and any(map(self._is_product, symbols)):
            return  # half of a 64-bit multiple of a tile's first row, column or k, which has a name
        new = f"{PLACE if of_place else EXTREME}{len(self.named)}"
        name = next((name for name, other in self.named.items() if other.eq(term)), new)
        self.named[name] = term
        state.set_scalar(register.index, z3.BitVec(name, 32))

    def _is_product(self, name: str) -> bool:
        """True for the name of a product, or of half of one, as the first column of C is with a gate."""
        named = self.named.get(name)
        if named is None:
            return False
        shifted = z3.is_app_of(named, z3.Z3_OP_BLSHR) and z3.is_const(named.arg(0))
        return self._is_product(symbol_name(named.arg(0))) if shifted else bool(z3.is_app_of(named, z3.Z3_OP_BMUL))

    def _branch(self, state: WaveState, condition: Term, target: int, following: int) -> WaveState | None:
        meet = self.meeting.get(state.pc)
        if meet is not None:
            self.forks.append((meet, list(state.path)))
        return super()._branch(state, condition, target, following)

    # -- where paths meet ----------------------------------------------------------------------

    def _join_states(self, states: Sequence[WaveState]) -> list[WaveState]:
        kept: list[WaveState] = []
        ordered = sorted(states, key=lambda each: -len(each.path))
        for state in ordered:
            places = self.needed.places(state.pc, iter(state.registers))
            state.registers = {place: state.registers[place] for place in places}
            twin = next((at for at, other in enumerate(kept) if _meet(other, state)), None)
            if twin is None:
                kept.append(state)
            else:
                kept[twin] = merge(kept[twin], state)
        if len(kept) > MOST_WAYS:
            raise NotModelled(f"more than {MOST_WAYS} ways to {states[0].pc:#x}")
        if len(kept) == 1 and len(ordered) > 1:
            self._shorten(kept[0])
        return kept

    def _shorten(self, state: WaveState) -> None:
        """Drops conditions of branches whose ways have all met here: the longest path to such a branch that led here."""
        shared = [len(path) for meet, path in self.forks if meet == state.pc and _begins(state.path, path)]
        if shared:
            del state.path[max(shared) :]
            state.path_ids = {part.get_id() for part in state.path}

    def _loop(self, loop: Loop, entry: WaveState) -> list[WaveState]:
        rounds = Rounds(entry, self.facts, self.prover)
        while True:
            ended, mark, found = len(self.ended), self.facts.mark(), len(self.passes)
            events = len(entry.memory.events)
            head = rounds.head()
            again, left = self._region(head.fork(), loop)
            if not again:
                return left
            back = self._join_states(again)
            if len(back) > 1:
                raise NotModelled(f"the loop at {loop.head:#x} goes round in {len(back)} ways")
            if rounds.holds(head, back[0]):
                break
            del self.ended[ended:], self.passes[found:], entry.memory.events[events:]
            self.facts.reset(mark)
        self.passes.append(LoopPass(rounds.round, tuple(entry.path), tuple(back[0].path), loop.head, loop.blocks))
        return left


def _by_number(term: Term) -> bool:
    """True for a product with a number, and for a half of one."""
    whole = term.arg(0) if z3.is_app_of(term, z3.Z3_OP_EXTRACT) else term
    return bool(z3.is_app_of(whole, z3.Z3_OP_BMUL)) and any(map(z3.is_bv_value, whole.children()))


def _begins(path: Sequence[Term], beginning: Sequence[Term]) -> bool:
    return len(beginning) <= len(path) and all(a.eq(b) for a, b in zip(path, beginning, strict=False))


def _meet(a: WaveState, b: WaveState) -> bool:
    """True if the paths of two states meet in one: registers that loops changed are equal. Equal terms become the same term."""
    for place in sorted({*a.registers, *b.registers}):
        mine, theirs = a.read(place), b.read(place)
        if mine.eq(theirs):
            continue
        pair = place[1] & ~1
        if place[0] == "s" and is_number(z3.simplify(a.scalar(pair, 64) - b.scalar(pair, 64)), 0):
            for index in (pair, pair + 1):
                b.registers["s", index] = a.registers["s", index]
        elif _of_loops(mine) or _of_loops(theirs):
            return False
    return True


def of_item(term: Term) -> bool:
    """True if a term depends on the work-item, as a wave's number does."""
    return any(each.num_args() and each.decl().kind() == z3.Z3_OP_UNINTERPRETED for each in subterms([term]))


def _of_loops(term: Term) -> bool:
    """True if a term changes from round to round of a loop."""
    return any(symbol_name(each).startswith(GROWN) for each in symbols_of([term]))
