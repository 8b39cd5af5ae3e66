"""Limits of a tree, its traffic, and the use of the limits, as tables and for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simgpu.hardware.errors import TargetError
from simgpu.tools.shared.console import number, table
from simgpu.tools.shared.sheet import Sheet

if TYPE_CHECKING:
    from simgpu.operators.feasibility import FeasibilityReport
    from simgpu.operators.resources import Constraint
    from simgpu.operators.tree import Root

CounterRow = tuple[str, str, float, str]  # node, counter, value, unit

_BAR = 30  # columns of a full bar


def sizes_line(sizes: Mapping[str, Any]) -> str:
    """Formats the policy's decisions on one line."""
    return ", ".join(f"{name} {_size(value)}" for name, value in sizes.items())


def _size(value: Any) -> str:
    return " x ".join(map(str, value)) if isinstance(value, list) else f"{value:.4g}" if isinstance(value, float) else f"{value}"


def bound_line(report: FeasibilityReport) -> str:
    """Names the constraint that binds, or what to change, in one line."""
    return f"Bound by {report.binding.name}." if report.feasible else f"Does not fit: {report.binding.name}; {report.remedy}."


def constraint_table(rows: Sequence[Constraint]) -> Sheet:
    """Makes the table of every limit of a tree with its use: the one that binds, the violated ones, the others node by node."""
    return table("Constraints", ("node", "constraint", "use", "limit", "used", "note"), map(_constraint, _order(rows)), left=2)


def _order(rows: Sequence[Constraint]) -> list[Constraint]:
    return sorted(rows, key=lambda row: (not row.binding, not row.hard or row.satisfied, row.level.depth))


def _constraint(row: Constraint) -> tuple[object, ...]:
    used = f"{100 * row.ratio:.1f} %" if row.limit else ""
    violated = row.hard and not row.satisfied
    note = f"{row.note}; {row.remedy}" if violated else row.note
    return row.level, row.name, row.use, row.limit, used, limit_note(
        "violated" if violated else "binds" if row.binding else "", row.unit, row.slack, note
    )  # fmt: skip


def limit_note(mark: str, unit: str, slack: float, note: str) -> str:
    """Formats what a limit's row says beside its figures. mark: "binds" or the like, or nothing."""
    room = f"{number(abs(slack))} {'left' if slack >= 0 else 'over'}"
    return f"{mark + ': ' if mark else ''}{unit}, {room}{'; ' if note else ''}{note}"


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
        ("atom", "hardware instructions", c.atoms, "wave instructions"),
    )
    return tuple(row for row in rows if row[2])


def counter_table(rows: Sequence[CounterRow]) -> Sheet:
    """Makes the rows' table for a terminal."""
    return table("Counters", ("node", "counter", "value", "unit"), rows, left=2)


def counter_documents(rows: Sequence[CounterRow]) -> list[dict[str, Any]]:
    """Returns the rows for JSON."""
    return [dict(zip(("level", "counter", "value", "unit"), row, strict=True)) for row in rows]


def bar_chart(rows: Sequence[Constraint]) -> Sheet:
    """Draws use over limit of each row as a bar; a bar past the mark at 100 % ends in an arrow."""
    cells = ((row.level, row.name, f"{100 * row.ratio:.0f} %", bar(row.ratio)) for row in _order(rows))
    return table("Used", ("node", "constraint", "used", "note"), cells, left=2)


def bar(ratio: float) -> str:
    """Draws a bar of `_BAR` columns for 100 %."""
    full = round(min(ratio, 1.0) * _BAR)
    return "█" * full + "·" * (_BAR - full) + ("▶" if ratio > 1 else "|")


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
