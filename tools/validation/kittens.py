"""HipKittens' own kernels on MI355X: compiled here, beside the times of its benchmarks.

A checkout of github.com/HazyResearch/HipKittens at f09e9685 is read in place, its kernels are compiled and not kept. Figures:
`analysis/*/mi355x_*.json`, whose scripts measure a call between two events, one at a time. For products of fp8 the host is C++, and
Python for all others, so small launches take some microseconds longer. No constant of the model was chosen with these times in
view, but a rule was, for workgroups of a causal mask: with three times of heads of 128 elements. AITER's attention in the same
files calibrated the clock: see `hipkittens`.

The bytes are those of our compiler, not of ROCm's 7.0. Our clang moves accumulators between registers in the large products of fp8.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from simgpu.hardware.code_object.arguments import Geometry
from simgpu.hip.options import HipSource
from simgpu.sampling.samples import sample
from simgpu.timing.caches import Warm
from simgpu.timing.predict import SampledLaunch
from simgpu.tools.cases.host_parts import compile_kernels
from simgpu.tools.shared.errors import UsageError
from simgpu.tools.validation.aiter import NotJudged
from simgpu.tools.validation.checkouts import text_of
from simgpu.tools.validation.hipkittens import BOARD, HEADS

REPOSITORY = "HazyResearch/HipKittens"
SIZES = (1024, 2048, 4096, 8192, 16384)  # rows of a product; queries; positions
BF16, F32, F8 = 2, 4, 1  # bytes
LDS = 160000  # MAX_SHARED_MEMORY of include/common/util.cuh, which all launches with dynamic LDS ask for
BATCH, WIDTH = 16, 128  # of rotary embeddings: batch, which is also its heads, and elements of a head
WAVES = 8  # of a workgroup of attention, 32 queries each, and of products of bf16
MOST_BYTES = 3 << 30  # of a launch's buffers
BEYOND = 1 << 16  # bytes after a buffer: loads ahead reach past the end


@dataclass(frozen=True)
class MeasuredKitten:
    """A published time."""

    group: str  # "bf16 GEMM", "fp8 GEMM", "rotary", "attention" or "attention causal"
    size: int  # see SIZES
    us: float
    heads: str = ""  # key of HEADS
    width: int = 0  # elements of a head, of attention
    batch: int = 1  # of attention

    @property
    def name(self) -> str:
        """Says what was measured."""
        return " ".join(filter(None, [self.group, self.heads, f"d{self.width}" * (self.width > 0), str(self.size)]))

    @property
    def warm(self) -> Warm:
        """Contents of caches: other kernels made new inputs just before. With fp8, copies beyond all caches take turns."""
        return False if self.group == "fp8 GEMM" else "last"

    @property
    def element(self) -> str:
        """Type of its elements."""
        return "fp8" if self.group == "fp8 GEMM" else "bf16"


@dataclass(frozen=True)
class _Launch:
    """A launch of a source's kernel."""

    source: str  # path in the checkout
    kernel: str  # its instance; "" if the source has one kernel
    shapes: Sequence[tuple[int, ...]]  # of its buffers: bytes of an element, then extents
    grid: Sequence[int]
    block: int
    lds: int
    defined: Sequence[str] = ()  # macros
    fixed: bool = False  # extents are parts of the types of the kernel's tensors


def rows(checkout: Path) -> Iterator[MeasuredKitten]:
    """Yields the published times. Raises UsageError for a folder without them."""
    for size, entry in _figures(checkout / "analysis/bf16_gemm/mi350x/mi355x_bf16_gemm.json", "avg_time"):
        yield MeasuredKitten("bf16 GEMM", size, 1e3 * entry["avg_time"])
    for size, entry in _figures(checkout / "analysis/fp8_gemm/mi350x/mi355x_fp8_gemm.json", "avg_time"):
        yield MeasuredKitten("fp8 GEMM", size, 1e3 * entry["avg_time"])
    for size, entry in _figures(checkout / "analysis/rotary/mi350x/mi355x_rotary.json", "avg_time_tk"):
        yield MeasuredKitten("rotary", size, 1e3 * entry["avg_time_tk"])
    for kind, (heads, _) in HEADS.items():
        for width in (128, 64):
            for causal in (False, True):
                name = f"mi355x_{'d64_' * (width == 64)}{kind}_{'causal' if causal else 'non_causal'}_fwd.json"
                for size, entry in _figures(checkout / "analysis/attn/fwd/benchmark" / name, "avg_time", "tflops"):
                    ms = entry["avg_time"]
                    batch = round(entry["tflops"] * 1e9 * ms * (2 if causal else 1) / (4 * size**2 * heads * width))
                    yield MeasuredKitten(f"attention{' causal' * causal}", size, 1e3 * ms, kind, width, batch)


