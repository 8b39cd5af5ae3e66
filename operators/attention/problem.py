"""Problem of attention: heads, masks, types, and the keys that a query sees."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simgpu.hardware.dtypes import DType
from simgpu.hardware.dtypes import dtype as find_dtype
from simgpu.hardware.errors import LaunchError
from simgpu.operators.arguments import positive_dimension
from simgpu.operators.tree import Extent

ATOM = 16  # rows and columns of the matrix instruction, on every target and type
NARROW = ("fp8", "bf8")  # types that K and V may have in a cache
# P is at most 1, and most of a long row is small. f16's smallest normal is 2^-14 (gfx90a reads smaller values as 0), so
# P is rounded to f16 after multiplication by 2^15, and the result is divided by 2^15.
GAINS = {"f16": 2.0**15}


@dataclass(frozen=True)
class AttentionProblem:
    """R = softmax(scale * Q K^T) V for each head, row-major.

    Q (batch,heads,lq,d), K (batch,kv_heads,lk,d), V (batch,kv_heads,lk,dv), R (batch,heads,lq,dv). Q has `dtype`, K and V have
    `dtype_kv`, R the accumulator's type. heads / kv_heads query heads share a head of K and V. Query i has position i + lk - lq
    among the keys (the last query sees the last key). Rows of R are 0 for queries that see no key. LaunchError for impossible
    sizes.

    With pages, K is a pool (any number of pages,page,kv_heads,d), and V likewise with dv. `blocks` (batch, ceil(lk / page)) in
    i32 lists each sequence's pages, and `lengths` (batch) in i32 its number of keys, at most lk. Its last query sees its last key.

    >>> from simgpu.operators import AttentionProblem
    >>> problem = AttentionProblem(lq=128, lk=1024, d=64, heads=8, kv_heads=2, causal=True, dtype="f16")
    >>> problem.q_shape, problem.k_shape, problem.dtype_c
    ((1, 8, 128, 64), (1, 2, 1024, 64), 'f32')
    """

    lq: int  # queries of a head
    lk: int  # keys of a head; with pages, the largest number of keys of a sequence
    d: int  # head dimension of Q and K
    heads: int = 1  # query heads
    kv_heads: int = 0  # heads of K and V; 0: as many as heads
    batch: int = 1  # number of sequences
    causal: bool = False  # True: a query sees no later key
    window: int | None = None  # a query sees only keys whose distance from its position is less than this; None: no limit
    scale: float | None = None  # factor of the scores; None: 1/sqrt(d)
    dtype: str = "f32"  # type of Q
    dv: int = 0  # head dimension of V; 0: d
    softcap: float | None = None  # a score s becomes softcap * tanh(s / softcap), after the scale
    # True: subtracts `slopes` (batch,heads) in f32 times the distance of query and key (Press et al., "Train Short,
    # Test Long")
    alibi: bool = False
    lse: bool = False  # True: the kernel also stores log(sum(exp(s))), (batch,heads,lq) in f32, -infinity if a query sees no key
    page: int = 0  # keys of a page, a power of two, at least 16; 0: no pages
    dtype_kv: str = ""  # type of K and V; "": dtype; or fp8 or bf8, which `scale_k` and `scale_v` (kv_heads) in f32 multiply

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if not self.dv:
            object.__setattr__(self, "dv", self.d)
        if not self.dtype_kv:
            object.__setattr__(self, "dtype_kv", self.dtype)
        for name in ("lq", "lk", "d", "dv", "heads", "kv_heads", "batch"):
            object.__setattr__(self, name, positive_dimension("L" if name == "lq" else name, getattr(self, name)))
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
        if not math.isfinite(self.scale or 0.0):
            raise LaunchError(f"scale = {self.scale}: use a finite number")
        if self.softcap is not None and not (self.softcap > 0 and math.isfinite(self.softcap)):
            raise LaunchError(f"softcap = {self.softcap:g}: use a positive number, or leave it out")

        self._check_cache()

    def _check_cache(self) -> None:
        if self.page and (self.page < ATOM or self.page & (self.page - 1)):
            raise LaunchError(f"page = {self.page}: a page has a power of two of keys, at least {ATOM}")
        if self.dtype_kv != self.dtype and self.dtype_kv not in NARROW:
            raise LaunchError(f"K and V in {self.dtype_kv}, Q in {self.dtype}: K and V have Q's type, or are {' or '.join(NARROW)}")
        if self.narrow_kv and self.dtype not in ("f16", "bf16"):
            raise LaunchError(f"K and V in {self.dtype_kv} become f16 or bf16, and Q is {self.dtype}: use one of these for Q")
        for name, width in (("d", self.d), ("dv", self.dv)):
            if self.narrow_kv and width % 4:
                more = -(-width // 4) * 4
                raise LaunchError(f"{name} = {width}: rows of {self.dtype_kv} are loaded by 4 bytes, so pad {name} to {more}")

    @property
    def narrow_kv(self) -> bool:
        """True if K and V are 8-bit floats with scales."""
        return self.dtype_kv != self.dtype

    @property
    def cached(self) -> bool:
        """True if K and V are paged, or 8-bit floats with scales."""
        return bool(self.page) or self.narrow_kv

    @property
    def element_kv(self) -> DType:
        """Type of K and V in memory."""
        return find_dtype(self.dtype_kv)

    @property
    def pages(self) -> int:
        """Pages of a sequence of lk keys."""
        return -(-self.lk // self.page) if self.page else 0

    @property
    def element(self) -> DType:
        """Type of Q, and of K and V as they are multiplied."""
        return find_dtype(self.dtype)

    @property
    def dtype_c(self) -> str:
        """Type of R: the accumulator's."""
        return self.element.accumulator

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        """Shape of Q."""
        return self.batch, self.heads, self.lq, self.d

    @property
    def k_shape(self) -> tuple[int, int, int, int]:
        """Shape of K."""
        return self.batch, self.kv_heads, self.lk, self.d

    @property
    def v_shape(self) -> tuple[int, int, int, int]:
        """Shape of V."""
        return self.batch, self.kv_heads, self.lk, self.dv

    @property
    def r_shape(self) -> tuple[int, int, int, int]:
        """Shape of R."""
        return self.batch, self.heads, self.lq, self.dv

    @property
    def lse_shape(self) -> tuple[int, int, int]:
        """Shape of the logarithms that `lse` stores."""
        return self.batch, self.heads, self.lq

    @property
    def padded_d(self) -> int:
        """Head dimension d in whole atoms: in registers, Q and K are 0 from d on."""
        return -(-self.d // ATOM) * ATOM

    @property
    def padded_dv(self) -> int:
        """Head dimension dv in whole atoms: columns of O from dv on are not stored."""
        return -(-self.dv // ATOM) * ATOM

    @property
    def slopes_shape(self) -> tuple[int, int]:
        """Shape of ALiBi's slopes."""
        return self.batch, self.heads

    def visible(self, queries: Extent) -> Extent:
        """Returns the range of keys from the first to the last that one of these queries sees; empty if none."""
        low, high = self.key_range(queries.min_, queries.max_)
        return Extent(int(low), int(high), self.lk)

    def key_range(self, first: Any, end: Any) -> tuple[Any, Any]:
        """Returns [low, high), the keys from the first to the last that one of the queries [first, end) sees: numbers or arrays."""
        shift, reach = self.lk - self.lq, self.lk + self.lq if self.window is None else self.window
        low = np.maximum(0, first + shift - reach + 1)
        return low, np.maximum(low, np.minimum(self.lk, end + shift + (0 if self.causal else reach - 1)))

    def keep(self, queries: Extent, keys: Extent) -> NDArray[np.bool_]:
        """Returns a mask (queries, keys), True if the query sees the key."""
        position = np.arange(queries.min_, queries.max_)[:, None] + self.lk - self.lq
        key = np.arange(keys.min_, keys.max_)[None, :]
        seen = np.ones((len(position), key.shape[1]), bool)
        if self.causal:
            seen &= key <= position
        if self.window is not None:
            seen &= abs(position - key) < self.window
        return seen

    def distance(self, queries: Extent, keys: Extent) -> NDArray[np.int_]:
        """Returns distances (queries, keys) between a key and the query's position among the keys."""
        return np.abs(np.arange(queries.min_, queries.max_)[:, None] + self.lk - self.lq - np.arange(keys.min_, keys.max_)[None, :])

    def refuse_extras(self, what: str) -> None:
        """Raises LaunchError if the problem has a soft cap, ALiBi, `lse` or a cache, which `what` does not support."""
        extras = ("softcap", self.softcap is not None), ("alibi", self.alibi), ("lse", self.lse), ("page", self.page > 0)
        for option, given in (*extras, ("dtype_kv of its own", self.narrow_kv)):
            if given:
                raise LaunchError(f"{what} has no {option}: use fused attention with policy corrected")

    @property
    def pairs(self) -> int:
        """Number of pairs of a query and a key that it sees, over all sequences and heads."""
        first = np.arange(self.lq)
        low, high = self.key_range(first, first + 1)
        return self.batch * self.heads * int((high - low).sum())

    @property
    def flops(self) -> int:
        """Useful FLOPs of the two products: 2*(d + dv) a pair (4 L^2 d for one head, E22)."""
        return 2 * self.pairs * (self.d + self.dv)

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V."""
        return self.batch * self.kv_heads * self.lk * (self.d + self.dv) * self.element_kv.bytes

    @property
    def qr_bytes(self) -> int:
        """Bytes of Q and R, and of `lse`."""
        row = self.d * self.element.bytes + self.dv * find_dtype(self.dtype_c).bytes + 4 * self.lse
        return self.batch * self.heads * self.lq * row

    @property
    def bytes_once(self) -> int:
        """Bytes if Q, K, V and R cross memory once: 34 MB at L = 16384, d = 128 (E19)."""
        return self.kv_bytes + self.qr_bytes
