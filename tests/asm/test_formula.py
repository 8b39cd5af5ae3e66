"""Formulas of registers: what their instructions compute, how many there are, and which registers they use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgpu
from simgpu.asm.builder.formula import Formula, of
from simgpu.asm.builder.kernel import KernelBuilder
from simgpu.hardware.isa.instruction import Reg
from tests.support.exhaustive import examples

ARGUMENTS = 37, 1000
LANES = np.arange(64, dtype=np.uint32)
Both = tuple[Any, Any]  # a formula and its values by lane
OPERATIONS = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "&": lambda x, y: x & y, "|": lambda x, y: x | y,
    "^": lambda x, y: x ^ y,
}  # fmt: skip


def text(k: KernelBuilder) -> list[str]:
    return [item.text() for item in k.items]  # type: ignore[union-attr]


def builder() -> KernelBuilder:
    return KernelBuilder("formula", "gfx942", 64)


def extended(both: Both, op: str, other: Both | int) -> Both:
    """Returns both sides after an operation with small numbers or with another pair."""
    formula, values = both
    if op in ("//", "%"):
        assert isinstance(other, int)
        shift = other % 6
        return (formula // (1 << shift), values >> shift) if op == "//" else (formula % (1 << shift), values & (1 << shift) - 1)
    known, more = other if isinstance(other, tuple) else (other, np.uint32(other))
    if op in ("least", "most"):
        return getattr(formula, op)(known), (np.minimum if op == "least" else np.maximum)(values, more)
    return OPERATIONS[op](formula, known), OPERATIONS[op](values, more).astype(np.uint32)


@st.composite
def formulas(draw: st.DrawFn, leaves: tuple[Both, ...]) -> Both:
    """Draws a formula; factors stay below 2^24, as v_mul_u32_u24 needs, because values are cut before each product."""
    both = draw(st.sampled_from(leaves))
    for _ in range(draw(st.integers(1, 5))):
        op = draw(st.sampled_from([*OPERATIONS, "//", "%", "least", "most"]))
        if op == "*":
            both = extended(both, "&", 0xFFF)
        number = st.integers(0, 200)
        other = draw(number if op in ("//", "%", "*") else number | st.sampled_from(leaves) | st.just(both))
        both = extended(both, op, other)
        if not isinstance(both[0], Formula):
            both = draw(st.sampled_from(leaves))
    return both


@given(data=st.data())
@settings(max_examples=examples(60))
def test_the_instructions_compute_the_formula(data: st.DataObject) -> None:
    k = builder()
    k.declare("pointer", "out")
    k.declare("u32", "a", "b")
    arguments = k.load_arguments()
    k.work_item_x()
    target, address, moved = (k.v.alloc(name) for name in ("target", "address", "moved"))
    k.v_mov_b32(target, 5)
    leaves = [(of(k.work_item), LANES), (of(target), np.full(64, 5, np.uint32))]
    leaves += [(of(arguments[name]), np.full(64, value, np.uint32)) for name, value in zip("ab", ARGUMENTS, strict=True)]
    first, second = (data.draw(formulas(tuple(leaves))) for _ in range(2))
    both = extended(second, "^", first)
    before = sum(k.v.in_use()) + sum(k.s.in_use())
    several = k.vectors(**{name: formula for name, (formula, _) in zip("xyz", (first, both, second), strict=True)})
    k.set(target, first[0])
    assert sum(k.v.in_use()) + sum(k.s.in_use()) == before + 3, "temporaries are freed"
    for number, register in enumerate((*several, target)):
        k.v_lshlrev_b32(address, 4, k.work_item)
        k.v_add_u32(address, 4 * number, address)
        k.v_mov_b32(moved, register)
        k.global_store_dword(address, moved, arguments["out"])
    k.s_endpgm()
    kernel = k.finish(scalars=ARGUMENTS)
    gpu = simgpu.Device("gfx942")
    out = gpu.empty(256, np.uint32)
    gpu.load(kernel.assemble())["formula"].launch(grid=(1, 1, 1), block=(64, 1, 1), args=[out, *ARGUMENTS])
    expected = [np.broadcast_to(np.asarray(values, np.uint32), 64) for _, values in (first, both, second, first)]
    np.testing.assert_array_equal(out.download(np.uint32, (64, 4)), np.stack(expected, axis=1))


@pytest.mark.parametrize(("formula", "instructions"), [
    (lambda v, w, s: (of(v) + w) * 8, ["v_add_lshl_u32 v9, v1, v2, 3"]),
    (lambda v, w, s: of(v) * 4 + of(w) * s, ["v_mul_lo_u32 v9, v2, s8", "v_lshl_add_u32 v9, v1, 2, v9"]),
    (lambda v, w, s: of(v) * 24 + w, ["v_mad_u32_u24 v9, v1, 24, v2"]),
    (lambda v, w, s: of(v) * 100 + w, ["v_mul_u32_u24 v9, 0x64, v1", "v_add_u32 v9, v9, v2"]),
    (lambda v, w, s: of(v) + w + s, ["v_add3_u32 v9, v1, v2, s8"]),
    (lambda v, w, s: of(v) // 4 % 8, ["v_bfe_u32 v9, v1, 2, 3"]),
    (lambda v, w, s: of(v) % 8 * 4 | of(w) // 2, ["v_and_b32 v9, 7, v1", "v_lshrrev_b32 v0, 1, v2", "v_lshl_or_b32 v9, v9, 2, v0"]),
    (lambda v, w, s: of(s) * 12 + 3 + v, ["s_mul_i32 s0, s8, 12", "s_add_u32 s0, s0, 3", "v_add_u32 v9, s0, v1"]),
    (lambda v, w, s: of(v) - s, ["v_subrev_u32 v9, s8, v1"]),
    (lambda v, w, s: 5 - of(v), ["v_sub_u32 v9, 5, v1"]),
    (lambda v, w, s: (of(v) + 1) * 1 + 0 + 2 - 0, ["v_add_u32 v9, 3, v1"]),
    (lambda v, w, s: of(v).least(7).most(s, "i32"), ["v_min_u32 v9, 7, v1", "v_max_i32 v9, s8, v9"]),
    (lambda v, w, s: of(v) * (3 << 25), ["s_mov_b32 s0, 0x6000000", "v_mul_lo_u32 v9, v1, s0"]),
    (lambda v, w, s: of(v), ["v_mov_b32 v9, v1"]),
])  # fmt: skip
def test_few_instructions(formula: Any, instructions: list[str]) -> None:
    k = builder()
    for file, last in ((k.v, 10), (k.s, 9)):
        for index in range(4 if file is k.s else 1, last):
            file.reserve(index, 1, "other")
    k.v.free(Reg("v", 0))
    k.s.free(Reg("s", 0, 2), Reg("s", 2), Reg("s", 3))
    k.set(Reg("v", 9), formula(Reg("v", 1), Reg("v", 2), Reg("s", 8)))
    assert text(k) == instructions


def test_a_part_that_stands_twice_is_computed_once() -> None:
    k = builder()
    part = of(k.work_item) % 16
    k.vector("place", part * part + (part ^ 3))
    assert [line.split()[0] for line in text(k)] == ["v_and_b32", "v_xor_b32", "v_mul_lo_u32", "v_add_u32"] or len(text(k)) == 4


def test_the_target_may_be_read_by_its_own_formula() -> None:
    k = builder()
    target = k.v.alloc("target")
    k.set(target, (of(k.work_item) * 12 + 100) ^ of(target) // 2)
    assert text(k)[-1] == "v_xor_b32 v1, v2, v1"


def test_scalar_formulas_get_scalar_registers() -> None:
    k = builder()
    x = k.scalar("x", of(k.group_x) // 4 % 8 + of(k.group_y) * 16)
    assert x.file == "s" and text(k) == ["s_bfe_u32 s4, s2, 0x30002", "s_lshl_b32 s5, s3, 4", "s_add_u32 s4, s4, s5"]


def test_other_divisors_take_a_limit() -> None:
    with pytest.raises(ValueError, match="a number without a limit is not divided by 12"):
        builder().vector("quotient", of(Reg("v", 0)) // 12)


@pytest.mark.parametrize(("formula", "instructions"), [
    (lambda x: x // 64, ["v_mov_b32 v1, 0"]),
    (lambda x: x % 64, ["v_mov_b32 v1, v0"]),
    (lambda x: x * 12 // 4, ["v_mul_u32_u24 v1, 3, v0"]),
    (lambda x: x * 4 // 32, ["v_lshrrev_b32 v1, 3, v0"]),
    (lambda x: x * 4 % 32, ["v_and_b32 v1, 7, v0", "v_lshlrev_b32 v1, 2, v1"]),
    (lambda x: (x * 8 + x % 8) // 16, ["v_lshrrev_b32 v1, 1, v0"]),
    (lambda x: (x // 12 * 24 + x % 12) % 24, ["v_mul_u32_u24 v1, 43, v0", "v_lshrrev_b32 v1, 9, v1", "v_mul_u32_u24 v1, 12, v1",
                                              "v_sub_u32 v1, v0, v1"]),
    (lambda x: x // 4 // 2, ["v_lshrrev_b32 v1, 3, v0"]),
    (lambda x: x // 12 * 12 + x % 12, ["v_mov_b32 v1, v0"]),
    (lambda x: x.least(63), ["v_mov_b32 v1, v0"]),
    (lambda x: x.least(9), ["v_min_u32 v1, 9, v0"]),
    (lambda x: x & 15, ["v_and_b32 v1, 15, v0"]),
    (lambda x: 2 * (x ^ 0), ["v_lshlrev_b32 v1, 1, v0"]),
    (lambda x: x // 64 + Reg("v", 0), ["v_mov_b32 v1, v0"]),
    (lambda x: (x // 64 ^ 3) * 5 // 4 % 2 | 8, ["v_mov_b32 v1, 9"]),
    (lambda x: (x // 64) * Reg("s", 9), ["v_mov_b32 v1, 0"]),
    (lambda x: x % 1 + x - x // 64, ["v_mov_b32 v1, v0"]),
])  # fmt: skip
def test_a_limit_simplifies(formula: Any, instructions: list[str]) -> None:
    k = builder()
    target = k.v.alloc("target")
    k.set(target, formula(of(k.work_item, 64)))
    assert text(k) == instructions


@given(data=st.data(), divisors=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 100]), min_size=1, max_size=4))
def test_closed_forms_equal_those_of_numbers(data: st.DataObject, divisors: list[int]) -> None:
    """Both are computed at once: a formula's value with `evaluate`, that of each lane's number by Python."""
    def closed(x: Any) -> Any:
        for number, divisor in enumerate(divisors):
            quotient, rest = x // divisor, x % divisor
            x = quotient * (divisor * 2) + rest if number % 2 else rest * 8 + quotient + 1
        return x

    formula = closed(of(Reg("v", 0), 64))
    for lane in range(64):
        assert evaluate(formula, lane) == closed(lane)
        assert not isinstance(formula, Formula) or formula.limit is None or closed(lane) < formula.limit


def evaluate(x: Any, lane: int) -> int:
    """Returns the value of a formula of one register, which is `lane`."""
    if not isinstance(x, Formula):
        return lane if isinstance(x, Reg) else x
    values = [evaluate(operand, lane) for operand in x.operands]
    return values[0] if x.op == "is" else {**OPERATIONS, "//": lambda x, y: x // y, "%": lambda x, y: x % y}[x.op](*values)


def test_a_temporary_is_a_register_or_the_operand_itself() -> None:
    k = builder()
    for operand in (3, Reg("s", 8), of(Reg("s", 8))):
        with k.temporary(operand) as held:
            assert held in (3, Reg("s", 8))
    with k.temporary(of(k.group_x) - 1) as held:
        assert held == k.s[4] and k.s.in_use()[4]
    assert not k.s.in_use()[4]
