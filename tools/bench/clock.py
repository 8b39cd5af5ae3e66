"""A real GPU's clock, where ROCm's `amdsmi` module is installed."""

from __future__ import annotations

import importlib


def clock_mhz(index: int) -> int | None:
    """The graphics clock of a GPU now, MHz; None without amdsmi, or where it does not say.

    amdsmi comes with ROCm, not from PyPI, and its index is that of the machine, not of HIP_VISIBLE_DEVICES.
    """
    try:
        smi = importlib.import_module("amdsmi")
        smi.amdsmi_init()
        try:
            handle = smi.amdsmi_get_processor_handles()[index]
            said = smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)
        finally:
            smi.amdsmi_shut_down()
    except Exception:  # whatever a driver that is half installed raises: the clock is only told
        return None
    clock = said.get("clk", said.get("cur_clk"))
    return clock if isinstance(clock, int) else None
