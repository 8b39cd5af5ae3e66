"""Workloads of PolyBench, SHOC, Parboil, Rodinia and Hetero-Mark that MGPUSim's authors measured on an MI300A.

A checkout of github.com/sarchlab/mgpusim, at commit 5a7bd18b or later, is read in place: workloads/SUITE/NAME/hip/*.cpp and a table
of results. The kernels are compiled here for each row and not kept. bench_common_hip.h measures each of 10 runs between two events,
after a run that is not measured: caches are warm, and a time includes the host's part before the first kernel. The least time is
used. Only workloads are here that launch few kernels, on inputs whose values change no branch, or whose distribution is known.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.sampling.samples import sample
from simgpu.timing.history import LaunchHistory
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.checkouts import text_of
from simgpu.tools.validation.mgpusim import BOARD, F32, REPOSITORY, Buffers, ProgramLaunch, compile_program
from simgpu.tools.validation.rows import RowLaunch

FOLDER = "workloads"
RESULTS = f"{FOLDER}/results/kernel_timings_20260317-075319-odyssey.csv"
HEADER = "bench_common_hip.h"
LONG_US = 20.0  # from which the host's part is small
STEPS = 10  # of finite differences, a stencil and a lattice, by default
COLUMNS = 256  # of the matrices that rank-k updates multiply, by default
MOST_BLOCKS = 65535  # of SHOC's DeviceMemory
FMAS = 512  # of a lane of MaxFlops, by default
REACTIONS, SPECIES = 19, 9  # of S3D
BOX, CUTOFF = 100.0, 10.0  # of MD
VELOCITIES = 19  # of a lattice cell
HIDDEN = 16  # neurons of a layer
SEARCH = 16  # pixels around a block of SIDE x SIDE in which another frame is searched for it
CANDIDATES = (2 * SEARCH + 1) ** 2
SIDE, BLOCK = 16, 256  # lanes of a workgroup: SIDE x SIDE in two dimensions


class RepeatedLaunch(NamedTuple):
    """A launch that a run repeats."""

    times: int
    launch: ProgramLaunch


@dataclass(frozen=True)
class WorkloadSource:
    """A measured workload."""

    file: str  # below FOLDER
    launches: Callable[..., Sequence[RepeatedLaunch]]  # called with `Buffers` and the row's size
    instance: str = ""  # of a template's kernel, as C++


@dataclass(frozen=True)
class MeasuredWorkload:
    """A published time."""

    workload: str  # a key of WORKLOADS
    size: str  # as the table has it
    us: float

    @property
    def name(self) -> str:
        """Names the workload and its size."""
        return f"{self.workload} {self.size}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return f"{self.workload} {'long' if self.us >= LONG_US else 'short'}"


def rows(checkout: Path) -> Iterator[MeasuredWorkload]:
    """Yields the published times. Raises UsageError for a folder without them."""
    for entry in csv.DictReader(text_of(checkout / RESULTS, REPOSITORY).splitlines()):
        try:
            kernel = f"{entry['suite']}/{entry['kernel_name']}"
            if kernel in WORKLOADS:
                yield MeasuredWorkload(kernel, entry["problem_size"], 1e3 * float(entry["min_ms"]))
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{checkout / RESULTS}: a row lacks suite, kernel_name, problem_size or min_ms") from None


def sampled_workload(checkout: Path, row: MeasuredWorkload) -> list[RowLaunch]:
    """Compiles a row's kernels and samples its launches. Raises NotJudged if the buffers are too large."""
    import simgpu

    device, workload = simgpu.Device(BOARD, threads=1), WORKLOADS[row.workload]
    steps = workload.launches(Buffers(device), int(re.findall(r"\d+", row.size)[0]))
    kernels = device.load(compile_program(checkout / FOLDER / workload.file, HEADER, device.arch, workload.instance))
    made = []
    for times, call in steps:
        (kernel,) = (kernels[name] for name in kernels if call.kernel in name)
        made.append((times, sample(kernel, call.geometry, call.args, restore=False)))
    chain = LaunchHistory()
    for _ in range(2):  # the run that is not measured, and a measured one
        launches = []
        for times, sampled in made:
            launches.append(RowLaunch(times, sampled, chain))
            chain = chain.after(sampled)
    return launches


