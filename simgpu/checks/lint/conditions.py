"""Decides which directions branches can take, by facts about scalar registers on a path.

A path that needs a condition to be true at one branch and false at another cannot run, so bugs on it are not real. Facts are
outcomes of tests whose registers have not changed since, values that scalar registers may hold, SCC, and whether VCC and EXEC
are 0.

Compilers also keep a condition as 0 or -1 in SGPRs and branch on it again. If an unknown condition is put into a register, the
path is split in two. When a condition is masked by EXEC, EXEC is assumed to be nonzero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from simgpu.checks.lint.compares import ANY, BranchTest, Compare, ValueRange, compare_of, decide, limit, registers, single
from simgpu.checks.lint.registers import EXEC, FILES, M0, VCC, span
from simgpu.checks.lint.registers import SCC as SCC_BIT
from simgpu.checks.lint.steps import LintStep
from simgpu.checks.lint.work_items import IDS, VECTORS_FROM, vector_values, vectors_of
from simgpu.hardware.isa import instruction as isa
from simgpu.hardware.isa.constants import INTEGERS
from simgpu.hardware.isa.instruction import Const, Literal, Operand, Reg
from simgpu.hardware.isa.kinds import STATE_BRANCHES

# A cell names a fact: an SGPR's number (its value), `VALUES` + an SGPR's number or `VECTORS_FROM` + a VGPR's number (their
# possible values), one of the cells below, or a test (its outcome).
Cell = int | BranchTest
Facts = frozenset[tuple[Cell, Any]]
# SCC; True if VCC is nonzero, if EXEC is nonzero; the comparisons whose outcomes SCC and VCC hold.
SCC, VCC_ANY, EXEC_ANY, SCC_TEST, VCC_TEST = -1, -2, -3, -4, -5
VALUES = 1000
TESTED = {"scc": SCC, "vcc": VCC_ANY, "exec": EXEC_ANY}
TESTS = {SCC: SCC_TEST, VCC_ANY: VCC_TEST}
NO_FACTS: Facts = frozenset()
WORD = 0xFFFFFFFF
MOST_WAYS = 16  # most sets of facts that are tracked separately at one place
FLAGS = (0, 1, WORD)  # the only values of SGPRs that are tracked unless `every` is set
EXEC_OPERAND = Reg("s", isa.EXEC, 2)
MOVES = ("s_mov_b32", "s_mov_b64", "s_cselect_b32", "s_cselect_b64", "s_xor_b64", "s_not_b64")
SCALARS = span("s", 0, 128) | VCC | EXEC | M0 | SCC_BIT
ADDS = {
    "s_add_u32": 1, "s_add_i32": 1, "s_addk_i32": 1, "s_sub_u32": -1, "s_sub_i32": -1,
    "s_add_co_u32": 1, "s_add_co_i32": 1, "s_addk_co_i32": 1, "s_sub_co_u32": -1, "s_sub_co_i32": -1,
}  # fmt: skip


def condition_registers(steps: Iterable[LintStep]) -> frozenset[int]:
    """Returns the SGPRs that may hold conditions: they are compared with a constant, masked by EXEC, or moved into such SGPRs."""
    steps = [step for step in steps if step.inst.mnemonic.startswith("s_")]
    found: set[int] = set()
    for step in steps:
        sources = [operand for operand in (step.inst.args.get("src0"), step.inst.args.get("src1")) if operand is not None]
        masked = step.inst.mnemonic in ("s_and_b64", "s_andn2_b64") and EXEC_OPERAND in sources
        compared = step.inst.mnemonic.startswith("s_cmp_") and any(isinstance(operand, Const) for operand in sources)
        if masked or compared:
            found.update(*map(_cells, sources))
    moves = [step for step in steps if step.inst.mnemonic in MOVES]
    before = -1
    while len(found) != before:
        before = len(found)
        for step in moves:
            if found.intersection(_cells(step.inst.args.get("sdst"))):
                found.update(_cells(step.inst.args.get("src0")), _cells(step.inst.args.get("src1")))
    return frozenset(found - {isa.EXEC, isa.EXEC + 1})


class Conditions:
    """Tracks facts along the code of a kernel.

    every: True to track all facts that can be known, for a search of few paths; else only those that several branches depend on.
    """

    def __init__(self, steps: Collection[LintStep], work_items: int, every: bool = False) -> None:
        """Takes the instructions of a kernel. work_items: of a workgroup, at most."""
        self.work_items, self.every = work_items, every
        by_vcc = any(STATE_BRANCHES.get(step.control, ("",))[0] == "vcc" for step in steps)
        made = {step.pc: compare for step in steps if (compare := compare_of(step)) is not None}
        made = {pc: compare for pc, compare in made.items() if by_vcc or not compare.test.relation.startswith("v_")}
        self.compares: Mapping[int, Compare] = made
        tests = Counter(compare.test for compare in made.values())
        counts = Counter(test.register for test in tests.elements())
        self.tests = frozenset(test for test, count in tests.items() if count > 1 and test.register is None)
        self.ranged = frozenset(register for register, count in counts.items() if register is not None and count > 1)
        self.flags = condition_registers(steps)
        self.vectors = vectors_of(steps, self.ranged)
        self.watched = SCALARS
        for number in self.vectors:
            self.watched |= span("v", number, 1)
        for test in tests if every else self.tests:
            self.watched |= registers(test)
        self._after: dict[tuple[int, int, Facts], list[Facts]] = {}

    def at_entry(self, packed: bool) -> Facts:
        """Returns the facts of a new wave: a lane is active, and v0 holds its work-items' numbers.

        packed: v0 holds those along y and z, too.
        """
        numbers = IDS if packed else ValueRange(0, self.work_items - 1)
        return frozenset({(EXEC_ANY, 1), *([(VECTORS_FROM, numbers)] if 0 in self.vectors else [])})

    def transfer(self, facts: Facts, steps: Sequence[LintStep]) -> list[Facts]:
        """Returns the facts after instructions: several sets if an unknown condition is put into a register."""
        if not steps:
            return [facts]
        place = steps[0].pc, len(steps), facts
        if place not in self._after:
            ways = [dict(facts)]
            for step in steps:
                if step.writes & self.watched or step.pc in self.compares:
                    splits = 2 * len(ways) <= MOST_WAYS
                    ways = [after for known in ways for after in self._after_step(step, known, splits)]
            self._after[place] = list(dict.fromkeys(frozenset(known.items()) for known in ways))
        return self._after[place]

    def along(self, step: LintStep, taken: bool, facts: Facts) -> Facts | None:
        """Returns the facts after a branch in one direction, None if it cannot go that way."""
        tested = STATE_BRANCHES.get(step.control)
        if tested is None:
            return facts
        state, where_set = tested
        cell, value = TESTED[state], int(taken == where_set)
        known = dict(facts)
        if known.setdefault(cell, value) != value:
            return None
        test = known.get(TESTS.get(cell, cell))
        if isinstance(test, Compare):
            outcome = test.holds == bool(value)
            register = test.test.register
            if register is None or self.every:
                known[test.test] = outcome
            if register is not None:
                values = limit(test.test, outcome, self._values(Reg("s", register), known))
                if values is None:
                    return None
                known[VALUES + register] = values
        return frozenset(known.items())

    def _after_step(self, step: LintStep, known: dict[Cell, Any], splits: bool) -> list[dict[Cell, Any]]:
        """Returns the facts after an instruction. splits: one way may become two."""
        if splits and SCC not in known and step.inst.mnemonic in ("s_cselect_b32", "s_cselect_b64"):
            target = self.flags.intersection(_cells(step.inst.args.get("sdst")))
            one, other = (_value(step.inst.args.get(source), known) for source in ("src0", "src1"))
            if target and one is not None and other is not None and one != other:
                return [self._after_change(step, known | {SCC: way}) for way in (0, 1)]
        return [self._after_change(step, known)]

    def _after_change(self, step: LintStep, known: dict[Cell, Any]) -> dict[Cell, Any]:
        results = self._results(step, known)
        writes = step.writes | _result_registers(step)
        after = {cell: value for cell, value in known.items() if not _bits(cell) & writes}
        for cell, value in results.items():
            if not isinstance(cell, int) or cell < 0 or cell >= VALUES or self.every or (cell in self.flags and value in FLAGS):
                after[cell] = value
        return after

    def _results(self, step: LintStep, known: dict[Cell, Any]) -> dict[Cell, Any]:
        """Returns the cells that get a known value."""
        compare = self.compares.get(step.pc)
        if compare is not None:
            return self._after_compare(compare, known)
        if step.inst.mnemonic.startswith("v_"):
            return vector_values(step, known, self.work_items, VALUES)
        found = _flag_results(step, known)
        target = single(step.inst.args.get("sdst"))
        if target is not None and target not in found and (self.every or target in self.ranged):
            values = self._scalar_values(step, known)
            if values is not None and values.low == values.high:
                found[target] = values.low & WORD
            if values is not None and values != ANY:
                found[VALUES + target] = values
        return found

    def _after_compare(self, compare: Compare, known: dict[Cell, Any]) -> dict[Cell, Any]:
        test, vector = compare.test, compare.test.relation.startswith("v_")
        outcome = known.get(test)
        if outcome is None and test.relation in ("eq", "lt", "ltu"):
            outcome = decide(test, self._values(test.one, known), self._values(test.other, known))
        if outcome is not None:
            return {VCC_ANY if vector else SCC: int(outcome == compare.holds)}
        if self.every or test in self.tests or test.register in self.ranged:
            return {VCC_TEST if vector else SCC_TEST: compare}
        return {}

    def _values(self, term: Any, known: Mapping[Cell, Any]) -> ValueRange:
        """Returns the values that a 32-bit source may hold."""
        if isinstance(term, int):
            return ValueRange(term, term)
        value = _value(term, known)
        if value is not None:
            signed = (value & WORD ^ 1 << 31) - (1 << 31)
            return ValueRange(signed, signed)
        number = single(term)
        return ANY if number is None else known.get(VALUES + number, ANY)

    def _scalar_values(self, step: LintStep, known: dict[Cell, Any]) -> ValueRange | None:
        """Returns the values that the SGPR written by an instruction may hold, None if unknown."""
        name, args = step.inst.mnemonic, step.inst.args
        if name == "s_mov_b32":
            return self._values(args["src0"], known)
        if name == "s_movk_i32":
            return self._values(_immediate(args["simm16"]), known)
        if name in ADDS and self.every:  # otherwise each round of a loop would be a path of its own
            one, other = ("sdst", "simm16") if name.startswith("s_addk_") else ("src0", "src1")
            first, second = self._values(args[one], known), self._values(_immediate(args[other]), known)
            low = first.low + (second.low if ADDS[name] > 0 else -second.high)
            high = first.high + (second.high if ADDS[name] > 0 else -second.low)
            return ANY.narrow(low, high) if ANY.low <= low and high <= ANY.high else None
        return None

    def needs(self, blocks: Sequence[Sequence[LintStep]], following: Sequence[Sequence[int]]) -> list[frozenset[Cell]]:
        """Returns for each block the tests and register values that a later test needs before they change."""
        cells: list[Cell] = [*self.tests, *(VALUES + register for register in sorted(self.ranged))]
        number = {cell: 1 << at for at, cell in enumerate(cells)}
        asked, kept = [], []
        for steps in blocks:
            asks, keeps = 0, (1 << len(cells)) - 1
            for step in steps:
                compare = self.compares.get(step.pc)
                if compare is not None:
                    register = compare.test.register
                    asks |= keeps & number.get(compare.test if register is None else VALUES + register, 0)
                elif step.writes & self.watched:
                    for cell, bit in number.items():
                        if _bits(cell) & step.writes:
                            keeps &= ~bit
            asked.append(asks)
            kept.append(keeps)
        before, changed = list(asked), True
        while changed:
            changed = False
            for block in reversed(range(len(blocks))):
                live = asked[block] | (_union(before, following[block]) & kept[block])
                changed |= live != before[block]
                before[block] = live
        after = [_union(before, ways) for ways in following]
        sets = {live: frozenset(cell for cell, bit in number.items() if bit & live) for live in set(after)}
        return [sets[live] for live in after]


def _union(sets: Sequence[int], members: Iterable[int]) -> int:
    found = 0
    for member in members:
        found |= sets[member]
    return found


def drop_unneeded(facts: Facts, needed: frozenset[Cell]) -> Facts:
    """Returns the facts without tests and values that nothing needs any more."""
    return frozenset(
        (cell, value) for cell, value in facts
        if (isinstance(cell, int) and not VALUES <= cell < VECTORS_FROM) or cell in needed
    )  # fmt: skip


def flags_only(facts: Facts) -> Facts:
    """Returns the facts without tests and values: contents of SGPRs, SCC, VCC and EXEC."""
    return drop_unneeded(facts, frozenset())


def _immediate(operand: Any) -> Any:
    """Returns a 16-bit immediate as a signed number, other operands unchanged."""
    if not isinstance(operand, isa.Imm):
        return operand
    value = operand.value & 0xFFFF
    return value - (value >> 15 << 16)



def _bits(cell: Cell) -> int:
    """Returns the registers that a cell is about, as bits."""
    return _of_cell(cell) if isinstance(cell, int) else registers(cell)


def _of_cell(cell: int) -> int:
    if cell in (SCC, SCC_TEST):
        return SCC_BIT
    if cell in (VCC_ANY, VCC_TEST, isa.VCC, isa.VCC + 1):
        return VCC
    if cell in (EXEC_ANY, isa.EXEC, isa.EXEC + 1):
        return EXEC
    if cell >= VECTORS_FROM:
        return 1 << FILES["v"] + cell - VECTORS_FROM
    number = cell - VALUES if cell >= VALUES else cell
    return {isa.VCC: VCC, isa.VCC + 1: VCC, isa.EXEC: EXEC, isa.EXEC + 1: EXEC, isa.M0: M0}.get(number) or 1 << FILES["s"] + number


def _result_registers(step: LintStep) -> int:
    """Returns the SGPRs that an instruction names as its result, as bits."""
    found = 0
    for number in _cells(step.inst.args.get("sdst")) if step.inst.mnemonic.startswith("s_") and not _keeps(step) else ():
        found |= _of_cell(number)
    return found


def _keeps(step: LintStep) -> bool:
    """True if the operand that an instruction calls its result is a source: comparisons with an immediate."""
    return step.inst.mnemonic.startswith("s_cmpk_")


def _cells(operand: Operand | None) -> range:
    if isinstance(operand, Reg) and operand.file == "s":
        return range(operand.index, operand.index + operand.count)
    return range(0)


def _value(operand: Any, known: Mapping[Cell, Any]) -> int | None:
    """Returns a source as a number below 2^64, None if unknown."""
    if isinstance(operand, Const) and operand.code in INTEGERS:
        return INTEGERS[operand.code] & (1 << 64) - 1
    if isinstance(operand, Literal):
        return operand.value
    words = [known.get(cell) for cell in _cells(operand)]
    if not words or None in words:
        return None
    return sum(word << 32 * at for at, word in enumerate(words) if word is not None)


def _flag_results(step: LintStep, known: dict[Cell, Any]) -> dict[Cell, Any]:
    """Returns values that a move, a selection or a logical instruction puts into SGPRs, SCC, VCC and EXEC, if known."""
    name, args = step.inst.mnemonic, step.inst.args
    one, other = _value(args.get("src0"), known), _value(args.get("src1"), known)
    target = _cells(args.get("sdst"))
    if name.startswith("s_mov_b") and one is not None:
        return _words(target, one)
    if name.startswith("s_cselect_b") and SCC in known:
        chosen = one if known[SCC] else other
        return {} if chosen is None else _words(target, chosen)
    full = (1 << 64) - 1
    if name == "s_not_b64" and one is not None:
        return _words(target, one ^ full) | {SCC: int(one != full)}
    if name == "s_xor_b64" and one is not None and other is not None:
        return _words(target, one ^ other) | {SCC: int(one != other)}
    if name in ("s_and_b64", "s_andn2_b64") and EXEC_OPERAND in (args.get("src0"), args.get("src1")):
        mask = other if args.get("src0") == EXEC_OPERAND else one
        if mask is not None and name == "s_andn2_b64":
            mask = mask ^ full if args.get("src0") == EXEC_OPERAND else None
        if mask == 0:
            return _words(target, 0) | {SCC: 0}
        if mask == full:
            return {SCC: 1, VCC_ANY: 1} if isa.VCC in target else {SCC: 1}
    return {}


def _words(target: range, value: int) -> dict[Cell, Any]:
    found: dict[Cell, Any] = {cell: value >> 32 * at & WORD for at, cell in enumerate(target)}
    for first, cell in ((isa.VCC, VCC_ANY), (isa.EXEC, EXEC_ANY)):
        if target == range(first, first + 2):
            found[cell] = int(value != 0)
    return found
