"""Latencies, port rates and queue depths of a compute unit, L2 and memory, one row per architecture. `sustained` has bandwidths.

Legend of the tags:
[RPC]    ROCm Compute Profiler, "Pipeline descriptions"
[GPUB]   te42kyfo/gpu-benches: gpu-latency, gpu-strides, gpu-stream on MI210 and MI100
[GLUON]  ROCm/gfx950-gluon-tutorials: LDS, vector cache and HBM studies on MI355X; memory latency on MI300X
[GCN]    AMD GCN3 and CDNA3 ISA guides and white papers
[MCA]    llvm-mca's scheduling model
[MGPU]   sarchlab/mgpusim, gpu_perf_scripts/mi300a.csv: the least of 51 times
[WORK]   the same, workloads/results: PolyBench, and microbenchmarks
[ORI]    ROCm/rocm-libraries, shared/origami, hardware.hpp: bandwidths from AMD's microbenchmarks
[C&C]    Chips and Cheese, "Testing AMD's Giant MI300X"
[CHASE]  a pointer chase on an MI300X, from its owner's log of 2026-09-16 (L2 85 ns, Infinity Cache 262 ns, 1 GiB 353 ns)
[UMC]    Linux, drivers/gpu/drm/amd/amdgpu: amdgpu_umc.h and umc_v6_7.h, MI200's memory, 32 channels of 256 bytes.
         umc_v12_0.h, MI300's: 8 channels of each of 4 controllers on each of 4 dies
[ATL]    Linux, drivers/ras/amd/atl/dehash.c: bits of the channel are exclusive ors of the address's, on MI200 of up to four each
         (8, 16, 21, 30 and so on), on MI300 of up to seven; settings turn the higher ones off
[PROBE]  LLVM, AMDGPUUsage, memory model of gfx90a: the cache probe of a coherent write invalidates the line in other L2s.
         MrRoy09/AMD-CDNA3-Cache-MicroBenchmarking, README: on an MI300X a probe filter tracks lines of 128 bytes
[IREE]   nod-ai/amd-shark-ai, docs/amdgpu_kernel_optimization_guide.md: L2 of MI355X, from the CDNA 4 white paper
[CLRX]   CLRX/CLRX-mirror, doc/GcnTimings.md: clocks that GCN's instructions take
[HPC]    amd/HPCTrainingExamples, transposes and yAx on MI210 and MI300A
[SPEC]   ROCm documentation, "AMD GPU specifications": scalar cache of 16 KiB per 2 CUs, instruction cache
[GUPS]   sarchlab/mgpusim, mi300x_ground_truth.csv: altis_gups, random 64-bit atomics on an MI300X
[GRID]   ROCm/llvm-project, pull request 3464: this_grid().sync() on an MI355X; each workgroup adds to a counter and polls it
[LAB]    amd/amd-lab-notes, finite differences on a GCD of an MI250X: kernel 6, 1,070 GB/s

A figure that nobody published is a neighbour's, and its comment says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simgpu.hardware.errors import TargetError


@dataclass(frozen=True)
class Pipelines:
    """Figures of one architecture; clocks are the engine's."""

    # LDS: two ports, each for a pair of SIMDs, before banks that both share.
    lds_read_port: int  # bytes a clock that a port reads
    lds_write_port: int  # bytes a clock that a port writes
    lds_port_overhead: int  # clocks that a store holds its port for its address
    lds_fifo: int  # accesses that a port queues
    lds_latency: int  # clocks from the port to the register
    # Vector memory: address coalescer, vector cache.
    cache_line: int  # bytes
    cache_bytes: int  # size
    cache_part: int  # bytes of a line that the cache fills at a time
    cache_sets: int  # sets that low bits of the address select
    cache_block: int  # bytes of consecutive addresses in a set
    cache_spare: int  # ways of a set that hold no line while lines of the set are replaced
    cache_rate: int  # bytes a clock that a load returns
    cache_latency: int  # clocks of a load that hits
    vmem_queue: int  # instructions of a CU before the coalescer
    in_flight: int  # bytes that a CU's loads can wait for at a time, limited by the vector cache
    cu_memory: float  # GB/s that one CU draws from memory if no other does
    # Levels after the vector cache.
    l2_latency: int  # clocks of a load that hits L2
    l2_share: float  # fraction of its peak bandwidth that all CUs together draw
    l2_line: int  # bytes
    l2_ways: int  # associativity
    atomic_clocks: float  # clocks for which an atomic's request of 64 bytes holds its line and its channel of L2
    line_move_ns: float  # nanoseconds for which a line stays with an atomic if atomics of other XCDs wait for it; 0: one XCD
    homes: int  # channels of memory, each of which moves one line between XCDs at a time
    loads_move: int  # 1 if a load moves a line that another XCD stored in an earlier launch; 0 if L2s keep clean copies of these
    mall_ns: float  # nanoseconds of a load from the Infinity Cache, or from memory if there is none
    memory_ns: float  # nanoseconds of a load that misses all caches: neither runs at the engine's clock
    memory_channels: int  # of a GPU or GCD, selected by address (`memory_channel`); 0: by a hash that uses all evenly
    memory_write: float  # fraction of memory's peak bandwidth for writes only; for reads only it is `sustained`'s
    memory_turn: float  # fraction that is lost to turning the bus if reads equal writes
    # time that a request holds memory: latency grows by queue_ns / 2 · load / (1 - load) (a queue with even service)
    queue_ns: float
    burst: int  # bytes that a CU may be ahead of its part of L2 and memory
    # Scalar side and control.
    scalar_hit: int  # clocks of a scalar load that hits the scalar cache
    scalar_bytes: int  # size of the scalar cache
    scalar_cus: int  # CUs that share it
    branch_slots: int  # issue slots from a taken branch to the next instruction
    barrier: int  # clocks from the last arrival at a barrier to the next instruction
    code_line: int  # bytes of an instruction cache line
    code_bytes: int  # size of the instruction cache; CUs that share it run the same code
    code_stream: int  # clocks a line of straight-line code that is not in the instruction cache
    # Launch and dispatch.
    groups_per_clock: float  # workgroups that the dispatcher starts on an XCD
    waves_per_clock: float  # waves that the dispatcher starts on an XCD
    start: int  # clocks from a workgroup's dispatch to its first instruction
    launch_us: float  # from the host's submission to the first dispatch, plus from the last wave's end to the signal
    profiled_us: float  # the part of launch_us between the two timestamps that a profiler reads
    events_us: float  # launch_us with the events that the host records before and after a launch

    @property
    def line_move_seconds(self) -> float:
        """Seconds for a byte of lines that move between XCDs, if all channels move lines."""
        return self.line_move_ns * 1e-9 / self.homes / self.l2_line

    def queueing_ns(self, load: float) -> float:
        """Returns the nanoseconds that a request waits for others. load: fraction of memory's bandwidth in use, below 1.

        It is the mean wait in a queue with even service: queue_ns / 2 · load / (1 - load).
        """
        return self.queue_ns / 2 * load / (1 - load)


