"""What a GEMM computes: sizes, types, storage. C <- alpha * op(A) op(B) + beta * C, as BLAS has it, row-major."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from hardware.dtypes import DType, dtype
from hardware.errors import LaunchError


def positive_dimension(name: str, value: int) -> int:
    """`value` as an int; LaunchError unless it is an integer >= 1."""
    try:
        size = operator.index(value)
    except TypeError:
        raise LaunchError(f"{name} = {value!r} is not an integer: give {name} >= 1") from None
    if size < 1:
        raise LaunchError(f"{name} = {size} is not a size: give {name} >= 1")
    return size


@dataclass(frozen=True)
class GemmProblem:
    """C (m,n) <- alpha * op(A) (m,k) @ op(B) (k,n) + beta * C, all row-major.

    A is stored (m,k), or (k,m) if trans_a; B is stored (k,n), or (n,k) if trans_b; lda, ldb, ldc are the stored rows' strides in
    elements, by default the stored row's length. `dtype` is the type of A and B; C has the matrix unit's accumulator type (f32 for
    f16, bf16, fp8, bf8 and xf32; i32 for i8). beta = 0 means that C is not read. LaunchError for sizes or strides that cannot be.
    """

    m: int
    n: int
    k: int
    dtype: str = "f32"
    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    lda: int | None = None
    ldb: int | None = None
    ldc: int | None = None

    def __post_init__(self) -> None:
        dtype(self.dtype)
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name, (_, columns) in zip(("lda", "ldb", "ldc"), self.stored_shapes, strict=True):
            given = getattr(self, name)
            stride = columns if given is None else positive_dimension(name, given)
            if stride < columns:
                raise LaunchError(f"{name} = {stride} is shorter than a stored row of {columns} elements: give {name} >= {columns}")
            object.__setattr__(self, name, stride)

    @property
    def stored_shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """(rows, columns) of A, B and C as they lie in memory."""
        a = (self.k, self.m) if self.trans_a else (self.m, self.k)
        b = (self.n, self.k) if self.trans_b else (self.k, self.n)
        return a, b, (self.m, self.n)

    @property
    def dtype_c(self) -> str:
        """Type of C: the accumulator's."""
        return dtype(self.dtype).accumulator

    @property
    def element(self) -> DType:
        """The type of A and B."""
        return dtype(self.dtype)

    @property
    def flops(self) -> int:
        """Useful FLOPs of the product, a multiply-add counted as two."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of A, B and C crosses memory once (C twice when beta reads it)."""
        c = self.m * self.n * dtype(self.dtype_c).bytes * (2 if self.beta != 0 else 1)
        return (self.m * self.k + self.k * self.n) * self.element.bytes + c
