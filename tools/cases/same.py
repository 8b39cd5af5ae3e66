"""Compares what two launches wrote in a ring of elements, and explains an element that differs by products of the inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.named import NamedArray
from simgpu.hardware.isa.ring.arrays import elements, words
from simgpu.tools.cases.subject import Subject
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.launching import launch_work

if TYPE_CHECKING:
    from simgpu import Kernel

NARROW = 0xFFFF  # bits of an element that survive a rounding to f16 or bf16
LOST = 0x7FFF  # the element -2^15 of f16 and bf16 has no bits: a sum that is stored in between becomes 0 instead
# One of 65,536 stored sums is -2^15. Results are off for another reason if more than one of this number are, and one.
LOST_SHARE = 1024
EQUAL, NARROWLY, NEARLY, DIFFERENT, UNKNOWN = "equal", "equal modulo 2^16", "equal modulo 2^15", "different", "unknown"
MOST_PAIRS = 1 << 22  # pairs of products of one element that are searched


@dataclass(frozen=True)
class Side:
    """A computation's launches: arrays before and after, and branches that depended on floats."""

    title: str
    before: dict[str, np.ndarray]
    after: dict[str, np.ndarray]
    branches: list[str]  # places and instructions

    @classmethod
    def of(cls, title: str, launches: Sequence[Subject]) -> Side:
        """Launches the kernels of a computation, in order. Raises KernelFailed and LaunchError."""
        names: dict[str, NamedArray] = {}
        for each in launches:
            names |= each.names or {}
        device = launches[0].kernel.module.device
        before = {name: contents(device, array) for name, array in names.items()}
        for each in launches:
            launch_work(each.kernel.title, partial(each.kernel.launch, **each.call))
        after = {name: contents(device, array) for name, array in names.items()}
        return cls(title, before, after, [place for each in launches for place in branches(each.kernel)])

    @property
    def written(self) -> dict[str, np.ndarray]:
        """Arrays that changed."""
        return {name: array for name, array in self.after.items() if array.tobytes() != self.before[name].tobytes()}


