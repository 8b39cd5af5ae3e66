"""Bugs that nothing but the numbers shows: the wrong format, the wrong comparison."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from simgpu.tools.museum.exhibit import WRONG, Arrays, Exhibit


def _bytes() -> Arrays:
    values = np.linspace(-4, 4, 64).astype(ml_dtypes.float8_e4m3fn)
    return {"x": values.view(np.uint8), "y": np.zeros(64, np.float32)}


def _mixed_signs() -> Arrays:
    return {"x": np.arange(-40, 24, dtype=np.int32), "y": np.full(1, -(2**31), np.int32)}


NUMBERS = {
    "two-formats-of-fp8": Exhibit(
        "OCP's fp8 read as FNUZ",
        ("https://github.com/vllm-project/vllm/pull/42893", "https://github.com/vllm-project/vllm/pull/45720",
         "https://github.com/uccl-project/uccl/pull/804"),
        "MI300's fp8 is FNUZ: the bytes of an OCP e4m3 mean half there. Data in one format and a kernel for the other give "
        "answers that look reasonable and are wrong by two: in vLLM's weights, in its KV cache, in uccl's buffers. The repair "
        "doubles the scale.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_ubyte v2, v0, s[4:5]
  s_waitcnt vmcnt(0)
  v_cvt_f32_fp8 v3, v2
+  v_add_f32 v3, v3, v3
  global_store_dword v1, v3, s[6:7]
  s_endpgm
""",
        _bytes, WRONG,
        expected={"y": lambda arrays: arrays["x"].view(ml_dtypes.float8_e4m3fn).astype(np.float32)},
    ),
    "signed-maximum": Exhibit(
        "A signed maximum by an unsigned instruction",
        ("https://github.com/triton-lang/triton",),
        "Triton 3.9 reduces an atomic_max of one wave in registers before one lane goes to memory, and took v_max_u32 for "
        "signed integers: any negative number wins. Found by simgpu.",
        "gfx942",
        """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  s_mov_b32 s8, 32
half:
  v_xor_b32 v3, s8, v0
  v_lshlrev_b32 v3, 2, v3
  ds_bpermute_b32 v4, v3, v2
  s_waitcnt lgkmcnt(0)
-  v_max_u32 v2, v2, v4
+  v_max_i32 v2, v2, v4
  s_lshr_b32 s8, s8, 1
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 half
  s_mov_b64 exec, 1
  v_mov_b32 v5, 0
  global_atomic_smax v5, v2, s[6:7]
  s_endpgm
""",
        _mixed_signs, WRONG,
        expected={"y": lambda arrays: arrays["x"].max(keepdims=True)},
    ),
}  # fmt: skip
