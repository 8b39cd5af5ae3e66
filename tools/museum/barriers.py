"""Bugs of order between waves and workgroups: one reads what another has not written yet, or writes what another still reads."""

from __future__ import annotations

import numpy as np

from simgpu.tools.museum.exhibit import Arrays, Exhibit


def _two_waves() -> Arrays:
    return {"x": np.arange(1, 129, dtype=np.float32), "y": np.zeros(128, np.float32)}


def _four_groups() -> Arrays:
    return {"x": np.arange(256, dtype=np.float32), "y": np.zeros(256, np.float32)}


def _flags() -> Arrays:
    return {"partial": np.zeros(128, np.float32), "flags": np.zeros(2, np.uint32), "y": np.zeros(64, np.float32)}


BARRIERS = {
    "store-behind-barrier": Exhibit(
        "A store that sank behind the barrier",
        ("https://github.com/ROCm/rocm-libraries/pull/10893", "https://github.com/ROCm/rocm-libraries/pull/11454"),
        "Composable Kernel's block_sync_lds() was s_waitcnt and s_barrier without a fence, so LLVM was free to move LDS "
        "stores across it, and one day a cost model did. 57 of 60 runs failed.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1           ; the other wave's element
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(0)
-  s_barrier
  ds_write_b32 v1, v3
  s_waitcnt lgkmcnt(0)
+  s_barrier
  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  global_store_dword v1, v4, s[6:7]
  s_endpgm
""",
        _two_waves, "race", block=128, lds=512,
        expected={"y": lambda arrays: np.roll(arrays["x"], 64)},
    ),
    "scratch-used-twice": Exhibit(
        "One LDS array for two reductions",
        ("https://github.com/zjin-lcf/HeCBench",),
        "HeCBench's layernorm and groupnorm keep the waves' sums in LDS, then the waves' squares in the same place: a fast "
        "wave stores its second sum while a slow one still reads the first. Another __syncthreads() between the two is "
        "needed. Found by simgpu.",
        "gfx90a",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_lshrrev_b32 v2, 6, v0           ; the wave
  v_lshlrev_b32 v2, 2, v2
  v_mov_b32 v3, 0
  v_mov_b32 v4, 1.0
  ds_write_b32 v2, v4               ; the wave's sum
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b64 v[6:7], v3
  s_waitcnt lgkmcnt(0)
  v_add_f32 v8, v6, v7
+  s_barrier
  v_mov_b32 v5, 2.0
  ds_write_b32 v2, v5               ; the wave's squares
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b64 v[6:7], v3
  s_waitcnt lgkmcnt(0)
  v_add_f32 v9, v6, v7
  v_sub_f32 v8, v9, v8
  global_store_dword v1, v8, s[6:7]
  s_endpgm
""",
        _two_waves, "race", block=128, lds=8,
        expected={"y": lambda arrays: np.full(128, 2, np.float32)},
    ),
    "next-step-overwrites": Exhibit(
        "A loop without its second barrier",
        ("https://github.com/Luce-Org/lucebox/pull/739",),
        "A staged kernel fills LDS at the top of each step and reads it below; a barrier stood behind the fill and none "
        "behind the reads, so a fast wave fills for the next step while a slow one still adds up. The scores changed from run "
        "to run.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_xor_b32 v2, 0x100, v1
  v_mov_b32 v5, 0
  s_mov_b32 s8, 3
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(0)
step:
  ds_write_b32 v1, v3
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v4, v2
  s_waitcnt lgkmcnt(0)
  v_add_f32 v5, v4, v5
  v_add_f32 v3, v3, v3
+  s_barrier
  s_sub_u32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 step
  global_store_dword v1, v5, s[6:7]
  s_endpgm
""",
        _two_waves, "race", block=128, lds=512,
        expected={"y": lambda arrays: 7 * np.roll(arrays["x"], 64)},
    ),
    "neighbour-in-place": Exhibit(
        "A workgroup reads what another one writes",
        ("https://github.com/zjin-lcf/HeCBench",),
        "HeCBench's particlefilter reads, in one kernel, elements that other workgroups of the same launch write: which value "
        "arrives depends on the order in which the GPU happens to run them. Found by simgpu; the repair writes to an array of "
        "its own.",
        "gfx90a",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s3, s2, 6
  v_add_u32 v1, s3, v0
  v_max_u32 v2, 1, v1
  v_subrev_u32 v2, 1, v2
  v_lshlrev_b32 v1, 2, v1
  v_lshlrev_b32 v2, 2, v2
  s_waitcnt lgkmcnt(0)
  global_load_dword v3, v2, s[4:5]  ; the neighbour before
  s_waitcnt vmcnt(0)
-  global_store_dword v1, v3, s[4:5]
+  global_store_dword v1, v3, s[6:7]
  s_endpgm
""",
        _four_groups, "race", grid=4,
    ),
    "flag-from-a-cache": Exhibit(
        "A flag that is polled from a cache",
        ("https://github.com/ROCm/rocm-libraries/pull/8726", "https://github.com/ROCm/tritonBLAS/issues/61"),
        "Stream-K's workgroups hand partial tiles on through a flag. tensilelite's load of the flag had no glc, so the poll "
        "may read the same stale line for ever; tritonBLAS cleared its locks without a fence. What follows the flag is not "
        "ordered behind it either.",
        "gfx90a",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 0
  v_mov_b32 v3, 1
  v_mov_b32 v4, 1.0
  s_waitcnt lgkmcnt(0)
  s_cmp_eq_u32 s2, 0
  s_cbranch_scc0 consumer
  global_store_dword v1, v4, s[4:5] ; the partial tile
  s_waitcnt vmcnt(0)
  global_store_dword v2, v3, s[6:7] ; its flag
  s_endpgm
consumer:
-  global_load_dword v5, v2, s[6:7]
+  global_load_dword v5, v2, s[6:7] glc
  s_waitcnt vmcnt(0)
  v_readfirstlane_b32 s10, v5
  s_cmp_eq_u32 s10, 1
  s_cbranch_scc0 consumer
  global_load_dword v6, v1, s[4:5]
  s_waitcnt vmcnt(0)
  global_store_dword v1, v6, s[8:9]
  s_endpgm
""",
        _flags, "race", grid=2,
        expected={"y": lambda arrays: np.ones(64, np.float32)},
    ),
}  # fmt: skip
