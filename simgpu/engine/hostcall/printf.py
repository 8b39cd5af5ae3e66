"""C's printf on the 64-bit words that a kernel sends: what `%d`, `%lu`, `%8.3f`, `%s` and so on make of them.

A number is one word, floats as doubles; a string is its bytes and a zero, filled up to whole words (ROCm's
clr, devhcprintf.cpp).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

_SPEC = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>[a-zA-Z%])"
)
_BITS = {"hh": 8, "h": 16, None: 32}  # of an integer; all other lengths are 64


class _Words:
    """The words of a message, taken one after the other; nothing more after the last."""

    def __init__(self, words: Sequence[int]) -> None:
        self._raw = struct.pack(f"<{len(words)}Q", *words)
        self._at = 0

    @property
    def left(self) -> bool:
        return self._at < len(self._raw)

    def number(self) -> int:
        (word,) = struct.unpack_from("<Q", self._raw, self._at)
        self._at += 8
        return int(word)

    def string(self) -> str:
        end = self._raw.find(b"\0", self._at)
        end = len(self._raw) if end < 0 else end
        text = self._raw[self._at : end].decode(errors="replace")
        self._at = (end // 8 + 1) * 8
        return text


def formatted(words: Sequence[int]) -> str:
    """A message's text: its format string, then the arguments; the text ends where arguments are missing."""
    rest = _Words(words)
    text = rest.string() if rest.left else ""
    done, at = [], 0
    for spec in _SPEC.finditer(text):
        done.append(text[at : spec.start()])
        at = spec.end()
        if spec["kind"] == "%":
            done.append("%")
            continue
        shown = _converted(spec, rest)
        if shown is None:
            return "".join(done)
        done.append(shown)
    return "".join(done) + text[at:]


def _converted(spec: re.Match[str], rest: _Words) -> str | None:
    """One conversion, None without a word for it. Python's `%` lays out as C's printf does."""
    layout = "%" + spec["flags"]
    for part, sign in ((spec["width"], ""), (spec["precision"] or "", ".")):
        if part.endswith("*"):
            if not rest.left:
                return None
            given = _signed(rest.number(), 32)
            layout += f"{sign}{given}" if given >= 0 or not sign else ""
        else:
            layout += part
    if not rest.left:
        return None
    kind = spec["kind"]
    if kind == "s":
        return f"{layout}s" % rest.string()
    word = rest.number()
    if kind in "eEfFgG":
        return f"{layout}{kind}" % struct.unpack("<d", struct.pack("<Q", word))
    if kind in "aA":
        (value,) = struct.unpack("<d", struct.pack("<Q", word))
        return value.hex().upper() if kind == "A" else value.hex()
    if kind == "p":
        return f"{layout}s" % (f"{word:#x}" if word else "(nil)")
    if kind == "c":
        return f"{layout}c" % (word & 0xFF)
    bits = _BITS.get(spec["length"], 64)
    if kind in "di":
        return f"{layout}d" % _signed(word, bits)
    if kind in "uxXo":
        return f"{layout}{'d' if kind == 'u' else kind}" % (word & (1 << bits) - 1)
    return spec.group()  # no conversion of C's


def _signed(word: int, bits: int) -> int:
    value = word & (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value
