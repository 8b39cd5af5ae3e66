"""Addresses of both kernels, brought into one form: sums that are proved equal become the same term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import concat, number
from simgpu.proof.solver import Budget, solve
from simgpu.proof.terms import Lanes, Memo, flat_sum, subterms, symbol_name, symbols_of

Term = Any
GLOBAL, LDS, PRIVATE = "global memory", "LDS", "private memory"
WIDTH = {GLOBAL: 64, LDS: 32, PRIVATE: 32}  # bits of an address
CODE = "code object"  # the base of addresses of global variables
POINTER = "pointer"  # the names of arguments that are pointers begin so
EQUAL_EFFORT = 2.0  # of the solver, for two addresses
SEED = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Address:
    """An address in a space."""

    space: str
    root: Term  # without the constant
    offset: int  # the constant, signed
    base: str  # name of the pointer in the sum; "" if there is none, or several

    def at(self, byte: int = 0) -> Term:
        """Returns the address of a byte after it."""
        distance = self.offset + byte
        return self.root + number(distance, self.root.size()) if distance else self.root


@dataclass
class Roots:
    """Addresses that were met, without their constants."""

    lanes: Lanes
    budget: Budget
    facts: Callable[[], list[Term]]  # about symbols
    compares: bool = True  # False if equal sums need not become the same term
    code: range = range(0)  # addresses of global variables, if they are memory that both kernels have
    _known: dict[tuple[str, str, int], list[Term]] = field(default_factory=dict)  # by space, base and a value for drawn inputs
    _found: Memo = field(default_factory=Memo)
    _pointed: Memo = field(default_factory=Memo)  # if summands have a pointer

    def place(self, space: str, term: Term) -> Address:
        """Splits a sum into the pointer that it contains, a constant, and the rest."""
        bits = term.size()
        parts = [each for part in flat_sum(z3.simplify(term)) for each in _without_high_bits(part)]
        constant = sum(part.as_long() for part in parts if z3.is_bv_value(part)) & (1 << bits) - 1
        rest = [part for part in parts if not z3.is_bv_value(part)]
        root = sum(rest[1:], rest[0]) if rest else number(0, bits)
        base = self._base(rest) if space == GLOBAL else space
        if not base and constant in self.code and not any(map(self._has_pointer, rest)):
            base = CODE
        return Address(space, self._same(space, base, root), constant - (constant >> bits - 1 << bits), base)

    def _base(self, parts: list[Term]) -> str:
        """Returns the pointer in a sum. Values that were loaded are no pointers here, though their addresses have some."""
        pointers = [part for part in parts if _is_pointer(part)]
        others = any(self._has_pointer(part) for part in parts if not _is_pointer(part))
        return str(pointers[0]) if len(pointers) == 1 and not others else ""

    def _has_pointer(self, term: Term) -> bool:
        found = self._pointed.get(term)
        return bool(self._pointed.put(term, has_pointer(term)) if found is None else found)

    def _same(self, space: str, base: str, root: Term) -> Term:
        """Returns the term of an equal root that was met before, or else this one."""
        found = self._found.get(root) if self.compares else root
        if found is not None:
            return found
        key = space, base, self._sample(root)
        known = self._known.setdefault(key, [])
        for other in known:
            wrong = root != other
            facts = self.facts()
            formulas = [wrong, *facts, *self.lanes.facts([wrong, *facts])]
            if solve(formulas, self.budget, EQUAL_EFFORT)[0] == z3.unsat:
                return self._found.put(root, other)
        known.append(root)
        return self._found.put(root, root)

    @staticmethod
    def _sample(term: Term) -> int:
        """Returns the term's value for some inputs, -1 if it is none; equal terms have equal values."""
        constants = [(s, _hash(str(s), s.sort())) for s in symbols_of([term])]
        made = z3.substitute(term, *constants) if constants else term
        made = z3.simplify(z3.substitute_funs(made, *((f, _function(f)) for f in _functions(made))))
        return int(made.as_long()) if z3.is_bv_value(made) else -1


def _without_high_bits(term: Term) -> list[Term]:
    """Returns summands of a term: constant high bits and the rest apart, as in a table's address beside an index."""
    if not z3.is_app_of(term, z3.Z3_OP_CONCAT) or not z3.is_bv_value(term.arg(0)) or not term.arg(0).as_long():
        return [term]
    high, *others = term.children()
    low = term.size() - high.size()
    return [number(high.as_long() << low, term.size()), concat(*reversed(others), number(0, high.size()))]


def initial_bytes(epoch: str, root: Term, offset: int, count: int) -> Term:
    """Returns bytes of global memory as they were before any store of this lane since a barrier, by its number."""
    place = Address(GLOBAL, root, offset, "")
    memory = z3.Function(f"{GLOBAL} {epoch}".strip(), z3.BitVecSort(64), z3.BitVecSort(8))
    return concat(*(memory(place.at(at)) for at in range(count)))


def _hash(name: str, sort: Any) -> Term:
    value = SEED
    for letter in name.encode():
        value = (value ^ letter) * 0x100000001B3 % (1 << 64)
    return z3.BoolVal(bool(value & 1)) if sort == z3.BoolSort() else z3.BitVecVal(value * (SEED | 1) >> 3, sort.size())


def _functions(term: Term) -> list[Any]:
    """Returns the unknown functions in a term."""
    found: dict[int, Any] = {}
    for each in subterms([term]):
        if _is_application(each):
            found[each.decl().get_id()] = each.decl()
    return list(found.values())


def _is_application(term: Term) -> bool:
    """True for an unknown function's result."""
    return bool(term.num_args() and term.decl().kind() == z3.Z3_OP_UNINTERPRETED)


def _function(function: Any) -> Term:
    """Returns a function's result for operands that are variables, by their sum."""
    total, range_ = _hash(function.name(), z3.BitVecSort(64)), function.range()
    for at in range(function.arity()):
        operand = z3.Var(at, function.domain(at))
        size = operand.size()
        total += z3.ZeroExt(64 - size, operand) * SEED if size < 64 else z3.Extract(63, 0, operand) * SEED
    if range_ == z3.BoolSort():
        return z3.Extract(0, 0, total) == 1
    bits = range_.size()
    return z3.Extract(bits - 1, 0, total) if bits <= 64 else z3.ZeroExt(bits - 64, total)


def _is_pointer(term: Term) -> bool:
    return symbol_name(term).startswith(POINTER) and term.size() == 64


def has_pointer(term: Term) -> bool:
    """True if a pointer argument is part of a term, other than inside conditions and loaded values."""
    inside = subterms([term], lambda each: not _is_application(each) and not z3.is_bool(each))
    return any(_is_pointer(each) for each in inside)
