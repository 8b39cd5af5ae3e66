"""HIP programs that MGPUSim's authors measured on an MI300A: their kernels beside these times.

A checkout of github.com/sarchlab/mgpusim is read in place: gpu_perf_scripts/NAME.cpp and mi300a.csv. The kernels are compiled here
for each row and not kept. Its bench_common.h measures each of 51 launches between two events, so a time includes the host's part
before the kernel. The least time is used, because some launches took ten times as long as others. Each launch has the same inputs,
so caches are warm. Some constants were chosen with rows in view [docs/reference/timing-constants.md, "Chosen with errors in view"].
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hip.options import HipSource
from simgpu.sampling.samples import sample
from simgpu.timing.predict import SampledLaunch
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.checkouts import text_of

if TYPE_CHECKING:
    from simgpu.engine.device import Device

FOLDER = "gpu_perf_scripts"
BOARD = "mi300a"
F32 = 4  # bytes
LONG_US = 20.0  # from which the host's part is small
REPOSITORY = "sarchlab/mgpusim"
MOST_MEMORY = 1 << 30  # bytes of a launch's buffers that are judged


class ProgramLaunch(NamedTuple):
    """A launch of a program."""

    kernel: str
    geometry: Geometry
    args: Sequence[object]


@dataclass(frozen=True)
class MeasuredProgram:
    """A published time."""

    program: str  # NAME.cpp
    size: str  # as the table has it
    us: float

    @property
    def name(self) -> str:
        """Names the program and its size."""
        return f"{self.program} {self.size}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return f"{self.program} {'long' if self.us >= LONG_US else 'short'}"


def rows(checkout: Path) -> Iterator[MeasuredProgram]:
    """Yields the published times of programs that launch one kernel. Raises UsageError for a folder without them."""
    for entry in csv.DictReader(text_of(checkout / FOLDER / "mi300a.csv", REPOSITORY).splitlines()):
        try:
            if entry["kernel_name"] in PROGRAMS:
                yield MeasuredProgram(entry["kernel_name"], entry["problem_size"], 1e3 * float(entry["min_ms"]))
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{checkout / FOLDER}/mi300a.csv: a row lacks kernel_name, problem_size or min_ms") from None


def sampled_program(checkout: Path, row: MeasuredProgram) -> SampledLaunch:
    """Compiles a row's kernel and samples its launch. Raises NotJudged if its buffers are too large."""
    import simgpu

    device, file = simgpu.Device(BOARD, threads=1), FILES.get(row.program, row.program)
    sizes = [int(part) for part in re.findall(r"\d+", row.size)]
    call = PROGRAMS[row.program](Buffers(device), *sizes)
    kernels = device.load(compile_program(checkout / FOLDER / f"{file}.cpp", "bench_common.h", device.arch))
    (kernel,) = (kernels[name] for name in kernels if call.kernel in name)
    return sample(kernel, call.geometry, call.args, restore=False)


class Buffers:
    """Makes a launch's buffers."""

    def __init__(self, device: Device) -> None:
        self.device, self.nbytes = device, 0

    def __call__(self, *words: int | np.ndarray) -> list[object]:
        """Returns buffers of that many 32-bit words, or with an array's contents."""
        made: list[object] = []
        for each in words:
            self.nbytes += F32 * (each if isinstance(each, int) else each.size)
            if self.nbytes > MOST_MEMORY:
                raise NotJudged(f"more than {MOST_MEMORY >> 20} MB of memory")
            made.append(self.device.alloc(F32 * each) if isinstance(each, int) else self.device.upload(each))
        return made


