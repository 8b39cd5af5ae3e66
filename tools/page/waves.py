"""Timeline of the modelled compute unit for a page: each wave's events, clock by clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.timing.native.state import SIMDS

if TYPE_CHECKING:
    from simgpu.timing.predict import Prediction

EVENTS = 30_000  # at most, of a compute unit in a page


def waves_document(prediction: Prediction, rows: Mapping[int, int]) -> dict[str, Any]:
    """Returns columns of events in the order in which they began. rows: of instructions, by offset.

    An event has the wave's place, the row of its instruction, the clock at which the wave came to it, the clocks until it
    issued and until the wave went on, and the workgroup.
    """
    log = prediction.result.log[:EVENTS]
    places = sorted({int(place) for place in log[:, 0]})
    number = {place: at for at, place in enumerate(places)}
    log = log[np.argsort(log[:, 2], kind="stable")]
    kept = [event for event in log.tolist() if 4 * (event[1] - prediction.sampled.entry) in rows]
    return {
        "places": [f"SIMD {place % SIMDS} slot {place // SIMDS}" for place in places],
        "place": [number[event[0]] for event in kept],
        "row": [rows[4 * (event[1] - prediction.sampled.entry)] for event in kept],
        "came": np.diff([event[2] for event in kept], prepend=0).tolist(),  # from the event before: compresses better
        "issue": [event[3] - event[2] for event in kept],
        "until": [event[4] - event[2] for event in kept],
        "group": [event[5] for event in kept],
        "clocks": prediction.result.clocks, "mhz": prediction.clock.mhz,
        "said": f"{prediction.cycles:,.0f} cycles, {1e6 * prediction.seconds:,.4g} µs at {prediction.clock.mhz:,.0f} MHz "
        f"({1e6 * prediction.low:,.4g} to {1e6 * prediction.high:,.4g}); limited by {prediction.limit}",
        "shares": prediction.shares, "model_notes": list(prediction.notes), "cut": bool(len(prediction.result.log) >= EVENTS),
    }  # fmt: skip
