"""Describes places in a launch: instructions by record, addresses by argument and element. Makes findings at them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from simgpu.engine.dispatch import Dispatch
from simgpu.engine.finding import Finding, lanes_of, moment
from simgpu.hardware.code_object.frames import library_words
from simgpu.hardware.isa import text


@dataclass(frozen=True)
class Event:
    """Events of one record, code and extra. Fields except `count` are those of the first event of the lowest workgroup."""

    code: int  # see `events.event`
    record: int
    wave: int  # number in the workgroup
    workgroup: tuple[int, int, int]
    lanes: int  # mask
    address: int
    extra: int  # data of the reporting check
    count: int  # number of events
    retired: int = -1  # instructions that the wave had retired before it, -1 if unknown


@dataclass(frozen=True)
class Location:
    """Place of an instruction in the code object."""

    pc: int  # virtual address
    text: str  # as LLVM prints it
    source: str  # the user's file:line, or ""
    frames: tuple[str, ...]  # that line and the lines inlined there, innermost first, see `Finding.frames`
    name: str  # as `CodeObject.address_name` prints it


def location_of(launch: Dispatch, record: int) -> Location:
    """Returns the location of a record's instruction."""
    inst = launch.instruction(record)
    pc = launch.program.base + 4 * record - launch.bias
    name = launch.code.address_name(launch.info, pc)
    return Location(pc, text(inst) if inst is not None else "", *launch.code.debug.place(pc), name)


def finding_at(
    launch: Dispatch, record: int, kind: str, message: str, *,
    earlier: int | None = None, by: Dispatch | None = None, event: Event | None = None, **fields: Any,
) -> Finding:  # fmt: skip
    """Returns a finding at a record's instruction.

    earlier: record of the other instruction that it names. by: its launch (default: the same).
    event: a handler's report, which gives wave, lanes and count.
    """
    here = location_of(launch, record)
    if earlier is not None:
        there = location_of(by or launch, earlier)
        fields |= {
            "other_pc": there.pc, "other_at": there.name, "other_text": there.text, "other_source": there.source,
            "other_frames": there.frames,
        }  # fmt: skip
    if event is not None:
        seen = {"wave": event.wave, "workgroup": event.workgroup, "lanes": lanes_of(event.lanes), "count": event.count}
        if event.retired >= 0:
            seen["when"] = moment(event.workgroup, event.wave, event.retired)
        fields = seen | fields
    fields |= {"source": here.source, "frames": here.frames, "kernel": launch.info.title, "at": here.name}
    return Finding(kind, message, here.pc, here.text, **fields)


def place(launch: Dispatch, index: int) -> str:
    """Describes a record's instruction for messages: code offset, pc, text and source line."""
    inst = launch.instruction(index)
    shown = text(inst) if inst is not None else "no instruction"
    virtual = launch.program.base + 4 * index - launch.bias
    line, frames = launch.code.debug.place(virtual)
    library = library_words(line, frames)
    at = launch.code.address_name(launch.info, virtual)
    return f"{at} (pc {virtual:#x}) `{shown}`" + (f" at {line}" if line else "") + (f" ({library})" if library else "")


def argument_names(launch: Dispatch) -> dict[int, str]:
    """Returns names of buffer arguments by device address: `argument x`, with dtype and shape if known."""
    names: dict[int, str] = {}
    for argument, value in zip(launch.info.named_arguments, launch.args, strict=False):
        address, form = getattr(value, "address", None), getattr(value, "form", None)
        if isinstance(address, int) and address not in names:
            names[address] = f"argument {argument.name}" + (f" ({form})" if form else "")
    return names


def element(launch: Dispatch, address: int) -> str:
    """Returns the element of an argument's buffer at an address, as ` (y[3, 5])` for messages; "" if no argument has it."""
    held = launch.memory.find(address)
    if held is not None and held.element is not None:
        return f" ({named})" if (named := held.element(address)) else ""
    for argument, value in zip(launch.info.named_arguments, launch.args, strict=False):
        if held is None or getattr(value, "address", None) != held.address:
            continue
        form, away = getattr(value, "form", None), address - held.address
        if form is None or away >= form.nbytes:
            return f" ({argument.name}, byte {away:#x})"
        at, byte = divmod(away, form.dtype.itemsize)
        index = ", ".join(str(int(i)) for i in np.unravel_index(at, form.shape or (1,)))
        return f" ({argument.name}[{index}]{f', byte {byte}' if byte else ''})"
    return ""
