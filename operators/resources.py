"""Constraints and resources of a plan: what a target grants, what a tile takes, what is left."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hardware.descriptor import HardwareDescriptor
from hardware.errors import ResourceError
from operators.tree import Level


@dataclass(frozen=True)
class Constraint:
    """One limit at one level of the tree.

    `hard` limits decide feasibility: use <= limit. The others (occupancy, operand bandwidth) only say how far from the best a plan is.
    `binding` marks the one that stopped the tile from growing. `remedy` says what to change and by how much if it is violated.
    """

    name: str
    level: Level
    limit: float
    use: float
    unit: str
    note: str = ""
    remedy: str = ""
    hard: bool = True
    binding: bool = False

    @property
    def slack(self) -> float:
        """limit - use; negative if violated."""
        return self.limit - self.use

    @property
    def satisfied(self) -> bool:
        """Whether the use is within the limit."""
        return self.use <= self.limit

    @property
    def ratio(self) -> float:
        """use / limit."""
        return self.use / self.limit if self.limit else (0.0 if not self.use else float("inf"))


@dataclass(frozen=True)
class RegisterRange:
    """A named range of `count` 32-bit registers per lane in file "arch" or "acc"."""

    name: str
    file: str
    count: int


@dataclass(frozen=True)
class LdsArray:
    """A named array in LDS: bytes of all its stages."""

    name: str
    nbytes: int


@dataclass(frozen=True)
class ResourcePlan:
    """What one wave and one workgroup take, in closed form; the emitter stays within it.

    `waves_per_simd` and `blocks_per_cu` are what resides at once, by registers, LDS and wave slots together.
    """

    registers: tuple[RegisterRange, ...]
    lds: tuple[LdsArray, ...]
    sgprs: int
    waves_per_simd: int
    blocks_per_cu: int

    @property
    def arch_vgprs(self) -> int:
        """ArchVGPRs per lane."""
        return sum(r.count for r in self.registers if r.file == "arch")

    @property
    def acc_vgprs(self) -> int:
        """AccVGPRs per lane."""
        return sum(r.count for r in self.registers if r.file == "acc")

    @property
    def lds_bytes(self) -> int:
        """Bytes of LDS that a workgroup asks for, before rounding to the allocation granule."""
        return sum(array.nbytes for array in self.lds)


def residency(
    descriptor: HardwareDescriptor, arch: int, acc: int, sgprs: int, lds_bytes: int, waves: int
) -> tuple[int, int]:
    """(waves per SIMD, blocks per CU) that reside at once for a block of `waves` waves; (0, 0) if it does not fit at all.

    A block's waves spread evenly over the CU's SIMDs. Source: AMD ROCm Compute Profiler, occupancy limiters.
    """
    slots = min(descriptor.waves_from_vgprs(arch, acc), descriptor.waves_from_sgprs(sgprs)) * descriptor.simds_per_cu
    by_waves = slots // waves
    by_lds = descriptor.lds_bytes // max(1, descriptor.lds_allocation(lds_bytes)) if lds_bytes else by_waves
    blocks = min(by_waves, by_lds)
    return -(-blocks * waves // descriptor.simds_per_cu), blocks


def mark_binding(constraints: Iterable[Constraint], name: str | None = None) -> tuple[Constraint, ...]:
    """The constraints with one marked: a violated hard one, else the one called `name`, else the hard one used up the most."""
    rows = tuple(constraints)
    hard = [row for row in rows if row.hard]
    worst = max(hard, key=lambda row: row.ratio)
    if worst.satisfied and name is not None:
        worst = next(row for row in rows if row.name == name)
    return tuple(replace(row, binding=row is worst) for row in rows)


def binding(constraints: Iterable[Constraint]) -> Constraint:
    """The constraint that `mark_binding` marked."""
    return next(row for row in constraints if row.binding)


def require_feasible(what: str, constraints: Iterable[Constraint]) -> None:
    """ResourceError, one line, for the binding constraint if it is violated."""
    row = binding(constraints)
    if row.hard and not row.satisfied:
        raise ResourceError(f"{what}: {row.name} needs {row.use:g} {row.unit}, the limit is {row.limit:g}; {row.remedy}")
