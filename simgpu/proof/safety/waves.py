"""Two waves of one launch: values of one wave's own get another name in the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import FLOAT_NAME
from simgpu.proof.roots import GLOBAL, POINTER
from simgpu.proof.terms import Memo

Term = Any
# Names of symbols that all waves share begin so: arguments, extents, read-only memory, arithmetic of floats.
SHARED = ("arg", POINTER, "hidden_", "grid_size", "kernarg", "dispatch", "packet", f"{GLOBAL} ", FLOAT_NAME)
SHARED_NAMES = (GLOBAL, "queue")


@dataclass
class OtherWave:
    """Renames terms of one wave to those of another. shared: names that both waves share, other than all waves of a launch."""

    shared: frozenset[str] = frozenset()
    _renamed: Memo = field(default_factory=Memo)
    _inside: Memo = field(default_factory=Memo)  # symbols and functions in a term that are a wave's own, by id

    def of(self, term: Term) -> Term:
        """Returns a term of the other wave.

        >>> OtherWave().of(z3.BitVec("arg0", 32) + z3.BitVec("lane", 32))
        arg0 + lane'
        """
        found = self._renamed.get(term)
        return found if found is not None else self._renamed.put(term, self._make(term))

    def _make(self, term: Term) -> Term:
        constants, functions = [], []
        for each in self._own(term).values():
            if z3.is_expr(each):
                constants.append((each, z3.Const(f"{each}'", each.sort())))
            else:
                domain = [each.domain(at) for at in range(each.arity())]
                other = z3.Function(f"{each.name()}'", *domain, each.range())
                functions.append((each, other(*(z3.Var(at, sort) for at, sort in enumerate(domain)))))
        made = z3.substitute(term, *constants) if constants else term
        return z3.substitute_funs(made, *functions) if functions else made

    def _own(self, term: Term) -> dict[int, Any]:
        left = [term] if self._inside.get(term) is None else []
        while left:
            each = left[-1]
            missing = [child for child in each.children() if self._inside.get(child) is None]
            left += missing
            if missing:
                continue
            left.pop()
            inside: dict[int, Any] = {}
            for child in each.children():
                inside |= self._inside.get(child)
            declaration = each.decl()
            if declaration.kind() == z3.Z3_OP_UNINTERPRETED and not self._is_shared(declaration.name()):
                inside[declaration.get_id()] = declaration if each.num_args() else each
            self._inside.put(each, inside)
        found = self._inside.get(term)
        assert isinstance(found, dict)
        return found

    def _is_shared(self, name: str) -> bool:
        return name.startswith(SHARED) or name in SHARED_NAMES or name in self.shared
