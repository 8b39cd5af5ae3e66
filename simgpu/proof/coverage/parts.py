"""Proof that a second kernel adds each part of a product once to each element of C, which it writes once.

A work-item has a few elements of C, by their numbers from row to row. LDS, which such a kernel does not use, counts here how often
the elements of a workgroup were stored.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simgpu.checks.lint.steps import LintStep
from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.isa.instruction import Instruction, Reg
from simgpu.proof.coverage.claims import Violation
from simgpu.proof.coverage.forms import Form
from simgpu.proof.coverage.judge import NOT_PROVED, CoverageVerdict, OperandPlan, ruling
from simgpu.proof.coverage.machine import OUTSIDE, WORD, WORD_BITS, Machine
from simgpu.proof.coverage.products import GROUP_X, GROUP_Y, Products, arguments_of, first_state
from simgpu.proof.coverage.values import ANY_COLUMN, BESIDE, RESULT, ZEROS, Cells, State, Sums, Value, zero
from simgpu.proof.coverage.words import Pointed, operand
from simgpu.proof.entry import KernelInputs
from simgpu.proof.roots import Roots
from simgpu.proof.safety.nest import LoopNest
from simgpu.proof.solver import DEFAULT, Budget, Limits, own_terms
from simgpu.proof.terms import Lanes, NotModelled

SUMS = ("v_add_f32", "v_add_f64", "v_add_u32")
PARTIALS, STRIDE = "partials", "part_bytes"
WHOLE = 1 << 30  # no origin of k moves


@dataclass(frozen=True)
class PartsPlan:
    """Sum of parts of a product. Names are those of the kernel's arguments."""

    parts: int
    words: int  # registers of an element of a part
    columns: int  # of the product for one of C: 2 with a gate
    result: OperandPlan
    operands: tuple[OperandPlan, ...]
    division: tuple[int, int, int]  # a row's elements, and the factor and shift that divide by it


@dataclass(frozen=True)
class Part:
    """Word of an element of a part."""

    index: Form  # the element's number
    number: int  # of the part
    word: int

    def key(self) -> tuple[Any, ...]:
        return self.index.key(), self.number, self.word


@dataclass(frozen=True)
class Inside:
    """Lanes whose element is one of the product; or an address in these lanes, outside every buffer in others."""

    index: Form
    address: Form | None = None

    def key(self) -> tuple[Any, ...]:
        return self.index.key(), None if self.address is None else self.address.key()


@dataclass(frozen=True)
class Multiplied:
    """High word of twice an element's number by the factor of a division."""

    index: Form

    def key(self) -> tuple[Any, ...]:
        return self.index.key()


