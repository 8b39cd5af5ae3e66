"""Bugs of addresses: past the end, and all in the same bank."""

from __future__ import annotations

import numpy as np

from simgpu.tools.museum.exhibit import Arrays, Exhibit


def _samples() -> Arrays:
    return {"samples": np.arange(64, dtype=np.uint32) * 5, "bins": np.zeros(256, np.uint32)}


def _tile() -> Arrays:
    return {"x": np.arange(64, dtype=np.float32), "y": np.zeros(64, np.float32)}


ADDRESSES = {
    "past-the-last-bin": Exhibit(
        "A histogram past its last bin",
        ("https://github.com/zjin-lcf/HeCBench",),
        "HeCBench's histogram counts samples in bins that are not there. On a GPU the counts land in whatever lies behind the "
        "buffer, and the program's own check passes. Found by simgpu.",
        "gfx90a",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
+  v_min_u32 v2, 0xff, v2
  v_lshlrev_b32 v2, 2, v2
  v_mov_b32 v3, 1
  global_atomic_add v2, v3, s[6:7]
  s_endpgm
""",
        _samples, "out-of-bounds",
    ),
    "padding-that-does-not-help": Exhibit(
        "A padding that does not clear the conflicts",
        ("https://github.com/ROCm/rocm-libraries/pull/10720",),
        "tensilelite padded LDS rows by an even number of accesses (here 32 bytes for reads of 16). A row's stride stays an "
        "even multiple of an access, so the lanes meet the same banks as without. It must be an odd multiple: 16 bytes do.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
-  v_mul_u32_u24 v2, 0xa0, v0       ; the lane's row: 128 bytes and 32
+  v_mul_u32_u24 v2, 0x90, v0       ; the lane's row: 128 bytes and 16
  s_waitcnt lgkmcnt(0)
  global_load_dword v8, v1, s[4:5]
  s_waitcnt vmcnt(0)
  v_mov_b32 v9, v8
  v_mov_b32 v10, v8
  v_mov_b32 v11, v8
  ds_write_b128 v2, v[8:11]
  s_waitcnt lgkmcnt(0)
  ds_read_b128 v[12:15], v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v15, s[6:7]
  s_endpgm
""",
        _tile, "LDS bank conflicts", lds=64 * 160,
        expected={"y": lambda arrays: arrays["x"]},
    ),
}  # fmt: skip
