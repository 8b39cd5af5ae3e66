"""Bugs of waits and wait states: a result is used before it is there."""

from __future__ import annotations

import numpy as np

from simgpu.tools.museum.exhibit import Arrays, Exhibit


def _two_waves() -> Arrays:
    return {"x": np.arange(128, dtype=np.float32), "y": np.zeros(128, np.float32)}


def _one_wave() -> Arrays:
    return {"x": np.arange(1, 65, dtype=np.float32), "y": np.zeros(64, np.float32)}


def _tile() -> Arrays:
    return {"x": np.ones(64 * 8, np.float16), "y": np.zeros(64, np.float32)}


WAITS = {
    "barrier-before-wait": Exhibit(
        "A barrier before the wait",
        ("https://github.com/triton-lang/triton/issues/11696",),
        "Triton's two-cluster ping-pong schedule for gfx942 put s_barrier before the s_waitcnt of the LDS reads that the "
        "barrier should protect: the other waves overwrite the tile while the reads are on their way. 200 of 200 products "
        "were wrong.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1           ; the other wave's element
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b32 v1, v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v2                ; this step's tile
-  s_barrier
  s_waitcnt lgkmcnt(0)
+  s_barrier
  v_add_f32 v3, 1.0, v3
  ds_write_b32 v1, v3               ; the next step's
  global_store_dword v1, v4, s[6:7]
  s_endpgm
""",
        _two_waves, "missing-wait", block=128, lds=512,
        expected={"y": lambda arrays: np.roll(arrays["x"], 64)},
    ),
    "pack-before-reads": Exhibit(
        "Packing before all reads are there",
        ("https://github.com/ROCm/rocm-libraries/pull/3697", "https://github.com/ROCm/rocm-libraries/issues/3686"),
        "A hand-made schedule of hipBLASLt (TF32, 128x192x32) packed operands while one of their LDS reads was still counted "
        "as allowed to be out: s_waitcnt lgkmcnt(1) for two reads. Right on most runs.",
        "gfx950",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  ds_write_b32 v1, v2
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v3, v1
  v_xor_b32 v4, 4, v1
  ds_read_b32 v5, v4
-  s_waitcnt lgkmcnt(1)
+  s_waitcnt lgkmcnt(0)
  v_cvt_pk_bf16_f32 v6, v3, v5
  global_store_dword v1, v6, s[6:7]
  s_endpgm
""",
        _one_wave, "missing-wait", lds=256,
    ),
    "matrix-result-too-early": Exhibit(
        "A matrix result read too early",
        ("https://github.com/llvm/llvm-project/pull/126727", "https://github.com/llvm/llvm-project/pull/126732"),
        "gfx950 needs one wait state more than gfx942 before a vector instruction reads the result of a matrix instruction of "
        "4 to 16 passes, and LLVM's table had gfx942's: 11 instead of 12 behind 8 passes. Nothing interlocks; the old value "
        "is read.",
        "gfx950",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshlrev_b32 v20, 4, v0
  s_waitcnt lgkmcnt(0)
  global_load_dwordx4 v[2:5], v20, s[4:5]
  s_waitcnt vmcnt(0)
  v_mfma_f32_32x32x16_f16 v[8:23], v[2:5], v[2:5], 0
-  s_nop 10
+  s_nop 11
  v_add_f32 v6, 1.0, v8
  global_store_dword v1, v6, s[6:7]
  s_endpgm
""",
        _tile, "hazard",
        expected={"y": lambda arrays: np.full(64, 17, np.float32)},
    ),
}  # fmt: skip
