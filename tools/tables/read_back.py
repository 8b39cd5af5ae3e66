"""What kernels take, read back from their code object, beside what the plan gives them, as registers and LDS are allocated."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from simgpu.hardware.code_object.code_object import CodeObject
from simgpu.hardware.errors import LaunchError, TargetError, ToolchainError, UnsupportedInstruction
from simgpu.operators.resources import RESERVED_SGPRS
from simgpu.tools.shared.console import table
from simgpu.tools.tables.kernel_use import kernel_use

if TYPE_CHECKING:
    from simgpu.asm import EmittedKernel
    from simgpu.operators.tree import Root


@dataclass(frozen=True)
class ReadBack:
    """One resource of one kernel: planned and taken, in its unit; `granule`: what it is allocated by; ranges: the plan's parts."""

    kernel: str
    resource: str
    planned: int
    taken: int
    granule: int
    ranges: str

    @property
    def equal(self) -> bool:
        """Whether both round to the same allocation."""
        return -(-self.planned // self.granule) == -(-self.taken // self.granule)


def read_back(kernel: EmittedKernel, tree: Root) -> list[ReadBack]:
    """Rows of every kernel that has a plan."""
    d, parsed = tree.descriptor, CodeObject.parse(kernel.assemble())
    rows = []
    for step in kernel.steps:
        if step.plan is None:
            continue
        planned, use = step.plan.resources, kernel_use(parsed, parsed.kernels[step.name])
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


def read_back_of(tree: Root) -> tuple[list[ReadBack], str]:
    """The rows of a tree's kernels, or none and the reason why there are no kernels on this machine."""
    from simgpu import asm

    if not tree.derivation.feasible:
        return [], "the tiles do not fit, so there is no kernel"
    try:
        return read_back(asm.emit(tree), tree), ""
    except (ToolchainError, TargetError, UnsupportedInstruction, LaunchError) as error:
        return [], str(error)


def read_back_table(rows: list[ReadBack]) -> Table:
    """The rows for a terminal."""
    columns = ("kernel", "resource", "planned", "read back", "granule", "", "note")
    cells = ((r.kernel, r.resource, r.planned, r.taken, r.granule, "=" if r.equal else "differs", r.ranges) for r in rows)
    return table("Read back from the code object", columns, cells, left=2)


def read_back_documents(rows: list[ReadBack]) -> list[dict[str, object]]:
    """The rows for JSON."""
    return [{**asdict(row), "equal": row.equal} for row in rows]
