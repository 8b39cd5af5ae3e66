"""C's printf on the 64-bit words that a kernel sends: formats `%d`, `%#lo`, `%8.3f`, `%a`, `%s` and so on like glibc.

A number is one word, floats as doubles. A string is its bytes and a zero, padded to whole words (ROCm's clr, devhcprintf.cpp).
Combinations that C leaves undefined, such as `%#d`, print as in glibc.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from simgpu.hardware.errors import HostCallError

_SPEC = re.compile(
    rb"%(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?P<precision>\.(?:\*|\d*))?(?P<length>hh|h|ll|l|j|z|t|L)?(?P<kind>[a-zA-Z%])"
)
_BITS = {b"hh": 8, b"h": 16, b"": 32}  # bits of an integer; all other lengths are 64
FIELD_LIMIT = 1 << 16  # characters that a width or a precision may request
TEXT_LIMIT = 1 << 20  # bytes of one message's text


class _Words:
    """Reads the words of a message in order."""

    def __init__(self, words: Sequence[int]) -> None:
        self._raw = struct.pack(f"<{len(words)}Q", *words)
        self._at = 0

    @property
    def has_more(self) -> bool:
        return self._at < len(self._raw)

    def number(self) -> int:
        (word,) = struct.unpack_from("<Q", self._raw, self._at)
        self._at += 8
        return int(word)

    def string(self) -> bytes:
        end = self._raw.find(b"\0", self._at)
        end = len(self._raw) if end < 0 else end
        text = self._raw[self._at : end]
        self._at = (end // 8 + 1) * 8
        return text


@dataclass(frozen=True)
class _Layout:
    """Flags, width and precision of a conversion."""

    flags: frozenset[str]
    width: int
    precision: int | None  # None if it has none

    def pad(self, text: bytes) -> bytes:
        """Pads with blanks to the width."""
        return text.ljust(self.width) if "-" in self.flags else text.rjust(self.width)

    def number(self, sign: str, prefix: str, digits: str, zeros: bool) -> bytes:
        """Returns a padded number from its parts. zeros: True if flag 0 may pad with zeros after the prefix."""
        front = sign + prefix
        if zeros and "0" in self.flags and "-" not in self.flags:
            digits = digits.rjust(self.width - len(front), "0")
        return self.pad((front + digits).encode())

    def sign(self, negative: bool) -> str:
        """Returns the sign of a signed conversion."""
        return "-" if negative else "+" if "+" in self.flags else " " if " " in self.flags else ""


def format_message(words: Sequence[int]) -> str:
    """Returns a message's text from its format string and arguments. The text ends where arguments are missing.

    Raises HostCallError for a width, a precision or a text past its limit.
    """
    rest = _Words(words)
    text = rest.string() if rest.has_more else b""
    done = bytearray()
    at = 0
    for spec in _SPEC.finditer(text):
        done += text[at : spec.start()]
        at = spec.end()
        shown = b"%" if spec["kind"] == b"%" else _convert(spec, rest)
        if shown is None:
            return done.decode(errors="replace")
        done += shown
        if len(done) > TEXT_LIMIT:
            raise HostCallError(f"printf: a text of more than {TEXT_LIMIT:,} bytes")
    return (done + text[at:]).decode(errors="replace")


def _extent(name: str, value: int) -> int:
    if value > FIELD_LIMIT:
        raise HostCallError(f"printf: a {name} of {value:,}; the limit is {FIELD_LIMIT:,}")
    return value


def _layout(spec: re.Match[bytes], rest: _Words) -> _Layout | None:
    """Returns flags, width and precision of a conversion; None if the argument of a `*` is missing."""
    flags = set(spec["flags"].decode())
    found: list[int | None] = []
    for given in (spec["width"], spec["precision"]):
        digits = given.removeprefix(b".") if given else b""
        if digits == b"*":
            if not rest.has_more:
                return None
            found.append(_sign_extend(rest.number(), 32))
        elif len(digits) > 19:
            raise HostCallError(f"printf: an extent of {len(digits)} digits; the limit is {FIELD_LIMIT:,}")
        else:
            found.append(int(digits or b"0") if given is not None else None)
    width, precision = found
    if width is not None and width < 0:
        flags.add("-")
    precision = None if precision is None or precision < 0 else _extent("precision", precision)
    return _Layout(frozenset(flags), _extent("width", abs(width or 0)), precision)


def _convert(spec: re.Match[bytes], rest: _Words) -> bytes | None:
    """Returns the text of one conversion, None if its argument is missing."""
    layout = _layout(spec, rest)
    if layout is None or not rest.has_more:
        return None
    kind = spec["kind"].decode()
    if kind == "s":
        return layout.pad(rest.string()[: layout.precision])
    word = rest.number()
    if kind in "eEfFgGaA":
        (value,) = struct.unpack("<d", struct.pack("<Q", word))
        return _real(layout, kind, value)
    if kind == "p":
        if not word:
            return layout.pad(b"(nil)")
        return _integer(layout, "x", word, layout.sign(False), "0x")
    if kind == "c":
        return layout.pad(bytes([word & 0xFF]))
    bits = _BITS.get(spec["length"] or b"", 64)
    if kind in "di":
        value = _sign_extend(word, bits)
        return _integer(layout, "d", abs(value), layout.sign(value < 0))
    if kind in "uxXo":
        value = word & (1 << bits) - 1
        prefix = f"0{kind}" if kind in "xX" and "#" in layout.flags and value else ""
        return _integer(layout, "d" if kind == "u" else kind, value, "", prefix)
    return spec.group()  # not a conversion of C


def _integer(layout: _Layout, base: str, value: int, sign: str, prefix: str = "") -> bytes:
    """Returns digits to the precision: none for 0 with precision 0, and a leading 0 for `%#o`."""
    digits = "" if not value and layout.precision == 0 else format(value, base)
    digits = digits.rjust(layout.precision or 0, "0")
    if base == "o" and "#" in layout.flags and not digits.startswith("0"):
        digits = "0" + digits
    return layout.number(sign, prefix, digits, layout.precision is None)


def _real(layout: _Layout, kind: str, value: float) -> bytes:
    sign = layout.sign(math.copysign(1, value) < 0)
    magnitude = abs(value)
    upper = kind.isupper()
    if not math.isfinite(magnitude):
        name = "nan" if math.isnan(magnitude) else "inf"
        return layout.number(sign, "", name.upper() if upper else name, False)
    if kind in "aA":
        digits = _hexadecimal(magnitude, layout.precision, "#" in layout.flags)
        return layout.number(sign, "0X" if upper else "0x", digits.upper() if upper else digits, True)
    precision = 6 if layout.precision is None else layout.precision
    alternative = "#" if "#" in layout.flags else ""
    return layout.number(sign, "", f"%{alternative}.{precision}{kind}" % magnitude, True)


def _hexadecimal(value: float, precision: int | None, point: bool) -> str:
    """Returns a nonnegative double as `%a` shows it, after its 0x: at most 13 digits, rounded to nearest even."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    exponent, fraction = bits >> 52, bits & (1 << 52) - 1
    whole = int(exponent != 0)  # subnormal numbers begin with 0, like in glibc
    power = exponent - 1023 if exponent else -1022 if fraction else 0
    if precision is None:
        digits = f"{fraction:013x}".rstrip("0")
    else:
        cut = 4 * max(0, 13 - precision)
        mantissa = whole << 52 | fraction
        kept, lost, half = mantissa >> cut, mantissa & (1 << cut) - 1, 1 << cut >> 1
        kept += cut > 0 and (lost > half or (lost == half and bool(kept & 1)))
        whole, fraction = kept >> 52 - cut, kept << cut & (1 << 52) - 1
        digits = f"{fraction:013x}"[:precision].ljust(precision, "0")
    return f"{whole}{'.' if digits or point else ''}{digits}p{power:+d}"


def _sign_extend(word: int, bits: int) -> int:
    value = word & (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value
