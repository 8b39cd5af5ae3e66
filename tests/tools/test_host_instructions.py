"""Counts of host instructions: the same twice, and never fewer than the arithmetic needs."""

from __future__ import annotations

import platform
import signal
import sys

import pytest

from simgpu.tools.benchmarks.host_instructions import host_counts

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux", reason="the trap flag of x86-64 under Linux"
)


def test_counts_are_the_same_twice_and_at_least_the_fewest() -> None:
    handler = signal.getsignal(signal.SIGTRAP)
    first = host_counts("gfx942", 6)
    assert first == host_counts("gfx942", 6) and len(first) == 6
    assert all(one.executed >= one.least > 0 for one in first)
    assert signal.getsignal(signal.SIGTRAP) is handler


def test_a_row_is_read_and_written_once() -> None:
    """64 lanes of 32 bits are 256 bytes: 4, 8 or 16 vector registers of the host."""
    found = next(one for one in host_counts("gfx942", 1, "v_xor_b32") if "v_xor_b32" in one.line)
    rows = [4, 8, 16]
    assert any(2 * count <= found.least < found.executed <= 5 * count + 16 for count in rows), found
