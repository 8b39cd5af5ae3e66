"""Limits of a tree, its traffic, and the use of the limits, as tables and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import TargetError
from simgpu.tools.shared.console import number, table
from simgpu.tools.shared.sheet import Items, Sheet

if TYPE_CHECKING:
    from simgpu.operators.feasibility import FeasibilityReport
    from simgpu.operators.resources import Constraint
    from simgpu.operators.tree import Root

CounterRow = tuple[str, str, float, str]  # node, counter, value, unit

def sizes_line(sizes: Mapping[str, Any]) -> Items:
    """Formats the policy's decisions on one line, or a few in a narrow window."""
    return Items(f"{name} {_size(value)}" for name, value in sizes.items())


def _size(value: Any) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else f"{value:.4g}" if isinstance(value, float) else f"{value}"


def bound_line(report: FeasibilityReport) -> str:
    """Names the constraint that binds, or what to change, in one line."""
    row = report.binding
    if not report.feasible:
        return f"Does not fit: {row.name}; {report.remedy}."
    unit = f" ({row.unit})" if row.unit else ""
    return f"Bound by {row.name}{unit}: {number(row.use)} of {number(row.limit)}."


def constraint_table(rows: Sequence[Constraint]) -> Sheet:
    """Makes the table of every limit of a tree with its use: the one that binds, the violated ones, the others node by node."""
    ordered = sorted(rows, key=lambda row: (not row.binding, not row.hard or row.satisfied, row.level.depth))
    noted = sum(row.binding or (row.hard and not row.satisfied) for row in rows)
    return table("Constraints", ("node", "constraint", "use", "limit", "used", "note"), map(_constraint, ordered), 2, noted)


def _constraint(row: Constraint) -> tuple[object, ...]:
    used = f"{100 * row.ratio:.1f} %" if row.limit else ""
    violated = row.hard and not row.satisfied
    note = f"{row.note}; {row.remedy}" if violated else row.note
    mark = "violated" if violated else "binds" if row.binding else ""
    return row.level, limit_name(row.name, row.unit), row.use, row.limit, used, limit_note(mark, row.slack, note)


def errata_line(rows: Sequence[Constraint]) -> str:
    """Says what E1 and the like in notes are; nothing without them."""
    return "E1 to E31 are errata of the paper: simgpu help paper" if any("(E" in row.note for row in rows) else ""


def limit_name(name: str, unit: str) -> str:
    """Returns the name of a limit or counter with its unit."""
    return name if not unit or unit in name else f"{name}, {unit}"


def limit_note(mark: str, slack: float, note: str) -> str:
    """Formats what a limit's row says beside its figures. mark: "binds" or the like, or nothing."""
    left = number(abs(slack))
    room = f"below by {left}" if mark == "below" else f"{mark + ': ' if mark else ''}{left} {'left' if slack >= 0 else 'over'}"
    return f"{room}; {note}" if note else room


def constraint_document(row: Constraint) -> dict[str, Any]:
    """Returns a constraint's JSON document."""
    names = ("name", "limit", "use", "slack", "unit", "hard", "satisfied", "binding", "note", "remedy")
    return {"node": str(row.level), **{name: getattr(row, name) for name in names}}


def limits_document(report: FeasibilityReport) -> dict[str, Any]:
    """Returns tiles, limits and the binding constraint, node by node, for JSON."""
    return {
        "feasible": report.feasible, "tiles": report.tiles, "binding": report.binding.name,
        "nodes": [{"level": str(n.level), "title": n.title, "tiles": {k: list(v) for k, v in n.tiles.items()},
                   "constraints": [constraint_document(row) for row in n.constraints]} for n in report.nodes],
        "constraints": [constraint_document(row) for row in report.constraints],
    }  # fmt: skip


def counter_rows(tree: Root) -> tuple[CounterRow, ...]:
    """Returns the tree's work and traffic: node, counter, value, unit; no row for a level without traffic."""
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
        ("atom", "hardware instructions of waves", c.atoms, "instructions"),
    )
    return tuple(row for row in rows if row[2])


def counter_table(rows: Sequence[CounterRow]) -> Sheet:
    """Makes the rows' table for a terminal."""
    cells = ((node, limit_name(name, unit), value) for node, name, value, unit in rows)
    return table("Counters", ("node", "counter", "value"), cells, left=2)


def counter_documents(rows: Sequence[CounterRow]) -> list[dict[str, Any]]:
    """Returns the rows for JSON."""
    return [dict(zip(("level", "counter", "value", "unit"), row, strict=True)) for row in rows]


def target_answers(tree: Root, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Derives the same problem and policy on each target: tiles, binding constraint, bytes, limits used."""
    from simgpu.hardware import target
    from simgpu.operators.feasibility import tree_report
    from simgpu.operators.traffic import block_counters

    answers: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            there = tree.on(target(name))
            report = tree_report(there)
        except TargetError as error:
            answers[name] = {"fits": str(error)}
            continue
        moved = {"bytes, re-reads included": block_counters(there).global_bytes} if report.feasible else {}
        answers[name] = {
            **report.tiles,
            "binding": report.binding.name,
            "fits": "yes" if report.feasible else report.remedy,
            **moved,
            **{row.name: f"{100 * row.ratio:.0f} %" for row in report.constraints},
        }
    return answers


def target_table(answers: Mapping[str, Mapping[str, Any]]) -> Sheet:
    """Makes the table of the answers, one column per target."""
    lines = dict.fromkeys(line for answer in answers.values() for line in answer)
    return table("Targets", ("", *answers), ((line, *(answer.get(line) for answer in answers.values())) for line in lines))
