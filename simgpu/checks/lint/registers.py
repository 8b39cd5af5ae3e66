"""Represents sets of registers as the bits of an integer, for joins, intersections and tests."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from simgpu.hardware.timing_rules.register_use import Register

# First bit of each file, and bits of the named machine state. gfx1250 has 1,024 VGPRs.
FILES = {"v": 0, "a": 1024, "s": 1280, "hwreg": 1416}
NAMED = {"vcc": 1408, "exec": 1409, "m0": 1410, "scc": 1411, "mode": 1412}
VECTORS = (1 << FILES["s"]) - 1  # all VGPRs and AccVGPRs
EXEC, SCC, VCC, M0 = (1 << NAMED[name] for name in ("exec", "scc", "vcc", "m0"))


def bits(registers: Iterable[Register]) -> int:
    """Returns the set of these registers."""
    found = 0
    for register in registers:
        found |= 1 << (NAMED[register] if isinstance(register, str) else FILES[register[0]] + register[1])
    return found


def span(file: str, first: int, count: int) -> int:
    """Returns the set of `count` registers of a file, from `first` on."""
    return ((1 << count) - 1) << FILES[file] + first


@cache
def name(position: int) -> str:
    """Returns the register of a bit, as LLVM prints it."""
    for register, at in NAMED.items():
        if at == position:
            return register
    file = max((f for f in FILES if FILES[f] <= position), key=lambda f: FILES[f])
    number = position - FILES[file]
    return f"hwreg {number}" if file == "hwreg" else f"{file}{number}"


def first(registers: int) -> str:
    """Returns the name of the lowest register of a set, "" for the empty set."""
    return name((registers & -registers).bit_length() - 1) if registers else ""