@dataclass
class PartsMachine(Machine):
    """Instructions of a second kernel."""

    plan: PartsPlan = field(kw_only=True)
    rows: dict[str, Form] = field(default_factory=dict)  # elements by the names of their rows

    def end(self, state: State) -> None:
        """Shows that each element of a workgroup was stored once."""
        wrong = np.flatnonzero(state.lds.code != 1)
        if len(wrong):
            raise Violation(f"C: element {wrong[0]} of a workgroup is written {int(state.lds.code[wrong[0]])} times, not once")

    # -- numbers of elements ---------------------------------------------------------------------

    def _mask(self, state: State, inst: Instruction) -> Value:
        limit, index = (self.read(state, inst.args.get(name)) for name in ("src0", "src1"))
        if inst.spec.mnemonic == "v_cmp_gt_u32" and isinstance(limit, Form) and isinstance(index, Form):
            return Inside(index) if limit.key() == Form.name("elements").key() else None
        return super()._mask(state, inst)

    def _choose_address(self, values: Sequence[Value]) -> Value:
        no, yes, mask = values
        if isinstance(mask, Inside) and isinstance(no, Form) and isinstance(yes, Form) and no.constant is not None:
            if np.all(np.asarray(no.constant) & 0xFFFFFFFF >= OUTSIDE):
                return replace(mask, address=yes)
        return None

    def _result(self, state: State, inst: Instruction, mnemonic: str, values: Sequence[Value]) -> Value:
        if mnemonic == "v_mul_hi_u32" and isinstance(values[0], Form) and self._is(values[1], "n_magic"):
            index = values[0].quotient(2)
            return None if index is None else Multiplied(index)
        if mnemonic == "v_lshrrev_b32" and isinstance(values[1], Multiplied) and self._is(values[0], "n_shift"):
            return self._row(values[1].index)
        if mnemonic == "v_mul_lo_u32" and isinstance(values[0], Form) and any(self._is(values[1], name) for name in ("n", "ldc")):
            assert isinstance(values[1], Form)
            return values[0].product(values[1]).modulo(WORD_BITS)
        if any(isinstance(value, Part) for value in values):
            return self._float(state, values, mnemonic)
        return super()._result(state, inst, mnemonic, values)

    @staticmethod
    def _is(value: Value, name: str) -> bool:
        return isinstance(value, Form) and value.key() == Form.name(name).key()

    def _row(self, index: Form) -> Form:
        """Returns the row of an element, which has a name."""
        name = next((name for name, each in self.rows.items() if each.key() == index.key()), f"row #{len(self.rows)}")
        self.rows[name] = index
        return Form.name(name)

    # -- sums ------------------------------------------------------------------------------------

    def _float(self, state: State, values: Sequence[Value], mnemonic: str) -> Value:
        parts = [value for value in values if isinstance(value, Part)]
        if not parts:
            return super()._float(state, values, mnemonic)
        others = [value for value in values if not isinstance(value, Part)]
        if len(parts) > 1 or len(others) != 1 or mnemonic not in SUMS:
            raise Violation("partials: a part is used otherwise than in a sum of parts")
        return self._add(others[0], parts[0])

    def _add(self, old: Value, part: Part) -> Sums:
        lanes = np.broadcast_to(np.asarray(part.index.lanes), self.items)
        column, word = divmod(part.word, self.plan.words)
        if zero(old):
            old = Sums(lanes, np.full(self.items, column), 0, part=word)
        if not isinstance(old, Sums) or old.part != word or np.any(old.outer != lanes) or np.any(old.inner != column):
            raise Violation("partials: an element of a part is added to something else than the sum for it")
        if part.number < old.done or part.number in old.more:
            raise Violation(f"partials: part {part.number} is added twice")
        done, more = old.done, {*old.more, part.number}
        while done in more:
            more.remove(done)
            done += 1
        return replace(old, done=done, more=frozenset(more))

    def _finish(self, state: State, value: Sums) -> Cells:
        if value.done < self.plan.parts:
            raise Violation(f"partials: part {value.done} is left out")
        code = Cells.of(RESULT, value.part, value.outer, value.inner).code
        return Cells(np.repeat(code[:, None], self.shape[1], axis=1))

    # -- memory ----------------------------------------------------------------------------------

    def _buffer(self, state: State, step: LintStep) -> None:
        inst, memory = step.inst, step.inst.spec.memory
        resource, data = inst.args.get("srsrc"), inst.args.get("vdata") or inst.args.get("vdst")
        assert memory is not None and isinstance(resource, Reg) and isinstance(data, Reg)
        base, address = self.read(state, resource), self.read(state, inst.args.get("vaddr"))
        name = next((name for name in self.matrices if isinstance(base, Form) and (name,) in base.parts), None)
        if name is None or memory.d16 or memory.sign or inst.mods.get("idxen") or not inst.mods.get("offen"):
            raise NotModelled("an access of this kind")
        if not isinstance(address, Inside) or address.address is None:
            raise Violation(f"{name}: it is not known that the element is one of the product")
        assert isinstance(base, Form)
        offset = self._form(state, inst.args.get("soffset"), "an offset") + Form.of(int(inst.mods.get("offset", 0)))
        total = (base + address.address + offset - Form.name(name)).modulo(WORD_BITS)
        self._place("element of C", address.index.without_lanes)
        bits = memory.bits * memory.count
        if name == PARTIALS:
            number = self._part(total, address.index)
            self.write(state, data, [Part(address.index, number, word) for word in range(bits // WORD_BITS)])
        elif memory.op == "load":
            column = self._column(name, total, address.index)
            self.write(state, data, self._load_element(self.matrices[name], address.index, column, bits))
        elif memory.op == "store":
            if name != self.plan.result.argument or self._column(name, total, address.index):
                raise Violation("C: an address that is not that of the element")
            self._store(state, [self.read(state, data, word) for word in range(max(1, bits // WORD_BITS))], address.index, bits)
            self.stored.add(step.pc)

    def _part(self, total: Form, index: Form) -> int:
        """Returns the number of the part that an element is loaded from."""
        where, rest = total.split(STRIDE)
        number = (where - Form.name(GROUP_Y, self.plan.parts)).constant
        if number is None or np.ndim(number) or not 0 <= number < self.plan.parts:
            raise Violation("partials: an element of none of the product's parts")
        if rest.key() != index.times(WORD * self.plan.words * self.plan.columns).modulo(WORD_BITS).key():
            raise Violation("partials: another element than that of C")
        return int(number)

    def _column(self, name: str, total: Form, index: Form) -> int:
        """Returns which of an element's columns of the product is accessed: 0, or 1 of a gate's pair."""
        plan = next(each for each in (self.plan.result, *self.plan.operands) if each.argument == name)
        row = self._row(index)
        column = index - row.product(Form.name("n"))
        vector = {"m": row, "n": column.times(self.plan.columns), "": Form()}[plan.axes[1]]
        whole = row.product(Form.name("ldc")) + column if plan.axes == ("m", "n") else vector
        for number in range(self.plan.columns if plan.axes == ("", "n") else 1):
            if (total - self._batch(plan) - (whole + Form.of(number)).times(plan.element)).modulo(WORD_BITS).key() == Form().key():
                return number
        raise Violation(f"{name}: another element than that of C's row and column")

    def _batch(self, plan: OperandPlan) -> Form:
        """Returns the distance of a batch's operand, which is an argument or a number of bytes."""
        if plan.batch.isdecimal():
            return Form.name(GROUP_Y, int(plan.batch))
        return Form.name(plan.batch).product(Form.name(GROUP_Y)) if plan.batch else Form()

    def _load_element(self, matrix: Pointed, index: Form, column: int, bits: int) -> list[Value]:
        """Returns the words of an operand of the epilogue."""
        lanes = np.broadcast_to(np.asarray(index.lanes), self.items)[:, None]
        pieces = np.arange(max(1, bits // WORD_BITS) * self.shape[1])[None]
        codes = operand(matrix, pieces, lanes, ANY_COLUMN if matrix.axes[1] in ("m", "") else column).code
        codes = np.where(pieces * (WORD_BITS // self.shape[1]) < bits, codes, ZEROS)
        return [Cells(codes[:, at : at + self.shape[1]]) for at in range(0, codes.shape[1], self.shape[1])]

    def _store(self, state: State, words: Sequence[Value], index: Form, bits: int) -> None:
        lanes = np.broadcast_to(np.asarray(index.lanes), self.items)
        if np.any((lanes < 0) | (lanes >= state.lds.code.size)):
            raise Violation("C: an element of another workgroup is written")
        for word, value in enumerate(words):
            column = np.zeros((self.items, self.shape[1]), np.int64)
            self._store_word(state, value, (lanes, (column, column + word * self.shape[1])), bits, True)
        made = state.lds.code.copy()
        np.add.at(made, lanes, 1)
        state.lds = Cells(made)


def _divides(elements: int, factor: int, shift: int) -> bool:
    """True if (2x · factor >> 32) >> shift is x // elements for x below 2**31.

    By Granlund and Montgomery 1994, theorem 4.2.
    """
    return 0 <= factor * elements - (1 << 31 + shift) <= 1 << shift and factor < 1 << 32


def _machine(code: CodeObject, inputs: KernelInputs, nest: LoopNest, plan: PartsPlan) -> PartsMachine:
    items = math.prod(inputs.info.required_workgroup_size)
    inside = {pc for loop in nest.loops.values() for pc in loop.blocks}
    looped = frozenset(step.pc for steps in nest.blocks.all_steps if steps[0].pc in inside for step in steps)
    pointed: Mapping[str, Pointed] = {PARTIALS: Pointed(RESULT, ("m", "n"), "", STRIDE, WORD_BITS)} | {
        each.argument: Pointed(
            RESULT if each is plan.result else BESIDE, each.axes, each.stride, each.batch, 8 * each.element, number
        )
        for number, each in enumerate((plan.result, *plan.operands), 1)
    }
    return PartsMachine(
        inputs.info.target, items, arguments_of(inputs, {}), pointed, "", "", "alpha", "f32", WHOLE, looped, plan.columns > 1,
        plan=plan,
    )  # fmt: skip


def _judge(code: CodeObject, kernel: str, plan: PartsPlan, limits: Limits) -> None:
    info = code.kernels[kernel]
    budget, lanes = Budget(limits), Lanes()
    inputs = KernelInputs("k", code, info, lanes, Roots(lanes, budget, list, compares=False))
    nest = LoopNest(code, info)
    machine = _machine(code, inputs, nest, plan)
    if not _divides(*plan.division):
        raise Violation("the division by a row's elements is not exact")
    state = first_state(inputs, machine.shape)
    elements = machine.items * len({step.pc for steps in nest.blocks.all_steps for step in steps if _stores(step)})
    state.lds = Cells(np.zeros(elements, np.int64))
    Products(machine, nest, budget).follow(state)
    if not machine.stored:
        raise Violation("C: nothing is stored")
    if machine.places["element of C"] != Form.name(GROUP_X, elements).key():
        raise Violation("C: the elements of workgroups are not consecutive")


def _stores(step: LintStep) -> bool:
    memory = step.inst.spec.memory
    return memory is not None and memory.op == "store"


def add_up(code: CodeObject, kernel: str, plan: PartsPlan, limits: Limits = DEFAULT) -> CoverageVerdict:
    """Judges a kernel that adds parts."""
    begun = time.monotonic()
    kind: Any = "proved"
    reason = ""
    with own_terms():
        try:
            _judge(code, kernel, plan, limits)
        except NOT_PROVED as error:
            kind, reason = ruling(error)
    assumed = (
        "the grid has an element of C for each work-item's element; n_magic and n_shift divide by n, as in this launch",
        "pointers are of buffers apart from each other, and high words of addresses are right",
        "loops end; all work-items of a workgroup start; waits are right",
    )
    return CoverageVerdict(
        kind, ((PARTIALS, 1), ("C", 1)) if kind == "proved" else (), reason, time.monotonic() - begun, 0, kind == "proved",
        assumed if kind == "proved" else (),
    )  # fmt: skip
