"""What attention computes: heads, masks, types; which keys a query sees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.dtypes import DType
from simgpu.hardware.dtypes import dtype as find_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import positive_dimension
from simgpu.operators.attention.registers import ATOM
from simgpu.operators.tree import Extent

# P is at most 1 and, of a long row, mostly small: f16, whose smallest normal is 2^-14 (gfx90a reads less as 0), holds it 2^15 times
# as large; the end divides by as much.
GAINS = {"f16": 2.0**15}


@dataclass(frozen=True)
class AttentionProblem:
    """R = softmax(scale * Q K^T) V for each head, row-major: Q, R (batch,heads,lq,d), K, V (batch,kv_heads,lk,d).

    heads / kv_heads query heads share a head of K and V. Query i stands at position i + lk - lq among the keys (the last query sees
    the last key). causal: it sees no later key. window: it sees fewer than `window` keys before its own and, unless causal, after
    it. Queries that see no key give 0. scale: 1/sqrt(d) if None. Q, K, V have `dtype`, R the accumulator's type.
    LaunchError for sizes that cannot be, among them a d that is no multiple of 16.
    """

    lq: int
    lk: int
    d: int
    heads: int = 1
    kv_heads: int = 0  # 0: as many as heads
    batch: int = 1
    causal: bool = False
    window: int | None = None
    scale: float | None = None
    dtype: str = "f32"

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        for name in ("lq", "lk", "d", "heads", "kv_heads", "batch"):
            object.__setattr__(self, name, positive_dimension("L" if name == "lq" else name, getattr(self, name)))
        if self.d % ATOM:
            raise LaunchError(f"d = {self.d} is no multiple of {ATOM}: pad the head dimension to {-(-self.d // ATOM) * ATOM}")
        if self.heads % self.kv_heads:
            raise LaunchError(
                f"{self.heads} heads do not share {self.kv_heads} heads of K and V evenly: use a divisor of {self.heads}"
            )
        if self.window is not None:
            positive_dimension("window", self.window)
        if find_dtype(self.dtype).significand == 0:
            raise LaunchError(f"attention in {self.dtype} has no exponentials: use a floating-point type")
        if self.scale is None:
            object.__setattr__(self, "scale", self.d**-0.5)

    @property
    def element(self) -> DType:
        """The type of Q, K and V."""
        return find_dtype(self.dtype)

    @property
    def dtype_c(self) -> str:
        """Type of R: the accumulator's."""
        return self.element.accumulator

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        """Shape of Q and R."""
        return self.batch, self.heads, self.lq, self.d

    @property
    def kv_shape(self) -> tuple[int, int, int, int]:
        """Shape of K and V."""
        return self.batch, self.kv_heads, self.lk, self.d

    def visible(self, queries: Extent) -> Extent:
        """The keys that at least one of these queries sees; empty if none."""
        shift, reach = self.lk - self.lq, self.lk + self.lq if self.window is None else self.window
        low = max(0, queries.min_ + shift - reach + 1)
        high = min(self.lk, queries.max_ + shift + (0 if self.causal else reach - 1))
        return Extent(low, max(low, high), self.lk)

    def keep(self, queries: Extent, keys: Extent) -> NDArray[np.bool_]:
        """(queries, keys): which query sees which key."""
        position = np.arange(queries.min_, queries.max_)[:, None] + self.lk - self.lq
        key = np.arange(keys.min_, keys.max_)[None, :]
        seen = np.ones((len(position), key.shape[1]), bool)
        if self.causal:
            seen &= key <= position
        if self.window is not None:
            seen &= abs(position - key) < self.window
        return seen

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key that it sees, over all heads."""
        position = np.arange(self.lq) + self.lk - self.lq
        reach = self.lk + self.lq if self.window is None else self.window
        low = np.maximum(0, position - reach + 1)
        high = np.minimum(self.lk, position + 1 if self.causal else position + reach)
        return self.batch * self.heads * int(np.maximum(0, high - low).sum())

    @property
    def flops(self) -> int:
        """Useful FLOPs of the two products: 4*d a pair (4 L^2 d for one head, E22)."""
        return 4 * self.pairs * self.d

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V."""
        return 2 * self.batch * self.kv_heads * self.lk * self.d * self.element.bytes

    @property
    def qr_bytes(self) -> int:
        """Bytes of Q and R."""
        return self.batch * self.heads * self.lq * self.d * (self.element.bytes + find_dtype(self.dtype_c).bytes)

    @property
    def bytes_once(self) -> int:
        """Bytes if Q, K, V and R cross memory once: 34 MB at L = 16384, d = 128 (E19)."""
        return self.kv_bytes + self.qr_bytes
