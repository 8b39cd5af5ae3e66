"""Problem of a GEMM: sizes, types, storage. C <- alpha * op(A) op(B) + beta * C, as in BLAS but row-major, and its epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import one_of, positive_dimension, row_stride
from simgpu.operators.gemm.leaves import Leaves

GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}  # the activation that a gated one applies to even columns
ACTIVATIONS = ("none", "relu", "gelu", "silu", *GATES)
NARROW = ("fp8", "bf8")  # types of C that saturate and take a scale
# Types of C by the accumulator's type: that type, or one that it is rounded to.
OUTPUTS = {
    "f32": ("f32", "f16", "bf16", *NARROW),
    "f64": ("f64", "f32", "f16", "bf16", *NARROW),
    "i32": ("i32", "f32", "f16", "bf16", *NARROW),
}
SCALES = ("none", "tensor", "row", "block", "mx")
SCALE_BLOCK = 128  # k of a block scale of A; columns and k of a block scale of op(B)
MX_TYPES = ("fp8", "bf8", "fp6", "bf6", "fp4")  # elements of OCP MX
MX_BLOCK = 32  # k of an MX scale
MX_ROWS = 16  # rows' MX scales of a block are padded to a multiple of this
PANEL_ROWS, PANEL_BYTES = 16, 16  # panels of a preshuffled matrix: rows, and bytes of each row in turn
SCALES_OF_K = ("block", "mx")  # scales that differ along k, which the main loop reads


@dataclass(frozen=True)
class GemmProblem:
    """C (m,n) <- activation(alpha * op(A) (m,k) @ op(B) (k,n) + beta * C + bias) + R, all row-major, `batch` times.

    A is stored (m,k), or (k,m) if trans_a; B is stored (k,n), or (n,k) if trans_b. With batch > 1 the operands have a leading
    dimension of that size; matrices are consecutive. LaunchError for impossible sizes, strides or types.

    The epilogue is in f32, unless the accumulator is f64 or C is i32. Its fields:

    `scales`: f32 factors of the product. "tensor": one for A and one for B. "row": one for each row of A (m) and one for each
    column of op(B) (n). "block", for fp8 and bf8: one for SCALE_BLOCK k of a row of A, stored (m, blocks of k), and one for
    SCALE_BLOCK columns by SCALE_BLOCK k of op(B), stored (blocks of n, blocks of k). The products of each block of k are scaled
    before they are added. "mx", the formats of OCP MX: an E8M0 power of two for MX_BLOCK k of a row of A, and of a column of
    op(B), stored (blocks of k, `mx_rows`). A is (m,k) and B (n,k), k a multiple of MX_BLOCK. `dtype` is one of MX_TYPES,
    `dtype_b` another or the same. Elements of 6 and 4 bits share bytes (`hardware.dtypes.pack`).

    `activation`: gelu is the exact one, x * Phi(x). The gated ones use columns in pairs, gate and up, and leave n/2: C[i][j] =
    silu(x[i][2j]) * x[i][2j+1] is swiglu; geglu has gelu, reglu has relu. beta must then be 0.

    `groups` above 0: a grouped product. The m rows of A and C belong to consecutive groups, whose sizes are an operand
    (`operators.gemm.groups`). B, bias and B's scales have a leading dimension of `groups`.

    `preshuffle_b`: B, stored (n,k), was permuted by `operators.preshuffle`, like weights in inference stacks: panels of
    PANEL_ROWS rows hold PANEL_BYTES of each row in turn (AITER's `shuffle_weight`).

    >>> from simgpu.operators import GemmProblem
    >>> problem = GemmProblem(m=100, n=77, k=33, dtype="f16", trans_b=True, activation="relu")
    >>> problem.stored_shapes, problem.dtype_c, problem.flops
    (((100, 33), (77, 33), (100, 77)), 'f32', 508200)
    >>> GemmProblem(m=100, n=77, k=33, lda=8)
    Traceback (most recent call last):
        ...
    simgpu.hardware.errors.LaunchError: lda = 8 is shorter than a stored row of 33 elements: give lda >= 33
    """

    m: int  # rows of op(A) and C
    n: int  # columns of op(B)
    k: int  # columns of op(A), rows of op(B)
    dtype: str = "f32"  # type of A and, unless `dtype_b` is given, of B
    trans_a: bool = False  # True: A is stored (k,m)
    trans_b: bool = False  # True: B is stored (n,k)
    alpha: float = 1.0
    beta: float = 0.0  # 0: C is not read
    lda: int | None = None  # stride of A's stored rows in elements; None: their length
    ldb: int | None = None  # stride of B's stored rows
    ldc: int | None = None  # stride of C's rows
    batch: int = 1  # number of products
    bias: bool = False  # True: adds a row of n elements of `dtype_addend` to each row
    activation: str = "none"  # one of ACTIVATIONS
    # type of C: "" for the accumulator's (f32 for f16, bf16, fp8, bf8 and xf32; i32 for i8), or one of OUTPUTS, rounded
    # to nearest even
    dtype_c: str = ""
    scale_c: float = 1.0  # factor of a C in fp8 or bf8; these saturate: values beyond the largest become the largest, NaN stays
    residual: bool = False  # True: adds R (m, columns of C), of C's type and strides, after the activation
    scales: str = "none"  # one of SCALES
    groups: int = 0  # number of groups; 0: not a grouped product
    dtype_b: str = ""  # type of B; "": dtype
    preshuffle_b: bool = False  # True: B is preshuffled

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("scales", self.scales, SCALES)
        object.__setattr__(self, "dtype_b", self.dtype_b or self.dtype)
        object.__setattr__(self, "dtype_c", one_of("type of C", self.dtype_c or self.accumulator, OUTPUTS[self.accumulator]))
        for name in ("m", "n", "k", "batch"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name, (_, columns) in zip(("lda", "ldb", "ldc"), self.stored_shapes, strict=True):
            object.__setattr__(self, name, row_stride(name, getattr(self, name), columns, "stored row"))
        self._check_types()
        if self.preshuffle_b:
            self._check_preshuffle()
        self._check_epilogue()
        if self.groups:
            self._check_groups()

    def _check_types(self) -> None:
        """Checks that element types match the scales, and that MX operands have the required layout."""
        if self.scales != "mx":
            if self.dtype_b != self.dtype:
                raise LaunchError(f"A is {self.dtype}, B {self.dtype_b}: only MX scales take two types: use scales mx, or one")
            if self.element.bits % 8:
                raise LaunchError(f"{self.dtype} has {self.element.bits} bits and no range of its own: use scales mx")
            return
        for name in (self.dtype, self.dtype_b):
            if name not in MX_TYPES:
                raise LaunchError(f"scales = mx: of {', '.join(MX_TYPES)}, not {name}: use one of these, or other scales")
        if self.trans_a or not self.trans_b:
            raise LaunchError("scales = mx: blocks are of consecutive k: store A (m,k), without trans_a, and B (n,k), with trans_b")
        if self.k % MX_BLOCK:
            raise LaunchError(f"k = {self.k}: an MX scale is of {MX_BLOCK} k: pad k with zeros to {self.k + -self.k % MX_BLOCK}")
        for given, stride, kind in (("lda", self.lda, self.element), ("ldb", self.ldb, self.element_b)):
            if stride and stride * kind.bits % 8:
                whole = 4 if kind.bits == 6 else 2
                raise LaunchError(f"{given} = {stride}: rows of {kind.name} begin with a byte: use a multiple of {whole}")

    def _check_preshuffle(self) -> None:
        if not self.trans_b:
            raise LaunchError("preshuffle_b: it permutes B stored (n,k): set trans_b, too")
        panels(self.n, self.k, self.dtype_b)
        if self.ldb != self.k:
            raise LaunchError(f"ldb = {self.ldb}: panels lie right behind each other: leave ldb out, it is k = {self.k}")

    def _check_groups(self) -> None:
        object.__setattr__(self, "groups", positive_dimension("groups", self.groups))
        if self.batch > 1:
            raise LaunchError(f"batch = {self.batch}: a grouped product has no batch: give each product groups of its own")
        if self.trans_a:
            raise LaunchError("trans_a: the groups' rows lie behind each other, A is stored (m,k): leave trans_a out")

    def _check_epilogue(self) -> None:
        if self.activation in GATES and self.n % 2:
            raise LaunchError(f"n = {self.n}: {self.activation} takes columns in pairs, gate and up: give an even n")
        if self.activation in GATES and self.beta != 0:
            raise LaunchError(f"beta = {self.beta:g}: {self.activation} leaves half of the columns; add C behind it, as residual")
        if self.dtype_c not in NARROW and self.scale_c != 1:
            raise LaunchError(f"scale_c = {self.scale_c:g}: only fp8 and bf8 take a scale, C is {self.dtype_c}: use alpha")
        if self.dtype_c in NARROW and self.residual:
            raise LaunchError(f"a residual has C's type, and {self.dtype_c} is too narrow for one: use f32, f16 or bf16 for C")
        if self.epilogue_type != "f32" and self.scales != "none":
            raise LaunchError(f"scales = {self.scales}: they are f32, the epilogue is in {self.epilogue_type}: use alpha")
        if self.scales == "block" and self.dtype not in NARROW:
            raise LaunchError(f"scales = block: of blocks of fp8 and bf8, A and B are {self.dtype}: use row or tensor")

    @property
    def stored_shapes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Stored (rows, columns) of A, B and C, for one product of the batch."""
        a = (self.k, self.m) if self.trans_a else (self.m, self.k)
        b = (self.n, self.k) if self.trans_b else (self.k, self.n)
        return a, b, (self.m, self.columns_c)

    @property
    def even_batch(self) -> GemmProblem:
        """Grouped product as a batch whose groups have the same number of rows; any other problem unchanged."""
        return replace(self, m=-(-self.m // self.groups), batch=self.groups, groups=0) if self.groups else self

    @property
    def leaves(self) -> Leaves | None:
        """Leaves of an operator that is more than a product (`operators.fused`)."""
        return None

    @property
    def splits(self) -> bool:
        """True if several blocks may share a tile of C. Those of a group have no second pass, and leaves need whole rows."""
        return not self.groups and self.leaves is None

    @property
    def columns_c(self) -> int:
        """Columns of C: n, or n/2 for a gated activation."""
        return self.n // 2 if self.activation in GATES else self.n

    @property
    def accumulator(self) -> str:
        """Type of the matrix unit's sums, and of the parts of a split K."""
        return dtype(self.dtype).accumulator

    @property
    def epilogue_type(self) -> str:
        """Type in which alpha, beta and the rest of the epilogue are applied."""
        return "f32" if self.accumulator == "i32" and self.dtype_c != "i32" else self.accumulator

    @property
    def dtype_addend(self) -> str:
        """Type of the bias: C's, or f32 for 8-bit C."""
        return "f32" if self.dtype_c in NARROW else self.dtype_c

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Shapes of A's and B's scales for one product of the batch; None without scales."""
        blocks_n, blocks_k = -(-self.n // SCALE_BLOCK), -(-self.k // SCALE_BLOCK)
        blocks = ((self.m, blocks_k), (blocks_n, blocks_k))
        by_scales: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
            "tensor": ((1,), (1,)), "row": ((self.m,), (self.n,)), "block": blocks,
            "mx": ((self.k // MX_BLOCK, self.mx_rows[0]), (self.k // MX_BLOCK, self.mx_rows[1])),
        }  # fmt: skip
        return by_scales.get(self.scales)

    @property
    def mx_rows(self) -> tuple[int, int]:
        """Bytes from the MX scales of one block of k to those of the next block, for A and for op(B).

        The scales of a block are those of all rows of A (columns of op(B)), one byte each and contiguous, padded to a multiple of
        MX_ROWS. In a grouped product, a group's rows may begin anywhere, which needs MX_ROWS - 1 more.
        """
        room = MX_ROWS - 1 if self.groups else 0
        return -(-(self.m + room) // MX_ROWS) * MX_ROWS, -(-self.n // MX_ROWS) * MX_ROWS

    @property
    def dtype_scale(self) -> str:
        """Type of the scales."""
        return "e8m0" if self.scales == "mx" else "f32"

    @property
    def scales_in_loop(self) -> bool:
        """True if scales differ along k, so that the main loop reads them."""
        return self.scales in SCALES_OF_K

    @property
    def scales_at_end(self) -> bool:
        """True if the epilogue scales the product. Block scales are already in the sums."""
        return self.scales in ("tensor", "row")

    @property
    def element(self) -> DType:
        """Type of A, and of B except in MX formats."""
        return dtype(self.dtype)

    @property
    def element_b(self) -> DType:
        """Type of B."""
        return dtype(self.dtype_b)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element, averaged over A and B."""
        return (self.element.bits + self.element_b.bits) / 16

    @property
    def flops(self) -> int:
        """Useful FLOPs of the product; a multiply-add counts as two."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def epilogue_bytes(self) -> int:
        """Bytes of C (twice if beta reads it), the residual, the bias, the scales, and the leaves' columns."""
        c = self.batch * self.m * self.columns_c * (1 + (self.beta != 0) + self.residual) * dtype(self.dtype_c).bytes
        size = dtype(self.dtype_scale).bytes
        of_a, of_b = (size * self.batch * prod(shape) for shape in self.scale_shapes or ((0,), (0,)))
        groups = max(1, self.groups)
        columns = 0 if self.leaves is None else len(self.leaves.columns) * self.n * dtype("f32").bytes
        return c + columns + groups * (self.n * self.bias * dtype(self.dtype_addend).bytes + of_b) + of_a

    @property
    def streams_a(self) -> int:
        """Matrices of A's shape that are read: A, and those of the leaves."""
        return 1 if self.leaves is None else 1 + len(self.leaves.matrices)

    @property
    def vector_bytes(self) -> int:
        """Bytes of one k of the leaves' vectors."""
        return 0 if self.leaves is None else len(self.leaves.vectors) * self.element.bytes

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of A, B, the leaves' matrices and vectors crosses memory once, plus `epilogue_bytes`."""
        weights, of_a = max(1, self.groups) * self.k * self.n, self.streams_a * self.m * self.k
        products = self.batch * (self.element.packed_bytes(of_a) + self.element_b.packed_bytes(weights))
        return products + self.k * self.vector_bytes + self.epilogue_bytes


def panels(n: int, k: int, kind: str) -> tuple[int, int, int]:
    """Returns the numbers of panels, of pieces of PANEL_BYTES in a row, and of elements in a piece, of a preshuffled B (n,k).

    kind: type of the elements. LaunchError if n or k is not a multiple.
    """
    piece, rest = divmod(8 * PANEL_BYTES, dtype(kind).bits)
    if rest:
        raise LaunchError(f"preshuffled B: {PANEL_BYTES} bytes hold no whole number of {kind}: leave its rows as they are")
    if n % PANEL_ROWS or k % piece:
        raise LaunchError(f"preshuffled B is {n}x{k}, panels have {PANEL_ROWS} rows of {piece} elements: pad both to multiples")
    return n // PANEL_ROWS, k // piece, piece
