"""A board as programs see it: hipDeviceProp_t of HIP 5 and of HIP 6 and later, and hipDeviceAttribute_t by number.

Offsets and numbers are HIP's binary interface (hip_runtime_api.h of 5.7 and 7.1). Figures that no descriptor holds have their
source beside them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from simgpu.hardware.descriptor import HardwareDescriptor

OLD_BYTES, BYTES = 792, 1472  # of hipDeviceProp_t in HIP 5, and in HIP 6 and 7
INT_MAX = (1 << 31) - 1
# Bits of HBM's bus: four or eight stacks of 1024 (AMD's data sheets).
BUS_BITS = {"gfx908": 4096, "gfx90a": 4096, "gfx942": 8192, "gfx950": 8192}
PRODUCTS = {
    "mi100": "AMD Instinct MI100", "mi210": "AMD Instinct MI210", "mi250x": "AMD Instinct MI250X", "mi300a": "AMD Instinct MI300A",
    "mi300x": "AMD Instinct MI300X", "mi325x": "AMD Instinct MI325X", "mi350x": "AMD Instinct MI350X",
    "mi355x": "AMD Instinct MI355X",
}  # fmt: skip
# All bits of hipDeviceArch_t except hasFunnelShift, hasSyncThreadsExt, hasSurfaceFuncs and hasDynamicParallelism.
ARCH_BITS = 0x1FFFF & ~(1 << 11 | 1 << 13 | 1 << 14 | 1 << 16)
WALL_CLOCK_KHZ = 100_000  # s_memrealtime counts at 100 MHz (ISA guides)


@dataclass(frozen=True)
class Property:
    """A property: its offsets in both structures, and its attribute's number; None if it has none."""

    name: str
    old: int | None  # in hipDeviceProp_t of HIP 5
    new: int | None  # in hipDeviceProp_t of HIP 6 and later
    attribute: int | None  # number in hipDeviceAttribute_t
    format: str = "i"  # as for `struct`


# fmt: off
PROPERTIES = (
    Property("name", 0, 0, None, "256s"), Property("uuid", None, 256, None, "16s"),
    Property("totalGlobalMem", 256, 288, None, "Q"), Property("sharedMemPerBlock", 264, 296, 74, "Q"),
    Property("regsPerBlock", 272, 304, 71), Property("warpSize", 276, 308, 87), Property("maxThreadsPerBlock", 280, 320, 56),
    Property("maxThreadsDim", 284, 324, None, "3i"), Property("maxGridSize", 296, 336, None, "3i"),
    Property("clockRate", 308, 348, 5), Property("memoryClockRate", 312, 608, 60), Property("memoryBusWidth", 316, 612, 59),
    Property("totalConstMem", 320, 352, 83, "Q"), Property("major", 328, 360, 23), Property("minor", 332, 364, 61),
    Property("multiProcessorCount", 336, 388, 63), Property("l2CacheSize", 340, 616, 19),
    Property("maxThreadsPerMultiProcessor", 344, 624, 57), Property("computeMode", 348, 404, 6),
    Property("clockInstructionRate", 352, 1424, 10000), Property("arch", 356, 1428, None),
    Property("concurrentKernels", 360, 576, 8),
    Property("pciDomainID", 364, 592, 69), Property("pciBusID", 368, 584, 67), Property("pciDeviceID", 372, 588, 68),
    Property("maxSharedMemoryPerMultiProcessor", 376, 1416, 10002, "Q"), Property("isMultiGpuBoard", 384, 656, 17),
    Property("canMapHostMemory", 388, 400, 3), Property("gcnArch", 392, None, None),
    Property("gcnArchName", 396, 1160, None, "256s"),
    Property("integrated", 652, 396, 16), Property("cooperativeLaunch", 656, 688, 10),
    Property("cooperativeMultiDeviceLaunch", 660, 692, 11), Property("maxTexture1DLinear", 664, 416, 41),
    Property("maxTexture1D", 668, 408, 39), Property("maxTexture2D", 672, 420, None, "2i"),
    Property("maxTexture3D", 680, 456, None, "3i"), Property("memPitch", 712, 312, 58, "Q"),
    Property("textureAlignment", 720, 368, 81, "Q"), Property("texturePitchAlignment", 728, 376, 82, "Q"),
    Property("kernelExecTimeoutEnabled", 736, 392, 18), Property("ECCEnabled", 740, 580, 0), Property("tccDriver", 744, 596, 80),
    Property("isLargeBar", 764, 1464, 10011), Property("asicRevision", 768, 1468, 10012), Property("managedMemory", 772, 652, 24),
    Property("directManagedMemAccessFromHost", 776, 708, 13), Property("concurrentManagedAccess", 780, 676, 9),
    Property("pageableMemoryAccess", 784, 672, 65), Property("pageableMemoryAccessUsesHostPageTables", 788, 704, 66),
    Property("deviceOverlap", None, 384, 12), Property("asyncEngineCount", None, 600, 2),
    Property("unifiedAddressing", None, 604, 85),
    Property("streamPrioritiesSupported", None, 628, 78), Property("globalL1CacheSupported", None, 632, 14),
    Property("localL1CacheSupported", None, 636, 20), Property("sharedMemPerMultiprocessor", None, 640, 76, "Q"),
    Property("regsPerMultiprocessor", None, 648, 72), Property("hostNativeAtomicSupported", None, 664, 15),
    Property("singleToDoublePrecisionPerfRatio", None, 668, 77), Property("computePreemptionSupported", None, 680, 7),
    Property("canUseHostPointerForRegisteredMem", None, 684, 4), Property("sharedMemPerBlockOptin", None, 696, 75, "Q"),
    Property("maxBlocksPerMultiProcessor", None, 712, 25), Property("hostRegisterSupported", None, 728, 90),
    Property("memoryPoolsSupported", None, 744, 88), Property("surfaceAlignment", None, 568, 79, "Q"),
)
# fmt: on


