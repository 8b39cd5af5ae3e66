"""Finds the first thing to change: the causes of a launch's time, each with the time that the model predicts without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from simgpu.advice.barriers import unneeded_barriers
from simgpu.advice.causes import Cause, Scene, atomics, conflicts, latencies, scattered_accesses, uniform_loads
from simgpu.advice.costs import LineCost, Place, line_costs
from simgpu.advice.work import around_the_loop, barriers, computation, dispatch, idling, occupancy
from simgpu.timing.caches import Warm
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import NEAR, Prediction, predict
from simgpu.timing.without import NOTHING, Without

if TYPE_CHECKING:
    from simgpu.device import Kernel

SEARCHES = (
    conflicts, scattered_accesses, uniform_loads, atomics, barriers, occupancy, computation, latencies, idling, around_the_loop,
    dispatch,
)  # fmt: skip
MOST_CAUSES = 24  # that are predicted, of most waiting first
LEAST_GAIN = 0.01  # fraction of the time that a cause must cost
DOUBT = 0.25  # weight of a bound in the order: a change seldom reaches it


@dataclass(frozen=True)
class Advice:
    """A cause, and the launch's predicted time without it."""

    cause: Cause
    seconds: float  # without it
    gain: float  # fraction of the time that it costs

    @property
    def weight(self) -> float:
        """Place in the order: the gain, or a part of it if it is only a bound."""
        return self.gain * (DOUBT if self.cause.bound else 1.0)


@dataclass(frozen=True)
class Profile:
    """A launch's time by source line, and what to change."""

    prediction: Prediction
    lines: Sequence[LineCost]  # most stalled first
    advice: Sequence[Advice]  # the first thing to change first
    bound: tuple[str, float] | None  # a unit that is near its peak, and the seconds in which it could do this work


def profile_launch(kernel: Kernel, mhz: float | None = None, warm: Warm = False, **call: Any) -> Profile:
    """Returns the profile of a launch. mhz, warm: as for `Kernel.time`; call: arguments of `Kernel.launch`.

    >>> from simgpu.tools.cases.sources import load
    >>> text = "__global__ void first(float *x, float *y) {\\n  y[threadIdx.x] = x[16 * threadIdx.x];\\n}"
    >>> kernel = load(text, "mi300x")["first"]
    >>> gpu = kernel.module.device
    >>> found = profile_launch(kernel, grid=9000, block=256, args=[gpu.zeros(4096), gpu.zeros(256)])
    >>> found.advice[0].cause.kind, found.advice[0].cause.place.rpartition(":")[2]
    ('uncoalesced', '2')
    """
    code, start = kernel.module.code, kernel.info.start

    def place(offset: int) -> str:
        return str(code.debug.users_line(start + offset) or "")

    return profile(kernel.time(**call, mhz=mhz, warm=warm), place, partial(unneeded_barriers, kernel, call), mhz=mhz, warm=warm)


def profile(
    prediction: Prediction, place: Place = lambda offset: "", unneeded: Callable[[], frozenset[int]] = frozenset, *,
    mhz: float | None = None, warm: Warm = False,
) -> Profile:  # fmt: skip
    """Returns the costs of a launch by source line, and the causes of its time.

    place: returns the `file:line` of a code offset; unneeded: finds offsets of barriers that order nothing, called if a barrier
    matters; mhz, warm: those with which the prediction was made.

    >>> from simgpu import Device, asm, operators
    >>> gpu = Device("mi300x")
    >>> x, y = gpu.zeros((64, 64)), gpu.empty((64, 64))
    >>> (run,) = asm.launch(asm.emit(operators.TiledComputation(64, 64, 64, target="mi300x")), gpu, x, x, y)
    >>> found = profile(run.time())
    >>> found.advice[0].seconds < found.prediction.seconds
    True
    """
    scene = Scene(prediction, line_costs(prediction, place), unneeded)
    causes = list(chain.from_iterable(search(scene) for search in SEARCHES))
    stalls = {line.place: line.latency for line in scene.lines}
    causes.sort(key=lambda cause: -stalls.get(cause.place, scene.clocks))
    advice = []

    def seconds(without: Without, on: Mechanisms | None = None) -> float:
        return predict(prediction.sampled, mhz=mhz, warm=warm, on=on, without=without).seconds

    for cause in causes[:MOST_CAUSES]:
        before = seconds(cause.beyond) if cause.beyond != NOTHING else prediction.seconds
        gain = (before - seconds(cause.beyond | cause.without, cause.mechanisms)) / prediction.seconds
        if gain >= LEAST_GAIN:
            advice.append(Advice(cause, prediction.seconds * (1 - gain), gain))
    advice.sort(key=lambda one: -one.weight)
    lines = sorted(scene.lines, key=lambda line: -line.stall)
    return Profile(prediction, lines, advice, _bound(prediction))


def _bound(prediction: Prediction) -> tuple[str, float] | None:
    """Returns the unit nearest its peak and the time that it needs at its peak; None if none is near."""
    unit, share = max(prediction.shares.items(), key=lambda pair: pair[1])
    return (unit, share * prediction.cycles / (prediction.clock.mhz * 1e6)) if share >= NEAR else None
