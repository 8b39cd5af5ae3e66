"""Stencils, a norm, transposes and streams: kernels of `kernels.cl` that compute the same as the published ones.

Sizes and grids are those of the sources: amd/amd-lab-notes (Laplacian, Jacobi), amd/HPCTrainingExamples (transposes, yAx, seismic
stencils), UoB-HPC/BabelStream, te42kyfo/gpu-benches (gpu-stream). The code of the compilers used then is unknown; today's clang
compiles ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import ToolchainError
from simgpu.sampling.samples import sample
from simgpu.timing.gpu import Mechanisms
from simgpu.timing.predict import SampledLaunch, predict
from simgpu.tools.cases.opencl import compile_opencl
from simgpu.tools.validation.rows import Measurement
from simgpu.tools.validation.seismic import BLOCKS

SOURCE = Path(__file__).with_name("kernels.cl")
F64, F32 = 8, 4


class Bytes(int):
    """Bytes of a buffer that a launch takes as an argument."""


@dataclass(frozen=True)
class OwnLaunch:
    """A launch of one of our kernels."""

    kernel: str  # of `kernels.cl`
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Bytes | int | float, ...]  # a buffer's bytes, or a value
    nbytes: int = 0  # bytes that a bandwidth counts
    radius: int = 0  # of a line stencil


def launch_of(row: Measurement, chip: HardwareDescriptor) -> OwnLaunch | None:
    """Returns the launch that a row measured; None for a kernel that is not here."""
    name = row.kernel
    if name == "laplacian kernel1" and row.metric == "time":
        n, box = 512, Bytes(F64 * 512**3)
        return OwnLaunch("seven_points", (2, n, n), (256, 1, 1), (box, box, n, n, n, 1.0, 1.0, 1.0, -6.0))
    if name.startswith("jacobi ") and row.metric == "time":
        return _jacobi(name.split()[-1])
    if name.startswith("transpose "):
        kernels = {"read_contiguous": "transpose_reading_rows", "write_contiguous": "transpose_writing_rows"}
        n = 8192
        whole = Bytes(F64 * n * n)
        kernel = kernels.get(name.split()[-1], "transpose_by_tiles")
        return OwnLaunch(kernel, (n // 32, n // 32, 1), (32, 32, 1), (whole, whole, n, n))
    if name == "yAx 4-StridedAccess":
        n = 32768
        kernel = "columns_by_vector" if "solution" in row.repo_path else "rows_by_vector"
        return OwnLaunch(kernel, (2048, 1, 1), (64, 1, 1), (Bytes(F64 * n), Bytes(F64 * n * n), Bytes(F64 * n), n, n))
    line = re.fullmatch(r"seismic stencil ([xyz]) unaligned", name)
    if line and row.metric == "effective bandwidth":
        return _line("xyz".index(line[1]), int(re.search(r"R=(\d+)", row.shape)[1]))  # type: ignore[index]
    if name.startswith("gpu-stream "):
        return _two_a_unit(name.split()[-1], int(re.search(r"blockSize=(\d+)", row.shape)[1]), chip)  # type: ignore[index]
    if name.startswith("BabelStream "):
        return _stream(name.split()[-1], chip)
    return None


def _jacobi(name: str) -> OwnLaunch | None:
    n = 4096 * 4096
    plane, grid = Bytes(F64 * n), (n // 256, 1, 1)
    made = {
        "Laplacian": OwnLaunch("five_points", grid, (256, 1, 1), (plane, plane, 4096, 4094 + 4094 * 4096, 1.0, 1.0)),
        "Update": OwnLaunch("update", grid, (256, 1, 1), (plane, plane, plane, plane, 0.25, n)),
        "Norm": OwnLaunch("squares", (256, 1, 1), (512, 1, 1), (Bytes(F64 * 256), plane, n)),
    }
    return made.get(name)


def _line(axis: int, radius: int) -> OwnLaunch:
    n, side = 512, 512 + 2 * radius
    box, stride = Bytes(F32 * side**3), (1, side, side * side)[axis]
    counted = F32 * (2 * n**3 + 2 * radius * n * n)
    arguments = (box, box, side, side * side, stride, n, n, n)
    width, rows = list(BLOCKS.values())[axis]
    return OwnLaunch("line_points", (n // width, n // rows, n), (width, rows, 1), arguments, counted, radius)


def _stream(name: str, chip: HardwareDescriptor) -> OwnLaunch | None:
    n = 1 << 25  # 268 MB
    whole, grid, block = Bytes(F64 * n), (n // 1024, 1, 1), (1024, 1, 1)
    if name == "Dot":
        groups = 4 * chip.num_cus
        return OwnLaunch("dot_products", (groups, 1, 1), block, (Bytes(F64 * groups), whole, whole, n), 2 * F64 * n)
    kernel = {"Copy": "copy", "Mul": "scale", "Add": "add", "Triad": "triad"}.get(name)
    arrays = 3 if name in ("Add", "Triad") else 2
    return OwnLaunch(kernel, grid, block, (whole,) * arrays, arrays * F64 * n) if kernel else None


STREAMS = {"init": 1, "read": 1, "scale": 2, "triad": 3, "3pt": 2, "5pt": 2}  # arrays that a bandwidth counts


def _two_a_unit(name: str, block: int, chip: HardwareDescriptor) -> OwnLaunch | None:
    if name not in STREAMS or (name.endswith("pt") and chip.name != "mi100"):  # MI210's columns do not say which stencils they are
        return None
    n = (128 << 20) + 2
    whole = Bytes(F64 * n)
    arguments = (whole, whole, whole, n, 0)
    return OwnLaunch(f"two_{name}", (n // block + 1, 1, 1), (block, 1, 1), arguments, STREAMS[name] * F64 * n)


UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e3, "us": 1e6}


def predict_row(row: Measurement, chip: HardwareDescriptor, on: Mechanisms | None) -> float | None:
    """Returns the model's figure in the row's unit; None for a kernel that is not here."""
    launch = launch_of(row, chip)
    if launch is None:
        return None
    seconds = predict(_sample_launch(launch, chip.name), on=on).seconds
    return launch.nbytes / seconds / 1e9 if launch.nbytes else seconds * UNITS[row.unit]


@cache
def _sample_launch(launch: OwnLaunch, board: str) -> SampledLaunch:
    import simgpu

    device = simgpu.Device(board, threads=1)
    kernel = device.load(_code(device.arch, launch.radius))[launch.kernel]
    arguments = [device.alloc(value) if isinstance(value, Bytes) else value for value in launch.arguments]
    return sample(kernel, Geometry.of(launch.grid, launch.block), arguments, restore=False)


@cache
def _code(arch: str, radius: int) -> bytes:
    text = SOURCE.read_text("utf-8")
    code, log = compile_opencl(f"#define RADIUS {radius}\n{text}" if radius else text, arch, SOURCE)
    if code is None:
        raise ToolchainError(log)
    return code