def values(board: HardwareDescriptor, index: int) -> dict[str, object]:
    """Returns a board's properties by name; the others are 0. index: of the device among the program's."""
    width = BUS_BITS.get(board.arch, 4096)
    waves = board.max_waves_per_simd * board.simds_per_cu
    registers = board.registers_per_cu
    clock = board.clock_mhz * 1000
    name = PRODUCTS.get(board.name, board.name)
    return {
        "name": name, "uuid": f"simgpu{index:010}", "totalGlobalMem": board.hbm_bytes, "sharedMemPerBlock": board.lds_bytes,
        "regsPerBlock": registers // 2, "warpSize": board.wavefront_size, "maxThreadsPerBlock": board.max_workgroup_size,
        "maxThreadsDim": (board.max_workgroup_size,) * 3, "maxGridSize": (INT_MAX, 65536, 65536), "clockRate": clock,
        "memoryClockRate": round(board.hbm_bandwidth_tb * 1e12 / (2 * width / 8) / 1e3), "memoryBusWidth": width,
        "totalConstMem": INT_MAX, "major": int(board.arch[3]), "minor": int(board.arch[4], 16),
        "multiProcessorCount": board.num_cus, "l2CacheSize": board.l2_bytes, "maxThreadsPerMultiProcessor": board.threads_per_cu,
        "clockInstructionRate": WALL_CLOCK_KHZ, "arch": ARCH_BITS, "concurrentKernels": 1, "pciBusID": index + 1,
        "maxSharedMemoryPerMultiProcessor": board.lds_bytes, "canMapHostMemory": 1,
        "gcnArch": int(board.arch[3:]) if board.arch[3:].isdecimal() else 910, "gcnArchName": f"{board.arch}:sramecc+:xnack-",
        "cooperativeLaunch": 1, "cooperativeMultiDeviceLaunch": 1, "memPitch": INT_MAX, "textureAlignment": 256,
        "texturePitchAlignment": 256, "ECCEnabled": 1, "isLargeBar": 1, "managedMemory": 1, "concurrentManagedAccess": 1,
        "deviceOverlap": 1, "asyncEngineCount": 8, "unifiedAddressing": 1, "streamPrioritiesSupported": 1,
        "globalL1CacheSupported": 1, "localL1CacheSupported": 1, "sharedMemPerMultiprocessor": board.lds_bytes,
        "regsPerMultiprocessor": registers, "hostNativeAtomicSupported": 1,
        "singleToDoublePrecisionPerfRatio": 2 if board.arch == "gfx908" else 1, "sharedMemPerBlockOptin": board.lds_bytes,
        "maxBlocksPerMultiProcessor": waves, "hostRegisterSupported": 1, "memoryPoolsSupported": 1, "surfaceAlignment": 256,
    }  # fmt: skip


def structure(told: dict[str, object], old: bool) -> bytes:
    """Returns hipDeviceProp_t of HIP 5 (`old`), or of HIP 6 and later."""
    made = bytearray(OLD_BYTES if old else BYTES)
    for field in PROPERTIES:
        at = field.old if old else field.new
        if at is not None:
            struct.pack_into(f"<{field.format}", made, at, *_pack_values(told.get(field.name, 0), field.format))
    return bytes(made)


def _pack_values(value: object, format: str) -> tuple[object, ...]:
    if isinstance(value, str):
        return (value.encode(),)
    if isinstance(value, tuple):
        return value
    return (value,) if len(format) == 1 else (value,) * int(format[:-1])


def attributes(told: dict[str, object], board: HardwareDescriptor) -> dict[int, int]:
    """Returns values by the number of a hipDeviceAttribute_t; values that do not fit an int become the largest int."""
    found = {field.attribute: value for field in PROPERTIES if field.attribute is not None
             and isinstance(value := told.get(field.name, 0), int)}  # fmt: skip
    grid, block = told["maxGridSize"], told["maxThreadsDim"]
    assert isinstance(grid, tuple) and isinstance(block, tuple)
    found |= {number: extent for number, extent in zip((26, 27, 28, 29, 30, 31), (*block, *grid))}
    found |= {
        55: board.max_workgroup_size, 89: 1, 10013: 1, 10015: board.num_cus, 10016: 1,
        10017: WALL_CLOCK_KHZ, 10018: board.xcds, 10019: board.vgpr_per_thread + board.agpr_per_thread * board.unified_vgprs,
    }  # fmt: skip
    # Known to be 0: windows, graphs of a board, images (10014). CDNA3 has no images; those of CDNA1 and 2 are not simulated.
    known = {number: 0 for number in (*range(92), *range(10000, 10021))}
    return {number: min(value, INT_MAX) for number, value in (known | found).items()}
