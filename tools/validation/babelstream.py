"""BabelStream on an MI300X and on MI300As: its HIP kernels beside published bandwidths.

A checkout of github.com/UoB-HPC/BabelStream at v5.0, which the published runs used, is read in place; its kernels are compiled here
and not kept. Figures are in MB/s, by the least time of all iterations. The host's clock takes each launch with its synchronisation,
some 10 of 1,000 us. In dot's time the host also adds 131,072 partial sums, one after another, so these rows are a class of their
own. No constant of the model was chosen with these rows in view.
"""

from __future__ import annotations

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

REPOSITORY = "UoB-HPC/BabelStream"
SOURCE = "src/hip/HIPStream.cpp"
ELEMENTS, F64 = 1 << 28, 8  # of an array (--arraysize 268435456, all runs); bytes
BLOCK, DOT_ELEMENTS = 1024, 2  # TBSIZE; elements of a lane of dot (HIPStream.h: 16 bytes)
ARRAYS = {"copy": 2, "mul": 2, "add": 3, "triad": 3, "dot": 2}  # arrays that a bandwidth counts
# MB/s by run, in the order of ARRAYS:
RUNS = {
    # ROCm's documentation, MI300X system acceptance, "BabelStream benchmarking results": the first GPU of eight at once
    "node": ("mi300x", (4255995.148, 4115971.910, 3956389.991, 3948061.647, 3878410.495)),
    # amd/HPCTrainingExamples, commit aaaa72d4, benchscripts/unofficial/run_BabelStream.sh: sample output
    "single": ("mi300a", (3859021.370, 3789464.147, 3719009.286, 3787553.768, 3105050.025)),
    # kkaytekin/mi300a_babelstream_cpx_tpx_spx, commit 065bb882, experiments/plotting/007_spx_full_node.py: device 0 of four at once
    "Hunter": ("mi300a", (3718782.807, 3623808.898, 3651245.425, 3651742.133, 2655243.138)),
}


@dataclass(frozen=True)
class MeasuredStream:
    """A published bandwidth."""

    kernel: str
    run: str
    board: str
    mbs: float

    @property
    def name(self) -> str:
        """Names the kernel and its run."""
        return f"{self.kernel} {self.run}"

    @property
    def group(self) -> str:
        """Class of the row."""
        return "dot" if self.kernel == "dot" else self.run

    @property
    def seconds(self) -> float:
        """Measured time."""
        return ARRAYS[self.kernel] * F64 * ELEMENTS / (1e6 * self.mbs)


def rows() -> Iterator[MeasuredStream]:
    """Yields the published bandwidths."""
    for run, (board, figures) in RUNS.items():
        yield from (MeasuredStream(kernel, run, board, mbs) for kernel, mbs in zip(ARRAYS, figures, strict=True))


def sampled_stream(checkout: Path, row: MeasuredStream) -> SampledLaunch:
    """Compiles a row's kernel and samples its launch."""
    import simgpu

    device = simgpu.Device(row.board, threads=1)
    kernel = device.load(_code(checkout, row.kernel, device.arch))[f"{row.kernel}_kernel"]
    args: list[object] = [device.alloc(F64 * ELEMENTS) for _ in range(ARRAYS[row.kernel])]
    if row.kernel != "dot":
        return sample(kernel, Geometry.of(ELEMENTS // BLOCK, BLOCK), args, restore=False)
    groups = ELEMENTS // (BLOCK * DOT_ELEMENTS)
    return sample(kernel, Geometry.of(groups, BLOCK), [*args, device.alloc(F64 * groups), ELEMENTS], restore=False)


@cache
def _code(checkout: Path, kernel: str, arch: str) -> bytes:
    """Compiles a kernel of the checkout for doubles. Raises UsageError with the compiler's message."""
    text = text_of(checkout / SOURCE, REPOSITORY)
    found = re.search(rf"^__global__ void {kernel}_kernel\([^)]*\)\n\{{\n.*?^\}}", text, re.M | re.S)
    if found is None or ("array_size" in found[0].partition("\n")[0] and kernel != "dot"):
        raise UsageError(f"{checkout / SOURCE}: no {kernel}_kernel of v5.0; give a checkout of github.com/{REPOSITORY} at v5.0")
    # startScalar is that of src/Stream.h.
    head = f"#define TBSIZE {BLOCK}\n#define startScalar (0.4)\nusing T = double;\nusing size_t = decltype(sizeof(0));\n"
    code, log = compile_source(HipSource(f'{head}extern "C" {found[0]}\n', arch))
    if code is None:
        raise UsageError(f"{kernel}_kernel: {log}")
    return code
