"""Memory that a launch accesses: an estimate from beginnings of some workgroups, beside a count of all lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simgpu import hardware
from simgpu.hardware.rates.pipelines import pipelines
from simgpu.hardware.timing_rules.issue import Issue, Kind, Unit
from simgpu.timing.caches import first_caches, shares
from simgpu.timing.code import columns
from simgpu.timing.footprint import reach_of
from simgpu.timing.trace import Trace

ROW, CHIP = pipelines("gfx942"), hardware.target("mi300a")
LOAD, STORE = (Issue(Unit.VMEM, Kind.VMEM, lane_bytes=4, counts_vm=True, store=store) for store in (False, True))
CODE = columns({0: (LOAD, 1), 1: (LOAD, 1), 2: (STORE, 1)}, 3, ROW)
ROWS = 16  # of a workgroup; a line of 64 bytes has 16 words
BASES = (0, 1 << 20, 1 << 21)  # of A, B and C, in lines


def product(group: int, wide: int, depth: int, passes: int) -> Trace:
    """Returns a workgroup of a product, cut after some passes: each loads a word of 16 rows of A, and 16 words of a row of B.

    A has `depth` columns, B and C have 16 * `wide`. After all passes the workgroup stores 16 x 16 words of C.
    """
    down, across = divmod(group, wide)
    rows = ROWS * down + np.arange(ROWS)
    steps, counts, lines = [], [], []
    for step in range(passes):
        steps += [0, 1]
        counts += [ROWS, 1]
        lines += [*(BASES[0] + rows * (depth // 16) + step // 16), BASES[1] + step * wide + across]
    if passes == depth:
        steps, counts, lines = [*steps, 2], [*counts, ROWS], [*lines, *(BASES[2] + rows * wide + across)]
    accesses = np.array([(4, first, count) for first, count in zip(np.cumsum([0, *counts[:-1]]), counts, strict=True)], np.int32)
    ends = np.array([0, len(steps)])
    return Trace(np.array(steps, np.uint32), ends, accesses, ends, np.array(lines, np.uint32), passes == depth, group)


def counted(groups: Sequence[Trace]) -> int:
    """Returns the bytes of L2's lines that workgroups access."""
    return ROW.l2_line * len(np.unique(np.concatenate([trace.lines for trace in groups]) // 2))


@pytest.mark.parametrize("wide", [8, 12, 20])
@pytest.mark.parametrize("traced", [8, 12])  # half of them access all of B that an XCD wants
def test_beginnings_show_what_a_product_accesses(wide: int, traced: int) -> None:
    """`traced` rows of workgroups ran an eighth of their passes, one workgroup ran to its end."""
    depth, tall = 256, 24
    whole = [product(group, wide, depth, depth) for group in range(wide * tall)]
    beginnings = [product(group, wide, depth, depth // 8) for group in range(wide * traced)]
    reach = reach_of(len(whole), whole[:1], beginnings, CODE, ROW.l2_line, 1e12, same=False)
    served = first_caches(beginnings, CODE, ROW, 1, [-1] * len(beginnings))
    found = shares(beginnings, served, CODE, CHIP, ROW, 1, True, reach=reach)
    exact = max(counted([one for one in whole if one.group % CHIP.xcds == xcd]) for xcd in range(CHIP.xcds))
    assert found.of_an_xcd == pytest.approx(exact, rel=0.12)


def test_no_launch_accesses_more_than_its_buffers() -> None:
    beginnings = [product(group, 4, 64, 8) for group in range(4)]
    reach = reach_of(1000, [product(0, 4, 64, 64)], beginnings, CODE, ROW.l2_line, 12345.0, same=False)
    found = shares(beginnings, first_caches(beginnings, CODE, ROW, 1, [-1] * 4), CODE, CHIP, ROW, 1, True, reach=reach)
    assert found.of_an_xcd == 12345
