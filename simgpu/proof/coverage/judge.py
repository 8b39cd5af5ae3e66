"""Proof that a tiled kernel accesses each element of its matrices as often as its plan says, in all launches."""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import z3

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.descriptor import WAVEFRONT
from simgpu.hardware.isa.lane_smt import number
from simgpu.proof.coverage.claims import Coverage, Matrix, Violation
from simgpu.proof.coverage.evaluate import Case, Evaluation
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.machine import Machine
from simgpu.proof.coverage.products import Products, arguments_of, first_state
from simgpu.proof.coverage.run import PLACE, CoverageRun
from simgpu.proof.coverage.values import BESIDE, NONZERO, RESULT, A, B
from simgpu.proof.coverage.words import Pointed
from simgpu.proof.entry import KernelInputs, argument_symbol, group_id
from simgpu.proof.roots import Roots
from simgpu.proof.safety.launches import Assumptions, Launches
from simgpu.proof.safety.log import Access
from simgpu.proof.safety.nest import LoopNest
from simgpu.proof.safety.prover import Prover
from simgpu.proof.safety.run import ForgottenFloats
from simgpu.proof.solver import DEFAULT, Budget, Limits, own_terms
from simgpu.proof.terms import Lanes, NotModelled

Term = Any
MOST_SIZE = 1 << 29  # of m, n and k
SIGNLESS = 0x7FFFFFFF


@dataclass(frozen=True)
class MatrixPlan:
    """A matrix of a tiled product. Names are those of the kernel's arguments."""

    argument: str
    kind: Literal["load", "store"]
    axes: tuple[str, str]  # the sizes of a column and of a row: of "m", "n", "k"
    stride: str
    batch: str
    element: int  # bytes
    multiples: tuple[int, ...]  # what a row's length is a multiple of: the first for which the claim can be shown
    times: Any = None  # how often an element of a tile's step is accessed, as an array of (rows, columns); None: each once
    columns: int = 1  # of the product for one of this matrix: 2 if a gate leaves one of a pair
    panel: int = 0  # rows of a panel of a preshuffled matrix; 0: it is not preshuffled


@dataclass(frozen=True)
class OperandPlan:
    """An operand of the epilogue: a matrix of C's shape, or a vector along m or n. Names are those of the kernel's arguments."""

    argument: str
    axes: tuple[str, str]  # of a vector ("", its axis); ("", "") for one number
    element: int  # bytes
    stride: str = ""
    batch: str = ""  # argument with the distance of a batch's operands, in bytes or in elements; "": one for all


@dataclass(frozen=True)
class ProductPlan:
    """A product C (m,n) = A (m,k) B (k,n) in tiles, a workgroup each."""

    matrices: tuple[MatrixPlan, ...]
    tile: Mapping[str, int]  # elements of a tile along m and n, and of a step along k
    order: tuple[str, ...]  # arguments that only say which tile a workgroup has
    launch: Mapping[str, int] = field(default_factory=dict)  # arguments of a launch that are whole numbers; none if not counted
    tiles: tuple[int, int, int, int] = (0, 0, 0, 0)  # its tiles along m and n, parts of K, and products
    part: str = "k_part"  # argument: elements of K that a workgroup multiplies
    factor: str = "alpha"  # argument: if it is 0, nothing is read
    factor_type: Literal["f32", "f64", "i32"] = "f32"
    operands: tuple[OperandPlan, ...] = ()

    @property
    def gated(self) -> bool:
        """True if C has one column for two of the product."""
        return any(each.columns > 1 for each in self.matrices)


@dataclass(frozen=True)
class CoverageVerdict:
    """Result for a kernel."""

    kind: Literal["proved", "wrong", "unknown"]
    proved: tuple[tuple[str, int], ...] = ()  # matrices, and what the length of their rows is a multiple of
    reason: str = ""
    seconds: float = 0.0
    accesses: int = 0  # instructions that access these matrices
    summed: bool = False  # True if each element of C is shown to be the sum of all its products
    assumed: tuple[str, ...] = ()


