"""Values put together and taken apart: vectors, arrays and structs, bits as another type, choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import z3

from simgpu.hardware.isa.lane_smt import bits_of, choose, concat, fold, negation, number, some
from simgpu.proof.ir.syntax import IrInstruction, IrType
from simgpu.proof.ir.values import SymbolicValue, compose, flag, is_set, scalar_types

Term = Any


def bitcast(type_: IrType, value: SymbolicValue) -> SymbolicValue:
    """Returns the same bits as another type: an element is poison if one is whose bits it has."""
    whole = []
    for each in value.scalars:
        bit = flag(each.poison)
        whole.append(fold(z3.SignExt(each.type.bits - 1, bit)) if each.type.bits > 1 else bit)
    spread, low, poison = concat(*whole), 0, []
    for scalar in scalar_types(type_):
        here = bits_of(spread, low, scalar.bits)
        poison.append(flag(negation(fold(here == 0))))
        low += scalar.bits
    if type_.leaves == value.type.leaves:
        return SymbolicValue(type_, value.bits, value.poison)
    return SymbolicValue(type_, value.bits, concat(*poison))


def select(condition: SymbolicValue, yes: SymbolicValue, no: SymbolicValue) -> SymbolicValue:
    test, leaves = condition.one, yes.type.leaves
    holds = is_set(test.bits)
    poison = choose(test.poison, number(-1, leaves), choose(holds, yes.poison, no.poison))
    return SymbolicValue(yes.type, choose(holds, yes.bits, no.bits), poison)


def _extract_element(inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
    vector, index = values
    made: SymbolicValue | None = None
    at, wrong = _index(vector, index)
    for number_ in range(vector.type.count):
        part = vector.part(number_)
        here = fold(at == number_)
        made = (
            part if made is None else
            SymbolicValue(part.type, choose(here, part.bits, made.bits), choose(here, part.poison, made.poison))
        )
    assert made is not None
    return SymbolicValue(made.type, made.bits, choose(wrong, number(-1, 1), made.poison))


def _insert_element(inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
    vector, element, index = values
    at, wrong = _index(vector, index)
    parts = []
    for number_ in range(vector.type.count):
        part, here = vector.part(number_), fold(at == number_)
        poison = choose(wrong, number(-1, 1), choose(here, element.poison, part.poison))
        parts.append(SymbolicValue(part.type, choose(here, element.bits, part.bits), poison))
    return compose(vector.type, parts)


def _index(vector: SymbolicValue, index: SymbolicValue) -> tuple[Term, Term]:
    """Returns an index, and the condition that it is poison or outside the vector."""
    beyond = fold(z3.UGE(index.bits, number(vector.type.count, index.type.bits)))
    if vector.type.count >> index.type.bits:
        beyond = z3.BoolVal(False)
    return index.bits, some(index.one.poison, beyond)


def _shuffle(inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
    parts = [value.part(at) for value in values for at in range(value.type.count)]
    nothing = SymbolicValue(inst.type.element, number(0, inst.type.element.bits), number(1, 1))
    return compose(inst.type, [parts[at] if at >= 0 else nothing for at in inst.numbers])


def _extract_value(inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
    made = values[0]
    for index in inst.numbers:
        made = made.part(index)
    return made


def _insert_value(inst: IrInstruction, values: list[SymbolicValue]) -> SymbolicValue:
    def place(whole: SymbolicValue, numbers: Sequence[int]) -> SymbolicValue:
        if not numbers:
            return values[1]
        return whole.with_part(numbers[0], place(whole.part(numbers[0]), numbers[1:]))

    return place(values[0], inst.numbers)


ELEMENTS: dict[str, Callable[[IrInstruction, list[SymbolicValue]], SymbolicValue]] = {
    "extractelement": _extract_element, "insertelement": _insert_element, "shufflevector": _shuffle,
    "extractvalue": _extract_value, "insertvalue": _insert_value,
}  # fmt: skip
