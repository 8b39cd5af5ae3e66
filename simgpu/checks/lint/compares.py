"""Conditions that code tests, in one form for all ways to write them.

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
# By LLVM's name of a scalar comparison: the relation that it is, whether its operands change places, whether it is the opposite.
RELATIONS = {
    "eq": ("eq", False, False), "lg": ("eq", False, True), "lt": ("lt", False, False), "ge": ("lt", False, True),
    "gt": ("lt", True, False), "le": ("lt", True, True),
}  # fmt: skip
Term = Operand | int  # a register, or a number: signed, of 32 bits


class BranchTest(NamedTuple):
    """A condition: eq, lt of signed numbers, ltu of unsigned ones, eq64, bit (of `one`, number `other`), or v_cmp's mnemonic."""

    relation: str
    one: Term
    other: Term

    @property
    def register(self) -> int | None:
        """The SGPR that is compared with a number by eq, lt or ltu."""
        terms = self.one, self.other
        if self.relation not in ("eq", "lt", "ltu") or not any(isinstance(term, int) for term in terms):
            return None
        return next((sgpr for term in terms if (sgpr := single(term)) is not None), None)


@dataclass(frozen=True)
class Compare:
    """What an instruction puts into SCC, or by not being 0 in VCC: whether the test holds, or that it does not."""

    test: BranchTest
    holds: bool


def single(term: Term | None) -> int | None:
    """The number of a single SGPR."""
    return term.index if isinstance(term, Reg) and term.file == "s" and term.count == 1 else None


def compare_of(step: LintStep) -> Compare | None:
    """The comparison that an instruction is."""
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
    """A constant operand as a signed number of 32 bits."""
    if isinstance(operand, Const) and operand.code in INTEGERS:
        return INTEGERS[operand.code]
    if isinstance(operand, Literal):
        return (operand.value & WORD ^ 1 << 31) - (1 << 31)
    return None


@cache
def registers(test: BranchTest) -> int:
    """The registers of which a test's outcome depends, as bits."""
    found = 0
    for term in (test.one, test.other):
        if not isinstance(term, int):
            found |= bits(registers_of(term))
    return found | EXEC if test.relation.startswith("v_") else found


@dataclass(frozen=True)
class Values:
    """What a 32-bit register may hold, as signed numbers: from low to high, but not those left out."""

    low: int = LOWEST
    high: int = HIGHEST
    without: frozenset[int] = frozenset()

    def narrowed(self, low: int, high: int) -> Values | None:
        """Those within bounds; None where there are none."""
        low, high = max(low, self.low), min(high, self.high)
        while low in self.without:
            low += 1
        while high in self.without:
            high -= 1
        return Values(low, high, frozenset(value for value in self.without if low < value < high)) if low <= high else None

    def but(self, value: int) -> Values | None:
        """All others; None where there are none."""
        return Values(self.low, self.high, self.without | {value}).narrowed(LOWEST, HIGHEST) if len(self.without) < MOST else self


MOST = 16  # values that are left out one by one
ANY = Values()


def decided(test: BranchTest, one: Values, other: Values) -> bool | None:
    """What a test of eq, lt or ltu gives, where these values decide it."""
    if test.relation == "eq":
        if one.high < other.low or other.high < one.low:
            return False
        if (one.low == one.high and one.low in other.without) or (other.low == other.high and other.low in one.without):
            return False
        return True if one.low == one.high == other.low == other.high else None
    if test.relation == "ltu" and (one.low < 0 or other.low < 0):
        # As unsigned numbers, negative ones are above all others.
        if one.low >= 0 and other.high < 0:
            return True
        if one.high < 0 and other.low >= 0:
            return False
        if not (one.high < 0 and other.high < 0):
            return None
    if one.high < other.low:
        return True
    return False if one.low >= other.high else None


def limited(test: BranchTest, outcome: bool, values: Values) -> Values | None:
    """What the register of a test may hold after the test came out so; None where it cannot. See `BranchTest.register`."""
    first = single(test.one) is not None
    number = test.other if first else test.one
    assert isinstance(number, int)
    if test.relation == "eq":
        return values.narrowed(number, number) if outcome else values.but(number)
    if test.relation == "ltu":
        if number < 0:
            return values
        below = outcome == first  # whether it is below the number, or below or equal to it
        if below:
            return values.narrowed(0, number - 1 if first else number)
        return values if values.low < 0 else values.narrowed(number if first else number + 1, HIGHEST)
    if first:
        return values.narrowed(LOWEST, number - 1) if outcome else values.narrowed(number, HIGHEST)
    return values.narrowed(number + 1, HIGHEST) if outcome else values.narrowed(LOWEST, number)
