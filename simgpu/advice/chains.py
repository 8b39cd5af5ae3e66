"""Finds loads whose address depends on their own earlier result: nothing can be loaded ahead of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effects import effect_of

MOST_STEPS = 20_000  # of a wave that are followed
LANES = frozenset({"exec"})  # which lanes work is no part of an address


def chained_loads(
    loads: Iterable[int], steps: np.ndarray, instructions: Mapping[int, Instruction], batches: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    """Returns those of `loads` whose next execution needs the result of this one.

    steps: numbers of the instructions that a wave executes, in order; batches: the loads that are issued together with each load,
    whose results count as its own.

    >>> from simgpu.hardware.isa import decode
    >>> follow = decode(bytes.fromhex("008050dc00000200"), 0, "gfx942")   # global_load_dword v0, v0, s[2:3]
    >>> chained_loads([0], np.array([0, 0]), {0: follow}, {0: frozenset({0})})
    frozenset({0})
    """
    followed = steps[:MOST_STEPS].tolist()
    known = {number: effect_of(instructions[number]).access for number in set(followed)}
    found = set()
    for load in loads:
        tainted: set[object] = set()
        for number in followed:
            use = known[number]
            hit = not tainted.isdisjoint(use.read() - LANES)
            if number == load and hit:
                found.add(load)
                break
            if hit or number in batches[load]:
                tainted |= use.writes
            else:
                tainted -= use.writes
    return frozenset(found)
