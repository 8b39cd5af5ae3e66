"""Registers used beyond those that the kernel descriptor declares, and what the declared ones cost.

A wave gets what the descriptor says, in whole granules (`simgpu.hardware.code_object.descriptor`); a register past
that is another wave's, or none. Counts are static: of the code that direct branches reach.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simgpu.engine.check import Check
from simgpu.engine.finding import Finding, finding_at
from simgpu.engine.result import executed
from simgpu.hardware.isa.instruction import FLAT_SCRATCH, VCC, Instruction
from simgpu.hardware.timing_rules.effects import Effect

if TYPE_CHECKING:
    from simgpu.engine.launch import Launch
    from simgpu.engine.workers.worker import Worker

# SGPRs at the end of a wave's allocation that hold special registers, where code uses these
# (LLVM, IsaInfo::getNumExtraSGPRs): VCC; VCC, XNACK_MASK and FLAT_SCRATCH.
EXTRA_VCC, EXTRA_ALL = 2, 6


@dataclass(frozen=True)
class Use:
    """The highest register of a file that code uses: its number + 1, and the record that does."""

    count: int = 0
    record: int = 0

    def with_(self, count: int, record: int) -> Use:
        return Use(count, record) if count > self.count else self


def used(effects: Iterable[tuple[int, Effect]]) -> dict[str, Use]:
    """Use by file, "v", "a" and "s", and "extra": SGPRs that special registers take."""
    found = {name: Use() for name in ("v", "a", "s", "extra")}
    for record, effect in sorted(effects, key=lambda item: item[0]):
        for register in effect.touched:
            if register == "vcc":
                found["extra"] = found["extra"].with_(EXTRA_VCC, record)
            if not isinstance(register, tuple) or register[0] not in ("v", "a", "s"):
                continue
            file, number = str(register[0]), int(register[1])
            if file == "s" and number >= FLAT_SCRATCH:
                if number < VCC:
                    found["extra"] = found["extra"].with_(EXTRA_ALL, record)
                continue
            found[file] = found[file].with_(number + 1, record)
    return found


class Resources(Check):
    """Looks at the code of a launch when it is over."""

    def concerns(self, inst: Instruction) -> bool:
        return False

    def finish(self, launch: Launch, workers: list[Worker]) -> list[Finding]:
        records = launch.accounts.records[executed(launch, workers) != 0]
        effects: dict[int, Effect] = {}
        for program in launch.programs.values():
            reached = program.instructions.keys() & records.tolist() | program.reachable(launch.entry)
            effects |= {record: program.effect(record) for record in reached}
        found = list(_problems(launch, used(effects.items())))
        if launch.device.check == "performance":
            found += _waves(launch)
        return found


def _problems(launch: Launch, use: dict[str, Use]) -> Iterable[Finding]:
    descriptor = launch.info.descriptor
    total, accum = descriptor.vgprs, descriptor.accum_offset
    vectors, accumulators, scalars = use["v"], use["a"], use["s"]

    def problem(record: int, register: str, declared: str, remedy: str) -> Finding:
        return finding_at(launch, record, "resource", f"{register} is past {declared}: {remedy}", place=register)

    if accum:
        if vectors.count > accum:
            declared = f"the {accum} ArchVGPRs of accum_offset; the AccVGPRs follow there"
            yield problem(vectors.record, f"v{vectors.count - 1}", declared, f"accum_offset must be {-(-vectors.count // 4) * 4}")
        elif vectors.count > total:
            yield problem(
                vectors.record, f"v{vectors.count - 1}", f"the {total} registers of the descriptor",
                f"next_free_vgpr must be {vectors.count} at least",
            )  # fmt: skip
        if accumulators.count and accum + accumulators.count > total:
            declared = f"the {max(0, total - accum)} AccVGPRs of the descriptor: {total} registers, accum_offset {accum}"
            remedy = f"next_free_vgpr must be {accum + accumulators.count} at least"
            yield problem(accumulators.record, f"a{accumulators.count - 1}", declared, remedy)
    else:
        for file, most in (("v", vectors), ("a", accumulators)):
            if most.count > total:
                declared = f"the {total} registers of the descriptor"
                yield problem(most.record, f"{file}{most.count - 1}", declared, f"next_free_vgpr must be {most.count} at least")
    needed = scalars.count + use["extra"].count
    if needed > descriptor.sgprs:
        extra = f" less {use['extra'].count} for VCC and other special registers" if use["extra"].count else ""
        declared = f"the {descriptor.sgprs} of the descriptor{extra}"
        yield problem(scalars.record, f"s{scalars.count - 1}", declared, f"next_free_sgpr must be {scalars.count} at least")
    yield from _lds(launch)


def _lds(launch: Launch) -> Iterable[Finding]:
    """The descriptor and the metadata disagree on LDS: runtimes go by the one or by the other."""
    declared, said = launch.info.descriptor.group_segment_size, launch.info.group_segment_size
    if declared != said:
        message = f"the descriptor declares {declared} bytes of LDS, the metadata {said}: both must be what the kernel uses"
        yield finding_at(launch, launch.entry, "resource", message, place="LDS")


def _waves(launch: Launch) -> Iterable[Finding]:
    """How many waves a SIMD holds by registers, and what one granule less of each file would give."""
    hardware, descriptor = launch.device.descriptor, launch.info.descriptor
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
