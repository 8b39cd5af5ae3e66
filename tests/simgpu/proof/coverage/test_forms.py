"""Forms are equal to the terms that they are of, and conditions to theirs, for drawn numbers and each work-item."""

from __future__ import annotations

import numpy as np
import pytest
import z3
from hypothesis import given, settings
from hypothesis import strategies as st

from simgpu.proof.coverage.evaluate import Evaluation
from simgpu.proof.coverage.forms import Condition, Form, at_least, both, either
from simgpu.proof.terms import Lanes, NotModelled, wide
from tests.support.exhaustive import examples

ITEMS = 128
RANGES = {"x": (0, 1 << 20), "y": (0, 1 << 20), "ld": (0, 1 << 18)}
X, Y, LD = z3.BitVecs("x y ld", 32)


def item(lanes: Lanes) -> z3.BitVecRef:
    return z3.Function("workitem_id_x", z3.BitVecSort(32), z3.BitVecSort(32))(lanes.lane)


def terms(lanes: Lanes) -> st.SearchStrategy[z3.BitVecRef]:
    atoms = st.sampled_from(
        [X, Y, item(lanes), item(lanes) & 15, z3.LShR(item(lanes), 4), z3.BitVecVal(7, 32), z3.BitVecVal(3, 32)]
    )
    pairs = st.sampled_from(["add", "sub", "scaled", "shifted", "strided"])

    def grow(made: st.SearchStrategy[z3.BitVecRef]) -> st.SearchStrategy[z3.BitVecRef]:
        return st.builds(_joined, pairs, made, made)

    return st.recursive(atoms, grow, max_leaves=6)


def _joined(how: str, a: z3.BitVecRef, b: z3.BitVecRef) -> z3.BitVecRef:
    made = {"add": a + b, "sub": a - b, "scaled": a * 5 + b, "shifted": (a << 2) + b, "strided": a + b}
    return made[how]


def value(form: Form, numbers: dict[str, int]) -> np.ndarray:
    total = np.zeros(ITEMS, object)
    for product, factor in form.parts.items():
        total = total + np.broadcast_to(factor, ITEMS).astype(object) * np.prod([numbers[name] for name in product], dtype=object)
    return total


def holds(condition: Condition, numbers: dict[str, int]) -> np.ndarray:
    if condition.kind == "at least":
        return value(condition.form, numbers) >= 0
    parts = [holds(part, numbers) for part in condition.parts]
    every = condition.kind == "all"
    return np.array((np.logical_and if every else np.logical_or).reduce([np.full(ITEMS, every), *parts]), bool)


def of_terms(term: z3.ExprRef, numbers: dict[str, int], lanes: Lanes) -> list[int | bool]:
    function = z3.Function("workitem_id_x", z3.BitVecSort(32), z3.BitVecSort(32))
    known = [(z3.BitVec(name, 32), z3.BitVecVal(number, 32)) for name, number in numbers.items()]
    found = []
    for lane in range(ITEMS):
        made = z3.substitute_funs(term, (function, z3.BitVecVal(lane, 32)))
        made = z3.simplify(z3.substitute(made, *known))
        found.append(made.as_long() if z3.is_bv(made) else z3.is_true(made))
    return found


@given(data=st.data(), x=st.integers(0, 1 << 20), y=st.integers(0, 1 << 20))
@settings(max_examples=examples(24))
def test_a_form_is_its_term(data: st.DataObject, x: int, y: int) -> None:
    lanes = Lanes()
    term, other = data.draw(terms(lanes)), data.draw(terms(lanes))
    evaluation, numbers = Evaluation(ITEMS, {}, dict(RANGES), {}, lanes), {"x": x, "y": y, "ld": 3}
    try:
        ((_, form),) = evaluation.cases(term)
        condition = evaluation.condition(
            data.draw(st.sampled_from([term < other, term >= other, term == other, z3.ULE(other, term)]))
        )
    except NotModelled:
        return
    assert [each % (1 << 32) for each in value(form, numbers)] == of_terms(term, numbers, lanes)
    assert holds(condition, numbers).tolist() == holds(condition.negation().negation(), numbers).tolist()


