"""Clocks of the vector cache for the loads that stage a halo, in closed form: `asm.conv2d.staging` without its places.

The address coalescer takes groups of lanes, as `gemm.loads` says: 16 lanes of a dword or less, 4 lanes of more. Neighbours in
64 bytes pass in a clock, and neighbours without gaps in a clock for each line of the vector cache. All others take four clocks for
each dword that meets another in its bank, of 16, and at most a clock a lane (te42kyfo/gpu-benches, gpu-strides).
"""

from __future__ import annotations

from math import gcd

from simgpu.operators.gemm.loads import LINE, lines_of

_WORD, _BANKS = 4, 16  # bytes of a bank of the coalescer, and their number
_FAR = 7  # lines of a group that take a clock each; more pass with them


def lane_clocks(size: int, apart: int, run: int, step: int, line: int) -> float:
    """Returns the average clocks of a lane that loads `size` bytes, `apart` bytes after its neighbour.

    run: lanes after which a row of the halo ends. step: bytes of which a row's begin is a multiple. line: bytes of a line of the
    vector cache.

    A third of the groups of 16 lanes is in two rows of 24, and takes 8 clocks:

    >>> round(16 * lane_clocks(4, 4, 24, 64, 64), 2)
    3.33
    """
    lanes = 16 if size <= _WORD else 4
    within = _within(lanes, size, apart, gcd(step, LINE)) if apart != size else float(lines_of(lanes * size, gcd(step, line), line))
    cut = min(1.0, (lanes - gcd(lanes, run)) / run)
    return (cut * _conflict(lanes, size, apart, run, gcd(step, LINE)) + (1 - cut) * within) / lanes


def _within(lanes: int, size: int, apart: int, step: int) -> float:
    """Returns the clocks of a group in one row, with gaps between its lanes."""
    lines = float(lines_of(lanes * apart, step, LINE))
    alone = max(0.0, 2 - lines)  # share of groups in one line
    return alone + (1 - alone) * _conflict(lanes, size, apart, lanes, step)


def _conflict(lanes: int, size: int, apart: int, run: int, step: int) -> float:
    """Returns the clocks of a group with gaps, or of several rows of `run` lanes."""
    words, together = max(apart, _WORD) // _WORD, min(run, lanes)
    deepest: float = -(-min(together, together * apart // _WORD or 1) // (_BANKS // gcd(words, _BANKS)))
    if run < lanes:  # rows begin in different banks, as far as their distance allows
        deepest *= max(1.5, lanes / run * max(step, _WORD) / LINE)
    elif apart == size:
        deepest += size / _WORD
    return min(lanes, max(min(_FAR, lanes * apart / LINE), 4 * max(1, deepest)))
