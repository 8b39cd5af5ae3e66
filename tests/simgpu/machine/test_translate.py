"""Functions as machine code do as Python does, on integers of 64 bits and floats; untranslatable ones are refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import Structure, c_int32, c_int64, c_uint8
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from simgpu.machine.jit import compiler
from simgpu.machine.runtime import (
    address_of,
    clear,
    copy,
    fill,
    load8,
    load32,
    load64,
    octets,
    part,
    records,
    shift_in_zeros,
    store8,
    store32,
    store64,
    structure,
    words,
)
from simgpu.machine.runtime.functions import Native, Runtime
from simgpu.machine.runtime.places import NotTranslated
from tests.support.exhaustive import examples

WORD = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(-70, 70)
TABLE = (3, 1, 4, 1, 5)


def wrapped(value: int) -> int:
    """Returns the low 64 bits, as a signed number."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def compiled(function: Callable[..., Any]) -> Callable[..., int]:
    """Returns the function as machine code, with this run's key: Python names all lambdas and locals alike."""
    made = Runtime(function)
    address = compiler().address_of_source(f"{function.__module__}.{function.__qualname__}.{made.text('f')}", made.source)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * made.parameters)(address)


@pytest.fixture(scope="module")
def arithmetic() -> Callable[..., int]:
    return compiled(calculate)


def calculate(which: int, a: int, b: int) -> int:
    shift = b & 63
    if which == 0:
        return a + b * 3 - (a ^ b)
    elif which == 1:
        return (a & ~b) | -a
    elif which == 2:
        return a // b
    elif which == 3:
        return a % b
    elif which == 4:
        return a >> shift
    elif which == 5:
        return a << shift
    elif which == 6:
        return min(a, b, 17) + max(a, b)
    elif which == 7:
        return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > b) + 32 * (a >= b)
    elif which == 8:
        return 1 if -5 <= a < b else 2 if not a else 3
    elif which == 9:
        return a // -7 + a % -7 + a // 8 + a % 8
    return which


@settings(max_examples=examples(200))
@example(2, -(1 << 63), -1)
@example(3, -(1 << 63), -1)
@example(2, 5, 0)
@example(3, 5, 0)
@given(st.integers(0, 10), WORD | SMALL, WORD | SMALL)
def test_arithmetic_is_python_s(arithmetic: Callable[..., int], which: int, a: int, b: int) -> None:
    wanted = 0 if which in (2, 3) and b == 0 else calculate(which, a, b)
    assert arithmetic(which, a, b) == wrapped(wanted)


@pytest.fixture(scope="module")
def loops() -> Callable[..., int]:
    return compiled(walk)


@part
def collatz(start: int, limit: int) -> tuple[int, int]:
    """Returns the steps to 1, and the highest number on the way."""
    steps, highest = 0, start
    while start != 1:
        if steps == limit:
            break
        steps += 1
        if start & 1:
            start = 3 * start + 1
        else:
            start >>= 1
            continue
        highest = max(highest, start)
    return steps, highest


@part
def first_of(value: int) -> int:
    for at, one in enumerate((2, value, 7)):
        if one == 7:
            return at
    return -1


def walk(start: int, limit: int, step: int) -> int:
    steps, highest = collatz(start, limit)
    total = 0
    for i in range(limit):
        for j in range(i, 0, -1):
            if (i ^ j) % 3 == 0:
                continue
            if j * i > 40 or (total and total % 11 == 5):
                break
            total += j
    for i in range(1, limit, step):
        total += TABLE[i % 5] * i
    found = False
    for i in range(limit):
        found |= i == step
    return total + 1000 * steps + 100000 * highest + first_of(limit) + 10 * found


@settings(max_examples=examples(60))
@given(st.integers(1, 30), st.integers(0, 12), st.integers(1, 5))
def test_loops_are_python_s(loops: Callable[..., int], start: int, limit: int, step: int) -> None:
    assert loops(start, limit, step) == walk(start, limit, step)


@part
def counted(place: int) -> int:
    store64(place, load64(place) + 1)
    return 1


def asks(place: int, a: int, b: int) -> int:
    both = a and counted(place)
    either = b or counted(place)
    return 2 * both + either


@pytest.mark.parametrize(("a", "b", "asked"), [(0, 0, 1), (1, 0, 2), (0, 1, 0), (5, 9, 1)])
def test_what_need_not_be_asked_is_not(a: int, b: int, asked: int) -> None:
    times = np.zeros(1, np.int64)
    assert compiled(asks)(times.ctypes.data, a, b) == 2 * bool(a) + 1
    assert times[0] == asked


