"""The workgroup of a wave, for the functions that checked handlers call."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from simgpu.engine.scheduler import Slot
from simgpu.machine import layout
from simgpu.machine.runtime import PART, load32, load64, pointer

SLOT = np.dtype(Slot)


@numba.njit(**PART)
def waves_of(wave: int) -> int:
    """Waves of a whole workgroup."""
    return load64(load64(wave + layout.CONTEXT) + layout.CTX_WAVES)


@numba.njit(**PART)
def number_of(wave: int) -> int:
    """Which slot of its worker the wave's workgroup has."""
    return load32(wave + layout.HW_ID) // waves_of(wave)


@numba.njit(**PART)
def slot_of(wave: int) -> Any:
    """That slot, as the scheduler keeps it."""
    number, slots = number_of(wave), load64(load64(wave + layout.CONTEXT) + layout.CTX_SLOTS)
    return numba.carray(pointer(slots), number + 1, SLOT)[number]
