"""Problem of a softmax: sizes, types, masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import expect_shape, positive_dimension, row_stride
from simgpu.operators.expressions import Value, exp, log
from simgpu.operators.rows.problem import RowOperands
from simgpu.operators.rows.program import EXPONENTIALS, RowProgram, Step

FLOPS_PER_ELEMENT = 5  # maximum, subtract, exp, add, scale; an exp counts as one (E29)


@dataclass(frozen=True)
class Band:
    """Mask in closed form: row r keeps the columns j with r % period + first <= j < r % period + end.

    Causal attention over L keys is Band(L, -L, 1), a window of w keys Band(L, 1 - w, 1).

    >>> from simgpu.operators import Band
    >>> Band(4, -4, 1).keep(2, 4)
    array([[ True, False, False, False],
           [ True,  True, False, False]])
    """

    period: int  # rows until the band starts again
    first: int  # first column relative to the diagonal
    end: int  # end column relative to the diagonal

    def __post_init__(self) -> None:
        object.__setattr__(self, "period", positive_dimension("period", self.period))

    def keep(self, rows: int, n: int) -> NDArray[np.bool_]:
        """Returns a mask (rows,n), True if an element counts."""
        diagonal = (np.arange(rows) % self.period)[:, None]
        column = np.arange(n)[None, :]
        return np.asarray((diagonal + self.first <= column) & (column < diagonal + self.end))


@dataclass(frozen=True)
class SoftmaxProblem(RowOperands):
    """Y (rows,n) = gain * softmax over each row of scale * X (rows,n), row-major; or the softmax's logarithm.

    Masked elements do not count; in Y they are 0 (of a logarithm: -infinity), also if a whole row is masked. All of a row is NaN
    if elements that count include +infinity or NaN, or are all -infinity. LaunchError for impossible sizes and strides, and for a
    logarithm with a gain.

    >>> from simgpu.operators import Band, SoftmaxProblem
    >>> problem = SoftmaxProblem(rows=4, n=4, band=Band(4, -4, 1))
    >>> problem.keep().astype(int)
    array([[1, 0, 0, 0],
           [1, 1, 0, 0],
           [1, 1, 1, 0],
           [1, 1, 1, 1]])
    """

    name: ClassVar[str] = "softmax"

    rows: int  # number of rows
    n: int  # elements of a row
    dtype: str = "f32"  # type of X; statistics have its accumulator's type
    scale: float = 1.0  # factor of X
    ldx: int | None = None  # row stride of X in elements; None: n
    ldy: int | None = None  # row stride of Y in elements; None: n
    mask: bool = False  # True: an array (rows,n) of bool comes with X
    band: Band | None = None  # a mask in closed form
    dtype_y: str | None = None  # type of Y; None: X's
    gain: float = 1.0  # factor of Y; keeps small values out of a narrow Y's subnormals
    log: bool = False  # True: Y is the logarithm

    def __post_init__(self) -> None:
        for name in ("rows", "n"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        if self.dtype_y is None:
            object.__setattr__(self, "dtype_y", self.dtype)
        for kind in (self.dtype, self.element_y.name):
            if dtype(kind).significand == 0:
                raise LaunchError(f"softmax of {kind} has no exponentials: use a floating-point type")
        for name in ("ldx", "ldy"):
            object.__setattr__(self, name, row_stride(name, getattr(self, name), self.n))
        if self.log and self.gain != 1:
            raise LaunchError(f"gain = {self.gain:g}: a logarithm has no factor: leave the gain out")

    def keep(self, mask: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Returns (rows,n) of bool: elements that count, by `mask` and by the band. LaunchError for a mask of another shape."""
        shape = (self.rows, self.n)
        kept = np.ones(shape, bool) if mask is None else expect_shape("mask", mask, shape).astype(bool)
        return kept if self.band is None else kept & self.band.keep(*shape)

    def program(self, arch: str) -> RowProgram:
        """Returns the scores' state (m, delta), and Y from it."""
        x, scale, gain, m, delta = (Value("argument", name=name) for name in ("x", "scale", "gain", "m", "delta"))
        score = x * scale
        y = score - m - log(delta) if self.log else exp(score - m) * (gain / delta)
        state = Step("state", score, (), score, EXPONENTIALS)
        return RowProgram(self.name, self.elements, (), (), (state,), (Step("y", y, (), y),), ())

    @property
    def sign(self) -> int:
        """Sign of the scale: 1, 0 or -1."""
        return (self.scale > 0) - (self.scale < 0)

    @property
    def read(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the operands that are read, by name."""
        return dict.fromkeys(("X", "mask") if self.mask else ("X",), (self.rows, self.n))

    @property
    def pointers(self) -> tuple[str, ...]:
        """Names of the operands in the order of a kernel's pointers."""
        return ("X", "Y", "mask") if self.mask else ("X", "Y")

    @property
    def flops(self) -> int:
        """FLOPs: FLOPS_PER_ELEMENT per element."""
        return FLOPS_PER_ELEMENT * self.rows * self.n

    @property
    def bytes_once(self) -> int:
        """Bytes if X is read and Y written once."""
        return self.rows * self.n * (self.element.bytes + self.element_y.bytes)

    @property
    def state_bytes(self) -> int:
        """Bytes of a row's maximum and denominator, in the accumulator's type."""
        return 2 * dtype(self.element.accumulator).bytes

    def intensity(self, reads: int) -> float:
        """Returns FLOP per byte if X is read `reads` times and Y is written once.

        With X and Y in f32, it is 0.42 for two reads and 0.62 for one (E29; for its 0.2, the paper states no number of reads).
        """
        return FLOPS_PER_ELEMENT / (reads * self.element.bytes + self.element_y.bytes)
