"""Finds barriers that a wave skips because none of its lanes is active, while other waves of its workgroup wait there.

A branch on EXEC is reported if it may go both ways and only one way has an s_barrier before the two meet again. The analysis does
not prove that waves differ in EXEC there. It assumes that all waves of a workgroup take branches on SCC and VCC alike. Branches to
which waves come with all of their lanes, and two by which halves of a workgroup take turns (`turns`), are not reported.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.steps import LintStep
from simgpu.checks.lint.turns import Selection, selections
from simgpu.hardware.isa.kinds import STATE_BRANCHES, ControlKind

END = -1


@dataclass(frozen=True)
class Uneven:
    """A barrier on only one way of a branch on EXEC."""

    barrier: LintStep
    branch: LintStep
    taken: bool  # True if the barrier is on the way of the taken branch
    block: int  # the branch's
    count: int  # barriers on that way


def uneven(blocks: StraightBlocks, taken: Collection[tuple[int, bool]], packed: bool, items: int) -> list[Uneven]:
    """Returns the barriers on only one way of a branch on EXEC.

    taken: directions (address, True if taken) of branches that some path takes. packed, items: see `turns.selections`
    """
    holding = {
        block: step for block in range(len(blocks.nodes)) for step in blocks.steps(block) if _is_barrier(step)
    }
    if not holding:
        return []
    meeting = post_dominators(blocks)
    found = []
    for block in range(len(blocks.nodes)):
        last, ways = blocks.steps(block)[-1], blocks.following[block]
        if STATE_BRANCHES.get(last.control, ("", False))[0] != "exec" or len(ways) != 2:
            continue
        if not {(last.pc, True), (last.pc, False)} <= set(taken):
            continue
        between = [_reachable_blocks(blocks, way, meeting[block]) for way in ways]
        barriers = [[holding[at] for at in sorted(reached) if at in holding] for reached in between]
        for mine, others, way, reached in zip(barriers, reversed(barriers), ways, between, strict=True):
            if mine and not others:
                count = sum(_is_barrier(step) for other in reached for step in blocks.steps(other))
                found.append(Uneven(mine[0], last, blocks.steps(way)[0].pc == last.target, block, count))
    if not found:
        return found
    selected = selections(blocks, packed, items)
    # A wave with all of its lanes takes a branch on EXEC one way only. LLVM leaves such branches behind loops.
    found = [one for one in found if not (one.branch.pc in selected and selected[one.branch.pc].is_whole)]
    pairs = (pair for pair in itertools.permutations(found, 2) if _take_turns(*pair, blocks, meeting, selected))
    in_turns = set(itertools.chain.from_iterable(pairs))
    return [one for one in found if one not in in_turns]


def _take_turns(
    first: Uneven, last: Uneven, blocks: StraightBlocks, meeting: Sequence[int], selected: Mapping[int, Selection]
) -> bool:
    """True if each wave meets just one of two barriers, each once, where all waves come to both branches."""
    here, there = (selected.get(each.branch.pc) for each in (first, last))
    if here is None or there is None or not here.completes(there):
        return False
    block = first.block
    while block not in (END, last.block):
        block = meeting[block]
    return block == last.block and all(
        each.count == 1 and each.taken == STATE_BRANCHES[each.branch.control][1] and not blocks.loop_around(each.branch.pc)
        for each in (first, last)
    )


def _reachable_blocks(blocks: StraightBlocks, start: int, end: int) -> set[int]:
    """Returns the blocks on the paths from `start` to `end`, without `end`."""
    seen: set[int] = set()
    pending = [start]
    while pending:
        block = pending.pop()
        if block != end and block not in seen:
            seen.add(block)
            pending += blocks.following[block]
    return seen


def post_dominators(blocks: StraightBlocks) -> list[int]:
    """Returns each block's immediate post-dominator; END if it has none.

    Algorithm: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), on the reversed graph, with END before all
    blocks.
    """
    count = len(blocks.nodes)
    before = blocks.preceding  # edges of the reversed graph
    order: list[int] = []  # blocks in post-order of the reversed graph
    seen = [False] * count
    roots = [block for block in range(count) if not blocks.following[block]]
    for root in roots or range(count - 1, -1, -1):
        stack = [] if seen[root] else [(root, iter(before[root]))]
        seen[root] = True
        while stack:
            block, behind = stack[-1]
            unseen = next((one for one in behind if not seen[one]), None)
            if unseen is None:
                order.append(block)
                stack.pop()
            else:
                seen[unseen] = True
                stack.append((unseen, iter(before[unseen])))
    rank = {block: at for at, block in enumerate(order)} | {END: len(order)}
    meeting: dict[int, int] = {END: END}
    meeting |= dict.fromkeys(roots, END)
    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            if not blocks.following[block]:
                continue
            meets: int | None = None
            for other in blocks.following[block]:
                if other in meeting:
                    meets = other if meets is None else _common(meets, other, meeting, rank)
            if meets is not None and meeting.get(block) != meets:
                meeting[block] = meets
                changed = True
    return [meeting.get(block, END) for block in range(count)]


def _common(one: int, other: int, meeting: Mapping[int, int], rank: Mapping[int, int]) -> int:
    """Returns the nearest common post-dominator of two blocks."""
    while one != other:
        if rank[one] < rank[other]:
            one = meeting[one]
        else:
            other = meeting[other]
    return one


USES = ("read", "write", "atomic")


def lds_behind(blocks: StraightBlocks) -> dict[int, frozenset[str]]:
    """Returns the uses of LDS (`USES`) that may follow each barrier before the next ones, by the barrier's address.

    Waves may meet at two different barriers if no path leads from one to the other. The uses after one of them then count for the
    other, too.
    """
    barriers = [
        (block, at) for block in range(len(blocks.nodes)) for at, step in enumerate(blocks.steps(block)) if _is_barrier(step)
    ]
    # Bits after the start of each block: uses up to the next barrier, and barriers that a path leads to.
    uses, reached = [0] * len(blocks.nodes), [0] * len(blocks.nodes)
    number = {place: 1 << at for at, place in enumerate(barriers)}
    changed = bool(barriers)
    while changed:
        changed = False
        for block in reversed(range(len(blocks.nodes))):
            found = _lds_uses(blocks, block, 0, uses), _reached_from(blocks, block, 0, reached, number)
            changed |= found != (uses[block], reached[block])
            uses[block], reached[block] = found
    near = [_lds_uses(blocks, block, at + 1, uses) for block, at in barriers]
    far = [_reached_from(blocks, block, at + 1, reached, number) for block, at in barriers]
    behind: dict[int, int] = {}
    for one, (block, at) in enumerate(barriers):
        apart = (near[two] for two in range(len(barriers)) if not (far[one] >> two | far[two] >> one) & 1)
        pc = blocks.steps(block)[at].pc
        behind[pc] = functools.reduce(int.__or__, apart, behind.get(pc, 0) | near[one])
    return {pc: frozenset(use for at, use in enumerate(USES) if bits >> at & 1) for pc, bits in behind.items()}


def _is_barrier(step: LintStep) -> bool:
    return step.control is ControlKind.BARRIER


def _lds_uses(blocks: StraightBlocks, block: int, at: int, behind: list[int]) -> int:
    """Returns the uses of LDS from a place in a block to the next barriers."""
    found = 0
    for step in blocks.steps(block)[at:]:
        if _is_barrier(step):
            return found
        if use := step.lds:
            found |= 1 << USES.index(use)
    return functools.reduce(int.__or__, (behind[other] for other in blocks.following[block]), found)


def _reached_from(blocks: StraightBlocks, block: int, at: int, behind: list[int], number: Mapping[tuple[int, int], int]) -> int:
    """Returns the barriers to which a path leads from a place in a block."""
    own = (number.get((block, place), 0) for place in range(at, len(blocks.nodes[block])))
    return functools.reduce(int.__or__, (behind[other] for other in blocks.following[block]), sum(own))