def _lanes(count: int) -> Geometry:
    return Geometry.of(-(-count // BLOCK), BLOCK)


def _plane(n: int) -> Geometry:
    return Geometry.of((-(-n // SIDE), -(-n // SIDE)), (SIDE, SIDE))


def _once(kernel: str, geometry: Geometry, *args: object) -> Sequence[RepeatedLaunch]:
    return [RepeatedLaunch(1, ProgramLaunch(kernel, geometry, args))]


def _convolution2d(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("convolution2D", _plane(n), *of(n * n, n * n), n, n)


def _convolution3d(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    blocks = -(-n // SIDE)
    return _once("convolution3D", Geometry.of((blocks, blocks, n), (SIDE, SIDE, 1)), *of(n**3, n**3), n, n, n)


def _gemm(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("gemm", _plane(n), *of(n * n, n * n, n * n), 32412.0, 2123.0, n, n, n)


def _rank_k(kernel: str, inputs: int) -> Callable[[Buffers, int], Sequence[RepeatedLaunch]]:
    def launches(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
        return _once(kernel, _plane(n), *of(*[n * COLUMNS] * inputs, n * n), 32412.0, 2123.0, n, COLUMNS)

    return launches


def _gesummv(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("gesummv", _lanes(n), *of(n * n, n * n, n, n), 32412.0, 2123.0, n)


def _of_one_matrix(kernels: Sequence[str], sizes: int) -> Callable[[Buffers, int], Sequence[RepeatedLaunch]]:
    """Returns launches that multiply one matrix by a vector each. sizes: arguments that are n."""

    def launches(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
        (matrix,) = of(n * n)
        return [step for kernel in kernels for step in _once(kernel, _lanes(n), matrix, *of(n, n), *[n] * sizes)]

    return launches


def _fdtd2d(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    ex, ey, hz, fict = of(n * n, n * n, n * n, STEPS)
    plane, line = _plane(n), _lanes(n)
    calls = [
        ProgramLaunch("fdtd2d_kernel1", line, (ey, fict, n, 0)), ProgramLaunch("fdtd2d_kernel2", plane, (ey, hz, n, n)),
        ProgramLaunch("fdtd2d_kernel3", plane, (ex, hz, n, n)), ProgramLaunch("fdtd2d_kernel4", plane, (ex, ey, hz, n, n)),
    ]  # fmt: skip
    return [RepeatedLaunch(STEPS, call) for call in calls]


def _device_memory(kernel: str, arrays: int) -> Callable[[Buffers, int], Sequence[RepeatedLaunch]]:
    def launches(of: Buffers, mb: int) -> Sequence[RepeatedLaunch]:
        words = mb << 18
        grid = Geometry.of(min(words // BLOCK, MOST_BLOCKS), BLOCK)
        return _once(kernel, grid, *of(*[words] * arrays), words)

    return launches


def _triad(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("triad", _lanes(n), *of(n, n, n), 1.75, n)


def _black_scholes(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("bs_kernel", _lanes(n), *of(n, n, n, n, n), 0.02, 0.30, n)


def _sgemm(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("sgemm_tiled", _plane(n), *of(n * n, n * n, n * n), n, 1.0, 0.0)


def _two_products(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    a, b, c, d, e = of(*[n * n] * 5)
    first = _once("mm2_kernel1", _plane(n), a, b, c, 2123.0, n, n, n)
    return [*first, *_once("mm2_kernel2", _plane(n), c, d, e, 2123.0, n, n, n)]


def _three_products(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    a, b, c, d, e, f, g = of(*[n * n] * 7)
    calls = ("mm3_kernel1", a, b, e), ("mm3_kernel2", c, d, f), ("mm3_kernel3", e, f, g)
    return [step for name, *matrices in calls for step in _once(name, _plane(n), *matrices, n, n, n)]


def _shoc_gemm(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("gemm", _plane(n), *of(n * n, n * n, n * n), n, n, n, 1.0, 0.0)


def _max_flops(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("maxflops", _lanes(n), *of(n), FMAS)


def _s3d(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    kelvin = np.random.default_rng(42).integers(300, 3000, n).astype(np.float32)
    heat, rates, species = of(kelvin, REACTIONS * n, SPECIES * n)
    return [*_once("rateconst", _lanes(n), heat, rates, n), *_once("species_rates", _lanes(n), rates, species, n)]


def _md(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    atoms = np.random.default_rng(42).uniform(0, BOX, (n, 4)).astype(np.float32)
    return _once("md_kernel", _lanes(n), *of(atoms, 4 * n), n, CUTOFF)


def _nearest(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("nn_kernel", _lanes(n), *of(2 * n, n), n, 30.0, -90.0)


def _jacobi(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    blocks = -(-n // SIDE)
    geometry = Geometry.of((blocks, blocks, n), (SIDE, SIDE, 1))
    return _by_turns("stencil", geometry, of(n**3, n**3), n, n, n, 0.6, 0.4 / 6)


def _by_turns(kernel: str, geometry: Geometry, arrays: Sequence[object], *args: object) -> Sequence[RepeatedLaunch]:
    """Returns STEPS launches, from one array to the other and back."""
    both = arrays, arrays[::-1]
    return [RepeatedLaunch(STEPS // 2, ProgramLaunch(kernel, geometry, (*of, *args))) for of in both]


def _lattice(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _by_turns("lbm", _lanes(n**3), of(VELOCITIES * n**3, VELOCITIES * n**3), n, 1.6)


def _layer_forward(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    return _once("layerforward", _lanes(HIDDEN), *of(n, (n + 1) * HIDDEN, HIDDEN), n, HIDDEN)


def _adjust_weights(of: Buffers, n: int) -> Sequence[RepeatedLaunch]:
    grid = Geometry.of((-(-(n + 1) // BLOCK), HIDDEN), (BLOCK, 1))
    return _once("adjust_weights", grid, *of(HIDDEN, n, (n + 1) * HIDDEN, (n + 1) * HIDDEN), n, HIDDEN, 0.3, 0.5)


def _compute_sad(of: Buffers, width: int) -> Sequence[RepeatedLaunch]:
    across = width // SIDE
    frames = of(width * width // F32, width * width // F32)
    (sums,) = of(across * across * CANDIDATES)
    return _once("ComputeSAD", Geometry.of(across * across, BLOCK), *frames, width, SIDE, SEARCH, sums, across, across)


def _find_least_sad(of: Buffers, width: int) -> Sequence[RepeatedLaunch]:
    count = (width // SIDE) ** 2
    return _once("FindMinSAD", _lanes(count), *of(count * CANDIDATES, count, count), CANDIDATES, count)


_SGEMM = "template __global__ void sgemm_tiled<16>(const float*, const float*, float*, int, float, float);"
WORKLOADS = {
    "polybench/2DConvolution": WorkloadSource("polybench/2DConvolution/hip/2dconvolution.cpp", _convolution2d),
    "polybench/3DConvolution": WorkloadSource("polybench/3DConvolution/hip/3dconvolution.cpp", _convolution3d),
    "polybench/gemm": WorkloadSource("polybench/gemm/hip/gemm.cpp", _gemm),
    "polybench/syrk": WorkloadSource("polybench/syrk/hip/syrk.cpp", _rank_k("syrk", 1)),
    "polybench/syr2k": WorkloadSource("polybench/syr2k/hip/syr2k.cpp", _rank_k("syr2k", 2)),
    "polybench/gesummv": WorkloadSource("polybench/gesummv/hip/gesummv.cpp", _gesummv),
    "polybench/mvt": WorkloadSource("polybench/mvt/hip/mvt.cpp", _of_one_matrix(("mvt_kernel1", "mvt_kernel2"), 1)),
    "polybench/bicg": WorkloadSource("polybench/bicg/hip/bicg.cpp", _of_one_matrix(("bicgKernel1", "bicgKernel2"), 2)),
    "polybench/fdtd2d": WorkloadSource("polybench/fdtd2d/hip/fdtd2d.cpp", _fdtd2d),
    "polybench/2mm": WorkloadSource("polybench/2mm/hip/2mm.cpp", _two_products),
    "polybench/3mm": WorkloadSource("polybench/3mm/hip/3mm.cpp", _three_products),
    "shoc/DeviceMemory_Read": WorkloadSource("shoc/DeviceMemory/hip/DeviceMemory.cpp", _device_memory("read_kernel", 2)),
    "shoc/DeviceMemory_Write": WorkloadSource("shoc/DeviceMemory/hip/DeviceMemory.cpp", _device_memory("write_kernel", 1)),
    "shoc/triad": WorkloadSource("shoc/Triad/hip/triad.cpp", _triad),
    "shoc/gemm": WorkloadSource("shoc/GEMM/hip/gemm.cpp", _shoc_gemm),
    "shoc/MaxFlops": WorkloadSource("shoc/MaxFlops/hip/MaxFlops.cpp", _max_flops),
    "shoc/s3d": WorkloadSource("shoc/S3D/hip/s3d.cpp", _s3d),
    "shoc/md": WorkloadSource("shoc/MD/hip/md.cpp", _md),
    "heteromark/bs": WorkloadSource("heteromark/BS/hip/bs.cpp", _black_scholes),
    "parboil/sgemm_tiled": WorkloadSource("parboil/sgemm/hip/sgemm.cpp", _sgemm, _SGEMM),
    "parboil/stencil_kernel": WorkloadSource("parboil/stencil/hip/stencil.cpp", _jacobi),
    "parboil/lbm_stream_collide": WorkloadSource("parboil/lbm/hip/lbm.cpp", _lattice),
    "parboil/ComputeSAD": WorkloadSource("parboil/sad/hip/sad.cpp", _compute_sad),
    "parboil/FindMinSAD": WorkloadSource("parboil/sad/hip/sad.cpp", _find_least_sad),
    "rodinia/layerforward": WorkloadSource("rodinia/backprop/hip/backprop.cpp", _layer_forward),
    "rodinia/adjust_weights": WorkloadSource("rodinia/backprop/hip/backprop.cpp", _adjust_weights),
    "rodinia/nn": WorkloadSource("rodinia/nn/hip/nn.cpp", _nearest),
}
