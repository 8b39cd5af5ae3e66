"""Variables by which a process is given a simulated GPU, and the words that they take."""

from __future__ import annotations

TARGET, CHECK, SUPPRESSIONS = "SIMGPU", "SIMGPU_CHECK", "SIMGPU_SUPPRESSIONS"
CHECKS: dict[str, bool | str] = {"no": False, "yes": True, **{mode: mode for mode in ("performance", "numerics", "collect")}}
