"""Environment variables that give a process a simulated GPU, and the values of some."""

from __future__ import annotations

import os

from simgpu.hardware.errors import LaunchError

TARGET, CHECK, SUPPRESSIONS = "SIMGPU", "SIMGPU_CHECK", "SIMGPU_SUPPRESSIONS"
OPERATORS, HOST, SIMULATED = "SIMGPU_OPERATORS", "host", "simulated"  # where PyTorch's operators compute
COMPILE, EAGER, INDUCTOR = "SIMGPU_COMPILE", "eager", "inductor"  # how torch.compile compiles
SEEDS = {"weak": "SIMGPU_WEAK", "late": "SIMGPU_LATE"}  # by mode
CHECKS: dict[str, bool | str] = {"no": False, "yes": True, **{mode: mode for mode in ("performance", "numerics", "collect")}}


def simulates() -> bool:
    """True if PyTorch's operators compute on the simulated GPU. Raises LaunchError for an unknown word in the variable."""
    how = os.environ.get(OPERATORS) or HOST
    if how not in (HOST, SIMULATED):
        raise LaunchError(f"{OPERATORS}={how!r}: give {HOST} or {SIMULATED}")
    return how == SIMULATED
