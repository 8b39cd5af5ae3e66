"""Descriptors of GPUs that Triton compiles for. Each figure has its source beside it.

  [H100]  NVIDIA H100 data sheet (SXM);  [H200] NVIDIA H200 data sheet (SXM)
  [WP]    NVIDIA H100 Tensor Core GPU Architecture white paper
  [CUDA]  CUDA C++ Programming Guide, compute capability 9.0
  [A100]  NVIDIA A100 white paper; no such figure of Hopper is published

A wave of 64 lanes stands for two warps, a CU for an SM. A sub-core's 16,384 registers are 256 a lane of its only wave [CUDA].
"""

from __future__ import annotations

from dataclasses import replace

from simgpu import hardware
from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.errors import TargetError

WARPS_OF_A_WAVE = 2
# 989 TFLOPS of f16 [H100] are 4,096 FLOP a clock and SM, 1,024 a sub-core: 8 clocks for this shape.
_ATOMS = tuple(MFMAAtom(16, 16, 16, name, "f32", mnemonic=f"v_mfma_f32_16x16x16_{name}", passes=2) for name in ("f16", "bf16"))
_H100 = replace(
    hardware.target("mi300x"),
    name="h100", atoms=_ATOMS, scaled_atoms=(),
    num_cus=132,  # [H100]
    lds_bytes=227 << 10, lds_granule=1024,  # of one block [CUDA]
    vgpr_per_thread=128, agpr_per_thread=128, unified_vgprs=True, vgpr_granule=8,  # [CUDA]
    max_waves_per_simd=8, max_workgroup_size=1024,  # 64 warps an SM [CUDA]
    clock_mhz=1830,  # 989.4 TFLOPS / 132 SMs / 4,096 [H100]
    peak_tflops_f32=66.9, hbm_bandwidth_tb=3.35, hbm_bytes=80 * 10**9,  # [H100]
    xcds=1, l2_bytes=50 << 20,  # [WP]
    l2_bytes_per_clock=5120,  # [A100]
    mall_bytes=0, mall_bandwidth_tb=0.0,
    assumed="shares of the peaks that are sustained, and latencies, are MI300X's",
)  # fmt: skip
_H200 = replace(_H100, name="h200", hbm_bandwidth_tb=4.8, hbm_bytes=141 * 10**9)  # [H200]
NVIDIA = {"H100": _H100, "H200": _H200}


def board(name: str, arch: str = "") -> HardwareDescriptor:
    """Returns the descriptor of a GPU.

    name: as PyTorch calls it, "NVIDIA H100 80GB HBM3". arch: of an AMD GPU, "gfx942". Raises TargetError for others.

    >>> board("NVIDIA H200").hbm_bandwidth_tb
    4.8
    """
    for word, found in NVIDIA.items():
        if word in name:
            return found
    if arch.startswith("gfx"):
        return hardware.target(arch.partition(":")[0])
    raise TargetError(f"no descriptor of {name!r}: this comparison knows {', '.join(NVIDIA)} and AMD's CDNA GPUs")
