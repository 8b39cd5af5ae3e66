"""Source files that lines of code come from, if they are on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[2]  # the folder of hardware, asm, ...: names of emitters' lines start below it


def source_lines(name: str, folders: Sequence[Path]) -> list[str] | None:
    """Returns the lines of a source file: in one of the folders, in this one, or of this package. None if there is no such file."""
    for folder in (*folders, Path(), PACKAGE / "asm", PACKAGE):
        path = folder / name
        if name and path.is_file():
            return path.read_text("utf-8", errors="replace").splitlines()
    return None
