"""An element's error by the instructions that made it.

From the element back through all operands whose error is in it: each instruction's own error (its rounding, of the operands that
it had) times the factors on the way is its share. Shares are added without sign, so that errors that happen to cancel count.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.numerics.shadow.replay import traced
from simgpu.checks.numerics.shadow.run import ELEMENTS, NOBODY, Made, ShadowRun
from simgpu.checks.numerics.shadow.steps import steps
from simgpu.checks.writer import writer_of
from simgpu.engine.allocations import Saved
from simgpu.engine.device import Kernel
from simgpu.engine.positions import Location, location_of
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError

FOLLOWED = 200_000  # results that are looked at
LEAST = 1e-4  # of the error: what brings less is not followed


@dataclass(frozen=True)
class Origin:
    """What an instruction contributed. share: of all that was followed; before, after: the largest error of its operands and the
    largest of its results, relative to the number, on the way to the element."""

    where: Location
    share: float
    times: int
    before: float
    after: float


@dataclass(frozen=True)
class Origins:
    """The error of a stored element: what it was in f32 or narrower, in f64, and who made the difference, the most first."""

    workgroup: tuple[int, int, int]
    wave: int
    value: float
    shadow: float
    origins: tuple[Origin, ...]
    complete: bool  # whether all that mattered was followed

    @property
    def relative(self) -> float:
        return abs(self.value - self.shadow) / abs(self.shadow) if self.shadow else abs(self.value)


def origins_of(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int, dtype: np.dtype) -> Origins | None:
    """Where the error of the element at a device address came from, of a launch with these arguments; None if it writes it not.

    dtype: float32, float16 or bfloat16. Memory is as after the launch. LaunchError where the workgroup is too long to follow, or
    stores the element by other means than a store of a float that it computed.
    """
    saved = Saved.of(kernel.module.device.memory)
    group = writer_of(kernel, geometry, args, address)
    if group is None:
        return None
    after = Saved.of(kernel.module.device.memory)
    saved.restore()
    words, launch = traced(kernel, geometry, args, group)
    allocation = launch.memory.find(address)
    assert allocation is not None
    at = address - allocation.address
    value = float(allocation.data[at : at + dtype.itemsize].copy().view(dtype)[0])
    after.restore()
    run = ShadowRun(launch.program.instructions, launch.program.mode)
    run.all(steps(words))
    place = run.memory.place.get(address >> 2)
    held = run.memory.shadows
    if place is None:
        link = NOBODY
    else:
        link = int(held.link[place] if dtype.itemsize == 4 else held.half_link[place, address >> 1 & 1])
    if link == NOBODY:
        raise LaunchError(f"{kernel.title}: workgroup {group} stored the element, from no float that it computed")
    shares, complete = _shares(run.made, link)
    total = sum(one.share for one in shares.values()) or 1.0
    found = [
        Origin(location_of(launch, record), one.share / total, one.times, one.before, one.after) for record, one in shares.items()
    ]
    last = run.made[link // ELEMENTS]
    found.sort(key=lambda one: -one.share)
    return Origins(group, last.wave, value, last.shadow(link % ELEMENTS), tuple(found), complete)


@dataclass
class _Share:
    share: float = 0.0
    times: int = 0
    before: float = 0.0
    after: float = 0.0


def _shares(made: Sequence[Made], link: int) -> tuple[dict[int, _Share], bool]:
    """By record, from a result back, what matters most first."""
    found: dict[int, _Share] = {}
    whole = made[link // ELEMENTS].error(link % ELEMENTS)
    waiting = [(-whole, link, 1.0)]
    followed = 0
    while waiting and followed < FOLLOWED:
        _, at, factor = heapq.heappop(waiting)
        one, element = made[at // ELEMENTS], at % ELEMENTS
        followed += 1
        entry = found.setdefault(one.record, _Share())
        entry.share += factor * one.local(element)
        entry.times += 1
        entry.after = max(entry.after, _relative(one, element))
        for operand, more in one.operands(element):
            source = made[operand // ELEMENTS]
            entry.before = max(entry.before, _relative(source, operand % ELEMENTS))
            brought = factor * more * source.error(operand % ELEMENTS)
            if brought > LEAST * whole and np.isfinite(brought):
                heapq.heappush(waiting, (-brought, operand, factor * more))
    return found, not waiting


def _relative(one: Made, element: int) -> float:
    shadow = abs(one.shadow(element))
    return one.error(element) / shadow if shadow else 0.0
