"""A launch with checks: what their handlers write to, and the findings that come back. Plain mode never loads it."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.engine import events
from simgpu.engine.allocations import aligned_bytes
from simgpu.engine.finding import Finding
from simgpu.machine import layout

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.worker import Worker


def prepare(launch: Launch, workers: list[Worker]) -> None:
    """Give each worker what checked handlers use; the checks add to the waves' shadow blocks."""
    shadow_bytes = layout.CHECKED_BYTES - layout.WAVE_BYTES
    for worker in workers:
        shadow = aligned_bytes(max(shadow_bytes, 64))
        worker.storage.append(shadow)
        worker.checks["shadow"] = shadow
        worker.job.shadow = shadow.ctypes.data if shadow_bytes else 0
        worker.context[layout.CTX_SLOTS // 8] = ctypes.addressof(worker.slots)
        worker.context[layout.CTX_WAVES // 8] = launch.waves
        events.prepare(worker)
        for check in launch.device.checks:
            check.prepare(launch, worker)


def findings(launch: Launch, workers: list[Worker]) -> list[Finding]:
    """What was seen so far, errors first, then by place."""
    found = events.drain(launch, workers)
    for check in launch.device.checks:
        found += check.finish(launch, workers)
    origins = launch.kernel.module.origins
    if origins:
        found = [replace(f, emitter=origins.get(f.source, ""), other_emitter=origins.get(f.other_source, "")) for f in found]
    return sorted(found, key=lambda f: (f.severity != "error", f.pc, f.other_pc or 0, f.kind, f.message))
