"""A real GPU's clock, if ROCm's `amdsmi` module is installed."""

from __future__ import annotations

import importlib


def clock_mhz(index: int) -> int | None:
    """Current graphics clock of a GPU in MHz; None without amdsmi, or if it does not report one.

    amdsmi comes with ROCm, not from PyPI. Its index counts the machine's GPUs, not those of HIP_VISIBLE_DEVICES.
    """
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
        try:
            handle = smi.amdsmi_get_processor_handles()[index]
            said = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
        finally:
            smi.amdsmi_shut_down()
    except Exception:  # a half-installed driver may raise anything, and the clock is only for display
        return None
    clock = said.get("clk", said.get("cur_clk"))
    return clock if isinstance(clock, int) else None
