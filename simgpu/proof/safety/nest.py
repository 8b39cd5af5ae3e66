"""A kernel's basic blocks and loops, for a symbolic run that visits each loop as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.kernel import graph_of
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.proof.terms import NotModelled


@dataclass(frozen=True)
class Loop:
    """A loop: the address of its first instruction, and the first addresses of its blocks."""

    head: int
    blocks: frozenset[int]


class LoopNest:
    """Blocks in an order in which only edges of loops go back, and the loops."""

    def __init__(self, code: CodeObject, info: KernelInfo) -> None:
        graph = graph_of(code, info)
        straight = StraightBlocks(graph)
        if any(len(nodes) > 1 for nodes in straight.places.values()) or len(set(graph.calls)) > 1 or not graph.complete:
            raise NotModelled("calls of functions")
        self.starts = [graph.steps[line[0]].pc for line in straight.nodes]
        self.order = {pc: number for number, pc in enumerate(self.starts)}
        self.blocks = straight

    @cached_property
    def loops(self) -> dict[int, Loop]:
        """Loops by the address of their first instruction."""
        made: dict[int, Loop] = {}
        for body in self.blocks.loops:
            head = min(body)
            outside = [block for block in body - {head} for before in self.blocks.preceding[block] if before not in body]
            if outside or self.starts[head] in made:
                raise NotModelled(f"a loop with several entries, at {self.starts[outside[0] if outside else head]:#x}")
            made[self.starts[head]] = Loop(self.starts[head], frozenset(self.starts[block] for block in body))
        return made
