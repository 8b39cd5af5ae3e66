"""C++ names as users write them: `_Z4axpyfPKfPf` is axpy(float, float const*, float*), and `--kernel axpy` selects it."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Iterable
from functools import cache

SHOWN = 160  # characters of a name; a longer one is abbreviated


@cache
def readable(name: str) -> str:
    """Returns the demangled name, abbreviated if it is longer than SHOWN characters.

    Without a C++ library that demangles, only the identifiers remain: ns::scale of _ZN2ns5scaleEPf.
    """
    return abbreviate(demangle(name))


@cache
def demangle(name: str) -> str:
    """Returns the demangled name in full; a name that is not mangled is returned unchanged."""
    if not name.startswith("_Z"):
        return name
    return _by_library(name.partition(".")[0]) or _identifiers(name)


def abbreviate(name: str) -> str:
    """Returns a name of about SHOWN characters: template arguments become `<…>`, then parameters `(…)`, then its end is cut.

    >>> abbreviate("sort<" + "std::pair<int, float>, " * 8 + "int>(int*)")
    'sort<…>(int*)'
    """
    if len(name) <= SHOWN:
        return name
    short = _collapse(name, "<", ">")
    if len(short) > SHOWN:
        short = _collapse(short, "(", ")")
    return short if len(short) <= SHOWN else f"{short[:SHOWN]}…"


def without_parameters(name: str) -> str:
    """Returns a name without result `void`, parameters, and blanks other than between words.

    >>> without_parameters("void sort<unsigned long, float>(unsigned long*, int)")
    'sort<unsigned long,float>'
    """
    text = name.removeprefix("void ")
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == "(" and not depth and not text.startswith("(anonymous namespace)", at):
            text = text[:at]
            break
    return re.sub(r"(?<!\w) | (?!\w)", "", " ".join(text.split()))


def parameter_types(name: str) -> tuple[str, ...]:
    """Returns the types of a C++ function's parameters, by its mangled name; () for a name of C, which has none.

    >>> parameter_types("_Z5scalePKfPffi")
    ('float const*', 'float*', 'float', 'int')
    """
    whole = demangle(name)
    start = len(whole) if not whole.endswith(")") else _opening(whole)
    found, depth, begun = [], 0, start + 1
    for at in range(start + 1, len(whole)):
        character = whole[at]
        if not depth and character in ",)":
            found.append(whole[begun:at].strip())
            begun = at + 1
        depth += (character in "<([") - (character in ">)]")
    return tuple(type_ for type_ in found if type_ and type_ != "void")


def _opening(whole: str) -> int:
    """Returns the index of the parenthesis that the last character closes; the length if there is none."""
    depth = 0
    for at in range(len(whole) - 1, -1, -1):
        depth += (whole[at] == ")") - (whole[at] == "(")
        if not depth:
            return at
    return len(whole)


def kernels_by_name(kernels: Iterable[str], wanted: str) -> list[str]:
    """Returns the mangled names of the kernels that `wanted` selects.

    wanted: a mangled name, a full C++ name, or one without parameters, without template arguments or without
    namespaces (see `spellings`). The most exact of these forms that matches any kernel is used.

    >>> kernels_by_name(["_Z4axpyfPKfPf", "_Z5scaleIfEvPT_"], "scale")
    ['_Z5scaleIfEvPT_']
    """
    names = list(kernels)
    if wanted in names:
        return [wanted]
    forms = [spellings(name) for name in names]
    for reading in range(len(spellings(""))):
        found = [name for name, of_name in zip(names, forms, strict=True) if of_name[reading] == "".join(wanted.split())]
        if found:
            return found
    return []


def spellings(name: str) -> tuple[str, ...]:
    """Returns four spellings of a kernel's C++ name, without blanks: full, and successively without parameters, template
    arguments and namespaces."""
    whole = demangle(name).removeprefix("void ")
    short = without_parameters(whole)
    bare = _collapse(short, "<", ">").replace("<…>", "")
    return tuple("".join(each.split()) for each in (whole, short, bare, bare.rpartition("::")[2]))


def _collapse(name: str, opening: str, closing: str) -> str:
    """Returns the name with `…` in place of the content of each outermost pair of brackets."""
    made, depth = [], 0
    for character in name:
        depth -= character == closing and depth > 0
        if not depth:
            made.append(character)
        if character == opening:
            made += "…" * (not depth)
            depth += 1
    return "".join(made)


@cache
def _library() -> ctypes.CDLL | None:
    for found in ("libstdc++.so.6", "libc++abi.so.1", ctypes.util.find_library("stdc++")):
        try:
            return ctypes.CDLL(found) if found else None
        except OSError:
            continue
    return None


def _by_library(name: str) -> str | None:
    """Returns the result of the C++ library's `__cxa_demangle`; None if it fails or there is no library."""
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


def _identifiers(name: str) -> str:
    """Returns the identifiers of a mangled name: ns::scale of _ZN2ns5scaleEPf."""
    parts, at = [], len("_Z")
    while match := re.match(r"[NKL]*(\d+)", name[at:]):
        start = at + match.end()
        at = start + int(match[1])
        parts.append(name[start:at])
    return "::".join(parts) or name
