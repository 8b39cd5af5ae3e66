"""Finds registers beyond the declared ones, and notes how the declared ones limit occupancy.

It examines code that the launch executed or that direct branches reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from simgpu.checks.declared import excesses, registers_used
from simgpu.engine.check import Check
from simgpu.engine.finding import Finding
from simgpu.engine.positions import finding_at
from simgpu.engine.result import execution_counts
from simgpu.hardware.isa.instruction import Instruction
from simgpu.hardware.timing_rules.effect import Effect

if TYPE_CHECKING:
    from simgpu.engine.dispatch import Dispatch
    from simgpu.engine.workers.worker import Worker

SPLIT_LDS = (
    "{} bytes of LDS in tgsplit mode (.amdhsa_tg_split 1, -mtgsplit): the waves of a workgroup may be on different CUs and "
    "share none (AMDGPUUsage: local address space cannot be used)"
)


class ResourceCheck(Check):
    """Examines the code of a launch when it is over."""

    tiles = True

    def concerns(self, inst: Instruction) -> bool:
        return False

    def finish(self, launch: Dispatch, workers: list[Worker]) -> list[Finding]:
        records = launch.accounts.records[execution_counts(launch, workers) != 0]
        effects: dict[int, Effect] = {}
        for program in launch.programs.values():
            reached = program.instructions.keys() & records.tolist() | program.reachable(launch.entry)
            effects |= {record: program.effect(record) for record in reached}
        found = []
        if launch.info.descriptor.tg_split and launch.lds_bytes:
            found.append(finding_at(launch, launch.entry, "resource", SPLIT_LDS.format(launch.lds_bytes), place="LDS"))
        for excess in excesses(launch.info, registers_used(effects.items())):
            record = launch.entry if excess.place is None else excess.place
            found.append(finding_at(launch, record, "resource", excess.message, place=excess.what))
        if launch.check == "performance":
            found += _waves(launch)
        return found


def _waves(launch: Dispatch) -> Iterable[Finding]:
    """Yields a note on the number of waves that a SIMD holds by registers, and on the gain from one granule less of each file."""
    hardware, descriptor = launch.chip, launch.info.descriptor
    accum = descriptor.accum_offset
    arch = min(accum or descriptor.vgprs, descriptor.vgprs)
    acc = max(0, descriptor.vgprs - accum) if accum else 0
    vectors, scalars = hardware.waves_from_vgprs(arch, acc), hardware.waves_from_sgprs(descriptor.sgprs)
    granule = hardware.vgpr_granule
    less = hardware.waves_from_vgprs(max(arch - (granule if acc < granule else 0), 4), acc - granule if acc >= granule else acc)
    fewer = hardware.waves_from_sgprs(descriptor.sgprs - hardware.sgpr_granule)
    waves = min(vectors, scalars)
    limits = f"{vectors} by {descriptor.vgprs} VGPRs, {scalars} by {descriptor.sgprs} SGPRs"
    message = f"{waves} waves a SIMD reside at once by registers: {limits}"
    if min(less, scalars) > waves:
        message += f"; {granule} VGPRs less would give {min(less, scalars)}"
    if min(fewer, vectors) > waves:
        message += f"; {hardware.sgpr_granule} SGPRs less would give {min(fewer, vectors)}"
    yield finding_at(launch, launch.entry, "resource", message, severity="note")
