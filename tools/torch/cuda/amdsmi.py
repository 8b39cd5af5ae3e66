"""A substitute for ROCm's Python package `amdsmi`, if it is not installed: vLLM asks it for GPUs.

Names and meanings are the package's (ROCm's "AMD SMI Python API"); a handle is the device's number.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any

from simgpu.triton.driver import active_driver

# The PCI ID Repository, vendor 1002; programs choose tuned kernels by it.
_PCI = {"mi100": "0x738c", "mi210": "0x740f", "mi300x": "0x74a1", "mi355x": "0x75a3"}


class AmdSmiException(Exception):
    """Base of the package's errors."""


class AmdSmiMemoryType(IntEnum):
    """Kinds of memory."""

    VRAM, VIS_VRAM, GTT = range(3)


class AmdSmiLinkType(IntEnum):
    """Kinds of links between two devices."""

    INTERNAL, PCIE, XGMI = range(3)


def amdsmi_init(_flag: int = 2) -> None:
    """Does nothing: there is nothing to start."""


def amdsmi_shut_down() -> None:
    """Does nothing: there is nothing to end."""


def amdsmi_get_processor_handles() -> Sequence[int]:
    """Returns the devices."""
    return list(range(len(active_driver().session.gpus)))


def amdsmi_get_gpu_asic_info(handle: int) -> dict[str, Any]:
    """Returns name, architecture and number of CUs."""
    session = active_driver().session
    chip = session.gpus[handle].descriptor
    return {
        "market_name": f"simgpu {session.board}", "vendor_id": "0x1002", "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "device_id": _PCI.get(session.board, "N/A"), "rev_id": "0x00", "asic_serial": amdsmi_get_gpu_device_uuid(handle),
        "num_compute_units": chip.num_cus, "target_graphics_version": chip.arch,
    }  # fmt: skip


def amdsmi_get_gpu_device_uuid(handle: int) -> str:
    """Returns a UUID made from the device's number."""
    return f"{handle:08x}-0000-1000-8000-000000000000"


def amdsmi_get_gpu_enumeration_info(handle: int) -> dict[str, Any]:
    """Returns HIP's number of the device."""
    return {"hip_id": handle, "hip_uuid": amdsmi_get_gpu_device_uuid(handle)}


def amdsmi_get_gpu_memory_total(handle: int, mem_type: int) -> int:
    """Returns bytes of HBM; 0 for other kinds of memory."""
    return active_driver().session.gpus[handle].descriptor.hbm_bytes if mem_type == AmdSmiMemoryType.VRAM else 0


def amdsmi_topo_get_link_type(first: int, second: int) -> dict[str, Any]:
    """Returns one hop between any two devices."""
    return {"hops": int(first != second), "type": AmdSmiLinkType.XGMI if first != second else AmdSmiLinkType.INTERNAL}


def amdsmi_topo_get_numa_node_number(_handle: int) -> int:
    """Returns the first node for every device."""
    return 0


@contextlib.contextmanager
def importable() -> Iterator[None]:
    """Makes `import amdsmi` find this module for a block, if there is no other."""
    if "amdsmi" in sys.modules or importlib.util.find_spec("amdsmi") is not None:
        yield
        return
    sys.modules["amdsmi"] = sys.modules[__name__]
    try:
        yield
    finally:
        del sys.modules["amdsmi"]
