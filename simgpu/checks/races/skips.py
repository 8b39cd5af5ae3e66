"""Lanes that skip a barrier and go on after it, although their wave passes it; called by checked handlers.

The hardware counts a wave as arrived if any of its lanes is active. HIP, CUDA and OpenCL want each thread at the barrier that has
not returned. A lane that was off at the barrier has returned if it makes no access and meets no other barrier afterwards.
"""

from __future__ import annotations

from simgpu.checks.races.order import SKIPPED, SKIPPED_AT
from simgpu.engine.events import enter_at, event
from simgpu.hardware.isa.instruction import EXEC
from simgpu.machine import layout
from simgpu.machine.runtime import cold_part, load64, part, store64

SKIP = event("lanes that skipped a barrier")  # `extra`: the record where they go on


@cold_part
def report_skip(wave: int, record: int, lanes: int) -> None:
    """Reports lanes that skipped the wave's last barrier and go on at a record; once a barrier."""
    store64(wave + SKIPPED, 0)
    enter_at(wave, load64(wave + SKIPPED_AT), SKIP, lanes, 0, record, record)


@part
def go_on(wave: int, record: int, lanes: int) -> None:
    """Handles an access, or a barrier, of active lanes."""
    skipped = load64(wave + SKIPPED) & lanes
    if skipped:
        report_skip(wave, record, skipped)


@part
def note_skips(wave: int, record: int) -> None:
    """Notes which lanes are off at a barrier."""
    active = load64(wave + layout.SGPR + 4 * EXEC)
    go_on(wave, record, active)
    store64(wave + SKIPPED, ~active)
    store64(wave + SKIPPED_AT, record)
