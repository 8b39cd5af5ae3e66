"""Calls the hooks of a frame (`frame.Hooks`) for an access to memory. In plain mode there are none, and nothing is emitted."""

from __future__ import annotations

import functools

from llvmlite import ir

from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame, Hooks
from simgpu.machine.values import I1, IrValue


def take_rows(frame: Frame) -> bool:
    """True if all hooks of the frame may finish a row of LDS."""
    return all(hooks.takes_rows() for hooks in frame.hooks)


def row_taken(frame: Frame, first: IrValue) -> IrValue:
    """Returns i1: all hooks have finished with this row; see `Hooks.row`."""
    done = frame.value(ir.Constant(I1, 1))
    for hooks in frame.hooks:
        done = frame.emit_and(done, functools.partial(hooks.row, frame, first))
    return done


def mover(frame: Frame) -> Hooks | None:
    """Returns the hooks that copy the bytes of accesses to device memory; None if the handler does."""
    return next((hooks for hooks in frame.hooks if hooks.moves), None)


def approach(frame: Frame, access: Access) -> None:
    """Calls the frame's hooks before an atomic or a scalar access to device memory."""
    for hooks in frame.hooks:
        hooks.approach(frame, access)


def overwrites(frame: Frame, access: Access) -> None:
    """Calls the frame's hooks for a store or atomic, before others may see the stored bytes."""
    for hooks in frame.hooks:
        hooks.overwrite(frame, access)


def observe(frame: Frame, access: Access) -> None:
    """Calls the frame's hooks for an access whose bytes have moved."""
    for hooks in frame.hooks:
        hooks.access(frame, access)
