"""A smaller program that still fails: constants replace results, stores disappear, branches go one way."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace

from simgpu.tools.robustness.ir_programs import IrProgram
from simgpu.tools.robustness.ir_values import neutral

_RESULT = re.compile(r"  (%\w+) = ")
_NAME = re.compile(r"%\w+")
_TEST = re.compile(r"br i1 %\w+, ")


def reduce_program(program: IrProgram, fails: Callable[[IrProgram], bool]) -> IrProgram:
    """Removes the parts that `fails` does not need; halves of its lines first, single lines last."""
    size = 1 << 20
    while size:
        count = len(_places(program))
        size = min(size, count)
        first = 0
        while first < len(places := _places(program)):
            smaller = _drop_places(program, places[first : first + size])
            if fails(smaller):
                program = smaller
            else:
                first += size
        if size > 1 or len(_places(program)) == count:
            size //= 2
    return program


def _places(program: IrProgram) -> list[tuple[int, int]]:
    """Returns phase and index of the removable lines."""
    return [(phase, at) for phase, body in enumerate(program.bodies) for at, line in enumerate(body) if _may_go(line)]


def _may_go(line: str) -> bool:
    return "; T=" in line or (line.startswith("  ") and "; keep" not in line) or bool(_TEST.search(line))


def _drop_places(program: IrProgram, places: Collection[tuple[int, int]]) -> IrProgram:
    dropped = set(places)
    return replace(
        program,
        bodies=tuple(
            _shorter(body, {at for phase_of, at in dropped if phase_of == phase}) for phase, body in enumerate(program.bodies)
        ),
    )


def _shorter(body: tuple[str, ...], dropped: Collection[int]) -> tuple[str, ...]:
    """Removes lines: constants replace their results, and unused results disappear."""
    constants: dict[str, str] = {}
    lines = []
    for at, line in enumerate(body):
        if at not in dropped:
            lines.append(line)
        elif _TEST.search(line):
            lines.append(_TEST.sub("br i1 false, ", line))
        elif result := _RESULT.match(line):
            constants[result[1]] = neutral(line.partition("; T=")[2]) if "; T=" in line else ""
    lines = [_RESULT.sub(r"\g<0>", _NAME.sub(lambda name: constants.get(name[0], name[0]), line)) for line in lines]
    while True:
        used = {name for line in lines for name in _NAME.findall(line.partition(" = ")[2] or line)}
        fewer = [line for line in lines if not (result := _RESULT.match(line)) or result[1] in used]
        if len(fewer) == len(lines):
            return tuple(lines)
        lines = fewer
