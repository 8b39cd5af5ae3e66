"""Resource table: derived and actual resources of each node of a kernel, against its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simgpu.operators.gemm.limits import matrix_flops_per_clock, matrix_tflops
from simgpu.operators.gemm.plan import GemmPlan
from simgpu.operators.resources import Derivation
from simgpu.tools.shared.console import table
from simgpu.tools.shared.sheet import Sheet
from simgpu.tools.tables.kernel_use import KernelUse
from simgpu.tools.tables.limits import limit_name, limit_note

COLUMNS = ("node", "resource", "derived", "actual", "limit", "note")
# Constraints of the plan, with the field of `KernelUse` that has the actual figure.
FIELD_OF = {
    "LDS": "lds_bytes",
    "ArchVGPR": "arch_vgprs",
    "AccVGPR": "acc_vgprs",
    "SGPR": "sgprs",
    "workgroup size": "workgroup_size",
}


@dataclass(frozen=True)
class ResourceRow:
    """A resource at one node against its limit."""

    node: str
    name: str
    derived: float
    actual: float | None  # None: unknown
    limit: float
    unit: str
    note: str = ""
    floor: bool = False  # the limit is a lower one (arithmetic intensity)
    hard: bool = False  # past the limit, the kernel cannot run
    binding: bool = False

    @property
    def slack(self) -> float:
        """Distance of the larger figure (floor: the actual one if known) from the limit; < 0: missed."""
        if self.floor:
            return (self.derived if self.actual is None else self.actual) - self.limit
        return self.limit - max(self.derived, self.actual or 0)

    @property
    def mark(self) -> str:
        """ "violated", "binds", "below" (a floor that is missed) or nothing."""
        if self.slack < 0 and (self.hard or self.floor):
            return "below" if self.floor else "violated"
        return "binds" if self.binding else ""


def resource_rows(
    plan: Derivation, threads: int, use: KernelUse | None = None, counters: Mapping[str, int] | None = None
) -> list[ResourceRow]:
    """Returns the rows of one kernel's plan, device to atom.

    threads: work-items of its workgroup; use: the linked kernel's figures; counters: of a finished run. With counters, the actual
    intensities are FLOPs over the bytes that the kernel moved. The problem's FLOPs are over each byte of memory once, the executed
    ones over the bytes that loads and LDS reads requested.
    """
    order = ("device", "block", "warp", "atom")
    rows = [*_constraints(plan, use), *_residency(plan, -(-threads // plan.descriptor.wavefront_size), use)]
    if isinstance(plan, GemmPlan):
        rows += _intensities(plan, counters or {})
    return sorted(rows, key=lambda row: order.index(row.node))


def _constraints(plan: Derivation, use: KernelUse | None) -> list[ResourceRow]:
    rows = []
    for row in plan.constraints:
        actual = getattr(use, FIELD_OF[row.name]) if use and row.name in FIELD_OF else None
        if use and row.name == "VGPR file":
            actual = -(-use.arch_vgprs // 4) * 4 + use.acc_vgprs
        rows.append(
            ResourceRow(str(row.level), row.name, row.use, actual, row.limit, row.unit, row.note,
                        hard=row.hard, binding=row.binding)
        )  # fmt: skip
    return rows


def _residency(plan: Any, waves: int, use: KernelUse | None) -> list[ResourceRow]:
    """Returns rows of the blocks and waves that reside at once, for blocks of `waves` waves."""
    d, planned = plan.descriptor, plan.resources
    blocks = d.blocks_per_cu(use.arch_vgprs, use.acc_vgprs, use.sgprs, use.lds_bytes, waves) if use else None
    per_simd = None if blocks is None else -(-blocks * waves // d.simds_per_cu)
    note = "reside at once, by registers, LDS and wave slots together"
    slots, most = d.max_waves_per_simd * d.simds_per_cu // waves, d.max_waves_per_simd
    return [
        ResourceRow("block", "resident blocks", planned.blocks_per_cu, blocks, slots, "blocks a CU", note),
        ResourceRow("warp", "resident waves", planned.waves_per_simd, per_simd, most, "waves a SIMD", note),
    ]


def _intensities(plan: GemmPlan, counters: Mapping[str, int]) -> list[ResourceRow]:
    """Compares the FLOPs a byte of each level with the intensity that keeps the matrix units busy."""
    p, d = plan.problem, plan.descriptor
    peak, size = matrix_tflops(p, d), p.element_bytes
    flops = counters.get("mfma_flops", 0)

    def intensity(work: int, *names: str) -> float | None:
        total = sum(counters.get(name, 0) for name in names)
        return work / total if total else None

    def tile(rows: int, columns: int) -> float:
        return 2 * rows * columns / ((rows + columns) * size) if rows and columns else 0.0

    def row(node: str, derived: float, actual: float | None, limit: float, note: str) -> ResourceRow:
        unit = "FLOP/byte"
        return ResourceRow(node, "arithmetic intensity", derived, actual, limit, unit, note, floor=True)

    once = intensity(p.flops, "unique_read_bytes", "unique_write_bytes")
    loaded, read = intensity(flops, "global_read_bytes"), intensity(flops, "lds_read_bytes")
    block, warp = tile(plan.tile_m, plan.tile_n), tile(plan.warp_m, plan.warp_n)
    lds_limit = matrix_flops_per_clock(p, d) / d.lds_bytes_per_clock
    hbm = "HBM, every byte once; the limit is peak over bandwidth"
    return [
        row("device", p.flops / p.bytes_once, once, peak / d.hbm_bandwidth_tb, hbm),
        row("block", block, loaded, peak / d.reread_bandwidth_tb, "loads of A and B, re-reads included"),
        row("warp", warp, read, lds_limit, "LDS reads"),
    ]


def resource_table(rows: list[ResourceRow]) -> Sheet:
    """Makes the rows' table for a terminal: what binds, what is violated or below its floor, the others node by node."""
    ordered = sorted(rows, key=lambda row: ("binds", "violated", "below", "").index(row.mark))
    return table("Resources", COLUMNS, map(_cells, ordered), left=2, noted=sum(bool(row.mark) for row in rows))


def _cells(row: ResourceRow) -> tuple[object, ...]:
    limit = f">= {row.limit:.4g}" if row.floor else row.limit
    return row.node, limit_name(row.name, row.unit), row.derived, row.actual, limit, limit_note(row.mark, row.slack, row.note)


def resource_documents(rows: list[ResourceRow]) -> list[dict[str, Any]]:
    """Returns the rows for JSON."""
    names = ("node", "name", "derived", "actual", "limit", "slack", "unit", "note", "floor", "hard", "binding")
    return [{name: getattr(row, name) for name in names} for row in rows]
