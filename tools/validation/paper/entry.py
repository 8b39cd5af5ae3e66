"""One number of the paper: as it prints it, as each policy gives it, and the erratum where they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Quoted:
    """What the paper prints and none of its formulas gives; it is marked where it is shown."""

    text: str

    def __str__(self) -> str:
        return f"{self.text} (quoted)"


@dataclass(frozen=True)
class PaperNumber:
    """One number. A cell that is no `Quoted` is computed from the givens, the descriptors and the plans; an empty one has no
    counterpart."""

    section: str
    what: str
    paper: str  # as the paper prints it: all of this column is quoted
    published: str | Quoted
    corrected: str | Quoted
    errata: str = ""  # their ids
    why: str = ""  # they differ, in a clause

    def document(self) -> dict[str, object]:
        """The entry as JSON: its texts as they are shown, and the names of the quoted cells."""
        shown = {name: str(value) for name, value in vars(self).items()}
        return {**shown, "quoted": ["paper", *(name for name, value in vars(self).items() if isinstance(value, Quoted))]}


def pair(texts: Iterable[str]) -> tuple[str, str]:
    """The published and the corrected cell."""
    published, corrected = texts
    return published, corrected


def product(*sides: int) -> str:
    """The sides of a tile, as "128 x 128"."""
    return " x ".join(map(str, sides))
