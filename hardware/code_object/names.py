"""Names from files, made safe to print: a kernel's name could contain control sequences of a terminal.

Every name in a code object passes through `printable` when it is read: of kernels, arguments, symbols, types, source files
and targets.
"""

from __future__ import annotations

import re
from typing import Any

from simgpu.hardware.errors import DecodeError

TEXT_LIMIT = 1 << 16  # characters: the longest mangled names (Composable Kernel) have some 20,000
SHOWN = 200  # characters of a name in a message


def printable(text: str) -> str:
    r"""Returns the text with control characters, direction marks and backslashes written as Python does: \x1b, \u202e, \\.

    Different texts stay different; `original` is the inverse. Raises DecodeError for more than TEXT_LIMIT characters.
    """
    if len(text) > TEXT_LIMIT:
        raise DecodeError(f"a name of {len(text)} characters, the limit is {TEXT_LIMIT}: {printable_name(text)}")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)


def original(text: str) -> str:
    """Returns the text that `printable` was given."""
    return re.sub(r"\\(?:[\\nrt]|x..|u.{4}|U.{8})", lambda escape: escape.group().encode().decode("unicode_escape"), text)


def printable_name(text: str) -> str:
    """Returns a name for a message: printable, and cut if it is long."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
    return cut if cut.isprintable() else printable(cut)


def all_printable(value: Any) -> Any:
    """Returns a decoded document with every text in it printable; changes maps and lists in place."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        value[:] = map(all_printable, value)
    elif isinstance(value, dict):
        entries = [(all_printable(key), all_printable(entry)) for key, entry in value.items()]
        value.clear()
        value.update(entries)
    return value
