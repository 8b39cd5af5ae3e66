"""Operands of a launch as stored in memory, and the float64 result for comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.dtypes import dtype, pack, unpack
from simgpu.machine.host_memory import aligned_bytes
from simgpu.operators.error_model import TypicalError
from simgpu.tools.shared.inputs import Inputs
from simgpu.tools.shared.verdict import Verdict, judge

GUARD = 64  # bytes of NaN after an array; its start is aligned as a caller's would be


@dataclass(frozen=True)
class StridedArray:
    """An array as stored in memory: NaN outside the elements of the view."""

    flat: np.ndarray
    shape: tuple[int, ...]  # of the view
    strides: tuple[int, ...]  # of the view, in elements

    @classmethod
    def empty(cls, kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], guard: int = GUARD) -> StridedArray:
        """Makes an array of NaN (of integers, the smallest), including `guard` bytes after the last element."""
        flat = _room(_elements(kind, shape, strides, guard), kind)
        flat.fill(_nothing(kind))
        return cls(flat, shape, strides)

    @classmethod
    def for_results(
        cls, inputs: Inputs, kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], guard: int = GUARD
    ) -> StridedArray:
        """Makes an array for results: like `empty`, or of zeros, whose pages the host need not have, if nobody compares results."""
        if inputs.compares:
            return cls.empty(kind, shape, strides, guard)
        return cls(_room(_elements(kind, shape, strides, guard), kind), shape, strides)

    @classmethod
    def draw(
        cls, inputs: Inputs, kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], guard: int = GUARD
    ) -> StridedArray:
        """Makes an array like `empty`, with random elements. Contiguous elements are drawn in place."""
        if strides != contiguous(shape):
            return cls.empty(kind, shape, strides, guard).fill(inputs.array(kind, shape))
        size = math.prod(shape)
        flat = _room(size + guard // kind.itemsize, kind)
        inputs.fill(flat[:size].reshape(shape))
        flat[size:] = _nothing(kind)
        return cls(flat, shape, strides)

    @classmethod
    def row_major(cls, array: np.ndarray) -> StridedArray:
        """Makes an array with these elements, contiguous."""
        return cls.empty(array.dtype, array.shape, contiguous(array.shape)).fill(array)

    @property
    def view(self) -> np.ndarray:
        """Elements of the array. They go through raw bytes, since numpy cannot stride the types of ml_dtypes."""
        size = self.flat.itemsize
        raw = np.lib.stride_tricks.as_strided(self.flat.view(f"V{size}"), self.shape, tuple(size * s for s in self.strides))
        return raw.view(self.flat.dtype)

    def fill(self, values: np.ndarray) -> StridedArray:
        """Returns a copy with these elements."""
        if self.strides != contiguous(self.shape):
            made = replace(self, flat=self.flat.copy())
            made.view[...] = values
            return made
        flat, size = _room(self.flat.size, self.flat.dtype), math.prod(self.shape)
        flat[:size].reshape(self.shape)[...] = values
        flat[size:] = self.flat[size:]
        return replace(self, flat=flat)

    def count_touched(self, after: np.ndarray) -> int:
        """Counts the elements outside the view whose bits differ in `after`."""
        differ = (self.flat.view(np.uint8) != after.view(np.uint8)).reshape(self.flat.size, -1).any(1)
        replace(self, flat=differ).view[...] = False
        return int(np.count_nonzero(differ))


@dataclass(frozen=True)
class PackedRows(StridedArray):
    """Rows of elements that share bytes, for a read-only operand: `flat` are bytes, shape and strides are the view's."""

    kind: str = ""  # name of the elements' type

    @classmethod
    def rows(cls, values: np.ndarray, kind: str, stride: int) -> PackedRows:
        """Packs `values`, (..., rows, columns), in rows `stride` elements apart."""
        *outer, columns = values.shape
        size, used = dtype(kind).packed_bytes(stride), dtype(kind).packed_bytes(columns)
        flat = np.zeros((*outer, size), np.uint8)
        flat[..., :used] = pack(values, kind)
        apart = (*(stride * step for step in contiguous(tuple(outer))), 1)
        return cls(flat.reshape(-1), values.shape, apart, kind)

    @property
    def view(self) -> np.ndarray:
        """Copy of the elements."""
        rows = self.flat.reshape(*self.shape[:-1], -1)[..., : dtype(self.kind).packed_bytes(self.shape[-1])]
        return unpack(rows, self.kind)


def _elements(kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], guard: int) -> int:
    """Returns the elements of an array's memory, `guard` bytes after the last element of the view included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + guard // kind.itemsize


def _room(size: int, kind: np.dtype) -> np.ndarray:
    """Returns memory for elements, aligned so that `Device.adopt` need not copy it."""
    return aligned_bytes(size * kind.itemsize).view(kind)


def _nothing(kind: np.dtype) -> float:
    """Returns the value of elements that nobody may read: NaN, of integers the smallest."""
    return np.nan if kind.kind not in "iu" else np.iinfo(kind).min


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    return tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))


@dataclass(frozen=True)
class ExpectedOperand:
    """Float64 result for an operand that a launch writes."""

    operand: int  # its index
    want: Callable[[], np.ndarray]  # in float64
    bound: Callable[[], np.ndarray]  # largest allowed error of each element


@dataclass(frozen=True)
class Workload:
    """A computation's operands before a launch, and their float64 result."""

    operands: tuple[StridedArray, ...]  # in the kernel's order
    result: int  # index of the operand that the kernel writes
    want: Callable[[], np.ndarray]  # the result in float64
    bound: Callable[[], np.ndarray]  # largest allowed error of each element
    typical: Callable[[], TypicalError | None]  # usual error of a faithful kernel; None: unknown
    reads_result: bool = False  # a launch reads the result's memory, so a second launch gives another result
    beside: tuple[ExpectedOperand, ...] = ()  # further results

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Arrays to upload, one for each operand."""
        return tuple(operand.flat for operand in self.operands)

    @property
    def moved_bytes(self) -> int:
        """Bytes of all operands' elements; a result that is also read counts twice."""
        once = sum(operand.flat.nbytes if isinstance(operand, PackedRows) else operand.view.nbytes for operand in self.operands)
        return once + (self.operands[self.result].view.nbytes if self.reads_result else 0)

    def compare(self, after: np.ndarray, name: str) -> Verdict:
        """Judges the result's memory after a launch; name: of the result, for messages."""
        before = self.operands[self.result]
        got = replace(before, flat=after).view.astype(np.float64)
        return judge(got, self.want(), self.bound(), self.typical(), before.count_touched(after), name)

    def compare_beside(self, after: Sequence[np.ndarray], names: Sequence[str]) -> list[Verdict]:
        """Judges the memory of the further results; names: of the operands."""
        found = []
        for expected, memory in zip(self.beside, after, strict=True):
            before = self.operands[expected.operand]
            got, touched = replace(before, flat=memory).view.astype(np.float64), before.count_touched(memory)
            found.append(judge(got, expected.want(), expected.bound(), None, touched, names[expected.operand]))
        return found
