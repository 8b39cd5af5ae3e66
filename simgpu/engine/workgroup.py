"""Finds the workgroup of a wave, for the functions that checked handlers call."""

from __future__ import annotations

from ctypes import addressof, sizeof
from typing import TYPE_CHECKING, Any

import numpy as np

from simgpu.engine.workers.fields import context_fields
from simgpu.engine.workers.scheduler import Slot
from simgpu.machine import layout
from simgpu.machine.runtime import load32, load64, part, structure

if TYPE_CHECKING:
    from simgpu.engine.workers.worker import Worker

SLOT, SLOT_BYTES = np.dtype(Slot), sizeof(Slot)
# Context fields: address of the worker's `slots`; waves of a whole workgroup.
SLOTS, WAVES = context_fields("workgroup", 2)


def prepare(worker: Worker, waves: int) -> None:
    """Sets a worker's context for these functions. waves: of a whole workgroup."""
    worker.set_context(SLOTS, addressof(worker.slots))
    worker.set_context(WAVES, waves)


@part
def context(wave: int, offset: int) -> int:
    """Returns an i64 field of the wave's context. offset: in bytes."""
    return load64(load64(wave + layout.CONTEXT) + offset)


@part
def waves_of(wave: int) -> int:
    """Returns the waves of a whole workgroup."""
    return context(wave, WAVES)


@part
def number_of(wave: int) -> int:
    """Returns the index of the wave's workgroup among its worker's slots."""
    return load32(wave + layout.HW_ID) // waves_of(wave)


@part
def slot_of(wave: int) -> Any:
    """Returns the scheduler's `Slot` of the wave's workgroup."""
    return structure(context(wave, SLOTS) + SLOT_BYTES * number_of(wave), SLOT)
