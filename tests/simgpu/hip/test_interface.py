"""Binary interface: symbols with AMD's versions, and numbers and offsets as in HIP's headers."""

from __future__ import annotations

import importlib.util
import re
import struct
import subprocess
from pathlib import Path

import pytest

from simgpu import hardware
from simgpu.hip import library, properties
from tests.support.hip_compiler import host_compiler, run

# Most frequent imports of public programs; each must be more than a name.
IMPORTED = """
__hipPopCallConfiguration __hipPushCallConfiguration __hipRegisterFatBinary __hipRegisterFunction __hipRegisterManagedVar
__hipRegisterVar __hipUnregisterFatBinary hipDeviceCanAccessPeer hipDeviceEnablePeerAccess hipDeviceGetAttribute hipDeviceReset
hipDeviceSynchronize hipEventCreate hipEventCreateWithFlags hipEventDestroy hipEventElapsedTime hipEventQuery hipEventRecord
hipEventSynchronize hipExtHostAlloc hipExtLaunchKernel hipExtModuleLaunchKernel hipFree hipFreeAsync hipFuncGetAttributes
hipFuncSetAttribute hipFuncSetCacheConfig hipGetDevice hipGetDeviceCount hipGetDeviceProperties hipGetDevicePropertiesR0600
hipGetErrorName hipGetErrorString hipGetLastError hipGetStreamDeviceId hipGetSymbolAddress hipGetSymbolSize hipGraphDestroy
hipGraphExecDestroy hipGraphInstantiate hipGraphLaunch hipHostFree hipHostGetDevicePointer hipHostMalloc hipHostRegister
hipHostUnregister hipInit hipLaunchCooperativeKernel hipLaunchHostFunc hipLaunchKernel hipMalloc hipMallocAsync hipMallocManaged
hipMallocPitch hipMemAdvise hipMemGetInfo hipMemPrefetchAsync hipMemcpy hipMemcpy2D hipMemcpy2DAsync hipMemcpy3D hipMemcpyAsync
hipMemcpyDtoH hipMemcpyFromSymbol hipMemcpyHtoD hipMemcpyPeer hipMemcpyPeerAsync hipMemcpyToSymbol hipMemcpyToSymbolAsync
hipMemcpyWithStream hipMemset hipMemset2D hipMemsetAsync hipMemsetD32 hipModuleGetFunction hipModuleGetGlobal
hipModuleLaunchKernel hipModuleLoad hipModuleLoadData hipModuleUnload hipOccupancyMaxActiveBlocksPerMultiprocessor
hipOccupancyMaxPotentialBlockSize hipPeekAtLastError hipPointerGetAttributes hipRuntimeGetVersion hipSetDevice hipSetDeviceFlags
hipStreamAddCallback hipStreamBeginCapture hipStreamCreate hipStreamCreateWithFlags hipStreamCreateWithPriority hipStreamDestroy
hipStreamEndCapture hipStreamQuery hipStreamSynchronize hipStreamWaitEvent hiprtcCompileProgram hiprtcCreateProgram hiprtcGetCode
""".split()


@pytest.fixture(scope="module")
def exported() -> dict[str, tuple[str, bool]]:
    """Returns the library's functions by name: symbol version, and true if it is only a name."""
    data = (library.folder() / "libamdhip64.so").read_bytes()
    elftools = pytest.importorskip("elftools.elf.elffile")
    import io

    file = elftools.ELFFile(io.BytesIO(data))
    names = {}
    versions = file.get_section_by_name(".gnu.version_d")
    nodes = {version.entry.vd_ndx: next(iter(auxiliaries)).name for version, auxiliaries in versions.iter_versions()}
    numbers = file.get_section_by_name(".gnu.version")
    for index, symbol in enumerate(file.get_section_by_name(".dynsym").iter_symbols()):
        if symbol.entry.st_shndx != "SHN_UNDEF" and symbol.entry.st_info.type == "STT_FUNC":
            number = numbers.get_symbol(index).entry["ndx"]
            number = number if isinstance(number, int) else 1
            names[symbol.name] = nodes[number & 0x7FFF], symbol.entry.st_info.bind == "STB_WEAK"
    return names


def test_every_function_has_the_version_by_which_programs_ask_for_it(exported: dict[str, tuple[str, bool]]) -> None:
    for version, names in library.symbols().items():
        assert {name: exported[name][0] for name in names} == dict.fromkeys(names, version)


