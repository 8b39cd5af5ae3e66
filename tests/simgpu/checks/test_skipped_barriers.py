"""Barriers that some lanes of a wave skip: an error if these lanes go on, silent if they returned."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import simgpu
from simgpu.engine.finding import Finding
from tests.support.clang import linked
from tests.support.race_findings import check

BLOCK = 128
BODIES = {
    # Lanes skip a barrier and go on.
    "in_a_branch": "if (t % 3 == 0) __syncthreads(); out[t] = part[t];",
    "in_a_loop": "for (int k = 0; k < t % 5; k++) { part[t] += in[k]; __syncthreads(); } out[t] = part[t];",
    "in_both_arms": "if (t & 1) { part[t]++; __syncthreads(); } else { part[t]--; __syncthreads(); } out[t] = part[t];",
    "before_another": "if (t & 1) __syncthreads(); __syncthreads(); if (t & 1) out[t] = part[t];",
    "before_an_atomic": "if (t & 1) __syncthreads(); atomicAdd(out, 1.0f);",
    # They returned, or no lane skips one.
    "returned": "if (t >= n) return; __syncthreads(); out[t] = part[(t + 1) % n]; __syncthreads(); out[t] += in[t];",
    "returned_in_a_loop": "for (int k = 0; k < 4; k++) { if (t > 64 + 8 * k) return; __syncthreads(); out[t] += in[k]; }",
    "of_all_lanes": "if (t & 1) part[t]++; __syncthreads(); if (t < n) out[t] = part[t]; __syncthreads(); out[0] = 1;",
    "of_whole_waves": "for (int k = 0; k < n % 3; k++) { if (t & 1) part[t]++; __syncthreads(); } out[t] = part[t];",
}  # fmt: skip
SKIPPED = ("in_a_branch", "in_a_loop", "in_both_arms", "before_another", "before_an_atomic")


@cache
def code(target: str, level: str, folder: Path) -> bytes:
    path = folder / f"{target}{level}.hip"
    path.write_text("#include <hip/hip_runtime.h>\n" + "".join(
        f"__global__ void {name}(const float *in, float *out, int n) {{ __shared__ float part[{BLOCK}]; int t = threadIdx.x;"
        f" part[t] = in[t];\n{body}\n}}\n" for name, body in BODIES.items()
    ))  # fmt: skip
    return simgpu.compile(str(path), target=target, options=[level])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skipped")


def barriers(kernel: str, target: str, data: bytes) -> list[Finding]:
    """Launches a kernel and returns its findings of barriers."""
    gpu = simgpu.Device(target, check=True, threads=1)
    buffers = [gpu.upload(np.ones(BLOCK, np.float32)), gpu.zeros(BLOCK)]
    findings = gpu.load(data)[kernel].launch(grid=2, block=BLOCK, args=[*buffers, 100]).findings
    return [each for each in findings if each.kind == "barrier"]


@pytest.mark.parametrize("target,level", [("gfx908", "-O0"), ("gfx90a", "-O3"), ("gfx942", "-O1"), ("gfx950", "-O2")])
@pytest.mark.parametrize("kernel", BODIES)
def test_lanes_that_go_on_are_found(kernel: str, target: str, level: str, folder: Path) -> None:
    found = barriers(kernel, target, code(target, level, folder))
    skips = [each for each in found if "skip this barrier" in each.message]
    assert bool(skips) == (kernel in SKIPPED), found
    for each in skips:
        assert each.severity == "error" and each.lanes and each.source.startswith(f"{target}{level}.hip:"), each


def test_without_lines_it_is_a_note(folder: Path) -> None:
    """Such an object may be assembly."""
    source = (
        "__attribute__((amdgpu_kernel)) void k(const float *in, float *out, int n) { int t = __builtin_amdgcn_workitem_id_x();"
        " if (t % 3 == 0) __builtin_amdgcn_s_barrier(); out[t] = n; }"
    )
    found = barriers("k", "gfx942", linked(source, "-O1", target="gfx942"))
    assert [(each.severity, each.source) for each in found] == [("note", "")]


def test_barriers_of_assembly_are_the_hardware_s() -> None:
    assert check("s_mov_b64 exec, 1\ns_barrier\ns_mov_b64 exec, -1\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)") == []
