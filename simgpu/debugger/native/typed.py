"""Values of a condition's parts, with their types, and the interface of everything that walks an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INT, FLOAT, BOOL = "int", "float", "bool"


@dataclass(frozen=True)
class TypedValue:
    """Value of a part of an expression."""

    kind: str  # INT, FLOAT or BOOL
    lanes: bool  # True if there is a value for each lane
    value: Any  # NumPy value, IR value, or None for types only


class Backend:
    """Interface of a walk over an expression: one method for each kind of part, which returns its value."""

    def constant(self, kind: str, value: float) -> TypedValue: ...  # type: ignore[empty-body]
    def scalar(self, number: int, count: int) -> TypedValue: ...  # type: ignore[empty-body]
    def field(self, offset: int) -> TypedValue: ...  # type: ignore[empty-body]
    def vector(self, file: str, number: int) -> TypedValue: ...  # type: ignore[empty-body]
    def lane(self, value: TypedValue, lane: int) -> TypedValue: ...  # type: ignore[empty-body]
    def cast(self, name: str, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def floating(self, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def number(self, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def truth(self, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def absolute(self, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]
    def over_lanes(self, name: str, value: TypedValue) -> TypedValue: ...  # type: ignore[empty-body]


def result_kind(operator: str, a: TypedValue, b: TypedValue) -> str:
    return a.kind if a.kind == b.kind else FLOAT if FLOAT in (a.kind, b.kind) else INT


class ExpressionTypes(Backend):
    """Evaluates only types, to report errors when the expression is parsed."""

    def constant(self, kind: str, value: float) -> TypedValue:
        return TypedValue(kind, False, None)

    def scalar(self, number: int, count: int) -> TypedValue:
        return TypedValue(INT, False, None)

    def field(self, offset: int) -> TypedValue:
        return TypedValue(INT, False, None)

    def vector(self, file: str, number: int) -> TypedValue:
        return TypedValue(INT, True, None)

    def lane(self, value: TypedValue, lane: int) -> TypedValue:
        return TypedValue(value.kind, False, None)

    def cast(self, name: str, value: TypedValue) -> TypedValue:
        return TypedValue(INT if name in ("i32", "u32") else FLOAT, value.lanes, None)

    def floating(self, value: TypedValue) -> TypedValue:
        return TypedValue(FLOAT, value.lanes, None)

    def number(self, value: TypedValue) -> TypedValue:
        return TypedValue(INT, value.lanes, None) if value.kind == BOOL else value

    def truth(self, value: TypedValue) -> TypedValue:
        return TypedValue(BOOL, value.lanes, None)

    def absolute(self, value: TypedValue) -> TypedValue:
        return value

    def binary(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        return TypedValue(result_kind(operator, a, b), a.lanes or b.lanes, None)

    def compare(self, operator: str, a: TypedValue, b: TypedValue) -> TypedValue:
        return TypedValue(BOOL, a.lanes or b.lanes, None)

    def over_lanes(self, name: str, value: TypedValue) -> TypedValue:
        return TypedValue(BOOL, False, None)
