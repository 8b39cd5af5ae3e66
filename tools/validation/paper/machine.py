"""Hardware model and MFMA layout of the paper, recomputed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from simgpu.hardware import mfma
from simgpu.hardware.descriptor import HardwareDescriptor
from simgpu.hardware.errors import TargetError
from simgpu.operators import AttentionProblem, Conv2d, Conv2dProblem, FusedAttention, Softmax, SoftmaxProblem, TiledComputation
from simgpu.operators.tree import Root
from simgpu.tools.validation.paper.entry import PaperNumber, QuotedFigure, pair
from simgpu.tools.validation.paper.givens import Givens

CLOCKS_PER_WAVE = 4  # clocks of a SIMD of 16 lanes for a vector instruction of 64 [AMD CDNA ISA]
# Figures of the paper's listing that may differ on another GPU; the wavefront is 64 on every target.
FIGURES = ("lds_bytes", "vgpr_per_thread", "num_cus", "hbm_bandwidth_tb", "peak_tflops_f32")


def lane_rate(d: HardwareDescriptor) -> float:
    """Lanes a second that all CUs execute of vector instructions, in units of 10^12."""
    return d.simds_per_cu * d.wavefront_size / CLOCKS_PER_WAVE * d.num_cus * d.clock_mhz * 1e-6


def hardware(g: Givens) -> Iterator[PaperNumber]:
    """Yields peaks, bandwidths, registers, and the figures that matter."""
    where = "Hardware model"
    a, b, mi100, mi300x = g.gpu_a, g.gpu_b, g.mi100, g.mi300x
    peak, once, twice = mi100.matrix_tflops("f32"), lane_rate(a), 2 * lane_rate(a)
    clock = f"{mi100.num_cus} x {mi100.clock_mhz / 1000:g} GHz"
    yield PaperNumber(
        where, "f32 vector peak, gpu_a", "11.5 TFLOPS", f"{once:.1f}", f"{2 * lane_rate(mi100):.1f}", "E1",
        "an FMA counted once; the figure is AMD's for f64",
    )  # fmt: skip
    yield PaperNumber(
        where, "f32 matrix peak, gpu_a", "23.1 TFLOPS, two FMAs a clock", f"{twice:.1f}", f"{peak:.1f}", "E1",
        f"two FMAs a lane and clock, each counted once, are the vector peak; {mi100.matrix_flops_per_clock('f32'):g} FLOP/clk/CU x "
        + clock,
    )  # fmt: skip
    share = g.gemm_tflops / twice, g.gemm_tflops / peak
    yield PaperNumber(where, f"{g.gemm_tflops:g} TFLOPS (measured) of that", "53 %", f"{share[0]:.0%}", f"{share[1]:.1%}", "E1")
    yield PaperNumber(
        where, "f32 peak, gpu_b", "383 TFLOPS", QuotedFigure(f"{b.peak_tflops_f32:g}"), f"{mi300x.matrix_tflops('f32'):.1f}", "E2",
        f"MI250X's f16: {g.mi250x.matrix_tflops('f16'):.1f} a die, two dies",
    )  # fmt: skip
    yield PaperNumber(
        where,
        "HBM bandwidth, gpu_a",
        "1.2 TB/s",
        QuotedFigure(f"{a.hbm_bandwidth_tb:g}"),
        f"{mi100.hbm_bandwidth_tb:g}",
        "",
        "rounded",
    )
    yield PaperNumber(
        where, "registers a lane", "256", QuotedFigure(f"{a.vgpr_per_thread}"),
        f"{mi100.vgpr_per_thread} Arch + {mi100.agpr_per_thread} Acc", "E3", "MFMA results live in the second file on gfx908",
    )  # fmt: skip
    yield PaperNumber(
        where, "clock, L2 and AccVGPRs of gpu_a and gpu_b", "none",
        *pair(f"{x.clock_mhz} MHz, {x.xcds} x {x.l2_bytes >> 20} MB, {x.agpr_per_thread}" for x in (b, mi300x)), "",
        f"assumed: {b.assumed}; gpu_b has the CUs and the bandwidth of MI300X",
    )  # fmt: skip
    yield PaperNumber(
        where, "figures that no tile follows from", "none: only what the derivation needs",
        *pair(", ".join(idle_figures(a, policy)) or "none" for policy in ("published", "corrected")), "",
        "the vector peak is only quoted; softmax holds its bandwidth against it",
    )  # fmt: skip
    atoms = [x.atom("f32") for x in (a, mi100)]
    yield PaperNumber(
        where, "16x16x4: A, B, C elements a lane", "1, 1, 4",
        *pair(f"{x.elements_per_lane}, {x.elements_per_lane}, {x.acc_registers}" for x in atoms),
    )  # fmt: skip


def idle_figures(descriptor: HardwareDescriptor, policy: str) -> list[str]:
    """Names the figures of the paper's listing that, doubled or halved, change the tiles of none of the four operators.

    An operator whose matrix instruction the board lacks does not count.
    """
    made: tuple[Callable[..., Root], ...] = (
        partial(TiledComputation, 1000, 4096, 4096),
        partial(Conv2d, Conv2dProblem(1, 64, 56, 56, 64, 3, 3)),
        partial(Softmax, SoftmaxProblem(128, 10**5)),
        *(partial(FusedAttention, AttentionProblem(length, length, 128)) for length in (2048, 16384)),
    )
    trees = []
    for make in made:
        with contextlib.suppress(TargetError):
            trees.append(make(target=descriptor, policy=policy))

    def decides(name: str) -> bool:
        figure = getattr(descriptor, name)
        others = [replace(descriptor, **{name: type(figure)(figure * factor)}) for factor in (0.5, 2)]
        return any(tree.on(other).derivation.sizes != tree.derivation.sizes for tree in trees for other in others)

    return [name for name in FIGURES if not decides(name)]


def layout(g: Givens) -> Iterator[PaperNumber]:
    """Yields the owners of C's elements."""
    where = "MFMA layout"
    row = mfma.find(g.instruction, g.mi100.arch)
    rows, columns = row.shape("D")
    held = {(i, j): row.owner("D", i, j)[:2] for i in range(rows) for j in range(columns)}
    says = "holds" if all(held[i, j] == (i % 4, i // 4 * 16 + j) for i, j in held) else "fails"
    yield PaperNumber(
        where, "acc[f] = C[4*(tid/16) + f][tid % 16]", "not as documented", says, says, "E12", "it is what AMD documents"
    )
    yield PaperNumber(
        where, "Q[i,:] = i, K = I under the naive layout", "the identity", QuotedFigure("the identity"), naively_read(held), "E13",
        "exchanging rows and columns transposes",
    )  # fmt: skip


def naively_read(held: dict[tuple[int, int], tuple[int, int]]) -> str:
    """Names the matrix that a naive reader sees in C of the structured test, C[i,j] = i.

    The reader takes lane t's register f for C[t % 16][4*(t/16) + f]. held: (register, lane) of each element of C.
    """
    size = 1 + max(i for i, _ in held)
    seen = np.full((size, size), -1)
    for (i, _), (register, lane) in held.items():
        seen[lane % size, (4 * (lane // 16) + register) % size] = i
    index = np.arange(size)
    names = {"the identity": np.eye(size), "C[i,j] = i": index[:, None], "C[i,j] = j": index[None, :]}
    return next((name for name, c in names.items() if (seen == c).all()), "neither row, column nor the identity")
