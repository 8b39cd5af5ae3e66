"""Claims about accesses, and proofs of them: each is in its buffer, no two race."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import z3

from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.lane_smt import every, negation
from simgpu.proof.entry import AXES, KernelInputs, group_id
from simgpu.proof.roots import GLOBAL, LDS, PRIVATE, Address
from simgpu.proof.safety.facts import LoopFacts, same_round
from simgpu.proof.safety.integers import Integers
from simgpu.proof.safety.launches import Launches, flat_item
from simgpu.proof.safety.log import Access
from simgpu.proof.safety.prover import Prover
from simgpu.proof.safety.waves import OtherWave
from simgpu.proof.solver import solve
from simgpu.proof.terms import Memo, flat_sum

Term = Any
EFFORT = 20.0  # of the solver for a claim, as integers and as bits
OUT_OF_BOUNDS, RACE = "out-of-bounds", "race"


@dataclass(frozen=True)
class UnprovedClaim:
    """A claim that was not proved."""

    kind: str  # OUT_OF_BOUNDS or RACE
    accesses: tuple[Access, ...]
    wrong: tuple[Term, ...]  # formulas of bit-vectors that hold if the claim does not


@dataclass
class Claims:
    """Accesses of a kernel and facts about its launches."""

    inputs: KernelInputs
    prover: Prover
    facts: LoopFacts
    accesses: Sequence[Access]
    proved: int = 0


    @property
    def launches(self) -> Launches:
        return self.prover.launches

    def __post_init__(self) -> None:
        self.facts = self.facts.map_terms(self.prover.settle)
        self.accesses = [self._prepare(access) for access in self.accesses]
        groups = frozenset(str(group_id(axis)) for axis in AXES)
        self._others = {True: OtherWave(groups), False: OtherWave()}  # by whether it is in the same workgroup

    def _prepare(self, access: Access) -> Access:
        settled = self.prover.settle
        address = replace(access.address, root=settled(access.address.root))
        return replace(access, address=address, guard=settled(access.guard), barriers=settled(access.barriers))

    def _range_of(self, access: Access) -> Memo:
        return self.prover.range_of(access.guard, access.address.root, self.facts)

    # -- bounds --------------------------------------------------------------------------------

    def in_bounds(self) -> Iterator[UnprovedClaim]:
        """Yields doubts whether accesses are in bounds."""
        for access in self.accesses:
            if access.address.space == GLOBAL:
                yield from self._in_buffer(access)
            else:
                yield from self._in_segment(access)

    def _in_segment(self, access: Access) -> Iterator[UnprovedClaim]:
        """Claims that an access to LDS or private memory is below the segment's size."""
        info = self.inputs.info
        lds = info.group_segment_size + self.launches.assumptions.dynamic_lds
        size = lds if access.address.space == LDS else info.descriptor.private_segment_size
        beyond = z3.UGT(z3.ZeroExt(8, access.address.at()) + access.size, size)
        if z3.is_false(z3.simplify(beyond)):  # a fixed place, as most of private memory
            self.proved += 1
            return
        doubt = UnprovedClaim(OUT_OF_BOUNDS, (access,), (access.guard, beyond))
        yield from self._unless_proved(doubt, self.facts, lambda integers: [integers.condition(beyond)], Memo)

    def _in_buffer(self, access: Access) -> Iterator[UnprovedClaim]:
        size = self.launches.size(access.address.base)
        assert size is not None
        bits = size.bits(self.launches.bits())
        fits = every(z3.ULE(access.size, bits), z3.ULE(_distance(access.address), bits - access.size))

        def outside(integers: Integers) -> list[Term]:
            at = _whole_distance(integers, access.address)
            return [z3.Or(at < 0, at + access.size > size.whole(self.launches.whole(integers)))]

        doubt = UnprovedClaim(OUT_OF_BOUNDS, (access,), (access.guard, negation(fits)))
        yield from self._unless_proved(doubt, self.facts, outside, lambda: self._range_of(access), exact_bits=not size.divides)

    # -- races ---------------------------------------------------------------------------------

    def no_races(self) -> Iterator[UnprovedClaim]:
        """Yields doubts whether pairs of accesses by different waves are ordered or apart."""
        for at, one in enumerate(self.accesses):
            for two in self.accesses[at:]:
                if not _may_race(one, two):
                    continue
                yield from self._apart(one, two, same_group=True)
                if one.address.space == GLOBAL:
                    yield from self._apart(one, two, same_group=False)

    def _apart(self, one: Access, two: Access, same_group: bool) -> Iterator[UnprovedClaim]:
        there = self._others[same_group].of
        bits = [one.guard, there(two.guard)]
        if same_group:
            together = z3.simplify(one.barriers == there(two.barriers))
            if z3.is_false(together):
                self.proved += 1
                return
            bits += [together, self._other_wave]
        else:
            bits.append(self._other_group)
        ends = one.address.at(), there(two.address.at())
        overlap = z3.ULT(ends[0] - ends[1] + two.size - 1, one.size + two.size - 1)

        def meet(integers: Integers) -> list[Term]:
            if one.address.base != two.address.base or one.address.space == LDS:
                return [integers.condition(overlap)]
            a, b = _whole_distance(integers, one.address), _whole_distance(integers, two.address, there)
            return [a < b + two.size, b < a + one.size]

        def ranges() -> Memo:
            found = Memo()
            for access, rename in ((one, None), (two, there)):
                for term, high in self._range_of(access).items():
                    found.put(term if rename is None else rename(term), high)
            return found

        doubt = UnprovedClaim(RACE, (one, two), (*bits, overlap))
        yield from self._unless_proved(doubt, self._facts_of_both(same_group), meet, ranges)

    @cached_property
    def _other_wave(self) -> Term:
        """Condition that both waves are different ones of a workgroup."""
        number = self.prover.settle(z3.LShR(flat_item(self.inputs), WAVEFRONT.bit_length() - 1))
        return number != self._others[True].of(number)

    @cached_property
    def _other_group(self) -> Term:
        return negation(every(*(group_id(axis) == self._others[False].of(group_id(axis)) for axis in AXES)))

    def _facts_of_both(self, same_group: bool) -> LoopFacts:
        there = self._others[same_group].of
        theirs = self.facts.map_terms(there)
        formulas = [*self.facts.formulas, *theirs.formulas, *map(there, self.launches.wave_facts())]
        found = map(same_round, self.facts.advances, theirs.advances)
        inside = [*self.facts.inside, *theirs.inside, *(each for each in found if each is not None)]
        return LoopFacts([*self.facts.advances, *theirs.advances], formulas, inside)

    # -- proofs --------------------------------------------------------------------------------

    def _unless_proved(
        self, doubt: UnprovedClaim, facts: LoopFacts, whole: Callable[[Integers], list[Term]], ranges: Callable[[], Memo],
        exact_bits: bool = True,
    ) -> Iterator[UnprovedClaim]:  # fmt: skip
        """Counts a proof, or yields the doubt.

        whole: the fault, of integers; exact_bits: False if the formulas of bit-vectors only serve to find a launch.
        """
        self.prover.budget.check()
        *bits, _ = doubt.wrong
        as_integers = lambda: self.prover.impossible(doubt.wrong, bits, facts, whole, ranges(), EFFORT)  # noqa: E731
        as_bits = lambda: self._impossible_bits([*doubt.wrong, *self.prover.formulas_of(facts)])  # noqa: E731
        in_segment = doubt.accesses[0].address.space != GLOBAL
        ways = (as_bits, as_integers) if in_segment else (as_integers, as_bits) if exact_bits else (as_integers,)
        if any(way() for way in ways):
            self.proved += 1
        else:
            yield doubt

    def facts_of(self, doubt: UnprovedClaim) -> LoopFacts:
        """Returns the facts about loops of a doubt's waves."""
        if doubt.kind == OUT_OF_BOUNDS:
            return self.facts
        return self._facts_of_both(any(part.eq(self._other_wave) for part in doubt.wrong))

    def _impossible_bits(self, formulas: list[Term]) -> bool:
        formulas = [*formulas, *self.inputs.lanes.facts(formulas)]
        return bool(solve(formulas, self.prover.budget, EFFORT)[0] == z3.unsat)


def _may_race(one: Access, two: Access) -> bool:
    if one.address.space != two.address.space or one.address.space == PRIVATE or not (one.writes or two.writes):
        return False
    if one.kind == two.kind == "atomic":
        return False
    bases = one.address.base, two.address.base
    return one.address.space == LDS or bases[0] == bases[1] or not all(bases)


def _parts(address: Address) -> list[Term]:
    """Returns the terms of an address without its pointer."""
    return [part for part in flat_sum(address.root) if not (z3.is_const(part) and address.base and str(part) == address.base)]


def _distance(address: Address) -> Term:
    """Returns the bytes from the beginning of the buffer."""
    return sum(_parts(address), z3.BitVecVal(address.offset, 64))


def _whole_distance(integers: Integers, address: Address, rename: Callable[[Term], Term] | None = None) -> Term:
    parts = [part if rename is None else rename(part) for part in _parts(address)]
    if not address.base:
        return integers.signed_value(sum(parts, z3.BitVecVal(address.offset, 64)))
    return z3.Sum(*map(integers.signed_value, parts), z3.IntVal(address.offset))
