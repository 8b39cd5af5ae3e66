"""A number of the paper: as printed, by each policy, and the erratum if they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class QuotedFigure:
    """A value that the paper prints without a formula for it; it is marked in the output."""

    text: str

    def __str__(self) -> str:
        return f"{self.text} (quoted)"


@dataclass(frozen=True)
class PaperNumber:
    """A number of the paper. A cell that is no `QuotedFigure` is computed from the givens, the descriptors and the plans; an empty
    one has no counterpart."""

    section: str
    what: str
    paper: str  # as the paper prints it: all of this column is quoted
    published: str | QuotedFigure
    corrected: str | QuotedFigure
    errata: str = ""  # ids of errata
    why: str = ""  # why the cells differ, in a clause

    def document(self) -> dict[str, object]:
        """Returns the entry as JSON: its texts, and the names of the quoted cells."""
        shown = {name: str(value) for name, value in vars(self).items()}
        return {**shown, "quoted": ["paper", *(name for name, value in vars(self).items() if isinstance(value, QuotedFigure))]}


def pair(texts: Iterable[str]) -> tuple[str, str]:
    """Returns the published and the corrected cell."""
    published, corrected = texts
    return published, corrected


def product(*sides: int) -> str:
    """Formats the sides of a tile, such as "128 x 128"."""
    return " x ".join(map(str, sides))
