"""An operator's tree for a page: nodes with their tiles and limits, its traffic, its roofline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from simgpu.operators.tree import Root
from simgpu.tools.tables.limits import constraint_document

if TYPE_CHECKING:
    from simgpu import Run
    from simgpu.tools.tables.resources import ResourceRow

MOST_CHILDREN = 100_000  # at most, of a node's children that are counted


def tree_document(tree: Root) -> dict[str, Any]:
    """Returns the first node of each level, with its views' extents and its limits."""
    nodes = list(tree.representatives())
    plan = tree.derivation
    return {
        "title": plan.title, "policy": plan.policy, "binding": plan.binding.name, "feasible": plan.feasible, "remedy": plan.remedy,
        "nodes": [
            {"level": str(node.level), "sections": [list(section) for section in node.describe()],
             "children": sum(1 for _ in islice(node.children(), MOST_CHILDREN)),
             "views": [{"operand": v.operand, "extents": [[e.min_, e.max_, e.tile] for e in v.extents]} for v in node.views],
             "constraints": [constraint_document(row) for row in node.constraints()]}
            for node in nodes
        ],
    }  # fmt: skip


def resources_document(kernels: Sequence[tuple[str, Sequence[ResourceRow]]]) -> list[dict[str, Any]]:
    """Returns linked kernels' resources and their limits."""
    from simgpu.tools.tables.resources import resource_documents

    return [{"kernel": name, "rows": resource_documents(list(rows))} for name, rows in kernels if rows]


def roofline_document(tree: Root, points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns ceilings of a tree's GPU, TFLOPS and TB/s by its descriptor, and points: a name, FLOPs, bytes by level, perhaps
    seconds."""
    chip = tree.descriptor
    lds = chip.lds_bytes_per_clock * chip.num_cus * chip.clock_mhz * 1e6 / 1e12
    return {
        "gpu": chip.name or chip.arch, "dtype": tree.problem.dtype, "peak": tree.derivation.peak_tflops,
        "ceilings": {"LDS": lds, "L2": chip.l2_bandwidth_tb, "HBM": chip.hbm_bandwidth_tb}, "points": list(points),
    }  # fmt: skip


def plan_point(tree: Root) -> dict[str, Any]:
    """Returns the point of a tree's planned FLOPs and bytes."""
    from simgpu.operators.traffic import block_counters

    c = block_counters(tree)
    moved = {"HBM": c.hbm_bytes, "L2": c.global_bytes, "LDS": c.lds_read_bytes}
    return {"name": "planned", "flops": c.flops, "bytes": {name: value for name, value in moved.items() if value}}


def run_point(name: str, run: Run, flops: int = 0) -> dict[str, Any]:
    """Returns the point of a launch's FLOPs and bytes. flops: useful ones, if known; else those of its matrix instructions."""
    c = run.counters
    distinct = c.get("unique_read_bytes", 0) + c.get("unique_write_bytes", 0)
    asked = c.get("global_read_bytes", 0) + c.get("global_write_bytes", 0)
    moved = {"HBM": distinct, "L2": asked, "LDS": c.get("lds_read_bytes", 0)}
    by_level = {level: value for level, value in moved.items() if value}
    return {"name": name, "flops": flops or c.get("mfma_flops", 0), "bytes": by_level}
