"""What a GEMM computes: sizes, types, storage. C <- alpha * op(A) op(B) + beta * C, as BLAS has it, row-major."""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import one_of, positive_dimension

ACTIVATIONS = ("none", "relu", "gelu", "silu")


@dataclass(frozen=True)
class GemmProblem:
    """C (m,n) <- activation(alpha * op(A) (m,k) @ op(B) (k,n) + beta * C + bias), all row-major, `batch` times.

    A is stored (m,k), or (k,m) if trans_a; B is stored (k,n), or (n,k) if trans_b; lda, ldb, ldc are the stored rows' strides in
    elements, by default the stored row's length. `dtype` is the type of A and B; C has the matrix unit's accumulator type (f32 for
    f16, bf16, fp8, bf8 and xf32; i32 for i8). beta = 0 means that C is not read. The epilogue: `bias` adds a row of n elements of
    C's type to each row of C, `activation` is applied last (gelu is the exact one, x * Phi(x)). With batch > 1 the operands have a
    leading dimension of that size, each matrix right behind the one before it. LaunchError for sizes or strides that cannot be.
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
    batch: int = 1
    bias: bool = False
    activation: str = "none"

    def __post_init__(self) -> None:
        dtype(self.dtype)
        one_of("activation", self.activation, ACTIVATIONS)
        for name in ("m", "n", "k", "batch"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name, (_, columns) in zip(("lda", "ldb", "ldc"), self.stored_shapes, strict=True):
            given = getattr(self, name)
            stride = columns if given is None else positive_dimension(name, given)
            if stride < columns:
                raise LaunchError(f"{name} = {stride} is shorter than a stored row of {columns} elements: give {name} >= {columns}")
            object.__setattr__(self, name, stride)

    @property
    def stored_shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """(rows, columns) of A, B and C as they lie in memory, of one product of the batch."""
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
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def epilogue_bytes(self) -> int:
        """Bytes of C, twice when beta reads it, and of the bias."""
        c = self.batch * self.m * self.n * (2 if self.beta != 0 else 1)
        return (c + (self.n if self.bias else 0)) * dtype(self.dtype_c).bytes

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of A, B and the bias crosses memory once, and of C (twice when beta reads it)."""
        return self.batch * (self.m * self.k + self.k * self.n) * self.element.bytes + self.epilogue_bytes
