"""Descriptors of GPUs, one row each. Every figure has its source beside it; `atoms` come from `matrix_table`.

Legend of the tags:
  [SPECS]  AMD ROCm docs, "Accelerator and GPU hardware specifications" (docs/reference/gpu-arch-specs.rst)
  [MI1]    AMD ROCm docs, "AMD Instinct MI100 microarchitecture" (gpu-arch/mi100.md)
  [MI2]    the same for MI250 (mi250.md);  [MI3] the same for MI300 (mi300.md)
  [RPC]    ROCm Compute Profiler documentation and its recorded sysinfo files
  [LLVM]   observed with LLVM 19 (gfx908, gfx90a, gfx942) or LLVM 24 (gfx950)
  [USAGE]  LLVM AMDGPUUsage.rst;  [WP] AMD white papers and product datasheets (both not re-read line by line)
  [HK]     HipKittens' counter measurements on gfx950
  [PAPER]  the paper's listing in section "Hardware Model", as printed
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from simgpu.hardware.architectures import GFX12
from simgpu.hardware.descriptor import HardwareDescriptor, MFMAAtom
from simgpu.hardware.dtypes import dtype
from simgpu.hardware.errors import TargetError
from simgpu.hardware.matrix_table import FORMATS, Entry, entries

_KIB, _MIB, _GB = 1 << 10, 1 << 20, 10**9


def _atoms(arch: str) -> tuple[MFMAAtom, ...]:
    """Returns the dense instructions with one block whose A and B have one type, which GEMM can use."""
    return tuple(
        MFMAAtom(row.m, row.n, row.k, name, row.cd_type, mnemonic=row.mnemonic, passes=row.passes)
        for row in entries(arch)
        if row.blocks == 1 and row.a_type == row.b_type and not row.sparse and not row.scaled
        for name in _element_types(row)
    )


def _scaled_atoms(arch: str) -> tuple[MFMAAtom, ...]:
    """Returns the atoms with E8M0 scales for every pair of formats. Pairs of 6- and 4-bit formats have half the passes."""
    return tuple(
        MFMAAtom(row.m, row.n, row.k, a, row.cd_type, mnemonic=row.mnemonic, passes=row.passes // (2 if narrow else 1), dtype_b=b)
        for row in entries(arch)
        if row.scaled
        for a, b in product(FORMATS, FORMATS)
        for narrow in (max(dtype(a).bits, dtype(b).bits) < 8,)
    )


def _element_types(row: Entry) -> tuple[str, ...]:
    """Returns an instruction's input types as named in `hardware.dtypes`; for f8f6f4, only its 8-bit formats."""
    return FORMATS[:2] if row.a_type == "f8f6f4" else (row.a_type.removesuffix("_fnuz"),)


