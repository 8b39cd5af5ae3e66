"""Variables of HIP and OpenCL sources at a moment, lane by lane, if debug information says what holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from simgpu.debugger.dynamic_lds import dynamic_arrays
from simgpu.debugger.objects import MOST_ELEMENTS, Fixed, Object, part_of, storage_of, target
from simgpu.hardware.code_object.locals import Local
from simgpu.hardware.code_object.types import DwarfType
from simgpu.hardware.errors import LaunchError

if TYPE_CHECKING:
    from simgpu.debugger.debugger import Debugger

_EXPRESSION = re.compile(r"\s*(\**)\s*(\w+)((?:\s*(?:\[\s*\d+\s*\]|(?:\.|->)\s*\w+))*)\s*(?:@\s*(\d+))?\s*")


@dataclass(frozen=True)
class LocalValue:
    """A variable in scope. Its values are read when they are requested."""

    name: str
    function: str  # the inlined function that has the variable; "" for the kernel's own
    object: Object | None  # None if it is optimized out
    is_global: bool = False

    @property
    def type(self) -> str:
        """Its type, such as f32, i64, pointer, array or struct; "" if it is shown as words."""
        return self.object.type.kind if self.object else ""

    @property
    def values(self) -> np.ndarray | None:
        """(64,) numbers, or () if the whole wave has one value; None if it is optimized out."""
        return self.object.values() if self.object else None


def local_values(debugger: Debugger, wave: int | None = None) -> list[LocalValue]:
    """Returns the variables in scope at a wave's place: the innermost scope first, then the kernel's arguments, then global ones.

    An inner variable hides an outer one of the same name.
    """
    number = debugger.wave if wave is None else wave
    address = debugger.code.virtual(debugger.record(wave))
    found: dict[str, LocalValue] = {}
    types: dict[str, DwarfType] = {}
    for local in debugger.kernel.module.code.debug.locals(address, debugger.kernel.info.group_segment_size):
        types.setdefault(local.name, local.layout)
        if local.name not in found or (found[local.name].object is None and not local.is_global):
            held = _object(debugger, local, number)
            found[local.name] = LocalValue(local.name, local.function, held, local.is_global)
    for array in dynamic_arrays(debugger, address, number):
        found.setdefault(array.name, LocalValue(array.name, "", array))
    for name, passed in _arguments(debugger):
        if name not in found or found[name].object is None or found[name].is_global:
            found[name] = LocalValue(name, "", replace(passed, type=types[name]) if _fits(types.get(name), passed) else passed)
    return sorted(found.values(), key=lambda each: each.is_global)


def object_named(debugger: Debugger, text: str, wave: int | None = None) -> Object | None:
    """Returns the variable, or part of one, that an expression of the source names; None if it names none.

    text: `i`, `t[3]`, `s.x`, `p->x`, `*p`, `*p@4` (an array from *p on); a last index of a number is a lane, `i[5]`. Raises
    LaunchError for a part that the variable lacks, and for a variable that is optimized out.
    """
    match = _EXPRESSION.fullmatch(text)
    whole = next((each for each in local_values(debugger, wave) if match and each.name == match[2]), None)
    if match is None or whole is None:
        return None
    if whole.object is None:
        raise LaunchError(f"{whole.name} = <optimized out>")
    number = debugger.wave if wave is None else wave
    active = debugger.snapshot(wave).exec
    found = part_of(debugger, number, whole.object, match[3], active)
    count = int(match[4] or 0)
    if count > MOST_ELEMENTS or (match[4] and not match[1]):
        raise LaunchError(f"{text.strip()}: write *p@4, with at most {MOST_ELEMENTS} elements")
    for left in range(len(match[1]), 0, -1):
        if found.type.kind == "array":
            found = part_of(debugger, number, found, "[0]", active)
        elif found.type.kind == "pointer":
            found = target(debugger, number, found, active, count=count if left == 1 else 0)
        else:
            raise LaunchError(f"*{found.name}: it is no pointer")
    return replace(found, name=text.strip())


def _fits(kind: DwarfType | None, passed: Object) -> bool:
    return kind is not None and kind.size == passed.type.size


def _arguments(debugger: Debugger) -> Iterator[tuple[str, Object]]:
    """Yields the kernel's arguments as they were passed; kernels change them only in registers."""
    segment, info = debugger.replay.launch.kernarg, debugger.kernel.info
    for argument, typed in zip(info.named_arguments, info.typed_arguments, strict=True):
        raw = segment[argument.offset : argument.offset + argument.size]
        kind = "pointer" if argument.is_pointer else typed.value_type
        held = Fixed(np.frombuffer(raw, np.uint8)[None], "it is optimized out")
        yield argument.name, Object(argument.name, DwarfType(kind, argument.size), held)


def _object(debugger: Debugger, local: Local, wave: int) -> Object | None:
    """Returns a variable, None if it is optimized out or in a place that is not supported."""
    if local.pieces is None:
        return None
    kind = local.layout if local.layout.size else DwarfType(local.type, sum(piece.size or 4 for piece in local.pieces))
    try:
        return Object(local.name, kind, storage_of(debugger, wave, local.pieces, kind, local.frame))
    except LaunchError:
        return None
