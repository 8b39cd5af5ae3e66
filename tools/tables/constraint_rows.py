"""A constraint as a table row and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simgpu.operators.resources import Constraint

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
