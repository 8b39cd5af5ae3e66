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
            return decode_source(path.read_bytes()).removesuffix("\n").split("\n")
    return None


def decode_source(data: bytes) -> str:
    """Returns a source's text with the ends of lines of this host; text that is no UTF-8 counts as Latin-1.

    >>> decode_source(b"// \\xa9 1999\\r\\n")
    '// © 1999\\n'
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # as names in comments of older sources are
    return text.replace("\r\n", "\n")
