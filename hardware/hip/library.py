"""libamdhip64 by ctypes: the twenty calls that a launch needs, their C types, and texts of errors.

hip-python's `hip.hip` is not used: signatures differ between its releases (6.4:
`hipGetDeviceProperties(prop, deviceId)`; 10.0: `hipGetDeviceProperties(deviceId)`), each release is made for one version of
ROCm, and it opens only `libamdhip64.so`, a name that is absent without development packages. If it is installed, it only
locates the library in ROCm's wheels.

The C types below are those of `hip_runtime_api.h` from HIP 5.2 on; a test compares them with that header.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from pathlib import Path

from simgpu.hardware.errors import HipError

POINTERS = POINTER(c_void_p)
PROTOTYPES: dict[str, tuple[type, ...]] = {
    "hipInit": (c_uint,),
    "hipRuntimeGetVersion": (POINTER(c_int),),
    "hipGetDeviceCount": (POINTER(c_int),),
    "hipSetDevice": (c_int,),
    "hipMemGetInfo": (POINTER(c_size_t), POINTER(c_size_t)),
    "hipMalloc": (POINTERS, c_size_t),
    "hipFree": (c_void_p,),
    "hipMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "hipStreamCreate": (POINTERS,),
    "hipEventCreate": (POINTERS,),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventQuery": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipEventDestroy": (c_void_p,),
    "hipModuleLoadData": (POINTERS, c_void_p),
    "hipModuleGetFunction": (POINTERS, c_void_p, c_char_p),
    "hipModuleLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTERS, POINTERS),
}
TEXTS = ("hipGetErrorName", "hipGetErrorString")  # (hipError_t) -> const char *

# hipError_t; the numbers are CUDA's and fixed (hip_runtime_api.h).
SUCCESS, OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE, NOT_READY = 0, 2, 100, 101, 600

# hipMemcpyKind
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2

# `extra` of hipModuleLaunchKernel: one buffer holds all arguments (HIP_LAUNCH_PARAM_*).
PARAM_BUFFER_POINTER, PARAM_BUFFER_SIZE, PARAM_END = 1, 2, 3


@dataclass(frozen=True)
class Properties:
    """Layout of hipDeviceProp_t: the two strings that are read. Offsets and sizes are bytes."""

    function: str  # the function that fills the structure
    arch_offset: int  # of gcnArchName
    name_offset: int = 0  # of name
    text_bytes: int = 256  # of each string
    nbytes: int = 4096  # room for the whole structure


# HIP 6 added fields before gcnArchName and renamed the function's symbol. Offsets are clang's for the headers.
PROPERTIES = (Properties("hipGetDevicePropertiesR0600", 1160), Properties("hipGetDeviceProperties", 396))

NAMES = ("libamdhip64.so", *(f"libamdhip64.so.{major}" for major in (7, 6, 5)))
INSTALL = "Install ROCm (or Debian's libamdhip64-5), or set SIMGPU_HIP to a libamdhip64.so; without --device hip no GPU is needed."
NO_GPU = (
    "Check the amdgpu driver (/dev/kfd), the groups render and video, and HIP_VISIBLE_DEVICES; "
    "without --device hip no GPU is needed."
)
SIMULATE = "The same command with --device sim names the instruction, the wave and the lane."
REPORT = "See the runtime's own log with AMD_LOG_LEVEL=4."


class Library:
    """A loaded libamdhip64. Raises HipError if the library lacks a needed function."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._dll = ctypes.CDLL(path)
        try:
            for name, types in PROTOTYPES.items():
                getattr(self._dll, name).argtypes = types
            for name in TEXTS:
                text = getattr(self._dll, name)
                text.argtypes, text.restype = (c_int,), c_char_p
            self.properties = next(row for row in PROPERTIES if hasattr(self._dll, row.function))
            getattr(self._dll, self.properties.function).argtypes = (c_void_p, c_int)
        except (AttributeError, StopIteration) as error:
            raise HipError(f"{path} is no HIP runtime: {error or 'no hipGetDeviceProperties'}", INSTALL) from None

    def status(self, name: str, *arguments: object) -> int:
        """Calls a function of HIP and returns its hipError_t."""
        return int(getattr(self._dll, name)(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of HIP. Raises HipError unless it succeeds."""
        status = self.status(name, *arguments)
        if status != SUCCESS:
            raise HipError(f"{name}: {self.words(status)}", REPORT, status)

    def words(self, status: int) -> str:
        """Returns HIP's name and text of an error."""
        name, text = (getattr(self._dll, function)(status) for function in TEXTS)
        name, text = ((raw or b"").decode(errors="replace") for raw in (name, text))
        said = f", {text!r}" if text and text != name else ""
        return f"{name or 'an unnamed error'} ({status}){said}"

    def new(self, name: str, *arguments: object) -> int:
        """Returns the handle or address that a call returns through its first argument."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def count(self, name: str) -> int:
        """Returns the number that a call returns through its only argument."""
        value = c_int()
        self.call(name, ctypes.byref(value))
        return value.value

    def memory(self) -> tuple[int, int]:
        """Returns the current GPU's free and total memory, in bytes."""
        free, total = c_size_t(), c_size_t()
        self.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def identity(self, index: int) -> tuple[str, str]:
        """Returns the (name, gcnArchName) of a GPU, such as ("AMD Instinct MI210", "gfx90a:sramecc+:xnack-")."""
        row = self.properties
        raw = ctypes.create_string_buffer(row.nbytes)
        self.call(row.function, raw, index)
        name, arch = (
            raw.raw[at : at + row.text_bytes].partition(b"\0")[0].decode(errors="replace")
            for at in (row.name_offset, row.arch_offset)
        )
        return name, arch

    @property
    def version(self) -> str:
        """Version of HIP, such as 5.2.21153."""
        number = self.count("hipRuntimeGetVersion")  # major·10^7 + minor·10^5 + patch (hip_version.h)
        return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


def open_library() -> Library:
    """Opens the first HIP runtime of `candidates` that loads. Raises HipError with the tried paths if none does."""
    tried = list(dict.fromkeys(candidates()))
    first = ""
    for path in tried:
        try:
            return Library(path)
        except OSError as error:
            first = first or str(error)
    if os.environ.get("SIMGPU_HIP"):
        raise HipError(f"SIMGPU_HIP={tried[0]} cannot be loaded: {first}", "Correct it or unset it.")
    raise HipError(f"no HIP runtime: tried {', '.join(tried)}", INSTALL)


def candidates() -> Iterator[str]:
    """Yields paths and names of libamdhip64 in order of search.

    If the environment has SIMGPU_HIP, only that; else ROCm's (wheels, ROCM_PATH, /opt/rocm), then names for the loader.
    """
    chosen = os.environ.get("SIMGPU_HIP")
    if chosen:
        yield chosen
        return
    yield from _of_wheels()
    for root in (os.environ.get("ROCM_PATH"), "/opt/rocm"):
        if root and Path(root, "lib", NAMES[0]).exists():
            yield str(Path(root, "lib", NAMES[0]))
    yield from NAMES


def _of_wheels() -> Iterator[str]:
    """Yields the library that hip-python locates in ROCm's wheels."""
    try:
        from rocm.bindings.util.paths import get_library_path
    except ImportError:
        return
    yield os.fsdecode(get_library_path("amdhip64"))
