"""Environment variables that give a process a simulated GPU, and the values of `SIMGPU_CHECK`."""

from __future__ import annotations

TARGET, CHECK, SUPPRESSIONS = "SIMGPU", "SIMGPU_CHECK", "SIMGPU_SUPPRESSIONS"
SEEDS = {"weak": "SIMGPU_WEAK", "late": "SIMGPU_LATE"}  # by mode
CHECKS: dict[str, bool | str] = {"no": False, "yes": True, **{mode: mode for mode in ("performance", "numerics", "collect")}}
