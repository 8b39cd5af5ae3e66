"""What derive and report print for any operator: sizes, limits as a table and as bars, several targets side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from simgpu.hardware.errors import TargetError
from simgpu.tools.shared.console import print_json, show, table
from simgpu.tools.shared.operator_options import operator_document
from simgpu.tools.tables.constraint_rows import COLUMNS, constraint_document, constraint_row

if TYPE_CHECKING:
    from simgpu.operators.resources import Constraint
    from simgpu.operators.tree import Root

CounterRow = tuple[str, str, float, str]  # node, counter, value, unit

_BAR = 40  # columns of a full bar


def show_limits(
    tree: Root,
    op: str,
    as_json: bool,
    bars: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
    parts: Sequence[RenderableType] = (),
) -> None:
    """Sizes and limits, node by node; ResourceError behind them if the tiles cannot fit.

    more: what JSON says besides; parts: the same for people.
    """
    from simgpu.operators.feasibility import FeasibilityVisitor

    plan = tree.derivation
    report = FeasibilityVisitor().visit(tree)
    counted = counter_rows(tree) if bars and report.feasible else ()
    if as_json:
        print_json({
            **operator_document(tree, op), "feasible": report.feasible, "tiles": report.tiles, "binding": report.binding.name,
            "counters": counter_documents(counted),
            "nodes": [{"level": str(n.level), "title": n.title, "tiles": {k: list(v) for k, v in n.tiles.items()},
                       "constraints": [constraint_document(row) for row in n.constraints]} for n in report.nodes],
            "constraints": [constraint_document(row) for row in report.constraints],
            **more,
        })  # fmt: skip
    else:
        show(
            f"{plan.title}, {report.policy} tiles",
            ", ".join(f"{name} {value}" for name, value in report.tiles.items()),
            table("Constraints", COLUMNS, (constraint_row(row) for row in report.constraints), left=2),
            *((counter_table(counted),) if counted else ()),
            *((bar_chart(report.constraints),) if bars else ()),
            f"\nBound by {report.binding.name}.",
            *parts,
        )
    plan.check()


def counter_table(rows: Sequence[CounterRow]) -> Table:
    """The rows for a terminal."""
    return table("Counters", ("node", "counter", "value", "unit"), rows, left=2)


def counter_documents(rows: Sequence[CounterRow]) -> list[dict[str, Any]]:
    """The rows for JSON."""
    return [dict(zip(("level", "counter", "value", "unit"), row, strict=True)) for row in rows]


def counter_rows(tree: Root) -> tuple[CounterRow, ...]:
    """What the tree computes and moves: node, counter, value, unit; of a level that moves nothing, no row."""
    from simgpu.operators.traffic import block_counters

    c = block_counters(tree)
    rows = (
        ("device", "useful work", c.flops, "FLOP"),
        ("device", "HBM, every byte once", c.hbm_bytes, "bytes"),
        ("device", "arithmetic intensity", c.flops / c.hbm_bytes, "FLOP/byte"),
        ("block", "loads and stores, re-reads included", c.global_bytes, "bytes"),
        ("block", "arithmetic intensity", c.flops / c.global_bytes, "FLOP/byte"),
        ("block", "LDS writes", c.lds_write_bytes, "bytes"),
        ("warp", "LDS reads", c.lds_read_bytes, "bytes"),
        ("warp", "arithmetic intensity", c.flops / c.lds_read_bytes if c.lds_read_bytes else 0, "FLOP/byte"),
        ("atom", "hardware instructions", c.atoms, "wave instructions"),
    )
    return tuple(row for row in rows if row[2])


def bar_chart(rows: tuple[Constraint, ...]) -> Table:
    """Use over limit of each row as a bar; a bar past the mark at 100 % ends in an arrow."""
    return table(
        "Used",
        ("node", "constraint", "used", "note"),
        ((r.level, r.name, f"{100 * r.ratio:.0f} %", bar(r.ratio)) for r in rows),
        left=2,
    )


def bar(ratio: float) -> str:
    """A bar of `_BAR` columns for 100 %."""
    full = round(min(ratio, 1.0) * _BAR)
    return "█" * full + "·" * (_BAR - full) + ("▶" if ratio > 1 else "|")


def show_targets(tree: Root, op: str, names: list[str], as_json: bool) -> None:
    """The same problem and policy derived for each target, side by side."""
    from simgpu.hardware import target
    from simgpu.operators.feasibility import FeasibilityVisitor
    from simgpu.operators.traffic import block_counters

    answers: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            report = FeasibilityVisitor(target(name)).visit(tree)
        except TargetError as error:
            answers[name] = {"fits": str(error)}
            continue
        moved = {"bytes, re-reads included": block_counters(tree.on(target(name))).global_bytes} if report.feasible else {}
        rates = {row.name: f"{100 * row.ratio:.0f} %" for row in report.constraints}
        answers[name] = {
            **report.tiles,
            "binding": report.binding.name,
            "fits": "yes" if report.feasible else report.remedy,
            **moved,
            **rates,
        }
    if as_json:
        print_json({**operator_document(tree, op), "targets": answers})
        return
    lines = dict.fromkeys(line for answer in answers.values() for line in answer)
    show(
        tree.derivation.title,
        table("Targets", ("", *answers), ((line, *(a.get(line) for a in answers.values())) for line in lines)),
    )
