"""Clocks and depths inside a compute unit, and of the way to memory; one row an architecture. Bandwidths are `sustained`'s.

Legend of the tags:
  [RPC]    ROCm Compute Profiler, "Pipeline descriptions"
  [GPUB]   te42kyfo/gpu-benches: gpu-latency, gpu-strides, gpu-stream on MI210 and MI100
  [GLUON]  ROCm/gfx950-gluon-tutorials: LDS, vector cache and HBM studies on MI355X; memory latency on MI300X
  [GCN]    AMD GCN3 and CDNA3 ISA guides and white papers
  [MCA]    llvm-mca's scheduling model
Where nothing was published the figure of a neighbour stands, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simgpu.hardware.errors import TargetError


@dataclass(frozen=True)
class Pipelines:
    """One architecture's; clocks are the engine's."""

    # LDS: two ports, each of a pair of SIMDs, before banks that both share.
    lds_read_port: int  # bytes a clock of a port
    lds_write_port: int
    lds_port_overhead: int  # clocks an access holds its port beyond its bytes
    lds_fifo: int  # accesses that a port queues
    lds_latency: int  # clocks from the port to the register
    # Vector memory: address coalescer, vector cache.
    cache_line: int  # bytes
    cache_bytes: int
    cache_rate: int  # bytes a clock that a load returns
    cache_latency: int  # of a hit
    vmem_queue: int  # instructions of a CU before the coalescer
    in_flight: int  # bytes that a CU's loads can wait for at a time
    # Behind it.
    l2_latency: int
    l2_share: float  # of its peak bandwidth, that all CUs together draw
    l2_line: int
    l2_ways: int
    mall_ns: float  # nanoseconds of a load that the Infinity Cache has; memory's where there is none
    memory_ns: float  # of one that no cache has: neither runs at the engine's clock
    queue_ns: float  # that a request holds memory: latency grows by queue_ns / 2 · load / (1 - load) (a queue with even service)
    burst: int  # bytes that a CU may take ahead of its share of L2 and memory
    # Scalar side and control.
    scalar_hit: int  # clocks of a scalar load that the scalar cache has
    branch_slots: int  # issue slots from a taken branch to the next instruction
    barrier: int  # clocks from the last arrival at a barrier to the next instruction
    code_line: int  # bytes of an instruction cache line
    code_stream: int  # clocks from one line of straight code that no wave of the CU ran before to the next
    # Around a CU.
    waves_per_clock: float  # that the dispatcher starts on an XCD
    start: int  # clocks from a workgroup's dispatch to its first instruction
    launch_us: float  # from the host's submission to the first dispatch, and from the last wave's end to the signal


_GFX90A = Pipelines(
    lds_read_port=64, lds_write_port=64, lds_port_overhead=4,  # 4-byte access 8 clocks, 16-byte 20 [RPC]
    lds_fifo=8,  # [GLUON, of gfx950]
    lds_latency=64,  # [RPC]
    cache_line=64, cache_bytes=16 << 10,  # [RPC]
    cache_rate=64,  # 59 measured [GPUB]
    cache_latency=121,  # 125 with the address's 4 [GPUB]
    vmem_queue=12, in_flight=46 << 10,  # [GLUON, of gfx950]
    l2_latency=236,  # 233 to 245 [GPUB]
    l2_share=0.72,  # 5,016 of 6,963 GB/s [RPC]
    l2_line=128, l2_ways=16,  # [RPC]
    mall_ns=335, memory_ns=335,  # 335; with misses of the TLB 376 to 394 [GPUB]
    queue_ns=160,  # as gfx950
    burst=8 << 10,  # assumed
    scalar_hit=64,  # assumed: as LDS
    branch_slots=8,  # [MCA]
    barrier=16,  # assumed
    code_line=64,  # [GCN]
    code_stream=32,  # assumed
    waves_per_clock=0.7,  # a lower bound: s_nop kernels of 16 waves on MI250 [RPC: sample/ipc.hip]
    start=200,  # assumed
    launch_us=2.1,  # 64 KB kernels, back to back [GPUB]
)
_GFX942 = replace(
    _GFX90A,
    cache_line=128, cache_bytes=32 << 10,  # [RPC]
    l2_latency=254,  # [GLUON, loaded]
    mall_ns=350,  # assumed: between L2 and memory
    memory_ns=420,  # about 1,000 clocks, loaded [GLUON]
    launch_us=2.7,  # Formocast, ROCm/rocm-libraries
)
_ROWS = {
    "gfx908": replace(_GFX90A, l2_share=0.885),  # 2,720 of 3,076 GB/s [GPUB]
    "gfx90a": _GFX90A,
    "gfx942": _GFX942,
    "gfx950": replace(
        _GFX942,
        lds_read_port=128, lds_write_port=128, lds_port_overhead=0,  # 8 clocks a ds_read_b128 of a pair [GLUON]
        mall_ns=450,  # assumed: as far between L2 and memory as on gfx942
        # Between what two studies ask for [GLUON]: 500 ns the eight tiles bound by bytes in flight, 960 ns the ladder of 32 to 256
        # workgroups (46 KB in flight at 1,529 GB/s of 32).
        memory_ns=650, queue_ns=160,
        launch_us=2.4,  # 2.1 to 2.6: Formocast
    ),
}


def pipelines(arch: str) -> Pipelines:
    """An architecture's row; TargetError for one that there is no row of."""
    if arch not in _ROWS:
        raise TargetError(f"no model of time for {arch!r}: use {', '.join(_ROWS)}")
    return _ROWS[arch]
