"""Kernel compiled twice, by two compilers or options: which instructions of the two belong together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

MOST = 3000  # instructions beyond which rare ones decide the alignment: all pairs would take too long
Pair = tuple[int, int]  # rows here and there; -1: there is none


def pairs(mine: Sequence[str], other: Sequence[str]) -> list[Pair]:
    """Returns rows of two listings side by side: equal instructions first, then equal mnemonics between them.

    >>> pairs(["s_nop 0", "v_mov_b32 v1, v0", "s_endpgm"], ["v_mov_b32 v2, v0", "s_endpgm"])
    [(0, -1), (1, 0), (2, 1)]
    """
    made: list[Pair] = []
    for kind, low, high, first, last in _blocks(mine, other):
        if kind == "equal":
            made += zip(range(low, high), range(first, last), strict=True)
            continue
        names = [text.partition(" ")[0] for text in mine[low:high]]
        others = [text.partition(" ")[0] for text in other[first:last]]
        for inner, a, b, c, d in _blocks(names, others):
            if inner == "equal":
                made += zip(range(low + a, low + b), range(first + c, first + d), strict=True)
            else:
                made += [(at, -1) for at in range(low + a, low + b)] + [(-1, at) for at in range(first + c, first + d)]
    return made


def _blocks(mine: Sequence[str], other: Sequence[str]) -> Iterator[tuple[str, int, int, int, int]]:
    yield from SequenceMatcher(None, mine, other, autojunk=max(len(mine), len(other)) > MOST).get_opcodes()
