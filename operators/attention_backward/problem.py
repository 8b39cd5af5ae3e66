"""Problem of attention's backward, and its first kernel's: the sum of each row of dO * O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import one_of
from simgpu.operators.attention.problem import AttentionProblem
from simgpu.operators.expressions import Value
from simgpu.operators.rows.problem import RowOperator

TYPES = ("f16", "bf16")
WIDTH_UNIT = 8  # elements of a lane's 16-byte load of a row, which is inside the row as a whole or not at all
LARGEST_WIDTH = 256
LOGARITHMS, SUMS = "L", "D"  # names of operands: log-sum-exp of each query, and the sums of rows of dO * O


@dataclass(frozen=True)
class AttentionBackwardProblem(AttentionProblem):
    """Gradients dQ, dK and dV of R = softmax(scale * Q K^T) V, from dO, the gradient of R.

    S is scale * Q K^T, L the log-sum-exp of its rows, D the sums of rows of dO * O. Then (Dao, "FlashAttention-2", 2023,
    algorithm 2):

        P = exp(S - L)    dP = dO V^T    dS = P * (dP - D)
        dV = P^T dO    dK = scale * dS^T Q    dQ = scale * dS K

    Q, K, V, O and dO have `dtype`, f16 or bf16. O is the forward kernel's R in this type. L (batch,heads,lq) in f32 is what
    the forward kernel stores with `lse`. The gradients are f32. dK and dV are sums over the query heads that share a head of K
    and V. The widths d and dv are multiples of 8. LaunchError for what has no kernel.

    >>> from simgpu.operators import AttentionBackwardProblem
    >>> AttentionBackwardProblem(lq=128, lk=1024, d=64, heads=8, kv_heads=2, dtype="f16").shapes["dK"]
    (1, 2, 1024, 64)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("dtype of attention_backward", self.dtype, TYPES)
        self.refuse_extras("attention_backward")
        if self.window is not None:
            raise LaunchError("attention_backward has no window: leave it out")
        for name in ("d", "dv"):
            width = getattr(self, name)
            if width % WIDTH_UNIT or width > LARGEST_WIDTH:
                more = min(-(-width // WIDTH_UNIT) * WIDTH_UNIT, LARGEST_WIDTH)
                raise LaunchError(f"{name} = {width}: use a multiple of {WIDTH_UNIT} up to {LARGEST_WIDTH}, such as {more}")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all operands, by name, in the order of the computation's arguments."""
        q, k, v, r = self.q_shape, self.k_shape, self.v_shape, self.r_shape
        return {"Q": q, "K": k, "V": v, "O": r, "dO": r, LOGARITHMS: self.lse_shape, "dQ": q, "dK": k, "dV": v}

    @property
    def group(self) -> int:
        """Number of query heads that share a head of K and V."""
        return self.heads // self.kv_heads

    @property
    def flops(self) -> int:
        """Useful FLOPs of the five products: 6*d + 4*dv for each pair of a query and a key that it sees."""
        return self.pairs * (6 * self.d + 4 * self.dv)

    @property
    def bytes_once(self) -> int:
        """Bytes if each operand crosses memory once."""
        return sum(_elements(shape) * self.bytes_of(name) for name, shape in self.shapes.items())

    def bytes_of(self, name: str) -> int:
        """Returns the bytes of an operand's element."""
        return self.element.bytes if name in ("Q", "K", "V", "O", "dO") else 4

    @property
    def row_sums(self) -> RowDot:
        """Problem of the first kernel."""
        return RowDot(self.batch * self.heads * self.lq, self.dv, self.dtype)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


@dataclass(frozen=True)
class RowDot(RowOperator):
    """total = the sum of each row of X * other, in f32.

    >>> RowDot(rows=64, n=1000).written
    {'total': (64, 1)}
    """

    name = "row_dot"
    matrices, sums, results, row_results = ("other",), ("added",), (), ("total",)

    def added(self, x: Value, other: Value) -> Value:
        return x * other

    def total(self, added: Value) -> Value:
        return added

    def reference(self, x: Any, other: Any) -> Any:  # type: ignore[override]
        return (x * other).sum(1, keepdims=True)
