"""Kernels in OpenCL C that may call ROCm's device library: clang is the ziglang wheel's, the library Triton's wheel's."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from tests.support.clang import file_of

# Constants of ROCm's control libraries (oclc_*.bc), one each.
VERSIONS = {"gfx908": 9008, "gfx90a": 9010, "gfx942": 9402, "gfx950": 9500}
HEAD = """
typedef unsigned int uint; typedef unsigned long ulong; typedef unsigned char uchar;
const __constant uchar __oclc_wavefrontsize64 = 1, __oclc_wavefrontsize_log2 = 6, __oclc_unsafe_math_opt = 0;
const __constant uchar __oclc_finite_only_opt = 0, __oclc_daz_opt = 0, __oclc_correctly_rounded_sqrt32 = 1;
const __constant uint __oclc_ISA_version = {version}, __oclc_ABI_version = {abi};
__global void *__ockl_dm_alloc(ulong);
void __ockl_dm_dealloc(ulong);
ulong __ockl_devmem_request(ulong, ulong);
void __ockl_grid_sync(void);
ulong __ockl_printf_begin(ulong);
ulong __ockl_printf_append_string_n(ulong, const char *, ulong, uint);
ulong __ockl_printf_append_args(ulong, uint, ulong, ulong, ulong, ulong, ulong, ulong, ulong, uint);
#define lane __builtin_amdgcn_workitem_id_x()
#define group __builtin_amdgcn_workgroup_id_x()
#define load(p) __opencl_atomic_load((__global atomic_uint *)(p), 0, 2)
#define load64(p) __opencl_atomic_load((__global atomic_ulong *)(p), 0, 2)
#define store(p, v) __opencl_atomic_store((__global atomic_uint *)(p), v, 0, 2)
#define store64(p, v) __opencl_atomic_store((__global atomic_ulong *)(p), v, 0, 2)
#define add(p, v) __opencl_atomic_fetch_add((__global atomic_uint *)(p), v, 0, 2)
"""


@functools.cache
def compiled(target: str, source: str, library: bool = True, version: int = 5) -> bytes:
    """Compiles kernels in OpenCL C, after HEAD, to a code object of a version; skips the test if a wheel is missing."""
    triton = importlib.util.find_spec("triton")
    if importlib.util.find_spec("ziglang") is None or (library and triton is None):
        pytest.skip("needs the wheels ziglang and triton")
    bitcode: list[str] = []
    linked = ""
    if library and triton is not None and triton.origin:
        path = Path(triton.origin).parent / "backends/amd/lib/ockl.bc"
        if not path.exists():
            pytest.skip("Triton's wheel is not for AMD GPUs here")
        bitcode = ["-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(path)]
        linked = importlib.metadata.version("triton")
    options = ["-x", "cl", "-cl-std=CL2.0", "-cl-no-stdinc", "-O2", "-w", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}",
               "-nogpulib", f"-mcode-object-version={version}", *bitcode]  # fmt: skip
    commands = [["clang", *options, "-c", "kernel.cl", "-o", "kernel.o"], ["ld.lld", "-shared", "kernel.o", "-o", "kernel.co"]]
    return file_of(commands, {"kernel.cl": HEAD.format(version=VERSIONS[target], abi=100 * version) + source}, "kernel.co", linked)
