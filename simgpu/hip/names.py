"""Names of C++ as users write them: `_Z4axpyfPKfPf` is axpy(float, float const*, float*)."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Sequence
from functools import cache

from simgpu.hardware.code_object.code_object import CodeObject

SHOWN = 160  # characters of a name
USE = "__simgpu_use_"  # variables that a source is given, so that what it names is compiled


@cache
def readable(name: str) -> str:
    """The name as written in C++, cut where it is long; without a library that demangles, its last part alone."""
    if not name.startswith("_Z"):
        return name
    full = _by_library(name.partition(".")[0]) or _last_part(name)
    return full if len(full) <= SHOWN else f"{full[:SHOWN]}…"


@cache
def _library() -> ctypes.CDLL | None:
    for found in ("libstdc++.so.6", "libc++abi.so.1", ctypes.util.find_library("stdc++")):
        try:
            return ctypes.CDLL(found) if found else None
        except OSError:
            continue
    return None


def _by_library(name: str) -> str | None:
    """What `__cxa_demangle` of the C++ library makes of it."""
    library = _library()
    if library is None:
        return None
    demangle = library.__cxa_demangle
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    status = ctypes.c_int()
    made = demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not made:
        return None
    text = ctypes.string_at(made).decode(errors="replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(made)
    return text


def _last_part(name: str) -> str:
    """The innermost identifier: scale of _ZN2ns5scaleEPf."""
    parts, at = [], len("_Z")
    while match := re.match(r"[NKL]*(\d+)", name[at:]):
        start = at + match.end()
        at = start + int(match[1])
        parts.append(name[start:at])
    return "::".join(parts) or name


def lowered_names(code: bytes, expressions: Sequence[str]) -> list[str]:
    """The names in a code object of kernels and variables as the source writes them; "" for one that is not there.

    Where there is a variable `USE` with an expression's number, its value is the address of what the expression names.
    """
    loaded = CodeObject.parse(code)
    found = {_written(readable(name)): name for name in (*loaded.symbols, *loaded.kernels)}
    image, base = loaded.image()
    at = {symbol.address: name for name, symbol in loaded.symbols.items()}
    names = []
    for index, expression in enumerate(expressions):
        use = loaded.symbols.get(f"{USE}{index}")
        if use is None:
            names.append(found.get(_written(expression.lstrip("&")), ""))
        else:
            names.append(at.get(int.from_bytes(image[use.address - base :][:8], "little"), ""))
    return names


def _written(name: str) -> str:
    """A name without its result, its parameters and its blanks."""
    text = name.removeprefix("void ")
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and not depth:
            text = text[:at]
            break
    return "".join(text.split())
