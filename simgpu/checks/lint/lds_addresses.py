"""Finds the bytes of LDS that accesses touch, if only scalar code and work-item numbers decide their addresses.

A data-flow analysis tracks the contents of SGPRs and VGPRs for each work-item of a workgroup: work-item numbers, constants, and
values that instructions compute from these. Loaded values are unknown. Where paths meet, only values on which they agree are
kept. The result shows for some accesses that they do not overlap those of other waves after a barrier, and for some that they do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.checks.lint.flow import StraightBlocks
from simgpu.checks.lint.registers import EXEC, FILES, span
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.code_object.kernels import KernelInfo
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.constants import INTEGERS
from simgpu.hardware.isa.instruction import Const, Imm, Literal, Operand, Reg
from simgpu.hardware.isa.kinds import ControlKind, Flag
from simgpu.hardware.isa.lane_numpy import evaluate

Known = Mapping[int, np.ndarray]  # uint32 of each work-item, by a register's bit; EXEC's bit is present while all lanes are active
ALL_LANES = EXEC.bit_length() - 1
NOTHING: Known = {}
WORD = 0xFFFFFFFF
MOST_WORDS = 160 << 8  # words of 4 bytes in the largest LDS
X_BITS = 0x3FF  # bits of v0 that hold the number along x, if v0 holds those of all axes
SOURCES = ("src0", "src1", "src2")
CONFLICTS = {"read": ("write", "atomic"), "write": ("read", "write", "atomic"), "atomic": ("read", "write")}


@dataclass(frozen=True)
class LdsFootprint:
    """Words of 4 bytes that an access touches."""

    first: np.ndarray  # number of the first word of each work-item
    words: int  # number of words
    whole: bool  # True if all lanes are active

    def same(self, other: LdsFootprint) -> bool:
        """True if both accesses touch the same words."""
        return self.words == other.words and self.whole == other.whole and np.array_equal(self.first, other.first)


class LdsAddresses:
    """LDS accesses of one kernel."""

    def __init__(self, blocks: StraightBlocks, kernel: KernelInfo) -> None:
        self.blocks, self.kernel = blocks, kernel
        size = kernel.required_workgroup_size
        self.work_items = size[0] if len(size) == 3 and size[1:] == (1, 1) and size[0] % WAVEFRONT == 0 else 0
        self._behind: dict[int, list[LintStep] | None] = {}
        self._marks: dict[int, np.ndarray] = {}

    def disjoint(self, operation: int, barrier: int) -> bool:
        """True if no conflicting access of another wave after a barrier touches the words of an operation."""
        mine, others = self._words(operation), self.accesses_after(barrier)
        if mine is None or others is None:
            return False
        uses = CONFLICTS[self.blocks.graph.known[operation].lds]
        touched = [self._words(step.pc) for step in others if step.lds in uses]
        return all(theirs is not None and not _meet(mine, theirs) for theirs in touched)

    def overlap(self, operation: int, barrier: int) -> bool:
        """True if an access after the barrier, in the same block, certainly conflicts with an operation in another wave."""
        mine = self._words(operation)
        uses = CONFLICTS[self.blocks.graph.known[operation].lds]
        for node in self.blocks.places[barrier] if mine is not None and self._accesses[operation].whole else ():
            block, at = self.blocks.spots[node]
            for step in self.blocks.steps(block)[at + 1 :]:
                if step.control is ControlKind.BARRIER:
                    break
                theirs = self._words(step.pc) if step.lds in uses else None
                if mine is not None and theirs is not None and self._accesses[step.pc].whole and _meet(mine, theirs):
                    return True
        return False

    def accesses_after(self, barrier: int) -> list[LintStep] | None:
        """Returns the LDS accesses from a barrier to the next ones, None if waves may also meet at another barrier."""
        if barrier not in self._behind:
            self._behind[barrier] = self._find_accesses(barrier)
        return self._behind[barrier]

    def _find_accesses(self, barrier: int) -> list[LintStep] | None:
        found: dict[int, LintStep] = {}
        work = [node for place in self.blocks.places[barrier] for node in self.blocks.graph.following[place]]
        if self.blocks.places[barrier][0] in self._unordered_barriers or self.blocks.graph.unknown:
            return None
        seen = set(work)
        while work:
            node = work.pop()
            step = self.blocks.graph.steps[node]
            if step.lds:
                found[step.pc] = step
            if step.control is ControlKind.BARRIER:
                continue
            more = [other for other in self.blocks.graph.following[node] if other not in seen]
            seen.update(more)
            work += more
        return list(found.values())

    @functools.cached_property
    def _unordered_barriers(self) -> frozenset[int]:
        """Barriers for which there is another one such that no path joins the two: waves may meet at both."""
        barriers = [node for node, step in enumerate(self.blocks.graph.steps) if step.control is ControlKind.BARRIER]
        reached = {node: self._reachable_nodes(node) for node in barriers}
        return frozenset(
            one for one in barriers
            if any(other not in reached[one] and one not in reached[other] for other in barriers if other != one)
        )  # fmt: skip

    def _reachable_nodes(self, start: int) -> set[int]:
        """Returns the nodes to which a path leads from `start`."""
        block, at = self.blocks.spots[start]
        seen: set[int] = set()
        work = list(self.blocks.following[block])
        while work:
            other = work.pop()
            if other not in seen:
                seen.add(other)
                work += self.blocks.following[other]
        return {*self.blocks.nodes[block][at + 1 :], *(node for other in seen for node in self.blocks.nodes[other])}

    # -- addresses ---------------------------------------------------------------------------------

    @functools.cached_property
    def _accesses(self) -> dict[int, LdsFootprint]:
        """Accesses with known addresses, by the address of the instruction."""
        steps = self.blocks.graph.known.values()
        accesses = [step for step in steps if step.lds and "ds" in step.effect.access.classes]
        if not self.work_items or not accesses:
            return {}
        before = self._flow(_slice(steps, accesses))
        found: dict[int, LdsFootprint] = {}
        for step in accesses:
            ways = [self._access(step, before[node]) for node in self.blocks.places.get(step.pc, ()) if node in before]
            first = ways[0] if ways else None
            if first is not None and all(way is not None and first.same(way) for way in ways):
                found[step.pc] = first
        return found

    def _access(self, step: LintStep, known: Known) -> LdsFootprint | None:
        memory, mods = step.inst.spec.memory, step.inst.mods
        base = _value(step.inst.args.get("addr"), known, self.work_items)
        if memory is None or memory.stride or Flag.ADDTID in step.inst.spec.flags or base is None or mods.get("gds"):
            return None
        first, words = base.astype(np.int64) + int(mods.get("offset", 0)), memory.bits * memory.count // 32
        if words == 0 or (first % 4).any() or int(first.max()) // 4 + words > MOST_WORDS:
            return None
        return LdsFootprint(first // 4, words, ALL_LANES in known)

    def _words(self, pc: int) -> np.ndarray | None:
        """Returns for each dword of LDS the waves, as bits, in which an access touches it; None if unknown."""
        access = self._accesses.get(pc)
        if access is None:
            return None
        if pc not in self._marks:
            waves = np.zeros(MOST_WORDS, np.uint32)
            marks = np.uint32(1) << (np.arange(self.work_items) // WAVEFRONT).astype(np.uint32)
            for word in range(access.words):
                np.bitwise_or.at(waves, access.first + word, marks)
            self._marks[pc] = waves
        return self._marks[pc]

    def _flow(self, relevant: int) -> dict[int, Known]:
        """Returns the values known before each access, by its node."""
        blocks = self.blocks
        before: list[Known | None] = [None] * len(blocks.nodes)
        found: dict[int, Known] = {}
        work = list(blocks.entries)
        for entry in work:
            before[entry] = self._at_entry()
        while work:
            block = work.pop()
            known = before[block]
            assert known is not None
            held = _known_registers(known)
            for node in blocks.nodes[block]:
                step = blocks.graph.steps[node]
                if step.lds:
                    found[node] = known
                # An instruction with an unknown source can only make its result unknown.
                if step.writes & relevant and (step.writes & held or not step.reads & ~held):
                    known = self._transfer(step, known)
                    held = _known_registers(known)
            for other in blocks.following[block]:
                had = before[other]
                joined = known if had is None else _common(had, known)
                if had is None or len(joined) < len(had):
                    before[other] = joined
                    work.append(other)
        return found

    def _at_entry(self) -> Known:
        numbers = np.arange(self.work_items, dtype=np.uint32)
        return {FILES["v"]: numbers, ALL_LANES: numbers}

    def _transfer(self, step: LintStep, known: Known) -> Known:
        kept = {bit: value for bit, value in known.items() if not step.writes >> bit & 1}
        inst = step.inst
        if step.writes & EXEC and inst.mnemonic == "s_mov_b64" and inst.args.get("src0") == Const(193):  # -1
            kept[ALL_LANES] = np.arange(self.work_items, dtype=np.uint32)
        target = inst.args.get("vdst") or inst.args.get("sdst")
        if isinstance(target, Reg) and target.count == 1 and (ALL_LANES in known or inst.mnemonic.startswith("s_")):
            value = self._result(step, known)
            if value is not None:
                kept[(span(target.file, target.index, 1)).bit_length() - 1] = value
        return kept

    def _result(self, step: LintStep, known: Known) -> np.ndarray | None:
        """Returns an instruction's result for each work-item, None if unknown."""
        inst, spec = step.inst, step.inst.spec
        if inst.mods or inst.form not in ("e32", "e64"):
            return None
        sources = [_value(inst.args[name], known, self.work_items) for name in SOURCES if name in inst.args]
        if inst.mnemonic == "v_readfirstlane_b32" and sources[0] is not None:
            return np.repeat(sources[0][::WAVEFRONT], WAVEFRONT)
        if inst.mnemonic == "v_cndmask_b32":
            return _select_lanes(inst.args.get("src2"), sources, known)
        if self.kernel.packs_work_items and step.reads & 1 and known.get(FILES["v"]) is not None and not _masks(step):
            return None  # v0 holds more than the number along x
        operands = [param for param in spec.params if param.type.state != "modifier"]
        plain = all(param.type.bits == 32 and not param.type.state for param in operands)
        if spec.kind != "lane" or spec.body is None or not plain or len(operands) != len(sources) or spec.results[0].bits != 32:
            return None
        if any(source is None for source in sources) or any(result.state not in ("", "scc") for result in spec.results):
            return None
        modifiers = {param.name: 0 for param in spec.params if param.type.state == "modifier"}
        given: Any = evaluate(spec, *sources, **modifiers)
        value = np.asarray(given[0] if isinstance(given, tuple) else given)
        return np.broadcast_to(value.view(np.uint32) if value.dtype.itemsize == 4 else value.astype(np.uint32), (self.work_items,))


