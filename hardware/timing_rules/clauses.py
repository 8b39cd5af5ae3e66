"""Clauses: consecutive memory instructions of one kind, which XNACK may replay together.

One of them must not overwrite an address that another one reads: on replay it would be read anew. An instruction of another kind
must break the clause before. Where the code object leaves XNACK open, compilers break clauses as LLVM does
(GCNHazardRecognizer::checkSoftClauseHazards): looking back at five instructions, and only if one of them loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simgpu.hardware.timing_rules.hazards import HazardRule, clause_rule
from simgpu.hardware.timing_rules.register_use import RegisterUse

KINDS = frozenset({"vmem", "smem"})  # classes of `RegisterUse`; one clause has one of them
LONGEST = {"on": 64, "any": 5}  # instructions that are looked back at, by the code object's XNACK setting; none where it is off

Clause = Mapping[int, int]  # by member, the number of members after it: the fewest, where several paths lead here


@dataclass(frozen=True)
class Overwrite:
    """An instruction of a clause that may not follow an earlier member in it."""

    earlier: int
    rule: HazardRule
    needed: int  # wait states
    found: int


def continued(
    clause: Clause, later: int, use: Callable[[int], RegisterUse], target: str, xnack: str
) -> tuple[dict[int, int], Overwrite | None]:
    """The clause after instruction `later`, and what that overwrites; after that the clause counts as broken before `later`.

    use: what the hazard rules see of an instruction, by the number that stands for it in `clause`.
    """
    if xnack not in LONGEST or not (kinds := use(later).classes & KINDS):
        return {}, None
    members = {number: since for number, since in clause.items() if kinds & use(number).classes}
    overwrite = None
    if xnack == "on" or any(use(number).writes for number in members):
        for number in sorted(members, key=lambda number: -members[number]):
            rule = clause_rule(use(number), use(later), target)
            if rule is not None:
                overwrite = Overwrite(number, rule, members[number] + 1, members[number])
                members = {}
                break
    kept = {number: since + 1 for number, since in members.items() if since + 1 < LONGEST[xnack]}
    return kept | {later: 0}, overwrite
