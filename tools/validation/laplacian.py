"""AMD's Laplacian on a GCD of an MI250X: the kernels of amd/amd-lab-notes beside the times and bytes of its tutorial.

Kernels: a checkout's finite-difference/examples, compiled here for each row and not kept. Figures: docs/Laplacian_Part1.md to
Part4.md (ROCm 5.3, f64): effective bandwidths, percent of 1,165 GB/s, and FETCH_SIZE. Tile factors of 16 without launch bounds are
left out: only the compiler of that time spills their registers. The hash of memory's channels, and the mean over the workgroups of
a front, were chosen with these rows in view.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hip.options import HipSource
from simgpu.sampling.samples import sample
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source
from simgpu.tools.validation.checkouts import text_of
from simgpu.tools.validation.rows import RowLaunch

FOLDER, REPOSITORY, BOARD = "finite-difference/examples", "amd/amd-lab-notes", "mi250x"
SMALL, LARGE, F64 = 512, 1024, 8  # points of the cube's sides; bytes
TARGET = 1165.0  # GB/s, which percentages are of [part 1]
LEAST_LANES = 256  # launch bounds of the sources; larger workgroups need more
PARTS = 4  # launches of kernel 7, each of a part of y
HOST = "template <typename T>\nvoid laplacian("  # the host's part of a source begins so
# Percent of TARGET and FETCH_SIZE in GB by kernel and tile factor, 512³ [parts 1 to 3]:
FIGURES: dict[int, dict[int, tuple[float, float]]] = {
    1: {1: (808.148 / TARGET * 100, 2.014)},
    2: {1: (69.4, 2.014), 2: (68.3, 1.848), 4: (65.5, 1.880), 8: (64.0, 1.820)},
    3: {1: (82.9, 1.347), 2: (88.9, 1.166), 4: (93.1, 1.107), 8: (94.8, 1.080)},
    4: {1: (82.9, 1.346), 2: (88.9, 1.167), 4: (93.1, 1.107), 8: (96.1, 1.080), 16: (93.2, 1.094)},
    5: {8: (100.0, 1.074)},
}
STREAMED = 82.5, 1.429  # the same of kernel 1 with a nontemporal store [part 3]
# GB/s and percent of the least bytes that FETCH_SIZE may be, by kernel and workgroup, 1024³ [part 4]:
LARGE_FIGURES = {(5, (256, 1, 1)): (555.389, 33.1), (5, (128, 1, 8)): (934.111, 79.8), (6, (256, 1, 1)): (1070.04, 95.4),
                 (7, (256, 1, 1)): (1175.54, 99.6)}  # fmt: skip


@dataclass(frozen=True)
class MeasuredLaplacian:
    """A published figure: a time, or FETCH_SIZE."""

    kernel: int  # kernelN.hpp
    side: int  # points
    factor: int  # rows of a lane
    value: float  # us, or GB
    counter: bool = False  # FETCH_SIZE, no time
    block: tuple[int, int, int] = (256, 1, 1)
    streamed: bool = False  # kernel 1 with a nontemporal store

    @property
    def name(self) -> str:
        """Names the kernel and its launch."""
        block = f" {'x'.join(map(str, self.block))}" * (self.block != (256, 1, 1))
        return f"kernel {self.kernel} m={self.factor}{' streamed' * self.streamed}{block} {self.side}³"

    @property
    def group(self) -> str:
        """Class of the row."""
        return "FETCH_SIZE" if self.counter else f"{self.side}³"


def rows(checkout: Path) -> Iterator[MeasuredLaplacian]:
    """Yields the published figures. Raises UsageError for a folder without the kernels."""
    text_of(checkout / FOLDER / "kernel1.hpp", REPOSITORY)
    small, fetched = least_bytes(SMALL), least_bytes(LARGE)[0]
    for kernel, found in FIGURES.items():
        for factor, (percent, gigabytes) in found.items():
            yield MeasuredLaplacian(kernel, SMALL, factor, _us(small, TARGET * percent / 100))
            yield MeasuredLaplacian(kernel, SMALL, factor, gigabytes, True)
    yield MeasuredLaplacian(1, SMALL, 1, _us(small, TARGET * STREAMED[0] / 100), streamed=True)
    yield MeasuredLaplacian(1, SMALL, 1, STREAMED[1], True, streamed=True)
    for (kernel, block), (rate, percent) in LARGE_FIGURES.items():
        yield MeasuredLaplacian(kernel, LARGE, 8, _us(least_bytes(LARGE), rate), block=block)
        yield MeasuredLaplacian(kernel, LARGE, 8, 1e-9 * fetched / (percent / 100), True, block)


def least_bytes(side: int) -> tuple[int, int]:
    """Returns the bytes that a cube needs at least, loaded and stored [laplacian.cpp, `theoretical_fetch_size`].

    >>> [round(1e-9 * nbytes, 3) for nbytes in least_bytes(512)]
    [1.074, 1.061]
    """
    inside = side - 2
    return F64 * (side**3 - 8 - 12 * inside), F64 * inside**3


def _us(nbytes: tuple[int, int], rate: float) -> float:
    """Returns us that a cube takes at `rate` GB/s."""
    return sum(nbytes) / (1e3 * rate)


def sampled_laplacian(checkout: Path, row: MeasuredLaplacian) -> list[RowLaunch]:
    """Compiles a row's kernel and samples its launch, as the kernel's host code makes it. Parts of kernel 7 count as alike."""
    which = row.kernel, row.side, row.factor, row.block, row.streamed
    return _sample_kernel(checkout, *which)


@lru_cache(1)  # a time and its bytes follow each other
def _sample_kernel(
    checkout: Path, kernel: int, side: int, factor: int, block: tuple[int, int, int], streamed: bool
) -> list[RowLaunch]:
    import simgpu

    device = simgpu.Device(BOARD, threads=1)
    code = _code(checkout, kernel, {"m": factor, "LB": max(math.prod(block), LEAST_LANES)}, streamed, device.arch)
    (loaded,) = device.load(code).values()
    boxes = [device.alloc(F64 * side**3) for _ in range(2)]
    parts = PARTS if kernel == 7 else 1
    x, y, z = (-(-points // lanes) for points, lanes in zip((side, side // parts, side), block, strict=True))
    y = -(-y // factor)
    weights = [float((side - 1) ** 2)] * 3
    offset = [side // parts] if kernel == 7 else []  # of the second part, which begins and ends inside the cube
    arguments = [*boxes, side, side, side, *weights, -2 * sum(weights), *offset]
    grid = (y, z, x) if kernel == 6 else (x, y, z)
    return [RowLaunch(parts, sample(loaded, Geometry.of(grid, block), arguments, restore=False), False)]


def _code(checkout: Path, kernel: int, macros: Mapping[str, int], streamed: bool, arch: str) -> bytes:
    """Compiles a kernel of the checkout with other values of its macros, without its host code. Raises UsageError with the
    compiler's message."""
    path = checkout / FOLDER / f"kernel{kernel}.hpp"
    text = text_of(path, REPOSITORY)
    device = text[: text.find(HOST)]
    for name, value in macros.items():
        device = re.sub(rf"#define {name} .*", f"#define {name} {value}", device)
    device = device.replace("template <typename T>", 'using T = double;\nextern "C"')
    if streamed:
        device = re.sub(r"f\[pos\] = (.*?);", r"__builtin_nontemporal_store(\1, &f[pos]);", device, flags=re.DOTALL)
    code, log = compile_source(HipSource(device, arch))
    if code is None or HOST not in text:
        raise UsageError(f"{path}: {log}; give a checkout of github.com/{REPOSITORY}")
    return code