def contents(device: Any, array: NamedArray) -> np.ndarray:
    """Returns a copy of an array in device memory."""
    allocation = device.memory.find(array.address)
    raw = allocation.data[array.address - allocation.address :]
    size = array.dtype.itemsize
    usable = raw[: len(raw) // size * size].view(f"V{size}")
    return np.lib.stride_tricks.as_strided(usable, array.shape, array.strides).copy().view(array.dtype)


def branches(kernel: Kernel) -> list[str]:
    """Returns the branches of a launched kernel whose way may depend on elements."""
    found = []
    for program in kernel.module.programs:
        for index in sorted(program.floats.branches if program.floats else ()):
            instruction = program.instructions.get(index)
            if instruction is not None:
                found.append(f"{kernel.title}+{4 * index:#x}: {instruction}")
    return found


@dataclass(frozen=True)
class ArrayComparison:
    """Array of both sides."""

    names: tuple[str, str]
    verdict: str  # EQUAL, NARROWLY, NEARLY or DIFFERENT
    elements: int
    differing: int = 0
    index: tuple[int, ...] = ()  # of the first that differs
    got: tuple[int, int] = (0, 0)  # its elements
    reasons: list[str] = field(default_factory=list)


def compare(first: Side, second: Side) -> list[ArrayComparison]:
    """Compares the arrays that the sides wrote, in their order. Raises UsageError if they do not correspond."""
    one, two = first.written, second.written
    if not one and not two:
        raise UsageError("neither launch wrote anything: give arguments with which they do")
    if len(one) != len(two):
        listed = f"{first.title} wrote {_list(one)}, {second.title} wrote {_list(two)}"
        raise UsageError(f"{listed}: give launches that write as many arrays")
    return [
        _compare_arrays((a, b), one[a], two[b], first.before, second.before) for a, b in zip(one, two, strict=True)
    ]


def _compare_arrays(
    names: tuple[str, str], a: np.ndarray, b: np.ndarray, inputs: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> ArrayComparison:
    if a.dtype != b.dtype or a.size != b.size:
        shapes = [f"{array.dtype} {'x'.join(map(str, array.shape))}" for array in (a, b)]
        raise UsageError(f"{names[0]} is {shapes[0]}, {names[1]} is {shapes[1]}: results of one type and size can be compared")
    b = b.reshape(a.shape)
    wrong = words(a) != words(b)
    count = int(np.count_nonzero(wrong))
    if not count:
        return ArrayComparison(names, EQUAL, a.size)
    if a.dtype.kind in "iub":
        index = tuple(map(int, np.argwhere(wrong)[0]))
        return ArrayComparison(names, DIFFERENT, a.size, count, index, (int(a[index]), int(b[index])))
    x, y = elements(a), elements(b)
    low = (x ^ y) & x.dtype.type(NARROW)
    if not low.any():
        return ArrayComparison(names, NARROWLY, a.size, count)
    lost = int(np.count_nonzero(low))
    if not (low & x.dtype.type(LOST)).any() and lost <= 1 + a.size // LOST_SHARE:
        return ArrayComparison(names, NEARLY, a.size, lost)
    index = tuple(map(int, np.argwhere(low)[0]))
    same = {name: array for name, array in inputs.items() if any(array.tobytes() == other.tobytes() for other in others.values())}
    modulus = 1 << 8 * a.itemsize
    reasons = explain(index, int(x[index]), int(y[index]), modulus, same) if a.ndim >= 2 else []
    return ArrayComparison(names, DIFFERENT, a.size, lost, index, (int(x[index]), int(y[index])), reasons)


def explain(index: tuple[int, ...], one: int, two: int, modulus: int, inputs: Mapping[str, np.ndarray]) -> list[str]:
    """Returns how an element of a matrix product may differ: each reason accounts for the whole difference.

    one, two: the element on both sides. inputs: arrays that both sides read.
    """
    found: list[str] = []
    for left, right, products, cross in _factors(index, inputs):
        found += _reasons(left, right, one, two, modulus, products, cross)
    return list(dict.fromkeys(found))


def _factors(
    index: tuple[int, ...], inputs: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, str, np.ndarray, tuple[np.ndarray, np.ndarray]]]:
    """Yields names of two inputs whose row and column may make the element, its products by k, and the factors."""
    i, j = index[-2:]
    rows = [(f"{name}[{i},k]", array[i]) for name, array in _matrices(inputs) if i < len(array)]
    rows += [(f"{name}[k,{i}]", array[:, i]) for name, array in _matrices(inputs) if i < array.shape[1]]
    columns = [(f"{name}[k,{j}]", array[:, j]) for name, array in _matrices(inputs) if j < array.shape[1]]
    columns += [(f"{name}[{j},k]", array[j]) for name, array in _matrices(inputs) if j < len(array)]
    seen = set()
    for (left, x), (right, y) in ((row, column) for row in rows for column in columns):
        if len(x) == len(y) and left.partition("[")[0] != right.partition("[")[0] and {left, right} not in seen:
            seen.add(frozenset((left, right)))
            x, y = elements(np.ascontiguousarray(x)), elements(np.ascontiguousarray(y))
            yield left, right, x * y, (x, y)


def _matrices(inputs: Mapping[str, np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(name, array.reshape(-1, *array.shape[-2:])[0]) for name, array in inputs.items()
            if array.ndim >= 2 and array.dtype.kind not in "iub"]  # fmt: skip


def _reasons(
    left: str, right: str, one: int, two: int, modulus: int, products: np.ndarray, factors: tuple[np.ndarray, np.ndarray]
) -> list[str]:
    what = f"{left} * {right}"
    whole, values = int(products.sum(dtype=np.uint64)) % modulus, [int(value) % modulus for value in products]
    position = {value: k for k, value in enumerate(values)}
    found = []
    for mine, theirs, side, other in ((one, two, "first", "second"), (two, one, "second", "first")):
        more = (mine - theirs) % modulus
        if more in position:
            place = f"{what} of k = {position[more]}"
            if mine == whole:
                found.append(f"the {other} lacks {place}")
            elif theirs == whole:
                found.append(f"the {side} has {place} twice")
            else:
                found.append(f"the {side} has {place} once more than the {other}")
        elif (span := _span(values, more, modulus)) is not None:
            found.append(f"the {side} has {what} of k = {span[0]} to {span[1]} once more than the {other}")
        elif mine == whole and (swap := _swapped_factor(factors, values, more, modulus)):
            found.append(f"the {other} has {swap.format(left, right)}")
    return found


def _span(values: list[int], more: int, modulus: int) -> tuple[int, int] | None:
    """Returns the first and last of consecutive products whose sum is `more`."""
    seen, total = {0: 0}, 0
    for k, value in enumerate(values):
        total = (total + value) % modulus
        if (total - more) % modulus in seen and more:
            return seen[(total - more) % modulus], k
        seen[total] = k + 1
    return None


def _swapped_factor(factors: tuple[np.ndarray, np.ndarray], values: list[int], more: int, modulus: int) -> str:
    """Returns which factor was taken from another k: {0} and {1} stand for the factors' names."""
    x, y = (factor.astype(np.uint64) for factor in factors)
    if len(x) ** 2 > MOST_PAIRS:
        return ""
    own = np.array(values, np.uint64)[:, None]
    mask = np.uint64(modulus - 1)
    for text, wrong in (("{1}", x[:, None] * y), ("{0}", y[:, None] * x)):
        hits = np.argwhere(((own - wrong) & mask) == np.uint64(more))
        if len(hits):
            return f"{text} of k = {hits[0][1]} instead of k = {hits[0][0]} in the product of k = {hits[0][0]}"
    return ""


def verdict_of(comparisons: Sequence[ArrayComparison], sides: Sequence[Side]) -> str:
    """Returns the verdict on all arrays. Results that differ say nothing if branches depended on floats."""
    kinds = {each.verdict for each in comparisons}
    if DIFFERENT in kinds:
        return UNKNOWN if any(side.branches for side in sides) else DIFFERENT
    return next((kind for kind in (NEARLY, NARROWLY) if kind in kinds), EQUAL)


def _list(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(arrays) or "nothing"
