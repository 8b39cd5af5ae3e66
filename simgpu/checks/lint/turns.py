"""Finds the two barriers by which halves of a workgroup take turns.

Kernels that keep matrix units and memory busy at once let half of their waves lag by one barrier. Those waves meet an extra
barrier first, the others an extra one last. Each wave then meets the same number of barriers, and misses none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from simgpu.checks.lint.compares import constant
from simgpu.checks.lint.flow import PathAnalysis, StraightBlocks, examine
from simgpu.checks.lint.registers import EXEC, FILES, bits
from simgpu.checks.lint.steps import LintStep
from simgpu.checks.lint.work_items import X_BITS
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.instruction import Operand, Reg
from simgpu.hardware.timing_rules.effects import registers_of

# Work-items (low, high - 1) for which `number OP item` holds, by the comparison's mnemonic. last: more than any item
SELECTED: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "v_cmp_gt_u32": lambda number, last: (0, number), "v_cmp_ge_u32": lambda number, last: (0, number + 1),
    "v_cmp_lt_u32": lambda number, last: (number + 1, last), "v_cmp_le_u32": lambda number, last: (number, last),
    "v_cmp_eq_u32": lambda number, last: (number, number + 1),
    "v_cmp_ne_u32": lambda number, last: (1, last) if number == 0 else (0, 0),
}  # fmt: skip
MIRRORED = {"v_cmp_gt_u32": "v_cmp_lt_u32", "v_cmp_ge_u32": "v_cmp_le_u32", "v_cmp_lt_u32": "v_cmp_gt_u32",
            "v_cmp_le_u32": "v_cmp_ge_u32", "v_cmp_eq_u32": "v_cmp_eq_u32", "v_cmp_ne_u32": "v_cmp_ne_u32"}  # fmt: skip


class Known(NamedTuple):
    """A fact about registers. It ends when one of them is written."""

    registers: int  # as bits
    # item: the work-item's number along x, shifted right by `low`. packed: the numbers along all axes. number: a constant, `low`.
    # all: the lanes that the wave began with. mask: of these the lanes of work-items low to high - 1.
    kind: str
    low: int = 0
    high: int = 0


State = frozenset[Known]


class Selection(NamedTuple):
    """Work-items that are active at a branch, low to high - 1."""

    branch: int  # address
    low: int
    high: int
    items: int  # the workgroup's work-items

    @property
    def is_whole(self) -> bool:
        """True if all lanes are active that the wave began with."""
        return (self.low, self.high) == (0, self.items)

    def completes(self, other: Selection) -> bool:
        """True if each wave is active in just one of the two."""
        first, second = sorted((self, other), key=lambda each: each.low)
        return (first.low, second.high) == (0, self.items) and first.high == second.low and first.high % WAVEFRONT == 0


class Selections(PathAnalysis[State, Selection]):
    """Follows masks of lanes from comparisons of the work-item's number to branches."""

    def __init__(self, packed: bool, items: int) -> None:
        """packed: v0 has the numbers along y and z, too. items: most work-items of a workgroup"""
        self.packed, self.items = packed, items

    def begin(self, step: LintStep) -> State:
        return frozenset({Known(EXEC, "all"), Known(1 << FILES["v"], "packed" if self.packed else "item")})

    def forget(self, state: State) -> State:
        return frozenset()

    def join(self, state: State, other: State) -> State | None:
        return None if state <= other else state & other

    def size(self, state: State) -> int:
        return len(state)

    def transfer(self, state: State, steps: Sequence[LintStep], tell: Callable[[Selection], None]) -> State:
        for step in steps:
            made = _new_facts(step, state, self.items)
            state = frozenset(known for known in state if not known.registers & step.writes) | made
        active = Known(EXEC, "mask", 0, self.items) if _find(state, EXEC, "all") else _find(state, EXEC, "mask")
        if active is not None:
            tell(Selection(steps[-1].pc, active.low, active.high, self.items))
        return state


def _new_facts(step: LintStep, state: State, items: int) -> State:
    """Returns the facts that hold because of an instruction."""
    name, args = step.inst.mnemonic, step.inst.args
    if step.inst.mods:
        return frozenset()
    if name in ("s_mov_b32", "s_movk_i32"):
        immediate = args.get("simm16")
        value = constant(args.get("src0")) if immediate is None else getattr(immediate, "value", None)
        return frozenset() if value is None else frozenset({Known(_bits(args["sdst"]), "number", value)})
    if name == "v_mov_b32" and (item := _find(state, _bits(args["src0"]), "item")):
        return frozenset({item._replace(registers=_bits(args["vdst"]))})
    if name == "v_lshrrev_b32" and (item := _find(state, _bits(args["src1"]), "item")):
        shift = constant(args["src0"])
        return frozenset() if shift is None else frozenset({Known(_bits(args["vdst"]), "item", item.low + shift % 32)})
    if name == "v_and_b32" and _find(state, _bits(args["src1"]), "packed") and constant(args["src0"]) == X_BITS:
        return frozenset({Known(_bits(args["vdst"]), "item")})
    if name in SELECTED:
        return _selected_lanes(step, state, items)
    if name == "s_and_saveexec_b64" and _find(state, EXEC, "all"):
        mask = _find(state, _bits(args["src0"]), "mask")
        saved = Known(_bits(args["sdst"]), "all")
        return frozenset({saved, mask._replace(registers=EXEC)} if mask else {saved})
    sources = [args[source] for source in ("src0", "src1") if source in args]
    moves_all = any(_find(state, _bits(source), "all") for source in sources)
    if name == "s_mov_b64" and (moves_all or (step.writes & EXEC and constant(sources[0]) == -1)):
        return frozenset({Known(_bits(args["sdst"]), "all")})
    if name == "s_or_b64" and step.writes & EXEC and moves_all:
        return frozenset({Known(EXEC, "all")})
    return frozenset()


def _selected_lanes(step: LintStep, state: State, items: int) -> State:
    """Returns the lanes that a comparison of the work-item's number with a constant selects."""
    args = step.inst.args
    for name, number, item in ((step.inst.mnemonic, "src0", "src1"), (MIRRORED[step.inst.mnemonic], "src1", "src0")):
        value, found = constant(args[number]), _find(state, _bits(args[item]), "item")
        if value is None and (held := _find(state, _bits(args[number]), "number")):
            value = held.low
        if found is not None and value is not None and value >= 0:
            shift = found.low
            low, high = SELECTED[name](value, (items - 1 >> shift) + 1)
            return frozenset({Known(_bits(args["sdst"]), "mask", low << shift, min(high << shift, items))})
    return frozenset()


def _find(state: State, registers: int, kind: str) -> Known | None:
    return next((known for known in state if known.registers == registers and known.kind == kind), None)


def _bits(operand: Operand | None) -> int:
    return bits(registers_of(operand)) if isinstance(operand, Reg) else 0


def selections(blocks: StraightBlocks, packed: bool, items: int) -> dict[int, Selection]:
    """Returns the work-items that are active at each branch, by its address, where all paths agree on them.

    packed, items: see `Selections`
    """
    done = examine(blocks, Selections(packed, items))
    return {one.branch: one for one in done.found} if done else {}
