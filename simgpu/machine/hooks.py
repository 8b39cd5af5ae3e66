"""Hooks: what checked mode emits around an instruction's body, and what a handler tells it of values and memory accesses.

Plain mode has no hooks, and then nothing is emitted. Otherwise each access that passed its bounds
checks is described to them, after its bytes moved, and each emits what it wants; a store to LDS is so before, too.
It may use the wave's ADDRESSES area; staging holds what a load read, until that is in registers, or
what a store writes, lane after lane. A row of LDS that all are done with beforehand (`row`) is neither described nor staged.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from simgpu.hardware.isa.instruction import Instruction
from simgpu.machine.values import I1, Value

if TYPE_CHECKING:
    from simgpu.machine.frame import Frame
    from simgpu.machine.mode import Mode
    from simgpu.machine.operands import Plan


@dataclass(frozen=True)
class Access:
    """One access; IR values unless the type says otherwise.

    space: "global" (device memory, private memory among it), "scalar" (one wave-wide range of
    device memory) or "lds"; offsets: bytes into the allocation or the LDS block, <64 x i64>, one
    i64 for scalar; lanes: i64 mask of the lanes served, None for scalar; size: bytes a lane (all
    bytes of a scalar access); entry: pointer to the allocation's entry (layout.ALLOC_*), None for
    LDS; contiguous: i1, each lane's bytes follow those of the lane before, None where not known.
    """

    space: str
    offsets: Any
    lanes: Any
    size: int
    reads: bool
    writes: bool
    atomic: bool = False
    entry: Any = None
    contiguous: Any = None


@dataclass(frozen=True)
class Sums:
    """Lanes of D that follow each other; IR values.

    group: i64, which of D's groups of so many lanes, counted from its first register; new, old: D and C there, vectors of floats;
    record: i64, the instruction's; spoilt: vector of i1, lanes whose elements of A or B are not finite, None where that is not
    known.
    """

    group: Any
    new: Any
    old: Any
    record: Any
    spoilt: Any = None


class Hooks:
    """What one check emits when a handler is compiled. An instance keeps nothing: handlers are shared by all launches."""

    sums = False  # whether it looks at matrix instructions by `summed`, which follows tiles of them too (`matrix.tiles`)

    @property
    def kind(self) -> type[Hooks]:
        """The class, by whose name handlers' keys know it."""
        return type(self)

    def concerns(self, inst: Instruction) -> bool:
        """Whether anything is emitted for the instruction; without any it shares plain handlers."""
        return True

    def plan(self, inst: Instruction, plan: Plan) -> Any:
        """What `before` and `after` need; may add slots and parts of the handler's key to the plan."""
        return None

    def leans(self, inst: Instruction, planned: Any) -> bool:
        """Whether `before` leaves a lean frame (`Frame.ask_for_whole`) where there is more to do than usual."""
        return False

    def before(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit ahead of the instruction's body."""

    def after(self, frame: Frame, inst: Instruction, planned: Any) -> None:
        """Emit behind the body, where the wave goes on with the next instruction."""

    def evaluated(self, frame: Frame, mode: Mode, arguments: Sequence[Any], results: Sequence[Any]) -> None:
        """Emit where the body of vector instruction `frame.inst` gave its results, before omod, clamp and the write.

        Both are what the body takes and returns: `lane.Value`s, or tuples of them. Of a packed instruction, once for each half.
        """

    def flushed(self, frame: Frame, value: Any, tiny: Any) -> None:
        """Emit where MODE replaces denormals of a vector instruction's operand or result by 0.

        value: `lane.Value` before; tiny: <64 x i1>, its lanes whose magnitude is below the least normal number, zeros among them.
        """

    def looks_at_rows(self) -> bool:
        """Whether `evaluated` or `flushed` emits anything, for whole rows."""
        kind = type(self)
        return kind.evaluated is not Hooks.evaluated or kind.flushed is not Hooks.flushed

    def summed(self, frame: Frame, sums: Sums) -> None:
        """Emit where some lanes of a matrix instruction's D have their sums, before they are written; only where `sums`."""

    def access(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` made an access to memory or LDS that passed its bounds checks."""

    def overwrite(self, frame: Frame, access: Access) -> None:
        """Emit where `frame.inst` is about to store to LDS; `access` follows."""

    def takes_rows(self) -> bool:
        """Whether `row` may be done with an access."""
        kind = type(self)
        return kind.access is Hooks.access and kind.overwrite is Hooks.overwrite

    def row(self, frame: Frame, first: Value) -> Any:
        """Emit where the 64 lanes of `frame.inst` are about to load or store 128 bits each of LDS, in a row from byte `first` (i64)
        on, in bounds; only where `takes_rows`. Returns whether it is done with the access (i1): by itself where it looks at none.

        It may be told of the access all the same, by `overwrite` and `access`, where others are not done with it.
        """
        return ir.Constant(I1, 1)

    def transfer(self, frame: Frame, target: Any, index: Any) -> None:
        """Emit where control goes from record `index` to record `target` (i32 values)."""

    def end(self, frame: Frame, index: Any) -> None:
        """Emit where a wave ends at record `index`."""


def take_rows(frame: Frame) -> bool:
    """Whether all hooks of the frame may be done with a row of LDS."""
    return all(hooks.takes_rows() for hooks in frame.hooks)


def row_taken(frame: Frame, first: Value) -> Value:
    """i1: whether all are done with this one; see `Hooks.row`."""
    done = frame.value(ir.Constant(I1, 1))
    for hooks in frame.hooks:
        done = frame.both(done, functools.partial(hooks.row, frame, first))
    return done


def overwrites(frame: Frame, access: Access) -> None:
    """Tell the frame's hooks of a store to LDS while it still holds what will be overwritten."""
    for hooks in frame.hooks:
        hooks.overwrite(frame, access)


def observe(frame: Frame, access: Access) -> None:
    """Tell the frame's hooks of an access whose bytes have moved."""
    for hooks in frame.hooks:
        hooks.access(frame, access)