_GFX90A = Pipelines(
    lds_read_port=64, lds_write_port=64, lds_port_overhead=4,  # 4-byte store 8 clocks, 16-byte 20 [RPC]
    lds_fifo=8,  # [GLUON, of gfx950]
    lds_latency=64,  # [RPC]
    cache_line=64, cache_bytes=16 << 10, cache_part=64, cache_sets=4, cache_block=64, cache_spare=0,  # [RPC: 64-way]
    cache_rate=64,  # 59 measured [GPUB]
    cache_latency=121,  # 125 with the address's 4 [GPUB]
    vmem_queue=12,  # [GLUON, of gfx950]
    in_flight=16 << 10,  # the vector cache's size, as on gfx950
    cu_memory=36,  # 0.03 of 1.2 TB/s a workgroup [ORI]
    l2_latency=236,  # 233 to 245 [GPUB]
    l2_share=0.72,  # 5,016 of 6,963 GB/s [RPC]
    l2_line=128, l2_ways=16,  # [RPC]
    atomic_clocks=1.0,  # assumed, the least: a channel of L2 takes a request a clock [RPC]
    line_move_ns=0, homes=32, loads_move=0,  # one XCD
    mall_ns=335, memory_ns=335,  # 335; with misses of the TLB 376 to 394 [GPUB]
    memory_channels=32,  # blocks of 256 bytes in turn, 8 KB of them [UMC]
    memory_write=0.93,  # 1,526 of 1,638 GB/s [GPUB]
    # A scale reaches 1,358 GB/s; its reads and writes at their separate rates would reach 1,454. On MI100 1,042 of
    # 1,119 [GPUB].
    memory_turn=0.067,
    queue_ns=160,  # as gfx950
    burst=8 << 10,  # assumed
    scalar_hit=64,  # assumed: as LDS
    scalar_bytes=16 << 10, scalar_cus=2,  # [SPEC]
    # 20 clocks of a jump [CLRX]. A loop of four FMAs, two scalar instructions and a jump takes 21.2 ns, 44 clocks [WORK].
    branch_slots=5,
    barrier=16,  # assumed
    code_line=64,  # [GCN]
    code_bytes=32 << 10,  # [Linux: amdkfd, kfd_crat.c, vega20 and aldebaran]
    code_stream=32,  # assumed
    # gpu-stream's kernel that only stores: workgroups of 32 to 256 lanes, 0.26 to 0.33 a clock at any size. Workgroups
    # of 1,024 lanes, at 1,526 GB/s on MI210: waves of 1.75 a clock [GPUB]. ROCm's seismic stencils along x and y: 0.28
    # workgroups a clock.
    groups_per_clock=0.3, waves_per_clock=1.75,
    start=200,  # assumed
    launch_us=2.1,  # 64 KB kernels, back to back [GPUB]
    profiled_us=2.1,  # assumed: all of it
    events_us=2.1,  # assumed: no more
)
_GFX942 = replace(
    _GFX90A,
    cache_line=128, cache_bytes=32 << 10,  # [RPC]
    # A pass of gesummv on an MI300A takes a clock for each of 384 lines in rows of 768 bytes, which hit. It takes two for each of
    # 256 lines in rows of 512 bytes, which miss. So lines of 64 bytes are in four sets by bits 8 and 9, of 128 ways [WORK].
    cache_part=64, cache_sets=4, cache_block=256, cache_spare=1,
    code_bytes=64 << 10,  # [SPEC]
    # L2's fraction of peak is gfx90a's: Origami's 17 TB/s, 0.494 of peak, is a rate in seconds, at the clock under its
    # work [ORI].
    # mem_latency: 154 and 279 clocks a hop in the vector cache and L2, less 63 to coalesce 64 lanes and issue. L2 is 254 in a
    # loaded loop on gfx950 [WORK, GLUON].
    cache_latency=91, l2_latency=216,
    in_flight=32 << 10,  # [GLUON, of gfx950]
    cu_memory=60,  # 0.015 of 4 TB/s a workgroup [ORI]
    # 33.5 million in 1.057 ms, whatever the table's size: 31.7 of 268.8 billion a second, if 128 channels took one a clock
    # at 2,100 MHz; on one line 4.9 ns, 10 clocks (issue 278 there) [GUPS]
    atomic_clocks=8.5,
    homes=128,  # channels of memory [UMC]; assumed: each has its part of the probe filter [PROBE]
    loads_move=1,  # launches in a chain on an MI300A take longer by their number [WORK]
    line_move_ns=28.5,  # 58,464 ns a barrier of 2,048 workgroups on an MI355X, whose counter has a line of its own [GRID]
    mall_ns=260,  # 262 [CHASE]; 218, and 47 more with a miss of the TLB [C&C]
    memory_ns=350,  # 353 [CHASE]
    memory_write=0.751,  # as reads [ORI]
    memory_channels=0,  # [ATL]; a matrix whose rows are 256 KB and a lane apart is read at L2's rate [HPC]
    # On an MI300A, 65,536 workgroups of 256 lanes take 27.8 us longer than 8,192 (relu). 262,144 of 64 lanes take 96.1 us
    # longer than 65,536 (simpleconvolution, 3 x 3). That is 0.48 and 0.49 ns each, 0.163 a clock and XCD at 2,100 MHz [MGPU].
    # An XCD has four shader engines, and MI210 eight [rocminfo]. So waves are half of gfx90a's.
    groups_per_clock=0.163, waves_per_clock=0.875,
    launch_us=2.7,  # Formocast, ROCm/rocm-libraries
    profiled_us=1.4,  # RMS norms of few rows on an MI308X, less 1.0 to 1.2 us that a norm itself is modelled to take [NORM]
    events_us=3.5,  # vectoradd of 1,024 elements on an MI300A, 4.2 us, less 0.7 us that it is modelled to take [MGPU]
)
_ROWS = {
    # 2,720 of 3,076 GB/s of L2, 1,064 of 1,229 of memory [GPUB]
    "gfx908": replace(_GFX90A, l2_share=0.885, memory_write=0.866, scalar_cus=3),  # scalar cache: 3 CUs in MI100 [RPC]
    "gfx90a": _GFX90A,
    "gfx942": _GFX942,
    "gfx950": replace(
        _GFX942,
        cache_part=128, cache_sets=4, cache_block=128, cache_spare=0, cache_latency=121,  # as gfx90a
        l2_latency=254,  # [GLUON, loaded]
        lds_read_port=128, lds_write_port=128, lds_port_overhead=0,  # 8 clocks a ds_read_b128 of a pair [GLUON]
        # [MCA]; with 5, a tile that keeps the matrix units busy for 84 % of a loop comes out at 89 % instead of 88 [GLUON]
        branch_slots=8,
        # 44.6 of 64 bytes a clock and CU: tiles up to 128 x 128, which load 32 KB in 727 to 745 clocks at any clock
        # rate [GLUON]
        l2_share=0.70,
        # 1,529 GB/s with 32 workgroups of 32 rows, which load 36 bytes per 32 useful ones, less launch and queue [GLUON]
        cu_memory=58,
        loads_move=0,  # L2s write changed lines back and keep a copy, so memory has the data [IREE]
        memory_write=0.805,  # as reads [GLUON]
        queue_ns=160,  # the same product with 32 to 256 workgroups [GLUON]
        launch_us=2.4,  # 2.1 to 2.6: Formocast
        profiled_us=1.8,  # the same norms on an MI350X, less 0.9 to 1.1 us [NORM]
        events_us=3.2,  # assumed: 0.8 us more than launch_us, as gfx942
    ),
}