def sampled_kitten(checkout: Path, row: MeasuredKitten) -> SampledLaunch:
    """Compiles a row's kernel and samples its launch, on zeros. Raises NotJudged for more than MOST_BYTES of buffers."""
    import simgpu

    launch = _launch_of(row)
    sizes = [math.prod(shape) for shape in launch.shapes]
    if sum(sizes) > MOST_BYTES:
        raise NotJudged(f"more than {MOST_BYTES >> 30} GB of buffers")
    device = simgpu.Device(BOARD, threads=1)
    module = device.load(_code(checkout, launch.source, launch.kernel, tuple(launch.defined), device.arch))
    if len(module) != 1:
        raise UsageError(f"{launch.source}: no kernel {launch.kernel}; give a checkout of github.com/{REPOSITORY}")
    (kernel,) = module.values()
    buffers = [device.alloc(size + BEYOND) for size in sizes]
    tensors = [_tensor(one.address, shape[1:], launch.fixed) for one, shape in zip(buffers, launch.shapes, strict=True)]
    # Products of fp8 have an argument for each tensor. Others have one structure, which ends with a stream.
    arguments = tensors if launch.fixed else [b"".join([*tensors, bytes(8)])]
    return sample(kernel, Geometry.of(launch.grid, launch.block, launch.lds), arguments, restore=False)


def _launch_of(row: MeasuredKitten) -> _Launch:
    n = row.size
    if row.group == "bf16 GEMM":
        tile = 128 if n <= 2048 else 256
        source = f"analysis/bf16_gemm/mi350x/kernel_{n}.cpp"
        return _Launch(source, "", [(BF16, n, n)] * 3, [(n // tile) ** 2], 64 * WAVES, LDS)
    if row.group == "fp8 GEMM":
        tile = {1024: 64, 2048: 128}.get(n, 256)
        kernel = f"matmul_device{f'_{n}' * (n <= 2048)}<{n}, {n}, {n}>"
        shapes = [(F8, n, n), (F8, n, n), (BF16, n, n)]
        return _Launch("kernels/gemm/fp8fp32/FP8_4wave/4_wave.cu", kernel, shapes, [(n // tile) ** 2], 256, 0, fixed=True)
    if row.group == "rotary":
        whole, angles = (BF16, BATCH, BATCH, n, WIDTH), (BF16, n, WIDTH // 2)
        source = f"analysis/rotary/mi350x/kernel_{n}.cpp"
        return _Launch(source, "tk_fused_rotary<HEAD_DIM>", [whole, whole, angles, angles], (BATCH, BATCH, n // 32), 64, 0)
    heads, kv_heads = HEADS[row.heads]
    queries, keys = ((BF16, row.batch, n, count, row.width) for count in (heads, kv_heads))
    values = ("B", row.batch), ("H", heads), ("H_KV", kv_heads), ("N", n), ("D", row.width)
    kind = f"{'causal' if 'causal' in row.group else 'non_causal'}{'_d64' * (row.width == 64)}"
    return _Launch(
        f"analysis/attn/fwd/benchmark/attn_fwd_{kind}.cpp", "attend_ker<ATTN_D>",
        [queries, keys, keys, queries, (F32, row.batch, heads, 1, n)], (heads, -(-n // (32 * WAVES)), row.batch), 64 * WAVES, LDS,
        [f"-DATTN_{name}={value}" for name, value in values],
    )  # fmt: skip


def _tensor(address: int, shape: tuple[int, ...], fixed: bool) -> bytes:
    """Returns the bytes of a tensor (`gl` of include/types/global/gl.cuh): address, four extents unless fixed, an empty member."""
    extents = [] if fixed else [*[1] * (4 - len(shape)), *shape]
    return struct.pack(f"<Q{len(extents)}QQ", address, *extents, 0)


@cache
def _code(checkout: Path, path: str, kernel: str, defined: tuple[str, ...], arch: str) -> bytes:
    """Compiles a kernel of the checkout. Raises UsageError with the compiler's message."""
    text, place = text_of(checkout / path, REPOSITORY), checkout / path
    options = ("-std=c++20", "-DKITTENS_CDNA4", "-ffast-math", "-w", *defined, f"-I{checkout.absolute() / 'include'}")
    # The host's part launches instances by values that only it knows; `compile_kernels` reads launches.
    found = re.search(r"(?:template\s*<[^>]*>\s*)?void dispatch_\w+\(|// Rotating buffer", text)
    kernels = text[: found.start() if found else None] + (f"void launch() {{ {kernel}<<<1, 1>>>(); }}\n" if kernel else "")
    code, log = compile_kernels(HipSource(kernels, arch, options, file="kernel.hip", folder=str(place.parent.absolute())))
    if code is None:
        raise UsageError(f"{path}: {log[:500]}; give a checkout of github.com/{REPOSITORY}")
    return code


def _figures(path: Path, *wanted: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Yields the entries of a file of figures by size, for SIZES. Raises UsageError if it has other ones."""
    try:
        found = json.loads(text_of(path, REPOSITORY))
        yield from ((size, {name: float(found[str(size)][name]) for name in wanted}) for size in SIZES)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: cannot be read as HipKittens' times: {error}") from None
