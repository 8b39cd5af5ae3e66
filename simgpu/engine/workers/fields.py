"""Offsets of checks' fields in the worker's context, in a wave's state and in an allocation's entry."""

from __future__ import annotations

from simgpu.machine import layout

# The order is the same for every device, because compiled handlers are cached and contain the offsets.
OWNERS = (
    "paths", "in_flight", "lds_dma", "races", "late_arrival", "debugger", "workgroup", "events", "uninitialized", "bounds",
    "performance", "path_trace", "flow", "numerics", "shadow", "writer",
    "touching", "weak",
)  # fmt: skip


def context_fields(owner: str, count: int) -> range:
    """Returns the offsets of i64 fields in the worker's context."""
    return _fields(layout.CTX_CHECKS, owner, count)


def wave_fields(owner: str, count: int) -> range:
    """Returns the offsets of i64 fields in a wave's state; they are 0 when the wave begins."""
    return _fields(layout.WAVE_CHECKS, owner, count)


def allocation_fields(owner: str, count: int) -> range:
    """Returns the offsets of i64 fields in an allocation's entry."""
    return _fields(layout.ALLOC_CHECKS, owner, count)


def _fields(parts: range, owner: str, count: int) -> range:
    first = parts[OWNERS.index(owner)]
    assert 8 * count <= parts.step, owner
    return range(first, first + 8 * count, 8)
