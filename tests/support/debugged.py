"""A debugger's state as one value, to compare moments by."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from simgpu import Device
from simgpu.debugger.debugger import Debugger
from simgpu.machine import layout


def digest(debugger: Debugger, device: Device) -> str:
    """Of all waves' registers and places, LDS, and the user's memory."""
    replay, made = debugger.replay, hashlib.sha256()
    for wave in range(debugger.waves):
        held = replay.bytes_of(wave)
        made.update(held[: layout.MODE + 4].tobytes() + held[layout.VGPR : layout.WAVE_BYTES].tobytes())
        made.update(str(replay.place(wave)).encode())
    made.update(replay.lds().tobytes())
    for allocation in device.memory.allocations:
        if allocation.writable and allocation.tracked:  # the heap is a GB
            made.update(allocation.data.tobytes())
    return made.hexdigest()


def forward(debugger: Debugger, device: Device, wave: int, places: Iterable[int]) -> dict[int, str]:
    """Digests where a wave has retired so many, in one way from where it is to the last, stopping at each."""
    found = {}
    for retired in sorted(set(places)):
        away = retired - debugger.wave_place(wave).retired
        if away:
            debugger.step(away, wave)
        found[retired] = digest(debugger, device)
    return found
