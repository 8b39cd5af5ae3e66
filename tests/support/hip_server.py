"""Other side of tests/support/hip_stand_in.c: records HIP calls and answers them from the simulated GPU."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import simgpu
from simgpu.hardware.code_object.arguments import Geometry, pack
from simgpu.hardware.errors import SimError, ToolchainError
from tests.support.hip_compiler import host_compiler

SOURCE = Path(__file__).with_name("hip_stand_in.c")
REQUEST, ANSWER = struct.Struct("<40s10QQ"), struct.Struct("<q2QQ")
STREAM, EVENT, MODULE, FUNCTION = (kind << 40 for kind in (0x51, 0x52, 0x53, 0x54))
NOT_READY, LAUNCH_FAILURE = 600, 719
ABORT = -6  # the stand-in then ends the process as ROCm does on a page fault
TICK_SECONDS = 1e-6  # an event's own time


def build(folder: Path) -> Path:
    """Builds the stand-in as a library, by the wheel's clang or the system's compiler."""
    library = folder / "libamdhip64.so"
    try:
        compiler = host_compiler()
    except ToolchainError:
        compiler = ()
    if not compiler or subprocess.run([*compiler, "--version"], capture_output=True).returncode:
        compiler = (shutil.which("clang") or "cc",)
    subprocess.run([*compiler, "-shared", "-fPIC", "-Wall", "-o", library, SOURCE], check=True)
    return library


Reply = tuple[int, int, int, bytes]  # status, two numbers, bytes
FINE: Reply = (0, 0, 0, b"")


@dataclass
class GPU:
    """A GPU that the stand-in pretends to have."""

    library: Path
    target_id: str = "gfx908:sramecc+:xnack-"
    product: str = "AMD Instinct MI100"
    count: int = 1
    fail: dict[str, int] = field(default_factory=dict)  # hipError_t by call, returned instead of carrying the call out
    hang: bool = False  # no event is ever reached
    corrupt: bool = False  # the first bytes of every download are spoiled
    drift: bool = False  # those of each download after the first are spoiled
    largest: int = 1 << 40  # bytes of an allocation
    calls: Counter[str] = field(default_factory=Counter)  # calls that came, as violations and launches
    violations: list[str] = field(default_factory=list)
    launches: list[tuple[str, Geometry, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        arch = self.target_id.partition(":")[0]
        self.device = simgpu.Device(arch if arch in ("gfx90a", "gfx942", "gfx950") else "gfx908", threads=1)
        self.buffers: dict[int, simgpu.Buffer] = {}
        self.modules: list[simgpu.Module] = []
        self.functions: list[simgpu.Kernel] = []
        self.events: list[float | None] = []
        self.clock = 0.0
        self.failure = 0

    # -- one method a call; the arguments are the request's numbers and bytes ----------------------

    def hipRuntimeGetVersion(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        return 0, 60443483, 0, b""

    def hipGetDeviceCount(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        return (0, self.count, 0, b"") if self.count else (100, 0, 0, b"")

    def hipGetDevicePropertiesR0600(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        return 0, 0, 0, self.product.encode().ljust(256, b"\0") + self.target_id.encode().ljust(256, b"\0")

    def hipMemGetInfo(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        return 0, self.largest, 32 << 30, b""

    def hipMalloc(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        if numbers[0] > self.largest:
            return 2, 0, 0, b""
        buffer = self.device.upload(np.full(numbers[0], 0xFF, np.uint8))  # memory is not cleared: NaN
        self.buffers[buffer.address] = buffer
        return 0, buffer.address, 0, b""

    def hipFree(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.device.free(self.buffers.pop(numbers[0]))
        return FINE

    def hipMemcpy(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        to, source, nbytes, kind = numbers[:4]
        buffer = self.buffers[to if kind == 1 else source]
        if kind == 1:
            buffer.write(np.frombuffer(raw, np.uint8))
            return FINE
        data = buffer.download(np.uint8, nbytes)
        if self.corrupt or (self.drift and self.calls["download"]):
            data[:4] = 0x41
        self.calls["download"] += 1
        return 0, 0, 0, data.tobytes()

    def hipStreamCreate(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        return 0, STREAM + 1, 0, b""

    def hipEventCreate(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.events.append(None)
        return 0, EVENT + len(self.events) - 1, 0, b""

    def hipEventRecord(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.clock += TICK_SECONDS
        self.events[numbers[0] - EVENT] = self.clock
        return FINE

    def hipEventQuery(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        if self.hang:
            return NOT_READY, 0, 0, b""
        return self.failure, 0, 0, b""

    def hipEventElapsedTime(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        before, after = (self.events[number - EVENT] for number in numbers[:2])
        if before is None or after is None:
            raise ValueError("an event that was never recorded")
        return 0, struct.unpack("<I", struct.pack("<f", 1e3 * (after - before)))[0], 0, b""

    def hipModuleLoadData(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.modules.append(self.device.load(raw))
        return 0, MODULE + len(self.modules) - 1, 0, b""

    def hipModuleGetFunction(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.functions.append(self.modules[numbers[0] - MODULE][raw.decode()])
        return 0, FUNCTION + len(self.functions) - 1, 0, b""

    def hipModuleLaunchKernel(self, numbers: tuple[int, ...], raw: bytes) -> Reply:
        """Runs the kernel at once; the next event reports its error, as in a stream."""
        kernel = self.functions[numbers[0] - FUNCTION]
        grid, block, lds = numbers[1:4], numbers[4:7], numbers[7]
        geometry = Geometry.of(grid, block, lds)
        args = [raw[argument.offset :][: argument.size] for argument in kernel.arguments]
        if pack(kernel.info, args, geometry) != raw:
            raise ValueError("the argument buffer is not the kernarg segment of this launch")
        self.launches.append((kernel.name, geometry, raw))
        if self.hang:
            return FINE
        try:
            self.clock += kernel.launch(grid=grid, block=block, args=args, dynamic_lds=lds).seconds
        except SimError:
            self.failure = LAUNCH_FAILURE
        return FINE

    # -- the socket -----------------------------------------------------------------------------

    @property
    def environment(self) -> dict[str, str]:
        """Environment that a process needs to meet this GPU."""
        return {**os.environ, "SIMGPU_HIP": str(self.library), "SIMGPU_STAND_IN": self._path}

    def __enter__(self) -> GPU:
        self._folder = tempfile.TemporaryDirectory(prefix="hip-")
        self._path = os.path.join(self._folder.name, "gpu")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self._folder.cleanup()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:  # closed
                return
            with peer, peer.makefile("rwb") as stream:
                while header := stream.read(REQUEST.size):
                    name, *numbers, nbytes = REQUEST.unpack(header)
                    raw = stream.read(nbytes)
                    status, first, second, data = self._answer(name.rstrip(b"\0").decode(), tuple(numbers), raw)
                    stream.write(ANSWER.pack(status, first, second, len(data)) + data)
                    stream.flush()

    def _answer(self, name: str, numbers: tuple[int, ...], raw: bytes) -> Reply:
        self.calls[name] += 1
        if name == "violation":
            self.violations.append(raw.decode())
            return FINE
        if name in self.fail:
            return self.fail[name], 0, 0, b""
        method: Callable[[tuple[int, ...], bytes], Reply] | None = getattr(self, name, None)
        try:
            return method(numbers, raw) if method else FINE
        except Exception as error:  # a wrong call is reported to the test, not lost in a thread
            self.violations.append(f"{name}: {type(error).__name__}: {error}")
            return 1, 0, 0, b""
