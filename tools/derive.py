"""`simgpu derive`: tiles, every constraint with limit, use and slack, and the one that binds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from tools.console import print_json, show, table
from tools.problem import add_problem_options, headline, problem_document, tree_of

if TYPE_CHECKING:
    from operators.resources import Constraint


def configure(parser: ArgumentParser) -> None:
    """The verb's options."""
    add_problem_options(parser)


def run(options: Namespace) -> int:
    """Prints the derivation; ResourceError behind it if the tiles cannot fit."""
    from operators.feasibility import FeasibilityVisitor

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
            f"grid {grid_x} x {grid_y}, {plan.k_steps} k steps, "
            f"eta {100 * plan.eta:.1f} %, fill {100 * plan.fill:.1f} %",
            table("Constraints", COLUMNS, (constraint_row(row) for row in report.constraints), left=2),
            f"\nBound by {report.binding.name}.",
        )
    plan.check()
    return 0


COLUMNS = ("node", "constraint", "limit", "use", "slack", "used", "", "unit", "note")


def constraint_row(row: Constraint) -> tuple[object, ...]:
    """A constraint as a table row."""
    used = f"{100 * row.ratio:.1f} %" if row.limit else ""
    mark = "violated" if row.hard and not row.satisfied else "binds" if row.binding else ""
    return row.level, row.name, row.limit, row.use, row.slack, used, mark, row.unit, row.note


def constraint_document(row: Constraint) -> dict[str, Any]:
    """A constraint for JSON."""
    names = ("name", "limit", "use", "slack", "unit", "hard", "satisfied", "binding", "note", "remedy")
    return {"node": str(row.level), **{name: getattr(row, name) for name in names}}