class Leaf(Structure):
    _fields_ = (("low", c_int32), ("bytes", c_uint8 * 3), ("high", c_int64))


class Tree(Structure):
    _fields_ = (("count", c_int64), ("leaves", Leaf * 4), ("row", c_int64 * 3))


LEAF, TREE = np.dtype(Leaf), np.dtype(Tree)


@part
def leaf_of(tree: Any, at: int) -> Any:
    return tree.leaves[at]


@part
def swap(row: np.ndarray, one: int, other: int) -> None:
    row[one], row[other] = row[other], row[one]


def climb(tree_at: int, leaves_at: int, number: int) -> int:
    tree, leaves = structure(tree_at, TREE), records(leaves_at, 4, LEAF)
    leaf = leaf_of(tree, number)
    leaf.low, leaf.high = -number, 1 << 40
    leaf.bytes[1] |= 0x1FF
    leaf_of(tree, number).bytes[2] += 3
    leaves[0].high += leaf.bytes[1] + leaf.low
    swap(tree.row, 0, number)
    for value in tree.row[1:]:
        tree.count += value
    octets(leaves_at + 48, 8)[2:5] = 0xAB
    return tree.row.size


def test_structures_and_arrays_lie_where_ctypes_has_them() -> None:
    tree = Tree(count=5, row=(7, 8, 9))
    leaves = (Leaf * 4)()
    tree.leaves[2].bytes[2] = 254
    size = compiled(climb)(ctypes.addressof(tree), ctypes.addressof(leaves), 2)
    assert (size, list(tree.row), tree.count) == (3, [9, 8, 7], 5 + 8 + 7)
    leaf = tree.leaves[2]
    assert (leaf.low, leaf.high, list(leaf.bytes)) == (-2, 1 << 40, [0, 255, 1])
    assert leaves[0].high == 255 - 2
    assert bytes(leaves)[48:56].hex() == "0000ababab000000"


class Branch(NamedTuple):
    tree: Any
    number: int


@part
def grown(branch: Branch, by: int) -> Branch:
    return Branch(branch.tree, branch.number + by)


def measure(tree_at: int, number: int) -> int:
    branch = grown(Branch(structure(tree_at, TREE), number), 1)
    branch.tree.count += branch.number
    _, last = branch
    return address_of(branch.tree.leaves[last]) - address_of(branch.tree)


def test_named_tuples_hold_structures_and_numbers() -> None:
    tree = Tree(count=5)
    assert compiled(measure)(ctypes.addressof(tree), 2) == Tree.leaves.offset + 3 * ctypes.sizeof(Leaf)
    assert tree.count == 8


def move(place: int) -> int:
    store8(place, 0x1FE)
    store32(place + 4, -2)
    copy(place + 8, place, 8)
    fill(place + 16, 3, 0x5A)
    clear(place + 17, 1)
    return load8(place + 8) + load32(place + 12) + words(place + 16, 2).view(np.int32)[1] + load64(place + 16)


def test_memory_operations() -> None:
    memory = np.zeros(32, np.uint8)
    assert compiled(move)(memory.ctypes.data) == 0xFE - 2 + 0 + 0x5A005A
    assert memory[16:20].tolist() == [0x5A, 0, 0x5A, 0]


def square(x: int) -> int:
    return int(x**2)


def comprehended(x: int) -> int:
    return sum([x for _ in range(3)])


def unknown(x: int) -> int:
    return x + nowhere  # type: ignore[name-defined]  # noqa: F821


def changing(x: int) -> int:
    x = words(x, 2)
    return x[0]


def lacking(x: int) -> int:
    return structure(x, LEAF).middle


def printing(x: int) -> int:
    print(x)
    return x