@pytest.mark.parametrize("x", [0, 1, 6, 7, 8, 100])
def test_a_choice_has_the_cases_of_its_term(x: int) -> None:
    lanes = Lanes()
    column = item(lanes) & 15
    term = z3.If(column < X, column * LD, z3.BitVecVal(0xC0000000, 32))
    numbers = {"x": x, "ld": 1000}
    total = np.zeros(ITEMS, object)
    for when, form in Evaluation(ITEMS, {}, dict(RANGES), {}, lanes).cases(term):
        total = np.where(holds(when, numbers), [each % (1 << 32) for each in value(form, numbers)], total)
    assert total.tolist() == of_terms(term, numbers, lanes)


def test_a_choice_of_work_items_is_one_sum() -> None:
    lanes, numbers = Lanes(), {"x": 5, "ld": 7}
    row = z3.LShR(item(lanes), 3) & 7
    term = X + z3.If(z3.ULE(row, z3.BitVecVal(5, 32)), row * LD, 5 * LD + 1)
    ((when, form),) = Evaluation(ITEMS, {}, dict(RANGES), {}, lanes).cases(term)
    assert when.always and value(form, numbers).tolist() == of_terms(term, numbers, lanes)


def test_a_number_that_wraps_in_all_launches_is_exact() -> None:
    lanes, numbers = Lanes(), {"x": 12345, "ld": 7}
    outside = z3.BitVecVal(0xC0000000, 32) + X + (item(lanes) & 3) * LD
    for term in (z3.ULT(outside, z3.BitVecVal(0x80000000, 32)), z3.UGE(outside, z3.BitVecVal(0xC0000000, 32) + X), outside < X):
        found = Evaluation(ITEMS, {}, dict(RANGES), {}, lanes).condition(term)
        assert holds(found, numbers).tolist() == of_terms(term, numbers, lanes)


@pytest.mark.parametrize(("number", "mask", "multiple"), [(4, 16, 4), (8, 16, 8), (2, 14, 8), (4, 12, 16), (1, 7, 8)])
@pytest.mark.parametrize("test", ["less", "greater", "equal"])
def test_the_least_of_a_number_and_its_multiples(number: int, mask: int, multiple: int, test: str) -> None:
    lanes = Lanes()
    left = X - (item(lanes) & mask)
    limit = z3.BitVecVal(number, 32)
    term = {
        "less": z3.If(left <= limit, left, limit),
        "greater": z3.If(left > limit, limit, left),
        "equal": z3.If(left >= limit, limit, left),
    }
    evaluation = Evaluation(ITEMS, {"x": multiple}, {"x": (0, 1 << 20)}, {}, lanes)
    assert all(form.constant is not None or form.coefficient("x") == multiple for _, form in evaluation.cases(term[test]))
    for x in (0, 1, 2, 3, 50):
        total = np.zeros(ITEMS, object)
        for when, form in evaluation.cases(term[test]):
            total = np.where(holds(when, {"x": x}), [each % (1 << 32) for each in value(form, {"x": x})], total)
        assert total.tolist() == of_terms(term[test], {"x": x * multiple}, lanes)


def test_conditions_that_contradict_each_other_never_hold() -> None:
    less, more = at_least(Form.name("x") - Form.of(5)), at_least(Form.of(4) - Form.name("x"))
    assert both(less, more).never and either(less, less.negation()).always
    assert both(less, at_least(Form.name("x") - Form.of(9))).conjuncts() == (at_least(Form.name("x") - Form.of(9)),)


def test_halves_of_a_difference_are_one() -> None:
    whole = z3.BitVec("whole", 64)
    low, high = z3.Extract(31, 0, whole), z3.Extract(63, 32, whole)
    borrow = z3.If(z3.ULT(low, z3.BitVecVal(16, 32)), z3.BitVecVal(1, 32), z3.BitVecVal(0, 32))
    made = wide(low - z3.BitVecVal(16, 32), high - borrow)
    assert z3.is_true(z3.simplify(made == whole - 16))
    solver = z3.Solver()
    solver.add(made != z3.Concat(high - borrow, low - z3.BitVecVal(16, 32)))
    assert solver.check() == z3.unsat
