"""Variables that give a process a simulated GPU, and their words."""

from __future__ import annotations

TARGET, CHECK, SUPPRESSIONS = "SIMGPU", "SIMGPU_CHECK", "SIMGPU_SUPPRESSIONS"
CHECKS: dict[str, bool | str] = {"no": False, "yes": True, **{mode: mode for mode in ("performance", "numerics", "collect")}}