def _known_registers(known: Known) -> int:
    """Returns the known registers and EXEC, as bits."""
    found = EXEC
    for bit in known:
        found |= 1 << bit
    return found


def _masks(step: LintStep) -> bool:
    """True if an instruction extracts the number along x from v0."""
    literal = Literal(X_BITS)
    return step.inst.mnemonic == "v_and_b32" and literal in (step.inst.args.get("src0"), step.inst.args.get("src1"))


def _value(operand: Operand | None, known: Known, count: int) -> np.ndarray | None:
    if isinstance(operand, Reg) and operand.count == 1:
        return known.get(span(operand.file, operand.index, 1).bit_length() - 1)
    number = INTEGERS.get(operand.code) if isinstance(operand, Const) else None
    if isinstance(operand, Literal | Imm):
        number = operand.value
    return None if number is None else np.full(count, number & WORD, np.uint32)


def _select_lanes(mask: Operand | None, sources: list[np.ndarray | None], known: Known) -> np.ndarray | None:
    """Returns the result of v_cndmask_b32 for a known mask, a bit a lane."""
    if not isinstance(mask, Reg) or mask.count != 2 or sources[0] is None or sources[1] is None:
        return None
    first = span(mask.file, mask.index, 1).bit_length() - 1
    low, high = known.get(first), known.get(first + 1)
    if low is None or high is None:
        return None
    lane = (np.arange(len(low)) % WAVEFRONT).astype(np.uint64)
    chosen = (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)) >> lane & np.uint64(1)
    return np.where(chosen == 1, sources[1], sources[0])


def _slice(steps: Iterable[LintStep], accesses: Iterable[LintStep]) -> int:
    """Returns the registers that addresses depend on, and EXEC, as bits."""
    steps = [step for step in steps if not step.pending]
    wanted = EXEC
    for step in accesses:
        addr = step.inst.args.get("addr")
        if isinstance(addr, Reg):
            wanted |= span(addr.file, addr.index, addr.count)
    before = 0
    while before != wanted:
        before = wanted
        for step in steps:
            if step.writes & wanted and not step.writes & EXEC and "mfma" not in step.effect.access.classes:
                wanted |= step.reads & ~EXEC
    return wanted


def _common(one: Known, other: Known) -> Known:
    if one is other:
        return one
    return {
        bit: value for bit, value in one.items()
        if bit in other and (value is other[bit] or np.array_equal(value, other[bit]))
    }  # fmt: skip


def _meet(one: np.ndarray, other: np.ndarray) -> bool:
    """True if two different waves touch the same dword, one in each access."""
    both = (one != 0) & (other != 0)
    alone = (one == other) & (one & (one - np.uint32(1)) == 0)
    return bool((both & ~alone).any())
