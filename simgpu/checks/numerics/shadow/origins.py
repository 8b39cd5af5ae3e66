"""Attributes an element's error to the instructions that made it.

The search goes from the element back through all operands with an error. An instruction's own error is that of its rounding,
given its actual operands. Its share is this error times the factors on the way to the element. Shares are added without sign, so
errors that happen to cancel still count.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simgpu.checks.numerics.shadow.replay import trace_group
from simgpu.checks.numerics.shadow.run import ELEMENTS, NOBODY, ShadowedInstruction, ShadowRun
from simgpu.checks.numerics.shadow.steps import steps
from simgpu.checks.writer import writer_of
from simgpu.engine.allocations import SavedMemory
from simgpu.engine.device import Kernel
from simgpu.engine.positions import Location, location_of
from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.errors import LaunchError

FOLLOWED = 200_000  # most results that are followed
LEAST = 1e-4  # smallest fraction of the error that is followed


@dataclass(frozen=True)
class Origin:
    """Contribution of an instruction to an error."""

    where: Location
    share: float  # fraction of the sum of all shares
    times: int  # number of its results that were followed
    before: float  # largest relative error of the operands of these results
    after: float  # largest relative error of these results


@dataclass(frozen=True)
class Origins:
    """Error of a stored element, and the instructions that made it."""

    workgroup: tuple[int, int, int]
    wave: int
    value: float  # in f32 or narrower
    shadow: float  # in f64
    origins: tuple[Origin, ...]  # the largest share first
    complete: bool  # False if the search ended at FOLLOWED results

    @property
    def relative(self) -> float:
        return abs(self.value - self.shadow) / abs(self.shadow) if self.shadow else abs(self.value)


def origins_of(kernel: Kernel, geometry: Geometry, args: Sequence[object], address: int, dtype: np.dtype) -> Origins | None:
    """Returns the origins of an element's error in a launch with these arguments, None if the launch does not write it.

    address: device address of the element. dtype: float32, float16 or bfloat16. Memory is left as after the launch. Raises
    LaunchError if the workgroup is too long to follow, or if it stores the element other than from a float that it computed.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi100")
    >>> x, y = gpu.upload(np.full((16, 16), 0.1, np.float32)), gpu.empty((16, 16))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(16, 16, 16, target="mi100")), gpu, x, x, y)
    >>> geometry = Geometry.of(run.call["grid"], run.call["block"])
    >>> found = origins_of(run.kernel, geometry, run.call["args"], y.address, np.dtype("f4"))
    >>> f"{found.relative:.1e}", found.origins[0].where.text.split()[0]   # the error, and the instruction that made most of it
    ('4.1e-08', 'v_mfma_f32_16x16x4f32')
    """
    saved = SavedMemory.of(kernel.module.device.memory)
    group = writer_of(kernel, geometry, args, address)
    if group is None:
        return None
    after = SavedMemory.of(kernel.module.device.memory)
    saved.restore()
    words, launch = trace_group(kernel, geometry, args, group)
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


def _shares(made: Sequence[ShadowedInstruction], link: int) -> tuple[dict[int, _Share], bool]:
    """Returns the shares of a result's error by record, and `Origins.complete`. Results with the largest errors are followed
    first."""
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


def _relative(one: ShadowedInstruction, element: int) -> float:
    shadow = abs(one.shadow(element))
    return one.error(element) / shadow if shadow else 0.0