_MI100 = HardwareDescriptor(
    name="mi100", arch="gfx908", atoms=_atoms("gfx908"),
    lds_bytes=64 * _KIB,  # [SPECS]
    vgpr_per_thread=256, agpr_per_thread=256, unified_vgprs=False,  # 512 KiB a CU in two files [SPECS]
    vgpr_granule=4, max_waves_per_simd=10,  # [LLVM]
    wavefront_size=64, num_cus=120,  # [SPECS][MI1]
    simds_per_cu=4,  # [MI1]
    max_workgroup_size=1024,  # [RPC]
    sgprs_per_wave=102, sgpr_file_per_simd=800, sgpr_granule=16,  # [MI1][SPECS: 12.5 KiB a CU][USAGE]
    lds_granule=512,  # [USAGE]
    lds_banks=32, lds_bytes_per_clock=128,  # [RPC]
    clock_mhz=1502,  # [RPC]
    peak_tflops_f32=23.1,  # vector [MI1]; the paper's 11.5 is the f64 peak (erratum E1)
    hbm_bandwidth_tb=1.2288, hbm_bytes=32 * _GB,  # [MI1]
    xcds=1, l2_bytes=8 * _MIB,  # [SPECS]
    # 32 channels x 64 B requests [RPC]; [WP]'s 6 TB/s would be 128 B; 2.53 TB/s is measured (rocm-amdgpu-bench 4)
    l2_bytes_per_clock=32 * 64,
)
_MI210 = replace(
    _MI100,
    name="mi210", arch="gfx90a", atoms=_atoms("gfx90a"),
    unified_vgprs=True, vgpr_granule=8, max_waves_per_simd=8,  # [SPECS][LLVM]
    num_cus=104,  # [SPECS]
    clock_mhz=1700,  # [RPC]
    peak_tflops_f32=22.6,  # vector, not packed: 104 x 128 x 1.7 GHz [MI2 rates]
    hbm_bandwidth_tb=1.6384, hbm_bytes=64 * _GB,  # [MI2][RPC]
    l2_bytes_per_clock=32 * 128,  # 32 channels x 128 B [RPC][WP]
)
_MI250X = replace(_MI210, name="mi250x", num_cus=110, peak_tflops_f32=23.9)  # one GCD of two: 110 CUs [SPECS], 110 x 128 x 1.7 GHz
_MI300X = replace(
    _MI210,
    name="mi300x", arch="gfx942", atoms=_atoms("gfx942"),
    num_cus=304, xcds=8,  # 8 XCDs of 38 [SPECS][MI3]
    clock_mhz=2100,  # [RPC]
    peak_tflops_f32=163.4,  # vector, packed [MI3]
    hbm_bandwidth_tb=5.3248, hbm_bytes=192 * _GB,  # [MI3][RPC]
    l2_bytes=4 * _MIB, l2_bytes_per_clock=128 * 128,  # per XCD 4 MiB; 128 channels [SPECS] x 128 B [WP]
    mall_bytes=256 * _MIB, mall_bandwidth_tb=17.2,  # Infinity Cache: size [SPECS], bandwidth [WP]
)
_MI300A = replace(
    _MI300X,
    name="mi300a", num_cus=228, xcds=6,  # 6 XCDs of 38 [SPECS]
    peak_tflops_f32=122.6,  # [WP]; 228 x 256 x 2.1 GHz
    hbm_bytes=128 * _GB,  # [SPECS]
    l2_bytes_per_clock=96 * 128,  # 16 channels an XCD [SPECS] x 128 B [WP]
)
_MI325X = replace(_MI300X, name="mi325x", hbm_bandwidth_tb=6.0, hbm_bytes=256 * _GB)  # HBM3E [WP]; the rest is MI300X [SPECS]
_MI355X = replace(
    _MI300X,
    name="mi355x", arch="gfx950", atoms=_atoms("gfx950"), scaled_atoms=_scaled_atoms("gfx950"),
    lds_bytes=160 * _KIB,  # [SPECS][HK]
    lds_granule=1280,  # [USAGE]
    lds_banks=64,  # for ds_read_b64 and b128; 32 for writes and b96 reads [HK]
    lds_bytes_per_clock=128,  # writes [RPC]; reads are quoted at 256, not confirmed
    num_cus=256,  # 8 XCDs of 32 [SPECS]
    clock_mhz=2400,  # [HK]
    peak_tflops_f32=157.3,  # [WP]; 256 x 256 x 2.4 GHz
    hbm_bandwidth_tb=8.0, hbm_bytes=288 * _GB,  # [WP]
    mall_bandwidth_tb=0.0,  # no figure found; the size is MI300X's [SPECS]
)
_MI350X = replace(_MI355X, name="mi350x", clock_mhz=2200, peak_tflops_f32=144.2)  # [HK: 2200]; 256 x 256 x 2.2 GHz

