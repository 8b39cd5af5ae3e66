"""Unfused attention, the paper's baseline: three kernels with S and P in HBM between them (errata E19, E20, E22, E26)."""

from __future__ import annotations

from simgpu.hardware import target as find_target
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.operators.attention.problem import GAINS, AttentionProblem
from simgpu.operators.attention.sequence import KernelSequence, SequencePlan
from simgpu.operators.gemm.plan import without_split
from simgpu.operators.gemm.tree import TiledComputation
from simgpu.operators.softmax.problem import Band, SoftmaxProblem
from simgpu.operators.softmax.tree import Softmax
from simgpu.operators.tree import FLOOR, Extent, View

PARTS = ("scores", "softmax", "values")


class UnfusedPlan(SequencePlan):
    """Derivations of the three kernels: S = scale * Q K^T, P = softmax(S), R = P V."""

    operator = "unfused attention"
    names = PARTS


class UnfusedAttention(KernelSequence):
    """Root of the tree: R = softmax(scale * Q K^T) V by three kernels. Query heads that share K and V are rows of one product.

    S has the accumulator's type, P the operands'. P overwrites S if these are the same type; else it follows S in memory.

    >>> from simgpu.operators import AttentionProblem, UnfusedAttention
    >>> tree = UnfusedAttention(AttentionProblem(lq=1024, lk=1024, d=64), "mi300x")
    >>> [type(part).__name__ for part in tree.children()], tree.score_bytes
    (['TiledComputation', 'Softmax', 'TiledComputation'], 4194304)
    """

    def __init__(self, problem: AttentionProblem, target: str | HardwareDescriptor = "mi100", policy: str = "corrected") -> None:
        problem.refuse_extras("unfused attention")
        self.problem = p = problem
        self.descriptor = find_target(target)
        batch, rows = p.batch * p.kv_heads, p.heads // p.kv_heads * p.lq
        assert p.scale is not None
        gain = GAINS.get(p.dtype, 1.0)
        common = {"target": self.descriptor, "policy": policy, "batch": batch}
        self.parts: tuple[TiledComputation, Softmax, TiledComputation] = (
            TiledComputation(rows, p.lk, p.d, dtype=p.dtype, trans_b=True, alpha=p.scale, **common),  # type: ignore[arg-type]
            Softmax(
                SoftmaxProblem(batch * rows, p.lk, p.dtype_c, band=_band(p), dtype_y=p.dtype, gain=gain), self.descriptor, policy
            ),
            TiledComputation(rows, p.dv, p.lk, dtype=p.dtype, alpha=1 / gain, **common),  # type: ignore[arg-type]
        )
        for product in (self.parts[0], self.parts[2]):
            product.derivation = without_split(product.derivation)  # the baseline is three kernels, however idle the CUs
        scores, softmax, values = (part.derivation for part in self.parts)
        self.derivation = UnfusedPlan(p, self.descriptor, policy, (scores, softmax, values))
        whole, d, dv = Extent.whole(p.lk), Extent.whole(p.d), Extent.whole(p.dv)
        queries, keys = (Extent.whole(p.batch), Extent.whole(p.heads)), (Extent.whole(p.batch), Extent.whole(p.kv_heads))
        self.views = (
            View("Q", Extent.whole(p.lq), d, queries),
            View("K", whole, d, keys),
            View("V", whole, dv, keys),
            View("S", Extent.whole(p.lq), whole, queries),
            View("R", Extent.whole(p.lq), dv, queries),
        )

    @property
    def score_bytes(self) -> int:
        """Bytes of S: 1,074 MB at L = 16384 (E19)."""
        return self._scores * self.parts[1].problem.element.bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of P next to S; 0 if it overwrites S."""
        narrow = self.problem.dtype != self.problem.dtype_c
        return self._scores * self.problem.element.bytes * narrow

    @property
    def _scores(self) -> int:
        p = self.problem
        return p.batch * p.heads * p.lq * p.lk

    @property
    def bytes_once(self) -> int:
        """HBM bytes of the three kernels, if each reads or writes an array once: 4,329 MB at L = 16384, d = 128 (E19)."""
        return sum(part.problem.bytes_once for part in self.parts)

    def describe(self) -> tuple[tuple[str, ...], ...]:
        """Returns the header and the sequence of kernels."""
        head = (
            "UnfusedAttention  R = softmax(scale * Q @ K^T) @ V",
            "  ".join(map(str, self.views)),
            f"three kernels in sequence; S and P cross HBM: {self.score_bytes / 1e6:,.0f} MB each time, "
            f"{self.bytes_once / 1e6:,.0f} MB in all",
            f"boundary: masked scores read {FLOOR.text}; outside of views as each kernel says",
        )
        return (head,)


def _band(p: AttentionProblem) -> Band | None:
    """Returns the problem's masks as a Band: the keys that query i sees, from i + first up to i + end. None without masks."""
    if not p.causal and p.window is None:
        return None
    shift, reach = p.lk - p.lq, p.lk + p.lq if p.window is None else p.window
    return Band(p.lq, shift - reach + 1, shift + (1 if p.causal else reach))
