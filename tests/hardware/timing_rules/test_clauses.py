"""Clauses of memory instructions: a walk's findings compared with all pairs of the sequence, by the rule's text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from simgpu.hardware.timing_rules.clauses import LONGEST, continue_clause
from simgpu.hardware.timing_rules.register_use import RegisterUse, register_use
from simgpu.hardware.timing_rules.waits import DS, ROOM, VM, held_up

Number = st.integers(0, 5)


@st.composite
def uses(draw: st.DrawFn) -> RegisterUse:
    kind = draw(st.sampled_from(("smem", "vmem", "vmem", "valu", "")))
    file = "s" if kind == "smem" else "v"
    address = [(file, draw(Number))]
    writes = [(file, draw(Number))] if kind in ("smem", "valu") or draw(st.booleans()) else []
    return register_use("x", {kind} - {""}, {"address": address} if kind != "valu" else {}, writes)


def kind_of(use: RegisterUse) -> frozenset[str]:
    return use.classes & {"smem", "vmem"}


def by_pairs(sequence: list[RegisterUse], xnack: str) -> list[tuple[int, int, int]]:
    """Returns (earlier, later, members between) of each break, oldest earlier one first. A break starts a new clause."""
    found, start = [], 0
    for later, use in enumerate(sequence):
        if later and (not kind_of(use) or kind_of(use) != kind_of(sequence[later - 1])):
            start = later
        if not kind_of(use):
            continue
        first = max(start, later - LONGEST[xnack])
        looked_at = range(first, later)
        if xnack == "any" and not any(sequence[at].writes for at in looked_at):
            continue
        for at in looked_at:
            mine, theirs = sequence[at], use
            if mine.read(("address",)) & theirs.writes or mine.writes & theirs.read(("address",)):
                found.append((at, later, later - at - 1))
                start = later
                break
    return found


@given(st.lists(uses(), max_size=14), st.sampled_from(("on", "any")), st.sampled_from(("gfx908", "gfx90a", "gfx942")))
def test_a_walk_finds_what_pairs_show(sequence: list[RegisterUse], xnack: str, target: str) -> None:
    clause: dict[int, int] = {}
    found = []
    for later in range(len(sequence)):
        clause, overwrite = continue_clause(clause, later, sequence.__getitem__, target, xnack)
        if overwrite is not None:
            assert (overwrite.rule.relation, overwrite.needed) == ("clause", overwrite.found + 1)
            found.append((overwrite.earlier, later, overwrite.found))
    assert found == by_pairs(sequence, xnack)


@given(st.lists(uses(), max_size=5), st.lists(uses(), max_size=5), uses(), st.sampled_from(("on", "any")))
def test_paths_that_meet(one: list[RegisterUse], other: list[RegisterUse], last: RegisterUse, xnack: str) -> None:
    """Joins two paths. The fewest members break on the last instruction if one path does, or if a load of the other counts."""
    sequence = [*one, *other, last]
    ways: list[dict[int, int]] = []
    for numbers in (range(len(one)), range(len(one), len(one) + len(other))):
        clause: dict[int, int] = {}
        for number in numbers:
            clause, _ = continue_clause(clause, number, sequence.__getitem__, "gfx90a", xnack)
        ways.append(clause)
    at = len(sequence) - 1
    alone = [continue_clause(way, at, sequence.__getitem__, "gfx90a", xnack)[1] is not None for way in ways]
    together = continue_clause(ways[0] | ways[1], at, sequence.__getitem__, "gfx90a", xnack)[1] is not None
    assert together >= any(alone)
    if xnack == "on":
        assert together == any(alone)


def test_nothing_where_nothing_is_replayed() -> None:
    load = register_use("s_load_dword", {"smem"}, {"address": [("s", 4)]}, [("s", 4)])
    assert continue_clause({0: 0}, 1, [load, load].__getitem__, "gfx90a", "off") == ({}, None)
    assert continue_clause({0: 0}, 1, [load, load].__getitem__, "gfx950", "on")[1] is None  # it has no such rule


def test_a_full_counter() -> None:
    assert held_up(VM, range(62)) == held_up(DS, range(14)) == {}
    assert held_up(VM, range(63)) == ROOM["vm"] == {"vmcnt": 62}
    assert held_up(DS, [3, 14]) == {"lgkmcnt": 14}