def test_what_programs_import_is_there(exported: dict[str, tuple[str, bool]]) -> None:
    assert [name for name in IMPORTED if exported[name][1]] == []


def test_the_library_has_the_names_of_hip_5_to_7() -> None:
    there = {path.name for path in library.folder().iterdir()}
    assert {"libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7", "libhiprtc.so.6"} <= there


@pytest.fixture(scope="module")
def headers() -> Path:
    found = importlib.util.find_spec("triton")
    folder = Path(next(iter(found.submodule_search_locations or ()))) / "backends" / "amd" / "include" if found else None
    if folder is None or not (folder / "hip" / "hip_runtime_api.h").is_file():
        pytest.skip("HIP's headers come with the triton wheel, which is not installed")
    return folder


def printed(headers: Path, tmp_path: Path, lines: list[str]) -> list[int]:
    """Returns the values of C expressions of HIP's headers."""
    text = "#define __HIP_PLATFORM_AMD__\n#include <hip/hip_runtime_api.h>\n#include <hip/hip_deprecated.h>\n#include <stdio.h>\n"
    body = "".join(f'printf("%ld\\n", (long)({line}));\n' for line in lines)
    (tmp_path / "ask.c").write_text(f"{text}#include <stddef.h>\nint main(void) {{ {body} return 0; }}\n")
    run([*host_compiler(), "-w", f"-I{headers}", tmp_path / "ask.c", "-o", tmp_path / "ask"])
    done = subprocess.run([tmp_path / "ask"], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def test_offsets_numbers_and_errors_are_those_of_the_headers(headers: Path, tmp_path: Path) -> None:
    wanted, asked = [], []
    for kind, size in (("hipDeviceProp_tR0000", properties.OLD_BYTES), ("hipDeviceProp_tR0600", properties.BYTES)):
        asked.append(f"sizeof({kind})")
        wanted.append(size)
        for field in properties.PROPERTIES:
            at = field.old if kind.endswith("0000") else field.new
            if at is not None:
                asked += [f"offsetof({kind}, {field.name})", f"sizeof((({kind} *)0)->{field.name})"]
                wanted += [at, struct.calcsize(f"<{field.format}")]
    source = (library.SOURCES / "base" / "errors.c").read_text()
    errors = re.findall(r'\{(\d+), "(hip\w+)"', source)
    asked += [name for _, name in errors]
    wanted += [int(number) for number, _ in errors]
    named = {"hipDeviceAttributeWarpSize": "warpSize", "hipDeviceAttributeMultiprocessorCount": "multiProcessorCount",
             "hipDeviceAttributeClockRate": "clockRate", "hipDeviceAttributeMaxThreadsPerBlock": "maxThreadsPerBlock",
             "hipDeviceAttributeComputeCapabilityMajor": "major", "hipDeviceAttributeMemoryBusWidth": "memoryBusWidth",
             "hipDeviceAttributeL2CacheSize": "l2CacheSize", "hipDeviceAttributeCooperativeLaunch": "cooperativeLaunch",
             "hipDeviceAttributeMaxThreadsPerMultiProcessor": "maxThreadsPerMultiProcessor"}  # fmt: skip
    numbers = {field.name: field.attribute for field in properties.PROPERTIES}
    asked += named
    wanted += [numbers[name] or 0 for name in named.values()]
    assert printed(headers, tmp_path, asked) == wanted


@pytest.mark.parametrize("name", ["mi100", "mi210", "mi250x", "mi300a", "mi300x", "mi325x", "mi350x", "mi355x"])
def test_both_structures_tell_the_same_of_every_board(name: str) -> None:
    board = hardware.target(name)
    told = properties.values(board, 0)
    old, new = properties.structure(told, old=True), properties.structure(told, old=False)
    for field in properties.PROPERTIES:
        places = [(data, at) for data, at in ((old, field.old), (new, field.new)) if at is not None]
        read = [struct.unpack_from(f"<{field.format}", data, at) for data, at in places]
        assert all(value == read[0] for value in read)
    attributes = properties.attributes(told, board)
    assert attributes[63] == board.num_cus and attributes[87] == 64 and all(-(1 << 31) <= v < 1 << 31 for v in attributes.values())
    assert told["memoryClockRate"] in range(1_000_000, 4_100_000)
