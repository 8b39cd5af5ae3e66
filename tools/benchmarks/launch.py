"""Measures the launch of one empty workgroup, on devices with little and with much memory and code.

python -m simgpu.tools.benchmarks.launch [--json]

Microseconds, the least of several rounds: a Device with little memory, with 512 MB, with 5,000 allocations, with a module of
3.4 MB of code; the first launch of that module's kernel; and the cost of allocating and freeing memory among 5,000 other
allocations.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

import simgpu
from simgpu import asm
from simgpu.tools.shared.console import print_figures

TARGET, CODE_BYTES, ALLOCATIONS = "gfx942", 3_400_000, 5_000
TEXT = """
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl empty
.p2align 8
.type empty,@function
empty:
  s_endpgm
.fill {words}, 4, 0xbf800000
.size empty, 4
.rodata
.p2align 6
.amdhsa_kernel empty
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 8
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - {{.name: empty, .symbol: empty.kd, .kernarg_segment_size: 0, .kernarg_segment_align: 8, .group_segment_fixed_size: 0,
     .private_segment_fixed_size: 0, .wavefront_size: 64, .sgpr_count: 16, .vgpr_count: 8, .max_flat_workgroup_size: 64}}
...
.end_amdgpu_metadata
"""


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    print_figures(measure(), parser.parse_args().json)
    return 0


def measure() -> dict[str, float]:
    """Returns each figure by its name, in microseconds."""
    small, large = (asm.assemble(TEXT.format(target=TARGET, words=words), TARGET) for words in (0, CODE_BYTES // 4))
    found: dict[str, float] = {}
    gpu = simgpu.Device(TARGET)
    found["empty"] = _launch(gpu, small)
    found["with_512_mb"] = _launch_beside(small, lambda gpu: gpu.alloc(1 << 29))
    found["with_5000_allocations"] = _launch_beside(small, lambda gpu: [gpu.alloc(4096) for _ in range(ALLOCATIONS)])
    kernel = gpu.load(large)["empty"]
    found["first_of_3.4_mb_of_code"] = _best(lambda: kernel.launch(grid=1), 1, 1)
    found["with_3.4_mb_of_code"] = _launch(gpu, large)
    many = simgpu.Device(TARGET)
    buffers = [many.alloc(4096) for _ in range(ALLOCATIONS)]

    def free_and_alloc() -> None:
        many.free(buffers[0])
        buffers[0] = many.alloc(4096)

    found["allocation"] = _best(free_and_alloc, 100, 5)
    return found


def _launch_beside(code: bytes, allocate: Callable[[simgpu.Device], object]) -> float:
    gpu = simgpu.Device(TARGET)
    kept = allocate(gpu)
    found = _launch(gpu, code)
    del kept
    return found


def _launch(gpu: simgpu.Device, code: bytes) -> float:
    kernel = gpu.load(code)["empty"]
    kernel.launch(grid=1)
    return _best(lambda: kernel.launch(grid=1), 100, 10)


def _best(action: Callable[[], object], times: int, rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            action()
        taken.append((time.perf_counter() - began) / times)
    return float(np.min(taken)) * 1e6


if __name__ == "__main__":
    sys.exit(main())
