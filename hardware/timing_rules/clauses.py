"""Clauses: consecutive memory instructions of one kind, which XNACK may replay together.

No instruction of a clause may overwrite an address register that another one reads: a replay would read the new value. An
instruction of another kind must break the clause before it. For code objects that work with XNACK on or off ("any"), clauses are
checked as LLVM does (GCNHazardRecognizer::checkSoftClauseHazards): back to five instructions, and only if one of them loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simgpu.hardware.timing_rules.hazards import HazardRule, clause_rule
from simgpu.hardware.timing_rules.register_use import RegisterUse

KINDS = frozenset({"vmem", "smem"})  # classes of `RegisterUse`; a clause has one of them
LONGEST = {"on": 64, "any": 5}  # instructions to look back at, by the code object's XNACK setting; none if it is off

Clause = Mapping[int, int]  # by member, the number of members after it: the fewest over all paths


@dataclass(frozen=True)
class Overwrite:
    """A violation: an instruction that must not be in one clause with an earlier member."""

    earlier: int  # number of the earlier member
    rule: HazardRule  # the rule violated
    needed: int  # wait states required
    found: int  # wait states between the two


def continue_clause(
    clause: Clause, later: int, use: Callable[[int], RegisterUse], target: str, xnack: str
) -> tuple[dict[int, int], Overwrite | None]:
    """Returns (the clause after instruction `later`, the `Overwrite` by `later` or None).

    After an Overwrite, the clause consists of `later` only. use: returns the `RegisterUse` of an instruction by its number.
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
