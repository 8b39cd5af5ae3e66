"""A kernel that tests of the model of time share, and a function that loads one with a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

import simgpu
from tests.support.kernels import loaded_kernel

# Each wave adds 1 to its 256 bytes, once, and once more if the workgroup's number is odd.
LOOP = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_lshl_b32 s6, s2, 8
v_lshl_add_u32 v1, v0, 2, s6
s_and_b32 s7, s2, 1
s_waitcnt lgkmcnt(0)
again:
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_add_u32 v2, 1, v2
global_store_dword v1, v2, s[4:5]
s_waitcnt vmcnt(0)
s_sub_u32 s7, s7, 1
s_cbranch_scc0 again
"""


def kernel_on_words(text: str, nbytes: int, target: str = "gfx90a", **options: Any) -> tuple[Any, Any]:
    """Loads a kernel of one buffer; returns it and a buffer of `nbytes` bytes: 0, 1, 2 … in words of 32 bits."""
    gpu = simgpu.Device(target, threads=1, max_instructions=options.pop("max_instructions", None))
    buffer = gpu.upload(np.arange(nbytes // 4, dtype=np.uint32))
    return loaded_kernel(gpu, text, "buffer", **options), buffer
