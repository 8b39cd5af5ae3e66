"""What a board sustains, as measured in public; a descriptor's figures are peaks. One row an architecture.

Legend of the tags:
  [GPUB]   te42kyfo/gpu-benches: gpu-stream, gpu-l2-cache, gpu-latency, gpu-strides, gpu-small-kernels (MI100, MI210)
  [RPC]    ROCm Compute Profiler: its recorded empirical roofline of an MI210, and its pipeline descriptions
  [ORI]    ROCm/rocm-libraries, shared/origami, hardware.hpp: bandwidths that AMD's microbenchmarks gave
  [GLUON]  ROCm/gfx950-gluon-tutorials: LDS, vector cache and HBM studies on MI355X, memory latency on MI300X
  [FORM]   ROCm/rocm-libraries, Formocast: launch cost
  [LLVM]   llvm/lib/Target/AMDGPU/SISchedule.td
Where nothing was published the figure of a neighbour stands, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import TargetError

LDS_CLOCKS = 64  # latency of an LDS read [AMD: 64; GLUON: 50 to 70]
WAVE_CLOCKS = 4  # of a SIMD for a vector instruction of 64 lanes [RPC]
# Instructions that a softmax issues an element, in attention too: fma, maximum, sum and a scale or conversion one each, and as long
# as four an exponential, at a quarter of the rate [LLVM].
SOFTMAX_INSTRUCTIONS = 8
STORE_BYTES = 64  # a clock and CU at which stores leave: the width of the path to L2 [RPC]


@dataclass(frozen=True)
class Rates:
    """One architecture's; a share is of the descriptor's peak."""

    l2_share: float
    hbm_share: float
    mall_tb: float  # TB/s of eight XCDs' Infinity Cache; 0: there is none
    lds_read: float  # bytes a clock and CU, 128-bit reads without conflicts
    lds_write: float
    cache: float  # bytes a clock and CU through the vector cache
    memory_of_cu: float  # GB/s that one CU draws from behind L2: its misses in flight over their latency
    l2_clocks: int  # latency of a hit
    memory_clocks: int  # latency from behind L2, under load
    launch: float  # microseconds of a kernel behind another


_GFX90A = Rates(
    l2_share=0.72,  # 5,016 of 6,963 GB/s [RPC]; 4.8 to 5.1 TB/s [GPUB]
    hbm_share=0.848,  # 1,389 of 1,638 GB/s [RPC]
    mall_tb=0.0,
    lds_read=128, lds_write=0.8 * 128,  # two ports of 64 bytes; a 16-byte store takes 20 clocks of a port, not 16 [RPC]
    cache=59.0,  # of 64 [GPUB, strides]
    memory_of_cu=0.03 * 1200,  # [ORI: 0.03 of HBM's 1.2 TB/s a workgroup]
    l2_clocks=240, memory_clocks=640,  # 235 to 250; 570, with TLB misses 640 to 670 [GPUB]
    launch=2.1,  # 64 KB at 31 GB/s, kernel behind kernel [GPUB]
)  # fmt: skip
_RATES = {
    "gfx908": Rates(
        l2_share=0.885,  # 2,720 of 3,076 GB/s [GPUB]
        hbm_share=0.96,  # reads: 1,180 of 1,229 GB/s [GPUB]
        mall_tb=0.0,
        lds_read=128, lds_write=0.8 * 128,  # [RPC]
        cache=59.0,  # as gfx90a; the whole GPU 9.5 of 11.5 TB/s [GPUB]
        memory_of_cu=36.0,  # as gfx90a
        l2_clocks=240, memory_clocks=640,  # as gfx90a
        launch=2.1,  # as gfx90a
    ),
    "gfx90a": _GFX90A,
    "gfx942": Rates(
        l2_share=0.494,  # 17 of 34.4 TB/s [ORI]
        hbm_share=0.751,  # 4.0 of 5.32 TB/s [ORI]
        mall_tb=7.3,  # [ORI: 6 x 1.22], of 17.2 peak
        lds_read=128, lds_write=0.8 * 128,  # [RPC]
        cache=59.0,  # as gfx90a
        memory_of_cu=0.015 * 4000,  # [ORI: 0.015 of HBM's 4 TB/s a workgroup]
        l2_clocks=254, memory_clocks=1000,  # [GLUON: under load]
        launch=2.7,  # [FORM]
    ),
    "gfx950": Rates(
        l2_share=0.432,  # 17 of 39.3 TB/s [ORI]
        hbm_share=0.805,  # 6,442 of 8,000 GB/s with 256 workgroups [GLUON]
        mall_tb=8.5,  # [ORI: 7 x 1.22]
        lds_read=256, lds_write=128,  # 16 clocks for four waves' ds_read_b128, pair bus 128 bytes each way [GLUON]
        cache=64.0,  # dwordx4: 16 clocks [GLUON]
        memory_of_cu=48.0,  # 1,529 GB/s with 32 workgroups [GLUON]
        l2_clocks=254, memory_clocks=1000,  # as gfx942
        launch=2.4,  # 2.1 to 2.6 [FORM]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sustained:
    """A board's rates in bytes and seconds, at its peak engine clock."""

    descriptor: HardwareDescriptor
    rates: Rates

    @property
    def clock(self) -> float:
        """Clocks a second."""
        return self.descriptor.clock_mhz * 1e6

    @property
    def valu_lanes(self) -> float:
        """Lanes of vector instructions that a CU issues a clock."""
        return self.descriptor.wavefront_size * self.descriptor.simds_per_cu / WAVE_CLOCKS

    @property
    def l2(self) -> float:
        """Bytes a second of all L2 together."""
        return self.rates.l2_share * self.descriptor.l2_bandwidth_tb * 1e12

    @property
    def hbm(self) -> float:
        """Bytes a second of HBM."""
        return self.rates.hbm_share * self.descriptor.hbm_bandwidth_tb * 1e12

    @property
    def mall(self) -> float:
        """Bytes a second of the Infinity Cache; HBM's where there is none."""
        return self.rates.mall_tb * 1e12 * self.descriptor.xcds / 8 if self.rates.mall_tb else self.hbm

    @property
    def memory_of_cu(self) -> float:
        """Bytes a second that one CU draws from behind L2."""
        return self.rates.memory_of_cu * 1e9

    @property
    def l2_latency(self) -> float:
        """Seconds of a load that L2 has."""
        return self.rates.l2_clocks / self.clock

    @property
    def memory_latency(self) -> float:
        """Seconds of a load that L2 has not."""
        return self.rates.memory_clocks / self.clock

    @property
    def launch(self) -> float:
        """Seconds of a kernel behind another."""
        return self.rates.launch * 1e-6


def sustained(descriptor: HardwareDescriptor) -> Sustained:
    """The rates of a board; TargetError for an architecture that nothing was measured of."""
    if descriptor.arch not in _RATES:
        raise TargetError(f"no measured rates for {descriptor.arch!r}: give the descriptor's arch as one of {', '.join(_RATES)}")
    return Sustained(descriptor, _RATES[descriptor.arch])
