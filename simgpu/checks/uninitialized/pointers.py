"""Finds the targets of a handler's pointers, and the shadow of their bytes.

Handlers make pointers in only a few ways: from the wave and the record, from stack slots, from the wave's LDS_BASE, and from a
device address plus the ALLOC_DELTA of its allocation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir

from simgpu.checks.uninitialized import shadow_layout
from simgpu.checks.uninitialized.rules import Shadow, any_bit, either
from simgpu.machine import layout
from simgpu.machine.frame import Frame
from simgpu.machine.values import I64, Builder, IrValue


@dataclass(frozen=True)
class Pointer:
    """Target of a pointer."""

    region: str  # state, register, staging, scratchpad, stack, lds, global, or "" without a shadow
    shadow: Any = None  # pointer to the shadow bytes, an IR value
    offset: int | None = None  # bytes from the region's root, if known
    derived: bool = False  # True if it was derived from an operand's pointer
    entry: Any = None  # pointer to the allocation's table entry, an IR value
    index: Any = None  # i1: an undefined index chose the place (stack only)

    @property
    def private(self) -> bool:
        """True if only this handler reads the bytes: its shadow also stores to them."""
        return self.region in ("stack", "scratchpad", "staging")


UNKNOWN = Pointer("")


def region_of(offset: int | None) -> str:
    """Returns the region of a wave's state that contains a byte offset. None: the offset comes from the record, so it is an
    operand's."""
    if offset is None or offset >= layout.VGPR:
        return "register"
    if offset < shadow_layout.SHADOWED_STATE:
        return "state"
    if offset >= layout.STAGING:
        return "staging"
    return "scratchpad" if layout.ADDRESSES <= offset < layout.STREAMS else ""


class Pointers:
    """Targets of one function's pointers, by the IR values that hold them."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._known: dict[Any, Pointer] = {}

    def of(self, value: Any) -> Pointer:
        return UNKNOWN if isinstance(value, ir.Constant) else self._known.get(value, UNKNOWN)

    def define(self, build: Builder, inst: Any, shadows: list[Shadow]) -> None:
        """Records the target of an instruction's result, if that is a pointer or a pointer's integer."""
        if inst.opname == "getelementptr":
            self._known[inst] = self._step(build, inst, shadows[1])
        elif inst.opname == "alloca":
            twin = build.alloca(inst.allocated_type)
            twin.align = inst.align
            # A plain pointer: llvmlite's alloca still has a type for its target.
            self._known[inst] = Pointer("stack", build.ptrtoint(twin, I64).pointer(), 0)
        elif inst.opname == "ptrtoint":
            self._known[inst] = self.of(inst.operands[0])
        elif inst.opname == "inttoptr":
            self._known[inst] = self._from_integer(build, inst.operands[0])

    def _step(self, build: Builder, inst: Any, index: Shadow) -> Pointer:
        offset = inst.indices[0]
        known = int(offset.constant) if isinstance(offset, ir.Constant) else None
        if inst.pointer is self.frame.wave:
            region = region_of(known)
            shadow = None
            if region in ("state", "register", "staging"):
                shadow = IrValue(build, self.frame.wave).at(shadow_layout.DELTA).at(offset)
            return Pointer(region, shadow, known)
        base = self.of(inst.pointer)
        together = base.offset + known if base.offset is not None and known is not None else None
        if base is UNKNOWN:
            return replace(base, offset=known)
        taint = base.index
        if base.region == "stack" and index is not None:
            taint = either(taint, any_bit(index))
        shadow = None
        if base.shadow is not None:
            shadow = build.gep(base.shadow, [offset], source_etype=inst.source_etype)
        return replace(base, shadow=shadow, offset=together, derived=True, index=taint)

    def _from_integer(self, build: Builder, value: Any) -> Pointer:
        found = self.of(value)
        if found is not UNKNOWN:
            return found
        opname = getattr(value, "opname", "")
        if opname == "load":
            pointer = value.operands[0]
            if getattr(pointer, "pointer", None) is self.frame.wave and _constant_index(pointer) == layout.LDS_BASE:
                context = IrValue(build, self.frame.wave).at(layout.CONTEXT).load(I64, 8).pointer()
                return Pointer("lds", (IrValue(build, value) + context.at(shadow_layout.LDS_SHADOW).load(I64, 8)).pointer())
        if opname == "add":
            for delta, address in (value.operands, value.operands[::-1]):
                entry = self._entry(delta)
                if entry is not None:
                    entry = IrValue(build, entry)
                    place = IrValue(build, address) + entry.at(layout.ALLOC_SHADOW).load(I64, 8)
                    return Pointer("global", place.pointer(), entry=entry)
        return UNKNOWN

    def _entry(self, delta: Any) -> Any | None:
        """Returns a pointer to the allocation's entry if the value is a loaded ALLOC_DELTA, else None."""
        if getattr(delta, "opname", "") != "load":
            return None
        pointer = delta.operands[0]
        if getattr(pointer, "opname", "") != "getelementptr" or self._ours(pointer.pointer):
            return None
        return pointer.pointer if _constant_index(pointer) == layout.ALLOC_DELTA else None

    def _ours(self, pointer: Any) -> bool:
        """True if a pointer goes into the wave, its record or the stack."""
        return pointer in (self.frame.wave, self.frame.record) or self.of(pointer).region != ""


def _constant_index(pointer: Any) -> int | None:
    index = pointer.indices[0]
    return int(index.constant) if isinstance(index, ir.Constant) else None

