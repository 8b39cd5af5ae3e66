"""Variants of a kernel whose results must have the same elements, and the verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from simgpu.hardware.errors import SimError
from simgpu.tools.cases.same import ArrayComparison, Side, compare, verdict_of

NOT_RUN, FIRST = "not run", "first"


@dataclass(frozen=True)
class Variant:
    """A configuration, such as a tile size, and the launch with it."""

    label: str
    launch: Callable[[], Side]  # raises SimError if the configuration does not run


@dataclass(frozen=True)
class Group:
    """Variants that compute the same. reference: its results; None: the first variant's."""

    title: str
    variants: Sequence[Variant]
    reference: Side | None = None


@dataclass(frozen=True)
class Judged:
    """A variant's verdict: one of tools.cases.same's, NOT_RUN, or FIRST if the others are compared with it."""

    group: str
    label: str
    verdict: str
    comparisons: Sequence[ArrayComparison] = ()
    branches: Sequence[str] = ()  # that depend on floats
    reason: str = field(default="")  # why it did not run


def judge(group: Group) -> Iterator[Judged]:
    """Launches the variants in order and yields a verdict for each."""
    base = group.reference
    for variant in group.variants:
        try:
            side = variant.launch()
        except SimError as error:
            yield Judged(group.title, variant.label, NOT_RUN, reason=str(error))
            continue
        if base is None:
            base = side
            yield Judged(group.title, variant.label, FIRST, branches=side.branches)
            continue
        comparisons = compare(base, side)
        yield Judged(group.title, variant.label, verdict_of(comparisons, [base, side]), comparisons, side.branches)
