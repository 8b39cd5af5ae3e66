"""A candidate with its modelled time, and the order of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import SimError
from simgpu.tools.shared.console import count_progress, table
from simgpu.tools.shared.sheet import GAP, Sheet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simgpu.timing.predict import Prediction

COLUMNS = ("candidate", "us", "of best", "limited by")
WIDTH, LEAST = 80, 20  # of a table, and of a candidate's name in it
FIGURES = 22  # of the times, with the gaps before them
COMMON = 12  # shared characters, at names' beginnings, that are cut up to a "_"


@dataclass(frozen=True)
class Ranked:
    """A candidate of one problem."""

    name: str
    seconds: float  # infinite if it cannot be timed
    limit: str = ""  # what limits it, or why it cannot be timed

    @classmethod
    def of(cls, name: str, kernels: Sequence[Prediction], more: float = 0.0) -> Ranked:
        """Returns a candidate of one or several kernels, limited by what limits the longest. more: seconds beside them."""
        longest = max(kernels, key=lambda one: one.seconds)
        return cls(name, sum(one.seconds for one in kernels) + more, longest.limit)


@dataclass(frozen=True)
class Ranking:
    """All candidates of a problem, the fastest first."""

    title: str
    rows: Sequence[Ranked]
    taken: float  # seconds of the host

    @property
    def timed(self) -> list[Ranked]:
        """Candidates that have a time."""
        return [row for row in self.rows if row.seconds < float("inf")]

    def sheet(self, most: int) -> Sheet:
        """Returns a table of the `most` fastest, within 80 columns."""
        timed = self.timed[:most]
        limits = max((len(row.limit) + GAP for row in timed), default=0)
        names = _short([row.name for row in timed], max(LEAST, WIDTH - FIGURES - limits))
        found = [
            (name, 1e6 * row.seconds, f"{row.seconds / timed[0].seconds:.3f}", row.limit)
            for name, row in zip(names, timed, strict=True)
        ]  # fmt: skip
        return table("", COLUMNS, found)

    def failures(self) -> list[str]:
        """Returns a line for each candidate that could not be timed."""
        return [f"{row.name}: {row.limit}" for row in self.rows if row.seconds == float("inf")]

    def document(self) -> dict[str, Any]:
        """Returns a JSON document."""
        return {"title": self.title, "seconds_of_the_host": self.taken, "candidates": [vars(row) for row in self.rows]}


def rank(title: str, candidates: Iterable[tuple[str, Callable[[], Ranked]]]) -> Ranking:
    """Times candidates, given by name, and orders them. One that raises SimError or OSError comes last, with the message."""
    begun, listed, found = time.perf_counter(), list(candidates), []
    with count_progress(len(listed), "candidates") as done:
        for name, timed in listed:
            try:
                found.append(timed())
            except (SimError, OSError) as error:
                reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
                found.append(Ranked(name, float("inf"), " ".join(reason.split())))
            done()
    return Ranking(title, sorted(found, key=lambda row: row.seconds), time.perf_counter() - begun)


def _short(names: Sequence[str], width: int) -> list[str]:
    """Cuts what long names share at their beginnings, and their middles if they are still wider than `width`."""
    low, high = min(names, default=""), max(names, default="")
    shared = next((at for at, (one, other) in enumerate(zip(low, high, strict=False)) if one != other), 0)
    cut, half = low.rfind("_", 0, shared) + 1 if shared >= COMMON else 0, width // 2 - 1
    return [name[cut:] if len(name) - cut <= width else f"{name[cut : cut + half]}..{name[-half:]}" for name in names]
