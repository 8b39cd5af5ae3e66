"""Decides whether a finding holds on every path or only on some path.

A finding is about two instructions with too small a gap (waits or wait states) between them. It is certain if one of these holds:
* Every path from the kernel's entries to the later instruction passes the earlier one, with too small a gap after it.
* Every path from the earlier instruction reaches the later one, or another instruction with the same flaw, with too small a gap.
* The same is true of every path that stays in the innermost loop around both: the bug is certain once the loop repeats.

The graph has more paths than can run, so a claim about all of them holds for any input.
"""

from __future__ import annotations

from collections.abc import Collection

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.gaps import Gap
from simgpu.checks.lint.steps import LintStep
from simgpu.engine.finding import Certainty
from simgpu.hardware.isa.kinds import ControlKind

LIMIT = 20_000  # most steps of a walk; a finding with a longer walk counts as "some path"


class PathProof:
    """Proves that two instructions of a graph meet on every path."""

    def __init__(self, blocks: StraightBlocks) -> None:
        self.blocks, self.graph = blocks, blocks.graph
        self._ends = {node for node, after in enumerate(self.graph.following) if not after} | self.graph.unknown

    def certainty(self, earlier: LintStep, later: LintStep, gap: Gap, laters: Collection[int]) -> Certainty:
        """Returns the certainty that a wave executes both with a gap of at most `gap.most`.

        laters: addresses of all instructions with the same flaw.
        """
        if self.blocks.precedes(earlier.pc, later.pc) or self._on_every_path_to(earlier, later, gap):
            return "every path"
        if self._holds_after(earlier, laters, gap, None):
            return "every path"
        around = self.blocks.loop_around(earlier.pc, later.pc)
        if around is not None and self._holds_after(earlier, laters, gap, around):
            return "every round"
        return "some path"

    def _on_every_path_to(self, earlier: LintStep, later: LintStep, gap: Gap) -> bool:
        """True by a walk backwards. It tracks how large the gap may still be at each node; the smallest value decides."""
        graph, preceding = self.graph, self.blocks.nodes_before
        left: dict[int, int] = {}
        work = [(node, gap.most) for node in self.blocks.places[later.pc]]
        for spent in range(LIMIT):
            if not work:
                return spent > 0
            node, room = work.pop()
            if node in graph.entries:
                return False
            for other in preceding[node]:
                step = graph.steps[other]
                if step.pc in (earlier.pc, later.pc):
                    continue
                bound = gap.bound(step)
                rest = min(room, gap.most if bound is None else bound - 1) - gap.advance(step)
                if rest < 0 or other in graph.unknown:
                    return False
                if rest < left.get(other, rest + 1):
                    left[other] = rest
                    work.append((other, rest))
        return False

    def _holds_after(self, earlier: LintStep, laters: Collection[int], gap: Gap, loop: Collection[int] | None) -> bool:
        """True by a walk forwards, within the blocks of `loop` if passed. The largest gap at each node decides."""
        graph = self.graph
        since: dict[int, int] = {}
        work = [(node, 0) for node in self.blocks.places[earlier.pc]]
        met = False
        for _ in range(LIMIT):
            if not work:
                return met
            node, count = work.pop()
            if node in self._ends:
                return False
            for other in graph.following[node]:
                step = graph.steps[other]
                if loop is not None and self.blocks.spots[other][0] not in loop:
                    continue
                if step.pc in laters or step.pc == earlier.pc:
                    met |= step.pc in laters
                    continue
                bound = gap.bound(step)
                more = count + gap.advance(step)
                if more > gap.most or (bound is not None and count >= bound) or step.control is ControlKind.ENDPGM:
                    return False
                if more > since.get(other, -1):
                    since[other] = more
                    work.append((other, more))
        return False
