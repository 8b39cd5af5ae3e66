"""Control flow: successors of an instruction, and the basic blocks of a graph of instructions.

Addresses count bytes from the caller's origin: in memory, in a code object or in a buffer. They are computed, never
looked up: a target may be outside the code or in the middle of an instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simgpu.hardware.isa.instruction import Imm, Instruction, Literal
from simgpu.hardware.isa.kinds import CONDITIONAL_BRANCHES, ControlKind

# Instructions after which the wave executes nothing more of this code.
ENDS = frozenset((
    ControlKind.ENDPGM, ControlKind.ENDPGM_SAVED, ControlKind.ENDPGM_ORDERED_PS_DONE, ControlKind.TRAP, ControlKind.RFE,
))  # fmt: skip
STOPS = ENDS | {ControlKind.BRANCH, ControlKind.SETPC, ControlKind.ADDPC}  # the next instruction does not run after them
INDIRECT = frozenset((ControlKind.SETPC, ControlKind.SWAPPC))  # jumps whose target is data
FORKS = frozenset((ControlKind.CBRANCH_I_FORK, ControlKind.CBRANCH_G_FORK, ControlKind.CBRANCH_JOIN))  # the branch stack decides
DIRECT = frozenset((ControlKind.BRANCH, ControlKind.CALL, *CONDITIONAL_BRANCHES))


def branch_target(inst: Instruction, at: int) -> int | None:
    """Returns the target address of a direct branch or call at address `at`; None for other instructions.

    Source: ISA guides, S_BRANCH: "PC = PC + signext(SIMM16 * 4) + 4".
    """
    if inst.spec.control is ControlKind.ADDPC:
        return _far_target(inst, at)
    immediate = inst.args.get("simm16")
    if inst.spec.control not in DIRECT or not isinstance(immediate, Imm):
        return None
    distance = immediate.value & 0xFFFF
    return at + inst.size + 4 * (distance - (distance >> 15 << 16))


def _far_target(inst: Instruction, at: int) -> int | None:
    """Returns the target of an s_add_pc_i64 by a literal, which a compiler uses for branches that are too far for 16 bits."""
    distance = inst.args.get("src0")
    return at + inst.size + distance.value - (distance.value >> 63 << 64) if isinstance(distance, Literal) else None


def falls_through(control: ControlKind) -> bool:
    """True if the next instruction may run after one of this kind; for a call, when the function has returned."""
    return control is ControlKind.NONE or control not in STOPS


def successors(inst: Instruction, at: int) -> list[int]:
    """Returns the successors of an instruction at address `at`: first the next one, then the branch's target.

    Conditional branches go both ways, including debugger branches. Targets of `INDIRECT` jumps are not
    known here.
    """
    if inst.spec.control is ControlKind.NONE:
        return [at + inst.size]
    following = [at + inst.size] if falls_through(inst.spec.control) else []
    target = branch_target(inst, at)
    return following if target is None else [*following, target]


class Blocks:
    """Basic blocks of a graph that are reachable from its entries, in reverse postorder: only edges in loops go backward.

    nodes: the nodes of each block, in order; following, preceding: successors and predecessors of each block; entries: the
    blocks that start with the entries.
    """

    def __init__(self, following: Sequence[Sequence[int]], entries: Sequence[int]) -> None:
        """following: the successors of each node, without duplicates; entries: nodes."""
        lines = _lines(following, _leaders(following, entries))
        order = _reverse_postorder({leader: following[line[-1]] for leader, line in lines.items()}, entries)
        number = {leader: block for block, leader in enumerate(order)}
        self.nodes = [lines[leader] for leader in order]
        self.following = [[number[node] for node in following[line[-1]]] for line in self.nodes]
        self.preceding: list[list[int]] = [[] for _ in self.nodes]
        for block, after in enumerate(self.following):
            for other in after:
                self.preceding[other].append(block)
        self.entries = [number[node] for node in entries]


def _leaders(following: Sequence[Sequence[int]], entries: Sequence[int]) -> set[int]:
    """Returns the first nodes of blocks: entries, nodes with several predecessors, and successors of a branching node."""
    ways = [0] * len(following)
    for after in following:
        for node in after:
            ways[node] += 1
    several = {node for node, count in enumerate(ways) if count > 1}
    return several.union(entries, *(after for after in following if len(after) > 1))


def _lines(following: Sequence[Sequence[int]], leaders: set[int]) -> dict[int, list[int]]:
    """Returns the nodes of the block of each leader: up to the next leader, or to a node without a single successor."""
    lines = {}
    for leader in leaders:
        lines[leader] = line = [leader]
        while len(after := following[line[-1]]) == 1 and after[0] not in leaders:
            line.append(after[0])
    return lines


def _reverse_postorder(following: Mapping[int, Sequence[int]], entries: Sequence[int]) -> list[int]:
    """Returns the nodes that are reachable from the entries, in reverse postorder of a depth-first walk."""
    entered: set[int] = set()
    left: list[int] = []
    for entry in entries:
        stack = [(entry, iter(following[entry]))] if entry not in entered else []
        entered.add(entry)
        while stack:
            node, others = stack[-1]
            other = next((other for other in others if other not in entered), None)
            if other is None:
                left.append(node)
                stack.pop()
            else:
                entered.add(other)
                stack.append((other, iter(following[other])))
    return left[::-1]
