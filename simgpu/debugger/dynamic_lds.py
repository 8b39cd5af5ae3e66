"""Dynamic LDS by name: `extern __shared__ float s[]`. Debug information has no entry for it, so its source is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simgpu.debugger.objects import Object, ObjectMemory
from simgpu.hardware.code_object.types import DwarfType

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

_NO_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
_ARRAY = re.compile(r"\bextern\b([^;{}]*?\b__shared__\b[^;{}]*?)\b(\w+)\s*\[\s*\]\s*;")
_MACRO = re.compile(r"\bHIP_DYNAMIC_SHARED\s*\(([^;{}]*),\s*(\w+)\s*\)")
_QUALIFIERS = re.compile(
    r"\b(?:__shared__|volatile|const|(?:alignas|__align__)\s*\([^)]*\))|__attribute__\s*\(\(.*?\)\)+|\bstd::|\b(\w+)_t\b", re.DOTALL
)
_KINDS = {
    "float": "f32", "double": "f64", "_Float16": "f16", "__half": "f16", "half": "f16", "__bf16": "bf16",
    "bool": "u8", "char": "i8", "signed char": "i8", "unsigned char": "u8", "uchar": "u8",
    "short": "i16", "unsigned short": "u16", "ushort": "u16", "int": "i32", "unsigned int": "u32", "unsigned": "u32", "uint": "u32",
    "long": "i64", "long long": "i64", "long long int": "i64", "long int": "i64", "size": "u64",
    "unsigned long": "u64", "unsigned long long": "u64", "unsigned long long int": "u64", "ulong": "u64",
    **{f"{sign}int{bits}": f"{sign or 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


class Declared(NamedTuple):
    """A declaration of dynamic LDS in a source file."""

    name: str
    kind: str  # such as f32; "" for a type that is no number
    first: int  # line of the declaration
    last: int  # last line of the block that has it


def declarations(text: str) -> list[Declared]:
    """Returns the declarations of dynamic LDS in a HIP source.

    >>> declarations("__global__ void k() {\\n  extern __shared__ float s[];\\n}\\n")
    [Declared(name='s', kind='f32', first=2, last=3)]
    """
    code = _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    matches = sorted([*_ARRAY.finditer(code), *_MACRO.finditer(code)], key=lambda found: found.start())
    found = []
    for match in matches:
        words = " ".join(_QUALIFIERS.sub(lambda one: one[1] or " ", match[1]).split())
        lines = [code.count("\n", 0, at) + 1 for at in (match.start(2), _end_of_block(code, match.end()))]
        found.append(Declared(match[2], _KINDS.get(words, ""), *lines))
    return found


def dynamic_arrays(debugger: Debugger, address: int, wave: int) -> Iterator[Object]:
    """Yields the arrays of dynamic LDS in scope at a virtual address. They begin after the static LDS and overlap.

    An array whose elements are no numbers has words of 32 bits.
    """
    first, size = debugger.kernel.info.group_segment_size, debugger.geometry.dynamic_lds
    if not size:
        return
    for frame in debugger.kernel.module.code.debug.frames(address):
        for each in reversed(declarations("\n".join(debugger.sources(frame.line.file) or ()))):
            if each.first <= frame.line.line <= each.last:
                kind = each.kind or "u32"
                element = DwarfType(kind, int(re.sub(r"\D", "", kind)) // 8)
                start = first + -first % element.size
                count = max(0, first + size - start) // element.size
                yield Object(each.name, element.array(count), ObjectMemory(debugger, wave, "lds", np.array([start])))


def _end_of_block(code: str, at: int) -> int:
    """Returns the position of the brace that closes the block at a position, or the end of the code."""
    depth = 0
    for brace in re.finditer(r"[{}]", code[at:]):
        depth += 1 if brace[0] == "{" else -1
        if depth < 0:
            return at + brace.start()
    return len(code)
