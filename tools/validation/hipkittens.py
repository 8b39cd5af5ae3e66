"""Times of AITER's attention on MI355X, as HipKittens' benchmark measured them next to its own kernels.

A checkout of github.com/HazyResearch/HipKittens is read in place: `analysis/attn/fwd/benchmark/mi355x_*_fwd.json`. Its script
measures a call from Python between two events, so a time includes what the host takes before the kernel begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.aiter import WIDTH, AttentionExtents
from simgpu.tools.validation.checkouts import text_of

FOLDER = "analysis/attn/fwd/benchmark"
BOARD = "mi355x"
HEADS = {"mha": (16, 16), "gqa": (64, 8)}  # heads of Q, and of K and V
LONG = 4096  # queries from which the host's part is small


@dataclass(frozen=True)
class MeasuredAttention:
    """A published time."""

    kind: str  # a key of HEADS
    shape: AttentionExtents
    us: float

    @property
    def name(self) -> str:
        """Says what was measured."""
        return f"{self.kind}{' causal' * self.shape.causal} {self.shape.batch} x {self.shape.length}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return "long" if self.shape.length >= LONG else "short"

    @property
    def fits(self) -> bool:
        """True for the half that calibrates the clock: long rows with as many heads of K and V as of Q."""
        return self.kind == "mha" and self.group == "long"


def rows(checkout: Path) -> Iterator[MeasuredAttention]:
    """Yields the published times. Raises UsageError for a folder without them."""
    for kind, (heads, kv_heads) in HEADS.items():
        for causal in (False, True):
            path = checkout / FOLDER / f"{BOARD}_{kind}_{'causal' if causal else 'non_causal'}_fwd.json"
            for entry in _entries(path):
                length, ms, tflops = (float(entry[key]) for key in ("N", "avg_time_ref", "tflops_ref"))
                # The file does not give the batch, which was 15 for the longest: as many as make these TFLOPS.
                batch = round(tflops * 1e9 * ms * (2 if causal else 1) / (4 * length**2 * heads * WIDTH))
                shape = AttentionExtents(int(length), heads, causal, kv_heads, batch, torch_layout=True)
                yield MeasuredAttention(kind, shape, 1e3 * ms)


def _entries(path: Path) -> list[dict[str, float]]:
    try:
        found = list(json.loads(text_of(path, "HazyResearch/HipKittens")).values())
        if not all({"N", "avg_time_ref", "tflops_ref"} <= entry.keys() for entry in found):
            raise UsageError(f"{path}: an entry lacks N, avg_time_ref or tflops_ref")
    except (ValueError, AttributeError) as error:
        raise UsageError(f"{path}: cannot be read as HipKittens' times: {error}") from None
    return found
