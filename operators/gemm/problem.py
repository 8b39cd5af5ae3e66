"""What a GEMM computes: sizes, types, storage. C <- alpha * op(A) op(B) + beta * C, as BLAS has it, row-major, and its epilogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from simgpu.hardware.dtypes import DType, dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import one_of, positive_dimension

GATES = {"reglu": "relu", "geglu": "gelu", "swiglu": "silu"}  # the activation of a gated one's even columns
ACTIVATIONS = ("none", "relu", "gelu", "silu", *GATES)
NARROW = ("fp8", "bf8")  # types of C that saturate and take a scale
# What C may be by the accumulator's type: that itself, or what rounds it.
OUTPUTS = {
    "f32": ("f32", "f16", "bf16", *NARROW),
    "f64": ("f64", "f32", "f16", "bf16", *NARROW),
    "i32": ("i32", "f32", "f16", "bf16", *NARROW),
}
SCALES = ("none", "tensor", "row", "block", "mx")
SCALE_BLOCK = 128  # k of a block scale of A, columns of op(B) and k of one of B
MX_TYPES = ("fp8", "bf8", "fp6", "bf6", "fp4")  # elements of OCP MX
MX_BLOCK = 32  # k of an MX scale
MX_ROWS = 16  # to a multiple of which the rows' MX scales of a block are filled up
PANEL_ROWS, PANEL_BYTES = 16, 16  # of a preshuffled matrix: bytes of a row beside the next row's, rows of which this goes on
SCALES_OF_K = ("block", "mx")  # scales that differ along k: the main loop's


@dataclass(frozen=True)
class GemmProblem:
    """C (m,n) <- activation(alpha * op(A) (m,k) @ op(B) (k,n) + beta * C + bias), all row-major, `batch` times.

    A is stored (m,k), or (k,m) if trans_a; B is stored (k,n), or (n,k) if trans_b; lda, ldb, ldc are the stored rows' strides in
    elements, by default the stored row's length. `dtype` is the type of A and B, `dtype_c` that of C: the matrix unit's accumulator
    (f32 for f16, bf16, fp8, bf8 and xf32; i32 for i8), which is the default, or one of OUTPUTS that it is rounded to at the end,
    to nearest even. beta = 0 means that C is not read. With batch > 1 the operands have a leading dimension of that size, each
    matrix right behind the one before it. LaunchError for sizes, strides or types that cannot be.

    The epilogue, in f32 where the accumulator is no f64 and C no i32:
    `scales`: f32 factors of the product. "tensor" one of A and one of B, "row" one a row of A (m) and one a column of op(B) (n);
    "block", of fp8 and bf8, one for SCALE_BLOCK k of a row of A, stored (m, blocks of k), and one for SCALE_BLOCK columns by
    SCALE_BLOCK k of op(B), stored (blocks of n, blocks of k): the products of each block of k are scaled before they are added.
    "mx", the formats of OCP MX: an E8M0 power of two for MX_BLOCK k of a row of A, and of a column of op(B), stored (blocks of k,
    `mx_rows`). A is (m,k) and B (n,k), k a multiple of MX_BLOCK; `dtype` is one of MX_TYPES, `dtype_b` another or the same;
    elements of 6 and 4 bits share bytes (`hardware.dtypes.pack`).
    `bias` adds a row of n elements of `dtype_addend` to each row.
    `activation` (gelu is the exact one, x * Phi(x)). The gated ones take columns in pairs, gate and up, and leave n/2:
    C[i][j] = silu(x[i][2j]) * x[i][2j+1] is swiglu; with gelu geglu, with relu reglu. beta is then 0.
    `residual` adds R (m, columns of C), of C's type and strides, behind the activation.
    `groups` above 0: a grouped product. The m rows of A and C are those of the groups in turn, as many each as an operand says
    (`operators.gemm.groups`); B, bias and B's scales have a leading dimension of `groups`.
    `scale_c` multiplies what is rounded to fp8 or bf8, which saturates: beyond the largest value all but NaN becomes that.
    `preshuffle_b`: B, stored (n,k), was permuted beforehand by `operators.preshuffled`, as inference stacks do with weights: panels
    of PANEL_ROWS rows hold PANEL_BYTES of each row in turn (AITER's `shuffle_weight`).
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
    dtype_c: str = ""
    scale_c: float = 1.0
    residual: bool = False
    scales: str = "none"
    groups: int = 0
    dtype_b: str = ""
    preshuffle_b: bool = False

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("scales", self.scales, SCALES)
        object.__setattr__(self, "dtype_b", self.dtype_b or self.dtype)
        object.__setattr__(self, "dtype_c", one_of("type of C", self.dtype_c or self.accumulator, OUTPUTS[self.accumulator]))
        for name in ("m", "n", "k", "batch"):
            object.__setattr__(self, name, positive_dimension(name, getattr(self, name)))
        for name, (_, columns) in zip(("lda", "ldb", "ldc"), self.stored_shapes, strict=True):
            given = getattr(self, name)
            stride = columns if given is None else positive_dimension(name, given)
            if stride < columns:
                raise LaunchError(f"{name} = {stride} is shorter than a stored row of {columns} elements: give {name} >= {columns}")
            object.__setattr__(self, name, stride)
        self._check_types()
        if self.preshuffle_b:
            self._check_preshuffle()
        self._check_epilogue()
        if self.groups:
            self._check_groups()

    def _check_types(self) -> None:
        """Which elements go with which scales, and how MX operands lie."""
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
        """(rows, columns) of A, B and C as they lie in memory, of one product of the batch."""
        a = (self.k, self.m) if self.trans_a else (self.m, self.k)
        b = (self.n, self.k) if self.trans_b else (self.k, self.n)
        return a, b, (self.m, self.columns_c)

    @property
    def even(self) -> GemmProblem:
        """A grouped product as a batch whose groups have the same number of rows; any other as it is."""
        return replace(self, m=-(-self.m // self.groups), batch=self.groups, groups=0) if self.groups else self

    @property
    def columns_c(self) -> int:
        """Columns of C: n, of which a gated activation leaves half."""
        return self.n // 2 if self.activation in GATES else self.n

    @property
    def accumulator(self) -> str:
        """Type of the matrix unit's sums, and of the parts of a split K."""
        return dtype(self.dtype).accumulator

    @property
    def epilogue_type(self) -> str:
        """Type in which alpha, beta and what follows are applied."""
        return "f32" if self.accumulator == "i32" and self.dtype_c != "i32" else self.accumulator

    @property
    def dtype_addend(self) -> str:
        """Type of the bias: C's, of 8-bit ones f32."""
        return "f32" if self.dtype_c in NARROW else self.dtype_c

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Shapes of A's and B's scales of one product of the batch; None without."""
        blocks_n, blocks_k = -(-self.n // SCALE_BLOCK), -(-self.k // SCALE_BLOCK)
        blocks = ((self.m, blocks_k), (blocks_n, blocks_k))
        by_scales: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
            "tensor": ((1,), (1,)), "row": ((self.m,), (self.n,)), "block": blocks,
            "mx": ((self.k // MX_BLOCK, self.mx_rows[0]), (self.k // MX_BLOCK, self.mx_rows[1])),
        }  # fmt: skip
        return by_scales.get(self.scales)

    @property
    def mx_rows(self) -> tuple[int, int]:
        """Bytes from one block's MX scales of all rows of A, and of all columns of op(B), to the next block's. They lie row by row,
        so that loads are of whole lines, filled up to a multiple of MX_ROWS; a group of A's may begin anywhere, which takes room.
        """
        room = MX_ROWS - 1 if self.groups else 0
        return -(-(self.m + room) // MX_ROWS) * MX_ROWS, -(-self.n // MX_ROWS) * MX_ROWS

    @property
    def dtype_scale(self) -> str:
        """Type of the scales."""
        return "e8m0" if self.scales == "mx" else "f32"

    @property
    def scales_in_loop(self) -> bool:
        """Whether scales differ along k, so that the main loop reads them."""
        return self.scales in SCALES_OF_K

    @property
    def scales_at_end(self) -> bool:
        """Whether the epilogue scales the product: those of blocks are in the sums already."""
        return self.scales in ("tensor", "row")

    @property
    def element(self) -> DType:
        """The type of A, and of B but for MX formats."""
        return dtype(self.dtype)

    @property
    def element_b(self) -> DType:
        """The type of B."""
        return dtype(self.dtype_b)

    @property
    def element_bytes(self) -> float:
        """Bytes of an element, A's and B's in the mean."""
        return (self.element.bits + self.element_b.bits) / 16

    @property
    def flops(self) -> int:
        """Useful FLOPs of the product, a multiply-add counted as two."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def epilogue_bytes(self) -> int:
        """Bytes of C, twice when beta reads it, of the residual, the bias and the scales."""
        c = self.batch * self.m * self.columns_c * (1 + (self.beta != 0) + self.residual) * dtype(self.dtype_c).bytes
        size = dtype(self.dtype_scale).bytes
        of_a, of_b = (size * self.batch * prod(shape) for shape in self.scale_shapes or ((0,), (0,)))
        groups = max(1, self.groups)
        return c + groups * (self.n * self.bias * dtype(self.dtype_addend).bytes + of_b) + of_a

    @property
    def bytes_once(self) -> int:
        """Bytes if every element of A, B and the bias crosses memory once, and of C (twice when beta reads it)."""
        weights = max(1, self.groups) * self.k * self.n
        return self.batch * (self.element.packed(self.m * self.k) + self.element_b.packed(weights)) + self.epilogue_bytes


def panels(n: int, k: int, kind: str) -> tuple[int, int, int]:
    """Of a preshuffled B (n,k): panels of rows, pieces of PANEL_BYTES in a row, elements of a piece; kind: of the elements.

    LaunchError if n or k does not divide.
    """
    piece, rest = divmod(8 * PANEL_BYTES, dtype(kind).bits)
    if rest:
        raise LaunchError(f"preshuffled B: {PANEL_BYTES} bytes hold no whole number of {kind}: leave its rows as they are")
    if n % PANEL_ROWS or k % piece:
        raise LaunchError(f"preshuffled B is {n}x{k}, panels have {PANEL_ROWS} rows of {piece} elements: pad both to multiples")
    return n // PANEL_ROWS, k // piece, piece
