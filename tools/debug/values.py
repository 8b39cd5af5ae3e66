"""Variables as text, as gdb prints them: numbers by lane, arrays and structs in braces."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.debugger.objects import view
from simgpu.hardware.errors import LaunchError
from simgpu.tools.debug.views import COLUMNS, lane_rows, number

if TYPE_CHECKING:
    from simgpu.debugger.locals import LocalValue
    from simgpu.debugger.objects import Object
    from simgpu.hardware.code_object.types import DwarfType

OPTIMIZED_OUT = "<optimized out>"
REPEATS = 10  # equal elements from which on their number is printed, as in gdb
GROUPS = 16  # lanes, or runs of equal lanes, of an array or struct that are printed
ELEMENTS = 200  # of an array that are printed, as in gdb
BRIEF = 8  # of an array in a list of variables


def summary(found: LocalValue, active: int) -> str:
    """Formats a variable in one line: its value, or those of the first active lanes if they differ."""
    return OPTIMIZED_OUT if found.object is None else brief(found.object, active)


def brief(found: Object, active: int) -> str:
    """Formats an object in one line. Arrays and structs that differ between lanes are those of the first active lane."""
    try:
        raw = found.raw()
    except LaunchError as error:
        return f"<{' '.join(str(error).split())}>"
    lanes = _lanes(raw, active)
    shown = [literal(found.type, raw[lane], "", BRIEF) for lane in lanes[: COLUMNS + 1]]
    if len({raw[lane].tobytes() for lane in lanes}) <= 1:
        return shown[0] if shown else "<no lane is active>"
    if _is_number(found.type):
        return "{" + ", ".join(shown[:COLUMNS]) + (", ..." if len(lanes) > COLUMNS else "") + "}"
    return f"{shown[0]} (lane {lanes[0]}; the lanes differ)"


def lines(found: Object, active: int, form: str) -> Iterator[str]:
    """Yields an object by lanes. (…) marks inactive lanes of a number; arrays and structs are printed for active lanes only."""
    raw = found.raw()
    if len(raw) == 1:
        yield from _wrap(f"{found.name} = {literal(found.type, raw[0], form)}", "    ")
    elif _is_number(found.type):
        cells = [literal(found.type, row, form) for row in raw]
        yield from lane_rows(found.name, [cell if active >> lane & 1 else f"({cell})" for lane, cell in enumerate(cells)])
    else:
        yield f"{found.name} ="
        groups = [list(same) for _, same in groupby(_lanes(raw, active), key=lambda lane: raw[lane].tobytes())]
        for first, *more in groups[:GROUPS]:
            where = f"[{first}]" if not more else f"[{first}-{more[-1]}]"
            yield from _wrap(f"{where:>9} {literal(found.type, raw[first], form)}", " " * 11)
        if len(groups) > GROUPS:
            yield f"and {sum(map(len, groups[GROUPS:]))} lanes more; an index after the last part shows one lane"


def literal(kind: DwarfType, raw: np.ndarray, form: str, most: int = ELEMENTS) -> str:
    """Formats the bytes of a value: a number, {1, 2, 3}, {x = 1, y = 2}."""
    if kind.kind == "array":
        size = kind.target.size
        rows = [raw[at * size : (at + 1) * size] for at in range(kind.count)]
        return "{" + ", ".join(_elements(rows, kind.target, form, most)) + "}"
    if kind.members:
        parts = (f"{each.name} = " * bool(each.name) + literal(each.type, raw[each.offset :][: each.type.size], form, most)
                 for each in kind.members)  # fmt: skip
        return "{" + ", ".join(parts) + "}"
    seen = view(raw[None], kind.kind, kind.size)[0]
    form = form or ("x" if kind.kind in ("pointer", "", "struct") else "")
    return _number(seen, form) if not np.ndim(seen) else " ".join(number(word, "x") for word in seen)


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 80, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _elements(rows: Sequence[np.ndarray], kind: DwarfType, form: str, most: int) -> Iterator[str]:
    """Yields the elements of an array; equal consecutive ones once, with their number."""
    shown = 0
    for _, same in groupby(rows, key=bytes):
        if shown >= most:
            yield "..."
            return
        held = list(same)
        text = literal(kind, held[0], form, most)
        if len(held) > REPEATS:
            yield f"{text} <repeats {len(held)} times>"
            shown += 1
            continue
        yield from [text] * min(len(held), most - shown)
        shown += len(held)
        if shown > most:
            yield "..."
            return


def _number(value: Any, form: str) -> str:
    return number(value, form if form == "x" or not form else "")


def _is_number(kind: DwarfType) -> bool:
    return not kind.members and kind.kind != "array"


def _lanes(raw: np.ndarray, active: int) -> list[int]:
    return [0] if len(raw) == 1 else [lane for lane in range(len(raw)) if active >> lane & 1]
