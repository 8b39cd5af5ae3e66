"""`simgpu derive`: tiles, every constraint with limit, use and slack, and the one that binds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.shared.gemm_options import headline, problem_document, tree_of
from simgpu.tools.shared.operator_options import add_operator_options, operator_tree
from simgpu.tools.tables.constraint_rows import COLUMNS, constraint_document, constraint_row
from simgpu.tools.tables.limits import show_limits


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_operator_options(parser)


def run(options: Namespace) -> int:
    """Prints the derivation; ResourceError behind it if the tiles cannot fit."""
    from simgpu.operators.feasibility import FeasibilityVisitor

    if options.op != "gemm":
        show_limits(operator_tree(options), options.op, options.json, bars=False)
        return 0
    tree = tree_of(options)
    plan = tree.derivation
    report = FeasibilityVisitor().visit(tree)
    grid_x, grid_y = plan.grid
    figures: dict[str, Any] = {
        **report.tiles,
        "grid": [grid_x, grid_y],
        "workgroup_size": plan.threads,
        "k_steps": plan.k_steps,
        "eta": plan.eta,
        "fill": plan.fill,
    }
    if options.json:
        print_json({
            **problem_document(tree),
            "feasible": report.feasible,
            "tiles": figures,
            "atom": plan.atom.mnemonic,
            "binding": report.binding.name,
            "constraints": [constraint_document(row) for row in report.constraints],
        })  # fmt: skip
    else:
        show(
            headline(tree),
            f"block tile {plan.tile_m} x {plan.tile_n} x {plan.tile_k}, "
            f"warp tile {plan.warp_m} x {plan.warp_n} x {plan.warp_k}, "
            f"{plan.waves_m} x {plan.waves_n} waves, {plan.stages} LDS stage(s), {plan.atom.mnemonic}",
            f"grid {grid_x} x {grid_y}, {plan.k_steps} k steps split {plan.split_k} ways, "
            f"eta {100 * plan.eta:.1f} %, fill {100 * plan.fill:.1f} %",
            table("Constraints", COLUMNS, (constraint_row(row) for row in report.constraints), left=2),
            f"\nBound by {report.binding.name}.",
        )
    plan.check()
    return 0
