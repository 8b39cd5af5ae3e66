"""Sorts findings by importance and keeps one for each cause.

Errors come before notes. Among them, violations of hazard rules that shipped kernels break without harm come last
(`HazardRule.tolerated`), and certain findings come before others. Equally certain ones are ordered by the number of clocks that
are missing between the two instructions, by the time model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simgpu.checks.lint.certainty import PathProof
from simgpu.checks.lint.clocks import clocks_of
from simgpu.checks.lint.distances import TooClose
from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.lds_addresses import LdsAddresses
from simgpu.checks.lint.outstanding import UnwaitedAccess
from simgpu.checks.lint.search import PathSearch
from simgpu.engine.finding import CERTAIN, Certainty, Finding, of_one_cause
from simgpu.hardware.timing_rules.hazards import RULES
from simgpu.hardware.timing_rules.issue import SLOT

RANK: dict[Certainty, int] = {"every path": 0, "every round": 1, "addresses": 2, "some path": 3, "": 4}
TOLERATED = frozenset(rule.name for rule in RULES if rule.tolerated)
IN_LOOPS = ("missing-wait", "hazard", "uninitialized")  # kinds that a loop has many findings of; they are merged


@dataclass(frozen=True)
class Case:
    """A finding with its context."""

    finding: Finding
    pair: UnwaitedAccess | TooClose | None  # the two instructions that it is about
    loop: int = -1  # first block of the loop around the later instruction, -1 if none


def judge(
    cases: Iterable[Case], blocks: StraightBlocks, search: PathSearch, addresses: LdsAddresses, arch: str, waves: int
) -> list[Case]:  # fmt: skip
    """Returns the cases with certainty, clocks and loop added. waves: number of waves in a workgroup."""
    proof = PathProof(blocks)
    cases, made = list(cases), []
    laters: dict[tuple[str, int | None], set[int]] = {}
    for case in cases:
        laters.setdefault((case.finding.rule, case.finding.other_pc), set()).add(case.finding.pc)
    for case in cases:
        finding, pair = case.finding, case.pair
        around = blocks.loop_around(finding.pc) if finding.pc in blocks.places else None
        loop = -1 if around is None else min(around)
        if pair is not None:
            certainty = _certainty(proof, pair, laters[finding.rule, finding.other_pc])
            if isinstance(pair, UnwaitedAccess) and pair.what == "shared" and certainty in CERTAIN:
                same = addresses.overlap(pair.earlier.pc, pair.step.pc)
                certainty = certainty if same else "addresses"
                finding = replace(finding, severity="error" if same else finding.severity)
            finding = replace(finding, certainty=certainty)
        made.append(Case(finding, pair, loop))
    return _with_clocks(made, search, arch, waves)


def _certainty(proof: PathProof, pair: UnwaitedAccess | TooClose, laters: Collection[int]) -> Certainty:
    if isinstance(pair, TooClose) and (pair.rule.between or pair.rule.relation in ("same_c", "overlap_c")):
        within = proof.blocks.precedes(pair.earlier.pc, pair.step.pc)  # the instructions between them matter, too
        return "every path" if within else "some path"
    return proof.certainty(pair.earlier, pair.step, pair.gap, laters)


def _with_clocks(cases: Sequence[Case], search: PathSearch, arch: str, waves: int) -> list[Case]:
    """Returns the cases; errors about missing waits get the clocks of the shortest path."""
    ways = {}
    for at, case in enumerate(cases):
        if isinstance(case.pair, UnwaitedAccess) and case.finding.severity == "error":
            way = search.way(case.pair.earlier, case.pair.step, case.pair.gap)
            if way:
                ways[at] = search.before_it(case.pair.earlier), way
    made = list(cases)
    for at, clocks in zip(ways, clocks_of(list(ways.values()), arch, waves), strict=True):
        finding = replace(cases[at].finding, clocks_between=clocks.between, clocks_taken=clocks.taken)
        made[at] = replace(cases[at], finding=finding)
    return made


def lacking_clocks(finding: Finding) -> int:
    """Returns the number of clocks missing between the two instructions: 0 if unknown, negative if there are enough."""
    if finding.kind == "hazard":
        return SLOT * (finding.needed - finding.found)
    return finding.clocks_taken - finding.clocks_between


def order(case: Case) -> tuple[Any, ...]:
    """Returns the sort key of a case."""
    finding = case.finding
    rank = RANK[finding.certainty]
    return (
        finding.severity != "error", finding.rule in TOLERATED, rank, -lacking_clocks(finding), finding.pc, finding.other_pc or 0,
        finding.kind,
    )  # fmt: skip


def group_by_cause(cases: Iterable[Case]) -> list[Finding]:
    """Returns the most important finding of each cause, with the number of findings and the next two.

    Findings share a cause if they break the same tolerated rule. Other findings share a cause if their kind, rule, instruction
    names, certainty and loop (or lack of one) are the same.
    """
    groups: dict[Any, list[Finding]] = {}
    for case in sorted(cases, key=order):
        groups.setdefault(_cause(case), []).append(case.finding)
    return [of_one_cause(group) for group in groups.values()]


def _cause(case: Case) -> Any:
    finding = case.finding
    if finding.rule in TOLERATED:
        return finding.rule
    if finding.kind not in IN_LOOPS:
        return finding.kind, finding.pc, finding.other_pc, finding.place
    later, earlier = (words.partition(" ")[0] for words in (finding.text, finding.other_text))
    return finding.kind, finding.severity, finding.rule, finding.certainty, case.loop, later, earlier
