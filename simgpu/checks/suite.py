"""The checks of checked mode, and what they do before and after a launch.

A check is a class of `check.Check`; `CHECKS` lists them in the order in which they emit code around
an instruction's body. Plain mode compiles none of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu.checks import events
from simgpu.checks.bounds import Bounds
from simgpu.checks.performance import Performance
from simgpu.checks.races.check import Races
from simgpu.checks.races.lds_dma import Dma
from simgpu.checks.resources import Resources
from simgpu.checks.uninitialized.check import Shadow
from simgpu.checks.waits.in_flight import Outstanding
from simgpu.checks.waits.paths import Paths
from simgpu.checks.waits.surplus import Slack
from simgpu.engine import scheduler
from simgpu.engine.allocations import aligned_bytes
from simgpu.engine.finding import Finding
from simgpu.machine import layout
from simgpu.machine.check import Check

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.worker import Worker

CHECKS: tuple[Check, ...] = (Paths(), Outstanding(), Dma(), Shadow(), Races(), Bounds(), Resources())
NOTES: tuple[Check, ...] = (*CHECKS, Performance(), Slack())  # with check="performance"


def prepare(launch: Launch, workers: list[Worker]) -> None:
    """Give each worker what checked handlers use; the checks add to the waves' shadow blocks."""
    shadow_bytes = layout.CHECKED_BYTES - layout.WAVE_BYTES
    for worker in workers:
        shadow = aligned_bytes(max(shadow_bytes, 64))
        worker.storage.append(shadow)
        worker.checks["shadow"] = shadow
        worker.job[scheduler.JOB_SHADOW] = shadow.ctypes.data if shadow_bytes else 0
        worker.context[layout.CTX_SLOTS // 8] = worker.slots.ctypes.data
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


def field_of(raw: np.ndarray, offset: int) -> np.ndarray:
    """The i32 field of a wave's state as an array of one."""
    return raw[offset : offset + 4].view(np.int32)
