"""What is launched: operands as they lie in memory, and the float64 result that a launch's is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.dtypes import dtype, pack, unpack
from simgpu.operators.error_model import TypicalError
from simgpu.tools.shared.inputs import Inputs
from simgpu.tools.shared.verdict import Verdict, judge

GUARD = 64  # bytes of NaN behind an array; its start is aligned as a caller's would be


@dataclass(frozen=True)
class Strided:
    """An array as it lies in memory: NaN wherever no element of the view is."""

    flat: np.ndarray
    shape: tuple[int, ...]  # of the view
    strides: tuple[int, ...]  # of the view, in elements

    @classmethod
    def empty(cls, kind: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...], guard: int = GUARD) -> Strided:
        """An array of NaN (of integers, the smallest), `guard` bytes behind the last element included."""
        size = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) + guard // kind.itemsize
        return cls(np.full(size, np.nan if kind.kind not in "iu" else np.iinfo(kind).min, kind), shape, strides)

    @classmethod
    def row_major(cls, array: np.ndarray) -> Strided:
        """An array with these elements, one right behind the other."""
        return cls.empty(array.dtype, array.shape, contiguous(array.shape)).filled(array)

    @property
    def view(self) -> np.ndarray:
        """The elements; numpy cannot stride what ml_dtypes adds, so as bytes."""
        size = self.flat.itemsize
        raw = np.lib.stride_tricks.as_strided(self.flat.view(f"V{size}"), self.shape, tuple(size * s for s in self.strides))
        return raw.view(self.flat.dtype)

    def filled(self, values: np.ndarray) -> Strided:
        """A copy with these elements."""
        made = replace(self, flat=self.flat.copy())
        made.view[...] = values
        return made

    def drawn(self, inputs: Inputs) -> Strided:
        """A copy with random elements."""
        return self.filled(inputs.array(self.flat.dtype, self.shape))

    def touched(self, after: np.ndarray) -> int:
        """The number of elements outside the view whose bits are others in `after`."""
        differ = (self.flat.view(np.uint8) != after.view(np.uint8)).reshape(self.flat.size, -1).any(1)
        replace(self, flat=differ).view[...] = False
        return int(np.count_nonzero(differ))


@dataclass(frozen=True)
class Packed(Strided):
    """Rows of elements that share bytes, an operand that is only read: `flat` are bytes, shape and strides those of the view."""

    kind: str = ""  # name of the elements' type

    @classmethod
    def rows(cls, values: np.ndarray, kind: str, stride: int) -> Packed:
        """`values`, (..., rows, columns), in rows `stride` elements apart."""
        *outer, columns = values.shape
        size, used = dtype(kind).packed(stride), dtype(kind).packed(columns)
        flat = np.zeros((*outer, size), np.uint8)
        flat[..., :used] = pack(values, kind)
        apart = (*(stride * step for step in contiguous(tuple(outer))), 1)
        return cls(flat.reshape(-1), values.shape, apart, kind)

    @property
    def view(self) -> np.ndarray:
        """The elements, a copy."""
        rows = self.flat.reshape(*self.shape[:-1], -1)[..., : dtype(self.kind).packed(self.shape[-1])]
        return unpack(rows, self.kind)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    return tuple(int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape)))


@dataclass(frozen=True)
class ExpectedOperand:
    """What float64 makes of an operand that a launch writes."""

    operand: int  # which of them
    want: Callable[[], np.ndarray]  # in float64
    bound: Callable[[], np.ndarray]  # how far each element may be from it


@dataclass(frozen=True)
class Workload:
    """A computation's operands before a launch, and what float64 makes of them."""

    operands: tuple[Strided, ...]  # in the kernel's order
    result: int  # which of them the kernel writes
    want: Callable[[], np.ndarray]  # the result in float64
    bound: Callable[[], np.ndarray]  # how far each element may be from it
    typical: Callable[[], TypicalError | None]  # how far a faithful kernel usually is; None: not at all
    reads_result: bool = False  # a launch reads what the result's memory held, so a second one gives another result
    beside: tuple[ExpectedOperand, ...] = ()  # results beside it

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """What is uploaded for each operand."""
        return tuple(operand.flat for operand in self.operands)

    @property
    def moved_bytes(self) -> int:
        """The bytes of each operand's elements once; of a result that is read, twice."""
        once = sum(operand.flat.nbytes if isinstance(operand, Packed) else operand.view.nbytes for operand in self.operands)
        return once + (self.operands[self.result].view.nbytes if self.reads_result else 0)

    def compare(self, after: np.ndarray, name: str) -> Verdict:
        """The verdict on the result's memory after a launch; name: of the result, for messages."""
        before = self.operands[self.result]
        got = replace(before, flat=after).view.astype(np.float64)
        return judge(got, self.want(), self.bound(), self.typical(), before.touched(after), name)

    def compare_beside(self, after: Sequence[np.ndarray], names: Sequence[str]) -> list[Verdict]:
        """The verdicts on the memory of the results beside it; names: of the operands."""
        found = []
        for expected, memory in zip(self.beside, after, strict=True):
            before = self.operands[expected.operand]
            got, touched = replace(before, flat=memory).view.astype(np.float64), before.touched(memory)
            found.append(judge(got, expected.want(), expected.bound(), None, touched, names[expected.operand]))
        return found
