"""Has the hooks of a frame (`frame.Hooks`) look at an access to memory; plain mode has none, and then nothing is emitted."""

from __future__ import annotations

import functools

from llvmlite import ir

from simgpu.machine.accesses import Access
from simgpu.machine.frame import Frame
from simgpu.machine.values import I1, IrValue


def take_rows(frame: Frame) -> bool:
    """Whether all hooks of the frame may be done with a row of LDS."""
    return all(hooks.takes_rows() for hooks in frame.hooks)


def row_taken(frame: Frame, first: IrValue) -> IrValue:
    """i1: whether all are done with this one; see `Hooks.row`."""
    done = frame.value(ir.Constant(I1, 1))
    for hooks in frame.hooks:
        done = frame.both(done, functools.partial(hooks.row, frame, first))
    return done


def overwrites(frame: Frame, access: Access) -> None:
    """Tell the frame's hooks of a store or atomic before others may see what it stores."""
    for hooks in frame.hooks:
        hooks.overwrite(frame, access)


def observe(frame: Frame, access: Access) -> None:
    """Tell the frame's hooks of an access whose bytes have moved."""
    for hooks in frame.hooks:
        hooks.access(frame, access)
