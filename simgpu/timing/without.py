"""Switches causes of waiting off, instruction by instruction, so that the model answers what a launch would take without them.

`Mechanisms` switches off parts of the model for the whole launch; this is about single instructions of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.rates.pipelines import Pipelines
from simgpu.hardware.timing_rules.issue import Kind, Unit
from simgpu.timing.caches import ServedAccesses, Shares
from simgpu.timing.code import CodeColumns
from simgpu.timing.native.state import AHEAD, COUNTS_LGKM, INSTANT
from simgpu.timing.native.streams import LEAST_CLOCKS, LEAST_LINES
from simgpu.timing.trace import LINE_BYTES, Trace

CLOCKS, REQUESTS, MISSED = range(3)  # columns of `ServedAccesses.accesses`
Numbers = frozenset[int]  # of instructions, see `CodeColumns`


@dataclass(frozen=True)
class Without:
    """Causes that the model leaves out.

    >>> Without(removed=frozenset({3})) == NOTHING
    False
    """

    instant: Numbers = frozenset()  # loads whose results arrive at once; their bytes still take bandwidth
    ahead: Numbers = frozenset()  # loads that a wave issued one pass earlier, so that they arrive when the pass before's did
    smooth: Numbers = frozenset()  # accesses without LDS bank conflicts, or of the fewest cache lines
    scalar: Numbers = frozenset()  # vector loads that scalar loads replace
    removed: Numbers = frozenset()  # instructions that take no time
    groups: int = 0  # workgroups that a CU holds in addition

    def __or__(self, other: Without) -> Without:
        """Returns both together."""
        sets = {name: getattr(self, name) | getattr(other, name) for name in ("instant", "ahead", "smooth", "scalar", "removed")}
        return Without(**sets, groups=self.groups + other.groups)

    @property
    def numbers(self) -> Numbers:
        """All instructions that it concerns."""
        return self.instant | self.ahead | self.smooth | self.scalar | self.removed

    def columns(self, code: CodeColumns) -> CodeColumns:
        """Returns the code with flags of its loads, and removed instructions without clocks.

        Waits for vector memory also wait for scalar loads that replace its loads.
        """
        count, flags = len(code.unit), code.flags.copy()
        removed, scalar = _mask(self.removed, count), _mask(self.scalar, count)
        flags[_mask(self.instant, count) | (removed & code.accesses)] |= INSTANT
        flags[_mask(self.ahead, count)] |= AHEAD
        flags[scalar] = COUNTS_LGKM
        gone = removed & ~code.accesses
        kind = np.select([gone, scalar], [Kind.PLAIN, Kind.SMEM], code.kind)
        unit = np.select([gone, scalar], [Unit.NONE, Unit.SCALAR], code.unit)
        clocks, port = (np.where(removed, 0, column) for column in (code.clocks, code.port))
        lgkm = np.where(scalar.any() & (code.kind == Kind.WAIT) & (code.vm >= 0), 0, code.lgkm)
        made = {"kind": kind, "unit": unit, "clocks": clocks, "port": port, "lgkm": lgkm, "flags": flags}
        return replace(code, **{name: column.astype(np.int32) for name, column in made.items()})

    def accesses(self, trace: Trace, served: ServedAccesses, code: CodeColumns, row: Pipelines) -> ServedAccesses:
        """Returns a workgroup's accesses: smooth ones with the fewest clocks and lines, removed ones with none."""
        if not self.smooth and not self.removed:
            return served
        numbers, rows = trace.access_numbers(code), served.accesses.copy()
        smooth, removed = (_mask(some, len(code.unit))[numbers] for some in (self.smooth, self.removed))
        lines = np.where(code.short[numbers], 1, row.cache_line // LINE_BYTES)
        fewest = np.minimum(rows[:, REQUESTS], -(-trace.accesses[:, LEAST_LINES] // lines))
        rows[smooth, CLOCKS] = np.minimum(rows[smooth, CLOCKS], trace.accesses[smooth, LEAST_CLOCKS])
        rows[smooth, REQUESTS] = fewest[smooth]
        for number in np.unique(numbers[smooth]):
            mine = numbers == number
            missed = min(rows[mine, MISSED].sum(), fewest[mine].sum()) / max(1, fewest[mine].sum())
            rows[mine, MISSED] = np.diff(np.floor(np.cumsum(fewest[mine]) * missed + 1e-9).astype(np.int64), prepend=0)
        rows[removed] = 0
        return replace(served, accesses=rows)

    def traffic(
        self, traffic: Shares, traces: Sequence[Trace], before: Sequence[ServedAccesses], after: Sequence[ServedAccesses],
        code: CodeColumns,
    ) -> Shares:  # fmt: skip
        """Returns what each level passes on if `before` becomes `after`: fewer lines, but each byte of memory still once."""
        if not self.smooth:
            return traffic
        sums = np.zeros((2, len(code.unit)))
        for trace, old, new in zip(traces, before, after, strict=True):
            numbers = trace.access_numbers(code)
            for at, one in enumerate((old, new)):
                sums[at] += np.bincount(numbers, one.accesses[:, MISSED], len(code.unit))
        mine = _mask(self.smooth, len(code.unit))
        ratio = np.where(mine & (sums[1] > 0), sums[0] / np.maximum(1, sums[1]), 1.0)

        def scale(fractions: np.ndarray) -> np.ndarray:
            made = fractions.copy()
            made[..., 0, mine] = np.minimum(1.0, made[..., 0, :] * ratio)[..., mine]
            return made

        rounds = (scale(traffic.rounds[0]), scale(traffic.rounds[1])) if traffic.rounds else None
        return replace(traffic, past=scale(traffic.past), late=scale(traffic.late), rounds=rounds)


NOTHING = Without()


def _mask(numbers: Numbers, count: int) -> np.ndarray:
    made = np.zeros(count, bool)
    made[list(numbers)] = True
    return made
