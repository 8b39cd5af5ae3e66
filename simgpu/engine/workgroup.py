"""The workgroup of a wave, for the functions that checked handlers call."""

from __future__ import annotations

from ctypes import sizeof
from typing import Any

import numpy as np

from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workers.scheduler import Slot
from simgpu.machine import layout
from simgpu.machine.runtime import load32, load64, part, structure

SLOT, SLOT_BYTES = np.dtype(Slot), sizeof(Slot)
# Of the context: address of the worker's `slots`; waves of a whole workgroup.
SLOTS, WAVES = context_fields("workgroup", 2)


@part
def context(wave: int, offset: int) -> int:
    """An i64 field of the worker's context."""
    return load64(load64(wave + layout.CONTEXT) + offset)


@part
def waves_of(wave: int) -> int:
    """Waves of a whole workgroup."""
    return context(wave, WAVES)


@part
def number_of(wave: int) -> int:
    """Which slot of its worker the wave's workgroup has."""
    return load32(wave + layout.HW_ID) // waves_of(wave)


@part
def slot_of(wave: int) -> Any:
    """That slot, as the scheduler keeps it."""
    return structure(context(wave, SLOTS) + SLOT_BYTES * number_of(wave), SLOT)