def _lanes(count: int, block: int = 256) -> Geometry:
    return Geometry.of(-(-count // block), block)


def _vectoradd(of: Buffers, n: int) -> ProgramLaunch:
    return ProgramLaunch("vectoradd_float", _lanes(n), [*of(n, n, n), n, 1])


def _relu(of: Buffers, n: int) -> ProgramLaunch:
    return ProgramLaunch("ReLUForward", _lanes(n), [n, *of(n, n)])


def _transpose(of: Buffers, n: int, _n: int) -> ProgramLaunch:
    blocks = n // 64  # 16 x 16 lanes, each with 4 x 4 elements
    geometry = Geometry.of((blocks, blocks), (16, 16), dynamic_lds=64 * 64 * F32)
    return ProgramLaunch("matrixTranspose", geometry, [*of(n * n, n * n), 0, n // 4, n // 4, blocks, 0, 0])


def _fir(of: Buffers, n: int, taps: int) -> ProgramLaunch:
    return ProgramLaunch("FIR", _lanes(n), [*of(n, taps, n, taps + 1), taps])


def _convolution(of: Buffers, width: int, height: int, mask: int) -> ProgramLaunch:
    wide = width + mask - 1
    buffers = of(wide * (height + mask - 1), mask * mask, width * height)
    return ProgramLaunch("simpleNonSeparableConvolution", _lanes(width * height, 64), [*buffers, width, height, mask, mask, wide])


def _stencil(of: Buffers, n: int, _n: int) -> ProgramLaunch:
    padded = -(-(n + 2) // 16) * 16
    geometry = Geometry.of((n // 16, n // 64), (1, 64))
    return ProgramLaunch("StencilKernel", geometry, [*of((n + 2) * padded, (n + 2) * padded), 16, 0.25, 0.15, 0.05])


def _kmeans(of: Buffers, points: int, features: int, clusters: int) -> ProgramLaunch:
    buffers = of(points * features, clusters * features, points)
    return ProgramLaunch("kmeans_kernel_compute", _lanes(points), [*buffers, points, clusters, features, 0, points])


def _spmv(of: Buffers, n: int, _n: int, nonzeros: int) -> ProgramLaunch:
    each = nonzeros // n
    columns = (np.arange(n, dtype=np.int32)[:, None] + np.arange(each, dtype=np.int32)) % n
    buffers = of(nonzeros, n, columns.astype(np.int32), np.arange(n + 1, dtype=np.int32) * each)
    return ProgramLaunch("spmv_csr_scalar_kernel", _lanes(n), [*buffers, n, *of(n)])


def _im2col(of: Buffers, batch: int, channels: int, height: int, width: int, down: int, across: int) -> ProgramLaunch:
    fields = (height - down + 1) * (width - across + 1) * batch
    pairs = [np.array(pair, np.uint32).tobytes() for pair in ((width, height), (across, down), (1, 1), (0, 0), (1, 1))]
    buffers = of(batch * channels * height * width, fields * down * across * channels)
    return ProgramLaunch("im2col", _lanes(fields), [*buffers, *pairs, channels, batch])


PROGRAMS: dict[str, Callable[..., ProgramLaunch]] = {
    "vectoradd": _vectoradd, "relu": _relu, "matrixtranspose": _transpose, "fir": _fir, "simpleconvolution": _convolution,
    "stencil2d": _stencil, "kmeans": _kmeans, "spmv_csr_scalar": _spmv, "im2col": _im2col,
}  # fmt: skip
FILES = {"spmv_csr_scalar": "spmv"}  # by program, if it is in a file of another name


@cache
def compile_program(path: Path, header: str, arch: str, instance: str = "") -> bytes:
    """Compiles the kernels of a program: its text between the include of `header` and main.

    instance: an instantiation of a template's kernel. Raises UsageError with the compiler's message.
    """
    text, include = text_of(path, REPOSITORY), f'#include "{header}"'
    begin, end = text.find(include), text.find("int main(")
    if begin < 0 or end < begin:
        raise UsageError(f"{path}: no kernels between {header} and main")
    code, log = compile_source(HipSource(f"{text[begin + len(include) : end]}\n{instance}\n", arch))
    if code is None:
        raise UsageError(f"{path.name}: {log}")
    return code