# [PAPER] as printed, even if AMD's figures differ: errata E1 (f32 peaks, halved), E2 (383 is MI250X's f16 figure), E3
# (AccVGPRs left out). Figures that the paper does not print are the descriptor's defaults, which are MI100's; results that
# depend on them mention it.
_ASSUMED = "clock, L2 and AccVGPRs are MI100's, the paper prints none"
_GPU_A = HardwareDescriptor(
    name="gpu_a", lds_bytes=64 * 1024, vgpr_per_thread=256, wavefront_size=64, num_cus=120,
    hbm_bandwidth_tb=1.2, peak_tflops_f32=11.5,
    atoms=[MFMAAtom(m=16, n=16, k=4, dtype_in="f32", dtype_acc="f32")],
    assumed=_ASSUMED,
)
_GPU_B = HardwareDescriptor(
    name="gpu_b", lds_bytes=64 * 1024, vgpr_per_thread=256, wavefront_size=64, num_cus=304,
    hbm_bandwidth_tb=5.3, peak_tflops_f32=383.0,
    atoms=[MFMAAtom(m=16, n=16, k=4, dtype_in="f32", dtype_acc="f32")],
    assumed=_ASSUMED,
)

_BOARDS = {
    row.name: row
    for row in (_MI100, _MI210, _MI250X, _MI300A, _MI300X, _MI325X, _MI350X, _MI355X, _GPU_A, _GPU_B)
}
_ARCHITECTURES = {"gfx908": "mi100", "gfx90a": "mi210", "gfx942": "mi300x", "gfx950": "mi355x"}


def targets() -> tuple[str, ...]:
    """Returns the names of the boards, including the paper's gpu_a and gpu_b.

    >>> targets()[:4]
    ('mi100', 'mi210', 'mi250x', 'mi300a')
    """
    return tuple(_BOARDS)


def architecture(name: str) -> str:
    """Returns the architecture of a name: itself (gfx942, and gfx1250, which is not executed), or a board's.

    Raises TargetError as `target`.

    >>> architecture("mi300x"), architecture("gfx1250")
    ('gfx942', 'gfx1250')
    """
    return name if name in _ARCHITECTURES or name in GFX12 else target(name).arch


def architectures() -> tuple[str, ...]:
    """Returns the names of the architectures; each also names a board.

    >>> architectures()
    ('gfx908', 'gfx90a', 'gfx942', 'gfx950')
    """
    return tuple(_ARCHITECTURES)


# Most devices that PyTorch counts: C10_COMPILE_TIME_MAX_GPUS (c10/cuda/CUDAMacros.h).
MOST_GPUS = 120


def target(name: str | HardwareDescriptor) -> HardwareDescriptor:
    """Returns the descriptor of a board, or of the board of an architecture (gfx908, gfx90a, gfx942, gfx950).

    Case does not matter. A descriptor, which may be of a board that nobody built, is returned as it is. Raises TargetError, which
    lists the known names.

    >>> target("gfx942").name, target("MI300X").num_cus
    ('mi300x', 304)
    """
    if isinstance(name, HardwareDescriptor):
        return name
    key = name.strip().lower() if isinstance(name, str) else ""
    row = _BOARDS.get(_ARCHITECTURES.get(key, key))
    if row is None and key in GFX12:
        raise TargetError(f"{name} is not executed or timed: only `simgpu disasm` and `simgpu lint` read its code objects")
    if row is None:
        raise TargetError(
            f"unknown target {name!r}: use a board ({', '.join(_BOARDS)}) or an architecture ({', '.join(_ARCHITECTURES)})"
        )
    return row


def target_count(name: str) -> tuple[str, int]:
    """Splits a target and a count: "mi300x:2" is ("mi300x", 2), "mi300x" ("mi300x", 1). Raises TargetError for anything else.

    >>> target_count("mi300x:2")
    ('mi300x', 2)
    """
    board, colon, count = name.partition(":")
    if colon and not (count.isdecimal() and 1 <= int(count) <= MOST_GPUS):
        raise TargetError(f"unknown target {name!r}: give the number of GPUs behind the colon, 1 to {MOST_GPUS}")
    target(board)
    return board, int(count or 1)
