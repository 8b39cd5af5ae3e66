"""Simulated devices that tests share, one for each target and mode."""

from __future__ import annotations

import functools

import simgpu


@functools.cache
def device(target: str, check: bool | str = False) -> simgpu.Device:
    """Returns the device of a target. Launches that change it, as by weak or late mode, make their own."""
    return simgpu.Device(target, check=check)