@pytest.mark.parametrize(("function", "why"), [
    (square, "no operator Pow"), (comprehended, "no translation"), (unknown, "nowhere has no value"),
    (changing, "x was something else"),
    (lacking, "no field middle"),
    (printing, "`print` cannot be called"),
], ids=lambda one: getattr(one, "__name__", ""))  # fmt: skip
def test_what_has_no_translation_is_refused_with_its_line(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(NotTranslated, match=f"test_translate.py:{function.__code__.co_firstlineno + 1}.*{why}"):
        Runtime(function).text("f")


def half(x: int) -> int:
    return x / 2  # type: ignore[return-value]


def test_handlers_get_integers_only() -> None:
    with pytest.raises(NotTranslated, match=f"test_translate.py:{half.__code__.co_firstlineno}: its result .* is no integer"):
        Runtime(half).text("f")


# -- functions that Python calls -------------------------------------------------------------------


def compiled_native(function: Callable[..., Any]) -> Native:
    """Returns the function as machine code, which is kept as long as this file stays the same."""
    made = Native(function)
    made.key += Path(__file__).read_text()
    return made


REAL = st.floats(-1e9, 1e9) | st.sampled_from((0.0, -0.0, 5e-324, 1e308, float("inf"), float("-inf")))


@part
def larger(a: float, b: float) -> float:
    return max(a, b)


def calculate_reals(a: float, b: float, n: int, out: np.ndarray) -> int:
    total, low = 0.0, min(a, b)
    for _ in range(n):
        total += a * n - b
        total = total / 2 if total > low else -total
    out[0], out[1], out[2] = total, larger(a, b), low
    out[3], out[4] = n / 8, float(n) + 1
    out[5] = a if n & 1 else 0.5
    return (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * (a > n) + 32 * (a >= 0) + 64 * (1 if a else 0)


@settings(max_examples=examples(200))
@given(REAL, REAL, st.integers(0, 5))
def test_floats_are_python_s(a: float, b: float, n: int) -> None:
    out, wanted = np.zeros(6), np.zeros(6)
    with np.errstate(all="ignore"):
        assert compiled_native(calculate_reals)(a, b, n, out) == calculate_reals(a, b, n, wanted)
    assert np.where(np.isnan(out), np.nan, out).tobytes() == np.where(np.isnan(wanted), np.nan, wanted).tobytes()


@pytest.mark.parametrize("value, rounded", [
    (2.9, 2), (-2.9, -2), (1e300, (1 << 63) - 1), (float("-inf"), -(1 << 63)), (float("nan"), 0),
])  # fmt: skip
def test_floats_round_toward_zero(value: float, rounded: int) -> None:
    assert compiled_native(truncate)(value) == rounded


def truncate(value: float) -> int:
    return int(value)


def cross(grid: np.ndarray, cube: np.ndarray, wave: Any, first: int) -> int:
    rows, columns = grid.shape
    for row in range(rows):
        for column in range(columns):
            grid[row, column] += 10 * row + column
    total = 0
    for value in grid[first]:
        total += value
    grid[first:][0, 1] = -1
    cube[1][0][:] = 7
    cube[0, 1, 2] += len(cube) + len(grid[first]) + cube.shape[2]
    wave[1].fifo[1, 2], wave[1].rate = first, 0.5 * first
    return total * 1000 + rows * columns


CROSSED = np.dtype([("fifo", np.int64, (2, 3)), ("rate", np.float64)], align=True)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_arrays_have_axes(dtype: type) -> None:
    made = []
    for function in (cross, compiled_native(cross)):
        grid, cube, wave = np.ones((3, 4), np.int32), np.zeros((2, 2, 3), dtype), np.zeros(2, CROSSED).view(np.recarray)
        made.append((int(function(grid, cube, wave, 1)), grid.tolist(), cube.tolist(), repr(wave.tolist())))
    assert made[0] == made[1]


class Pair(NamedTuple):
    values: np.ndarray
    by: int


def add_up(pair: Pair, bits: np.ndarray) -> None:
    for at in range(len(pair.values)):
        bits[at] = shift_in_zeros(pair.values[at] * pair.by, 60)


def test_named_tuples_are_arguments_and_shifts_can_ignore_the_sign() -> None:
    bits = np.zeros(3, np.uint8)
    assert compiled_native(add_up)(Pair(np.array([-1, 1, 1 << 59]), 2), bits) is None
    assert bits.tolist() == [15, 0, 1]


def corner(grid: np.ndarray) -> int:
    return int(grid[0, 0])


def test_arguments_of_other_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2,\) and strides \(16,\)"):
        compiled_native(add_up)(Pair(np.arange(4)[::2], 2), np.zeros(3, np.uint8))
    with pytest.raises(TypeError, match="machine code takes no list"):
        compiled_native(add_up)([1], np.zeros(3, np.uint8))  # type: ignore[arg-type]
    with pytest.raises(NotTranslated, match="2 indices for 1 axes"):
        compiled_native(corner)(np.zeros(3, np.int64))


def test_python_runs_parts_as_they_are() -> None:
    assert collatz(6, 100) == (8, 16)
    with pytest.raises(TypeError, match="machine code"):
        clear(0, 1)
