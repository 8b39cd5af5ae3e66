"""Brings conditions that code tests into one form.

`s4 > 3` is the same as `3 < s4` and the opposite of `s4 <= 3`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from simgpu.checks.lint.registers import EXEC, bits
from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.isa.constants import INTEGERS
from simgpu.hardware.isa.instruction import Const, Imm, Instruction, Literal, Operand, Reg
from simgpu.hardware.timing_rules.effects import registers_of

WORD = 0xFFFFFFFF
LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
# By the name of a scalar comparison in its mnemonic: relation, True if operands are swapped, True if it is negated.
RELATIONS = {
    "eq": ("eq", False, False), "lg": ("eq", False, True), "lt": ("lt", False, False), "ge": ("lt", False, True),
    "gt": ("lt", True, False), "le": ("lt", True, True),
}  # fmt: skip
INTEGER_COMPARES = ("i32", "u32", "u64")
Term = Operand | int  # a register, or a signed 32-bit number


class BranchTest(NamedTuple):
    """Condition of a branch."""

    relation: str  # eq, lt (signed), ltu (unsigned), eq64, bit (number `other` of `one`), or the mnemonic of v_cmp
    one: Term
    other: Term

    @property
    def register(self) -> int | None:
        """Number of the SGPR that eq, lt or ltu compares with a number."""
        terms = self.one, self.other
        if self.relation not in ("eq", "lt", "ltu") or not any(isinstance(term, int) for term in terms):
            return None
        return next((sgpr for term in terms if (sgpr := single(term)) is not None), None)


@dataclass(frozen=True)
class Compare:
    """Result of a compare in SCC, or in VCC as nonzero."""

    test: BranchTest
    holds: bool  # True if a set bit means that the test holds, False if it means the opposite


def single(term: Term | None) -> int | None:
    """Returns the number of a single SGPR, None for other terms."""
    return term.index if isinstance(term, Reg) and term.file == "s" and term.count == 1 else None


def compare_of(step: LintStep) -> Compare | None:
    """Returns the comparison that an instruction makes, None if it makes none."""
    return _compare(step.inst) if "cmp" in step.inst.mnemonic else None


def _compare(inst: Instruction) -> Compare | None:
    name, args = inst.mnemonic, inst.args
    if name.startswith("v_cmp_"):
        if inst.mods or inst.form not in ("e32", "e64") or args.get("sdst") != VCC:
            return None
        terms = args.get("src0"), args.get("src1")
        return None if None in terms else Compare(BranchTest(f"{name} {inst.src_mods}", *terms), True)  # type: ignore[arg-type]
    if name.startswith("s_bitcmp"):
        return Compare(BranchTest("bit", *_terms(inst)), name.startswith("s_bitcmp1"))
    if not name.startswith(("s_cmp_", "s_cmpk_")):
        return None
    word, kind = name.split("_")[2:]
    if kind not in INTEGER_COMPARES:  # GFX12 compares floats, too
        return None
    relation, turned, opposite = RELATIONS[word]
    one, other = _terms(inst)
    if kind == "u64":
        relation = "eq64"
    elif relation == "lt" and kind == "u32":
        relation = "ltu"
    if turned or (relation.startswith("eq") and isinstance(one, int)):
        one, other = other, one
    return Compare(BranchTest(relation, one, other), not opposite)


VCC = Reg("s", 106, 2)


def _terms(inst: Instruction) -> tuple[Term, Term]:
    immediate = inst.args.get("simm16")
    if isinstance(immediate, Imm):
        value = immediate.value & 0xFFFF
        signed = value - (value >> 15 << 16)
        return inst.args["sdst"], value if inst.mnemonic.endswith("u32") else signed
    return _term(inst.args["src0"]), _term(inst.args["src1"])


def _term(operand: Operand) -> Term:
    number = constant(operand)
    return operand if number is None else number


def constant(operand: Operand | None) -> int | None:
    """Returns a constant operand as a signed 32-bit number."""
    if isinstance(operand, Const) and operand.code in INTEGERS:
        return INTEGERS[operand.code]
    if isinstance(operand, Literal):
        return (operand.value & WORD ^ 1 << 31) - (1 << 31)
    return None


@cache
def registers(test: BranchTest) -> int:
    """Returns the registers that a test's outcome depends on, as bits."""
    found = 0
    for term in (test.one, test.other):
        if not isinstance(term, int):
            found |= bits(registers_of(term))
    return found | EXEC if test.relation.startswith("v_") else found


@dataclass(frozen=True)
class ValueRange:
    """Range of a 32-bit register's possible values, signed."""

    low: int = LOWEST  # the lowest value
    high: int = HIGHEST  # the highest value
    without: frozenset[int] = frozenset()  # values in between that are excluded

    def narrow(self, low: int, high: int) -> ValueRange | None:
        """Returns the values within bounds, None if there are none."""
        low, high = max(low, self.low), min(high, self.high)
        while low in self.without:
            low += 1
        while high in self.without:
            high -= 1
        return ValueRange(low, high, frozenset(value for value in self.without if low < value < high)) if low <= high else None

    def exclude(self, value: int) -> ValueRange | None:
        """Returns all other values, None if there are none."""
        return ValueRange(self.low, self.high, self.without | {value}).narrow(LOWEST, HIGHEST) if len(self.without) < MOST else self


MOST = 16  # most values in `ValueRange.without`
ANY = ValueRange()


def decide(test: BranchTest, one: ValueRange, other: ValueRange) -> bool | None:
    """Returns the outcome of an eq, lt or ltu test, None if these values do not decide it."""
    if test.relation == "eq":
        if one.high < other.low or other.high < one.low:
            return False
        if (one.low == one.high and one.low in other.without) or (other.low == other.high and other.low in one.without):
            return False
        return True if one.low == one.high == other.low == other.high else None
    if test.relation == "ltu" and (one.low < 0 or other.low < 0):
        # As unsigned numbers, negative values are above all others.
        if one.low >= 0 and other.high < 0:
            return True
        if one.high < 0 and other.low >= 0:
            return False
        if not (one.high < 0 and other.high < 0):
            return None
    if one.high < other.low:
        return True
    return False if one.low >= other.high else None


def limit(test: BranchTest, outcome: bool, values: ValueRange) -> ValueRange | None:
    """Returns the values that `test.register` may hold if the test has an outcome, None if it cannot have it. values: those that
    it may hold before."""
    first = single(test.one) is not None
    number = test.other if first else test.one
    assert isinstance(number, int)
    if test.relation == "eq":
        return values.narrow(number, number) if outcome else values.exclude(number)
    if test.relation == "ltu":
        if number < 0:
            return values
        below = outcome == first  # True for below the number, or below or equal to it
        if below:
            return values.narrow(0, number - 1 if first else number)
        return values if values.low < 0 else values.narrow(number if first else number + 1, HIGHEST)
    if first:
        return values.narrow(LOWEST, number - 1) if outcome else values.narrow(number, HIGHEST)
    return values.narrow(number + 1, HIGHEST) if outcome else values.narrow(LOWEST, number)
