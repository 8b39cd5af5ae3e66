"""Whether what a finding tells of holds on every path, or on some path only.

An earlier and a later instruction between which something lacks are certain to meet so where

* every path from the kernel's entries to the later one passes the earlier one with too little after it: one basic block holds
  both, or the earlier one dominates the later;
* every path after the earlier one comes with too little between to the later one, or to another one for which the same lacks; or
* in the innermost loop around both, every path after the earlier one that stays in the loop does: certain as soon as the loop
  goes round again.

Paths are those of the graph, of which there are more than can run: what holds on all of them holds whatever the inputs.
"""

from __future__ import annotations

from collections.abc import Collection

from simgpu.checks.lint.flow import Lines
from simgpu.checks.lint.gaps import Gap
from simgpu.checks.lint.steps import LintStep
from simgpu.engine.finding import Certainty
from simgpu.hardware.isa.kinds import ControlKind

LIMIT = 20_000  # instructions that one walk passes; a finding whose walk is longer is one of some path


class PathProof:
    """Proves that two instructions of a graph meet, where they do on every path."""

    def __init__(self, blocks: Lines) -> None:
        self.blocks, self.graph = blocks, blocks.graph
        self._ends = {node for node, after in enumerate(self.graph.following) if not after} | self.graph.unknown

    def certainty(self, earlier: LintStep, later: LintStep, gap: Gap, laters: Collection[int]) -> Certainty:
        """How certain it is that the two meet with no more than the gap's most between them.

        laters: the addresses of all instructions for which the same lacks.
        """
        if self.blocks.precedes(earlier.pc, later.pc) or self._on_every_path_to(earlier, later, gap):
            return "every path"
        if self._after(earlier, laters, gap, None):
            return "every path"
        around = self.blocks.loop_around(earlier.pc, later.pc)
        if around is not None and self._after(earlier, laters, gap, around):
            return "every round"
        return "some path"

    def _on_every_path_to(self, earlier: LintStep, later: LintStep, gap: Gap) -> bool:
        """Walks backwards. What is left is how much may still lie before; the least decides."""
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
                rest = min(room, gap.most if bound is None else bound - 1) - gap.passed(step)
                if rest < 0 or other in graph.unknown:
                    return False
                if rest < left.get(other, rest + 1):
                    left[other] = rest
                    work.append((other, rest))
        return False

    def _after(self, earlier: LintStep, laters: Collection[int], gap: Gap, loop: Collection[int] | None) -> bool:
        """Walks forwards, within the loop's blocks if one is given. The most that lies between decides."""
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
                more = count + gap.passed(step)
                if more > gap.most or (bound is not None and count >= bound) or step.control is ControlKind.ENDPGM:
                    return False
                if more > since.get(other, -1):
                    since[other] = more
                    work.append((other, more))
        return False
