"""Names that files bring, as text that can be printed: no terminal takes a kernel's name for an order.

Every name of a code object passes `printable` where it enters: of kernels, arguments, symbols, types, source files, targets.
"""

from __future__ import annotations

import re
from typing import Any

from simgpu.hardware.errors import DecodeError

TEXT_LIMIT = 1 << 16  # characters: the longest mangled names (Composable Kernel) have some 20,000
SHOWN = 200  # characters of a name in a message


def printable(text: str) -> str:
    r"""The text with control characters, what turns its direction, and backslashes written as Python does: \x1b, \u202e, \\.

    No two texts become one; `original` is the way back. Raises DecodeError for more than TEXT_LIMIT characters.
    """
    if len(text) > TEXT_LIMIT:
        raise DecodeError(f"a name of {len(text)} characters, the limit is {TEXT_LIMIT}: {shown(text)}")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(c if c.isprintable() and c != "\\" else c.encode("unicode_escape").decode() for c in text)


def original(text: str) -> str:
    """What `printable` was given."""
    return re.sub(r"\\(?:[\\nrt]|x..|u.{4}|U.{8})", lambda escape: escape.group().encode().decode("unicode_escape"), text)


def shown(text: str) -> str:
    """A name for a message: printable, and cut where it is long."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
    return cut if cut.isprintable() else printable(cut)


def all_printable(value: Any) -> Any:
    """A decoded document with every text in it printable; maps and lists are changed in place."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        value[:] = map(all_printable, value)
    elif isinstance(value, dict):
        entries = [(all_printable(key), all_printable(entry)) for key, entry in value.items()]
        value.clear()
        value.update(entries)
    return value
