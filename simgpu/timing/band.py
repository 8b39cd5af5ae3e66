"""Band around a predicted time: the clock's, and what the model knows that it does not know.

Widths are fractions of the time. They were chosen so that the rows in docs/notes/2026-11-26-clock-and-bands.md fall inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.rates.clocks import LDS_OF_PRODUCTS, clock_falls, has_clock_of

# Published times of an empty launch are 2.1 to 2.7 us back to back, and 3.5 between two events: vectoradd of 1,024 in MGPUSim's
# mi300a.csv, less 0.7 of the kernel.
LAUNCH_SECONDS = 0.8e-6
SHORT = 0.03  # fraction of the time from which the launch is worth a note
CACHE_BUSY, CACHE_WIDER = 0.65, 0.10
MATRIX_DECIDES = 0.85  # matrix duty from which it is the limit, whatever else is busy
ALL_CHANNELS, CHANNELS_WIDER = 0.9, 0.25
CHANNELS_USED = 0.25  # fraction of the busy channels' rate from which they matter
# ROCm's stencils along z, which read several planes, got 5 to 25 % less from an MI250X's memory than streams do.
PLANES_USED, PLANES_WIDER = 0.7, 0.15  # fraction of memory's peak from which memory limits
REMEMBERED, REMEMBERED_WIDER = 0.1, 0.10
SHARED_LINE, SHARED_WIDER = 1, 0.08  # atomics on one line from which workgroups may wait for each other
CONTENDED, CONTENDED_WIDER = 1000, 0.25  # from which they wait long
# A hit in L2 takes 85 ns in a chase on an MI300X, and 121 ns (254 clocks) under load; the Infinity Cache 218 to 262 (`pipelines`).
LATENCY_WIDER = 0.10
MOVED, MOVED_WIDER = 0.1, 0.15  # fraction of the time for which lines move between XCDs, from which their rate matters
# Backprop's weights and finite differences on an MI300A, of arrays that L2s cannot hold: 16 to 40 % too short.
UPDATED, UPDATED_LOAD, UPDATED_WIDER = 0.5, 0.5, 0.25
SOME_WORK, CLOCK_WIDER = 0.2, 0.05  # duty from which the clock depends on the matrix units' type


@dataclass(frozen=True)
class Doubt:
    """A reason for which a prediction may be off."""

    note: str  # for people
    wider: float  # fraction of the time that it adds to the band on either side


@dataclass(frozen=True)
class PredictionFacts:
    """Knowledge about a predicted launch."""

    chip: HardwareDescriptor
    shares: Mapping[str, float]  # as in `Prediction`
    seconds: float
    dtype: str | None  # of its matrix instructions, as `clocks.element` names it; "" without any, None if the clock is given
    channels: float  # fraction of memory's channels that are busy
    atomics: float  # requests by atomics on the line with most of them
    remembered: float  # fraction of the bytes past L2 of a first round that later rounds find in L2
    waits: bool = False  # True if waits for loads limit the launch, not a unit
    moved: float = 0.0  # fraction of the time for which lines move between XCDs
    updated: float = 0.0  # fraction of the stored lines that their workgroup also loads
    load: float = 0.0  # of the Infinity Cache or of memory, the larger one, as a fraction


def doubts(told: PredictionFacts) -> Iterator[Doubt]:
    """Yields the reasons.

    >>> from simgpu.hardware import target
    >>> busy = {"matrix": 0.4, "vector cache": 0.7, "LDS": 0.2, "HBM": 0.1}
    >>> [doubt.wider for doubt in doubts(PredictionFacts(target("mi355x"), busy, 1e-3, "f4", 1.0, 0.0, 0.0))]
    [0.1]
    """
    matrix, chip = told.shares["matrix"], told.chip
    if (part := LAUNCH_SECONDS / told.seconds) > SHORT:
        yield Doubt(f"the launch itself varies by 0.8 us, {part:.0%} of this time", part)
    if chip.arch == "gfx950" and told.shares["vector cache"] >= CACHE_BUSY and matrix < MATRIX_DECIDES:
        yield Doubt("kernels limited by the vector cache took up to a quarter longer than modelled on gfx950", CACHE_WIDER)
    if told.channels < ALL_CHANNELS and told.shares["HBM"] >= CHANNELS_USED * told.channels:
        yield Doubt(f"{told.channels:.0%} of memory's channels seem busy: the hash of addresses is a guess", CHANNELS_WIDER)
    if not chip.mall_bytes and told.shares["HBM"] >= PLANES_USED:
        yield Doubt("memory's rate is that of streams: stencils that read many planes got up to a quarter less", PLANES_WIDER)
    if told.remembered > REMEMBERED:
        yield Doubt(
            f"{told.remembered:.0%} of what a first round misses stays in L2 for later ones: its hash and replacement are guesses",
            REMEMBERED_WIDER,
        )
    if told.waits and matrix < SOME_WORK:
        yield Doubt("waits for loads decide: published latencies of caches differ by a fifth", LATENCY_WIDER)
    if told.moved > MOVED:
        yield Doubt(f"lines that other XCDs hold move for {told.moved:.0%} of this time: their rate is assumed", MOVED_WIDER)
    if chip.mall_bytes and told.updated > UPDATED and told.load > UPDATED_LOAD:
        yield Doubt("arrays are updated in place: such launches took up to 1.6 times as long as modelled", UPDATED_WIDER)
    if told.atomics > CONTENDED:
        note = f"{told.atomics:,.0f} requests by atomics on one line of memory: longer waits than assumed are possible"
        yield Doubt(note, CONTENDED_WIDER)
    elif told.atomics > SHARED_LINE:
        yield Doubt("atomics on the same lines: how long workgroups wait for each other is uncertain", SHARED_WIDER)
    if matrix < SOME_WORK or told.dtype is None:
        return
    if not has_clock_of(chip, told.dtype):
        yield Doubt(f"no clock under {told.dtype} work was published for this board", CLOCK_WIDER)
    valu, lds = clock_falls(chip)
    if valu and not lds and told.shares["LDS"] > LDS_OF_PRODUCTS * matrix + SOME_WORK:
        yield Doubt("LDS works more than in the products that gave this board's clock", CLOCK_WIDER)
