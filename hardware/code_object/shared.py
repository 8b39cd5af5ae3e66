"""Offsets of a kernel's variables in LDS. LLVM writes none to debug information, so its layout is computed again.

LLVM's pass AMDGPULowerModuleLDS raises alignments by size, sorts variables by name, and lays them out as `OptimizedStructLayout`
does. It leaves out variables that optimization removed. The sum of the others is known: the kernel's size of LDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

MOST_VARIABLES = 14  # of a kernel whose layout is searched
ALIGNMENTS = ((8, 16), (4, 8), (2, 4), (1, 2))  # a variable of more bytes than the first has at least the second alignment


class Shared(NamedTuple):
    """A variable in LDS."""

    symbol: str  # LLVM's name
    size: int  # bytes
    alignment: int  # of its type


def offsets(variables: Sequence[Shared], total: int) -> list[int | None]:
    """Returns each variable's offset in a kernel with `total` bytes of static LDS.

    It is None for a variable that the kernel lacks, and for one whose offset differs between layouts of that size.

    >>> offsets([Shared("a", 4, 4), Shared("t", 256, 4), Shared("unused", 1024, 4)], 260)
    [256, 0, None]
    """
    if len(variables) > MOST_VARIABLES:
        return [None] * len(variables)
    for count in range(len(variables), 0, -1):
        fitting = []
        for chosen in combinations(range(len(variables)), count):
            placed, size = _layout([variables[index] for index in chosen])
            if size == total:
                fitting.append(dict(zip(chosen, placed, strict=True)))
        if fitting:
            every = ({layout.get(index) for layout in fitting} for index in range(len(variables)))
            return [found.pop() if len(found) == 1 else None for found in every]
    return [None] * len(variables)


def _layout(variables: Sequence[Shared]) -> tuple[list[int], int]:
    """Returns the offsets, and the size of all, which is a multiple of the largest alignment of their types."""
    aligned = [max(each.alignment, next((least for above, least in ALIGNMENTS if each.size > above), 1)) for each in variables]
    by_name = sorted(range(len(variables)), key=lambda index: variables[index].symbol)
    left = sorted(by_name, key=lambda index: (-aligned[index], -variables[index].size))
    placed, end = [0] * len(variables), 0
    while left:
        # The first that needs the least padding: none, if one fits here.
        index = min(left, key=lambda each: (-end % aligned[each], left.index(each)))
        placed[index] = end + -end % aligned[index]
        end = placed[index] + variables[index].size
        left.remove(index)
    return placed, end + -end % max((each.alignment for each in variables), default=1)