@dataclass
class CoverageJudge:
    """A kernel and its plan."""

    code: CodeObject
    kernel: str
    plan: ProductPlan
    limits: Limits

    def verdict(self) -> CoverageVerdict:
        """Judges the kernel."""
        begun = time.monotonic()
        proved: list[tuple[str, int]] = []
        kind: Any = "proved"
        reason, count, summed = "", 0, False
        try:
            budget = Budget(self.limits)
            self.accesses = self.run(budget).accesses()
            self._only_these()
            found: dict[str, Any] = {}
            for matrix in self.plan.matrices:
                places, multiple = self._places(matrix, budget)
                for axis, place in zip((*matrix.axes, f"number of {matrix.kind}"), places, strict=True):
                    if found.setdefault(axis, place) != place:
                        raise Violation(f"{matrix.argument}: its tile begins at another {axis} than that of another matrix")
                proved.append((matrix.argument, multiple))
                count += len({access.pc for access in self._of(matrix)})
            self._each_tile(found)
            if len({"m", "n", "k"} & found.keys()) == 3 == len(proved):
                self.sums(dict(proved), budget)
                summed = True
        except NOT_PROVED as error:
            kind, reason = ruling(error)
        assumed = self._assumptions() if kind == "proved" else ()
        return CoverageVerdict(kind, tuple(proved), reason, time.monotonic() - begun, count, summed, assumed)

    def sums(self, proved: Mapping[str, int], budget: Budget) -> None:
        """Shows that each element of C is the sum of all its products. proved: what the rows of each matrix are multiples of."""
        plan, info = self.plan, self.info
        multiples: dict[str, int] = {}
        for matrix in plan.matrices:
            for name in (matrix.axes[1], plan.part) if matrix.axes[1] == "k" else (matrix.axes[1],):
                multiples[name] = math.lcm(multiples.get(name, 1), proved[matrix.argument])
        items = math.prod(info.required_workgroup_size)
        nest = self.terms.nest
        inside = {pc for loop in nest.loops.values() for pc in loop.blocks}
        looped = frozenset(
            step.pc for steps in nest.blocks.all_steps if steps[0].pc in inside for step in steps
        )  # fmt: skip
        arguments = arguments_of(self.terms.inputs, multiples)
        if plan.factor_type == "i32":  # a float's bits are compared with 0 after its sign is cleared
            arguments = {at: Form.name(NONZERO) if plan.factor in str(form.parts) else form for at, form in arguments.items()}
        unit = multiples.get("k", 1)
        machine = Machine(
            info.target, items, arguments, self._matrices(), "k", plan.part, plan.factor, plan.factor_type, unit, looped, plan.gated
        )  # fmt: skip
        Products(machine, nest, budget).follow(first_state(self.terms.inputs, machine.shape))
        if not machine.stored:
            raise Violation("C: nothing is stored")

    def _matrices(self) -> dict[str, Pointed]:
        """Returns the matrices by their pointers' names."""
        plan, found = self.plan, {}
        for each in plan.matrices:
            kind = RESULT if each.kind == "store" else A if "m" in each.axes else B
            found[each.argument] = Pointed(kind, self._axes(each), each.stride, each.batch, 8 * each.element, panel=each.panel)
        for at, operand in enumerate(plan.operands, 1):
            kind = RESULT if operand.argument in found else BESIDE
            found[operand.argument] = Pointed(kind, self._axes(operand), operand.stride, operand.batch, 8 * operand.element, at)
        return found

    def _axes(self, each: MatrixPlan | OperandPlan) -> tuple[str, str]:
        """Returns the axes of a matrix; those of C count its own columns."""
        return ("m", "n/2") if self.plan.gated and each.axes == ("m", "n") else each.axes

    def _each_tile(self, first: Mapping[str, Any]) -> None:
        """Shows that the workgroups of the plan's launch have each tile once, by counting."""
        plan = self.plan
        values = [(self.symbol(name), number(value, self.symbol(name).size())) for name, value in plan.launch.items()]
        known: list[tuple[Term, Term]] = []
        for name, term in self.terms.named.items() if values else ():
            known.append((z3.BitVec(name, 32), z3.simplify(z3.substitute(z3.substitute(term, *known), *values))))
        terms = {str(name): term for name, term in known}
        rows, columns, parts, products = plan.tiles
        counts: Counter[tuple[int, ...]] = Counter()
        for group in range(math.prod(plan.tiles) if values else 0):
            here = group_id("x"), number(group, 32)
            places = [_number_of(first.get(axis, {}), terms, here) for axis in (*"mnk", "number of load", "number of store")]
            counts[tuple(places)] += 1
        for row, column, part in itertools.product(range(rows), range(columns), range(parts) if values else ()):
            corner = row * plan.tile["m"], column * plan.tile["n"], part * plan.launch[plan.part]
            have = sum(counts[*corner, batch, batch * parts + part] for batch in range(products))
            if have != products:
                where = f"row {corner[0]}, column {corner[1]}" + (f", k {corner[2]}" if parts > 1 else "")
                raise Violation(f"{have} workgroups have the tile at {where}, not {products}")

    def _assumptions(self) -> tuple[str, ...]:
        launches = "launches other than this one" if self.plan.launch else "launches"
        return (
            f"workgroups of {launches} have each tile of C once",
            f"m, n and k are below 2**{MOST_SIZE.bit_length() - 1}; rows of a tile span fewer than 2 GiB, or nothing is emitted",
            f"{self.plan.factor} is not 0, else A and B are not read; pointers are of buffers apart from each other",
            "loops end; all work-items of a workgroup start; waits and barriers are right",
        )

    def _only_these(self) -> None:
        """Shows that each access is to a pointer argument, and that nothing is written but the matrices that the plan stores."""
        stored = {str(self.symbol(each.argument)): each.kind for each in self.plan.matrices}
        for access in self.accesses:
            base = access.address.base
            if not base:
                raise NotModelled(f"an address without a pointer argument, at {access.pc:#x}")
            if access.kind != "load" and stored.get(base) != access.kind:
                raise Violation(f"something else than the result is written, at {access.pc:#x}")

    def _places(self, matrix: MatrixPlan, budget: Budget) -> tuple[tuple[Any, ...], int]:
        """Returns where the tile of a matrix begins, and the multiple for which its claim was shown."""
        *others, last = matrix.multiples
        for multiple in others:
            try:
                return self._places_in_symbols(matrix, multiple, budget), multiple
            except NotModelled:
                budget.check()
        return self._places_in_symbols(matrix, last, budget), last

    def _places_in_symbols(self, matrix: MatrixPlan, multiple: int, budget: Budget) -> tuple[Any, ...]:
        coverage = self._coverage(matrix, multiple, budget)
        return tuple(coverage.evaluation.in_symbols(place) for place in coverage.places(self._of(matrix)))

    @cached_property
    def info(self) -> Any:
        """Kernel's entry in its code object."""
        return self.code.kernels[self.kernel]

    def symbol(self, name: str) -> Term:
        """Returns the symbol of an argument."""
        at = next((at for at, each in enumerate(self.info.explicit_arguments) if each.name == name), None)
        if at is None:
            raise NotModelled(f"the kernel has no argument {name}, as a kernel of this plan has")
        return argument_symbol(at, self.info.explicit_arguments[at])

    def run(self, budget: Budget) -> CoverageRun:
        """Returns the run on terms, not begun."""
        if self.info.required_workgroup_size[1:] != (1, 1) or self.info.required_workgroup_size[0] % WAVEFRONT:
            raise NotModelled("a workgroup that is not a row of whole waves, as the code object requires it")
        self.lanes = lanes = Lanes()
        roots = Roots(lanes, budget, list, compares=False)
        inputs = KernelInputs("k", self.code, self.info, lanes, roots)
        prover = Prover(Launches(inputs, Assumptions()), budget)
        nest = LoopNest(self.code, self.info)
        of_place = frozenset(str(self.symbol(name)) for name in (*self.plan.order, self.plan.part))
        self.terms = CoverageRun(
            inputs, ForgottenFloats(lanes), self.limits, budget, nest=nest, prover=prover, of_place=of_place
        )  # fmt: skip
        return self.terms

    def _of(self, matrix: MatrixPlan) -> list[Access]:
        base = str(self.symbol(matrix.argument))
        return [each for each in self.accesses if each.address.base == base and each.kind == matrix.kind]

    def _coverage(self, plan: MatrixPlan, multiple: int, budget: Budget) -> Coverage:
        names = {name: str(self.symbol(name)) for name in ("m", "n", "k", self.plan.part, plan.stride, plan.batch)}
        along = plan.axes[1]
        multiples = {names[name]: multiple for name in ((along, self.plan.part) if along == "k" else (along,))}
        ranges = {name: (0, MOST_SIZE // multiples.get(name, 1)) for name in names.values()}
        rounds = {str(loop.round): (0, MOST_SIZE // self.plan.tile["k"]) for loop in self.terms.passes}  # `Coverage` shows it
        ranges |= rounds
        for each in self.plan.matrices:
            rows = self.plan.tile[each.axes[0]]
            ranges[str(self.symbol(each.stride))] = (0, (1 << 31) // (rows * each.element) - 1)
            ranges |= {str(self.symbol(each.batch)): (0, (1 << 32) - 1), f"{self.symbol(each.batch)} high": (0, (1 << 32) - 1)}
        advances = {str(each.value.decl().name()): each for each in self.terms.facts.advances}
        evaluation = Evaluation(
            math.prod(self.info.required_workgroup_size), multiples, ranges, advances, self.lanes
        )  # fmt: skip
        facts, extents = [], {axis: evaluation.cases(self.symbol(axis))[0][1] for axis in "mnk"}
        for name, term in self.terms.named.items():
            cases = evaluation.define(name, term, (0, MOST_SIZE) if name.startswith(PLACE) else None)
            if name.startswith(PLACE):
                if plan.columns > 1 and len(cases) == 1 and term.decl().kind() in (z3.Z3_OP_BLSHR, z3.Z3_OP_CONCAT):
                    evaluation.parts[name] = cases[0][1]
                continue
            value = Form.name(name, evaluation.multiples.get(name, 1))
            if cases:
                facts.append(z3.Or(*(z3.And(when.formula(), (value - form).whole() == 0) for when, form in cases)))
            if self._is_part(evaluation, cases):
                start = extents["k"] - next(form for _, form in cases if PLACE in str(form))
                extents["k"] = start + value
        facts += [z3.And(z3.Int(name) >= low, z3.Int(name) <= high) for name, (low, high) in ranges.items() if name not in rounds]
        if plan.kind == "load":
            facts.append(z3.Not(evaluation.condition(self._no_factor()).formula()))
        pointer, stride, batch = str(self.symbol(plan.argument)), names[plan.stride], names[plan.batch]
        matrix = Matrix(
            pointer, plan.argument, plan.kind, plan.axes, stride, batch, plan.element, plan.times, plan.columns, plan.panel
        )  # fmt: skip
        starts = {step.pc: steps[0].pc for steps in self.terms.nest.blocks.all_steps for step in steps}
        return Coverage(matrix, dict(self.plan.tile), extents, evaluation, self.terms.passes, facts, budget, starts)

    def _no_factor(self) -> Term:
        """Returns the condition that the factor is 0; a float's sign does not count."""
        factor = self.symbol(self.plan.factor)
        if self.plan.factor_type == "i32":
            return factor == 0
        magnitude = z3.Extract(factor.size() - 1, factor.size() - 32, factor) & number(SIGNLESS, 32)
        return (magnitude if factor.size() == 32 else magnitude | z3.Extract(31, 0, factor)) == 0

    def _is_part(self, evaluation: Evaluation, cases: Sequence[Case]) -> bool:
        """True for the elements of K that a workgroup has: the least of the remaining ones and of a part."""
        k, part = (evaluation.cases(self.symbol(name))[0][1] for name in ("k", self.plan.part))
        forms = [form for _, form in cases]
        rest = [form for form in forms if form.key() != part.key()]
        return len(forms) == 2 and len(rest) == 1 and all(
            product[0].startswith(PLACE) for product in (rest[0] - k).parts
        )  # fmt: skip


def _number_of(place: Mapping[Any, Any], terms: Mapping[str, Term], workgroup: tuple[Term, Term]) -> int:
    """Returns a place's value for a workgroup. Raises NotModelled."""
    found = 0
    for (name,), factor in place.items():
        value = z3.simplify(z3.substitute(terms[name], workgroup))
        if not z3.is_bv_value(value):
            raise NotModelled("a workgroup's tile depends on something else than its number")
        found += int(value.as_long() * factor)
    return found


NOT_PROVED = (Violation, NotModelled, RecursionError, z3.Z3Exception)


def ruling(error: Exception) -> tuple[str, str]:
    """Returns the kind of a verdict and its reason from one of NOT_PROVED.

    >>> ruling(NotModelled("lanes that are off"))
    ('unknown', 'lanes that are off')
    """
    if isinstance(error, Violation):
        return "wrong", str(error)
    if isinstance(error, RecursionError):
        return "unknown", "terms too deep for the solver's interface"
    return "unknown", f"the solver: {error}" if isinstance(error, z3.Z3Exception) else str(error)


def cover(code: CodeObject, kernel: str, plan: ProductPlan, limits: Limits = DEFAULT) -> CoverageVerdict:
    """Judges a kernel by its plan."""
    with own_terms():
        return CoverageJudge(code, kernel, plan, limits).verdict()