BLOCK, LOW, HIGH = 256, 1 << 13, 1 << 16


def memory_channel(addresses: np.ndarray, channels: int) -> np.ndarray:
    """Returns the channel of each address. Channels take blocks of 256 bytes in turn; each 8 and 64 KB begin with another of four.

    The hashes [ATL] that a board has on are not published, and none of their settings idles a channel of a transpose. So this is
    a fit to five measurements. A transpose whose rows are 64 KB apart has the rate of 4 channels. A matrix whose rows are 256 KB
    apart has that of one if its waves keep step (140 to 176 ms for 8.6 GB, 49 to 61 GB/s [HPC]). A stencil that reads 2 KB of
    rows 8 KB apart has that of at least 22 of 32 [LAB].

    >>> memory_channel(np.arange(4) << 13, 32).tolist()
    [0, 8, 16, 24]
    """
    return (addresses // BLOCK ^ addresses // LOW % 4 * (channels // 4) ^ addresses // HIGH % 4) % channels


def pipelines(arch: str) -> Pipelines:
    """Returns an architecture's row; raises TargetError if it has none.

    >>> pipelines("gfx942").mall_ns
    260
    """
    if arch not in _ROWS:
        raise TargetError(f"no model of time for {arch!r}: use {', '.join(_ROWS)}")
    return _ROWS[arch]
