"""Kernels' resources read back from their code object, next to the plan's, as registers and LDS are allocated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from simgpu.operators.resources import RESERVED_SGPRS
from simgpu.tools.shared.console import table
from simgpu.tools.shared.sheet import Sheet

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.tools.tables.kernel_use import KernelUse


@dataclass(frozen=True)
class ReadBack:
    """A resource of one kernel, planned and actual."""

    kernel: str
    resource: str
    planned: int
    taken: int  # by the code object
    granule: int  # unit of its allocation
    ranges: str  # parts of the plan

    @property
    def equal(self) -> bool:
        """True if both round to the same allocation."""
        return -(-self.planned // self.granule) == -(-self.taken // self.granule)


def read_back(kernel: EmittedKernel, uses: Sequence[KernelUse]) -> list[ReadBack]:
    """Returns the rows of every kernel that has a plan; uses: of each kernel, as linked."""
    rows = []
    for step, use in zip(kernel.steps, uses, strict=True):
        if step.plan is None:
            continue
        d, planned = step.plan.descriptor, step.plan.resources
        held = {file: [r for r in planned.registers if r.file == file and r.count] for file in ("arch", "acc")}
        parts = {file: " + ".join(f"{r.name} {r.count}" for r in ranges) for file, ranges in held.items()}
        scalars = " + ".join(f"{r.name} {r.count}" for r in planned.scalars)
        arrays = " + ".join(f"{array.name} {array.nbytes}" for array in planned.lds)
        rows += [
            ReadBack(step.name, "LDS", planned.lds_bytes, use.lds_bytes, 1, arrays),
            ReadBack(step.name, "ArchVGPR", planned.arch_vgprs, use.arch_vgprs, d.vgpr_granule, parts["arch"]),
            ReadBack(step.name, "AccVGPR", planned.acc_vgprs, use.acc_vgprs, d.vgpr_granule, parts["acc"]),
            ReadBack(step.name, "SGPR", planned.sgprs, use.sgprs, d.sgpr_granule, f"{scalars} + reserved {RESERVED_SGPRS}"),
        ]
    return rows


def read_back_tables(rows: list[ReadBack]) -> Iterator[Sheet]:
    """Yields a table for each kernel, for a terminal. A kernel's name in each row would be too wide for it."""
    columns = ("resource", "planned", "read back", "granule", "", "note")
    for name, of_kernel in groupby(rows, lambda row: row.kernel):
        cells = ((r.resource, r.planned, r.taken, r.granule, "=" if r.equal else "differs", r.ranges) for r in of_kernel)
        yield table(f"Read back from the code object of {name}", columns, cells)


def read_back_documents(rows: list[ReadBack]) -> list[dict[str, object]]:
    """Returns the rows for JSON."""
    return [{**asdict(row), "equal": row.equal} for row in rows]
