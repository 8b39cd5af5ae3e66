"""AMD's seismic stencils on a GCD of an MI250X: the kernels of amd/HPCTrainingExamples beside the times of its blog.

Kernels: a checkout's rocm-blogs-codes/seismic-stencils/parts-1-2-3, compiled here for each row and not kept. Figures: ROCm blogs,
"Seismic stencil codes", parts 1 to 3 (ROCm 6.1): effective bandwidths, and bytes by level; and the folder's figures/*.csv for
sliding windows. No constant of the model was chosen with them in view, except for the rows IN_VIEW.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hip.options import HipSource
from simgpu.sampling.samples import sample
from simgpu.timing.predict import SampledLaunch
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.shared.hiprtc import compile_source
from simgpu.tools.validation.checkouts import text_of

FOLDER = "rocm-blogs-codes/seismic-stencils/parts-1-2-3"
BOARD = "mi250x"
SIDE, F32 = 512, 4  # points of the cube's side; bytes
ALIGN = 64  # points to which rows are padded if aligned
REPOSITORY = "amd/HPCTrainingExamples"
# Folder's tables of sliding windows, R = 4, floats by two, aligned, and the kernels that they measure:
WINDOWS = {"new_sliding_window": "z_window_vec", "new_sliding_window_xyz": "xyz_lds_window_vec"}
WIDTHS = (1, 4, 16, 64, 128, 512)  # planes of a window that are judged, of the 27 in a table
BLOCKS = {"x": (256, 1), "y": (64, 4), "z": (64, 8)}  # BLOCK_DIM_X and _Y of the sources; others 64 x 4 with R = 4
# GB/s by R of 1 to 4 [part 1: "Initial performance"], rows not aligned:
BY_RADIUS = {"x": (971, 995, 977, 956), "y": (948, 982, 965, 940), "z": (915, 753, 394, 217)}
ALIGNED = {"x": 990, "y": 966, "z": 297}  # GB/s, R = 4 [part 2]
VECTORS = {"x_vec": (980, 1216, 1240), "y_vec": (967, 831, 1163)}  # GB/s, R = 4, aligned, by floats of a lane: 1, 2, 4 [part 3]
# Rows x, y and z in view when a choice was made [timing-constants.md, "Chosen with errors in view"]:
IN_VIEW = (("x", 1), ("x", 2), ("y", 1), ("y", 3), ("y", 4), ("z", 2), ("z", 4))
LDS = {"y_lds_vec": 1272, "xy_lds_vec": 1252}  # GB/s, four floats a lane [part 3]


@dataclass(frozen=True)
class MeasuredStencil:
    """A published effective bandwidth."""

    kernel: str  # compute_fd_KERNEL.hpp
    radius: int
    gbs: float
    aligned: bool = False
    exponent: int = 0  # logarithm of the floats of a lane
    window: int = 0  # planes of a sliding window; 0: none

    @property
    def name(self) -> str:
        """Names the kernel and its launch."""
        vector = f" float{1 << self.exponent}" * (self.exponent > 0)
        window = f" window {self.window}" * (self.window > 0)
        return f"{self.kernel} R={self.radius}{vector}{window} {'aligned' if self.aligned else 'unaligned'}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return "window" if self.window else "plain" if self.kernel in BLOCKS else "vectors"

    @property
    def fits(self) -> bool:
        """True if a choice was made with this row in view."""
        return not self.aligned and (self.kernel, self.radius) in IN_VIEW

    @property
    def nbytes(self) -> int:
        """Bytes that the bandwidth counts: the cube read with its halo, and written."""
        axes = re.match("[xyz]+", self.kernel)
        assert axes
        return F32 * (2 * SIDE**3 + 2 * self.radius * SIDE**2 * len(axes[0]))

    @property
    def seconds(self) -> float:
        """Measured time."""
        return self.nbytes / (1e9 * self.gbs)


def rows(checkout: Path) -> Iterator[MeasuredStencil]:
    """Yields the published bandwidths. Raises UsageError for a folder without the kernels."""
    for axis, each in BY_RADIUS.items():
        yield from (MeasuredStencil(axis, radius, gbs) for radius, gbs in enumerate(each, 1))
        yield MeasuredStencil(axis, 4, ALIGNED[axis], True)
    for kernel, found in VECTORS.items():
        yield from (MeasuredStencil(kernel, 4, gbs, True, exponent) for exponent, gbs in enumerate(found))
    yield from (MeasuredStencil(kernel, 4, gbs, True, 2) for kernel, gbs in LDS.items())
    for table, kernel in WINDOWS.items():
        for entry in csv.DictReader(text_of(checkout / FOLDER / f"figures/{table}.csv", REPOSITORY).splitlines()):
            width, gbs = int(entry["$n_w$"]), float(entry["Bandwidth"])
            if width in WIDTHS:
                yield MeasuredStencil(kernel, 4, gbs, True, 1, width)


def sampled_stencil(checkout: Path, row: MeasuredStencil) -> SampledLaunch:
    """Compiles a row's kernel and samples its launch, as the folder's stencils.cpp makes it."""
    import simgpu

    device = simgpu.Device(BOARD, threads=1)
    (kernel,) = device.load(_code(checkout, row.kernel, row.radius, row.exponent, device.arch)).values()
    lanes = 1 << row.exponent
    # Its halo in x is as many points as a row's vectors reach, XWIN of helper.hpp:
    halo = row.radius if lanes == 1 else max(lanes, 4 if row.radius > 2 else 2)
    line = SIDE + 2 * halo
    line = -(-line // ALIGN) * ALIGN if row.aligned else line
    piece = line * (SIDE + 2 * row.radius)
    offset = F32 * (ALIGN - row.radius if row.aligned else 0)
    boxes = [device.alloc(F32 * piece * (SIDE + 2 * row.radius) + 2 * offset).address + offset for _ in range(2)]
    width, height = BLOCKS.get(row.kernel, (64, 4))
    deep = -(-SIDE // row.window) if row.window else SIDE
    unused = [] if row.kernel.endswith("window_vec") else [0]  # a pointer to coefficients, which the kernels do not read
    ends = [row.radius, SIDE + row.radius] * 3
    args = [*boxes, *unused, line, piece, *ends, *([row.window] if row.window else [])]
    grid = -(-SIDE // (width * lanes)), -(-SIDE // height), deep
    return sample(kernel, Geometry.of(grid, (width, height, 1)), args, restore=False)


@cache
def _code(checkout: Path, kernel: str, radius: int, exponent: int, arch: str) -> bytes:
    """Compiles a kernel of the checkout, without its host code. Raises UsageError with the compiler's message."""
    helper, source = (text_of(checkout / FOLDER / f"{name}.hpp", REPOSITORY) for name in ("helper", f"compute_fd_{kernel}"))
    tables = _between(helper, "// Table containing", "template <int R>\nvoid")
    tables = tables.replace("[2 * R + 1]", "[2 * R + 2]")  # clang reads seven coefficients by eight words, past the module's end
    vectors = _between(helper, "// Vectorized floats", "// Integer division")
    body = source[source.index("#define BLOCK_DIM_X") : source.index("template <int R>\nvoid")]
    body = body.replace("template <int R>\n", "").replace("__global__", 'extern "C" __global__')
    text = f"#define RADIUS {radius}\n#define VEC_EXP {exponent}\nconstexpr int R = RADIUS;\n{tables}{vectors}{body}"
    code, log = compile_source(HipSource(text, arch))
    if code is None:
        raise UsageError(f"compute_fd_{kernel}.hpp: {log}")
    return code


def _between(text: str, begin: str, end: str) -> str:
    return text[text.index(begin) : text.index(end)]
