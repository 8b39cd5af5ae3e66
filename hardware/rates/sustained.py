"""Bandwidths that a board sustains, from public measurements, one row per architecture. A descriptor's figures are peaks.

Clocks, depths, latencies and L2's bandwidth are in `pipelines`.

Legend of the tags:
[GPUB]   te42kyfo/gpu-benches: gpu-stream, gpu-l2-cache, gpu-latency, gpu-strides, gpu-small-kernels (MI100, MI210)
[RPC]    ROCm Compute Profiler: its recorded empirical roofline of an MI210, and its pipeline descriptions
[MGPU]   sarchlab/mgpusim, gpu_perf_scripts/mi300a.csv: the least of 51 times
[ORI]    ROCm/rocm-libraries, shared/origami, hardware.hpp: bandwidths from AMD's microbenchmarks
[GLUON]  ROCm/gfx950-gluon-tutorials: LDS, vector cache and HBM studies on MI355X
[LLVM]   llvm/lib/Target/AMDGPU/SISchedule.td
A figure that nobody published is a neighbour's, and its comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import TargetError
from simgpu.hardware.rates.pipelines import Pipelines, pipelines

LDS_CLOCKS = 64  # latency of an LDS read [AMD: 64; GLUON: 50 to 70]
WAVE_CLOCKS = 4  # of a SIMD for a vector instruction of 64 lanes [RPC]
# Instructions that a softmax issues per element, also in attention. Fma, maximum, sum, and a scale or conversion are
# one each. An exponential takes as long as four, at a quarter of the rate [LLVM].
SOFTMAX_INSTRUCTIONS = 8
STORE_BYTES = 64  # a clock and CU for stores: the width of the path to L2 [RPC]


@dataclass(frozen=True)
class Rates:
    """Rates of one architecture."""

    hbm_share: float  # fraction of the descriptor's HBM peak
    mall_tb: float  # TB/s of the Infinity Cache of a board with eight XCDs; 0 if there is none
    lds_read: float  # bytes a clock and CU, 128-bit reads without conflicts
    lds_write: float  # bytes a clock and CU, 128-bit writes without conflicts
    cache: float  # bytes a clock and CU through the vector cache


_GFX90A = Rates(
    hbm_share=0.848,  # 1,389 of 1,638 GB/s [RPC]
    mall_tb=0.0,
    lds_read=128, lds_write=0.8 * 128,  # two ports of 64 bytes; a 16-byte store takes 20 clocks of a port, not 16 [RPC]
    cache=59.0,  # of 64 [GPUB, strides]
)  # fmt: skip
_RATES = {
    "gfx908": Rates(
        hbm_share=0.96,  # reads: 1,180 of 1,229 GB/s [GPUB]
        mall_tb=0.0,
        lds_read=128, lds_write=0.8 * 128,  # [RPC]
        cache=59.0,  # as gfx90a; the whole GPU 9.5 of 11.5 TB/s [GPUB]
    ),
    "gfx90a": _GFX90A,
    "gfx942": Rates(
        hbm_share=0.751,  # 4.0 of 5.32 TB/s [ORI]
        # Vector additions on an MI300A: 25 MB take 9.9 us, 201 MB 51.0, so 4.28 TB/s for six XCDs [MGPU]. Its peak is 17.2
        # TB/s for eight, and Origami has 7.3 [ORI: 6 x 1.22].
        mall_tb=5.7,
        lds_read=128, lds_write=0.8 * 128,  # [RPC]
        cache=59.0,  # as gfx90a
    ),
    "gfx950": Rates(
        hbm_share=0.805,  # 6,442 of 8,000 GB/s with 256 workgroups [GLUON]
        mall_tb=8.5,  # [ORI: 7 x 1.22]
        lds_read=256, lds_write=128,  # 16 clocks for four waves' ds_read_b128, pair bus 128 bytes each way [GLUON]
        cache=64.0,  # dwordx4: 16 clocks [GLUON]
    ),
}  # fmt: skip


@dataclass(frozen=True)
class SustainedRates:
    """Rates of a board per second, at its peak engine clock."""

    descriptor: HardwareDescriptor
    rates: Rates
    row: Pipelines

    @property
    def clock(self) -> float:
        """Clocks a second."""
        return self.descriptor.clock_mhz * 1e6

    @property
    def valu_lanes(self) -> float:
        """Lanes of vector instructions that a CU executes per clock."""
        return self.descriptor.wavefront_size * self.descriptor.simds_per_cu / WAVE_CLOCKS

    @property
    def l2(self) -> float:
        """Bytes a second of all L2 together."""
        return self.row.l2_share * self.descriptor.l2_bandwidth_tb * 1e12

    @property
    def hbm(self) -> float:
        """Bytes a second of HBM."""
        return self.rates.hbm_share * self.descriptor.hbm_bandwidth_tb * 1e12

    @property
    def mall(self) -> float:
        """Bytes a second of the Infinity Cache, or HBM's if there is none."""
        return self.rates.mall_tb * 1e12 * self.descriptor.xcds / 8 if self.rates.mall_tb else self.hbm

    @property
    def memory_of_cu(self) -> float:
        """Bytes a second that one CU draws from the levels after L2."""
        return self.row.cu_memory * 1e9

    @property
    def l2_latency(self) -> float:
        """Seconds of a load that hits L2."""
        return self.row.l2_latency / self.clock

    @property
    def memory_latency(self) -> float:
        """Seconds of a load that misses all caches, while memory is idle."""
        return 1e-9 * self.row.memory_ns

    @property
    def launch(self) -> float:
        """Seconds between consecutive kernels."""
        return self.row.launch_us * 1e-6


def sustained_rates(descriptor: HardwareDescriptor) -> SustainedRates:
    """Returns the rates of a board; raises TargetError for an architecture without measurements.

    >>> from simgpu.hardware import target
    >>> round(sustained_rates(target("mi300x")).hbm / 1e12, 1)
    4.0
    """
    if descriptor.arch not in _RATES:
        raise TargetError(f"no measured rates for {descriptor.arch!r}: give the descriptor's arch as one of {', '.join(_RATES)}")
    return SustainedRates(descriptor, _RATES[descriptor.arch], pipelines(descriptor.arch))
