"""Prepares checks for a launch, and collects its findings. Plain mode never loads this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simgpu.engine import events, workgroup
from simgpu.engine.check import Check, failures
from simgpu.engine.dispatch import Dispatch
from simgpu.engine.failures import home, note_failure
from simgpu.engine.finding import Finding, group
from simgpu.engine.positions import finding_at

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker


def prepare(launch: Dispatch, workers: list[Worker], checks: Sequence[Check]) -> None:
    """Prepares each worker's memory for the handlers of checks."""
    for worker in workers:
        workgroup.prepare(worker, launch.waves)
        events.prepare(worker)
        for check in checks:
            check.prepare(launch, worker)


def findings(launch: Dispatch, workers: list[Worker], checks: Sequence[Check]) -> list[Finding]:
    """Returns the findings so far that no suppression matches, grouped, errors first, then by place.

    A failed check has only one finding: its failure.
    """
    return arrange(launch.suppressions.left_of(unsorted_findings(launch, workers, checks)), launch.origins)


def unsorted_findings(launch: Dispatch, workers: list[Worker], checks: Sequence[Check]) -> list[Finding]:
    """Returns the findings so far, unsorted and ungrouped."""
    told: list[tuple[str, Finding | None]] = []
    for formatter, event in events.drain(workers):
        with note_failure(launch.checks, formatter):
            told.append((home(formatter), formatter(launch, event)))
    for check in checks:
        told += [(home(check), finding) for finding in check.finish(launch, workers)]
    failed = failures(launch, workers)
    found = [finding for place, finding in told if finding is not None and place not in failed]
    found += [*failed.values(), *events.overflow(launch, workers)]
    return found + [finding_at(launch, launch.entry, "argument-type", note, severity="note") for note in launch.notes]


def arrange(found: list[Finding], origins: Mapping[str, str]) -> list[Finding]:
    """Returns one finding per cause, errors first, then by place. origins: emitters by source line, see `Module`."""
    if origins:
        found = [replace(f, emitter=origins.get(f.source, ""), other_emitter=origins.get(f.other_source, "")) for f in found]
    return group(sorted(found, key=lambda f: (f.severity != "error", f.pc, f.other_pc or 0, f.kind, f.message)))
